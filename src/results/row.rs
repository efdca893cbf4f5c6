//! One row of the results: a candidate and what became of it.

use std::sync::Arc;

use crate::fidelity::TimeProvenance;
use crate::sim::Outcome;
use crate::space::Candidate;

/// How the simulation of a candidate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every submitted request completed.
    Completed,
    /// Some requests were rejected or did not complete; the counts say how many.
    Partial,
    /// The simulation panicked; the error text says how. There is no outcome.
    Panicked,
    /// Never simulated: the candidate cannot work; the reason says why. There is no outcome.
    Pruned,
}

impl Status {
    /// The status that an outcome implies.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        if outcome.completed == outcome.submitted { Self::Completed } else { Self::Partial }
    }

    /// Name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Panicked => "panicked",
            Self::Pruned => "pruned",
        }
    }
}

/// A row as the worker that simulated it hands it to the writer.
#[derive(Clone, Debug)]
pub struct OwnedRow {
    /// What was simulated.
    pub candidate: Arc<Candidate>,
    /// How it ended.
    pub status: Status,
    /// What was measured.
    pub outcome: Option<Outcome>,
    /// Where its times come from.
    pub provenance: Option<TimeProvenance>,
    /// KV blocks of one engine (one attention data-parallel rank).
    pub kv_blocks: u64,
    /// The outcome meets every bound of the sweep's SLA.
    pub sla_met: bool,
    /// What went wrong, if anything.
    pub error: Option<String>,
}

impl OwnedRow {
    /// A view of this row.
    #[must_use]
    pub fn as_row(&self) -> Row<'_> {
        Row {
            candidate: &self.candidate,
            status: self.status,
            outcome: self.outcome.as_ref(),
            provenance: self.provenance.as_ref(),
            kv_blocks: self.kv_blocks,
            sla_met: self.sla_met,
            error: self.error.as_deref(),
        }
    }
}

/// What columns take their values from.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// What was simulated.
    pub candidate: &'a Candidate,
    /// How it ended.
    pub status: Status,
    /// What was measured.
    pub outcome: Option<&'a Outcome>,
    /// Where its times come from.
    pub provenance: Option<&'a TimeProvenance>,
    /// KV blocks of one engine.
    pub kv_blocks: u64,
    /// The outcome meets every bound of the sweep's SLA.
    pub sla_met: bool,
    /// What went wrong, if anything.
    pub error: Option<&'a str>,
}

/// A candidate that was dropped before simulation.
#[derive(Clone, Debug)]
pub struct PrunedRow {
    /// The candidate.
    pub candidate: Arc<Candidate>,
    /// Short name of the reason, the same for all candidates dropped for it.
    pub reason: &'static str,
    /// Bytes per GPU that the candidate needs at least, where the reason is memory.
    pub needed_bytes: Option<u64>,
    /// Bytes per GPU that it may use, where the reason is memory.
    pub available_bytes: Option<u64>,
    /// The reason with its numbers, for people.
    pub detail: String,
}

impl PrunedRow {
    /// A view with which the columns of the configuration can be evaluated.
    #[must_use]
    pub fn as_row(&self) -> Row<'_> {
        Row {
            candidate: &self.candidate,
            status: Status::Pruned,
            outcome: None,
            provenance: None,
            kv_blocks: 0,
            sla_met: false,
            error: None,
        }
    }
}
