//! Placing labels beside their points, without covering other labels, the front, or more of the data than necessary.

use super::scene::{Frame, Position};

/// A label that wants a place.
pub(super) struct Label {
    /// The point it belongs to.
    pub(super) point: Position,
    /// Its width and height.
    pub(super) size: (f64, f64),
    /// It is left out rather than put far away or on top of data.
    pub(super) optional: bool,
}

/// What labels must keep clear of, and should.
pub(super) struct Surroundings<'a> {
    /// Labels stay inside.
    pub(super) area: Frame,
    /// Boxes no label may touch: markers and pieces of the front.
    pub(super) obstacles: &'a [Frame],
    /// Points better left uncovered.
    pub(super) points: &'a [Position],
    /// Direction in which both axes get better, as signs on the page; labels prefer that side.
    pub(super) outward: [f64; 2],
}

/// Distances from the point to the label's near edge that are tried, nearest first.
const DISTANCES: [f64; 6] = [10.0, 22.0, 34.0, 46.0, 66.0, 92.0];
/// Directions that are tried, as multiples of the outward direction; halves shift the label along its point.
const DIRECTIONS: [[f64; 2]; 10] = [
    [1.0, 1.0],
    [1.0, 0.0],
    [0.5, 1.0],
    [0.0, 1.0],
    [-0.5, 1.0],
    [1.0, -1.0],
    [-1.0, 1.0],
    [-1.0, 0.0],
    [0.0, -1.0],
    [-1.0, -1.0],
];
/// Cost of covering one point, in pixels of distance.
const COVER_COST: f64 = 4.0;
/// Cost of each step down the list of directions, in pixels of distance.
const DIRECTION_COST: f64 = 3.0;

/// Cost up to which an optional label is drawn.
const OPTIONAL_COST: f64 = 60.0;

/// A frame for each label, in order; `None` where every place would cost too much or touch an obstacle, an earlier label or the border.
pub(super) fn place(labels: &[Label], surroundings: &Surroundings<'_>) -> Vec<Option<Frame>> {
    let mut placed: Vec<Option<Frame>> = Vec::new();
    for label in labels {
        let mut best: Option<(f64, Frame)> = None;
        for distance in DISTANCES {
            for (rank, direction) in DIRECTIONS.iter().enumerate() {
                let frame = frame_at(label, *direction, surroundings, distance);
                let taken = labels.iter().zip(&placed).any(|(other, other_frame)| {
                    other_frame.is_some_and(|other_frame| {
                        other_frame.grown(4.0).overlaps(&frame)
                            || leader_crosses(label.point, &frame, &other_frame)
                            || leader_crosses(other.point, &other_frame, &frame)
                    })
                });
                if taken || !is_free(&frame, surroundings) {
                    continue;
                }
                let covered = surroundings.points.iter().filter(|point| frame.contains(**point)).count();
                let cost = distance + DIRECTION_COST * rank as f64 + COVER_COST * covered as f64;
                let affordable = !label.optional || cost <= OPTIONAL_COST;
                if affordable && best.is_none_or(|(lowest, _)| cost < lowest) {
                    best = Some((cost, frame));
                }
            }
        }
        placed.push(best.map(|(_, frame)| frame));
    }
    placed
}

/// Whether the line from a point to its label's frame runs through another frame (sampled every few pixels).
fn leader_crosses(point: Position, frame: &Frame, other: &Frame) -> bool {
    const SAMPLES: u32 = 24;
    let end = frame.nearest(point);
    (0..=SAMPLES).any(|sample| {
        let share = f64::from(sample) / f64::from(SAMPLES);
        other.contains([point[0] + share * (end[0] - point[0]), point[1] + share * (end[1] - point[1])])
    })
}

fn is_free(frame: &Frame, surroundings: &Surroundings<'_>) -> bool {
    surroundings.area.encloses(frame) && !surroundings.obstacles.iter().any(|obstacle| obstacle.overlaps(frame))
}

/// The frame of a label in a direction from its point, moved into the area if it would leave it.
fn frame_at(label: &Label, direction: [f64; 2], surroundings: &Surroundings<'_>, distance: f64) -> Frame {
    let centre = |axis: usize, length: f64| {
        label.point[axis] + direction[axis] * surroundings.outward[axis] * (distance + length / 2.0)
    };
    let ((width, height), area) = (label.size, &surroundings.area);
    let left = (centre(0, width) - width / 2.0).min(area.right - width).max(area.left);
    let top = (centre(1, height) - height / 2.0).min(area.bottom - height).max(area.top);
    Frame { left, right: left + width, top, bottom: top + height }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AREA: Frame = Frame { left: 0.0, top: 0.0, right: 400.0, bottom: 300.0 };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn placed_labels_touch_nothing(points in prop::collection::vec((0.0f64..400.0, 0.0f64..300.0), 1..8)) {
            let points: Vec<Position> = points.into_iter().map(|(x, y)| [x, y]).collect();
            let marker = |[x, y]: Position| Frame { left: x, right: x, top: y, bottom: y }.grown(4.0);
            let obstacles: Vec<Frame> = points.iter().map(|point| marker(*point)).collect();
            let labels: Vec<Label> = points.iter().map(|point| Label { point: *point, size: (90.0, 24.0), optional: false }).collect();
            let surroundings =
                Surroundings { area: AREA, obstacles: &obstacles, points: &points, outward: [1.0, -1.0] };
            let placed = place(&labels, &surroundings);
            let frames: Vec<Frame> = placed.iter().flatten().copied().collect();
            prop_assert!(!frames.is_empty());
            for (label, frame) in labels.iter().zip(&placed) {
                let Some(frame) = frame else { continue };
                for other in frames.iter().filter(|other| *other != frame) {
                    prop_assert!(!leader_crosses(label.point, frame, other));
                }
            }
            for (at, frame) in frames.iter().enumerate() {
                prop_assert!(AREA.encloses(frame));
                prop_assert!(!obstacles.iter().any(|obstacle| obstacle.overlaps(frame)));
                prop_assert!(!frames[at + 1..].iter().any(|other| other.overlaps(frame)));
            }
        }
    }

    #[test]
    fn the_outward_side_is_preferred() {
        let label = Label { point: [100.0, 100.0], size: (50.0, 20.0), optional: false };
        let surroundings = Surroundings { area: AREA, obstacles: &[], points: &[], outward: [1.0, -1.0] };
        let frame = place(&[label], &surroundings)[0].unwrap();
        assert!(frame.left > 100.0 && frame.bottom < 100.0);
    }

    #[test]
    fn optional_labels_never_hide_the_data() {
        let points: Vec<Position> = (0..4000).map(|at| [f64::from(at % 80) * 5.0, f64::from(at / 80) * 6.0]).collect();
        let surroundings = Surroundings { area: AREA, obstacles: &[], points: &points, outward: [1.0, -1.0] };
        let label = |optional| Label { point: [200.0, 150.0], size: (90.0, 24.0), optional };
        assert!(place(&[label(false)], &surroundings)[0].is_some());
        assert!(place(&[label(true)], &surroundings)[0].is_none());
    }
}
