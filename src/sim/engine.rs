//! One engine: a scheduler with its waiting queue, running list and KV cache. One attention data-parallel rank has one.

use std::collections::VecDeque;

use crate::catalog::SchedulingRules;
use crate::fidelity::BatchShape;
use crate::scheduler::{self, Reservation};
use crate::space::EngineLimits;
use crate::units::Ticks;

use super::cohort::Cohort;
use super::gaps::TokenTimes;
use super::prefix_cache::PrefixCache;
use super::request::{NONE, Phase, RequestState};

/// A prompt chunk in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) request: u32,
    /// The chunk ends the prompt: an output token follows.
    pub(crate) finishing: bool,
}

/// What it takes to compute further tokens of a prompt.
#[derive(Clone, Copy, Debug)]
struct Extension {
    /// Blocks to take from the free ones; negative if a partial block turns out to be there already.
    blocks: i64,
    /// Full blocks of the request afterwards, and how many of them are cached now; zero without a prefix cache.
    full: u32,
    cached: u32,
}

impl Extension {
    fn fits(self, free: u64) -> bool {
        self.blocks <= free as i64
    }
}

/// State of one engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct EngineState {
    waiting: VecDeque<u32>,
    /// Arrivals during the step in flight of an engine that schedules ahead: the step after it is decided already.
    unseen: VecDeque<u32>,
    /// Requests that ended with the last step, with their cached tokens: they hold their places in the running list and
    /// their blocks until the engine catches up.
    leaving: Vec<(u32, u32)>,
    /// Running list in order of admission.
    head: u32,
    tail: u32,
    running: u32,
    /// Blocks that the running sequences have when all of their output is generated, shared ones counted each time.
    committed_blocks: u64,
    /// The share of output that was expected `decode_iterations` after `expected_since`.
    expected_share: f64,
    expected_since: u64,
    /// Prompts that were begun and not finished, in order of admission.
    prompts: Vec<u32>,
    total_blocks: u64,
    free_blocks: u64,
    block_size: u32,
    /// What is findable of the blocks; those that are in use or idle there are part of the counts above, each once.
    cache: PrefixCache,
    /// One cohort per pipeline lane.
    pub(crate) cohorts: Vec<Cohort>,
    /// Chunks in flight, per lane.
    pub(crate) chunks: Vec<Vec<Chunk>>,
    /// When the decoding sequences had their last token, per lane.
    pub(crate) token_times: Vec<TokenTimes>,
    pub(crate) counters: EngineCounters,
}

/// What an engine counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineCounters {
    pub(crate) iterations: u64,
    pub(crate) decode_iterations: u64,
    pub(crate) decode_tokens: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) preemptions: u64,
    /// Prompt tokens that first admissions found in the prefix cache.
    pub(crate) prefix_hit_tokens: u64,
    pub(crate) peak_waiting: u64,
    pub(crate) peak_blocks: u64,
    /// Sum over the iterations of the blocks in use.
    pub(crate) block_iterations: u64,
}

impl EngineState {
    /// Empties the engine. With `prefix_caching` it will remember blocks of the stream's `requests`.
    pub(crate) fn reset(
        &mut self,
        lanes: usize,
        blocks: u64,
        limits: &EngineLimits,
        rules: &SchedulingRules,
        requests: usize,
    ) {
        let block_size = limits.block_size;
        self.waiting.clear();
        self.unseen.clear();
        self.leaving.clear();
        (self.head, self.tail, self.running) = (NONE, NONE, 0);
        (self.committed_blocks, self.expected_share, self.expected_since) = (0, rules.expected_output.initial_share, 0);
        self.prompts.clear();
        (self.total_blocks, self.free_blocks, self.block_size) = (blocks, blocks, block_size);
        self.cache.reset(limits.prefix_caching, block_size, requests);
        self.cohorts.resize_with(lanes, Cohort::default);
        self.cohorts.iter_mut().for_each(|cohort| cohort.reset(block_size));
        self.chunks.resize_with(lanes, Vec::new);
        self.chunks.iter_mut().for_each(Vec::clear);
        self.token_times.resize_with(lanes, TokenTimes::default);
        self.token_times.iter_mut().for_each(TokenTimes::reset);
        self.counters = EngineCounters::default();
    }

