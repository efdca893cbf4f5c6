//! Which constants the runs determine, and how well.
//!
//! A constant is moved away from the best fit while the other free ones follow as the slopes there say they would to make
//! up for it. Where the runs that it moves do not get worse by more than they scatter, the value fits as well. A constant
//! that fits as well over more than a factor of two is not determined: it goes back to its start, or to the value nearest to
//! it that fits as well, and the others are fitted again. The widest goes first, because what it leaves open may be all
//! that made another one wide.

use crate::catalog::HostOverhead;

use super::constants::CONSTANTS;
use super::objective::{Objective, run_loss};
use super::search::{Search, followers, position};

/// Widest interval of a constant that counts as determined, as a factor.
pub(super) const WIDEST: f64 = 2.0;
/// Rise of the loss that is within the grain of the simulation and of any measurement: 0.1 % of error, or one value in
/// three that is 2.5 % off.
const LEAST_RISE: f64 = 1e-3;
/// A run is moved by a constant if its loss changes so much.
const LEAST_CHANGE: f64 = 1e-6;
/// Distances at which the loss is looked at, as factors of the best value; beyond the last, up to the bound in factors
/// of four.
const DISTANCES: [f64; 8] = [1.05, 1.1, 1.2, 1.3, 1.414, 1.6, 1.8, 2.0];
const FAR: f64 = 4.0;

/// Values of a constant that fit as well as the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Smallest, in microseconds.
    pub from_us: f64,
    /// Largest, in microseconds.
    pub to_us: f64,
    /// How many of the fitted runs the constant moves.
    pub runs: usize,
}

impl Interval {
    /// Largest over smallest.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.to_us / self.from_us
    }
}

/// A fit of the constants that the runs determine.
pub(super) struct Identified {
    pub(super) host: HostOverhead,
    /// The start, with the constants that are not determined where they were left.
    pub(super) anchor: HostOverhead,
    /// Indices into [`CONSTANTS`] of those that were fitted.
    pub(super) free: Vec<usize>,
    /// Of every constant, by its index.
    pub(super) intervals: Vec<Interval>,
}

/// Fits, and returns constants to their start until the runs determine all that are left.
pub(super) fn identify(objective: &mut Objective, start: &HostOverhead, runs: &[usize]) -> Identified {
    let mut free: Vec<usize> = (0..CONSTANTS.len()).collect();
    let mut anchor = *start;
    let mut intervals = vec![Interval { from_us: 0.0, to_us: 0.0, runs: 0 }; CONSTANTS.len()];
    loop {
        let search = Search { start: &anchor, free: &free, runs };
        let (host, _) = search.rough(objective);
        for (index, interval) in free.iter().zip(search.intervals(objective, &host)) {
            intervals[*index] = interval;
        }
        let widest = free.iter().copied().max_by(|a, b| intervals[*a].factor().total_cmp(&intervals[*b].factor()));
        match widest.filter(|widest| intervals[*widest].factor() > WIDEST) {
            None => {
                let host = search.best(objective);
                for (index, interval) in free.iter().zip(search.intervals(objective, &host)) {
                    intervals[*index] = interval;
                }
                return Identified { host, anchor, free, intervals };
            }
            Some(widest) => {
                let (constant, interval) = (&CONSTANTS[widest], intervals[widest]);
                if interval.runs > 0 {
                    constant.set(&mut anchor, constant.get(start).clamp(interval.from_us, interval.to_us));
                }
                // What moves no run is left alone by all others too: no need to fit again for each.
                free.retain(|index| *index != widest && intervals[*index].runs > 0);
            }
        }
    }
}

