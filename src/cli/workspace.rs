//! A sweep with everything derived from it, opened from a sweep file or from the copy in a run folder.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Diagnostics};
use crate::explore::{Engines, engines_of};
use crate::pareto::{Axes, Bound};
use crate::results::Manifest;
use crate::results::manifest::SWEEP_FILE;
use crate::space::Space;
use crate::spec::Sweep;

use super::exit::Failure;

/// A resolved sweep with its space and engine profiles.
pub(super) struct Workspace {
    pub(super) sweep: Sweep,
    pub(super) space: Space,
    pub(super) engines: Engines,
    /// The file as the user wrote it.
    pub(super) text: String,
    hash: u128,
}

impl Workspace {
    /// Opens a sweep file; `trace` replaces its arrivals and lengths.
    pub(super) fn open(path: &Path, trace: Option<&Path>, catalog: &Catalog) -> Result<Self, Failure> {
        let mut sweep = Sweep::from_file(path, catalog)?;
        if let Some(trace) = trace {
            sweep = sweep.with_trace(trace, catalog)?;
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        let engines = engines_of(&sweep, |name| catalog.engine(name))?;
        axes(&sweep)?;
        let space = Space::new(&sweep);
        let hash = content_hash(&sweep, &engines, catalog)?;
        Ok(Self { sweep, space, engines, text, hash })
    }

    /// Opens the sweep of a run.
    pub(super) fn of_run(run_folder: &Path, catalog: &Catalog) -> Result<(Self, Manifest), Failure> {
        let manifest = Manifest::load(run_folder).map_err(Failure::results)?;
        let trace = manifest.trace.as_deref().map(PathBuf::from);
        let workspace = Self::open(&run_folder.join(SWEEP_FILE), trace.as_deref(), catalog)?;
        if workspace.hash() != manifest.sweep_xxh3 {
            return Err(Diagnostic::new(format!(
                "the sweep, catalog or program is not the one that wrote `{}`",
                run_folder.display()
            ))
            .help("run the sweep again, or restore the catalog that it was run with")
            .into());
        }
        Ok((workspace, manifest))
    }

    /// Content hash of everything that decides the rows, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        format!("{:032x}", self.hash)
    }

    /// The SLA as bounds on result columns.
    pub(super) fn bounds(&self) -> Vec<Bound> {
        self.sweep.sla.bounds.iter().map(|bound| Bound::at_most(bound.key, bound.limit_ms)).collect()
    }
}

/// Hash of the sweep's meaning, its engine profiles, the fitted predictors and this program's version: a run goes on only
/// with all of them unchanged.
fn content_hash(sweep: &Sweep, engines: &Engines, catalog: &Catalog) -> Result<u128, Diagnostic> {
    let mut hash = Xxh3::new();
    hash.update(&sweep.sweep_hash().to_le_bytes());
    hash.update(format!("{engines:?}").as_bytes());
    hash.update(env!("CARGO_PKG_VERSION").as_bytes());
    for file in files_below(&catalog.root().join("profiles").join("fitted")) {
        hash.update(&std::fs::read(&file).map_err(|error| unreadable(&file, &error))?);
    }
    Ok(hash.digest128())
}

/// All files of a folder and its subfolders, sorted; none if there is no such folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.into_iter().flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The Pareto axes of a sweep.
pub(super) fn axes(sweep: &Sweep) -> Result<Axes, Diagnostics> {
    let located = |mut problems: Diagnostics| {
        // Point at the axis that names the column.
        for problem in &mut problems.0 {
            let axis = [&sweep.pareto.x, &sweep.pareto.y].into_iter().find(|axis| problem.message.contains(&axis.name));
            problem.location = problem.location.take().or_else(|| axis.and_then(|axis| axis.location.clone()));
        }
        problems
    };
    Axes::new(&sweep.pareto.x.name, &sweep.pareto.y.name).map_err(located)
}

pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Diagnostic {
    Diagnostic::new(format!("cannot read `{}`: {error}", path.display()))
}
