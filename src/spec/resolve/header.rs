//! `[sweep]`: name, seed, model and budget.

use std::path::Path;
use std::sync::Arc;

use super::{Context, required};
use crate::catalog::Model;
use crate::diag::Source;
use crate::spec::located::Located;
use crate::spec::problems::Problems;
use crate::spec::raw::RawHeader;

/// GPUs to spend on one deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Number of GPUs; several make an axis.
    pub gpus: Vec<u32>,
    /// A deployment may leave some unused. Then there is only one number.
    pub at_most: bool,
}

/// Largest budget: several times the largest cluster in service.
const MOST_GPUS: u32 = 1 << 20;

/// The resolved section.
pub(super) struct Header {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) model: Arc<Model>,
    pub(super) budget: Budget,
}

pub(super) fn resolve(
    raw: Option<&Located<RawHeader>>,
    source: &Source,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<Header> {
    let Some(Located { value: raw, span }) = raw else {
        problems.missing(None, "the section `[sweep]` is missing", "add `[sweep]` with `model` and `gpus`");
        return None;
    };
    let budget = resolve_budget(raw, span, problems);
    let written_model = required(raw.model.as_ref(), "model", "name a model of the catalogue", span, problems);
    let model = written_model.and_then(|written| resolve_model(written, context, problems));
    Some(Header {
        name: resolve_name(raw, source, problems),
        seed: raw.seed.as_ref().map_or(0, |seed| seed.value),
        model: model?,
        budget: budget?,
    })
}

fn resolve_name(raw: &RawHeader, source: &Source, problems: &mut Problems) -> String {
    let Some(written) = &raw.name else {
        let stem = Path::new(&source.name).file_stem();
        return stem.map_or_else(|| "sweep".into(), |stem| stem.to_string_lossy().into_owned());
    };
    let is_file_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if written.value.is_empty() || written.value.starts_with('.') || !written.value.chars().all(is_file_name) {
        problems.add_with_help(
            &written.span,
            format!("`{}` cannot name a results folder", written.value),
            "use letters, digits, `-`, `_` and `.`",
        );
    }
    written.value.clone()
}

fn resolve_model(written: &Located<String>, context: &Context<'_>, problems: &mut Problems) -> Option<Arc<Model>> {
    let is_path = written.value.contains('/') || written.value.ends_with(".json");
    let name =
        if is_path { context.path(&written.value).to_string_lossy().into_owned() } else { written.value.clone() };
    context.lookup.model(&name).map_err(|error| problems.adopt(&written.span, error)).ok()
}

fn resolve_budget(raw: &RawHeader, place: &std::ops::Range<usize>, problems: &mut Problems) -> Option<Budget> {
    let axis = required(raw.gpus.as_ref(), "gpus", "say how many GPUs a deployment may use", place, problems)?;
    let at_most = raw.at_most.as_ref().is_some_and(|at_most| at_most.value);
    if at_most && axis.values.len() > 1 {
        problems.add_with_help(
            &axis.span,
            "a budget with `at_most = true` is one number",
            "keep the largest: it includes the smaller ones when `replicas` is an axis",
        );
    }
    let gpus = problems.values("gpus", axis, |gpus| match *gpus {
        1..=MOST_GPUS => Ok(()),
        _ => Err(format!("must be between 1 and {MOST_GPUS}")),
    });
    Some(Budget { gpus, at_most })
}