    /// Adds an arrival; with `next_step_is_decided`, the step after the one in flight does not see it. Returns whether the
    /// engine had nothing waiting, so that the arrival may change what comes after the step in flight.
    pub(crate) fn enqueue(&mut self, index: u32, rules: &SchedulingRules, next_step_is_decided: bool) -> bool {
        if self.running == 0 && self.waiting.is_empty() {
            self.expect(rules.expected_output.initial_share);
        }
        if next_step_is_decided {
            self.unseen.push_back(index);
        } else {
            self.waiting.push_back(index);
        }
        let waiting = self.waiting.len() + self.unseen.len();
        self.counters.peak_waiting = self.counters.peak_waiting.max(waiting as u64);
        waiting == 1
    }

    /// Lets the next scheduling call see what happened during the last step: arrivals, and the places and blocks of the
    /// requests that ended. Returns whether it may decide otherwise for it.
    pub(crate) fn catch_up(&mut self, requests: &mut [RequestState]) -> bool {
        let (idle_queue, freed) = (self.waiting.is_empty(), !self.leaving.is_empty());
        self.waiting.append(&mut self.unseen);
        for position in 0..self.leaving.len() {
            let (index, cached) = self.leaving[position];
            self.release(index, requests, cached);
        }
        self.leaving.clear();
        (idle_queue || freed) && !self.waiting.is_empty()
    }

    /// Takes note of a completed request with `cached` tokens; what it held is freed when the engine catches up.
    pub(crate) fn complete(&mut self, index: u32, cached: u32) {
        self.leaving.push((index, cached));
    }

