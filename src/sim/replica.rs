//! One replica: engines in lock-step (one per attention data-parallel rank) over pipeline stages.
//!
//! A lane is one batch in flight; there are as many lanes as stages. With one stage, a lane whose batch only decodes runs
//! several steps as one event: until a member ends, a KV block is missing, the step cost bends, or an arrival cuts
//! the run short.

use crate::catalog::SchedulingRules;
use crate::fidelity::{BatchShape, StepCost, StepLine, StepMix};
use crate::scheduler::{Horizon, Scheduler};
use crate::space::EngineLimits;
use crate::units::Ticks;

use super::engine::{EngineState, EngineStep};
use super::gaps::GapHistogram;
use super::observer::{Observer, StepRecord};
use super::request::{Phase, RequestState};

/// How decode phases advance. Both give the same integers; a property test says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Runs of equal batches in closed form.
    FastForward,
    /// One event per step.
    Stepwise,
}

/// What all replicas of a pool have in common.
#[derive(Clone, Copy)]
pub(crate) struct ReplicaContext<'a> {
    pub(crate) cost: &'a StepCost,
    pub(crate) limits: &'a EngineLimits,
    pub(crate) rules: &'a SchedulingRules,
    pub(crate) scheduler: &'a dyn Scheduler,
    pub(crate) advance: Advance,
    /// The batch of a step is decided when the step before it starts.
    pub(crate) schedules_ahead: bool,
}

/// What a simulation collects over its steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) gaps: GapHistogram,
    pub(crate) mix: StepMix,
}

/// Steps of one lane in flight.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: Ticks,
    line: StepLine,
    steps: u64,
    /// What the line takes without waiting for other lanes.
    service: StepLine,
}

/// State of one replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    pub(crate) engines: Vec<EngineState>,
    /// `lanes x ranks` batches in flight.
    batches: Vec<BatchShape>,
    runs: Vec<Option<Run>>,
    /// When each stage is free again.
    stage_free: Vec<Ticks>,
    /// When the host can schedule the next batch of a pipeline.
    host_free: Ticks,
    pub(crate) busy: Ticks,
}

impl Replica {
    pub(crate) fn reset(
        &mut self,
        ranks: usize,
        lanes: usize,
        blocks: u64,
        limits: &EngineLimits,
        rules: &SchedulingRules,
        requests: usize,
    ) {
        self.engines.resize_with(ranks, EngineState::default);
        self.engines.iter_mut().for_each(|engine| engine.reset(lanes, blocks, limits, rules, requests));
        self.batches.resize_with(lanes * ranks, BatchShape::default);
        self.runs.clear();
        self.runs.resize(lanes, None);
        self.stage_free.clear();
        self.stage_free.resize(lanes, Ticks::ZERO);
        self.host_free = Ticks::ZERO;
        self.busy = Ticks::ZERO;
    }

    pub(crate) fn is_idle(&self, lane: usize) -> bool {
        self.runs[lane].is_none()
    }

    /// Fills and starts a step on an idle lane. Returns its end, or `None` if there is nothing to do.
    pub(crate) fn start(
        &mut self,
        lane: usize,
        now: Ticks,
        context: ReplicaContext<'_>,
        requests: &mut [RequestState],
    ) -> Option<Ticks> {
        if !context.schedules_ahead {
            self.catch_up(requests);
        }
        let mut one_step = self.fill(lane, now, context, requests);
        if context.schedules_ahead {
            let changed = self.catch_up(requests);
            // With nothing in flight there is nothing to be ahead of: the engine looks again at once.
            one_step = if changed && self.is_empty_batch(lane) {
                self.fill(lane, now, context, requests)
            } else {
                one_step || changed
            };
        }
        if self.is_empty_batch(lane) {
            return None;
        }
        let run = if self.stage_free.len() == 1 {
            let line = context.cost.line(&self.batches, context.limits.max_num_seqs);
            let steps = if one_step { 1 } else { self.steps_until_change(line, context.advance) };
            Run { start: now, line, steps, service: line }
        } else {
            self.pipeline(lane, now, context)
        };
        self.runs[lane] = Some(run);
        Some(run.start + run.line.total(run.steps))
    }

