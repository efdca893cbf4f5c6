//! How the tokens of a batch spread over the experts of one GPU.

use super::operator::Experts;
use crate::rng::Stream;

/// The load of the experts of one GPU in one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertLoad {
    /// Exponent of the power law that the loads follow; zero for even loads.
    pub exponent: f64,
    /// Rows routed to this GPU: tokens times experts per token that are held here.
    pub rows: f64,
    /// Local experts with at least one row.
    pub hit: f64,
    /// Rows of the most loaded local expert.
    pub largest: f64,
}

impl ExpertLoad {
    /// Every expert gets the same number of rows, as far as they divide: the round robin of kernel benchmarks.
    #[must_use]
    pub fn balanced(tokens: u32, experts: &Experts) -> Self {
        let routed = f64::from(tokens) * f64::from(experts.top_k);
        let (all, local) = (f64::from(experts.count), f64::from(experts.local));
        Self {
            exponent: 0.0,
            rows: routed * local / all,
            hit: routed.min(all) * local / all,
            largest: libm::ceil(routed / all),
        }
    }

    /// Every token draws its experts at random, all equally likely: the expected number of experts that are hit, and of
    /// rows of the most loaded one (mean plus sqrt(2 ln n) standard deviations, the usual estimate of the maximum of n
    /// normal variables).
    #[must_use]
    pub fn uniform(tokens: u32, experts: &Experts) -> Self {
        let (tokens, top_k) = (f64::from(tokens), f64::from(experts.top_k));
        let (all, local) = (f64::from(experts.count), f64::from(experts.local));
        let share = (top_k / all).min(1.0);
        let mean = tokens * share;
        let deviation = libm::sqrt(mean * (1.0 - share));
        Self {
            exponent: 0.0,
            rows: mean * local,
            hit: local * (1.0 - libm::pow(1.0 - share, tokens)),
            largest: (mean + deviation * libm::sqrt(2.0 * libm::log(local.max(1.0)))).min(tokens),
        }
    }

    /// Loads that follow a truncated power law, seen by the most loaded of the GPUs that share the experts.
    ///
    /// The same law as in the measurements of AIConfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0): weights
    /// with density x^-exponent between 1 and 0.8 times the tokens (between 0.01 and 2 for few tokens). They draw
    /// weights at random; here weights are the law's quantiles in a fixed random order, so the load is deterministic.
    #[must_use]
    pub fn power_law(exponent: f64, tokens: u32, experts: &Experts) -> Self {
        let routed = f64::from(tokens) * f64::from(experts.top_k);
        let (low, high) = match routed > f64::from(experts.count) {
            true => (1.0, (0.8 * f64::from(tokens)).max(1.0)),
            false => (0.01, 2.0),
        };
        // The law's integral is a logarithm at one; a step away from it is the same to nine digits.
        let power = if (1.0 - exponent).abs() < 1e-9 { 1e-9 } else { 1.0 - exponent };
        let quantile = |share: f64| {
            let (from, to) = (libm::pow(low, power), libm::pow(high, power));
            libm::pow((to - from) * share + from, 1.0 / power)
        };
        let quantiles =
            (0..experts.count).rev().map(|rank| quantile((f64::from(rank) + 0.5) / f64::from(experts.count)));
        let weights: Vec<f64> = quantiles.collect();
        let mut rows = deal(&weights, routed, f64::from(tokens));
        let mut order = Stream::new(0, "expert order", u64::from(experts.count));
        for last in (1..rows.len()).rev() {
            rows.swap(last, order.below(last as u64 + 1) as usize);
        }
        let busiest = rows
            .chunks(experts.local.max(1) as usize)
            .max_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()))
            .unwrap_or_default();
        Self { exponent, ..Self::of_rows(busiest) }
    }

    /// The load of given rows per local expert. Half a row is where rounding would give none.
    fn of_rows(rows: &[f64]) -> Self {
        Self {
            exponent: 0.0,
            rows: rows.iter().sum(),
            hit: rows.iter().map(|rows| (2.0 * rows).min(1.0)).sum(),
            largest: rows.iter().copied().fold(0.0, f64::max),
        }
    }

    /// The load of a measured histogram: rows per local expert.
    #[must_use]
    pub fn histogram(rows: &[f64], tokens: u32, experts: &Experts) -> Self {
        let load = Self::of_rows(rows);
        Self::measured(load.rows, load.hit, load.largest, tokens, experts)
    }

    /// A measured load: rows routed to this GPU, local experts that are hit, rows of the most loaded one. Its exponent
    /// is the one of the power law whose most loaded expert has the same share, so that tables measured under power
    /// laws apply.
    #[must_use]
    pub fn measured(rows: f64, hit: f64, largest: f64, tokens: u32, experts: &Experts) -> Self {
        let load = Self { exponent: 0.0, rows, hit, largest };
        let share = |load: &Self| load.largest / load.rows.max(f64::MIN_POSITIVE);
        if share(&load) <= share(&Self::balanced(tokens, experts)) {
            return load;
        }
        let (mut low, mut high) = (0.0, STEEPEST);
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if share(&Self::power_law(middle, tokens, experts)) < share(&load) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Self { exponent: low, ..load }
    }
}