    /// Nothing waits or runs, and every block is free.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unseen.is_empty() && self.running == 0 && self.used_blocks() == 0
    }

    pub(crate) fn used_blocks(&self) -> u64 {
        self.total_blocks - self.free_blocks
    }

    pub(crate) fn total_blocks(&self) -> u64 {
        self.total_blocks
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Sets the expected share of output from now on.
    fn expect(&mut self, share: f64) {
        (self.expected_share, self.expected_since) = (share, self.counters.decode_iterations);
    }

    /// Takes the blocks that `iterations` further decode iterations of a lane need, and moves the lane past them; or counts
    /// them only, where the lane's sequences have not `decoded` in them.
    pub(crate) fn advance_lane(&mut self, lane: usize, iterations: u64, decoded: bool) {
        if !decoded {
            self.counters.iterations += iterations;
            self.counters.block_iterations += iterations * self.used_blocks();
            return;
        }
        let cohort = &mut self.cohorts[lane];
        let growth = cohort.growth_after_next(iterations - 1);
        self.counters.iterations += iterations;
        self.counters.block_iterations += iterations * (self.total_blocks - self.free_blocks) + growth.cumulative;
        self.free_blocks -= growth.blocks;
        self.counters.peak_blocks = self.counters.peak_blocks.max(self.total_blocks - self.free_blocks);
        let sequences = u64::from(cohort.sequences());
        if sequences > 0 {
            self.counters.decode_iterations += iterations;
            self.counters.decode_tokens += iterations * sequences;
        }
        cohort.advance(iterations);
    }

    fn release(&mut self, index: u32, requests: &mut [RequestState], cached: u32) {
        self.unlink(index, requests);
        self.free_blocks_of(index, requests, cached);
    }

    /// Gives back the blocks of a request with `cached` tokens in the KV cache. The full ones stay findable.
    fn free_blocks_of(&mut self, index: u32, requests: &mut [RequestState], cached: u32) {
        let held = self.blocks_for(cached);
        if !self.cache.is_enabled() {
            self.free_blocks += held;
            return;
        }
        // Evictions that earlier steps owe come before the blocks that are freed now.
        self.cache.fit(self.free_blocks);
        let referenced = std::mem::take(&mut requests[index as usize].referenced);
        let unused = self.cache.release(requests, index, referenced, cached / self.block_size);
        self.free_blocks += held - u64::from(referenced) + u64::from(unused);
    }

    /// What it takes to extend what a request has computed to `end` tokens.
    fn extension(&self, requests: &[RequestState], index: u32, end: u32) -> Extension {
        let request = &requests[index as usize];
        let held = self.blocks_for(request.computed) as u32;
        let needed = self.blocks_for(end) as u32;
        if !self.cache.is_enabled() {
            return Extension { blocks: i64::from(needed) - i64::from(held), full: 0, cached: 0 };
        }
        let full = end / self.block_size;
        let cached = self.cache.cached(requests, index, full);
        let shared = self.cache.demand(requests, index, request.referenced..full, cached);
        let blocks = i64::from(shared + needed - full) - i64::from(held - request.referenced);
        Extension { blocks, full, cached }
    }

    /// Takes the blocks of an extension, which must be free.
    fn extend(&mut self, requests: &mut [RequestState], index: u32, extension: Extension) {
        self.free_blocks = self.free_blocks.saturating_add_signed(-extension.blocks);
        if self.cache.is_enabled() {
            let referenced = requests[index as usize].referenced;
            self.cache.acquire(requests, index, referenced..extension.full, extension.cached);
            requests[index as usize].referenced = extension.full;
        }
    }

    fn blocks_for(&self, tokens: u32) -> u64 {
        u64::from(tokens.div_ceil(self.block_size))
    }

    fn link(&mut self, index: u32, requests: &mut [RequestState]) {
        let request = &mut requests[index as usize];
        (request.previous, request.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = index,
            tail => requests[tail as usize].next = index,
        }
        self.tail = index;
        self.running += 1;
        self.committed_blocks += self.blocks_for(requests[index as usize].tokens());
    }

    fn unlink(&mut self, index: u32, requests: &mut [RequestState]) {
        let RequestState { previous, next, .. } = requests[index as usize];
        match previous {
            NONE => self.head = next,
            previous => requests[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => requests[next as usize].previous = previous,
        }
        self.running -= 1;
        self.committed_blocks -= self.blocks_for(requests[index as usize].tokens());
    }

    /// Output tokens that a running sequence has generated.
    fn generated(&self, request: &RequestState) -> u32 {
        let in_cohort = match request.phase {
            Phase::Decode => self.cohorts[request.lane as usize].produced(request),
            _ => 0,
        };
        request.generated + in_cohort
    }

    fn running<'a>(&self, requests: &'a [RequestState]) -> impl Iterator<Item = &'a RequestState> {
        let mut index = self.head;
        std::iter::from_fn(move || {
            let request = requests.get(index as usize)?;
            index = request.next;
            Some(request)
        })
    }

    /// Tokens that the running sequences are expected to generate before memory gets free.
    fn expected_tokens(&self, requests: &[RequestState], rules: &SchedulingRules) -> f64 {
        let expected = &rules.expected_output;
        let remaining = self
            .running(requests)
            .map(|request| u64::from((request.output_tokens - self.generated(request)).min(expected.longest_tokens)));
        let share = expected.share(self.expected_share, self.counters.decode_iterations - self.expected_since);
        share * remaining.sum::<u64>() as f64
    }

    /// After a preemption: the running sequences are expected to generate the share that they have by now, and a little
    /// more.
    fn expect_as_generated(&mut self, requests: &[RequestState], rules: &SchedulingRules) {
        let generated: u64 = self.running(requests).map(|request| u64::from(self.generated(request))).sum();
        let possible: u64 = self.running(requests).map(|request| u64::from(request.output_tokens)).sum();
        let ahead = u64::from(rules.expected_output.steps_after_preemption) * u64::from(self.running);
        self.expect(((generated + ahead) as f64 / (possible + 1) as f64).min(1.0));
    }
}

/// One scheduling call: an engine, one of its lanes, and the step being filled.
pub(crate) struct EngineStep<'a> {
    pub(crate) engine: &'a mut EngineState,
    pub(crate) requests: &'a mut [RequestState],
    pub(crate) limits: &'a EngineLimits,
    pub(crate) rules: &'a SchedulingRules,
    pub(crate) lane: usize,
    /// Lanes with a step in flight, or that decode in this step already: their members cannot be preempted.
    pub(crate) lanes_in_flight: u64,
    pub(crate) now: Ticks,
    pub(crate) budget: u32,
    pub(crate) batch: &'a mut BatchShape,
}

