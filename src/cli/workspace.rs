//! A sweep with everything derived from it, opened from a sweep file or from the copy in a run folder.

use std::path::{Component, Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Diagnostics};
use crate::explore::{Engines, engines_of};
use crate::pareto::{Axes, Bound};
use crate::results::Manifest;
use crate::results::manifest::SWEEP_FILE;
use crate::space::Space;
use crate::spec::Sweep;
use crate::units::format_count;

use super::exit::Failure;

/// Combinations that a plan can hold in a few GiB.
const MOST_COMBINATIONS: u64 = 1 << 25;

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
        let text = std::fs::read_to_string(path)
            .map_err(|error| unreadable(path, &error).help("the ready-made sweeps are in the folder `sweeps`"))?;
        Self::from_text(&path.display().to_string(), text, trace, catalog)
    }

    /// Resolves the text of a sweep file; relative paths in it refer to the folder of `name`.
    fn from_text(name: &str, text: String, trace: Option<&Path>, catalog: &Catalog) -> Result<Self, Failure> {
        let mut sweep = Sweep::from_text(name, text.clone(), catalog)?;
        if let Some(trace) = trace {
            sweep = sweep.with_trace(trace, catalog)?;
        }
        let engines = engines_of(&sweep, |name| catalog.engine(name))?;
        axes(&sweep)?;
        let space = Space::new(&sweep);
        if space.len() > MOST_COMBINATIONS {
            let problem = format!("`{name}` has {} combinations", format_count(space.len()));
            let limit = format!("at most {} can be planned; shorten some axes", format_count(MOST_COMBINATIONS));
            return Err(Diagnostic::new(problem).help(limit).into());
        }
        let hash = content_hash(&sweep, &engines, catalog)?;
        Ok(Self { sweep, space, engines, text, hash })
    }

    /// Opens the sweep of a run.
    pub(super) fn of_run(run_folder: &Path, catalog: &Catalog) -> Result<(Self, Manifest), Failure> {
        let manifest = Manifest::load(run_folder).map_err(Failure::results)?;
        let trace = manifest.trace.as_deref().map(|trace| run_folder.join(trace));
        let copy = run_folder.join(SWEEP_FILE);
        let text = std::fs::read_to_string(&copy).map_err(|error| Failure::results(unreadable(&copy, &error)))?;
        let workspace = Self::from_text(
            &run_folder.join(&manifest.sweep_path).display().to_string(),
            text,
            trace.as_deref(),
            catalog,
        )?;
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

/// The way from a folder to a file: a run folder stays readable when the tree that holds both moves.
pub(super) fn relative_path(folder: &Path, file: &Path) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (folder, file) = (absolute(folder), absolute(file));
    let shared = folder.components().zip(file.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(file.components().skip(shared)).collect::<PathBuf>().display().to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_file_goes_up_and_down() {
        let way = |folder: &str, file: &str| relative_path(Path::new(folder), Path::new(file));
        assert_eq!(way("results/a", "sweeps/b.toml"), "../../sweeps/b.toml");
        assert_eq!(way("a", "a/b.toml"), "b.toml");
        assert_eq!(way("/x/y", "/z.csv"), "../../z.csv");
    }
}
