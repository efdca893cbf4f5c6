//! The traffic of a sweep: laws of lengths and arrivals, or a trace. Parameters only; `workload` draws from them.

use std::sync::Arc;

use crate::units::Ticks;

/// The start of a prompt that it has in common with an earlier request: the first `tokens` tokens are those of the prompt
/// of `source` followed by its output; whatever comes after differs.
///
/// Sources form a tree, so two requests share what their paths to the root share. That identifies every token without
/// holding one, at any block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The earlier request.
    pub source: u32,
    /// Length of the common start.
    pub tokens: u32,
}

/// One row of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Time after the first row.
    pub arrival: Ticks,
    /// Prompt length, at least one token.
    pub prompt_tokens: u32,
    /// Output length, at least one token.
    pub output_tokens: u32,
    /// What the prompt has in common with an earlier row, where the trace says it.
    pub prefix: Option<Prefix>,
}

/// A recorded request stream: rows sorted by arrival, the first at time zero; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// File name without folders.
    pub name: String,
    /// The rows.
    pub rows: Vec<TraceRow>,
}

/// A law of lengths, in tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum LengthLaw {
    /// Always the same.
    Fixed(u32),
    /// Uniform over `min..=max`.
    Uniform {
        /// Shortest.
        min: u32,
        /// Longest.
        max: u32,
    },
    /// exp of a normal law, rounded to whole tokens and cut to `1..=max`.
    Lognormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longest.
        max: u32,
    },
    /// Drawn from a list.
    Empirical {
        /// The lengths.
        values: Vec<u32>,
        /// Share of lengths at or before each position; ends at 1.
        cumulative: Vec<f64>,
    },
}

/// 95 % quantile of the standard normal law.
const Z_95: f64 = 1.644_853_626_951_472_2;

impl LengthLaw {
    /// The lognormal law with this mean and 95th percentile.
    ///
    /// With `z` the 95 % quantile of the standard normal law, `mean = exp(mu + sigma^2 / 2)` and
    /// `p95 = exp(mu + z sigma)`, so `sigma^2 / 2 - z sigma + ln(p95 / mean) = 0`. Its smaller root is taken; the
    /// larger one has most of its mass near zero.
    ///
    /// # Errors
    /// A message if no law has these two numbers: `p95` must be above `mean` and at most `exp(z^2 / 2)` = 3.868 times
    /// it.
    pub fn lognormal(mean: f64, p95: f64, max: u32) -> Result<Self, String> {
        if !(mean > 0.0 && mean.is_finite()) {
            return Err(format!("the mean of a length must be positive, not {mean}"));
        }
        let log_ratio = libm::log(p95 / mean);
        let solvable = log_ratio > 0.0 && log_ratio <= Z_95 * Z_95 / 2.0;
        if !solvable {
            let highest = libm::floor(mean * libm::exp(Z_95 * Z_95 / 2.0));
            return Err(format!(
                "no lognormal law has mean {mean} and p95 {p95}: p95 must lie above the mean and not above {highest}"
            ));
        }
        let sigma = Z_95 - libm::sqrt((Z_95 * Z_95 - 2.0 * log_ratio).max(0.0));
        Ok(Self::Lognormal { mu: libm::log(mean) - sigma * sigma / 2.0, sigma, max })
    }

    /// The law that draws from `values` with relative frequencies `weights`; all equal if there are none.
    ///
    /// # Errors
    /// A message if the lists are empty, differ in length, or hold a zero length or an invalid weight.
    pub fn empirical(values: Vec<u32>, weights: Option<&[f64]>) -> Result<Self, String> {
        if values.is_empty() || values.contains(&0) {
            return Err("`values` must hold at least one length, all at least one token".into());
        }
        let equal = vec![1.0; values.len()];
        let weights = weights.unwrap_or(&equal);
        if weights.len() != values.len() {
            return Err(format!("{} values have {} weights", values.len(), weights.len()));
        }
        let total: f64 = weights.iter().sum();
        if weights.iter().any(|weight| *weight < 0.0) || !(total > 0.0 && total.is_finite()) {
            return Err("weights must not be negative and their sum must be positive".into());
        }
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = weights
            .iter()
            .map(|weight| {
                sum += weight;
                sum / total
            })
            .collect();
        // Rounding must not leave a sliver above the last positive weight.
        let last = weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        cumulative[last..].fill(1.0);
        Ok(Self::Empirical { values, cumulative })
    }

