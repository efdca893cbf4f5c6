//! Operator tables of Vidur (github.com/microsoft/vidur, MIT): `mlp.csv` per GPU and model, `all_reduce.csv` and
//! `send_recv.csv` per cluster. The times are those of the kernels alone.

use std::path::Path;

use super::tables::{self, Timing};
use super::{Dropped, Importer, Measurements};
use crate::diag::Diagnostic;

/// Registry entry.
pub const IMPORTER: Importer = Importer {
    name: "vidur",
    summary: "CSV tables of Vidur: a folder of one GPU, of one of its models, or of one cluster; engine `vidur`",
    import,
};

/// Reads the tables below a folder.
///
/// # Errors
/// An unknown engine, a table that cannot be read or lacks a column, or no usable row.
pub fn import(folder: &Path, engine: &str) -> Result<Measurements, Diagnostic> {
    if engine != "vidur" {
        return Err(Diagnostic::new(format!("Vidur's tables know no engine `{engine}`")).help("give `--engine vidur`"));
    }
    let mut dropped = Dropped::default();
    let samples = tables::read(folder, &mut dropped)?;
    let rows = tables::measurements(&samples, Timing::Kernel, &mut dropped);
    if rows.is_empty() {
        let help = "give a folder like `data/profiling/compute/a100` or `data/profiling/network/a100_dgx`";
        return Err(tables::nothing_usable(folder, dropped, help));
    }
    Ok(Measurements {
        rows,
        dropped: dropped.finish(),
        source: "Vidur operator tables (github.com/microsoft/vidur)".to_owned(),
        licence: "MIT".to_owned(),
        attribution: "Copyright (c) Microsoft Corporation".to_owned(),
        ..Measurements::default()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::catalog::NumberFormat;
    use crate::fidelity::operator::{Operator, StreamingKind};

    #[test]
    fn reads_linear_operators_and_names_bad_rows() {
        let folder = tempfile::tempdir().unwrap();
        let header = "time_stats.mlp_down_proj.median,time_stats.add.median,\
                      time_stats.post_attention_layernorm.median,n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,\
                      use_gated_mlp,num_tokens,num_tensor_parallel_workers";
        let rows = "0.171,0.001,0.006,64,8,8192,28672,32768,True,4,8\n-3,,,64,8,8192,28672,32768,True,4,8\n";
        fs::write(folder.path().join("mlp.csv"), format!("{header}\n{rows}")).unwrap();
        let measurements = import(folder.path(), "vidur").unwrap();
        let (weights, activations) = (NumberFormat::Bf16, NumberFormat::Bf16);
        let down = Operator::Gemm { tokens: 4, n: 8192, k: 3584, weights, activations };
        // Where additions are timed on their own, a norm reads one tensor and writes one.
        let norm = Operator::Streaming { kind: StreamingKind::Norm, bytes: 4.0 * 8192.0 * 2.0 * 2.0, kernels: 1 };
        let operators: Vec<Operator> = measurements.rows.iter().map(|row| row.operator).collect();
        assert!(operators.len() == 3 && operators.contains(&down) && operators.contains(&norm), "{operators:?}");
        assert_eq!(measurements.dropped.len(), 1);
        assert!(measurements.dropped[0].reason.contains("not positive") && measurements.dropped[0].rows == 1);
    }

    #[test]
    fn a_missing_column_or_an_unknown_engine_is_a_diagnostic() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mlp.csv"), "time_stats.emb.median\n1\n").unwrap();
        assert!(import(folder.path(), "vidur").unwrap_err().message.contains("no column"));
        assert!(import(folder.path(), "vllm-0.19").unwrap_err().help.unwrap().contains("--engine vidur"));
        let empty = tempfile::tempdir().unwrap();
        assert!(import(empty.path(), "vidur").unwrap_err().message.contains("no table"));
    }
}
