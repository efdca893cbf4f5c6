//! The host that fits best: a coarse scan of each constant, then Levenberg-Marquardt steps with finite differences, in turns
//! with small steps of single constants.
//!
//! The scan finds constants that show only beyond some value (work that an asynchronous host hides behind the GPU), where
//! slopes at the start say nothing. Slopes are taken over five per cent, above the grain of the simulation; where a median
//! jumps from one request to the next they mislead all the same, and steps of one
//! constant, alone or with the others making up for it, find the way on.

use crate::catalog::HostOverhead;

use super::constants::{CONSTANTS, Constant};
use super::objective::{Objective, RunErrors, run_loss, weight};

/// Pulls constants towards their start: this times the square of the logarithmic distance. A factor of two costs as much
/// as 0.005 % of error, so it only decides where the data do not.
const PULL: f64 = 1e-4;
/// Factors of the scan.
const FACTORS: [f64; 6] = [0.5, 2.0, 0.25, 4.0, 0.125, 8.0];
/// Distances of single steps, in the logarithm.
const SINGLE_STEPS: [f64; 4] = [0.1, 0.05, 0.02, 0.01];
/// Turns of both kinds of steps at most, and the gain of single steps that is worth another turn.
const MOST_TURNS: usize = 4;
const WORTH_A_TURN: f64 = 2e-5;
/// A scan moves a constant only for so much less loss: 0.02 % of error.
const WORTH_MOVING: f64 = 2e-4;
/// Distance of finite differences, in the logarithm.
const DIFFERENCE: f64 = 0.05;
/// Iterations at most; three to six are usual.
const MOST_ITERATIONS: usize = 15;
/// The search ends when a step gains less.
const LEAST_GAIN: f64 = 1e-7;
/// Longest step, in the logarithm.
const LONGEST_STEP: f64 = 1.0;

/// Constants that are searched; others keep the value of the start.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) start: &'a HostOverhead,
    /// Indices into [`CONSTANTS`].
    pub(super) free: &'a [usize],
    /// Indices of the runs to fit.
    pub(super) runs: &'a [usize],
}

/// Logarithm of a constant, within its bounds.
pub(super) fn position(constant: &Constant, host: &HostOverhead) -> f64 {
    let (least, most) = constant.bounds_us;
    libm::log(constant.get(host).clamp(least, most))
}

/// Moves a constant by a logarithmic distance, within its bounds.
pub(super) fn moved(host: &HostOverhead, constant: &Constant, by: f64) -> HostOverhead {
    let (least, most) = constant.bounds_us;
    let mut host = *host;
    let value = libm::exp(position(constant, &host) + by).clamp(least, most);
    constant.set(&mut host, value);
    host
}

/// Derivatives of the errors: by free constant, by run, by term.
pub(super) type Slopes = Vec<RunErrors>;

