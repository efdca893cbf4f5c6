//! Hooks for traces. The default does nothing and compiles away.

use crate::fidelity::BatchShape;
use crate::units::Ticks;

/// Steps of one lane that ended.
#[derive(Clone, Copy, Debug)]
pub struct StepRecord<'a> {
    /// Pipeline lane.
    pub lane: usize,
    /// Start of the first step.
    pub start: Ticks,
    /// End of the last step.
    pub end: Ticks,
    /// Number of steps with these batches.
    pub steps: u64,
    /// Batch of each attention data-parallel rank in the first of the steps.
    pub batches: &'a [BatchShape],
}

/// Receives what happens in a simulation.
pub trait Observer {
    /// The replica that the next records belong to.
    fn replica(&mut self, _replica: usize) {}
    /// Steps ended.
    fn steps(&mut self, _record: &StepRecord<'_>) {}
    /// A request completed.
    fn completed(&mut self, _request: u32, _at: Ticks) {}
}

/// Observes nothing.
impl Observer for () {}
