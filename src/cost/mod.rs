//! Money: what tokens cost, and whether a cheaper fleet is worth it.
//!
//! Spend ratio and cost efficiency are those of the Frontier paper, section 6.2: for an allocation g and a baseline g0,
//! `SR(g) = Price(g0) / Price(g)` and `CE(g) = (T(g) / Price(g)) / (T(g0) / Price(g0))`, with T the aggregate token
//! throughput.

pub use crate::results::tokens_per_usd;

/// Cost efficiency from which the Frontier paper (section 6.2, gate 3) calls a change of hardware worth deploying: 8 %
/// more tokens per dollar than the baseline, so that measurement variance alone cannot pass.
pub const COST_EFFICIENCY_GATE: f64 = 1.08;

/// What an allocation costs and yields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Economics {
    /// Price of all its GPUs, in USD per hour.
    pub usd_per_hour: f64,
    /// Aggregate token throughput, in tokens per second.
    pub tokens_per_second: f64,
}

impl Economics {
    /// Tokens bought by one dollar.
    #[must_use]
    pub fn tokens_per_usd(self) -> f64 {
        tokens_per_usd(self.tokens_per_second, self.usd_per_hour)
    }

    /// USD for a million tokens.
    #[must_use]
    pub fn usd_per_million_tokens(self) -> f64 {
        1e6 / self.tokens_per_usd()
    }

    /// SR: how many times cheaper per hour this is than the baseline.
    #[must_use]
    pub fn spend_ratio(self, baseline: Self) -> f64 {
        baseline.usd_per_hour / self.usd_per_hour
    }

    /// CE: how many times more tokens per dollar this yields than the baseline.
    #[must_use]
    pub fn cost_efficiency(self, baseline: Self) -> f64 {
        self.tokens_per_usd() / baseline.tokens_per_usd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_half_the_fleet_by_cheaper_gpus() {
        // 512 H800 at 3.49 USD/h replaced by 512 H20 at 1.59 USD/h: the paper's spend ratio at P:D = 1:1 is 1.37.
        let baseline = Economics { usd_per_hour: 1024.0 * 3.49, tokens_per_second: 100_000.0 };
        let mixed = Economics { usd_per_hour: 512.0 * (3.49 + 1.59), tokens_per_second: 97_000.0 };
        assert!((mixed.spend_ratio(baseline) - 1.374).abs() < 0.001);
        assert!((mixed.cost_efficiency(baseline) - 0.97 * mixed.spend_ratio(baseline)).abs() < 1e-12);
        assert_eq!(baseline.cost_efficiency(baseline), 1.0);
    }

    #[test]
    fn dollars_and_tokens_are_inverse() {
        let economics = Economics { usd_per_hour: 36.0, tokens_per_second: 1000.0 };
        assert_eq!(economics.tokens_per_usd(), 100_000.0);
        assert_eq!(economics.usd_per_million_tokens(), 10.0);
    }
}
