//! Arrivals, lengths and traces: everything that makes a request stream.

mod arrivals;
mod dialogue;
mod lengths;
mod prefix;
pub mod stream;
pub mod trace;

pub use crate::spec::Prefix;
pub use prefix::PrefixIndex;
pub use stream::{Request, RequestStream, Turn};

use crate::rng::Stream;
use crate::spec::{Arrival, LengthLaw, Trace, Traffic, Workload};
use crate::units::Ticks;

/// The request stream of a workload at one point of its load axis.
///
/// Lengths do not depend on the load, and arrivals at different loads are the same gaps at another scale: the same
/// requests come in the same pattern, only faster.
///
/// # Panics
/// If `load_index` is not below [`Workload::loads`].
#[must_use]
pub fn generate(workload: &Workload, seed: u64, load_index: usize) -> RequestStream {
    let load = workload.load(load_index);
    match &workload.traffic {
        Traffic::Synthetic { arrival, input, output, dialogue } => {
            let sessions = workload.requests.div_ceil(dialogue.turns as usize);
            // A rate counts requests, and each session brings one for each of its turns.
            let session_load = load / f64::from(dialogue.turns);
            let starts = arrivals::times(arrival, session_load, sessions, seed);
            let clients = matches!(arrival, Arrival::Closed { .. }).then_some(load as u32);
            let lengths = synthetic_lengths(input, output, seed).take(workload.requests);
            RequestStream { clients, ..dialogue::stream(dialogue, &starts, lengths, seed) }.with_warmup(workload.warmup)
        }
        Traffic::Replay { trace, scales } => replay(trace, scales[load_index]).with_warmup(workload.warmup),
    }
}

/// An endless sequence of prompt and output lengths, each law with its own stream.
fn synthetic_lengths(input: &LengthLaw, output: &LengthLaw, seed: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut input_stream = Stream::new(seed, "workload.input", 0);
    let mut output_stream = Stream::new(seed, "workload.output", 0);
    std::iter::repeat_with(move || (lengths::draw(input, &mut input_stream), lengths::draw(output, &mut output_stream)))
}

fn replay(trace: &Trace, scale: f64) -> RequestStream {
    let at = |arrival: Ticks| if scale == 1.0 { arrival } else { Ticks::from_ns(arrival.as_ns() / scale) };
    let request = |row: &crate::spec::TraceRow| Request {
        arrival: at(row.arrival),
        prompt_tokens: row.prompt_tokens,
        output_tokens: row.output_tokens,
    };
    let stream = RequestStream::open(trace.rows.iter().map(request).collect());
    let prefixes = trace.rows.iter().map(|row| row.prefix).collect();
    stream.with_prefixes(prefixes).expect("a trace is checked when it is read")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spec::{Dialogue, TraceRow};

    fn workload(arrival: Arrival) -> Workload {
        let input = LengthLaw::Uniform { min: 10, max: 20 };
        let output = LengthLaw::lognormal(100.0, 250.0, 10_000).expect("a valid law");
        Workload {
            requests: 500,
            warmup: 5,
            traffic: Traffic::Synthetic { arrival, input, output, dialogue: Dialogue::NONE },
        }
    }

    #[test]
    fn the_same_requests_come_faster_at_a_higher_load() {
        let workload = workload(Arrival::Poisson { rates: vec![2.0, 8.0] });
        let (slow, fast) = (generate(&workload, 3, 0), generate(&workload, 3, 1));
        for (a, b) in slow.requests.iter().zip(&fast.requests) {
            assert_eq!((a.prompt_tokens, a.output_tokens), (b.prompt_tokens, b.output_tokens));
            assert!((a.arrival.as_ns() - 4.0 * b.arrival.as_ns()).abs() < 4.0);
        }
        assert_eq!((slow.warmup, slow.clients), (5, None));
    }

    #[test]
    fn the_stream_is_a_function_of_the_seed() {
        let workload = workload(Arrival::Gamma { rates: vec![2.0], burstiness: 0.5 });
        assert_eq!(generate(&workload, 3, 0), generate(&workload, 3, 0));
        assert_ne!(generate(&workload, 3, 0), generate(&workload, 4, 0));
    }

    #[test]
    fn more_requests_extend_the_stream() {
        let short = workload(Arrival::Poisson { rates: vec![2.0] });
        let long = Workload { requests: 700, ..short.clone() };
        assert_eq!(generate(&long, 3, 0).requests[..500], generate(&short, 3, 0).requests);
    }

    #[test]
    fn closed_loops_and_batches_start_at_zero() {
        let closed = generate(&workload(Arrival::Closed { clients: vec![4, 16] }), 3, 1);
        assert_eq!(closed.clients, Some(16));
        let batch = generate(&workload(Arrival::Batch), 3, 0);
        assert_eq!(batch.clients, None);
        assert!(closed.requests.iter().chain(&batch.requests).all(|request| request.arrival == Ticks::ZERO));
        assert_eq!(batch.requests.len(), 500);
    }

    #[test]
    fn a_trace_is_replayed_at_its_own_or_another_speed() {
        let row = |seconds| TraceRow {
            arrival: Ticks::from_seconds(seconds),
            prompt_tokens: 7,
            output_tokens: 3,
            prefix: None,
        };
        let trace = Arc::new(Trace { name: "t".into(), rows: vec![row(0.0), row(1.5)] });
        let workload = Workload { requests: 2, warmup: 0, traffic: Traffic::Replay { trace, scales: vec![1.0, 3.0] } };
        assert_eq!(generate(&workload, 0, 0).requests[1].arrival, Ticks::from_seconds(1.5));
        assert_eq!(generate(&workload, 0, 1).requests[1].arrival, Ticks::from_seconds(0.5));
    }
}
