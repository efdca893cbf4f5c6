//! Dominance and the exact Pareto front.

use std::cmp::Ordering;

use super::Direction;

/// Whether point `a` is at least as good as `b` in every objective and better in one. NaN is never good.
#[must_use]
pub fn dominates(a: &[f64], b: &[f64], directions: &[Direction]) -> bool {
    let mut better_in_one = false;
    for ((a, b), direction) in a.iter().zip(b).zip(directions) {
        let (cost_a, cost_b) = (direction.cost(*a), direction.cost(*b));
        match cost_a.partial_cmp(&cost_b) {
            Some(Ordering::Less) => better_in_one = true,
            Some(Ordering::Equal) => {}
            Some(Ordering::Greater) | None => return false,
        }
    }
    better_in_one
}

/// Positions of the points that no other point dominates, best first in the first objective, then in the next ones.
/// Equal points are all kept; points with a NaN are never on the front. No objectives: no front.
///
/// Lexicographic sort and an archive: after sorting, a point can only be dominated by an earlier one. The archive member
/// that dominated last is tried first, which makes the usual case one comparison (Bentley, Clarkson and Levine, "Fast
/// linear expected-time algorithms for computing maxima and convex hulls", Algorithmica 9, 1993). With two objectives
/// the archive is one point, since the last member has the best second objective so far.
///
/// # Panics
/// If the number of values is not a multiple of the number of objectives.
#[must_use]
pub fn front(values: &[f64], directions: &[Direction]) -> Vec<usize> {
    let objectives = directions.len();
    if objectives == 0 {
        return Vec::new();
    }
    assert!(values.len().is_multiple_of(objectives), "every point has {objectives} values");
    let costs: Vec<f64> =
        values.iter().enumerate().map(|(at, value)| directions[at % objectives].cost(*value)).collect();
    let cost = |point: usize| &costs[point * objectives..(point + 1) * objectives];
    let mut order: Vec<usize> =
        (0..values.len() / objectives).filter(|point| cost(*point).iter().all(|value| !value.is_nan())).collect();
    order.sort_unstable_by(|a, b| compare(cost(*a), cost(*b)).then(a.cmp(b)));

    let mut members: Vec<usize> = Vec::new();
    let mut archive: Vec<usize> = Vec::new();
    let mut previous: Option<(usize, bool)> = None;
    for point in order {
        // Equal points are neighbours and share their fate; the archive holds only one of them.
        let on_front = match previous {
            Some((other, on_front)) if cost(other) == cost(point) => on_front,
            _ => {
                let dominator = archive.iter().position(|member| no_worse(cost(*member), cost(point)));
                match dominator {
                    Some(position) => archive[..=position].rotate_right(1),
                    None if objectives == 2 => archive = vec![point],
                    None => archive.push(point),
                }
                dominator.is_none()
            }
        };
        if on_front {
            members.push(point);
        }
        previous = Some((point, on_front));
    }
    members
}

fn compare(a: &[f64], b: &[f64]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn no_worse(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

impl Direction {
    /// The value turned into a cost: lower is better. Negative zero becomes zero, so that equal values sort as equal.
    pub(super) fn cost(self, value: f64) -> f64 {
        match self {
            Self::Minimise => value + 0.0,
            Self::Maximise => -value + 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UP: Direction = Direction::Maximise;
    const DOWN: Direction = Direction::Minimise;

    /// Coordinates on a coarse grid, so that ties and duplicates are common, with an occasional NaN.
    fn points(objectives: usize) -> impl Strategy<Value = Vec<f64>> {
        let value = prop_oneof![20 => (-4i32..5).prop_map(f64::from), 1 => Just(f64::NAN), 1 => Just(-0.0)];
        prop::collection::vec(prop::collection::vec(value, objectives), 0..60).prop_map(|points| points.concat())
    }

    fn brute_force(values: &[f64], directions: &[Direction]) -> Vec<usize> {
        let points: Vec<&[f64]> = values.chunks(directions.len()).collect();
        (0..points.len())
            .filter(|at| points[*at].iter().all(|value| !value.is_nan()))
            .filter(|at| {
                let rivals = points.iter().filter(|rival| rival.iter().all(|value| !value.is_nan()));
                !rivals.into_iter().any(|rival| dominates(rival, points[*at], directions))
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn two_objectives_equal_brute_force(values in points(2)) {
            let mut members = front(&values, &[UP, DOWN]);
            members.sort_unstable();
            prop_assert_eq!(members, brute_force(&values, &[UP, DOWN]));
        }

        #[test]
        fn four_objectives_equal_brute_force(values in points(4)) {
            let directions = [UP, DOWN, UP, UP];
            let mut members = front(&values, &directions);
            members.sort_unstable();
            prop_assert_eq!(members, brute_force(&values, &directions));
        }

        #[test]
        fn one_objective_is_the_optimum(values in prop::collection::vec(-9.0f64..9.0, 1..40)) {
            let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(front(&values, &[UP]).into_iter().all(|point| values[point] == best));
        }
    }

    #[test]
    fn the_front_runs_from_the_best_first_objective_down() {
        let points = [[1.0, 9.0], [5.0, 5.0], [9.0, 1.0], [4.0, 4.0], [5.0, 5.0]];
        assert_eq!(front(points.as_flattened(), &[UP, UP]), [2, 1, 4, 0]);
    }

    #[test]
    fn no_points_and_no_objectives() {
        assert!(front(&[], &[UP, UP]).is_empty());
        assert!(front(&[1.0], &[]).is_empty());
    }
}
