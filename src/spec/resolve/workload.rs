//! `[workload]`: how many requests, how long and when.

use std::ops::Range;
use std::sync::Arc;

use super::{Context, required};
use crate::spec::axis::Axis;
use crate::spec::located::Located;
use crate::spec::problems::Problems;
use crate::spec::raw::{RawArrival, RawLengths, RawWorkload};
use crate::spec::traffic::{Arrival, Dialogue, LengthLaw, Trace, Traffic, Workload};
use crate::units::Ticks;

pub(super) fn resolve(
    raw: Option<&Located<RawWorkload>>,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<Workload> {
    let Some(Located { value: raw, span }) = raw else {
        problems.missing(None, "the section `[workload]` is missing", "add `[workload]` with `requests` and `arrival`");
        return None;
    };
    let warmup = raw.warmup.as_ref().map_or(0, |warmup| warmup.value as usize);
    let arrival =
        required(raw.arrival.as_ref(), "arrival", "e.g. `arrival = { poisson = { rate = 8 } }`", span, problems);
    if let Some(Located { value: RawArrival::Trace { file, scale }, .. }) = arrival {
        return resolve_trace(raw, file, scale.as_ref(), warmup, context, problems);
    }
    let requests = required(raw.requests.as_ref(), "requests", "e.g. `requests = 512`", span, problems);
    if let Some(requests) = requests {
        check_requests(requests, raw.warmup.as_ref(), problems);
    }
    let input = resolve_lengths("input", raw.input.as_ref(), span, context, problems);
    let output = resolve_lengths("output", raw.output.as_ref(), span, context, problems);
    let dialogue = resolve_dialogue(raw, problems);
    let arrival = arrival.and_then(|written| {
        let resolved = resolve_arrival(written, problems)?;
        if let Some(requests) = requests {
            check_duration(&resolved, requests.value, &written.span, problems);
        }
        Some(resolved)
    });
    Some(Workload {
        requests: requests?.value as usize,
        warmup,
        traffic: Traffic::Synthetic { arrival: arrival?, input: input?, output: output?, dialogue },
    })
}

/// Longest pause between two turns, in seconds (a day).
const LONGEST_THINK_S: f64 = 86_400.0;

fn resolve_dialogue(raw: &RawWorkload, problems: &mut Problems) -> Dialogue {
    let mut dialogue = Dialogue::NONE;
    if let Some(Located { value, span }) = &raw.system_prompt {
        if value.count == 0 || value.tokens == 0 {
            problems.add(span, "`count` and `tokens` must be at least 1");
        }
        (dialogue.system_prompts, dialogue.system_tokens) = (value.count, value.tokens);
    }
    if let Some(Located { value, span }) = &raw.sessions {
        if value.turns == 0 {
            problems.add(span, "`turns` must be at least 1");
        }
        let think_s = value.think_s.unwrap_or(0.0);
        if !(0.0..=LONGEST_THINK_S).contains(&think_s) {
            problems.add(span, format!("`think_s` must be between 0 and {LONGEST_THINK_S}"));
        }
        (dialogue.turns, dialogue.think) =
            (value.turns.max(1), Ticks::from_seconds(think_s.clamp(0.0, LONGEST_THINK_S)));
    }
    dialogue
}

/// Most requests of one simulation, and most clients of a closed loop.
const MOST_REQUESTS: u32 = 1 << 22;
/// Longest time over which requests may arrive, in seconds (a hundred days): simulated time is a 64-bit count.
const LONGEST_STREAM_S: f64 = 8.64e6;

fn check_requests(requests: &Located<u32>, warmup: Option<&Located<u32>>, problems: &mut Problems) {
    if requests.value == 0 || requests.value > MOST_REQUESTS {
        problems.add(&requests.span, format!("`requests` must be between 1 and {MOST_REQUESTS}"));
    } else if let Some(warmup) = warmup.filter(|warmup| warmup.value >= requests.value) {
        problems.add_with_help(
            &warmup.span,
            format!("all {} requests are warm-up, none is measured", requests.value),
            "`warmup` must be smaller than `requests`",
        );
    }
}

fn check_duration(arrival: &Arrival, requests: u32, place: &Range<usize>, problems: &mut Problems) {
    let (Arrival::Poisson { rates } | Arrival::Gamma { rates, .. } | Arrival::Constant { rates }) = arrival else {
        return;
    };
    if rates.iter().any(|rate| f64::from(requests) / rate > LONGEST_STREAM_S) {
        problems.add_with_help(
            place,
            format!("at the lowest rate, {requests} requests arrive over more than a hundred days"),
            "raise the rate or lower `requests`",
        );
    }
}

fn resolve_trace(
    raw: &RawWorkload,
    file: &Located<String>,
    scale: Option<&Axis<f64>>,
    warmup: usize,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<Workload> {
    if let Some(requests) = &raw.requests {
        check_requests(requests, raw.warmup.as_ref(), problems);
    }
    for (key, lengths) in [("input", &raw.input), ("output", &raw.output)] {
        if let Some(lengths) = lengths {
            problems.add_with_help(
                &lengths.span,
                format!("`{key}` has no meaning with a trace, which brings its own lengths"),
                format!("remove `{key}`, or draw it from the file with `empirical = {{ file = ..., column = ... }}`"),
            );
        }
    }
    let spans = [
        ("system_prompt", raw.system_prompt.as_ref().map(|written| &written.span)),
        ("sessions", raw.sessions.as_ref().map(|written| &written.span)),
    ];
    for (key, span) in spans {
        if let Some(span) = span {
            problems.add_with_help(span, format!("`{key}` has no meaning with a trace"), format!("remove `{key}`"));
        }
    }
    let scales = scale.map_or_else(|| vec![1.0], |axis| positive("scale", axis, problems));
    let path = context.path(&file.value);
    let trace = context.lookup.trace(&path).map_err(|error| problems.adopt(&file.span, error)).ok()?;
    let span_s = trace.rows.last().map_or(0.0, |row| row.arrival.as_seconds());
    if let Some(axis) = scale.filter(|_| scales.iter().any(|scale| span_s / scale > LONGEST_STREAM_S)) {
        problems.add(&axis.span, "at the lowest `scale` the trace takes more than a hundred days");
    }
    let requests = raw.requests.as_ref().map(|requests| requests.value as usize);
    problems.ok(&file.span, replay(&trace, requests, warmup, scales))
}

/// The workload of the first `requests` rows of a trace, or of all.
///
/// # Errors
/// A message if there are too few rows.
pub(super) fn replay(
    trace: &Arc<Trace>,
    requests: Option<usize>,
    warmup: usize,
    scales: Vec<f64>,
) -> Result<Workload, String> {
    let rows = trace.rows.len();
    let requests = requests.unwrap_or(rows);
    if requests > rows {
        return Err(format!("the trace `{}` has {rows} requests, the workload asks for {requests}", trace.name));
    }
    if warmup >= requests {
        return Err(format!("all {requests} requests of the trace `{}` are warm-up, none is measured", trace.name));
    }
    let trace = if requests == rows {
        Arc::clone(trace)
    } else {
        Arc::new(Trace { name: trace.name.clone(), rows: trace.rows[..requests].to_vec() })
    };
    Ok(Workload { requests, warmup, traffic: Traffic::Replay { trace, scales } })
}

/// The values of an axis that must all be positive and finite.
fn positive(key: &str, axis: &Axis<f64>, problems: &mut Problems) -> Vec<f64> {
    problems.values(key, axis, |value| {
        if *value > 0.0 && value.is_finite() { Ok(()) } else { Err("must be a positive number".into()) }
    })
}

fn resolve_arrival(written: &Located<RawArrival>, problems: &mut Problems) -> Option<Arrival> {
    Some(match &written.value {
        RawArrival::Poisson { rate } => Arrival::Poisson { rates: positive("rate", rate, problems) },
        RawArrival::Constant { rate } => Arrival::Constant { rates: positive("rate", rate, problems) },
        RawArrival::Gamma { rate, burstiness } => {
            let rates = positive("rate", rate, problems);
            let is_valid = *burstiness > 0.0 && burstiness.is_finite();
            if !is_valid {
                problems.add(&written.span, "`burstiness` must be a positive number");
            }
            Arrival::Gamma { rates, burstiness: *burstiness }
        }
        RawArrival::Closed { clients } => {
            let at_least_one = |clients: &u32| match *clients {
                1..=MOST_REQUESTS => Ok(()),
                _ => Err(format!("must be between 1 and {MOST_REQUESTS}")),
            };
            Arrival::Closed { clients: problems.values("clients", clients, at_least_one) }
        }
        RawArrival::Batch {} => Arrival::Batch,
        RawArrival::Trace { .. } => return None,
    })
}

fn resolve_lengths(
    key: &str,
    written: Option<&Located<RawLengths>>,
    place: &Range<usize>,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<LengthLaw> {
    let help = format!("e.g. `{key} = {{ fixed = 512 }}`");
    let Located { value, span } = required(written, key, &help, place, problems)?;
    let law = match value {
        RawLengths::Fixed(length) => Ok(LengthLaw::Fixed(*length)),
        RawLengths::Uniform { min, max } if min > max => Err(format!("`min` {min} is above `max` {max}")),
        RawLengths::Uniform { min, max } => Ok(LengthLaw::Uniform { min: *min, max: *max }),
        RawLengths::Lognormal { mean, p95, max } => LengthLaw::lognormal(*mean, *p95, *max),
        RawLengths::Empirical { values, weights, file, column } => match (values, file, column) {
            (Some(values), None, None) => LengthLaw::empirical(values.clone(), weights.as_deref()),
            (None, Some(file), Some(column)) if weights.is_none() => {
                let lengths = context.lookup.lengths(&context.path(file), column);
                let lengths = lengths.map_err(|error| problems.adopt(span, error)).ok()?;
                LengthLaw::empirical(lengths, None)
            }
            _ => Err("`empirical` needs either `values` with optional `weights`, or `file` and `column`".into()),
        },
    };
    let law = problems.ok(span, law)?;
    if matches!(law, LengthLaw::Fixed(0) | LengthLaw::Uniform { min: 0, .. } | LengthLaw::Lognormal { max: 0, .. }) {
        problems.add(span, format!("`{key}` can be zero tokens; every request needs at least one"));
    }
    Some(law)
}
