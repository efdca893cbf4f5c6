//! How far the simulated runs are from the measured ones, as a function of the host.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::catalog::HostOverhead;
use crate::sim::Arena;

use super::super::answer::Prepared;
use super::super::case::{Case, Metric, Statistic};
use super::constants::CONSTANTS;

/// Logarithmic error from which on errors count in proportion instead of squared (Huber): a run that other things than
/// the host make wrong does not decide.
const PROPORTIONAL_FROM: f64 = 0.1;
/// Error of a value that a run should have and the simulation does not give.
const NO_VALUE: f64 = 10.0;

/// What the host moves, in the order of tables; of each, the first statistic that was measured counts.
const TERMS: [&[(Metric, Statistic)]; 3] = [
    &[(Metric::Ttft, Statistic::P50), (Metric::Ttft, Statistic::Mean)],
    &[(Metric::Tpot, Statistic::Mean), (Metric::Itl, Statistic::Mean)],
    &[(Metric::E2e, Statistic::Mean), (Metric::E2e, Statistic::P50)],
];

/// A measured value that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Term {
    pub(super) metric: Metric,
    pub(super) statistic: Statistic,
    /// In milliseconds, above zero.
    measured_ms: f64,
}

/// The values of a case that count; none if it measured nothing that the host moves.
pub(super) fn terms(case: &Case) -> Vec<Term> {
    let term = |choices: &&[(Metric, Statistic)]| {
        choices.iter().find_map(|&(metric, statistic)| {
            let found = case.measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic))?;
            (found.value > 0.0).then_some(Term { metric, statistic, measured_ms: found.value })
        })
    };
    TERMS.iter().filter_map(term).collect()
}

/// Huber's loss of a logarithmic error; about its absolute value.
pub(super) fn loss(error: f64) -> f64 {
    if error.abs() < PROPORTIONAL_FROM {
        error * error / (2.0 * PROPORTIONAL_FROM)
    } else {
        error.abs() - PROPORTIONAL_FROM / 2.0
    }
}

/// Weight with which the square of an error has the slope of its loss.
pub(super) fn weight(error: f64) -> f64 {
    1.0 / error.abs().max(PROPORTIONAL_FROM)
}

/// Logarithmic errors of all runs, one list per run in the order of its terms.
pub(super) type RunErrors = Vec<Vec<f64>>;

/// Mean loss of one run.
pub(super) fn run_loss(errors: &[f64]) -> f64 {
    errors.iter().map(|error| loss(*error)).sum::<f64>() / errors.len() as f64
}

/// Runs that can be simulated with any host. Remembers what it has simulated.
pub(super) struct Objective {
    runs: Vec<(Prepared, Vec<Term>)>,
    known: BTreeMap<Vec<u64>, Arc<RunErrors>>,
}

impl Objective {
    /// Every run has at least one term.
    pub(super) fn new(runs: Vec<(Prepared, Vec<Term>)>) -> Self {
        Self { runs, known: BTreeMap::new() }
    }

    /// Errors with this host: ln(simulated / measured).
    pub(super) fn errors(&mut self, host: &HostOverhead) -> Arc<RunErrors> {
        let key: Vec<u64> = CONSTANTS.iter().map(|constant| constant.get(host).to_bits()).collect();
        if let Some(known) = self.known.get(&key) {
            return Arc::clone(known);
        }
        let errors = self.runs.par_iter().map_init(Arena::default, |arena, (prepared, terms)| {
            let simulated = prepared.play(arena, Some(host)).ok();
            let error = |term: &Term| {
                let value = simulated.as_ref()?.value(term.metric, term.statistic)?;
                Some(libm::log(value / term.measured_ms)).filter(|error| error.is_finite())
            };
            terms.iter().map(|term| error(term).unwrap_or(NO_VALUE)).collect()
        });
        let errors: Arc<RunErrors> = Arc::new(errors.collect());
        self.known.insert(key, Arc::clone(&errors));
        errors
    }

    /// Hosts simulated so far.
    pub(super) fn evaluations(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::case::Measured;
    use super::*;

    #[test]
    fn large_errors_count_in_proportion() {
        assert!((loss(0.05) - 0.0125).abs() < 1e-12);
        assert!((loss(-0.3) - 0.25).abs() < 1e-12);
        // The slope of the loss is that of the weighted square.
        for error in [0.02, 0.4] {
            let slope = (loss(error + 1e-6) - loss(error - 1e-6)) / 2e-6;
            assert!((slope - weight(error) * error).abs() < 1e-6);
        }
    }

    #[test]
    fn the_first_statistic_that_was_measured_counts() {
        let measured = |metric, statistic| Measured::new(metric, statistic, 7.0);
        let case = Case {
            group: String::new(),
            id: String::new(),
            model: String::new(),
            gpu: String::new(),
            run: Err(String::new()),
            measured: vec![
                measured(Metric::Ttft, Statistic::Mean),
                measured(Metric::Ttft, Statistic::P50),
                measured(Metric::Itl, Statistic::Mean),
                measured(Metric::KvBlocks, Statistic::Total),
            ],
        };
        let found: Vec<_> = terms(&case).iter().map(|term| (term.metric, term.statistic)).collect();
        assert_eq!(found, [(Metric::Ttft, Statistic::P50), (Metric::Itl, Statistic::Mean)]);
    }
}
