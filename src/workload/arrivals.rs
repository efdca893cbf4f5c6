//! Arrival times.

use crate::rng::Stream;
use crate::spec::Arrival;
use crate::units::Ticks;

/// Arrival times of `count` requests at `load` (requests per second where the law has a rate), not decreasing, the
/// first at zero.
///
/// Gaps are drawn at unit rate and divided by the load, without any clipping: a cap on long gaps would raise the rate.
pub(super) fn times(arrival: &Arrival, load: f64, count: usize, seed: u64) -> Vec<Ticks> {
    let mut stream = Stream::new(seed, "workload.arrival", 0);
    let mut elapsed = 0.0;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(match arrival {
            Arrival::Closed { .. } | Arrival::Batch => Ticks::ZERO,
            Arrival::Poisson { .. } | Arrival::Gamma { .. } | Arrival::Constant { .. } => {
                Ticks::from_seconds(elapsed / load)
            }
        });
        elapsed += unit_gap(arrival, &mut stream);
    }
    times
}

/// A gap with mean 1.
fn unit_gap(arrival: &Arrival, stream: &mut Stream) -> f64 {
    match arrival {
        Arrival::Poisson { .. } => stream.exponential(),
        Arrival::Gamma { burstiness, .. } => stream.gamma(*burstiness),
        Arrival::Constant { .. } => 1.0,
        Arrival::Closed { .. } | Arrival::Batch => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 100_000;

    /// Mean, coefficient of variation and maximum of the gaps, in seconds.
    fn gaps(arrival: &Arrival, rate: f64) -> (f64, f64, f64) {
        let times = times(arrival, rate, COUNT, 11);
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_seconds()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
        (mean, variance.sqrt() / mean, gaps.iter().copied().fold(0.0, f64::max))
    }

    #[test]
    fn poisson_gaps_have_the_rate_and_an_uncut_tail() {
        let (mean, cv, longest) = gaps(&Arrival::Poisson { rates: vec![] }, 4.0);
        assert!((mean * 4.0 - 1.0).abs() < 0.015, "mean {mean}");
        assert!((cv - 1.0).abs() < 0.02, "cv {cv}");
        // The longest of n exponential gaps is about ln(n) = 11.5 means, and below 8 with probability exp(-33).
        assert!(longest * 4.0 > 8.0, "longest {longest}");
    }

    #[test]
    fn gamma_gaps_vary_as_one_over_the_root_of_the_burstiness() {
        for burstiness in [0.25, 1.0, 4.0] {
            let (mean, cv, _) = gaps(&Arrival::Gamma { rates: vec![], burstiness }, 10.0);
            assert!((mean * 10.0 - 1.0).abs() < 0.03, "mean {mean}");
            assert!((cv * burstiness.sqrt() - 1.0).abs() < 0.03, "cv {cv} at {burstiness}");
        }
    }

    #[test]
    fn constant_gaps_are_equal() {
        let times = times(&Arrival::Constant { rates: vec![] }, 8.0, 5, 1);
        assert_eq!(times, [0.0, 0.125, 0.25, 0.375, 0.5].map(Ticks::from_seconds));
    }
}
