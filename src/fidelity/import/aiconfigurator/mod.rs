//! Kernel tables of NVIDIA's AIConfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0): a folder per GPU system
//! with `FAMILY/ENGINE/VERSION/*.parquet` and `comm/nccl/VERSION/*.parquet`; latencies in milliseconds, message sizes in
//! elements. The wheel of the package `aiconfigurator-core` holds the same folders.

mod rows;
mod source;
mod static_scales;
mod suspect;
mod tables;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{Dropped, Importer, Measurement, Measurements, in_release_line, version_of};
use crate::diag::Diagnostic;
use crate::fidelity::operator::{CollectiveKind, Operator};
use source::Source;
use static_scales::CONVERSIONS;
use tables::{NCCL, TABLES, Table};

/// Registry entry.
pub const IMPORTER: Importer = Importer {
    name: "aiconfigurator",
    summary: "parquet tables of AIConfigurator: a folder of one GPU system, CHECKOUT/SYSTEM or WHEEL.whl/SYSTEM; \
              engines `vllm-VERSION`, `sglang-VERSION` and `trtllm-VERSION`",
    import,
};

/// The engine whose fp8 products were timed with the conversion of their inputs.
const CONVERTS_INPUTS: &str = "trtllm";
/// Engines, as their folders are named.
const ENGINES: [&str; 3] = ["vllm", "sglang", "trtllm"];
/// The NCCL release line that vLLM ships (PyTorch's `nvidia-nccl-cu12` 2.27); tables of other lines are used only where
/// this one is missing.
const PREFERRED_NCCL: &str = "2.27";
/// A version with at most this share of the rows of the line's largest one holds additions to an older version.
const ADDITIONS_SHARE: f64 = 0.1;

/// Reads the tables of `engine` (e.g. `vllm-0.19`) of one GPU system.
///
/// # Errors
/// If there is no table of this engine version, or a file cannot be read.
pub fn import(path: &Path, engine: &str) -> Result<Measurements, Diagnostic> {
    let known = ENGINES.iter().find_map(|name| Some((*name, version_of(engine, name)?)));
    let (name, version) = known.ok_or_else(|| {
        Diagnostic::new(format!("this importer knows no engine `{engine}`"))
            .help("give the engine as `vllm-VERSION`, `sglang-VERSION` or `trtllm-VERSION`, e.g. `vllm-0.19`")
    })?;
    let mut source = Source::open(path)?;
    let (mut rows, mut dropped) = (Vec::new(), Dropped::default());
    let mut other_layout = None;
    for table in TABLES {
        let (folder, line) = match table.family {
            NCCL => (NCCL.to_owned(), PREFERRED_NCCL),
            family => (format!("{family}/{name}"), version),
        };
        let mut most_rows = 0;
        let mut files = Vec::new();
        for file in candidates(&source, &folder, table, line) {
            let bytes = source.read(&file)?;
            let count = rows::count(bytes.clone()).unwrap_or_default();
            most_rows = most_rows.max(count);
            files.push((file, bytes, count));
        }
        for (file, bytes, count) in files {
            let before = rows.len();
            match rows::read(bytes, table, &mut dropped) {
                Ok(read) => rows.extend(suspect::without_suspects(read, &mut dropped)),
                Err(reason) => {
                    if count == 0 {
                        return Err(unreadable(&file, &reason));
                    }
                    other_layout = other_layout.or_else(|| Some(unreadable(&file, &reason)));
                    dropped.add(format!("tables of another layout: {reason}"), count, || file.clone());
                    break;
                }
            }
            if rows.len() > before && count as f64 > ADDITIONS_SHARE * most_rows as f64 {
                break;
            }
        }
    }
    let is_collective = |row: &Measurement| matches!(row.operator, Operator::Collective { .. });
    if rows.iter().all(is_collective) {
        return Err(other_layout.unwrap_or_else(|| no_tables(&source, path, name, engine)));
    }
    if name == CONVERTS_INPUTS {
        subtract_conversions(&mut source, &mut rows, version, &mut dropped)?;
    }
    name_unread_tables(&mut source, name, version, &mut dropped)?;
    prefer_custom_all_reduce(&mut rows, &mut dropped);
    Ok(Measurements {
        rows,
        dropped: dropped.finish(),
        source: format!("AIConfigurator kernel tables, {engine} and NCCL (github.com/ai-dynamo/aiconfigurator)"),
        licence: "Apache-2.0".to_owned(),
        attribution: "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES".to_owned(),
        ..Measurements::default()
    })
}

