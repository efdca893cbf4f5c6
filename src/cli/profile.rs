//! `servescape profile`: import kernel measurements, fit predictors on them, show what a fitted profile is worth.

mod check;
mod document;
mod report;
mod tables;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::catalog::{Catalog, Gpu};
use crate::diag::{Diagnostic, Diagnostics, nearest};
use crate::fidelity::card::{CARD_FILE, Card, DroppedRows};
use crate::fidelity::family::Family;
use crate::fidelity::import::{IMPORTERS, Importer, LaunchOverhead, Measurements};
use crate::fidelity::train;
use crate::units::format_count;

/// Arguments of `servescape profile`.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ProfileCommand,
}

/// Steps from published measurements to a fitted profile.
#[derive(Subcommand, Debug)]
pub enum ProfileCommand {
    /// Read measurements and report what is usable
    Import(ImportArgs),
    /// Fit predictors and write them with their card
    Fit(FitArgs),
    /// Print the card of a fitted profile as tables
    Show(ShowArgs),
    /// Compare the cost model of a GPU, its own or transferred, with measurements of that GPU
    Check(check::CheckArgs),
    /// Write the accuracy report of all fitted profiles, with its figure
    Report(report::ReportArgs),
}

/// Where measurements are read from.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Folder with the measurements of one GPU
    pub tables: PathBuf,
    /// Engine and version whose kernels were measured
    #[arg(long, default_value = "vllm-0.19")]
    pub engine: String,
    /// Kind of the measurements
    #[arg(long, default_value = "aiconfigurator")]
    pub format: String,
}

/// Arguments of `profile fit`.
#[derive(Args, Debug)]
pub struct FitArgs {
    /// Where measurements are read from.
    #[command(flatten)]
    pub import: ImportArgs,
    /// Measured GPU, by its catalogue name
    #[arg(long)]
    pub gpu: String,
    /// Folder for the predictors and their card
    #[arg(long)]
    pub out: PathBuf,
    /// Write the card alone: how well the method does on tables that no profile is made of
    #[arg(long)]
    pub card_only: bool,
}

/// Arguments of `profile show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Folder of a fitted profile
    pub profile: PathBuf,
}

/// Runs the verb; `catalog` finds the folder with GPUs and fitted profiles, for the steps that need it.
///
/// # Errors
/// Unknown names, unreadable measurements, an unwritable folder.
pub fn run(
    args: &ProfileArgs,
    catalog: &dyn Fn() -> Result<Catalog, Diagnostic>,
    out: &mut dyn Write,
) -> Result<(), Diagnostics> {
    match &args.command {
        ProfileCommand::Import(args) => {
            let measurements = import(args)?;
            report_import(&measurements, out).map_err(unwritable)?;
        }
        ProfileCommand::Fit(args) => {
            let card = fit(args, &catalog()?.gpu(&args.gpu)?)?;
            report_card(&card, out).map_err(unwritable)?;
        }
        ProfileCommand::Show(args) => {
            let card = Card::load(&args.profile.join(CARD_FILE))?;
            report_card(&card, out).map_err(unwritable)?;
        }
        ProfileCommand::Check(args) => check::run(args, &catalog()?, out)?,
        ProfileCommand::Report(args) => report::run(args, out)?,
    }
    Ok(())
}

fn unwritable(error: std::io::Error) -> Diagnostic {
    Diagnostic::new(format!("cannot write the report: {error}"))
}

/// Reads measurements with the importer that the arguments name.
fn import(args: &ImportArgs) -> Result<Measurements, Diagnostic> {
    let importer = find_importer(&args.format)?;
    (importer.import)(&args.tables, &args.engine)
}

fn find_importer(name: &str) -> Result<&'static Importer, Diagnostic> {
    IMPORTERS.iter().find(|importer| importer.name == name).ok_or_else(|| {
        let unknown = Diagnostic::new(format!("there is no importer `{name}`"));
        match nearest(name, IMPORTERS.iter().map(|importer| importer.name)) {
            Some(close) => unknown.help(format!("did you mean `{close}`?")),
            None => unknown,
        }
    })
}

/// Fits predictors and writes them; returns their card. The same measurements give the same bytes.
///
/// # Errors
/// Unreadable measurements, or an unwritable folder.
pub fn fit(args: &FitArgs, gpu: &Gpu) -> Result<Card, Diagnostic> {
    let fitted = train::train(import(&args.import)?, gpu, &args.import.engine)?;
    create_folder(&args.out)?;
    for (entry, family) in fitted.card.families.iter().zip(&fitted.families).filter(|_| !args.card_only) {
        write_file(&args.out.join(&entry.file), &family.to_bytes()?)?;
    }
    write_file(&args.out.join(CARD_FILE), fitted.card.to_toml()?.as_bytes())?;
    Ok(fitted.card)
}

fn create_folder(path: &Path) -> Result<(), Diagnostic> {
    fs::create_dir_all(path)
        .map_err(|error| Diagnostic::new(format!("cannot create the folder `{}`: {error}", path.display())))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    fs::write(path, bytes).map_err(|error| Diagnostic::new(format!("cannot write `{}`: {error}", path.display())))
}

/// Prints what was read and what was left out.
fn report_import(measurements: &Measurements, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}\n{}\n", measurements.source, measurements.licence)?;
    for family in Family::ALL {
        let rows = measurements.rows.iter().filter(|row| Family::of(&row.operator) == family).count();
        writeln!(out, "{:<18} {:>9} rows", family.name(), format_count(rows as u64))?;
    }
    report_launches(&measurements.launch_overheads, out)?;
    report_dropped(&measurements.dropped, out)
}

fn report_launches(overheads: &[LaunchOverhead], out: &mut dyn Write) -> std::io::Result<()> {
    if !overheads.is_empty() {
        writeln!(out, "\nwhat a launch adds to kernels under 50 us, where both were timed:")?;
    }
    for LaunchOverhead { operator, shapes, median_us } in overheads {
        writeln!(out, "{operator:<26} {median_us:>7.1} us  {:>7} shapes", format_count(*shapes as u64))?;
    }
    Ok(())
}

fn report_dropped(dropped: &[DroppedRows], out: &mut dyn Write) -> std::io::Result<()> {
    if !dropped.is_empty() {
        writeln!(out, "\nleft out or merged:")?;
    }
    for DroppedRows { reason, rows, example } in dropped {
        writeln!(out, "{:>9}  {reason}\n           e.g. {example}", format_count(*rows as u64))?;
    }
    Ok(())
}

/// Prints a card as Markdown tables: what was fitted, then the errors on rows that were left out.
fn report_card(card: &Card, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{} on {}: {} ({}; {})\n", card.engine, card.gpu.name, card.source, card.licence, card.attribution)?;
    writeln!(out, "{}\n{}", tables::ranges(card), tables::errors(card))?;
    report_dropped(&card.dropped, out)
}
