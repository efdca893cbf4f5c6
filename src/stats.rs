//! Exact order statistics and means.

use crate::units::Ticks;

/// Mean and percentiles of one latency over the measured requests, in milliseconds.
///
/// All fields are zero when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

impl Summary {
    /// Summarises a sample exactly; reorders it.
    #[must_use]
    pub fn of(sample: &mut [Ticks]) -> Self {
        if sample.is_empty() {
            return Self::default();
        }
        sample.sort_unstable();
        let total: u128 = sample.iter().map(|ticks| u128::from(ticks.0)).sum();
        let mean_ticks = total as f64 / sample.len() as f64;
        let at = |percent| percentile(sample, percent).as_ms();
        Self {
            mean_ms: mean_ticks / crate::units::TICKS_PER_NS as f64 / 1e6,
            p50_ms: at(50),
            p90_ms: at(90),
            p95_ms: at(95),
            p99_ms: at(99),
        }
    }
}

/// The nearest-rank percentile of a sorted, non-empty sample: the smallest value with at least `percent` per cent of
/// the sample at or below it. An observed value, never an interpolation.
///
/// # Panics
/// If the sample is empty.
#[must_use]
pub fn percentile(sorted: &[Ticks], percent: usize) -> Ticks {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rank_by_hand() {
        let sorted: Vec<Ticks> = (1..=10).map(Ticks).collect();
        assert_eq!(percentile(&sorted, 50), Ticks(5));
        assert_eq!(percentile(&sorted, 90), Ticks(9));
        assert_eq!(percentile(&sorted, 95), Ticks(10));
        assert_eq!(percentile(&sorted[..1], 99), Ticks(1));
    }

    #[test]
    fn summary_of_an_unsorted_sample() {
        let mut sample: Vec<Ticks> = [4.0, 1.0, 3.0, 2.0].map(|ms| Ticks::from_ns(ms * 1e6)).to_vec();
        let summary = Summary::of(&mut sample);
        assert_eq!(summary.mean_ms, 2.5);
        assert_eq!(summary.p50_ms, 2.0);
        assert_eq!(summary.p99_ms, 4.0);
        assert_eq!(Summary::of(&mut []), Summary::default());
    }
}