/// Deals `routed` rows in proportion to descending weights; no expert gets more than one row per token.
fn deal(weights: &[f64], routed: f64, tokens: f64) -> Vec<f64> {
    let (mut rows_left, mut weight_left) = (routed, weights.iter().sum::<f64>());
    let mut take = |weight: &f64| {
        let rows = (weight / weight_left * rows_left).min(tokens);
        rows_left -= rows;
        weight_left -= weight;
        rows
    };
    weights.iter().map(&mut take).collect()
}

/// Steepest exponent that a histogram is matched with.
const STEEPEST: f64 = 3.0;
/// Halvings of the exponent's interval: 3 / 2^20 is far below what any predictor distinguishes.
const BISECTIONS: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NumberFormat;

    fn experts(local: u32) -> Experts {
        let bf16 = NumberFormat::Bf16;
        Experts {
            hidden_size: 2048,
            intermediate_size: 768,
            top_k: 8,
            count: 128,
            local,
            weights: bf16,
            activations: bf16,
        }
    }

    #[test]
    fn a_round_robin_hits_as_many_experts_as_it_can() {
        let few = ExpertLoad::balanced(4, &experts(128));
        assert_eq!((few.rows, few.hit, few.largest), (32.0, 32.0, 1.0));
        let many = ExpertLoad::balanced(64, &experts(32));
        assert_eq!((many.rows, many.hit, many.largest), (128.0, 32.0, 4.0));
    }

    #[test]
    fn random_routing_misses_experts_that_a_round_robin_hits() {
        let (random, even) = (ExpertLoad::uniform(16, &experts(128)), ExpertLoad::balanced(16, &experts(128)));
        assert_eq!(random.rows, even.rows);
        // 128 x (1 - (1 - 8/128)^16).
        assert!((random.hit - 82.43).abs() < 0.01, "{}", random.hit);
        assert_eq!(even.hit, 128.0);
        assert!(random.largest > even.largest);
    }

    #[test]
    fn steeper_laws_load_the_hottest_expert_more() {
        let law = |exponent| ExpertLoad::power_law(exponent, 512, &experts(128));
        let (flat, steep) = (law(0.5), law(1.2));
        assert!(steep.largest > 1.5 * flat.largest, "{} and {}", steep.largest, flat.largest);
        for load in [flat, steep] {
            assert!(load.largest <= 512.0 && (load.rows - 4096.0).abs() < 1e-6, "{load:?}");
        }
    }

    #[test]
    fn the_busiest_gpu_of_a_group_is_the_one_that_is_priced() {
        let one_of_eight = ExpertLoad::power_law(1.01, 512, &experts(16));
        assert!(one_of_eight.rows > 4096.0 / 8.0, "{}", one_of_eight.rows);
    }

    #[test]
    fn a_histogram_finds_the_law_it_came_from() {
        let shape = experts(128);
        let law = ExpertLoad::power_law(1.01, 1024, &shape);
        let mut rows = vec![(law.rows - law.largest) / 127.0; 128];
        rows[17] = law.largest;
        let matched = ExpertLoad::histogram(&rows, 1024, &shape);
        assert!((matched.exponent - 1.01).abs() < 0.01, "{}", matched.exponent);
        assert_eq!(ExpertLoad::histogram(&[64.0; 128], 1024, &shape).exponent, 0.0);
    }
}
