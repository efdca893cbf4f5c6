//! Residual tables: at every measured shape, what is left of ln(measured / roofline) after the forest.
//!
//! Forest plus interpolated residual is exact (to the rounding of a cell) where a kernel was measured, and between two
//! measurements keeps the steps of tiles and waves that the forest has learnt.

use super::bytes::{Corrupt, Reader, put_f32, put_u16, put_u32};
use super::shape::{CLASS_LENGTH, MAX_AXES};

/// Mark of a cell without a measurement.
const MISSING: i16 = i16::MIN;
/// Finest step of a residual: 0.05 % of a time.
const FINEST_STEP: f64 = 5e-4;
/// Largest value of a cell.
const LARGEST_CELL: f64 = 32_767.0;
/// Most cells that are read; a bound on the memory that a damaged file can ask for.
const MAX_CELLS: usize = 1 << 24;

/// One table: all measurements of one class, on a grid of up to [`MAX_AXES`] logarithmic axes.
#[derive(Clone, Debug, PartialEq)]
pub struct ResidualTable {
    /// The class it belongs to.
    pub class: [u32; CLASS_LENGTH],
    axes: [Vec<f32>; MAX_AXES],
    /// Residual of a cell is its value times this.
    step: f32,
    /// Row-major, last axis fastest.
    cells: Vec<i16>,
    /// What stands in for cells without a measurement, in steps; infinite where nothing near was measured. Derived, not
    /// stored.
    filled: Vec<f32>,
}

/// Position of a coordinate on an axis: the cell below and the weight of the next one.
struct Position {
    index: usize,
    fraction: f64,
    inside: bool,
}

/// How a shape lies to the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// It was measured itself.
    Measured,
    /// It lies between measurements.
    Between,
    /// It lies beyond them.
    Beyond,
}

impl ResidualTable {
    /// Builds the table of one class from (coordinates, residual) pairs; later duplicates win.
    #[must_use]
    pub fn new(class: [u32; CLASS_LENGTH], points: &[([f64; MAX_AXES], f64)]) -> Self {
        let axes: [Vec<f32>; MAX_AXES] = std::array::from_fn(|axis| {
            let mut values: Vec<f32> = points.iter().map(|(coordinates, _)| coordinates[axis] as f32).collect();
            values.sort_unstable_by(f32::total_cmp);
            values.dedup();
            values
        });
        let largest = points.iter().map(|(_, residual)| residual.abs()).fold(0.0, f64::max);
        let step = (largest / LARGEST_CELL).max(FINEST_STEP) as f32;
        let cells = vec![MISSING; axes.iter().map(Vec::len).product()];
        let mut table = Self { class, cells, axes, step, filled: Vec::new() };
        for (coordinates, residual) in points {
            let at =
                std::array::from_fn(|axis| table.axes[axis].partition_point(|value| *value < coordinates[axis] as f32));
            let cell = table.cell(at);
            table.cells[cell] = libm::round(residual / f64::from(step)).clamp(-LARGEST_CELL, LARGEST_CELL) as i16;
        }
        table.fill();
        table
    }

    /// Bridges cells without a measurement between their measured neighbours on each axis, the closer pair counting more.
    /// Kernels change along one size at a time, so a neighbour on one axis knows more than the trend.
    fn fill(&mut self) {
        self.filled = (0..self.cells.len())
            .map(|cell| {
                if self.cells[cell] != MISSING {
                    return f32::from(self.cells[cell]);
                }
                let bridges = (0..MAX_AXES).filter_map(|axis| self.bridge(cell, axis));
                let (sum, total) =
                    bridges.fold((0.0, 0.0), |(sum, total), (value, gap)| (sum + value / gap, total + 1.0 / gap));
                if total > 0.0 { sum / total } else { f32::INFINITY }
            })
            .collect();
    }

    /// Value of a cell between the nearest measured cells before and after it on one axis, and their distance; `None`
    /// unless there are both.
    fn bridge(&self, cell: usize, axis: usize) -> Option<(f32, f32)> {
        let stride: usize = self.axes[axis + 1..].iter().map(Vec::len).product();
        let edges = &self.axes[axis];
        let position = cell / stride % edges.len();
        let at = |other: usize| self.cells[cell - position * stride + other * stride];
        let before = (0..position).rev().find(|&other| at(other) != MISSING)?;
        let after = (position + 1..edges.len()).find(|&other| at(other) != MISSING)?;
        let gap = edges[after] - edges[before];
        let fraction = (edges[position] - edges[before]) / gap;
        Some((f32::from(at(before)) * (1.0 - fraction) + f32::from(at(after)) * fraction, gap))
    }

    fn cell(&self, at: [usize; MAX_AXES]) -> usize {
        at.iter().zip(&self.axes).fold(0, |cell, (index, axis)| cell * axis.len() + index)
    }

    /// Number of cells, measured or not.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Smallest and largest value on each axis, as logarithms.
    pub fn range(&self) -> impl Iterator<Item = (f32, f32)> {
        self.axes.iter().map(|axis| (axis[0], axis[axis.len() - 1]))
    }

