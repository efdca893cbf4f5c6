//! One look at a run: two axes, an SLA, the front and its knee.

use super::{Bound, Direction, feasible, front, knee};
use crate::diag::{Diagnostic, Diagnostics};
use crate::results::{Column, Table, schema};

/// The two objectives of a front.
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    /// Horizontal axis.
    pub x: &'static Column,
    /// Vertical axis.
    pub y: &'static Column,
    directions: [Direction; 2],
}

impl Axes {
    /// The axes of these column names.
    ///
    /// # Errors
    /// If a column does not exist or has no direction in which it gets better.
    pub fn new(x: &str, y: &str) -> Result<Self, Diagnostics> {
        let mut problems = Vec::new();
        let mut axis = |name: &str| objective(name).map_err(|problem| problems.push(problem)).ok();
        match (axis(x), axis(y)) {
            (Some((x, first)), Some((y, second))) => Ok(Self { x, y, directions: [first, second] }),
            _ => Err(Diagnostics(problems)),
        }
    }

    /// Which way each axis gets better.
    #[must_use]
    pub fn directions(&self) -> [Direction; 2] {
        self.directions
    }
}

fn objective(name: &str) -> Result<(&'static Column, Direction), Diagnostic> {
    let column = schema::column(name)?;
    let direction = column.better.ok_or_else(|| {
        Diagnostic::new(format!("column `{name}` cannot be an objective: neither more nor less of it is better"))
            .help("choose a latency, a throughput, a speed or a cost, e.g. `gen_speed_p95` or `throughput_per_gpu`")
    })?;
    Ok((column, direction))
}

/// The rows of a run under two axes and an SLA.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Per row, the position in the plane; NaN where a value is null.
    pub points: Vec<[f64; 2]>,
    /// Per row, whether every bound holds and both values exist.
    pub feasible: Vec<bool>,
    /// Rows on the front of the feasible ones, best x first.
    pub front: Vec<usize>,
    /// Row of the front's knee; `None` if nothing is feasible.
    pub knee: Option<usize>,
}

impl Selection {
    /// Filters by the SLA and computes front and knee.
    ///
    /// # Errors
    /// If a column of an axis or bound was not read, or holds text.
    pub fn new(table: &Table, axes: &Axes, bounds: &[Bound]) -> Result<Self, Diagnostics> {
        let (x, y) = (table.numbers(&axes.x.name)?, table.numbers(&axes.y.name)?);
        let points: Vec<[f64; 2]> = x.into_iter().zip(y).map(|(x, y)| [x, y]).collect();
        let mut feasible = feasible(table, bounds)?;
        for (verdict, point) in feasible.iter_mut().zip(&points) {
            *verdict &= point.iter().all(|value| !value.is_nan());
        }
        let rows: Vec<usize> = (0..points.len()).filter(|row| feasible[*row]).collect();
        let values: Vec<f64> = rows.iter().flat_map(|row| points[*row]).collect();
        let members = front(&values, &axes.directions);
        let knee = knee(&values, &axes.directions, &members).map(|member| rows[member]);
        let front = members.into_iter().map(|member| rows[member]).collect();
        Ok(Self { points, feasible, front, knee })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Manifest, fixture, part::write_part};

    #[test]
    fn infeasible_and_failed_rows_are_never_on_the_front() {
        // The p95 TPOT of row i is 25 + i ms and its throughput is the same for all; row 9 panicked.
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new("smoke", "00ff", 12, 12, 12);
        manifest.record(write_part(folder.path(), 0, &fixture::rows(0..12)).unwrap());
        manifest.store(folder.path()).unwrap();
        let table = Table::load(folder.path(), &["tpot_p95_ms", "throughput_per_gpu", "gpus"]).unwrap();
        let axes = Axes::new("tpot_p95_ms", "throughput_per_gpu").unwrap();
        let selection = Selection::new(&table, &axes, &[Bound::at_least("tpot_p95_ms", 27.0)]).unwrap();
        assert_eq!((selection.front, selection.knee), (vec![2], Some(2)));
        let feasible: Vec<usize> = (0..12).filter(|row| selection.feasible[*row]).collect();
        assert_eq!(feasible, [2, 3, 4, 5, 6, 7, 8, 10, 11]);
        let none = Selection::new(&table, &axes, &[Bound::at_least("gpus", 9.0)]).unwrap();
        assert!(none.front.is_empty() && none.knee.is_none());
        let problems = Selection::new(&table, &axes, &[Bound::at_most("gpu", 1.0), Bound::at_most("ttft", 1.0)]);
        assert_eq!(problems.unwrap_err().0.len(), 2);
    }

    #[test]
    fn axes_must_be_objectives() {
        let axes = Axes::new("gen_speed_p95", "ttft_p95_ms").unwrap();
        assert_eq!(axes.directions(), [Direction::Maximise, Direction::Minimise]);
        let error = Axes::new("gpu", "throughput_per_gqu").unwrap_err();
        assert_eq!(error.0.len(), 2);
        assert!(error.0[0].message.contains("cannot be an objective"), "{error}");
        assert_eq!(error.0[1].help.as_deref(), Some("did you mean `throughput_per_gpu`?"));
    }
}
