//! Matrix products whose times are not those of the kernels: rows that a slow launch hides, and isolated spikes.

use std::collections::BTreeMap;

use super::{Dropped, Measurement};
use crate::catalog::NumberFormat;
use crate::fidelity::operator::Operator;

/// A format is launch-bound if its fastest small products take this many times what those in bf16 do. Converting the
/// input first costs up to twice a small product in bf16 (two more kernels), so three times could still be kernels.
const LAUNCH_BOUND: f64 = 4.0;
/// No faster launch bounds a format, in nanoseconds: three kernels of 5 us each are not a launch.
const SHORTEST_LAUNCH_NS: f64 = 15_000.0;
/// Products with up to this many rows are small.
const SMALL_TOKENS: u32 = 16;
/// The fastest products take the launch alone as long as they are within this factor of the small ones.
const FLAT: f64 = 1.5;
/// Share of the products with one number of rows that counts as the fastest.
const FASTEST: f64 = 0.1;
/// A time this many times the one of larger products with the same weights is a spike.
const SPIKE: f64 = 1.6;
/// How many larger products a time is compared with; their median counts.
const LARGER: usize = 3;

/// Weights of a product: formats and shape.
type Weights = (NumberFormat, NumberFormat, u32, u32);

/// The rows that can be trusted. A launch-bound format goes as a whole: nobody knows how much of a launch is left in its large
/// products. Tables of other operators are returned as they are.
pub(super) fn without_suspects(rows: Vec<Measurement>, dropped: &mut Dropped) -> Vec<Measurement> {
    let floors = launch_floors(&rows);
    let limits = spike_limits(&rows);
    let reason = |row: &Measurement| {
        let (tokens, (weights, activations, n, k)) = product(row)?;
        if let Some(floor) = floors.get(&(weights, activations)) {
            let (weights, floor) = (weights.name(), floor / 1e3);
            return Some(format!(
                "launch-bound products in {weights}: no faster than {floor:.0} us whatever their size"
            ));
        }
        let limit = limits.get(&(weights, activations, n, k, tokens))?;
        (row.latency_ns > SPIKE * limit)
            .then(|| "spikes: over 1.6 times the median of the next three larger products".to_owned())
    };
    let mut keep = |row: &Measurement| match reason(row) {
        Some(reason) => {
            dropped.add(reason, 1, || format!("{:?}: {:.1} us", row.operator, row.latency_ns / 1e3));
            false
        }
        None => true,
    };
    rows.into_iter().filter(|row| keep(row)).collect()
}

fn product(row: &Measurement) -> Option<(u32, Weights)> {
    match row.operator {
        Operator::Gemm { tokens, n, k, weights, activations } => Some((tokens, (weights, activations, n, k))),
        _ => None,
    }
}

/// Time of the launch alone, in nanoseconds, of the formats that it bounds.
fn launch_floors(rows: &[Measurement]) -> BTreeMap<(NumberFormat, NumberFormat), f64> {
    let mut times: BTreeMap<(NumberFormat, NumberFormat), BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for (row, (tokens, (weights, activations, ..))) in rows.iter().filter_map(|row| Some((row, product(row)?))) {
        times.entry((weights, activations)).or_default().entry(tokens).or_default().push(row.latency_ns);
    }
    let fastest = |mut times: Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        times[(times.len() as f64 * FASTEST) as usize]
    };
    let fastest: BTreeMap<_, BTreeMap<u32, f64>> = times
        .into_iter()
        .map(|(formats, by_tokens)| (formats, by_tokens.into_iter().map(|(m, times)| (m, fastest(times))).collect()))
        .collect();
    let small =
        |by_tokens: &BTreeMap<u32, f64>| by_tokens.range(..=SMALL_TOKENS).map(|(_, time)| *time).min_by(f64::total_cmp);
    let Some(bf16) = fastest.get(&(NumberFormat::Bf16, NumberFormat::Bf16)).and_then(small) else {
        return BTreeMap::new();
    };
    let floor = |(formats, by_tokens): (&(NumberFormat, NumberFormat), &BTreeMap<u32, f64>)| {
        let small = small(by_tokens).filter(|small| *small > (LAUNCH_BOUND * bf16).max(SHORTEST_LAUNCH_NS))?;
        // Flat beyond small products, or else the format is just slow.
        let flat: Vec<(&u32, &f64)> = by_tokens.iter().filter(|(_, time)| **time <= FLAT * small).collect();
        flat.iter().any(|(tokens, _)| **tokens >= 16 * SMALL_TOKENS).then_some(())?;
        Some((*formats, flat.into_iter().map(|(_, time)| *time).fold(small, f64::max)))
    };
    fastest.iter().filter_map(floor).collect()
}

/// Median time of the next larger products with the same weights, by weights and rows.
fn spike_limits(rows: &[Measurement]) -> BTreeMap<(NumberFormat, NumberFormat, u32, u32, u32), f64> {
    let mut by_weights: BTreeMap<Weights, BTreeMap<u32, f64>> = BTreeMap::new();
    for (row, (tokens, weights)) in rows.iter().filter_map(|row| Some((row, product(row)?))) {
        let fastest = by_weights.entry(weights).or_default().entry(tokens).or_insert(row.latency_ns);
        *fastest = fastest.min(row.latency_ns);
    }
    let mut limits = BTreeMap::new();
    for ((weights, activations, n, k), by_tokens) in by_weights {
        let times: Vec<(u32, f64)> = by_tokens.into_iter().collect();
        for window in times.windows(1 + LARGER) {
            let larger = super::super::median(window[1..].iter().map(|(_, time)| *time).collect());
            limits.insert((weights, activations, n, k, window[0].0), larger);
        }
    }
    limits
}
