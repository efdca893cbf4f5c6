//! What the project wants to reach on the public measurements, beside the best published result.

use super::case::{Metric, Statistic};
use super::summary::Group;

/// What must stay below the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The median of the absolute errors over the group's cases.
    Median,
    /// Their mean.
    Mean,
    /// The largest of them.
    Every,
}

impl Over {
    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Every => "largest",
        }
    }
}

/// A limit on the errors of a group.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// Group.
    pub group: &'static str,
    /// Metric.
    pub metric: Metric,
    /// Statistic over requests.
    pub statistic: Statistic,
    /// Statistic over cases.
    pub over: Over,
    /// Largest error, in per cent.
    pub limit_pct: f64,
    /// A median difference up to this also passes, in the metric's unit.
    pub or_difference: Option<f64>,
    /// Best published result, in words.
    pub peer: &'static str,
}

const fn aim(
    group: &'static str,
    metric: Metric,
    statistic: Statistic,
    over: Over,
    limit_pct: f64,
    peer: &'static str,
) -> Aim {
    Aim { group, metric, statistic, over, limit_pct, or_difference: None, peer }
}

const H100: &str = "vllm_h100";
const ENGINE: &str = "llmservingsim";
const SIM2REAL: &str = "sim2real";
const B200: &str = "vllm_b200_multiturn";
const VLLM: &str = "sample_test vllm";
const SGLANG: &str = "sample_test sglang";
const TRTLLM: &str = "sample_test trtllm";
const USER_H100: &str = "users H100 80GB";
const USER_H20: &str = "users H20";

/// Every aim, by group. Peers: published tables of BLIS (sim2real), LLMServingSim and Frontier, and AIConfigurator 0.12
/// run on the sample.
pub const AIMS: &[Aim] = &[
    aim(H100, Metric::E2e, Statistic::Mean, Over::Median, 4.0, "BLIS about 7 % on sibling runs"),
    aim(H100, Metric::E2e, Statistic::P50, Over::Median, 4.0, ""),
    aim(H100, Metric::E2e, Statistic::P95, Over::Median, 4.0, ""),
    aim(H100, Metric::Tpot, Statistic::Mean, Over::Median, 4.0, ""),
    aim(H100, Metric::Tpot, Statistic::P50, Over::Median, 4.0, ""),
    aim(H100, Metric::Tpot, Statistic::P95, Over::Median, 4.0, ""),
    Aim { or_difference: Some(10.0), ..aim(H100, Metric::Ttft, Statistic::P50, Over::Median, 10.0, "") },
    aim(H100, Metric::KvBlocks, Statistic::Total, Over::Median, 2.0, ""),
    aim(ENGINE, Metric::Tpot, Statistic::Mean, Over::Median, 1.5, "LLMServingSim 1.0-1.7 %"),
    aim(ENGINE, Metric::E2e, Statistic::Mean, Over::Median, 2.0, "LLMServingSim 1.8-2.2 %"),
    aim(ENGINE, Metric::Ttft, Statistic::Mean, Over::Median, 8.0, "LLMServingSim 4-16 %"),
    aim(ENGINE, Metric::OutputThroughput, Statistic::Total, Over::Median, 2.0, "LLMServingSim 2-4.5 %"),
    aim(SIM2REAL, Metric::Itl, Statistic::Mean, Over::Median, 5.0, "BLIS 6.5 %"),
    aim(SIM2REAL, Metric::E2e, Statistic::Mean, Over::Median, 5.0, "BLIS 6.8 %"),
    aim(SIM2REAL, Metric::E2e, Statistic::P99, Over::Median, 8.0, "BLIS 9.1 %"),
    aim(SIM2REAL, Metric::Ttft, Statistic::Mean, Over::Median, 12.0, "BLIS 18.4 %"),
    aim(B200, Metric::Tpot, Statistic::Mean, Over::Median, 8.0, "none scored"),
    aim(B200, Metric::E2e, Statistic::Mean, Over::Median, 8.0, "none scored"),
    aim(VLLM, Metric::Tpot, Statistic::Mean, Over::Median, 8.0, "AIConfigurator 18.6 % on 43 % of the rows"),
    aim(VLLM, Metric::Tpot, Statistic::Mean, Over::Mean, 14.0, "AIConfigurator 36.3 %"),
    aim(VLLM, Metric::Ttft, Statistic::Mean, Over::Median, 15.0, "AIConfigurator 31.6 %"),
    aim(SGLANG, Metric::Tpot, Statistic::Mean, Over::Median, 12.0, "AIConfigurator 35 %"),
    aim(SGLANG, Metric::Ttft, Statistic::Mean, Over::Median, 25.0, "AIConfigurator 70 %"),
    aim(TRTLLM, Metric::Tpot, Statistic::Mean, Over::Median, 12.0, "AIConfigurator 8.4 %"),
    aim(TRTLLM, Metric::Ttft, Statistic::Mean, Over::Median, 25.0, "AIConfigurator 51 %"),
    aim(USER_H100, Metric::Tpot, Statistic::P95, Over::Every, 10.0, "Frontier -36 to -48 %"),
    aim(USER_H100, Metric::E2e, Statistic::P95, Over::Every, 10.0, ""),
    aim(USER_H100, Metric::Ttft, Statistic::P95, Over::Every, 25.0, "Frontier 32 %"),
    aim(USER_H100, Metric::OutputThroughput, Statistic::Total, Over::Every, 5.0, "Frontier +12 %"),
    aim(USER_H20, Metric::Ttft, Statistic::Mean, Over::Every, 25.0, "Frontier -52 to +67 %"),
    aim(USER_H20, Metric::Tpot, Statistic::Mean, Over::Every, 12.0, "Frontier -32 to -57 %"),
    aim(USER_H20, Metric::Ttft, Statistic::P50, Over::Every, 25.0, "Frontier +11 to -45 %"),
];

