//! The command line: one file per verb. Verbs parse arguments, call the library and print; nothing here computes.
//!
//! To add a verb, write `NAME.rs` with a clap `Args` struct and a `run` function, and add it to [`Command`] and its dispatch.

mod calibrate;
mod check;
mod columns;
mod exit;
mod lookup;
mod merge;
mod outputs;
mod pareto;
mod plan;
pub mod profile;
mod progress;
mod report;
mod run;
mod schema;
mod top;
mod validate;
mod workspace;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::catalog::Catalog;
use crate::diag::render;

pub use exit::{Exit, Failure};
pub use outputs::Output;

/// Find the best way to serve an LLM: simulate every deployment of a sweep, keep the Pareto front under an SLA.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Folder with `models/` and `profiles/` (default: `SERVESCAPE_CATALOG`, or found from here upwards)
    #[arg(long, global = true, value_name = "FOLDER")]
    pub catalog: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done · 2 wrong arguments, sweep or input file · 3 nothing feasible to simulate · 4 some candidates failed
in the simulator · 5 results cannot be written or read back · 130 interrupted";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Parse and resolve a sweep file; report every problem
    Check(check::CheckArgs),
    /// Count the candidates of a sweep and say why some are left out
    Plan(plan::PlanArgs),
    /// Simulate a sweep and write results, figures and a recommendation
    Run(run::RunArgs),
    /// Print the best candidates of a run under an SLA, with the flags that deploy them
    Top(top::TopArgs),
    /// Recompute the Pareto front of a run under any SLA, as table, CSV, SVG and PNG
    Pareto(pareto::ParetoArgs),
    /// Merge the parts of a run into one file, or shards into one run
    Merge(merge::MergeArgs),
    /// List the columns of the results, with units
    Columns(columns::ColumnsArgs),
    /// Import kernel measurements, fit predictors, show their errors
    Profile(profile::ProfileArgs),
    /// Simulate measured serving runs again and report the errors
    Validate(validate::ValidateArgs),
    /// Fit the host constants of an engine profile to measured serving runs
    Calibrate(calibrate::CalibrateArgs),
    /// Print the JSON Schema of the sweep file, for editors
    Schema(schema::SchemaArgs),
}

/// Runs one command and prints what went wrong, if anything.
pub fn run(cli: &Cli, output: &mut Output<'_>) -> Exit {
    match dispatch(cli, output) {
        Ok(exit) => exit,
        Err(failure) => {
            if failure.exit != Exit::Success {
                let text = render(&failure.problems, output.colour);
                // Nothing is left to tell a user whose error stream is closed.
                let _ = write!(output.messages, "{text}");
            }
            failure.exit
        }
    }
}

fn dispatch(cli: &Cli, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let catalog = || Catalog::locate(cli.catalog.as_deref());
    match &cli.command {
        Command::Check(args) => check::run(args, &catalog()?, output),
        Command::Plan(args) => plan::run(args, &catalog()?, output),
        Command::Run(args) => run::run(args, &catalog()?, output),
        Command::Top(args) => top::run(args, &catalog()?, output),
        Command::Pareto(args) => pareto::run(args, &catalog()?, output),
        Command::Merge(args) => merge::run(args, output),
        Command::Columns(args) => columns::run(args, output),
        Command::Profile(args) => {
            profile::run(args, &catalog, output.results)?;
            Ok(Exit::Success)
        }
        Command::Validate(args) => validate::run(args, &catalog()?, output),
        Command::Calibrate(args) => calibrate::run(args, &catalog()?, output),
        Command::Schema(args) => schema::run(args, output),
    }
}
