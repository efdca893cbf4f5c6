//! The table layout that Vidur introduced and its successors extend: one file per kind of operator and model, a column
//! `time_stats.OPERATOR.median` in milliseconds per timed operator.

mod attention;
mod experts;
mod linear;
mod network;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::csv::{Csv, Record};
use super::{Dropped, LaunchOverhead, Measurement, median};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::operator::Operator;

/// What a time covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// The kernels alone, summed from a trace.
    Kernel,
    /// The time between two events around the call: kernels and the host's gaps before and between them.
    Launch,
}

/// One timed operator of one row.
pub(super) struct Sample {
    /// Name in the source.
    pub(super) name: String,
    /// Model and shape: equal for the same shape in both timings.
    pub(super) shape: String,
    /// Model and tensor-parallel degree: what was measured in one go.
    pub(super) run: String,
    /// What the time covers.
    pub(super) timing: Timing,
    /// The operator, or why it has no counterpart.
    pub(super) operator: Result<Operator, String>,
    /// Median time.
    pub(super) latency_ns: f64,
}

/// Reads every known table below a folder, at most four levels deep, in the order of their paths.
pub(super) fn read(folder: &Path, dropped: &mut Dropped) -> Result<Vec<Sample>, Diagnostic> {
    let mut files = Vec::new();
    csv_files(folder, 4, &mut files);
    files.sort();
    let mut samples = Vec::new();
    for path in files {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match stem.split('_').next() {
            Some("linear" | "mlp") => linear::read(&path, &mut samples)?,
            Some("attention") => attention::read(&path, &mut samples)?,
            Some("moe") => experts::read(&path, &mut samples)?,
            Some("all" | "send") => network::read(&path, &mut samples, dropped)?,
            _ => dropped.add("tables of a kind that is not priced", 1, || path.display().to_string()),
        }
    }
    Ok(samples)
}

fn csv_files(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && depth > 0 {
            csv_files(&path, depth - 1, files);
        } else if path.extension().is_some_and(|extension| extension == "csv") {
            files.push(path);
        }
    }
}

/// Turns the samples of one timing into measurements; the others and those without a counterpart are counted.
pub(super) fn measurements(samples: &[Sample], wanted: Timing, dropped: &mut Dropped) -> Vec<Measurement> {
    let mut rows = Vec::new();
    for sample in samples {
        match &sample.operator {
            _ if sample.timing != wanted => dropped.add(other_timing(sample.timing), 1, || sample.describe()),
            Err(reason) => dropped.add(reason.clone(), 1, || sample.describe()),
            Ok(operator) => rows.push(Measurement { operator: *operator, latency_ns: sample.latency_ns }),
        }
    }
    rows
}

/// The error where no row is usable: it names the most frequent reason.
pub(super) fn nothing_usable(folder: &Path, dropped: Dropped, help: &str) -> Diagnostic {
    let reasons = dropped.finish();
    let why = match reasons.iter().max_by_key(|reason| reason.rows) {
        Some(most) => format!("no usable row ({}: {})", most.reason, most.example),
        None => "no table".to_owned(),
    };
    Diagnostic::new(format!("`{}` holds {why}", folder.display())).help(help)
}

fn other_timing(timing: Timing) -> &'static str {
    match timing {
        Timing::Kernel => "times of kernels alone: times with their launches were asked for",
        Timing::Launch => "times with launches: times of kernels alone were asked for",
    }
}

impl Sample {
    pub(super) fn describe(&self) -> String {
        format!("{} of {}: {:.1} us", self.name, self.shape, self.latency_ns / 1e3)
    }
}

/// Kernels shorter than this do not hide the host's work: the host cannot run ahead of them.
const SHORT_KERNELS_NS: f64 = 50e3;

