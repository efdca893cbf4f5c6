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
        return Err(Diagnostic::new(format!("`{}` holds no usable table of Vidur", folder.display()))
            .help("give a folder like `data/profiling/compute/a100` or `data/profiling/network/a100_dgx`"));
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
