//! Collectives: `all_reduce.csv` and `send_recv.csv`, message sizes in bytes.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Csv, Dropped, Record, Sample, Timing, push_samples};
use crate::diag::Diagnostic;
use crate::fidelity::operator::{CollectiveKind, Operator};

const REQUIRED: &[&str] = &["num_workers", "devices_per_node", "size", "collective"];
/// Files beside each other that are compared for being copies.
const CLUSTERS: usize = 64;

/// Appends the samples of one table. A table that is byte for byte the one of another cluster cannot be measured on
/// both: only the first cluster by name keeps it.
pub(super) fn read(path: &Path, samples: &mut Vec<Sample>, dropped: &mut Dropped) -> Result<(), Diagnostic> {
    let table = Csv::load(path, REQUIRED)?;
    if let Some(original) = earlier_copy(path) {
        let reason = "a copy of another cluster's table, byte for byte: only the first of them by name is read";
        dropped.add(reason, table.records().count(), || format!("{} = {}", path.display(), original.display()));
        return Ok(());
    }
    let names = table.timed_operators();
    for record in table.records() {
        let operator = |_: &str| collective(&record);
        let columns: [&[&str]; 2] = [&["size"], &["num_workers", "devices_per_node"]];
        push_samples(&table, &record, &names, columns, Timing::Kernel, operator, samples);
    }
    Ok(())
}

/// The same-named table of a neighbouring folder that sorts earlier and has the same bytes.
fn earlier_copy(path: &Path) -> Option<PathBuf> {
    let (folder, name) = (path.parent()?, path.file_name()?);
    let entries = fs::read_dir(folder.parent()?).ok()?;
    let mut neighbours: Vec<PathBuf> = entries.take(CLUSTERS).filter_map(|entry| Some(entry.ok()?.path())).collect();
    neighbours.sort();
    let bytes = fs::read(path).ok()?;
    let earlier = neighbours.into_iter().take_while(|neighbour| neighbour.file_name() < folder.file_name());
    earlier.map(|neighbour| neighbour.join(name)).find(|other| fs::read(other).is_ok_and(|read| read == bytes))
}

fn collective(record: &Record<'_>) -> Result<Operator, String> {
    let (gpus, per_node) = (record.positive("num_workers")?, record.positive("devices_per_node")?);
    let kind = match record.text("collective") {
        Some("all_reduce") => CollectiveKind::AllReduce,
        Some("send_recv") => CollectiveKind::SendRecv,
        other => return Err(format!("the collective `{}` is not supported", other.unwrap_or_default())),
    };
    if per_node < gpus {
        return Err("collectives across nodes".to_owned());
    }
    let bytes = f64::from(record.positive("size")?);
    Ok(Operator::Collective { kind, bytes, gpus, graph: false })
}
