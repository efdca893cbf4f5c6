//! One candidate to one row.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::memory::usable_blocks;
use crate::pareto::Bound;
use crate::results::{OwnedRow, Status};
use crate::scheduler::router::router;
use crate::scheduler::scheduler;
use crate::sim::{Advance, Arena, Deployment, FrontEnd, Observer, Outcome, RequestBounds, simulate};
use crate::space::{Candidate, Space};
use crate::spec::Sweep;
use crate::units::Ticks;

use super::plan::Engines;
use super::shared::SharedWork;

/// Everything needed to simulate any candidate of a sweep. Shared by all threads.
#[derive(Debug)]
pub struct Evaluator<'a> {
    /// The sweep.
    pub sweep: &'a Sweep,
    /// Its index space.
    pub space: &'a Space,
    /// Step costs and streams.
    pub shared: &'a SharedWork,
    /// Engine profiles by name.
    pub engines: &'a Engines,
}

impl Evaluator<'_> {
    /// Simulates the candidate at `index`. A panic becomes a row with its message; the arena is then replaced.
    ///
    /// # Panics
    /// If there is no valid candidate at `index`.
    pub fn row(&self, arena: &mut Arena, index: u64, kv_blocks: u64, bounds: &[Bound]) -> OwnedRow {
        let candidate = self.space.candidate(index).expect("planned candidates are valid");
        let result = catch_unwind(AssertUnwindSafe(|| self.simulate(arena, &candidate, kv_blocks, &mut ())));
        let provenance = self.shared.provenance(&candidate.pools[0]);
        let candidate = Arc::new(candidate);
        match result {
            Ok(outcome) => {
                let status = Status::of(&outcome);
                let mut row = OwnedRow {
                    candidate,
                    status,
                    outcome: Some(outcome),
                    provenance: provenance.map(|provenance| provenance.weigh(arena.step_mix())),
                    kv_blocks,
                    sla_met: false,
                    error: None,
                };
                row.sla_met = status == Status::Completed && bounds.iter().all(|bound| bound.allows_row(&row.as_row()));
                row
            }
            Err(panic) => {
                *arena = Arena::default();
                let error = Some(panic_message(panic.as_ref()));
                OwnedRow {
                    candidate,
                    status: Status::Panicked,
                    outcome: None,
                    provenance: None,
                    kv_blocks,
                    sla_met: false,
                    error,
                }
            }
        }
    }

    /// Simulates a candidate.
    ///
    /// # Panics
    /// If the candidate was not part of the plan that the shared work was prepared for.
    pub fn simulate(
        &self,
        arena: &mut Arena,
        candidate: &Candidate,
        kv_blocks: u64,
        observer: &mut impl Observer,
    ) -> Outcome {
        let pool = &candidate.pools[0];
        let parallelism = pool.parallelism;
        let engine = &self.engines[&*pool.engine_profile];
        // Experts tie the data-parallel ranks of a replica together; on dense models each rank is a replica of its own.
        let (replicas, ranks) = match parallelism.dp_attention {
            ranks if self.sweep.model.has_experts() => (pool.replicas, ranks),
            ranks => (pool.replicas * ranks, 1),
        };
        let deployment = Deployment {
            replicas,
            ranks,
            cost: self.shared.cost(pool).expect("the plan covers the candidate"),
            kv_blocks: usable_blocks(kv_blocks),
            limits: &pool.engine,
            rules: engine.rules,
            scheduler: scheduler(pool.engine.scheduler).expect("the sweep names a known scheduler"),
            router: router(candidate.router).expect("the sweep names a known router"),
            front_end: FrontEnd::new(&engine.host),
            seed: self.sweep.seed,
        };
        let stream = self.shared.stream(candidate);
        simulate(arena, &deployment, stream, &self.request_bounds(), Advance::FastForward, observer)
    }

    fn request_bounds(&self) -> RequestBounds {
        let limits = self.sweep.sla.request_limits();
        let ticks = |limit_ms: Option<f64>| limit_ms.map_or(Ticks::NEVER, |ms| Ticks::from_ns(ms * 1e6));
        RequestBounds { ttft: ticks(limits.ttft_ms), tpot: ticks(limits.tpot_ms), e2e: ticks(limits.e2e_ms) }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}