    /// Lets the scheduler of each engine fill its batch of a step. Returns whether the decision holds for one step only.
    fn fill(&mut self, lane: usize, now: Ticks, context: ReplicaContext<'_>, requests: &mut [RequestState]) -> bool {
        let lanes_in_flight = self.lanes_in_flight();
        let ranks = self.engines.len();
        let batches = &mut self.batches[lane * ranks..(lane + 1) * ranks];
        let mut one_step = false;
        for (engine, batch) in self.engines.iter_mut().zip(batches) {
            batch.clear();
            let mut step = EngineStep {
                engine,
                requests,
                limits: context.limits,
                rules: context.rules,
                lane,
                lanes_in_flight,
                now,
                budget: context.limits.max_num_batched_tokens,
                batch,
            };
            let preemptions = step.engine.counters.preemptions;
            let horizon = context.scheduler.schedule(&mut step);
            // A preemption frees blocks, so that the next call may admit what this one did not.
            one_step |= horizon == Horizon::OneStep || engine.counters.preemptions > preemptions;
            let used = engine.used_blocks();
            engine.counters.peak_blocks = engine.counters.peak_blocks.max(used);
        }
        one_step
    }

    /// Lets every engine see what happened during the last step. Returns whether that may change a decision.
    fn catch_up(&mut self, requests: &mut [RequestState]) -> bool {
        let changed = self.engines.iter_mut().filter_map(|engine| engine.catch_up(requests).then_some(()));
        changed.count() > 0
    }

    fn is_empty_batch(&self, lane: usize) -> bool {
        let ranks = self.engines.len();
        self.batches[lane * ranks..(lane + 1) * ranks].iter().all(|batch| batch.tokens() == 0)
    }

    /// An arrival at `now`: a run ends with the step in progress, so that the scheduler sees the arrival. Returns the new
    /// end if it moved.
    pub(crate) fn cut_short(&mut self, lane: usize, now: Ticks) -> Option<Ticks> {
        let run = self.runs[lane].as_mut()?;
        if run.steps == 1 {
            return None;
        }
        // The fewest steps whose end is not before the arrival.
        let elapsed = now.saturating_since(run.start);
        let (mut low, mut high) = (1, run.steps);
        while low < high {
            let middle = low + (high - low) / 2;
            if run.line.total(middle) >= elapsed { high = middle } else { low = middle + 1 }
        }
        run.steps = low;
        Some(run.start + run.line.total(low))
    }

    /// Ends the steps in flight on a lane: tokens come out, sequences end (their indices go to `completed`).
    pub(crate) fn finish(
        &mut self,
        lane: usize,
        now: Ticks,
        requests: &mut [RequestState],
        records: &mut Records,
        completed: &mut Vec<u32>,
        observer: &mut impl Observer,
    ) {
        let Some(run) = self.runs[lane].take() else { return };
        let ranks = self.engines.len();
        let batches = &self.batches[lane * ranks..(lane + 1) * ranks];
        observer.steps(&StepRecord { lane, start: run.start, end: now, steps: run.steps, batches });
        records.mix.add(batches, run.service, run.steps);
        let pipelined = self.stage_free.len() > 1;
        if !pipelined {
            self.busy += run.line.total(run.steps);
        }
        let first_end = if pipelined { now } else { run.start + run.line.total(1) };
        for (engine, batch) in self.engines.iter_mut().zip(batches) {
            let decoded = batch.decode_sequences > 0;
            if decoded {
                let sequences = u64::from(engine.cohorts[lane].measured());
                let StepLine { first, growth, .. } = run.line;
                if !pipelined && engine.token_times[lane].are_all(run.start) {
                    records.gaps.add(first, growth, run.steps, sequences);
                } else {
                    engine.token_times[lane].decoded(first_end, &mut records.gaps);
                    records.gaps.add(first + growth, growth, run.steps - 1, sequences);
                }
            }
            engine.advance_lane(lane, run.steps, decoded);
            while let Some(index) = engine.cohorts[lane].pop_ended(requests) {
                let cached = engine.cohorts[lane].cached(&requests[index as usize]);
                complete(engine, index, cached, now, requests, completed);
            }
            if decoded {
                let measured = engine.cohorts[lane].measured();
                engine.token_times[lane].all_at(now, measured);
            }
            end_chunks(engine, lane, now, requests, &mut records.gaps, completed);
        }
    }