    /// The longest length that the law can give.
    #[must_use]
    pub fn longest(&self) -> u32 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform { max, .. } | Self::Lognormal { max, .. } => *max,
            Self::Empirical { values, .. } => values.iter().copied().max().unwrap_or(1),
        }
    }
}

/// An arrival law; the list is the load axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrival {
    /// Exponential gaps.
    Poisson {
        /// Requests per second.
        rates: Vec<f64>,
    },
    /// Gamma gaps of the given shape.
    Gamma {
        /// Requests per second.
        rates: Vec<f64>,
        /// Shape; the coefficient of variation of the gaps is 1 / sqrt(shape).
        burstiness: f64,
    },
    /// Equal gaps.
    Constant {
        /// Requests per second.
        rates: Vec<f64>,
    },
    /// Concurrent clients, each with one request in the system.
    Closed {
        /// Clients.
        clients: Vec<u32>,
    },
    /// Everything at time zero.
    Batch,
}

/// How the requests of synthetic traffic hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialogue {
    /// Number of system prompts; each session begins with one of them, all equally likely. Zero: none.
    pub system_prompts: u32,
    /// Length of a system prompt, in tokens; it comes before the input of the first turn.
    pub system_tokens: u32,
    /// Turns of a session, at least one. The prompt of a later turn is the prompt and the output of the turn before,
    /// followed by its own input.
    pub turns: u32,
    /// From the end of a turn to the next.
    pub think: Ticks,
}

impl Dialogue {
    /// Requests that have nothing in common.
    pub const NONE: Self = Self { system_prompts: 0, system_tokens: 0, turns: 1, think: Ticks::ZERO };
}

/// Where requests come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Traffic {
    /// Drawn from laws.
    Synthetic {
        /// When.
        arrival: Arrival,
        /// Prompt lengths.
        input: LengthLaw,
        /// Output lengths.
        output: LengthLaw,
        /// What they have in common.
        dialogue: Dialogue,
    },
    /// Replayed.
    Replay {
        /// The trace, cut to the requests of the workload.
        trace: Arc<Trace>,
        /// Speed-ups of the clock: the load axis.
        scales: Vec<f64>,
    },
}

/// The traffic that every candidate faces.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Requests of one simulation.
    pub requests: usize,
    /// The first so many are not measured; fewer than `requests`.
    pub warmup: usize,
    /// Where they come from.
    pub traffic: Traffic,
}

impl Workload {
    /// Number of points on the load axis.
    #[must_use]
    pub fn loads(&self) -> usize {
        match &self.traffic {
            Traffic::Synthetic { arrival, .. } => match arrival {
                Arrival::Poisson { rates } | Arrival::Gamma { rates, .. } | Arrival::Constant { rates } => rates.len(),
                Arrival::Closed { clients } => clients.len(),
                Arrival::Batch => 1,
            },
            Traffic::Replay { scales, .. } => scales.len(),
        }
    }

    /// One point of the load axis as a number: requests per second; clients of a closed loop; the number of requests
    /// of a batch; the mean rate of a trace times its speed-up (zero if all its rows arrive at once).
    ///
    /// # Panics
    /// If `load_index` is not below [`Workload::loads`].
    #[must_use]
    pub fn load(&self, load_index: usize) -> f64 {
        match &self.traffic {
            Traffic::Synthetic { arrival, .. } => match arrival {
                Arrival::Poisson { rates } | Arrival::Gamma { rates, .. } | Arrival::Constant { rates } => {
                    rates[load_index]
                }
                Arrival::Closed { clients } => f64::from(clients[load_index]),
                Arrival::Batch => self.requests as f64,
            },
            Traffic::Replay { trace, scales } => mean_rate(trace) * scales[load_index],
        }
    }