/// The time with launches minus the time of the kernels alone, per operator that was timed both ways and has short
/// kernels: the median over the runs of each run's median over its shapes, so that one model with many shapes does not
/// decide. Repeats of a shape count once, by their median.
pub(super) fn launch_overheads(samples: &[Sample]) -> Vec<LaunchOverhead> {
    let mut shapes: BTreeMap<[&str; 3], [Vec<f64>; 2]> = BTreeMap::new();
    for sample in samples {
        let times = shapes.entry([&sample.name, &sample.run, &sample.shape]).or_default();
        times[usize::from(sample.timing == Timing::Launch)].push(sample.latency_ns);
    }
    let mut differences: BTreeMap<&str, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for ([name, run, _], [kernel, launch]) in shapes {
        let both = !kernel.is_empty() && !launch.is_empty();
        let kernel = median(kernel);
        if both && kernel < SHORT_KERNELS_NS {
            let difference_us = (median(launch) - kernel) / 1e3;
            differences.entry(name).or_default().entry(run).or_default().push(difference_us);
        }
    }
    let overhead = |(name, runs): (&str, BTreeMap<&str, Vec<f64>>)| LaunchOverhead {
        operator: name.to_owned(),
        shapes: runs.values().map(Vec::len).sum(),
        median_us: median(runs.into_values().map(median).collect()),
    };
    differences.into_iter().map(overhead).collect()
}

/// Name of the folder that holds a table: the model, or the cluster.
fn folder_name(path: &Path) -> &str {
    path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default()
}

/// What the times of a row cover. Tables without the column are Vidur's: linear operators are traced (whole
/// microseconds, down to one for an addition), attention is timed by events.
fn timing(record: &Record<'_>, without_column: Timing) -> Result<Timing, String> {
    match record.text("measurement_type") {
        None => Ok(without_column),
        Some("KERNEL_ONLY") => Ok(Timing::Kernel),
        Some("CUDA_EVENT") => Ok(Timing::Launch),
        Some(other) => Err(format!("the measurement type `{other}` is not known")),
    }
}

/// Formats of weights and activations of a row. A checkpoint in fp8 is marked by its quantisation only; the precision
/// column says BF16. At two GPUs its products reach 1.14 PFLOP/s on an H800, above the bf16 rate: inputs are converted.
fn format(record: &Record<'_>) -> Result<NumberFormat, String> {
    match record.text("quant_signature") {
        None | Some("none") => Ok(NumberFormat::Bf16),
        Some(signature) if signature.starts_with("method=fp8|") && signature.contains("block=none") => {
            Ok(NumberFormat::Fp8)
        }
        Some(other) => Err(format!("the quantisation `{other}` is not supported")),
    }
}

/// Width of one attention head. The tables lack it; it is the hidden size over the heads, except in models whose
/// configuration (`data/config/models` of Frontier) has another `head_dim`.
fn head_width(model: &str, hidden: u32, heads: u32) -> Result<u32, String> {
    let model = model.to_lowercase();
    let published = [("qwen3-next", 256), ("qwen3", 128), ("phi-tiny-moe", 128), ("step-moe", 256)];
    match published.iter().find(|(prefix, _)| model.starts_with(prefix)) {
        Some((_, width)) => Ok(*width),
        None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
        None => Err("the hidden size does not divide over the heads".to_owned()),
    }
}

/// The time of an operator in a row; `None` where it did not run (empty or zero).
fn latency_ns(record: &Record<'_>, name: &str) -> Option<Result<f64, String>> {
    record.text(&format!("time_stats.{name}.median"))?;
    match record.number(&format!("time_stats.{name}.median")) {
        Ok(0.0) => None,
        Ok(milliseconds) if milliseconds > 0.0 => Some(Ok(milliseconds * 1e6)),
        _ => Some(Err("the time is not positive".to_owned())),
    }
}

/// Appends the samples of one row: what `operator` says of every timed operator that ran.
fn push_samples(
    table: &Csv,
    record: &Record<'_>,
    names: &[String],
    [shape_columns, run_columns]: [&[&str]; 2],
    without_column: Timing,
    operator: impl Fn(&str) -> Result<Operator, String>,
    samples: &mut Vec<Sample>,
) {
    let model = folder_name(table.path());
    let (run, shape) = (record.describe(run_columns), record.describe(shape_columns));
    let timing = timing(record, without_column);
    for name in names {
        let Some(latency) = latency_ns(record, name) else { continue };
        let operator = match (&timing, &latency) {
            (Err(reason), _) | (_, Err(reason)) => Err(reason.clone()),
            _ => operator(name),
        };
        samples.push(Sample {
            name: name.clone(),
            shape: format!("{model}, {run}, {shape}"),
            run: format!("{model}, {run}"),
            timing: timing.clone().unwrap_or(without_column),
            operator,
            latency_ns: latency.unwrap_or_default(),
        });
    }
}
