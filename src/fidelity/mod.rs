//! The fidelity plane: operators, predictors and the step-cost grids compiled from them.

pub mod accuracy;
pub mod bytes;
pub mod card;
pub mod expert_load;
pub mod family;
pub mod fit;
pub mod fitted;
pub mod forest;
pub mod grid;
#[cfg(test)]
mod grid_accuracy;
pub mod import;
pub mod latent;
pub mod layer_operators;
pub mod operator;
pub mod predictor;
pub mod provenance;
pub mod roofline;
pub mod shape;
#[cfg(test)]
mod shipped;
pub mod step_cost;
pub mod step_mix;
pub mod table;
pub mod train;
pub mod transfer;

pub use expert_load::ExpertLoad;
pub use layer_operators::Sharding;
pub use operator::{AttentionHeads, CollectiveKind, Operator};
pub use predictor::{CostModel, Predictor};
pub use provenance::{CostProvenance, TimeProvenance};
pub use step_cost::{BatchShape, StepCost, StepLimits, StepLine};
pub use step_mix::StepMix;

/// Where an estimate comes from, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EstimateSource {
    /// A measurement of that very shape.
    Measured,
    /// A fitted predictor between measurements.
    Interpolated,
    /// A fitted predictor beyond its measurements: bounded by the roofline's growth.
    Extrapolated,
    /// Transferred from a measured GPU by the ratio of rooflines.
    Transferred,
    /// Roofline with default efficiencies.
    Roofline,
}

impl EstimateSource {
    /// Every source, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Interpolated, Self::Extrapolated, Self::Transferred, Self::Roofline];
}

/// Predicted duration of one operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Duration, in nanoseconds.
    pub time_ns: f64,
    /// Where it comes from.
    pub source: EstimateSource,
    /// One standard deviation of ln(time): how far off the time may be, relative to it.
    pub uncertainty: f64,
}