/// Fits other runs in the same way, without a look at those that are left out: constants that were bounded are bounded
/// anew. Which are fitted, bounded or kept is taken over.
pub(super) fn refit(
    objective: &mut Objective,
    start: &HostOverhead,
    identified: &Identified,
    runs: &[usize],
) -> HostOverhead {
    let is_bounded = |index: &usize| CONSTANTS[*index].get(&identified.anchor) != CONSTANTS[*index].get(start);
    let mut anchor = *start;
    if (0..CONSTANTS.len()).any(|index| is_bounded(&index)) {
        let searched: Vec<usize> =
            (0..CONSTANTS.len()).filter(|index| is_bounded(index) || identified.free.contains(index)).collect();
        let search = Search { start, free: &searched, runs };
        let (host, _) = search.rough(objective);
        for (index, interval) in searched.iter().zip(search.intervals(objective, &host)) {
            if is_bounded(index) {
                let constant = &CONSTANTS[*index];
                constant.set(&mut anchor, constant.get(start).clamp(interval.from_us, interval.to_us));
            }
        }
    }
    Search { start: &anchor, free: &identified.free, runs }.best(objective)
}

impl Search<'_> {
    /// The interval of each free constant around the best host.
    fn intervals(&self, objective: &mut Objective, best: &HostOverhead) -> Vec<Interval> {
        let (hessian, _) = self.model(objective, best);
        (0..self.free.len())
            .map(|position| {
                let follow = followers(&hessian, position);
                let mut moved_runs = vec![false; self.runs.len()];
                let mut limit = |sign: f64| self.limit(objective, best, position, &follow, sign, &mut moved_runs);
                let (from_us, to_us) = (limit(-1.0), limit(1.0));
                Interval { from_us, to_us, runs: moved_runs.iter().filter(|moved| **moved).count() }
            })
            .collect()
    }

    /// The farthest value in one direction that fits as well.
    fn limit(
        &self,
        objective: &mut Objective,
        best: &HostOverhead,
        free: usize,
        follow: &[f64],
        sign: f64,
        moved_runs: &mut [bool],
    ) -> f64 {
        let constant = &CONSTANTS[self.free[free]];
        let (at, (least, most)) = (position(constant, best), constant.bounds_us);
        let end = libm::log(if sign < 0.0 { least } else { most });
        let far = (1..).map(|power| libm::log(DISTANCES[DISTANCES.len() - 1]) + f64::from(power) * libm::log(FAR));
        let mut reached = constant.get(best).clamp(least, most);
        for distance in DISTANCES.into_iter().map(libm::log).chain(far) {
            let distance = distance.min((end - at).abs());
            let host = self.moved_along(best, follow, sign * distance);
            if self.is_worse(objective, best, &host, moved_runs) {
                break;
            }
            reached = constant.get(&host);
            if distance >= (end - at).abs() {
                break;
            }
        }
        reached
    }

    /// The loss of the runs that differ rises by more than its standard error over these runs.
    fn is_worse(
        &self,
        objective: &mut Objective,
        best: &HostOverhead,
        other: &HostOverhead,
        moved_runs: &mut [bool],
    ) -> bool {
        let (best, other) = (objective.errors(best), objective.errors(other));
        let mut rises = Vec::new();
        for (run, moved) in self.runs.iter().zip(moved_runs) {
            let rise = run_loss(&other[*run]) - run_loss(&best[*run]);
            if rise.abs() > LEAST_CHANGE {
                *moved = true;
                rises.push(rise);
            }
        }
        let (mean, deviation) = mean_and_standard_error(&rises);
        mean > deviation.max(LEAST_RISE)
    }
}

/// Mean of a sample and its standard error, which the jackknife (leave one run out) gives; zero for a single value.
pub(super) fn mean_and_standard_error(sample: &[f64]) -> (f64, f64) {
    let count = sample.len() as f64;
    if sample.is_empty() {
        return (0.0, 0.0);
    }
    let mean = sample.iter().sum::<f64>() / count;
    let squares: f64 = sample.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, libm::sqrt(squares / (count * (count - 1.0).max(1.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_error_by_hand() {
        assert_eq!(mean_and_standard_error(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(mean_and_standard_error(&[5.0]), (5.0, 0.0));
        assert_eq!(mean_and_standard_error(&[]), (0.0, 0.0));
    }
}
