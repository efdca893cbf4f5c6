//! Which candidates of the space are simulated, and why the others are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::catalog::EngineProfile;
use crate::diag::Diagnostics;
use crate::memory::{self, MemoryPlan};
use crate::results::PrunedRow;
use crate::space::{Candidate, Excluded, Space};
use crate::spec::Sweep;

/// The candidates of one sweep, sorted out before anything is simulated.
#[derive(Debug)]
pub struct Plan {
    /// Points of the index space.
    pub points: u64,
    /// Points that no engine would accept (heads that do not divide, budget not met, ...), by reason.
    pub excluded: Vec<Exclusion>,
    /// Valid candidates that do not fit in memory.
    pub pruned: Vec<PrunedRow>,
    /// The candidates to simulate: index and KV blocks of one engine, in index order.
    pub feasible: Vec<(u64, u64)>,
}

/// Points left out for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Exclusion {
    /// Stable name of the reason.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
    /// The first of them, in words.
    pub example: String,
}

/// What became of one point.
enum Fate {
    Excluded(Excluded),
    Pruned(Box<PrunedRow>),
    Feasible(u64, u64),
}

/// Looks up the profile of a candidate's engine version.
pub type Engines = BTreeMap<String, EngineProfile>;

impl Plan {
    /// Sorts out every point of the space.
    #[must_use]
    pub fn new(sweep: &Sweep, space: &Space, engines: &Engines) -> Self {
        let points = space.len();
        let fates: Vec<Fate> = (0..points as usize)
            .into_par_iter()
            .map(|index| match space.candidate(index as u64) {
                Err(excluded) => Fate::Excluded(excluded),
                Ok(candidate) => judge(sweep, candidate, engines),
            })
            .collect();
        let mut plan = Self { points, excluded: Vec::new(), pruned: Vec::new(), feasible: Vec::new() };
        for fate in fates {
            match fate {
                Fate::Excluded(excluded) => plan.exclude(&excluded),
                Fate::Pruned(row) => plan.pruned.push(*row),
                Fate::Feasible(index, kv_blocks) => plan.feasible.push((index, kv_blocks)),
            }
        }
        plan
    }

    /// Pruned candidates by reason, most frequent first, each with its first example.
    #[must_use]
    pub fn pruned_by_reason(&self) -> Vec<Exclusion> {
        let mut reasons: Vec<Exclusion> = Vec::new();
        for row in &self.pruned {
            count(&mut reasons, row.reason, || row.detail.clone());
        }
        reasons.sort_by_key(|exclusion| std::cmp::Reverse(exclusion.count));
        reasons
    }

    fn exclude(&mut self, excluded: &Excluded) {
        count(&mut self.excluded, excluded.reason(), || excluded.to_string());
    }
}

fn count(reasons: &mut Vec<Exclusion>, reason: &'static str, example: impl FnOnce() -> String) {
    match reasons.iter_mut().find(|exclusion| exclusion.reason == reason) {
        Some(exclusion) => exclusion.count += 1,
        None => reasons.push(Exclusion { reason, count: 1, example: example() }),
    }
}

fn judge(sweep: &Sweep, candidate: Candidate, engines: &Engines) -> Fate {
    let memory = memory_plan(sweep, &candidate, engines);
    let verdict = memory.verdict();
    if verdict.fits() {
        return Fate::Feasible(candidate.index, memory.kv_blocks);
    }
    Fate::Pruned(Box::new(PrunedRow {
        candidate: Arc::new(candidate),
        reason: verdict.reason(),
        needed_bytes: Some(memory.occupied_bytes() + memory.kv_block_bytes * memory.blocks_per_longest_request),
        available_bytes: Some(memory.budget_bytes),
        detail: verdict.to_string(),
    }))
}

/// The memory of a candidate's fullest GPU.
///
/// # Panics
/// If the candidate's engine has no profile in `engines`; [`engines_of`] makes sure that it has.
#[must_use]
pub fn memory_plan(sweep: &Sweep, candidate: &Candidate, engines: &Engines) -> MemoryPlan {
    let pool = &candidate.pools[0];
    let engine = &engines[&*pool.engine_profile];
    memory::capacity(&sweep.model, &pool.gpu, pool.parallelism, pool.precision, &pool.engine, &engine.memory)
}

/// Loads the profiles of all engine versions that the sweep names.
///
/// # Errors
/// An unknown or malformed profile.
pub fn engines_of(
    sweep: &Sweep,
    load: impl Fn(&str) -> Result<EngineProfile, Diagnostics>,
) -> Result<Engines, Diagnostics> {
    let names = sweep.colocation.iter().flat_map(|block| &block.all.engine.engine);
    names.map(|name| Ok((name.to_string(), load(name)?))).collect()
}
