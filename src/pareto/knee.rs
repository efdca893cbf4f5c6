//! The knee: the front's point with the best balance.

use super::Direction;

/// The member of the front that lies farthest beyond the hyperplane through the front's extremes, after scaling each
/// objective to the front's range (Das, "On characterizing the knee of the Pareto curve based on normal-boundary
/// intersection", Structural Optimization 18, 1999). On ties the first in `members`; `None` for an empty front.
///
/// `members` are positions of points in `values`, as [`super::front()`] returns them.
#[must_use]
pub fn knee(values: &[f64], directions: &[Direction], members: &[usize]) -> Option<usize> {
    let objectives = directions.len();
    let gain = |point: usize, axis: usize| -directions[axis].cost(values[point * objectives + axis]);
    let ranges: Vec<(f64, f64)> = (0..objectives)
        .map(|axis| {
            let gains = members.iter().map(|point| gain(*point, axis));
            gains.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), gain| (low.min(gain), high.max(gain)))
        })
        .collect();
    // The hyperplane through the scaled extremes is where the scaled gains sum to one, so the distance grows with the sum.
    let balance = |point: usize| -> f64 {
        let scaled = |axis: usize| {
            let (low, high) = ranges[axis];
            if high > low { (gain(point, axis) - low) / (high - low) } else { 0.0 }
        };
        (0..objectives).map(scaled).sum()
    };
    let mut best: Option<(f64, usize)> = None;
    for member in members {
        let balance = balance(*member);
        if best.is_none_or(|(highest, _)| balance > highest) {
            best = Some((balance, *member));
        }
    }
    best.map(|(_, member)| member)
}

#[cfg(test)]
mod tests {
    use super::super::front;
    use super::*;

    #[test]
    fn the_bulge_is_the_knee_in_any_unit() {
        let points = [[0.0, 10_000.0], [8.0, 8_000.0], [10.0, 0.0], [5.0, 8_500.0]];
        let directions = [Direction::Maximise; 2];
        let members = front(points.as_flattened(), &directions);
        assert_eq!(knee(points.as_flattened(), &directions, &members), Some(1));
    }

    #[test]
    fn degenerate_fronts() {
        let directions = [Direction::Minimise; 2];
        assert_eq!(knee(&[], &directions, &[]), None);
        assert_eq!(knee(&[3.0, 3.0], &directions, &[0]), Some(0));
        assert_eq!(knee(&[3.0, 1.0, 1.0, 3.0], &directions, &[1, 0]), Some(1));
    }
}