    /// Multilinear interpolation over the corners of the enclosing cell, and where the coordinates lie: between
    /// measurements only if every corner was measured or lies between measurements. Outside the grid the nearest edge
    /// answers; `None` where nothing near was measured.
    #[must_use]
    pub fn interpolate(&self, coordinates: &[f64; MAX_AXES]) -> Option<(f64, Coverage)> {
        let positions: [Position; MAX_AXES] =
            std::array::from_fn(|axis| locate(&self.axes[axis], coordinates[axis] as f32));
        let mut inside = positions.iter().all(|position| position.inside);
        let mut exact = positions.iter().all(|position| position.fraction == 0.0);
        let (mut sum, mut total) = (0.0, 0.0);
        for corner in 0..1usize << MAX_AXES {
            let mut weight = 1.0;
            let at = std::array::from_fn(|axis| {
                let upper = corner >> axis & 1;
                let Position { index, fraction, .. } = positions[axis];
                weight *= if upper == 1 { fraction } else { 1.0 - fraction };
                index + upper
            });
            if weight == 0.0 {
                continue;
            }
            let cell = self.cell(at);
            let value = self.filled[cell];
            exact &= self.cells[cell] != MISSING;
            if value.is_infinite() {
                inside = false;
            } else {
                sum += weight * f64::from(value);
                total += weight;
            }
        }
        let coverage = match (inside, exact) {
            (true, true) => Coverage::Measured,
            (true, false) => Coverage::Between,
            (false, _) => Coverage::Beyond,
        };
        (total > 0.0).then(|| (sum / total * f64::from(self.step), coverage))
    }

    /// Appends the file form.
    pub fn write(&self, out: &mut Vec<u8>) {
        for value in self.class {
            put_u32(out, value);
        }
        for axis in &self.axes {
            put_u16(out, axis.len() as u16);
            for value in axis {
                put_f32(out, *value);
            }
        }
        put_f32(out, self.step);
        for cell in &self.cells {
            put_u16(out, *cell as u16);
        }
    }

    /// Reads the file form.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let mut class = [0; CLASS_LENGTH];
        for value in &mut class {
            *value = reader.u32()?;
        }
        let mut axes: [Vec<f32>; MAX_AXES] = Default::default();
        for axis in &mut axes {
            let length = reader.u16()?;
            *axis = (0..length).map(|_| reader.f32()).collect::<Result<_, _>>()?;
            if axis.is_empty() || axis.windows(2).any(|pair| pair[0] >= pair[1]) || axis.iter().any(|v| v.is_nan()) {
                return Err(Corrupt("an axis is not increasing"));
            }
        }
        let step = reader.f32()?;
        let count: usize = axes.iter().map(Vec::len).product();
        if count > MAX_CELLS || !step.is_finite() {
            return Err(Corrupt("a table is too large"));
        }
        let cells = (0..count).map(|_| Ok(reader.u16()? as i16)).collect::<Result<_, Corrupt>>()?;
        let mut table = Self { class, axes, step, cells, filled: Vec::new() };
        table.fill();
        Ok(table)
    }
}

fn locate(axis: &[f32], value: f32) -> Position {
    let above = axis.partition_point(|edge| *edge <= value);
    if above == 0 {
        return Position { index: 0, fraction: 0.0, inside: false };
    }
    let index = above - 1;
    if index + 1 == axis.len() {
        return Position { index, fraction: 0.0, inside: value == axis[index] };
    }
    let fraction = f64::from(value - axis[index]) / f64::from(axis[index + 1] - axis[index]);
    Position { index, fraction, inside: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> ResidualTable {
        let points = [([0.0, 0.0, 0.0], 0.0), ([1.0, 0.0, 0.0], 0.127), ([0.0, 2.0, 0.0], -0.127)];
        ResidualTable::new([7; CLASS_LENGTH], &points)
    }

    #[test]
    fn exact_at_points_linear_between_clamped_outside() {
        let table = table();
        let near = |answer: Option<(f64, Coverage)>, expected: (f64, Coverage)| {
            let (value, coverage) = answer.unwrap();
            assert!((value - expected.0).abs() < 1e-6 && coverage == expected.1, "{value} {coverage:?} {expected:?}");
        };
        near(table.interpolate(&[1.0, 0.0, 0.0]), (0.127, Coverage::Measured));
        near(table.interpolate(&[0.5, 0.0, 0.0]), (0.0635, Coverage::Between));
        near(table.interpolate(&[0.0, 1.0, 0.0]), (-0.0635, Coverage::Between));
        near(table.interpolate(&[5.0, 0.0, 0.0]), (0.127, Coverage::Beyond));
        // The corner (1, 2) was not measured: the nearest measured corners answer, flagged.
        let (value, coverage) = table.interpolate(&[0.5, 1.0, 0.0]).unwrap();
        assert!(coverage == Coverage::Beyond && value.abs() < 0.127);
        assert_eq!(table.interpolate(&[1.0, 2.0, 0.0]), None);
    }

    #[test]
    fn a_gap_is_bridged_on_every_axis_where_it_is_enclosed() {
        // The middle of a cross: 0 and 0.2 on one axis, 0.1 and 0.1 on the other, twice as far apart.
        let point = |x: f64, y: f64, residual| ([x, y, 0.0], residual);
        let cross = [point(0.0, 2.0, 0.0), point(2.0, 2.0, 0.2), point(1.0, 0.0, 0.1), point(1.0, 4.0, 0.1)];
        let table = ResidualTable::new([0; CLASS_LENGTH], &cross);
        let (value, coverage) = table.interpolate(&[1.0, 2.0, 0.0]).unwrap();
        assert!((value - 0.1).abs() < 2e-3 && coverage == Coverage::Between, "{value} {coverage:?}");
        // A corner is enclosed on no axis.
        assert_eq!(table.interpolate(&[0.0, 0.0, 0.0]), None);
    }

    #[test]
    fn survives_the_file_form_and_rejects_every_truncation() {
        let mut bytes = Vec::new();
        table().write(&mut bytes);
        assert_eq!(ResidualTable::read(&mut Reader::new(&bytes)).unwrap(), table());
        for length in 0..bytes.len() {
            assert!(ResidualTable::read(&mut Reader::new(&bytes[..length])).is_err());
        }
    }
}