impl EngineStep<'_> {
    /// Preempts the last of the running list that is not in flight. Returns whether that was the requester.
    fn preempt_for(&mut self, requester: u32) -> bool {
        let victim = self.victim(requester);
        self.preempt(victim);
        victim == requester
    }

    /// The last admitted sequence that is neither in flight nor at its end; the requester itself is one.
    fn victim(&self, requester: u32) -> u32 {
        let mut candidate = self.engine.tail;
        while candidate != requester {
            let request = &self.requests[candidate as usize];
            let in_flight = match request.phase {
                Phase::Decode => self.lanes_in_flight & (1 << request.lane) != 0,
                Phase::Completed => true,
                _ => request.chunks_in_flight > 0,
            };
            if !in_flight {
                break;
            }
            candidate = request.previous;
        }
        candidate
    }

    /// Sends a running sequence back to the head of the waiting queue; its tokens will be recomputed.
    fn preempt(&mut self, victim: u32) {
        let request = &mut self.requests[victim as usize];
        let cached = match request.phase {
            Phase::Decode => {
                let cohort = &mut self.engine.cohorts[request.lane as usize];
                let cached = cohort.cached(request);
                request.generated += cohort.produced(request);
                let times = &mut self.engine.token_times[request.lane as usize];
                if cohort.produced(request) > 0 {
                    request.last_token = times.last_decode();
                }
                if request.measured {
                    times.leave(request.last_token);
                }
                cohort.leave(victim, request);
                cached
            }
            _ => {
                self.engine.prompts.retain(|index| *index != victim);
                request.computed
            }
        };
        request.phase = Phase::Waiting;
        request.preempted = true;
        request.computed = 0;
        request.target = request.prompt_tokens + request.generated;
        self.engine.free_blocks_of(victim, self.requests, cached);
        self.engine.unlink(victim, self.requests);
        self.engine.waiting.push_front(victim);
        self.engine.counters.preemptions += 1;
    }

    /// What it takes to extend a request to `end` computed tokens, after the evictions that are owed.
    fn extension(&mut self, index: u32, end: u32) -> Extension {
        self.engine.cache.fit(self.engine.free_blocks);
        self.engine.extension(self.requests, index, end)
    }

    /// Puts `tokens` more of a prompt into the step; their blocks are taken already.
    fn add_chunk(&mut self, index: u32, tokens: u32) {
        let request = &mut self.requests[index as usize];
        self.batch.chunks.push((tokens, request.computed));
        request.computed += tokens;
        request.chunks_in_flight += 1;
        let finishing = request.computed == request.target;
        self.batch.finishing_chunks += u32::from(finishing);
        if finishing {
            self.engine.prompts.retain(|prompt| *prompt != index);
        }
        self.engine.chunks[self.lane].push(Chunk { request: index, finishing });
        self.engine.counters.prompt_tokens += u64::from(tokens);
        self.budget -= tokens;
    }

    /// Tokens of the next chunk of a prompt that has `remaining` to compute.
    fn chunk(&self, remaining: u32) -> u32 {
        let threshold = self.rules.long_prefill_token_threshold;
        let longest = if threshold == 0 { remaining } else { remaining.min(threshold) };
        longest.min(self.budget)
    }

    /// What a request needs besides its first chunk is free. `hit` tokens of it are in the prefix cache.
    fn can_reserve(&mut self, index: u32, hit: u32, reservation: Reservation) -> bool {
        let RequestState { target, output_tokens, generated, .. } = self.requests[index as usize];
        let engine = &*self.engine;
        match reservation {
            Reservation::FirstChunk => true,
            Reservation::Prompt => engine.extension(self.requests, index, target).fits(engine.free_blocks),
            Reservation::WholeOutput => {
                let whole = engine.blocks_for(self.requests[index as usize].tokens());
                engine.committed_blocks + whole <= engine.total_blocks
            }
            // An empty engine admits whatever fits: nothing would ever change its mind.
            Reservation::ExpectedOutput if engine.running == 0 => true,
            Reservation::ExpectedOutput => {
                let output = (output_tokens - generated).min(self.rules.expected_output.longest_tokens);
                let own = f64::from(target - hit + output + engine.block_size);
                let free = engine.free_blocks as f64 * f64::from(engine.block_size);
                own < free - engine.expected_tokens(self.requests, self.rules)
            }
        }
    }

    /// Gives each member of the lane's cohort that needs one a block, in order of admission.
    fn grow_one_by_one(&mut self) -> u32 {
        let mut preempted = 0;
        let mut index = self.engine.head;
        while index != NONE {
            let request = &self.requests[index as usize];
            let cohort = &self.engine.cohorts[self.lane];
            let member = request.phase == Phase::Decode && request.lane as usize == self.lane;
            let mut next = request.next;
            if member && cohort.needs_block(request) {
                let mut itself = false;
                while self.engine.free_blocks == 0 && !itself {
                    itself = self.preempt_for(index);
                    preempted += 1;
                }
                if !itself {
                    self.engine.free_blocks -= 1;
                    // A victim may have been the neighbour.
                    next = self.requests[index as usize].next;
                }
            }
            index = next;
        }
        preempted
    }
}

