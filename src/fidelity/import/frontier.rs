//! Operator tables of Frontier (github.com/NetX-lab/Frontier, MIT): a folder per GPU and model with `linear_op*.csv`,
//! `attention*.csv` and `moe*.csv`, and a folder per cluster with `all_reduce.csv` and `send_recv.csv`.
//!
//! Most shapes are timed twice, kernels alone and with launches; fits take the former. Engine `frontier-launch` takes
//! the latter, for GPUs that have no others.

use std::collections::BTreeMap;
use std::path::Path;

use super::tables::{self, Sample, Timing};
use super::{Dropped, Importer, Measurements};
use crate::diag::Diagnostic;
use crate::fidelity::operator::Operator;

/// Registry entry.
pub const IMPORTER: Importer = Importer {
    name: "frontier",
    summary: "CSV tables of Frontier: a folder of one GPU, of one of its models, or of one cluster; engines `frontier` \
              (kernels alone) and `frontier-launch` (with launches)",
    import,
};

/// Repeats of one shape that differ by more than this factor contradict each other.
const CONTRADICTION: f64 = 2.0;
/// A run is not trusted if this share of its repeated shapes contradicts itself.
const TOLERATED_SHARE: f64 = 0.1;

/// Reads the tables below a folder.
///
/// # Errors
/// An unknown engine, a table that cannot be read or lacks a column, or no usable row.
pub fn import(folder: &Path, engine: &str) -> Result<Measurements, Diagnostic> {
    let wanted = match engine {
        "frontier" => Timing::Kernel,
        "frontier-launch" => Timing::Launch,
        other => {
            return Err(Diagnostic::new(format!("Frontier's tables know no engine `{other}`")).help(
                "give `--engine frontier` for times of kernels alone, `frontier-launch` for times with launches",
            ));
        }
    };
    let mut dropped = Dropped::default();
    let mut samples = tables::read(folder, &mut dropped)?;
    let launch_overheads = tables::launch_overheads(&samples);
    drop_contradictory_runs(&mut samples, wanted);
    let rows = tables::measurements(&samples, wanted, &mut dropped);
    if rows.is_empty() {
        let help = "give a folder like `data/profiling/compute/h800`; some GPUs have only `frontier-launch` times";
        return Err(tables::nothing_usable(folder, dropped, help));
    }
    Ok(Measurements {
        in_engine: false,
        rows,
        dropped: dropped.finish(),
        launch_overheads,
        source: "Frontier operator tables (github.com/NetX-lab/Frontier)".to_owned(),
        licence: "MIT".to_owned(),
        attribution: "Copyright (c) 2026 Frontier contributors".to_owned(),
    })
}