impl Aim {
    /// What the group reaches; `None` if nothing was compared.
    #[must_use]
    pub fn reached_pct(&self, group: &Group<'_>) -> Option<f64> {
        let errors = group.errors(self.metric, self.statistic)?.errors?;
        Some(match self.over {
            Over::Median => errors.median,
            Over::Mean => errors.mean,
            Over::Every => errors.worst,
        })
    }

    /// Whether it is met.
    #[must_use]
    pub fn is_met(&self, group: &Group<'_>) -> bool {
        let difference = || group.errors(self.metric, self.statistic)?.median_difference;
        self.reached_pct(group).is_some_and(|reached| reached <= self.limit_pct)
            || self.or_difference.is_some_and(|limit| difference().is_some_and(|one| one <= limit))
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::groups;
    use super::super::summary::tests::answer;
    use super::*;

    #[test]
    fn an_aim_is_met_by_its_share_or_its_difference() {
        let answers = [answer("a", 100.0, Ok(109.0), 1.0), answer("b", 20.0, Ok(24.0), 1.0)];
        let groups = groups(&answers);
        let over = |over, limit_pct| aim("g", Metric::Ttft, Statistic::Mean, over, limit_pct, "");
        assert!((over(Over::Every, 1.0).reached_pct(&groups[0]).unwrap() - 20.0).abs() < 1e-9);
        assert!(over(Over::Mean, 14.6).is_met(&groups[0]) && !over(Over::Mean, 14.4).is_met(&groups[0]));
        // Differences of 9 and 4 ms have a median of 6.5.
        assert!(Aim { or_difference: Some(7.0), ..over(Over::Median, 1.0) }.is_met(&groups[0]));
        assert!(!Aim { or_difference: Some(6.0), ..over(Over::Median, 1.0) }.is_met(&groups[0]));
        assert!(!aim("g", Metric::E2e, Statistic::Mean, Over::Median, 1e9, "").is_met(&groups[0]));
    }
}
