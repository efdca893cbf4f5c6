//! `servescape plan`: what a run would simulate, without simulating.

use std::path::PathBuf;

use clap::Args;

use crate::catalog::Catalog;
use crate::explore::Plan;

use super::exit::{Exit, Failure};
use super::outputs::Output;
use super::report;
use super::workspace::Workspace;

/// Arguments of `servescape plan`.
#[derive(Args, Debug)]
pub struct PlanArgs {
    /// Sweep file
    pub sweep: PathBuf,
}

pub(super) fn run(args: &PlanArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let workspace = Workspace::open(&args.sweep, None, catalog)?;
    let plan = Plan::new(&workspace.sweep, &workspace.space, &workspace.engines);
    report::plan(&plan, output.results)?;
    Ok(if plan.feasible.is_empty() { Exit::NothingFeasible } else { Exit::Success })
}
