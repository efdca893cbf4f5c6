//! Which candidates are worth looking at: SLA filter, Pareto front, hypervolume and knee.
//!
//! Points are rows of a flat slice, `directions.len()` values each; `[[f64; K]]::as_flattened` makes one from arrays.

pub mod front;
pub mod hypervolume;
pub mod knee;
pub mod selection;
pub mod sla;

pub use crate::results::Direction;
pub use front::{dominates, front};
pub use hypervolume::hypervolume;
pub use knee::knee;
pub use selection::{Axes, Selection};
pub use sla::{Bound, Limit, feasible};
