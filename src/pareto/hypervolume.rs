//! Hypervolume: the size of the region that a set of points dominates up to a reference point (Zitzler and Thiele,
//! "Multiobjective optimization using evolutionary algorithms", PPSN V, 1998).

use super::Direction;
use super::front::front;

/// Hypervolume of points with two or three objectives, in the product of the objectives' units. Points that do not beat
/// the reference point in every objective, and points with a NaN, add nothing. `None` for other numbers of objectives.
#[must_use]
pub fn hypervolume(values: &[f64], directions: &[Direction], reference: &[f64]) -> Option<f64> {
    let objectives = directions.len();
    if !(2..=3).contains(&objectives) || reference.len() != objectives {
        return None;
    }
    let mut gains = Vec::new();
    for point in front(values, directions) {
        let gain: Vec<f64> = (0..objectives)
            .map(|axis| {
                let direction = directions[axis];
                direction.cost(reference[axis]) - direction.cost(values[point * objectives + axis])
            })
            .collect();
        if gain.iter().all(|gain| *gain > 0.0) {
            gains.push(gain);
        }
    }
    Some(if objectives == 2 { area(&mut gains) } else { volume(&mut gains) })
}

/// Area of the union of the boxes from the origin to each point (first two coordinates).
fn area(gains: &mut [Vec<f64>]) -> f64 {
    gains.sort_unstable_by(|a, b| b[0].total_cmp(&a[0]));
    let (mut area, mut height) = (0.0, 0.0);
    for gain in gains.iter() {
        if gain[1] > height {
            area += gain[0] * (gain[1] - height);
            height = gain[1];
        }
    }
    area
}

/// Volume of the union of boxes: slabs between consecutive third coordinates, each the area of the boxes that reach it.
fn volume(gains: &mut [Vec<f64>]) -> f64 {
    gains.sort_unstable_by(|a, b| b[2].total_cmp(&a[2]));
    let mut volume = 0.0;
    for reaching in 1..=gains.len() {
        let floor = gains.get(reaching).map_or(0.0, |next| next[2]);
        let depth = gains[reaching - 1][2] - floor;
        if depth > 0.0 {
            volume += depth * area(&mut gains[..reaching].to_vec());
        }
    }
    volume
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UP: Direction = Direction::Maximise;

    /// Counts the unit cells of the grid that some point covers.
    fn cells(points: &[Vec<u32>], objectives: usize) -> f64 {
        let side = 6u32;
        let count = (0..side.pow(objectives as u32))
            .filter(|cell| {
                let corner: Vec<u32> = (0..objectives as u32).map(|axis| cell / side.pow(axis) % side).collect();
                points.iter().any(|point| point.iter().zip(&corner).all(|(value, corner)| value > corner))
            })
            .count();
        count as f64
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn equals_counted_cells(points in prop::collection::vec(prop::collection::vec(0u32..7, 3), 0..12)) {
            for objectives in [2, 3] {
                let cut: Vec<Vec<u32>> = points.iter().map(|point| point[..objectives].to_vec()).collect();
                let values: Vec<f64> = cut.concat().into_iter().map(f64::from).collect();
                let measured = hypervolume(&values, &vec![UP; objectives], &vec![0.0; objectives]);
                prop_assert_eq!(measured, Some(cells(&cut, objectives)));
            }
        }
    }

    #[test]
    fn minimised_objectives_count_down_from_the_reference() {
        let points = [[2.0, 10.0], [4.0, 30.0]];
        let directions = [Direction::Minimise, UP];
        assert_eq!(hypervolume(points.as_flattened(), &directions, &[5.0, 0.0]), Some(3.0 * 10.0 + 1.0 * 20.0));
        assert_eq!(hypervolume(&[1.0], &[UP], &[0.0]), None);
    }
}
