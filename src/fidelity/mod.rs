//! The fidelity plane: operators, predictors and the step-cost grids compiled from them.

pub mod accuracy;
pub mod bytes;
pub mod card;
pub mod fit;
pub mod fitted;
pub mod forest;
pub mod grid;
pub mod import;
pub mod layer_operators;
pub mod operator;
pub mod predictor;
pub mod roofline;
pub mod shape;
#[cfg(test)]
mod shipped;
pub mod step_cost;
pub mod table;
pub mod train;
pub mod transfer;

pub use layer_operators::Sharding;
pub use operator::{AttentionHeads, CollectiveKind, Operator};
pub use predictor::{CostModel, Predictor};
pub use step_cost::{BatchShape, StepCost, StepLimits, StepLine};

/// Where an estimate comes from, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EstimateSource {
    /// A fitted predictor inside the box of its measurements.
    Measured,
    /// A fitted predictor outside that box: bounded by the roofline's growth.
    Extrapolated,
    /// Transferred from a measured GPU by the ratio of rooflines.
    Transferred,
    /// Roofline with default efficiencies.
    Roofline,
}

/// Predicted duration of one operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Duration, in nanoseconds.
    pub time_ns: f64,
    /// Where it comes from.
    pub source: EstimateSource,
}
