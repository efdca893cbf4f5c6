//! `servescape run`: the main job.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Diagnostics, render};
use crate::explore::{Evaluator, Plan, Reporter, RunError, RunOptions, RunReport, SharedWork, Silent};
use crate::fidelity::CostModel;
use crate::results::manifest::{RunLock, RunStatus, store_sweep};
use crate::results::part::write_pruned;
use crate::results::{Manifest, Status, Table};
use crate::units::format_count;

use super::exit::{Exit, Failure};
use super::outputs::Output;
use super::progress::{Bar, Lines};
use super::report::{self, Answer};
use super::workspace::{Workspace, axes, relative_path};

/// Arguments of `servescape run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Sweep file
    pub sweep: PathBuf,
    /// Run folder (default: `results/NAME`, NAME being the sweep's)
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Continue an interrupted run: only missing parts are simulated
    #[arg(long, conflicts_with = "force")]
    pub resume: bool,
    /// Throw away what the run folder holds and start again
    #[arg(long)]
    pub force: bool,
    /// Replay this trace instead of the sweep's arrivals and lengths (CSV or JSONL; Azure and Mooncake are recognised)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Worker threads (default: one per core)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Number of deployments in the final table
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub top: u16,
    /// No progress, no notes on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

pub(super) fn run(args: &RunArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let workspace = Workspace::open(&args.sweep, args.trace.as_deref(), catalog)?;
    let plan = Plan::new(&workspace.sweep, &workspace.space, &workspace.engines);
    if !args.quiet {
        report::plan(&plan, output.messages)?;
    }
    if plan.feasible.is_empty() {
        return Err(nothing_feasible(&plan, &args.sweep));
    }
    let folder = args.out.clone().unwrap_or_else(|| Path::new("results").join(&workspace.sweep.name));
    let lock = RunLock::acquire(&folder).map_err(Failure::results)?;
    let mut manifest = open_run(args, &workspace, &plan, &folder, output)?;
    let mut interrupted = false;
    if manifest.status != RunStatus::Finished {
        let report = simulate(args, catalog, &workspace, &plan, &folder, &mut manifest, output)?;
        interrupted = report.interrupted;
    }
    drop(lock);
    if interrupted {
        writeln!(output.messages, "interrupted; continue with: {}", resume_command(args))?;
        return Ok(Exit::Interrupted);
    }
    answer(args, &workspace, &folder, output)
}

/// Opens or creates the run folder.
fn open_run(
    args: &RunArgs,
    workspace: &Workspace,
    plan: &Plan,
    folder: &Path,
    output: &mut Output<'_>,
) -> Result<Manifest, Failure> {
    let known = Manifest::exists(folder);
    if known && !args.force {
        let mut manifest = Manifest::load(folder).map_err(Failure::results)?;
        if manifest.sweep_xxh3 != workspace.hash() {
            let problem =
                format!("`{}` holds the run of a different sweep, catalog or program version", folder.display());
            return Err(Diagnostic::new(problem)
                .help("choose another folder with --out, or replace it with --force")
                .into());
        }
        if args.resume {
            // Told, not fatal: the parts are simulated again.
            let damaged = Diagnostics(manifest.drop_damaged_parts(folder));
            if !damaged.0.is_empty() {
                write!(output.messages, "{}", render(&damaged, output.colour))?;
            }
            if manifest.pruned.is_none() {
                manifest.pruned = Some(write_pruned(folder, &plan.pruned).map_err(Failure::results)?);
            }
            manifest.store(folder).map_err(Failure::results)?;
        } else if manifest.status != RunStatus::Finished {
            return Err(Diagnostic::new(format!("`{}` holds an unfinished run of this sweep", folder.display()))
                .help("continue it with --resume, or start again with --force")
                .into());
        }
        return Ok(manifest);
    }
    let rows_per_part = rows_per_part(plan.feasible.len() as u64);
    let simulated = plan.feasible.len() as u64;
    let mut manifest = Manifest::new(&workspace.sweep.name, &workspace.hash(), plan.points, simulated, rows_per_part);
    manifest.sweep_path = relative_path(folder, &args.sweep);
    manifest.trace = args.trace.as_deref().map(|trace| relative_path(folder, trace));
    Manifest::clear(folder).map_err(Failure::results)?;
    store_sweep(folder, &workspace.text).map_err(Failure::results)?;
    manifest.pruned = Some(write_pruned(folder, &plan.pruned).map_err(Failure::results)?);
    manifest.store(folder).map_err(Failure::results)?;
    Ok(manifest)
}

