//! What a run tells while it goes on. The engine emits; terminals, log lines and tests listen.

use crate::results::OwnedRow;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Candidates simulated and handed to the writer.
    pub done: u64,
    /// Candidates to simulate in this session.
    pub total: u64,
    /// Of those done, how many met the SLA.
    pub sla_met: u64,
}

/// Listens to a run; called from the writer's thread.
pub trait Reporter: Send {
    /// The run starts.
    fn started(&mut self, _progress: Progress) {}
    /// A block of rows came in, in index order.
    fn rows(&mut self, _progress: Progress, _rows: &[OwnedRow]) {}
    /// The run is over, complete or not.
    fn finished(&mut self, _progress: Progress) {}
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {}
