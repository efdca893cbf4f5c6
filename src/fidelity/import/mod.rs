//! Importers of published kernel measurements, one file each.
//!
//! To add one: write `src/fidelity/import/NAME.rs` with a function from a path to [`Measurements`], then list it in
//! [`IMPORTERS`].

pub mod aiconfigurator;

use std::path::Path;

use super::card::DroppedRows;
use super::operator::Operator;
use crate::diag::Diagnostic;

/// One measured operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// What ran.
    pub operator: Operator,
    /// How long, in nanoseconds.
    pub latency_ns: f64,
}

/// What an importer read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Usable rows, repeats included.
    pub rows: Vec<Measurement>,
    /// Rows that were left out, by reason.
    pub dropped: Vec<DroppedRows>,
    /// Where the measurements were published.
    pub source: String,
    /// Their licence.
    pub licence: String,
    /// Whom the licence asks to name.
    pub attribution: String,
}

/// One entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Importer {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence for `--help`.
    pub summary: &'static str,
    /// Reads the measurements of an engine version (e.g. `vllm-0.19`) from a folder.
    pub import: fn(folder: &Path, engine: &str) -> Result<Measurements, Diagnostic>,
}

/// Every importer; the first is the default.
pub const IMPORTERS: &[Importer] = &[aiconfigurator::IMPORTER];