/// Rows of one part: what a crash can lose at most, against the number of files. Depends on the sweep alone, so that
/// the same sweep always gives the same files.
fn rows_per_part(rows: u64) -> u64 {
    (rows / 64).next_power_of_two().clamp(256, 8192)
}

fn simulate(
    args: &RunArgs,
    catalog: &Catalog,
    workspace: &Workspace,
    plan: &Plan,
    folder: &Path,
    manifest: &mut Manifest,
    output: &mut Output<'_>,
) -> Result<RunReport, Failure> {
    let Workspace { sweep, space, engines, .. } = workspace;
    let shared = SharedWork::prepare(sweep, space, plan, engines, |gpu, engine| {
        CostModel::load(catalog.root(), gpu, engine).map_err(Into::into)
    })?;
    let evaluator = Evaluator { sweep, space, shared: &shared, engines };
    let stop = stop_on_interrupt();
    let threads = args.threads.map_or_else(available_threads, usize::from);
    let mut reporter: Box<dyn Reporter> = match (args.quiet, output.terminal) {
        (true, _) => Box::new(Silent),
        (false, true) => Box::new(Bar::new()),
        (false, false) => Box::new(Lines::new(std::io::stderr())),
    };
    let options = RunOptions { threads, stop: &stop };
    let report =
        crate::explore::run(&evaluator, plan, &workspace.bounds(), folder, manifest, options, reporter.as_mut())
            .map_err(|error| write_failure(error, args))?;
    if !args.quiet {
        writeln!(
            output.messages,
            "{} candidates in {:.1} s on {threads} threads ({:.0} per second), {} step-cost grids",
            format_count(report.progress.done),
            report.wall_seconds,
            report.progress.done as f64 / report.wall_seconds.max(1e-9),
            shared.hardware_keys(),
        )?;
    }
    Ok(report)
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A flag that the first interrupt sets; the second ends the process.
fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let installed = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            #[expect(clippy::disallowed_methods, clippy::exit, reason = "the user asked twice")]
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    });
    // Without a handler an interrupt ends the process at once; finished parts are safe either way.
    drop(installed);
    stop
}

/// Prints the answer and draws the figure.
fn answer(args: &RunArgs, workspace: &Workspace, folder: &Path, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let answer = Answer::read(folder, axes(&workspace.sweep)?, workspace.bounds())?;
    let command = format!("servescape run {}", args.sweep.display());
    let files = answer.draw(workspace, &folder.join("plots"), &command)?;
    answer.write_best(workspace, usize::from(args.top), output.results)?;
    if !args.quiet {
        let _ = writeln!(
            output.messages,
            "\nresults in {} (manifest.json, parts/*.parquet, pruned.parquet); front in {}, {} and {}",
            folder.display(),
            files.svg.display(),
            files.png.display(),
            files.csv.display()
        );
    }
    let statuses = Table::load(folder, &["status"]).map_err(Failure::results)?;
    let statuses = statuses.text("status")?;
    let failed = (0..statuses.codes.len()).filter(|&row| statuses.get(row) != Some(Status::Completed.name())).count();
    if failed > 0 {
        writeln!(output.messages, "{failed} candidates did not complete; see columns `status` and `error`")?;
        return Ok(Exit::Incomplete);
    }
    Ok(Exit::Success)
}

fn nothing_feasible(plan: &Plan, sweep: &Path) -> Failure {
    let reasons: Vec<String> = plan
        .excluded
        .iter()
        .chain(&plan.pruned_by_reason())
        .map(|exclusion| format!("{} x {}: {}", format_count(exclusion.count), exclusion.reason, exclusion.example))
        .collect();
    let message = format!(
        "none of the {} combinations in `{}` can be deployed\n{}",
        format_count(plan.points),
        sweep.display(),
        reasons.join("\n")
    );
    let problem = Diagnostic::new(message)
        .help("each line names what stands in the way of so many combinations; `plan` prints the same");
    Failure { problems: problem.into(), exit: Exit::NothingFeasible }
}

fn write_failure(error: RunError, args: &RunArgs) -> Failure {
    match error {
        RunError::Write(mut problems) => {
            problems.0.push(
                Diagnostic::new("the run is incomplete; finished parts are kept")
                    .help(format!("continue with: {}", resume_command(args))),
            );
            Failure::results(problems)
        }
        threads @ RunError::Threads(_) => Diagnostic::new(threads.to_string()).into(),
    }
}

fn resume_command(args: &RunArgs) -> String {
    let out = args.out.as_ref().map_or_else(String::new, |out| format!(" --out {}", out.display()));
    let trace = args.trace.as_ref().map_or_else(String::new, |trace| format!(" --trace {}", trace.display()));
    format!("servescape run {} --resume{out}{trace}", args.sweep.display())
}