/// Leaves out attention kernels of runs whose repeats contradict each other: points that were measured once are then no
/// more trustworthy than those that were measured twice.
fn drop_contradictory_runs(samples: &mut [Sample], wanted: Timing) {
    let is_attention = |sample: &Sample| {
        let kernel =
            matches!(sample.operator, Ok(Operator::PrefillAttention { .. } | Operator::DecodeAttention { .. }));
        sample.timing == wanted && kernel
    };
    let mut runs: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| is_attention(sample)) {
        let shapes = runs.entry(sample.run.clone()).or_default();
        shapes.entry(format!("{:?}", sample.operator)).or_default().push(sample.latency_ns);
    }
    runs.retain(|_, shapes| {
        let repeated = shapes.values().filter(|times| times.len() > 1);
        let contradicts = |times: &&Vec<f64>| {
            let (low, high) =
                times.iter().fold((f64::MAX, 0.0_f64), |(low, high), time| (low.min(*time), high.max(*time)));
            high > CONTRADICTION * low
        };
        repeated.clone().filter(contradicts).count() as f64 > TOLERATED_SHARE * repeated.count() as f64
    });
    for sample in samples.iter_mut() {
        if is_attention(sample) && runs.contains_key(&sample.run) {
            sample.operator = Err("attention of runs in which over a tenth of the repeated shapes differ more than \
                                   twofold between repeats"
                .to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::catalog::NumberFormat;
    use crate::fidelity::operator::{CollectiveKind, StreamingKind};

    fn write(folder: &Path, file: &str, lines: &[&str]) {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.join("\n")).unwrap();
    }

    fn reasons(measurements: &Measurements) -> Vec<(&str, usize)> {
        measurements.dropped.iter().map(|dropped| (dropped.reason.as_str(), dropped.rows)).collect()
    }

    const LINEAR: &str = "time_stats.attn_pre_proj.median,time_stats.mlp_up_proj.median,time_stats.mlp_act.median,\
                          time_stats.extra.median,n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,use_gated_mlp,\
                          use_qk_norm,num_tokens,num_tensor_parallel_workers,measurement_type,quant_signature";

    #[test]
    fn linear_operators_are_sharded_and_launches_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let widths = "32,8,4096,14336,128256,True,False";
        let kernel = format!("0.01,0.02,0.004,,{widths},16,2,KERNEL_ONLY,method=fp8|act=none|block=none");
        let launch = format!("0.03,0.05,0.034,0.1,{widths},16,2,CUDA_EVENT,method=fp8|act=none|block=none");
        write(folder.path(), "m/linear_op_kernel_only.csv", &[LINEAR, &kernel]);
        write(folder.path(), "m/linear_op.csv", &[LINEAR, &launch]);
        let measurements = import(folder.path(), "frontier").unwrap();
        let fp8 = NumberFormat::Fp8;
        let gemm = |n, k| Operator::Gemm { tokens: 16, n, k, weights: fp8, activations: fp8 };
        let operators: Vec<Operator> = measurements.rows.iter().map(|row| row.operator).collect();
        assert_eq!(operators.len(), 3);
        // 16 + 2 x 4 heads of 128; two of 7168 inner columns.
        assert!(operators.contains(&gemm(3072, 4096)) && operators.contains(&gemm(14_336, 4096)), "{operators:?}");
        // 16 tokens, gate and up read, one tensor written, two bytes each.
        assert!(operators.contains(&Operator::Streaming {
            kind: StreamingKind::Activation,
            bytes: 16.0 * 7168.0 * 3.0 * 2.0,
            kernels: 1
        }));
        let overheads: Vec<(&str, i64)> = measurements
            .launch_overheads
            .iter()
            .map(|overhead| (overhead.operator.as_str(), overhead.median_us.round() as i64))
            .collect();
        assert_eq!(overheads, [("attn_pre_proj", 20), ("mlp_act", 30), ("mlp_up_proj", 30)]);
        let launches = import(folder.path(), "frontier-launch").unwrap();
        assert_eq!(launches.rows.len(), 3);
        assert!(
            reasons(&launches).contains(&("the operator `extra` has no counterpart", 1)),
            "{:?}",
            reasons(&launches)
        );
    }

    #[test]
    fn bad_rows_are_counted_by_reason() {
        let folder = tempfile::tempdir().unwrap();
        let good = "0.01,,,,32,4,2048,768,151936,True,False,16,1,KERNEL_ONLY,none";
        let norms = "0.01,,,,32,4,2048,768,151936,True,True,16,1,KERNEL_ONLY,none";
        let negative = "-1,,,,32,4,2048,768,151936,True,False,16,1,KERNEL_ONLY,none";
        let awq = "0.01,,,,32,4,2048,768,151936,True,False,16,1,KERNEL_ONLY,method=awq";
        let no_heads = "0.01,,,,0,4,2048,768,151936,True,False,16,1,KERNEL_ONLY,none";
        write(folder.path(), "m/linear_op.csv", &[LINEAR, good, norms, negative, awq, no_heads]);
        let measurements = import(folder.path(), "frontier").unwrap();
        assert_eq!(measurements.rows.len(), 1);
        let expected = [
            ("`n_head` is zero", 1),
            ("projections before attention that are timed together with norms or gates", 1),
            ("the quantisation `method=awq` is not supported", 1),
            ("the time is not positive", 1),
        ];
        assert_eq!(reasons(&measurements), expected);
    }

    const ATTENTION: &str = "time_stats.attn_prefill.median,time_stats.attn_decode.median,n_embd,n_q_head,n_kv_head,\
                             num_tensor_parallel_workers,batch_size,prefill_chunk_size,kv_cache_size,is_prefill,\
                             seq_lens,is_true_mixed_batch,prefill_seq_lens,prefill_kv_cache_sizes,\
                             decode_kv_cache_sizes,measurement_type";

    #[test]
    fn attention_of_equal_chunks_and_of_any_decode_batch_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let rows = [
            ATTENTION,
            "0.012,0.05,4096,32,8,1,2,0,99,False,\"[1, 1]\",,,,,KERNEL_ONLY",
            "0.08,0.01,4096,32,8,1,2,64,128,True,\"[64, 64]\",,,,,KERNEL_ONLY",
            "0.09,0.01,4096,32,8,1,2,0,0,True,\"[64, 32]\",,,,,KERNEL_ONLY",
            "0.1,0.06,4096,32,8,1,3,0,0,True,,True,[1024],[0],\"[100, 300]\",KERNEL_ONLY",
        ];
        write(folder.path(), "m/attention.csv", &rows);
        let measurements = import(folder.path(), "frontier").unwrap();
        let decodes: Vec<(u32, f64, f64)> = measurements
            .rows
            .iter()
            .filter_map(|row| match row.operator {
                Operator::DecodeAttention { batch, context_tokens, longest_tokens, .. } => {
                    Some((batch, context_tokens, longest_tokens))
                }
                _ => None,
            })
            .collect();
        assert_eq!(decodes, [(2, 100.0, 100.0), (2, 201.0, 301.0)]);
        let prefills: Vec<(u32, u32, u32)> = measurements
            .rows
            .iter()
            .filter_map(|row| match row.operator {
                Operator::PrefillAttention { batch, chunk_tokens, context_tokens, .. } => {
                    Some((batch, chunk_tokens, context_tokens))
                }
                _ => None,
            })
            .collect();
        assert_eq!(prefills, [(2, 64, 128), (1, 1024, 0)]);
        assert_eq!(reasons(&measurements), [("prefill of unequal lengths in one batch", 1)]);
    }

    #[test]
    fn runs_whose_repeats_contradict_each_other_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let row = |time: &str, tensor: u32, context: u32| {
            format!(",{time},4096,32,8,{tensor},1,0,{context},False,,,,,,KERNEL_ONLY")
        };
        let rows = [row("0.1", 4, 64), row("0.5", 4, 64), row("0.1", 4, 128), row("0.1", 2, 64), row("0.11", 2, 64)];
        let lines: Vec<&str> = [ATTENTION].into_iter().chain(rows.iter().map(String::as_str)).collect();
        write(folder.path(), "m/attention.csv", &lines);
        let measurements = import(folder.path(), "frontier").unwrap();
        assert_eq!(measurements.rows.len(), 2);
        let left_out = reasons(&measurements);
        assert!(left_out[0].0.contains("more than twofold") && left_out[0].1 == 3, "{left_out:?}");
    }

    #[test]
    fn expert_loads_are_taken_from_their_statistics() {
        let folder = tempfile::tempdir().unwrap();
        let header = "time_stats.moe_grouped_gemm.median,num_tokens,num_experts,num_experts_per_device,router_topk,\
                      hidden_dim,expert_hidden_dim,num_tensor_parallel_workers,total_routed_tokens,\
                      tokens_per_expert_avg,expert_utilization,max_load_ratio,measurement_type";
        let skewed = "0.05,32,16,8,4,2048,768,2,64,8.0,0.875,2.5,KERNEL_ONLY";
        let impossible = "0.05,32,16,8,4,2048,768,2,64,8.0,0.875,25,KERNEL_ONLY";
        write(folder.path(), "m/moe.csv", &[header, skewed, impossible]);
        let measurements = import(folder.path(), "frontier").unwrap();
        let Operator::GroupedGemm { tokens, experts, load } = measurements.rows[0].operator else {
            panic!("{:?}", measurements.rows)
        };
        assert_eq!((tokens, experts.intermediate_size, experts.local), (32, 384, 8));
        assert_eq!((load.rows, load.hit, load.largest), (64.0, 7.0, 20.0));
        assert!(load.exponent > 0.0);
        assert_eq!(reasons(&measurements), [("a load of the experts that cannot be", 1)]);
    }

    #[test]
    fn copied_networks_and_transfers_across_nodes_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let header = "time_stats.all_reduce.median,num_workers,devices_per_node,size,collective";
        let lines = [header, "0.04,8,8,2048,all_reduce", "0.4,16,8,2048,all_reduce"];
        for cluster in ["a100_dgx", "a800_dgx"] {
            write(folder.path(), &format!("{cluster}/all_reduce.csv"), &lines);
        }
        let measurements = import(&folder.path().join("a100_dgx"), "frontier").unwrap();
        let (kind, bytes) = (CollectiveKind::AllReduce, 2048.0);
        let operator = Operator::Collective { kind, bytes, gpus: 8, graph: false };
        assert_eq!(measurements.rows[0].operator, operator);
        assert!((measurements.rows[0].latency_ns - 40_000.0).abs() < 1e-6);
        assert_eq!(reasons(&measurements), [("collectives across nodes", 1)]);
        let copy = import(&folder.path().join("a800_dgx"), "frontier").unwrap_err();
        assert!(copy.message.contains("byte for byte"), "{}", copy.message);
    }

    #[test]
    fn a_missing_column_or_an_unknown_engine_is_a_diagnostic() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "m/linear_op.csv", &["time_stats.emb.median,n_head", "0.1,32"]);
        assert!(import(folder.path(), "frontier").unwrap_err().message.contains("no column `n_kv_head`"));
        assert!(import(folder.path(), "sglang-0.5").unwrap_err().help.unwrap().contains("--engine frontier"));
    }
}
