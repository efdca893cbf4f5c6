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
        return Err(Diagnostic::new(format!("`{}` holds no usable table of `{engine}`", folder.display()))
            .help("give a folder like `data/profiling/compute/h800`; some GPUs have only `frontier-launch` times"));
    }
    Ok(Measurements {
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
    let mut runs: BTreeMap<(String, String), BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| is_attention(sample)) {
        let shapes = runs.entry((sample.run.clone(), sample.name.clone())).or_default();
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
        if is_attention(sample) && runs.contains_key(&(sample.run.clone(), sample.name.clone())) {
            sample.operator = Err("attention of runs in which over a tenth of the repeated shapes differ more than \
                                   twofold between repeats"
                .to_owned());
        }
    }
}
