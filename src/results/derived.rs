//! Quantities that follow from a candidate and its outcome.

use crate::sim::Outcome;
use crate::space::Candidate;

/// Share of the board power limit that a GPU draws between iterations. An assumption, not a measurement: an engine
/// that waits for work keeps the clocks up and the memory refreshed, so it draws clearly more than the tenth of the
/// limit at which a GPU without a context rests, and far less than the limit.
pub const IDLE_POWER_SHARE: f64 = 0.3;

/// `amount` per second of makespan; `None` if nothing took any time.
fn per_second(amount: u64, outcome: &Outcome) -> Option<f64> {
    (outcome.makespan_s > 0.0).then(|| amount as f64 / outcome.makespan_s)
}

/// Requests that complete per second.
pub(super) fn request_throughput(_: &Candidate, outcome: &Outcome) -> Option<f64> {
    per_second(outcome.completed, outcome)
}

/// Output tokens of the requests that complete, per second.
pub(super) fn output_throughput(_: &Candidate, outcome: &Outcome) -> Option<f64> {
    per_second(outcome.output_tokens, outcome)
}

/// Prompt and output tokens of the requests that complete, per second.
pub(super) fn total_throughput(_: &Candidate, outcome: &Outcome) -> Option<f64> {
    per_second(outcome.prompt_tokens + outcome.output_tokens, outcome)
}

/// Output tokens per second and GPU.
pub(super) fn throughput_per_gpu(candidate: &Candidate, outcome: &Outcome) -> Option<f64> {
    output_throughput(candidate, outcome).map(|tokens| tokens / f64::from(candidate.gpus()))
}

/// Requests per second that complete and meet every per-request SLA bound.
pub(super) fn goodput(candidate: &Candidate, outcome: &Outcome) -> Option<f64> {
    Some(request_throughput(candidate, outcome)? * sla_attainment(candidate, outcome)?)
}

/// Share of the measured requests that met every per-request SLA bound.
pub(super) fn sla_attainment(_: &Candidate, outcome: &Outcome) -> Option<f64> {
    (outcome.measured > 0).then(|| outcome.met_sla as f64 / outcome.measured as f64)
}

/// Tokens bought by one dollar at a steady `tokens_per_second` for `usd_per_hour`.
#[must_use]
pub fn tokens_per_usd(tokens_per_second: f64, usd_per_hour: f64) -> f64 {
    tokens_per_second * 3600.0 / usd_per_hour
}

/// Output tokens per USD at list prices.
pub(super) fn output_tokens_per_usd(candidate: &Candidate, outcome: &Outcome) -> Option<f64> {
    output_throughput(candidate, outcome).map(|tokens| tokens_per_usd(tokens, candidate.usd_per_hour()))
}

/// Tokens per second that one user sees at this time per output token, in milliseconds.
pub(super) fn gen_speed(tpot_ms: f64) -> Option<f64> {
    (tpot_ms > 0.0).then(|| 1000.0 / tpot_ms)
}

/// Energy of all GPUs over the makespan, in joules: the power limit while busy, [`IDLE_POWER_SHARE`] of it otherwise.
/// An upper estimate, as busy GPUs rarely draw their limit in decode. `None` if a GPU has no power figure.
pub(super) fn energy_joules(candidate: &Candidate, outcome: &Outcome) -> Option<f64> {
    let load = outcome.busy_share + IDLE_POWER_SHARE * (1.0 - outcome.busy_share);
    let mut limit_watts = 0.0;
    for pool in &candidate.pools {
        limit_watts += f64::from(pool.gpus()) * pool.gpu.power_watts?;
    }
    Some(limit_watts * load * outcome.makespan_s)
}
