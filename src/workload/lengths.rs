//! Prompt and output lengths.

use crate::rng::Stream;
use crate::spec::LengthLaw;

/// One length, at least one token.
pub(super) fn draw(law: &LengthLaw, stream: &mut Stream) -> u32 {
    match law {
        LengthLaw::Fixed(length) => *length,
        LengthLaw::Uniform { min, max } => min + stream.below(u64::from(max - min) + 1) as u32,
        LengthLaw::Lognormal { mu, sigma, max } => {
            libm::round(libm::exp(mu + sigma * stream.normal())).clamp(1.0, f64::from(*max)) as u32
        }
        LengthLaw::Empirical { values, cumulative } => {
            let uniform = stream.uniform();
            // The last share is 1 and uniform draws are below 1, so there is always such a value.
            values[cumulative.partition_point(|share| *share <= uniform)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(law: &LengthLaw, count: usize) -> Vec<u32> {
        let mut stream = Stream::new(5, "test", 0);
        let mut lengths: Vec<u32> = (0..count).map(|_| draw(law, &mut stream)).collect();
        lengths.sort_unstable();
        lengths
    }

    fn mean(lengths: &[u32]) -> f64 {
        lengths.iter().map(|length| f64::from(*length)).sum::<f64>() / lengths.len() as f64
    }

    #[test]
    fn lognormal_lengths_have_the_asked_mean_and_p95() {
        let law = LengthLaw::lognormal(860.0, 1750.0, 1_000_000).expect("a valid law");
        let lengths = sorted(&law, 100_000);
        assert!((mean(&lengths) / 860.0 - 1.0).abs() < 0.01, "mean {}", mean(&lengths));
        let p95 = f64::from(lengths[95_000]);
        assert!((p95 / 1750.0 - 1.0).abs() < 0.02, "p95 {p95}");
    }

    #[test]
    fn lognormal_lengths_are_cut_at_the_maximum_and_never_zero() {
        let law = LengthLaw::lognormal(2.0, 7.0, 6).expect("a valid law");
        let lengths = sorted(&law, 10_000);
        assert_eq!((lengths[0], lengths[9_999]), (1, 6));
    }

    #[test]
    fn uniform_lengths_include_both_ends() {
        let lengths = sorted(&LengthLaw::Uniform { min: 3, max: 5 }, 1000);
        assert_eq!((lengths[0], lengths[999]), (3, 5));
        assert!((mean(&lengths) - 4.0).abs() < 0.1);
        assert_eq!(sorted(&LengthLaw::Uniform { min: 1, max: u32::MAX }, 10).len(), 10);
    }

    #[test]
    fn empirical_lengths_follow_their_weights() {
        let law = LengthLaw::empirical(vec![10, 99, 20], Some(&[3.0, 0.0, 1.0])).expect("a valid law");
        let lengths = sorted(&law, 10_000);
        let tens = lengths.iter().filter(|length| **length == 10).count();
        assert!((7_300..7_700).contains(&tens), "{tens} of 10,000");
        assert!(!lengths.contains(&99), "a weight of zero");
    }
}
