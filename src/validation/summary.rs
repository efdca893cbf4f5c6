//! Errors of groups of cases, beside those of other simulators on the same cases.

use std::collections::BTreeMap;

use super::answer::Answer;
use super::case::{Measured, Metric, Statistic, error_pct};

/// One measured value with what was simulated.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The case and its simulation.
    pub answer: &'a Answer,
    /// The measured value.
    pub measured: &'a Measured,
    /// The simulated one, if the case was answered and the simulator knows the metric.
    pub simulated: Option<f64>,
}

impl Comparison<'_> {
    /// Signed error, in per cent.
    #[must_use]
    pub fn error_pct(&self) -> Option<f64> {
        error_pct(self.simulated?, self.measured.value)
    }
}

/// Every measured value of every case, in order.
pub fn comparisons(answers: &[Answer]) -> impl Iterator<Item = Comparison<'_>> {
    answers.iter().flat_map(|answer| {
        answer.case.measured.iter().map(move |measured| {
            let simulated = answer.simulated.as_ref().ok();
            let simulated = simulated.and_then(|one| one.value(measured.metric, measured.statistic));
            Comparison { answer, measured, simulated }
        })
    })
}

/// Statistics of errors, in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// Values compared.
    pub count: usize,
    /// Median of the absolute errors.
    pub median: f64,
    /// Mean of the absolute errors.
    pub mean: f64,
    /// 90th percentile of the absolute errors.
    pub p90: f64,
    /// Largest absolute error.
    pub worst: f64,
    /// Median of the signed errors: below zero where predictions are too small.
    pub bias: f64,
}

impl Errors {
    /// Statistics of signed errors; `None` if there are none.
    #[must_use]
    pub fn of(signed: &[f64]) -> Option<Self> {
        let mut absolute: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
        absolute.sort_unstable_by(f64::total_cmp);
        let mut sorted = signed.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let count = absolute.len();
        Some(Self {
            count,
            median: median(&absolute)?,
            mean: absolute.iter().sum::<f64>() / count as f64,
            p90: absolute[(count * 90).div_ceil(100).max(1) - 1],
            worst: absolute[count - 1],
            bias: median(&sorted)?,
        })
    }
}

/// Median of sorted values.
pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let count = sorted.len();
    (count > 0).then(|| f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]))
}

/// Another simulator on the values that it predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerErrors {
    /// Its name.
    pub name: String,
    /// Its errors.
    pub errors: Errors,
    /// Ours on the same values, as far as we answered them.
    pub ours: Option<Errors>,
}

/// Errors of one metric and statistic over a group.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricErrors {
    /// Metric.
    pub metric: Metric,
    /// Statistic.
    pub statistic: Statistic,
    /// Measured values.
    pub measured: usize,
    /// Errors of the simulated ones.
    pub errors: Option<Errors>,
    /// Median absolute difference, in the metric's unit.
    pub median_difference: Option<f64>,
    /// The others, by name.
    pub peers: Vec<PeerErrors>,
}

/// A group of cases.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name.
    pub name: &'a str,
    /// Its cases.
    pub answers: Vec<&'a Answer>,
    /// Errors by metric and statistic, in the order of tables.
    pub metrics: Vec<MetricErrors>,
}

impl Group<'_> {
    /// Cases that were simulated.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.answers.iter().filter(|answer| answer.simulated.is_ok()).count()
    }

    /// Why cases were not simulated: how often, and one of them; most frequent first.
    #[must_use]
    pub fn refusals(&self) -> Vec<(&str, usize, &str)> {
        let mut reasons: Vec<(&str, usize, &str)> = Vec::new();
        for answer in &self.answers {
            let Err(reason) = &answer.simulated else { continue };
            match reasons.iter_mut().find(|(known, ..)| known == reason) {
                Some((_, count, _)) => *count += 1,
                None => reasons.push((reason, 1, &answer.case.id)),
            }
        }
        reasons.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        reasons
    }

    /// Errors of one metric and statistic.
    #[must_use]
    pub fn errors(&self, metric: Metric, statistic: Statistic) -> Option<&MetricErrors> {
        self.metrics.iter().find(|one| (one.metric, one.statistic) == (metric, statistic))
    }
}

/// The groups of all answers, in the order in which they first appear.
#[must_use]
pub fn groups(answers: &[Answer]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for answer in answers {
        let name = answer.case.group.as_str();
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.answers.push(answer),
            None => groups.push(Group { name, answers: vec![answer], metrics: Vec::new() }),
        }
    }
    for group in &mut groups {
        group.metrics = metric_errors(&group.answers);
    }
    groups
}

