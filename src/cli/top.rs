//! `servescape top`: the best candidates of a run.

use std::path::PathBuf;

use clap::Args;

use crate::catalog::Catalog;

use super::exit::{Exit, Failure};
use super::outputs::Output;
use super::pareto::SlaArgs;
use super::report::Answer;
use super::workspace::{Workspace, axes};

/// Arguments of `servescape top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Run folder
    pub run: PathBuf,
    /// Number of deployments
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub count: u16,
    /// The SLA, instead of the sweep's.
    #[command(flatten)]
    pub sla: SlaArgs,
}

pub(super) fn run(args: &TopArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let (workspace, _) = Workspace::of_run(&args.run, catalog)?;
    let bounds = args.sla.bounds(&workspace)?;
    let answer = Answer::read(&args.run, axes(&workspace.sweep)?, bounds)?;
    answer.write_best(&workspace, usize::from(args.count), output.results)?;
    Ok(Exit::Success)
}
