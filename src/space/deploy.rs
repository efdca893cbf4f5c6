//! The command that deploys a candidate.

use crate::catalog::{Model, NumberFormat};

use super::candidate::{Candidate, Pool};

/// The `vllm serve` command of one replica of each pool, one per line, each preceded by how many to start where.
///
/// Flags are those of vLLM's V1 engine (docs.vllm.ai, "Engine arguments"). `checkpoint` names the repository to load.
#[must_use]
pub fn deployment_commands(candidate: &Candidate, model: &Model) -> Vec<String> {
    candidate.pools.iter().map(|pool| pool_command(pool, model)).collect()
}

fn pool_command(pool: &Pool, model: &Model) -> String {
    let engine = &pool.engine;
    let split = pool.parallelism;
    let repository = model.repository.as_deref().unwrap_or(&model.name);
    let mut flags = vec![format!("vllm serve {repository}")];
    let mut flag = |name: &str, value: String| flags.push(format!("--{name} {value}"));
    flag("tensor-parallel-size", split.tp_attention.to_string());
    if split.pp > 1 {
        flag("pipeline-parallel-size", split.pp.to_string());
    }
    if split.dp_attention > 1 {
        flag("data-parallel-size", split.dp_attention.to_string());
    }
    flag("max-num-seqs", engine.max_num_seqs.to_string());
    flag("max-num-batched-tokens", engine.max_num_batched_tokens.to_string());
    flag("max-model-len", engine.max_model_len.to_string());
    flag("block-size", engine.block_size.to_string());
    flag("gpu-memory-utilization", engine.gpu_memory_utilization.to_string());
    let (wanted, stored) = (pool.precision, model.checkpoint);
    if wanted.weights != stored.weights {
        flag("quantization", wanted.weights.name().to_owned());
    }
    if wanted.kv_cache != NumberFormat::Bf16 {
        flag("kv-cache-dtype", wanted.kv_cache.name().to_owned());
    }
    let switches = [
        ("--enable-expert-parallel", split.ep_ffn > 1 && model.has_experts()),
        ("--enforce-eager", !engine.cuda_graph),
        ("--no-enable-chunked-prefill", !engine.chunked_prefill),
    ];
    flags.extend(switches.iter().filter(|(_, on)| *on).map(|(switch, _)| (*switch).to_owned()));
    flags.join(" ")
}
