//! The arena of requests: everything the simulator knows of each, addressed by index.

use crate::units::Ticks;
use crate::workload::{Prefix, Request};

/// Marks the end of a linked list.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not arrived, or in a waiting queue.
    Waiting,
    /// Admitted; prompt (or recomputed) tokens remain, or their last chunk is in flight.
    Prompt,
    /// Member of a decode cohort.
    Decode,
    /// All tokens produced.
    Completed,
}

/// State of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestState {
    /// Counts in the metrics; false for warm-up.
    pub(crate) measured: bool,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    /// Output tokens produced before the current stay in a cohort.
    pub(crate) generated: u32,
    /// Tokens to compute before the next output token: the prompt, and after a preemption also what was generated.
    pub(crate) target: u32,
    /// Tokens of `target` that are computed or in flight.
    pub(crate) computed: u32,
    /// The request that this one shares the blocks before `own_from` with.
    pub(crate) source: u32,
    /// First full block of the request's tokens that is its own.
    pub(crate) own_from: u32,
    /// Blocks, from the first, that the request uses of the prefix cache.
    pub(crate) referenced: u32,
    /// Prompt tokens that its first admission found in the prefix cache.
    pub(crate) prefix_hit_tokens: u32,
    /// Was admitted before: what it finds in the prefix cache now may be its own.
    pub(crate) preempted: bool,
    pub(crate) phase: Phase,
    /// Pipeline lane of the cohort.
    pub(crate) lane: u32,
    /// Chunks in flight.
    pub(crate) chunks_in_flight: u32,
    /// Cached tokens when the request joined its cohort.
    pub(crate) cached_at_join: u32,
    /// Iteration number of the cohort at that moment.
    pub(crate) joined: u64,
    /// Engine, and neighbours in its running list (admission order).
    pub(crate) engine: u32,
    pub(crate) previous: u32,
    pub(crate) next: u32,
    pub(crate) arrival: Ticks,
    /// Start of the first step that worked on the request.
    pub(crate) first_scheduled: Ticks,
    pub(crate) first_token: Ticks,
    /// Last token before a preemption.
    pub(crate) last_token: Ticks,
    pub(crate) completed: Ticks,
}

impl RequestState {
    pub(crate) fn new(request: &Request, prefix: Option<Prefix>, block_size: u32, measured: bool) -> Self {
        Self {
            measured,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            generated: 0,
            target: request.prompt_tokens,
            computed: 0,
            source: prefix.map_or(NONE, |prefix| prefix.source),
            own_from: prefix.map_or(0, |prefix| prefix.tokens / block_size),
            referenced: 0,
            prefix_hit_tokens: 0,
            preempted: false,
            phase: Phase::Waiting,
            lane: 0,
            chunks_in_flight: 0,
            cached_at_join: 0,
            joined: 0,
            engine: NONE,
            previous: NONE,
            next: NONE,
            arrival: request.arrival,
            first_scheduled: Ticks::NEVER,
            first_token: Ticks::NEVER,
            last_token: Ticks::NEVER,
            completed: Ticks::NEVER,
        }
    }

    /// Prompt and output together.
    pub(crate) fn tokens(&self) -> u32 {
        self.prompt_tokens + self.output_tokens
    }
}