impl Search<'_> {
    /// Mean loss of the fitted runs, and the pull to the start.
    pub(super) fn cost(&self, objective: &mut Objective, host: &HostOverhead) -> f64 {
        let errors = objective.errors(host);
        let losses: f64 = self.runs.iter().map(|run| run_loss(&errors[*run])).sum();
        losses / self.runs.len() as f64 + PULL * self.distances(host).map(|distance| distance * distance).sum::<f64>()
    }

    fn distances(&self, host: &HostOverhead) -> impl Iterator<Item = f64> {
        self.free.iter().map(|index| {
            let constant = &CONSTANTS[*index];
            position(constant, host) - position(constant, self.start)
        })
    }

    /// The host with the least cost.
    pub(super) fn best(&self, objective: &mut Objective) -> HostOverhead {
        let (mut host, mut cost) = self.rough(objective);
        for _ in 0..MOST_TURNS {
            let before = cost;
            (host, cost) = self.step_singly(objective, host, cost);
            if before - cost < WORTH_A_TURN {
                break;
            }
            (host, cost) = self.descend(objective, host, cost);
        }
        host
    }

    /// A host near the best, and its cost: good enough to see which constants matter.
    pub(super) fn rough(&self, objective: &mut Objective) -> (HostOverhead, f64) {
        let mut host = *self.start;
        let mut cost = self.cost(objective, &host);
        for index in self.free {
            let constant = &CONSTANTS[*index];
            let from = host;
            for factor in FACTORS {
                let candidate = moved(&from, constant, libm::log(factor));
                let reached = self.cost(objective, &candidate);
                if reached < cost - WORTH_MOVING {
                    (host, cost) = (candidate, reached);
                }
            }
        }
        self.descend(objective, host, cost)
    }

    /// Moves one constant at a time, alone or with the others making up for it.
    fn step_singly(&self, objective: &mut Objective, mut host: HostOverhead, mut cost: f64) -> (HostOverhead, f64) {
        let (hessian, _) = self.model(objective, &host);
        let alone = |leader| Vec::from_iter((0..self.free.len()).map(|index| if index == leader { 1.0 } else { 0.0 }));
        let directions: Vec<Vec<f64>> =
            (0..self.free.len()).flat_map(|leader| [alone(leader), followers(&hessian, leader)]).collect();
        for step in SINGLE_STEPS.into_iter().flat_map(|step| [step, -step]) {
            for direction in &directions {
                let candidate = self.moved_along(&host, direction, step);
                let reached = self.cost(objective, &candidate);
                if reached < cost {
                    (host, cost) = (candidate, reached);
                }
            }
        }
        (host, cost)
    }

    /// Moves every free constant by its share of a logarithmic distance.
    pub(super) fn moved_along(&self, host: &HostOverhead, shares: &[f64], distance: f64) -> HostOverhead {
        let step = |host: HostOverhead, (index, share): (&usize, &f64)| {
            if *share == 0.0 { host } else { moved(&host, &CONSTANTS[*index], distance * share) }
        };
        self.free.iter().zip(shares).fold(*host, step)
    }

    fn descend(&self, objective: &mut Objective, mut host: HostOverhead, mut cost: f64) -> (HostOverhead, f64) {
        let mut damping = 1e-3;
        for _ in 0..MOST_ITERATIONS {
            let (hessian, gradient) = self.model(objective, &host);
            let mut gain = 0.0;
            while damping < 1e4 {
                let candidate = self.stepped(&host, &hessian, &gradient, damping);
                let reached = self.cost(objective, &candidate);
                damping *= if reached < cost { 0.1 } else { 10.0 };
                if reached < cost {
                    gain = cost - reached;
                    (host, cost) = (candidate, reached);
                    break;
                }
            }
            damping = damping.clamp(1e-6, 1.0);
            if gain < LEAST_GAIN {
                break;
            }
        }
        (host, cost)
    }

    fn stepped(&self, host: &HostOverhead, hessian: &[Vec<f64>], gradient: &[f64], damping: f64) -> HostOverhead {
        let mut damped = hessian.to_vec();
        for (index, row) in damped.iter_mut().enumerate() {
            row[index] *= 1.0 + damping;
        }
        let step = solve(damped, gradient.iter().map(|slope| -slope).collect());
        let longest = step.iter().fold(LONGEST_STEP, |longest, step| longest.max(step.abs()));
        self.free
            .iter()
            .zip(step)
            .fold(*host, |host, (index, step)| moved(&host, &CONSTANTS[*index], step * LONGEST_STEP / longest))
    }

    /// Slopes of all errors at a host.
    pub(super) fn slopes(&self, objective: &mut Objective, host: &HostOverhead) -> Slopes {
        let here = objective.errors(host);
        let slope = |index: &usize| {
            let constant = &CONSTANTS[*index];
            let at = position(constant, host);
            // Backwards at the upper bound.
            let ahead = moved(host, constant, DIFFERENCE);
            let ahead = if position(constant, &ahead) > at { ahead } else { moved(host, constant, -DIFFERENCE) };
            let distance = position(constant, &ahead) - at;
            let there = objective.errors(&ahead);
            let of_run = |(there, here): (&Vec<f64>, &Vec<f64>)| {
                there.iter().zip(here).map(|(there, here)| (there - here) / distance).collect()
            };
            there.iter().zip(here.iter()).map(of_run).collect()
        };
        self.free.iter().map(slope).collect()
    }

    /// Second and first derivatives of the cost at a host (Gauss-Newton, with the weights of the errors there).
    pub(super) fn model(&self, objective: &mut Objective, host: &HostOverhead) -> (Vec<Vec<f64>>, Vec<f64>) {
        let slopes = self.slopes(objective, host);
        let errors = objective.errors(host);
        let sum = |of: &dyn Fn(usize, usize) -> f64| {
            let of_run = |run: &usize| {
                let terms = errors[*run].len();
                (0..terms).map(|term| of(*run, term) * weight(errors[*run][term])).sum::<f64>() / terms as f64
            };
            self.runs.iter().map(of_run).sum::<f64>() / self.runs.len() as f64
        };
        let count = self.free.len();
        let mut hessian = vec![vec![0.0; count]; count];
        for (row, columns) in hessian.iter_mut().enumerate() {
            for (column, entry) in columns.iter_mut().enumerate() {
                *entry = sum(&|run, term| slopes[row][run][term] * slopes[column][run][term]);
            }
            columns[row] += 2.0 * PULL;
        }
        let gradient = self.distances(host).enumerate().map(|(row, distance)| {
            2.0 * PULL * distance + sum(&|run, term| slopes[row][run][term] * errors[run][term])
        });
        (hessian, gradient.collect())
    }
}

