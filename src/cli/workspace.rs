//! A sweep with everything derived from it, opened from a sweep file or from the copy in a run folder.

use std::path::{Path, PathBuf};

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
        Ok(Self { sweep, space, engines, text })
    }

    /// Opens the sweep of a run.
    pub(super) fn of_run(run_folder: &Path, catalog: &Catalog) -> Result<(Self, Manifest), Failure> {
        let manifest = Manifest::load(run_folder).map_err(Failure::results)?;
        let trace = manifest.trace.as_deref().map(PathBuf::from);
        let workspace = Self::open(&run_folder.join(SWEEP_FILE), trace.as_deref(), catalog)?;
        if workspace.hash() != manifest.sweep_xxh3 {
            return Err(Diagnostic::new(format!(
                "the sweep, model or GPU facts in `{}` are not those that were simulated",
                run_folder.display()
            ))
            .help("run the sweep again, or restore the catalog that it was run with")
            .into());
        }
        Ok((workspace, manifest))
    }

    /// Content hash of the sweep's meaning, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        format!("{:032x}", self.sweep.sweep_hash())
    }

    /// The SLA as bounds on result columns.
    pub(super) fn bounds(&self) -> Vec<Bound> {
        self.sweep.sla.bounds.iter().map(|bound| Bound::at_most(bound.key, bound.limit_ms)).collect()
    }
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
