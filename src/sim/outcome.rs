//! What one simulation measured.

use crate::stats::Summary;
use crate::units::Ticks;

use super::engine::EngineState;
use super::gaps::GapHistogram;
use super::replica::Replica;
use super::request::{Phase, RequestState};

/// Bounds that each request must meet to count as good; [`Ticks::NEVER`] where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// Time to first token.
    pub ttft: Ticks,
    /// Time per output token.
    pub tpot: Ticks,
    /// Arrival to last token.
    pub e2e: Ticks,
}

impl RequestBounds {
    /// No bound: every completed request is good.
    pub const NONE: Self = Self { ttft: Ticks::NEVER, tpot: Ticks::NEVER, e2e: Ticks::NEVER };
}

/// Metrics of one simulation over the measured requests (all but the warm-up). Raw quantities only: anything that
/// depends on prices or on the SLA's weighting is computed from these at query time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that entered the system, warm-up included.
    pub submitted: u64,
    /// Requests that completed, warm-up included.
    pub completed: u64,
    /// Measured requests.
    pub measured: u64,
    /// First arrival to last completion, warm-up included, in seconds.
    pub makespan_s: f64,
    /// Prompt tokens of the completed requests, warm-up included: throughput is that of the whole run, because a warm-up
    /// that is left out of the tokens but not of the time would bias it.
    pub prompt_tokens: u64,
    /// Output tokens of the completed requests, warm-up included.
    pub output_tokens: u64,
    /// Measured requests that met every per-request SLA bound.
    pub met_sla: u64,
    /// Arrival to first output token.
    pub ttft: Summary,
    /// (E2E - TTFT) / (output tokens - 1), over requests with at least two output tokens.
    pub tpot: Summary,
    /// Gap between consecutive tokens of one request; the mean is exact, percentiles come from a histogram and are
    /// within 0.8 %.
    pub itl: Summary,
    /// Arrival to last output token.
    pub e2e: Summary,
    /// Arrival to the start of the first iteration that works on the request.
    pub queueing: Summary,
    /// Engine iterations over all engines.
    pub iterations: u64,
    /// Tokens processed over all iterations (prompt, recomputed and decode tokens, no graph padding).
    pub processed_tokens: u64,
    /// Mean number of decoding sequences per engine iteration that has any.
    pub mean_decode_batch: f64,
    /// Highest share of KV blocks in use in any engine.
    pub kv_peak_share: f64,
    /// Mean share of KV blocks in use over the iterations of all engines.
    pub kv_mean_share: f64,
    /// Preemptions by recompute.
    pub preemptions: u64,
    /// Prompt tokens that were found in a prefix cache when their request was first admitted.
    pub prefix_hit_tokens: u64,
    /// Share of the time from first arrival to last completion (warm-up included) in which a replica's first pipeline stage works, averaged over replicas.
    pub busy_share: f64,
    /// Most requests waiting at one moment in one engine.
    pub peak_waiting: u64,
}

/// What became of one request, in the engine's clock: without the latencies between client and engine, except that
/// `arrival` is the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTiming {
    /// When the client sent it.
    pub arrival: Ticks,
    /// Start of the first step that worked on it; [`Ticks::NEVER`] if none did.
    pub first_scheduled: Ticks,
    /// End of the step that gave its first token; [`Ticks::NEVER`] if none did.
    pub first_token: Ticks,
    /// End of the step that gave its last token; [`Ticks::NEVER`] if it did not complete.
    pub completed: Ticks,
    /// Prompt tokens that were found in the prefix cache.
    pub prefix_hit_tokens: u32,
}

/// A simulation that has run to its end.
pub(crate) struct Finished<'a> {
    pub(crate) requests: &'a [RequestState],
    pub(crate) replicas: &'a [Replica],
    pub(crate) gaps: &'a GapHistogram,
    /// From the end of a step to the token at the client.
    pub(crate) response_latency: Ticks,
    /// Requests that reached an engine.
    pub(crate) submitted: usize,
}

