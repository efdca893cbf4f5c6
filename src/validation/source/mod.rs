//! Formats of measured serving runs, one file each.
//!
//! To add one: write `NAME.rs` with a [`Format`] called `FORMAT`, then `mod NAME;` and its entry in [`FORMATS`].

mod b200_multiturn;
mod bench_serve;
mod bench_serve_deployment;
mod llmservingsim;
mod sample;
mod sim2real;
mod users;
mod vllm_h100;

use std::fs;
use std::path::{Path, PathBuf};

use crate::diag::{Diagnostic, Diagnostics, nearest};
use crate::workload::Request;

use super::case::Case;
use super::table::read_text;

/// A format of measured runs.
#[derive(Debug)]
pub struct Format {
    /// Name on the command line and in messages.
    pub name: &'static str,
    /// What a file of it looks like, in one sentence.
    pub summary: &'static str,
    /// Whether the file of this name and this beginning has the format. A run in several files is recognised by one.
    recognises: fn(name: &str, beginning: &str) -> bool,
    /// Reads the cases of a recognised file.
    read: fn(&Path) -> Result<Vec<Case>, Diagnostic>,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    sample::FORMAT,
    vllm_h100::FORMAT,
    llmservingsim::FORMAT,
    sim2real::FORMAT,
    b200_multiturn::FORMAT,
    users::FORMAT,
    bench_serve::FORMAT,
];

/// Names of the formats with their descriptions, one a line.
#[must_use]
pub fn known_formats() -> String {
    FORMATS.iter().map(|format| format!("{}: {}", format.name, format.summary)).collect::<Vec<_>>().join("\n")
}

/// Checks names of formats.
///
/// # Errors
/// A name that no format has; the nearest one is the help.
pub fn check_formats(names: &[String]) -> Result<(), Diagnostic> {
    let known = || FORMATS.iter().map(|format| format.name);
    let Some(unknown) = names.iter().find(|name| known().all(|format| format != *name)) else { return Ok(()) };
    let problem = Diagnostic::new(format!("there is no format `{unknown}` of measured runs"));
    Err(match nearest(unknown, known()) {
        Some(close) => problem.help(format!("did you mean `{close}`?")),
        None => problem.help(format!("known: {}", known().collect::<Vec<_>>().join(", "))),
    })
}

/// Reads the cases of files and folders. In folders, files of other formats are passed over; with `only`, so are other
/// formats. Cases keep the order of the sources and, within a folder, of the paths.
///
/// # Errors
/// An unreadable file, a named file of no known format, a malformed one, or sources without any case.
pub fn read(sources: &[PathBuf], only: &[String]) -> Result<Vec<Case>, Diagnostics> {
    let mut cases = Vec::new();
    for source in sources {
        for file in files(source)? {
            let Some(format) = recognise(&file)? else {
                if source.is_file() {
                    let problem = format!("`{}` has no known format of measured runs", file.display());
                    return Err(Diagnostic::new(problem).help(known_formats()).into());
                }
                continue;
            };
            if only.is_empty() || only.iter().any(|name| name == format.name) {
                cases.extend((format.read)(&file)?);
            }
        }
    }
    if cases.is_empty() {
        return Err(Diagnostic::new("there are no measured runs in the sources").help(known_formats()).into());
    }
    Ok(cases)
}

fn recognise(file: &Path) -> Result<Option<&'static Format>, Diagnostic> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Only these hold or describe cases; the rest (logs, compressed requests) may be large.
    if !name.ends_with(".csv") && !name.ends_with(".json") {
        return Ok(None);
    }
    let text = read_text(file)?;
    Ok(FORMATS.iter().find(|format| (format.recognises)(&name, &text)))
}

/// The file, or all files of the folder and its folders, sorted.
fn files(source: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    if !source.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let unreadable =
        |error: std::io::Error| Diagnostic::new(format!("cannot read the folder `{}`: {error}", source.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(source).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        found.extend(files(&path)?);
    }
    Ok(found)
}

/// The columns of a CSV file: its first line holds all of these.
fn has_columns(text: &str, columns: &[&str]) -> bool {
    let header = text.lines().next().unwrap_or_default();
    columns.iter().all(|column| header.split(',').any(|field| field.trim_matches('"') == *column))
}

/// Requests in the order in which a simulation must get them.
fn sorted_by_arrival(mut requests: Vec<Request>) -> Vec<Request> {
    requests.sort_by_key(|request| request.arrival);
    requests
}
