//! Rows for tests.

use std::sync::Arc;

use super::row::{OwnedRow, Status};
use crate::catalog::{Gpu, Precision, ScaleUp};
use crate::fidelity::{EstimateSource, TimeProvenance};
use crate::sim::Outcome;
use crate::space::{Architecture, Candidate, CandidateId, EngineLimits, Parallelism, Pool, Role};
use crate::stats::Summary;

fn gpu() -> Gpu {
    Gpu {
        name: "h100-sxm".into(),
        sm_version: 90,
        sm_count: 132,
        l2_bytes: 50_000_000,
        bf16_flops: 989e12,
        fp8_flops: Some(1979e12),
        int8_flops: 1979e12,
        fp4_flops: None,
        memory_bytes_per_second: 3.35e12,
        memory_bytes: 85_000_000_000,
        scale_up: ScaleUp::NvLink { bytes_per_second: 450e9 },
        nic_bytes_per_second: 50e9,
        gpus_per_node: 8,
        power_watts: Some(700.0),
        usd_per_hour: 3.0,
    }
}

pub(crate) fn candidate(index: u64) -> Candidate {
    Candidate {
        index,
        id: CandidateId(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(index + 1)),
        architecture: Architecture::Colocation,
        pools: vec![Pool {
            role: Role::Colocated,
            gpu: Arc::new(gpu()),
            replicas: 4,
            parallelism: Parallelism { pp: 1, tp_attention: 2, dp_attention: 1, tp_ffn: 2, ep_ffn: 1 },
            precision: Precision::BF16,
            engine_profile: "vllm-0.15".into(),
            engine: EngineLimits {
                scheduler: "vllm-v1",
                max_num_seqs: 256,
                max_num_batched_tokens: 8192,
                max_model_len: 8192,
                block_size: 16,
                gpu_memory_utilization: 0.9,
                cuda_graph: true,
                chunked_prefill: true,
                prefix_caching: false,
            },
        }],
        router: "round-robin",
        load_index: 0,
        load: 5.0,
    }
}

pub(crate) fn row(index: u64) -> OwnedRow {
    let tpot = Summary { mean_ms: 20.0, p50_ms: 19.0, p90_ms: 24.0, p95_ms: 25.0 + index as f64, p99_ms: 30.0 };
    let outcome = Outcome {
        submitted: 100,
        completed: 100,
        measured: 100,
        makespan_s: 20.0,
        prompt_tokens: 200_000,
        output_tokens: 50_000,
        met_sla: 90,
        tpot,
        busy_share: 0.5,
        ..Outcome::default()
    };
    // Equal shares, whatever the number of sources.
    let sources = EstimateSource::ALL.map(|_| 1.0 / EstimateSource::ALL.len() as f64);
    OwnedRow {
        candidate: Arc::new(candidate(index)),
        status: Status::of(&outcome),
        outcome: Some(outcome),
        provenance: Some(TimeProvenance { shares: sources, tpot_uncertainty: 0.05, ttft_uncertainty: 0.1 }),
        kv_blocks: 7462,
        sla_met: index.is_multiple_of(2),
        error: None,
    }
}

pub(crate) fn panicked_row(index: u64) -> OwnedRow {
    OwnedRow {
        status: Status::Panicked,
        outcome: None,
        provenance: None,
        sla_met: false,
        error: Some("index out of bounds".into()),
        ..row(index)
    }
}

pub(crate) fn rows(range: std::ops::Range<u64>) -> Vec<OwnedRow> {
    range.map(|index| if index % 10 == 9 { panicked_row(index) } else { row(index) }).collect()
}
