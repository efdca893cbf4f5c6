//! Histogram of inter-token gaps.

use crate::stats::Summary;
use crate::units::{TICKS_PER_NS, Ticks};

/// Bins per octave: 64, so that the middle of a bin is within 0.8 % of every value in it.
const BITS: u32 = 6;
/// Gaps of 2^58 ticks (78 hours) and more share the last bin.
const BINS: usize = ((58 - BITS as usize) << BITS) + (1 << BITS);

type Bins = crate::fidelity::grid::OctaveKnots<BITS>;

/// Gaps between consecutive tokens, counted in logarithmic bins; the mean is exact.
#[derive(Clone, Debug, Default)]
pub(crate) struct GapHistogram {
    counts: Vec<u64>,
    total_count: u64,
    total_ticks: u128,
}

impl GapHistogram {
    pub(crate) fn reset(&mut self) {
        self.counts.clear();
        self.counts.resize(BINS, 0);
        self.total_count = 0;
        self.total_ticks = 0;
    }

    /// Adds `count` gaps of each of the lengths `first`, `first + growth`, ... (`steps` lengths).
    pub(crate) fn add(&mut self, first: u64, growth: u64, steps: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.total_count += count * steps;
        let per_sequence = u128::from(steps) * u128::from(first)
            + u128::from(growth) * (u128::from(steps) * u128::from(steps.saturating_sub(1)) / 2);
        self.total_ticks += u128::from(count) * per_sequence;
        let mut done = 0;
        while done < steps {
            let gap = first + done * growth;
            let bin = Bins::index(gap).min(BINS - 1);
            let until_next_bin =
                if growth == 0 || bin == BINS - 1 { u64::MAX } else { (Bins::value(bin + 1) - gap).div_ceil(growth) };
            let here = until_next_bin.min(steps - done);
            self.counts[bin] += count * here;
            done += here;
        }
    }

    /// Mean (exact) and percentiles (middle of their bin).
    pub(crate) fn summary(&self) -> Summary {
        if self.total_count == 0 {
            return Summary::default();
        }
        let mean_ns = self.total_ticks as f64 / self.total_count as f64 / TICKS_PER_NS as f64;
        Summary {
            mean_ms: mean_ns / 1e6,
            p50_ms: self.percentile_ms(50),
            p90_ms: self.percentile_ms(90),
            p95_ms: self.percentile_ms(95),
            p99_ms: self.percentile_ms(99),
        }
    }

    fn percentile_ms(&self, percent: u64) -> f64 {
        let rank = (self.total_count * percent).div_ceil(100);
        let mut seen = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Ticks(Bins::value(bin).midpoint(Bins::value(bin + 1))).as_ms();
            }
        }
        0.0
    }
}

/// When the decoding sequences of a lane had their last token: all at the same time, unless steps without decoding let some
/// wait while others join. Only measured sequences count.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenTimes {
    /// Time and number of sequences, by time.
    groups: Vec<(Ticks, u32)>,
    last_decode: Ticks,
}

impl TokenTimes {
    pub(crate) fn reset(&mut self) {
        self.groups.clear();
        self.last_decode = Ticks::ZERO;
    }

    /// End of the last step in which the lane decoded.
    pub(crate) fn last_decode(&self) -> Ticks {
        self.last_decode
    }

    /// So many sequences had a token at `time`, the latest so far.
    pub(crate) fn join(&mut self, time: Ticks, sequences: u32) {
        match self.groups.last_mut() {
            Some((last, count)) if *last == time => *count += sequences,
            _ => self.groups.push((time, sequences)),
        }
    }

    /// A sequence whose last token was at `time` does not decode any more.
    pub(crate) fn leave(&mut self, time: Ticks) {
        if let Some((_, count)) = self.groups.iter_mut().find(|(group, _)| *group == time) {
            *count -= 1;
        }
    }

    /// All sequences had their last token at `time`.
    pub(crate) fn are_all(&self, time: Ticks) -> bool {
        matches!(self.groups[..], [(only, _)] if only == time)
    }

    /// Every sequence has its next token at `time`: their gaps.
    pub(crate) fn decoded(&mut self, time: Ticks, gaps: &mut GapHistogram) {
        for &(last, sequences) in &self.groups {
            gaps.add(time.saturating_since(last).0, 0, 1, u64::from(sequences));
        }
    }

    /// The sequences that are left all had their last token at `time`.
    pub(crate) fn all_at(&mut self, time: Ticks, sequences: u32) {
        self.groups.clear();
        self.groups.push((time, sequences));
        self.last_decode = time;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_within_a_bin() {
        let mut histogram = GapHistogram::default();
        histogram.reset();
        for milliseconds in 1..=100 {
            histogram.add(Ticks::from_ns(f64::from(milliseconds) * 1e6).0, 0, 1, 3);
        }
        let summary = histogram.summary();
        assert!((summary.mean_ms - 50.5).abs() < 1e-9);
        assert!((summary.p50_ms / 50.0 - 1.0).abs() < 0.009, "{}", summary.p50_ms);
        assert!((summary.p99_ms / 99.0 - 1.0).abs() < 0.009, "{}", summary.p99_ms);
    }

    proptest! {
        #[test]
        fn a_progression_equals_its_members(first in 1u64..1 << 40, growth in 0u64..1 << 30, steps in 1u64..200, count in 1u64..50) {
            let (mut at_once, mut one_by_one) = (GapHistogram::default(), GapHistogram::default());
            at_once.reset();
            one_by_one.reset();
            at_once.add(first, growth, steps, count);
            for step in 0..steps {
                one_by_one.add(first + step * growth, 0, 1, count);
            }
            prop_assert_eq!(at_once.counts, one_by_one.counts);
            prop_assert_eq!(at_once.total_ticks, one_by_one.total_ticks);
        }
    }
}
