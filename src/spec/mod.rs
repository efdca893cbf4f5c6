//! Sweep files: what the user wrote ([`raw`]) and what it means ([`Sweep`]).

pub mod axis;
mod document;
#[cfg(test)]
pub(crate) mod fake;
pub mod located;
pub mod lookup;
mod problems;
pub mod raw;
pub mod resolve;
pub mod schema;
pub mod sla;
pub mod traffic;

pub use lookup::Lookup;
pub use resolve::{Budget, ColocationAxes, EngineAxes, ParetoAxes, ParetoAxis, RoleAxes, Sweep, WeightFormats};
pub use sla::{Latency, RequestLimits, Sla, SlaBound, Statistic};
pub use traffic::{Arrival, Dialogue, LengthLaw, Prefix, Trace, TraceRow, Traffic, Workload};
