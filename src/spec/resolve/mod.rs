//! From what the user wrote to what it means, one file per section; all problems are reported at once.

mod header;
mod pareto;
mod role;
mod sla;
mod workload;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::document;
use super::lookup::Lookup;
use super::problems::Problems;
use super::raw::{RawColocation, RawSweep};
use super::sla::Sla;
use super::traffic::Workload;
use crate::catalog::Model;
use crate::diag::{Diagnostic, Diagnostics, Source};

pub use header::Budget;
pub use pareto::{ParetoAxes, ParetoAxis};
pub use role::{EngineAxes, RoleAxes, WeightFormats};

/// A sweep with every name looked up and every default filled in.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name of the sweep; names the results folder.
    pub name: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// The model served.
    pub model: Arc<Model>,
    /// GPUs to spend.
    pub budget: Budget,
    /// The traffic.
    pub workload: Workload,
    /// What a deployment must keep.
    pub sla: Sla,
    /// Blocks of co-located deployments, in the order of the file; never empty.
    pub colocation: Vec<ColocationAxes>,
    /// The metrics of the Pareto front.
    pub pareto: ParetoAxes,
}

/// One `[[colocation]]` block: the Cartesian product of its axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ColocationAxes {
    /// Axes of the only role.
    pub all: RoleAxes,
    /// Router policies.
    pub routers: Vec<&'static str>,
}

/// What the sections need besides their keys.
struct Context<'a> {
    lookup: &'a dyn Lookup,
    folder: PathBuf,
}

impl Context<'_> {
    /// A path of the sweep file, which is relative to that file.
    fn path(&self, written: &str) -> PathBuf {
        self.folder.join(written)
    }
}

impl Sweep {
    /// Reads and resolves a sweep file.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn from_file(path: &Path, lookup: &dyn Lookup) -> Result<Self, Diagnostics> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Diagnostic::new(format!("cannot read the sweep file `{}`: {error}", path.display()))
                .help("the ready-made sweeps are in the folder `sweeps`")
        })?;
        Self::from_text(&path.display().to_string(), text, lookup)
    }

    /// Resolves the text of a sweep file of this name; paths in it are relative to the name's folder.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the file.
    pub fn from_text(name: &str, text: String, lookup: &dyn Lookup) -> Result<Self, Diagnostics> {
        let source = Arc::new(Source { name: name.to_owned(), text });
        let document = document::read(&source)?;
        let mut problems = Problems::new(&source, document.problems);
        let folder = Path::new(name).parent().map(Path::to_path_buf).unwrap_or_default();
        let sweep = resolve(&document.raw, &source, &Context { lookup, folder }, &mut problems);
        problems.finish()?;
        sweep.ok_or_else(|| Diagnostic::new(format!("`{name}` is incomplete")).into())
    }

    /// The same sweep with arrivals and lengths replaced by those of a trace at its own speed: its first `requests`
    /// rows, or all if there are fewer. The path is relative to the working directory.
    ///
    /// # Errors
    /// An unreadable or malformed trace, or one with too few rows.
    pub fn with_trace(&self, path: &Path, lookup: &dyn Lookup) -> Result<Self, Diagnostics> {
        let trace = lookup.trace(path)?;
        let requests = Some(self.workload.requests.min(trace.rows.len()));
        let workload = workload::replay(&trace, requests, self.workload.warmup, vec![1.0]).map_err(Diagnostic::new)?;
        Ok(Self { workload, ..self.clone() })
    }

    /// A hash of what the sweep means: equal after a change of comments, spacing, order of keys or spelling of a
    /// range, and under another name; different after a change of any value, or of a fact about its model, GPUs or trace.
    #[must_use]
    pub fn sweep_hash(&self) -> u128 {
        // The debug form of these types lists every field, so a new field can never be forgotten here.
        let parts = (self.seed, &self.model, &self.budget, &self.workload, &self.sla, &self.colocation);
        let pareto = (&self.pareto.x.name, &self.pareto.y.name);
        xxh3_128(format!("{parts:?}{pareto:?}").as_bytes())
    }

    /// A hash of the traffic without its load axis, for candidate ids: extending the axis must not change them.
    #[must_use]
    pub fn traffic_hash(&self) -> u64 {
        xxh3_64(format!("{:?}", self.workload.without_loads()).as_bytes())
    }
}

fn resolve(raw: &RawSweep, source: &Arc<Source>, context: &Context<'_>, problems: &mut Problems) -> Option<Sweep> {
    let header = header::resolve(raw.sweep.as_ref(), source, context, problems);
    let workload = workload::resolve(raw.workload.as_ref(), context, problems);
    let sla = sla::resolve(raw.sla.as_ref(), problems);
    let pareto = pareto::resolve(raw.pareto.as_ref(), source);
    refuse_reserved(raw, problems);
    let model = header.as_ref().map(|header| Arc::clone(&header.model));
    let colocation = resolve_colocation(raw, model.as_deref(), context, problems);
    let header = header?;
    Some(Sweep {
        name: header.name,
        seed: header.seed,
        model: header.model,
        budget: header.budget,
        workload: workload?,
        sla,
        colocation: colocation?,
        pareto,
    })
}

fn refuse_reserved(raw: &RawSweep, problems: &mut Problems) {
    let reserved =
        [(&raw.pdd, "pdd", "prefill-decode disaggregation"), (&raw.afd, "afd", "attention-FFN disaggregation")];
    for (section, key, meaning) in reserved {
        if let Some(section) = section {
            problems.add_with_help(
                &section.span,
                format!("`{key}` ({meaning}) is not supported yet"),
                "only `[[colocation]]` deployments can be explored; remove this section",
            );
        }
    }
}

fn resolve_colocation(
    raw: &RawSweep,
    model: Option<&Model>,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<Vec<ColocationAxes>> {
    let blocks = raw.colocation.as_deref().unwrap_or_default();
    if blocks.is_empty() {
        problems.missing(None, "the sweep has no deployments", "add a `[[colocation]]` section");
        return None;
    }
    let defaults = raw.engine.as_ref().map(super::raw::RawEngine::engine_keys).unwrap_or_default();
    blocks
        .iter()
        .map(|block| {
            let RawColocation { all, router } = &block.value;
            let routers =
                role::names("router", router.as_ref(), role::DEFAULT_ROUTER, &context.lookup.routers(), problems);
            let Some(all) = all else {
                problems.missing(Some(&block.span), "`all` is missing", "add `all = { gpu = ..., tp = ... }`");
                return None;
            };
            let all = role::resolve(&all.value, &all.span, defaults, model, context, problems)?;
            Some(ColocationAxes { all, routers })
        })
        // Every block is visited before the first failure counts.
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// A required key: its absence is a problem.
fn required<'a, T>(
    value: Option<&'a T>,
    key: &str,
    help: &str,
    place: &Range<usize>,
    problems: &mut Problems,
) -> Option<&'a T> {
    if value.is_none() {
        problems.missing(Some(place), &format!("`{key}` is missing"), help);
    }
    value
}

#[cfg(test)]
mod tests;
