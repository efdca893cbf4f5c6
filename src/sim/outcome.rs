//! What one simulation measured.

use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::RequestStream;

use super::colocation::{Arena, Deployment};
use super::engine::EngineState;
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
    /// First arrival to last completion of the measured requests, in seconds.
    pub makespan_s: f64,
    /// Prompt tokens of the measured requests.
    pub prompt_tokens: u64,
    /// Output tokens of the measured requests.
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
    /// Share of the time from first arrival to last completion (warm-up included) in which a replica's first pipeline stage works, averaged over replicas.
    pub busy_share: f64,
    /// Most requests waiting at one moment in one engine.
    pub peak_waiting: u64,
}

impl Outcome {
    /// Collects the metrics of a finished simulation.
    pub(crate) fn collect(
        arena: &mut Arena,
        deployment: &Deployment<'_>,
        stream: &RequestStream,
        bounds: &RequestBounds,
        submitted: usize,
    ) -> Self {
        let completed = arena.requests.iter().filter(|request| request.phase == Phase::Completed).count();
        let warmup = stream.warmup.min(arena.requests.len());
        let (_, measured) = arena.requests.split_at(warmup);
        let measured = || measured.iter().filter(|request| request.phase == Phase::Completed);
        let response = deployment.response_latency;
        let timings = || measured().map(|request| Timing::of(request, response));
        let sample = &mut arena.sample;
        let mut summarise = |values: &mut dyn Iterator<Item = Ticks>| {
            sample.clear();
            sample.extend(values);
            Summary::of(sample)
        };
        let start = measured().map(|request| request.arrival).min().unwrap_or(Ticks::ZERO);
        let end = measured().map(|request| request.completed + response).max().unwrap_or(Ticks::ZERO);
        let replicas = &arena.replicas[..deployment.replicas as usize];
        let whole = whole_span(&arena.requests).as_seconds();
        let busy: Ticks = replicas.iter().map(|replica| replica.busy).sum();
        let outcome = Self {
            submitted: submitted as u64,
            completed: completed as u64,
            measured: measured().count() as u64,
            makespan_s: end.saturating_since(start).as_seconds(),
            prompt_tokens: measured().map(|request| u64::from(request.prompt_tokens)).sum(),
            output_tokens: measured().map(|request| u64::from(request.output_tokens)).sum(),
            met_sla: timings().filter(|timing| timing.meets(bounds)).count() as u64,
            ttft: summarise(&mut timings().map(|timing| timing.ttft)),
            tpot: summarise(&mut timings().filter_map(|timing| timing.tpot)),
            itl: arena.gaps.summary(),
            e2e: summarise(&mut timings().map(|timing| timing.e2e)),
            queueing: summarise(
                &mut measured().map(|request| request.first_scheduled.saturating_since(request.arrival)),
            ),
            busy_share: if whole > 0.0 { busy.as_seconds() / whole / replicas.len() as f64 } else { 0.0 },
            ..Self::default()
        };
        outcome.with_engines(replicas.iter().flat_map(|replica| &replica.engines))
    }

    fn with_engines<'a>(mut self, engines: impl Iterator<Item = &'a EngineState>) -> Self {
        let (mut decode_iterations, mut decode_tokens, mut kv_mean) = (0, 0, 0.0);
        for engine in engines {
            let counters = engine.counters;
            let blocks = engine.total_blocks().max(1) as f64;
            self.iterations += counters.iterations;
            self.processed_tokens += counters.prompt_tokens + counters.decode_tokens;
            self.preemptions += counters.preemptions;
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

/// First arrival to last completion, warm-up included.
fn whole_span(requests: &[RequestState]) -> Ticks {
    let completed = || requests.iter().filter(|request| request.phase == Phase::Completed);
    let start = completed().map(|request| request.arrival).min().unwrap_or(Ticks::ZERO);
    completed().map(|request| request.completed.saturating_since(start)).max().unwrap_or(Ticks::ZERO)
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
