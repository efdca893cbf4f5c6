//! `[pareto]`: the two metrics of the front. Their names are checked against the results by whoever knows these.

use std::sync::Arc;

use crate::diag::{Location, Source};
use crate::spec::located::Located;
use crate::spec::raw::RawPareto;

/// The metrics of the front.
#[derive(Clone, Debug, PartialEq)]
pub struct ParetoAxes {
    /// Horizontal.
    pub x: ParetoAxis,
    /// Vertical.
    pub y: ParetoAxis,
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ParetoAxis {
    /// Name of a results column.
    pub name: String,
    /// Where the sweep names it; `None` for a default.
    pub location: Option<Location>,
}

pub(super) fn resolve(raw: Option<&RawPareto>, source: &Arc<Source>) -> ParetoAxes {
    let axis = |written: Option<&Located<String>>, default: &str| ParetoAxis {
        name: written.map_or_else(|| default.to_owned(), |written| written.value.clone()),
        location: written.map(|written| Location { source: Arc::clone(source), span: written.span.clone() }),
    };
    ParetoAxes {
        x: axis(raw.and_then(|raw| raw.x.as_ref()), "gen_speed_p95"),
        y: axis(raw.and_then(|raw| raw.y.as_ref()), "throughput_per_gpu"),
    }
}
