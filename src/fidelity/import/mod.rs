//! Importers of published kernel measurements, one file or folder each.
//!
//! To add one: write `src/fidelity/import/NAME.rs` with a function from a path to [`Measurements`], then list it in
//! [`IMPORTERS`].

pub mod aiconfigurator;
mod csv;
pub mod frontier;
pub mod llmservingsim;
mod tables;
pub mod vidur;

use std::collections::BTreeMap;
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

/// What launching an operator from Python adds to its kernels: the host's work between two events around the call.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchOverhead {
    /// Name of the operator in the source.
    pub operator: String,
    /// Shapes with short kernels that were timed both ways.
    pub shapes: usize,
    /// Time between events minus the time of the kernels, in microseconds: the median over the models and splits that
    /// were measured, each by its median over shapes.
    pub median_us: f64,
}

/// What an importer read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Usable rows, repeats included.
    pub rows: Vec<Measurement>,
    /// Rows that were left out, by reason.
    pub dropped: Vec<DroppedRows>,
    /// Launch overheads, where the source timed the same shapes with and without them.
    pub launch_overheads: Vec<LaunchOverhead>,
    /// Timed inside an engine, where caches come from memory; otherwise by running one kernel again and again.
    pub in_engine: bool,
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
    /// Reads the measurements of an engine version (e.g. `vllm-0.19`) from a folder or an archive.
    pub import: fn(path: &Path, engine: &str) -> Result<Measurements, Diagnostic>,
}

/// Every importer; the first is the default.
pub const IMPORTERS: &[Importer] =
    &[aiconfigurator::IMPORTER, frontier::IMPORTER, vidur::IMPORTER, llmservingsim::IMPORTER];

/// Left-out rows by reason: how many, and the first one.
#[derive(Default)]
struct Dropped(BTreeMap<String, (usize, String)>);

impl Dropped {
    fn add(&mut self, reason: impl Into<String>, rows: usize, example: impl FnOnce() -> String) {
        self.0.entry(reason.into()).or_insert_with(|| (0, example())).0 += rows;
    }

    fn finish(self) -> Vec<DroppedRows> {
        self.0.into_iter().map(|(reason, (rows, example))| DroppedRows { reason, rows, example }).collect()
    }
}

/// The median of some values; zero if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

/// The version of `engine` if it is this one: `0.19` of `vllm-0.19` and `vllm`.
fn version_of<'a>(engine: &'a str, name: &str) -> Option<&'a str> {
    engine.strip_prefix(name)?.strip_prefix('-').filter(|version| !version.is_empty())
}

/// A version belongs to a release line: `0.19.0` to `0.19`, but not to `0.1`.
fn in_release_line(version: &str, line: &str) -> bool {
    version.strip_prefix(line).is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
}
