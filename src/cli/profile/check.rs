//! `servescape profile check`: a cost model against the kernel tables of its GPU.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::{ImportArgs, import, report_dropped, tables, unwritable, write_file};
use crate::catalog::{Catalog, Gpu};
use crate::diag::{Diagnostic, Diagnostics};
use crate::fidelity::CostModel;
use crate::fidelity::fitted::FittedProfile;
use crate::fidelity::predictor::FITTED_FOLDER;
use crate::fidelity::transfer::TransferCheck;

/// Arguments of `profile check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Where measurements are read from.
    #[command(flatten)]
    pub import: ImportArgs,
    /// Measured GPU, by its catalogue name
    #[arg(long)]
    pub gpu: String,
    /// Folder of the fitted profile that answers (default: the one that a sweep would use)
    #[arg(long, conflicts_with = "from")]
    pub profile: Option<PathBuf>,
    /// Let the shipped profile of this GPU and engine answer, transferred by rooflines
    #[arg(long, value_name = "GPU")]
    pub from: Option<String>,
    /// Also write the errors to this file, for `profile report`
    #[arg(long, value_name = "FILE")]
    pub toml: Option<PathBuf>,
}

pub(super) fn run(args: &CheckArgs, catalog: &Catalog, out: &mut dyn Write) -> Result<(), Diagnostics> {
    let gpu = catalog.gpu(&args.gpu)?;
    let model = cost_model(args, catalog, &gpu)?;
    let check = TransferCheck::new(import(&args.import)?, &model, &args.import.engine)?;
    if let Some(path) = &args.toml {
        write_file(path, check.to_toml()?.as_bytes())?;
    }
    print(&check, out).map_err(unwritable)?;
    Ok(())
}

fn print(check: &TransferCheck, out: &mut dyn Write) -> std::io::Result<()> {
    let TransferCheck { from, from_engine, to, engine, source, .. } = check;
    writeln!(out, "{to}, {engine}, priced by {from} {from_engine}; measurements: {source}\n")?;
    write!(out, "{}", tables::check(check))?;
    report_dropped(&check.dropped, out)
}

/// The cost model that the arguments name.
fn cost_model(args: &CheckArgs, catalog: &Catalog, gpu: &Gpu) -> Result<CostModel, Diagnostic> {
    let folder = match (&args.profile, &args.from) {
        (Some(folder), _) => folder.clone(),
        (None, Some(from)) => catalog.root().join(FITTED_FOLDER).join(from).join(&args.import.engine),
        (None, None) => return CostModel::load(catalog.root(), gpu, &args.import.engine),
    };
    FittedProfile::load(&folder).map(|profile| CostModel::new(gpu, Some(profile))).map_err(|error| match &args.from {
        Some(from) => error.help(format!(
            "`--from {from}` needs `{FITTED_FOLDER}/{from}/{}`; `--profile` takes any folder",
            args.import.engine
        )),
        None => error,
    })
}
