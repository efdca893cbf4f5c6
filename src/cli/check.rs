//! `servescape check`: parse and resolve a sweep file.

use std::path::PathBuf;

use clap::Args;

use crate::catalog::Catalog;
use crate::units::format_count;

use super::exit::{Exit, Failure};
use super::outputs::Output;
use super::workspace::Workspace;

/// Arguments of `servescape check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Sweep file
    pub sweep: PathBuf,
}

pub(super) fn run(args: &CheckArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let workspace = Workspace::open(&args.sweep, None, catalog)?;
    writeln!(
        output.results,
        "{} is valid: {} combinations of {} on {} GPUs, hash {}",
        args.sweep.display(),
        format_count(workspace.space.len()),
        workspace.sweep.model.name,
        super::report::budget(&workspace.sweep.budget),
        workspace.hash()
    )?;
    Ok(Exit::Success)
}