    /// Steps for which neither the batches nor the line of step times change.
    fn steps_until_change(&self, line: StepLine, advance: Advance) -> u64 {
        let decodes_only = self.batches.iter().all(|batch| batch.chunks.is_empty());
        if advance == Advance::Stepwise || !decodes_only {
            return 1;
        }
        let ends = self.engines.iter().map(|engine| engine.cohorts[0].iterations_to_next_end());
        let steps = ends.chain([line.steps]).min().unwrap_or(1);
        self.engines
            .iter()
            .fold(steps, |steps, engine| engine.cohorts[0].iterations_within(engine.free_blocks(), steps))
    }

    /// Passes a batch through the stages, first come first served. One host schedules all lanes.
    fn pipeline(&mut self, lane: usize, now: Ticks, context: ReplicaContext<'_>) -> Run {
        let ranks = self.engines.len();
        let batches = &self.batches[lane * ranks..(lane + 1) * ranks];
        let cost = context.cost;
        let host = cost.host_delay(batches);
        let scheduled = now.max(self.host_free);
        self.host_free = scheduled + host.occupied;
        let mut ready = scheduled + host.before_start;
        let (mut work, mut service) = (Ticks::ZERO, host.before_start);
        for stage in 0..self.stage_free.len() {
            if stage > 0 {
                let transfer = cost.transfer(stage - 1, batches);
                ready += transfer;
                service += transfer;
            }
            // Most stages in the middle are alike.
            if stage == 0 || !cost.is_like_previous(stage) {
                work = Ticks(cost.stage_line(stage, batches, context.limits.max_num_seqs).first);
            }
            ready = ready.max(self.stage_free[stage]) + work;
            self.stage_free[stage] = ready;
            service += work;
            if stage == 0 {
                self.busy += work;
            }
        }
        let single = |time: Ticks| StepLine { first: time.0, growth: 0, steps: 1 };
        Run { start: now, line: single(ready - now), steps: 1, service: single(service) }
    }

    fn lanes_in_flight(&self) -> u64 {
        self.runs.iter().enumerate().map(|(lane, run)| u64::from(run.is_some()) << lane).sum()
    }
}

/// Ends the chunks of a lane: prompts that are complete give a token and join the cohort, or end at once.
fn end_chunks(
    engine: &mut EngineState,
    lane: usize,
    now: Ticks,
    requests: &mut [RequestState],
    gaps: &mut GapHistogram,
    completed: &mut Vec<u32>,
) {
    let mut chunks = std::mem::take(&mut engine.chunks[lane]);
    for chunk in chunks.drain(..) {
        let request = &mut requests[chunk.request as usize];
        request.chunks_in_flight -= 1;
        if !chunk.finishing {
            continue;
        }
        request.generated += 1;
        if request.generated == 1 {
            request.first_token = now;
        } else {
            gaps.add(now.saturating_since(request.last_token).0, 0, 1, u64::from(request.measured));
        }
        let (cached, remaining) = (request.target, request.output_tokens - request.generated);
        if remaining == 0 {
            complete(engine, chunk.request, cached, now, requests, completed);
        } else {
            request.phase = Phase::Decode;
            request.lane = lane as u32;
            request.last_token = now;
            engine.cohorts[lane].join(chunk.request, request, cached, remaining);
            engine.token_times[lane].join(now, u32::from(request.measured));
        }
    }
    engine.chunks[lane] = chunks;
}

fn complete(
    engine: &mut EngineState,
    index: u32,
    cached: u32,
    now: Ticks,
    requests: &mut [RequestState],
    completed: &mut Vec<u32>,
) {
    engine.complete(index, cached);
    let request = &mut requests[index as usize];
    request.phase = Phase::Completed;
    request.generated = request.output_tokens;
    request.completed = now;
    completed.push(index);
}
