//! What one simulation measured.

use crate::stats::Summary;

/// Metrics of one simulation over the measured requests (all but the warm-up). Raw quantities only: anything that
/// depends on prices or on the SLA's weighting is computed from these at query time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that entered the system, warm-up included.
    pub submitted: u64,
    /// Requests that completed, warm-up included.
    pub completed: u64,
    /// Requests rejected because they can never fit (longer than the KV cache or `max_model_len`).
    pub rejected: u64,
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
    /// Gap between consecutive tokens of one request; percentiles from a histogram with 1/64-octave bins.
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
    /// Time-weighted mean share of KV blocks in use.
    pub kv_mean_share: f64,
    /// Preemptions by recompute.
    pub preemptions: u64,
    /// Share of the makespan in which a replica's first pipeline stage works, averaged over replicas.
    pub busy_share: f64,
    /// Most requests waiting at one moment in one engine.
    pub peak_waiting: u64,
}