impl scheduler::Engine for EngineStep<'_> {
    fn token_budget(&self) -> u32 {
        self.budget
    }

    fn rules(&self) -> &SchedulingRules {
        self.rules
    }

    fn is_full(&self) -> bool {
        self.engine.running == self.limits.max_num_seqs
    }

    fn running(&self) -> u32 {
        self.engine.running
    }

    fn waiting(&self) -> usize {
        self.engine.waiting.len()
    }

    fn decode(&mut self) -> u32 {
        let blocks = u64::from(self.engine.cohorts[self.lane].blocks_of_next_iteration());
        let preempted = if blocks <= self.engine.free_blocks {
            self.engine.free_blocks -= blocks;
            0
        } else {
            let preempted = self.grow_one_by_one();
            self.engine.expect_as_generated(self.requests, self.rules);
            preempted
        };
        self.lanes_in_flight |= 1 << self.lane;
        let cohort = &self.engine.cohorts[self.lane];
        self.batch.decode_sequences = cohort.sequences();
        self.batch.decode_context_tokens = cohort.attended_tokens();
        self.budget = self.budget.saturating_sub(cohort.sequences());
        preempted
    }

    fn continue_prompts(&mut self) -> u32 {
        let (mut preempted, mut position) = (0, 0);
        while let Some(&index) = self.engine.prompts.get(position) {
            let RequestState { target, computed, .. } = self.requests[index as usize];
            let tokens = self.chunk(target - computed);
            if tokens == 0 {
                break;
            }
            let mut extension = self.extension(index, computed + tokens);
            while !extension.fits(self.engine.free_blocks) {
                preempted += 1;
                if self.preempt_for(index) {
                    return preempted;
                }
                extension = self.extension(index, computed + tokens);
            }
            self.engine.extend(self.requests, index, extension);
            self.add_chunk(index, tokens);
            position += usize::from(computed + tokens < target);
        }
        preempted
    }

    fn admit(&mut self, reservation: Reservation) -> bool {
        let Some(&index) = self.engine.waiting.front() else { return false };
        if self.budget == 0 || scheduler::Engine::is_full(self) {
            return false;
        }
        self.engine.cache.fit(self.engine.free_blocks);
        let target = self.requests[index as usize].target;
        // The last token is computed in any case: the next one is sampled from it.
        let whole_blocks = (target - 1) / self.engine.block_size;
        let hit = self.engine.cache.cached(self.requests, index, whole_blocks) * self.engine.block_size;
        let tokens = if self.limits.chunked_prefill { self.chunk(target - hit) } else { target - hit };
        let extension = self.engine.extension(self.requests, index, hit + tokens);
        let fits = tokens <= self.budget && extension.fits(self.engine.free_blocks);
        if !fits || !self.can_reserve(index, hit, reservation) {
            return false;
        }
        self.engine.waiting.pop_front();
        self.engine.extend(self.requests, index, extension);
        self.engine.link(index, self.requests);
        self.engine.prompts.push(index);
        let request = &mut self.requests[index as usize];
        request.phase = Phase::Prompt;
        request.first_scheduled = request.first_scheduled.min(self.now);
        request.computed = hit;
        if !request.preempted {
            request.prefix_hit_tokens = hit;
            self.engine.counters.prefix_hit_tokens += u64::from(hit);
        }
        self.add_chunk(index, tokens);
        true
    }
}