impl Finished<'_> {
    fn completed(&self) -> impl Iterator<Item = &RequestState> {
        self.requests.iter().filter(|request| request.phase == Phase::Completed)
    }

    fn measured(&self) -> impl Iterator<Item = &RequestState> {
        self.completed().filter(|request| request.measured)
    }

    fn timings(&self) -> impl Iterator<Item = Timing> {
        self.measured().map(|request| Timing::of(request, self.response_latency))
    }

    /// First arrival and last completion.
    fn span(&self) -> (Ticks, Ticks) {
        let start = self.completed().map(|request| request.arrival).min().unwrap_or(Ticks::ZERO);
        let end = self.completed().map(|request| request.completed + self.response_latency).max().unwrap_or(start);
        (start, end)
    }
}

impl Outcome {
    /// The metrics of a finished simulation. `scratch` is overwritten.
    pub(crate) fn collect(finished: &Finished<'_>, bounds: &RequestBounds, scratch: &mut Vec<Ticks>) -> Self {
        let (start, end) = finished.span();
        let makespan_s = end.saturating_since(start).as_seconds();
        let busy: Ticks = finished.replicas.iter().map(|replica| replica.busy).sum();
        let capacity_s = makespan_s * finished.replicas.len() as f64;
        let mut summarise = |values: &mut dyn Iterator<Item = Ticks>| {
            scratch.clear();
            scratch.extend(values);
            Summary::of(scratch)
        };
        let outcome = Self {
            submitted: finished.submitted as u64,
            completed: finished.completed().count() as u64,
            measured: finished.measured().count() as u64,
            makespan_s,
            prompt_tokens: finished.completed().map(|request| u64::from(request.prompt_tokens)).sum(),
            output_tokens: finished.completed().map(|request| u64::from(request.output_tokens)).sum(),
            met_sla: finished.timings().filter(|timing| timing.meets(bounds)).count() as u64,
            ttft: summarise(&mut finished.timings().map(|timing| timing.ttft)),
            tpot: summarise(&mut finished.timings().filter_map(|timing| timing.tpot)),
            itl: finished.gaps.summary(),
            e2e: summarise(&mut finished.timings().map(|timing| timing.e2e)),
            queueing: summarise(
                &mut finished.measured().map(|request| request.first_scheduled.saturating_since(request.arrival)),
            ),
            busy_share: if capacity_s > 0.0 { busy.as_seconds() / capacity_s } else { 0.0 },
            ..Self::default()
        };
        outcome.with_engines(finished.replicas.iter().flat_map(|replica| &replica.engines))
    }

    fn with_engines<'a>(mut self, engines: impl Iterator<Item = &'a EngineState>) -> Self {
        let (mut decode_iterations, mut decode_tokens, mut kv_mean) = (0, 0, 0.0);
        for engine in engines {
            let counters = engine.counters;
            let blocks = engine.total_blocks().max(1) as f64;
            self.iterations += counters.iterations;
            self.processed_tokens += counters.prompt_tokens + counters.decode_tokens;
            self.preemptions += counters.preemptions;
            self.prefix_hit_tokens += counters.prefix_hit_tokens;
            self.peak_waiting = self.peak_waiting.max(counters.peak_waiting);
            self.kv_peak_share = self.kv_peak_share.max(counters.peak_blocks as f64 / blocks);
            kv_mean += counters.block_iterations as f64 / blocks;
            decode_iterations += counters.decode_iterations;
            decode_tokens += counters.decode_tokens;
        }
        self.kv_mean_share = kv_mean / self.iterations.max(1) as f64;
        self.mean_decode_batch = decode_tokens as f64 / decode_iterations.max(1) as f64;
        self
    }
}

/// Latencies of one completed request as its client sees them.
struct Timing {
    ttft: Ticks,
    tpot: Option<Ticks>,
    e2e: Ticks,
}

impl Timing {
    fn of(request: &RequestState, response: Ticks) -> Self {
        let ttft = request.first_token.saturating_since(request.arrival) + response;
        let e2e = request.completed.saturating_since(request.arrival) + response;
        let gaps = u64::from(request.output_tokens) - 1;
        let tpot = (gaps > 0).then(|| Ticks((e2e - ttft).0 / gaps));
        Self { ttft, tpot, e2e }
    }

    fn meets(&self, bounds: &RequestBounds) -> bool {
        self.ttft <= bounds.ttft && self.tpot.is_none_or(|tpot| tpot <= bounds.tpot) && self.e2e <= bounds.e2e
    }
}