/// How far each free constant follows when one moves by one, so that the quadratic model of the cost stays least.
pub(super) fn followers(hessian: &[Vec<f64>], leader: usize) -> Vec<f64> {
    let others: Vec<usize> = (0..hessian.len()).filter(|index| *index != leader).collect();
    let matrix = others.iter().map(|row| others.iter().map(|column| hessian[*row][*column]).collect()).collect();
    let right = others.iter().map(|row| -hessian[*row][leader]).collect();
    let mut follow = vec![1.0; hessian.len()];
    for (index, share) in others.into_iter().zip(solve(matrix, right)) {
        follow[index] = share;
    }
    follow
}

/// Solves a positive definite system by elimination.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for pivot in 0..size {
        let pivot_row = matrix[pivot].clone();
        for row in pivot + 1..size {
            let factor = matrix[row][pivot] / pivot_row[pivot];
            for (entry, above) in matrix[row].iter_mut().zip(&pivot_row) {
                *entry -= factor * above;
            }
            right[row] -= factor * right[pivot];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|column| matrix[row][column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::catalog::{Catalog, DEFAULT_ENGINE};

    #[test]
    fn a_small_system_by_hand() {
        let solution = solve(vec![vec![4.0, 2.0], vec![2.0, 3.0]], vec![10.0, 9.0]);
        assert!((solution[0] - 1.5).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12);
    }

    #[test]
    fn constants_stay_within_their_bounds() {
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let host = catalog.engine(DEFAULT_ENGINE).unwrap().host;
        for constant in CONSTANTS {
            let (least, most) = constant.bounds_us;
            assert_eq!(constant.get(&moved(&host, constant, -99.0)), least, "{}", constant.name);
            assert_eq!(constant.get(&moved(&host, constant, 99.0)), most, "{}", constant.name);
        }
    }

    #[test]
    fn constants_that_compensate_follow_each_other() {
        // cost = (a + b)^2, nearly.
        let follow = followers(&[vec![1.0 + 1e-9, 1.0], vec![1.0, 1.0 + 1e-9]], 0);
        assert!((follow[1] + 1.0).abs() < 1e-6, "{follow:?}");
    }
}