/// Errors of some answers, by metric and statistic.
#[must_use]
pub fn metric_errors(answers: &[&Answer]) -> Vec<MetricErrors> {
    let mut by_metric: BTreeMap<(Metric, Statistic), Vec<Comparison<'_>>> = BTreeMap::new();
    for answer in answers {
        for comparison in comparisons(std::slice::from_ref(*answer)) {
            let key = (comparison.measured.metric, comparison.measured.statistic);
            by_metric.entry(key).or_default().push(comparison);
        }
    }
    let of = |((metric, statistic), comparisons): (_, Vec<Comparison<'_>>)| {
        let errors: Vec<f64> = comparisons.iter().filter_map(Comparison::error_pct).collect();
        let mut differences: Vec<f64> =
            comparisons.iter().filter_map(|one| Some((one.simulated? - one.measured.value).abs())).collect();
        differences.sort_unstable_by(f64::total_cmp);
        MetricErrors {
            metric,
            statistic,
            measured: comparisons.len(),
            errors: Errors::of(&errors),
            median_difference: median(&differences),
            peers: peer_errors(&comparisons),
        }
    };
    by_metric.into_iter().map(of).collect()
}

fn peer_errors(comparisons: &[Comparison<'_>]) -> Vec<PeerErrors> {
    let mut by_name: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for comparison in comparisons {
        for peer in &comparison.measured.peers {
            let (theirs, ours) = by_name.entry(&peer.name).or_default();
            theirs.extend(error_pct(peer.value, comparison.measured.value));
            ours.extend(comparison.error_pct());
        }
    }
    let of = |(name, (theirs, ours)): (&str, (Vec<f64>, Vec<f64>))| {
        Some(PeerErrors { name: name.to_owned(), errors: Errors::of(&theirs)?, ours: Errors::of(&ours) })
    };
    by_name.into_iter().filter_map(of).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Simulated;
    use super::super::case::{Case, Peer};
    use super::*;
    use crate::sim::Outcome;
    use crate::stats::Summary;

    /// An answer with this mean TTFT, measured and simulated.
    pub(in super::super) fn answer(id: &str, measured: f64, simulated: Result<f64, &str>, peer: f64) -> Answer {
        let mut value = Measured::new(Metric::Ttft, Statistic::Mean, measured);
        value.peers.push(Peer::new("other", peer));
        let simulated = simulated.map_err(str::to_owned).map(|mean_ms| Simulated {
            outcomes: vec![Outcome { ttft: Summary { mean_ms, ..Summary::default() }, ..Outcome::default() }],
            kv_blocks: 7,
            profile: "vllm-0.15".to_owned(),
            own_engine: true,
            scheduler: "vllm_v1",
            parallelism: "tp2".to_owned(),
            measured_share: 0.75,
        });
        Answer {
            case: Case {
                group: "g".to_owned(),
                id: id.to_owned(),
                model: "m".to_owned(),
                gpu: "h100".to_owned(),
                run: Err(String::new()),
                measured: vec![value],
            },
            simulated,
        }
    }

    #[test]
    fn statistics_of_errors_by_hand() {
        let errors = Errors::of(&[-10.0, 30.0, -20.0, 4.0]).unwrap();
        assert_eq!((errors.count, errors.median, errors.mean), (4, 15.0, 16.0));
        assert_eq!((errors.p90, errors.worst, errors.bias), (30.0, 30.0, -3.0));
        assert_eq!(Errors::of(&[]), None);
    }

    #[test]
    fn peers_are_compared_on_the_cases_that_both_answered() {
        let answers = [
            answer("a", 100.0, Ok(90.0), 150.0),
            answer("b", 100.0, Err("no such GPU"), 100.0),
            answer("c", 100.0, Ok(120.0), 130.0),
            answer("d", 0.0, Ok(120.0), 130.0),
        ];
        let groups = groups(&answers);
        let group = &groups[0];
        assert_eq!((groups.len(), group.answers.len(), group.answered()), (1, 4, 3));
        assert_eq!(group.refusals(), [("no such GPU", 1, "b")]);
        let ttft = group.errors(Metric::Ttft, Statistic::Mean).unwrap();
        let errors = ttft.errors.unwrap();
        assert!((errors.median - 15.0).abs() < 1e-9 && errors.count == 2, "zero has no relative error");
        let peer = &ttft.peers[0];
        assert!((peer.errors.median - 30.0).abs() < 1e-9 && peer.errors.count == 3);
        assert_eq!(peer.ours.unwrap().count, 2);
    }
}
