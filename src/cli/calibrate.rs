//! `servescape calibrate`: host constants of an engine profile from measured serving runs.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::catalog::{Catalog, EngineProfile};
use crate::diag::Diagnostic;
use crate::units::format_count;
use crate::validation::calibrate::{Calibration, calibrate, document, markdown, warnings};
use crate::validation::{check_formats, read};

use super::exit::{Exit, Failure};
use super::outputs::Output;

/// Arguments of `servescape calibrate`.
#[derive(Args, Debug)]
pub struct CalibrateArgs {
    /// Files or folders with measured runs; the formats are recognised
    #[arg(required = true, value_name = "RUNS")]
    pub runs: Vec<PathBuf>,
    /// Engine profile to start from: a name of the catalog or a path to a TOML file
    #[arg(long)]
    pub engine: String,
    /// Where to write the fitted profile
    #[arg(long, value_name = "PROFILE.toml")]
    pub out: PathBuf,
    /// Fit the runs whose `GROUP/ID` begins with this, report on the others; may be repeated (default: fit all)
    #[arg(long, value_name = "PREFIX")]
    pub fit: Vec<String>,
    /// Read only this format; may be repeated
    #[arg(long, value_name = "FORMAT")]
    pub only: Vec<String>,
}

pub(super) fn run(args: &CalibrateArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    check_formats(&args.only)?;
    let source = catalog.engine_source(&args.engine)?;
    let profile = EngineProfile::parse(&source)?;
    let calibration = calibrate(read(&args.runs, &args.only)?, &args.fit, &profile, catalog)?;
    writeln!(output.messages, "{}", counts(&calibration))?;
    for (name, reason) in &calibration.refused {
        writeln!(output.messages, "not simulated: {name}: {reason}")?;
    }
    for warning in warnings(&calibration) {
        writeln!(output.messages, "warning: {warning}")?;
    }
    write!(output.results, "{}", markdown(&calibration))?;
    let text = document(&source, &calibration)?;
    let path = args.out.display();
    fs::write(&args.out, text)
        .map_err(|error| Failure::results(Diagnostic::new(format!("cannot write `{path}`: {error}"))))?;
    writeln!(output.messages, "profile in {path}")?;
    Ok(Exit::Success)
}

fn counts(calibration: &Calibration) -> String {
    let fitted = calibration.runs.iter().filter(|run| run.fitted).count();
    let held_out = calibration.runs.len() - fitted;
    let count = |count: usize| format_count(count as u64);
    format!(
        "{}: {} runs fitted, {} held out, {} not simulated, {} without latencies, {} of other engines; {} hosts tried",
        calibration.profile,
        count(fitted),
        count(held_out),
        count(calibration.refused.len()),
        count(calibration.without_values),
        count(calibration.other_engines),
        count(calibration.evaluations)
    )
}
