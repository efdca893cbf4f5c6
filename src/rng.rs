//! Named random streams.
//!
//! A stream is addressed by (seed, label, index) and never handed from one owner to another, so that adding a draw in
//! one place cannot change the numbers seen in another. The generator is SplitMix64 (Steele, Lea, Flood, "Fast
//! splittable pseudorandom number generators", OOPSLA 2014) with the finaliser constants of its reference code; it is
//! written out here because results must not change when a dependency does.

/// Weyl increment of SplitMix64 (2^64 / golden ratio, odd).
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// One stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of this seed, label and index.
    #[must_use]
    pub fn new(seed: u64, label: &str, index: u64) -> Self {
        let mut state = mix(seed.wrapping_add(GOLDEN_GAMMA));
        for byte in label.bytes() {
            state = mix(state ^ u64::from(byte)).wrapping_add(GOLDEN_GAMMA);
        }
        Self { state: mix(state ^ index.wrapping_mul(GOLDEN_GAMMA)) }
    }

    /// The next 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }

    /// Uniform in [0, 1), with 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in (0, 1]: safe to take the logarithm of.
    fn uniform_positive(&mut self) -> f64 {
        1.0 - self.uniform()
    }

    /// Uniform integer in `0..bound` (multiply-shift; the bias is below `bound` / 2^64).
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be positive");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponential with mean 1 (inversion).
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.uniform_positive())
    }

    /// Standard normal (Box-Muller, one of the pair; the other is dropped so that a draw has no hidden state).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.uniform_positive()));
        radius * libm::cos(2.0 * std::f64::consts::PI * self.uniform())
    }

    /// Gamma with the given shape and mean 1 (Marsaglia and Tsang, ACM TOMS 26, 2000).
    ///
    /// # Panics
    /// If `shape` is not positive.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        assert!(shape > 0.0, "the shape of a gamma law must be positive");
        if shape < 1.0 {
            // Boost: G(a) = G(a + 1) * U^(1/a).
            let boost = libm::pow(self.uniform_positive(), 1.0 / shape);
            return self.gamma(shape + 1.0) * (shape + 1.0) * boost / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v > 0.0 {
                let v = v * v * v;
                if libm::log(self.uniform_positive()) < 0.5 * x * x + d * (1.0 - v + libm::log(v)) {
                    return d * v / shape;
                }
            }
        }
    }
}

/// SplitMix64's output function (variant 13 of Stafford's mixers).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_vector_of_splitmix64() {
        // First outputs for state 0, from the reference C code (prng.di.unimi.it/splitmix64.c).
        let mut stream = Stream { state: 0 };
        assert_eq!(stream.next_u64(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(stream.next_u64(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn streams_differ_by_seed_label_and_index() {
        let first = |seed, label, index| Stream::new(seed, label, index).next_u64();
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1), first(1, "ab", 0)];
        for (i, x) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|y| x != y));
        }
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
    }

    #[test]
    fn moments_of_the_laws() {
        let n = 200_000;
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let values: Vec<f64> = (0..n).map(|_| draw()).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
            (mean, variance)
        };
        let close = |(mean, variance): (f64, f64), expected: (f64, f64)| {
            assert!((mean - expected.0).abs() < 0.02, "mean {mean}, expected {}", expected.0);
            assert!((variance / expected.1 - 1.0).abs() < 0.05, "variance {variance}, expected {}", expected.1);
        };
        let mut stream = Stream::new(7, "moments", 0);
        close(moments(&mut || stream.uniform()), (0.5, 1.0 / 12.0));
        close(moments(&mut || stream.exponential()), (1.0, 1.0));
        close(moments(&mut || stream.normal()), (0.0, 1.0));
        close(moments(&mut || stream.gamma(4.0)), (1.0, 0.25));
        close(moments(&mut || stream.gamma(0.5)), (1.0, 2.0));
        close(moments(&mut || stream.below(10) as f64), (4.5, 8.25));
    }
}