/// Reads the tables of the conversions of inputs to fp8 and subtracts them.
fn subtract_conversions(
    source: &mut Source,
    rows: &mut Vec<Measurement>,
    version: &str,
    dropped: &mut Dropped,
) -> Result<(), Diagnostic> {
    let mut conversions = Vec::new();
    for table in CONVERSIONS {
        let file =
            candidates(source, &format!("{}/{CONVERTS_INPUTS}", table.family), table, version).into_iter().next();
        conversions.push(match file {
            Some(file) => {
                rows::read(source.read(&file)?, table, dropped).map_err(|reason| unreadable(&file, &reason))?
            }
            None => Vec::new(),
        });
    }
    for row in static_scales::subtract(rows, &conversions) {
        dropped
            .add("fp8 products without a time for the conversion of their input", 1, || format!("{:?}", row.operator));
    }
    Ok(())
}

fn unreadable(file: &str, reason: &str) -> Diagnostic {
    Diagnostic::new(format!("cannot read the table `{file}`: {reason}"))
}

fn no_tables(source: &Source, path: &Path, name: &str, engine: &str) -> Diagnostic {
    let versions = source.names(&format!("gemm/{name}"));
    let none = Diagnostic::new(format!("`{}` holds no tables of `{engine}`", path.display()));
    match versions.last() {
        Some(last) => none.help(format!("the newest matrix products of this engine are of `{name}-{last}`")),
        None => none.help(format!("there are no matrix products of `{name}` for this system")),
    }
}

/// Files of a table in a release line, the newest first, e.g. `0.19` finds `0.19.0`; for NCCL any line will do.
fn candidates(source: &Source, folder: &str, table: &Table, line: &str) -> Vec<String> {
    let mut versions: Vec<String> = source.names(folder).into_iter().collect();
    versions.sort_by_key(|version| numbers_of(version));
    versions.reverse();
    versions.retain(|version| source.names(&format!("{folder}/{version}")).contains(table.file));
    if folder == NCCL {
        versions.sort_by_key(|version| !in_release_line(version, line));
    } else {
        versions.retain(|version| in_release_line(version, line));
    }
    versions.iter().map(|version| format!("{folder}/{version}/{}", table.file)).collect()
}

/// The numbers in a version, so that 0.5.9 sorts before 0.5.14.
fn numbers_of(version: &str) -> Vec<u32> {
    version.split(|character: char| !character.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// Counts the tables of this engine version that are not used.
fn name_unread_tables(source: &mut Source, name: &str, version: &str, dropped: &mut Dropped) -> Result<(), Diagnostic> {
    let conversions = if name == CONVERTS_INPUTS { CONVERSIONS } else { &[] };
    for family in source.names("") {
        let folder = format!("{family}/{name}");
        for version in source.names(&folder).iter().filter(|candidate| in_release_line(candidate, version)) {
            for file in source.names(&format!("{folder}/{version}")) {
                let read = TABLES.iter().chain(conversions).any(|table| table.family == family && table.file == file);
                if read || !file.ends_with(".parquet") {
                    continue;
                }
                let path = format!("{folder}/{version}/{file}");
                let count = rows::count(source.read(&path)?).map_err(|reason| unreadable(&path, &reason))?;
                dropped.add(format!("tables of a kind that is not priced: {family}"), count, || path);
            }
        }
    }
    Ok(())
}

/// The engine's own all-reduce table covers every size: its kernels where they apply, NCCL above. Where it exists, NCCL's
/// all-reduce rows, which come last, are left out.
fn prefer_custom_all_reduce(rows: &mut Vec<Measurement>, dropped: &mut Dropped) {
    let is_all_reduce =
        |row: &Measurement| matches!(row.operator, Operator::Collective { kind: CollectiveKind::AllReduce, .. });
    let is_gather = |row: &Measurement| matches!(row.operator, Operator::Collective { kind, .. } if kind != CollectiveKind::AllReduce);
    // NCCL's file opens with all-gathers, so all-reduces before the first of those are the engine's.
    let Some(first_nccl) = rows.iter().position(is_gather) else { return };
    if !rows[..first_nccl].iter().any(is_all_reduce) {
        return;
    }
    let mut position = 0;
    rows.retain(|row| {
        let drop = position >= first_nccl && is_all_reduce(row);
        position += 1;
        if drop {
            dropped.add("NCCL all-reduces: the engine's own table covers them", 1, || format!("{:?}", row.operator));
        }
        !drop
    });
}
