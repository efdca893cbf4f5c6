//! `servescape merge`: parts of one run into one file, or shards into one run.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::results::merge::{merge_parts, merge_shards};
use crate::units::format_count;

use super::exit::{Exit, Failure};
use super::outputs::Output;

/// Arguments of `servescape merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Run folder; or several, the shards of one sweep
    #[arg(required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder for the merged run, when shards are merged
    #[arg(long, required_if_eq("shards", "true"))]
    pub out: Option<PathBuf>,
    /// The folders are shards
    #[arg(long, requires = "out")]
    pub shards: bool,
}

pub(super) fn run(args: &MergeArgs, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if let Some(out) = args.out.as_deref().filter(|_| args.shards) {
        let shards: Vec<&Path> = args.runs.iter().map(PathBuf::as_path).collect();
        let manifest = merge_shards(&shards, out).map_err(Failure::results)?;
        writeln!(output.results, "{}: {} parts", out.display(), manifest.parts.len())?;
        return Ok(Exit::Success);
    }
    for run in &args.runs {
        let merged = merge_parts(run).map_err(Failure::results)?;
        writeln!(output.results, "{}: {} rows", run.join(&merged.file).display(), format_count(merged.rows))?;
    }
    Ok(Exit::Success)
}