    /// The same traffic with an empty load axis.
    #[must_use]
    pub fn without_loads(&self) -> Self {
        let mut base = self.clone();
        match &mut base.traffic {
            Traffic::Synthetic { arrival, .. } => match arrival {
                Arrival::Poisson { rates } | Arrival::Gamma { rates, .. } | Arrival::Constant { rates } => {
                    rates.clear()
                }
                Arrival::Closed { clients } => clients.clear(),
                Arrival::Batch => {}
            },
            Traffic::Replay { scales, .. } => scales.clear(),
        }
        base
    }

    /// The longest prompt and output together that a request can have, in tokens.
    #[must_use]
    pub fn longest_request(&self) -> u32 {
        match &self.traffic {
            Traffic::Synthetic { input, output, dialogue, .. } => {
                let turn = input.longest().saturating_add(output.longest());
                turn.saturating_mul(dialogue.turns).saturating_add(dialogue.system_tokens)
            }
            Traffic::Replay { trace, .. } => {
                let lengths = trace.rows.iter().map(|row| row.prompt_tokens.saturating_add(row.output_tokens));
                lengths.max().unwrap_or(0)
            }
        }
    }
}

/// Requests per second between the first and the last arrival.
fn mean_rate(trace: &Trace) -> f64 {
    let span = trace.rows.last().map_or(0.0, |row| row.arrival.as_seconds());
    if span > 0.0 { (trace.rows.len() - 1) as f64 / span } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lognormal_parameters_reproduce_mean_and_p95() {
        let Ok(LengthLaw::Lognormal { mu, sigma, .. }) = LengthLaw::lognormal(2048.0, 6000.0, 16384) else {
            panic!("this law exists");
        };
        assert!((libm::exp(mu + sigma * sigma / 2.0) - 2048.0).abs() < 1e-6);
        assert!((libm::exp(mu + Z_95 * sigma) - 6000.0).abs() < 1e-6);
        assert!(sigma < Z_95);
    }

    #[test]
    fn lognormal_without_solution_says_what_would_be_possible() {
        let message = LengthLaw::lognormal(100.0, 400.0, 1000).expect_err("p95 is too far");
        assert!(message.contains("not above 386"), "{message}");
        assert!(LengthLaw::lognormal(100.0, 90.0, 1000).is_err());
        assert!(LengthLaw::lognormal(-1.0, 90.0, 1000).is_err());
        assert!(LengthLaw::lognormal(100.0, f64::NAN, 1000).is_err());
    }

    #[test]
    fn empirical_laws_check_their_lists() {
        assert!(LengthLaw::empirical(vec![], None).is_err());
        assert!(LengthLaw::empirical(vec![4, 0], None).is_err());
        assert!(LengthLaw::empirical(vec![4, 5], Some(&[1.0])).is_err());
        assert!(LengthLaw::empirical(vec![4, 5], Some(&[0.0, 0.0])).is_err());
        let law = LengthLaw::empirical(vec![4, 9, 5], Some(&[1.0, 3.0, 0.0])).expect("a valid law");
        assert_eq!(law, LengthLaw::Empirical { values: vec![4, 9, 5], cumulative: vec![0.25, 1.0, 1.0] });
        assert_eq!(law.longest(), 9);
    }

    #[test]
    fn a_trace_is_as_loaded_as_its_mean_rate_times_the_scale() {
        let row = |seconds| TraceRow {
            arrival: Ticks::from_seconds(seconds),
            prompt_tokens: 3,
            output_tokens: 4,
            prefix: None,
        };
        let trace = Arc::new(Trace { name: "t.csv".into(), rows: vec![row(0.0), row(1.0), row(4.0)] });
        let workload = Workload { requests: 3, warmup: 0, traffic: Traffic::Replay { trace, scales: vec![1.0, 2.0] } };
        assert!((workload.load(0) - 0.5).abs() < 1e-12 && (workload.load(1) - 1.0).abs() < 1e-12);
        assert_eq!((workload.loads(), workload.longest_request()), (2, 7));
    }
}
