//! Axes: from a column to a title, from values to a domain, from a domain to ticks and positions.

use crate::results::{Column, Direction};
use crate::units::format_count;

/// What an axis shows.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisSpec {
    /// Column name, the heading in the data file.
    pub name: String,
    /// Title with unit, starting with a capital.
    pub title: String,
    /// Unit, for labels of points.
    pub unit: String,
    /// Which way it gets better.
    pub better: Direction,
    /// The SLA's limit on this quantity, drawn as a line.
    pub bound: Option<f64>,
}

impl AxisSpec {
    /// The axis of a result column. Columns that get better neither way are shown as if more were better.
    #[must_use]
    pub fn of(column: &Column, bound: Option<f64>) -> Self {
        let title = column.title();
        let mut letters = title.chars();
        let capital = letters.next().map(|first| first.to_uppercase().chain(letters).collect());
        Self {
            name: column.name.to_string(),
            title: capital.unwrap_or_default(),
            unit: column.unit.to_owned(),
            better: column.better.unwrap_or(Direction::Maximise),
            bound,
        }
    }
}

/// Range of values that an axis covers and how they are spread over it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

/// Above this ratio of largest to smallest value that matters, a linear axis would squeeze most of them into a corner.
const LOGARITHMIC_RATIO: f64 = 300.0;
/// A linear axis starts at zero if the smallest value is below this share of the largest.
const ZERO_SHARE: f64 = 0.5;
/// Free space beyond the outermost values, as a share of the domain.
const PADDING: f64 = 0.05;
/// The same on the side where the quantity gets better: room for labels outside the front.
const BETTER_PADDING: f64 = 0.13;

impl Scale {
    /// A scale with given ends.
    pub(super) const fn fixed(low: f64, high: f64, logarithmic: bool) -> Self {
        Self { low, high, logarithmic }
    }

    /// A scale for the finite ones of these values. It is logarithmic if those that `matter`, a part of them, span
    /// orders of magnitude.
    pub(super) fn covering(
        values: impl Iterator<Item = f64>,
        matter: impl Iterator<Item = f64>,
        better: Direction,
    ) -> Self {
        let ((low, high), (lowest, highest)) = (extent(values), extent(matter));
        if low > high {
            return Self { low: 0.0, high: 1.0, logarithmic: false };
        }
        let (before, after) = match better {
            Direction::Maximise => (PADDING, BETTER_PADDING),
            Direction::Minimise => (BETTER_PADDING, PADDING),
        };
        if low > 0.0 && highest / lowest > LOGARITHMIC_RATIO {
            let padded = |share: f64| libm::pow(high / low, share);
            return Self { low: low / padded(before), high: high * padded(after), logarithmic: true };
        }
        if low >= 0.0 && low <= ZERO_SHARE * high {
            return Self { low: 0.0, high: if high > 0.0 { high * (1.0 + after) } else { 1.0 }, logarithmic: false };
        }
        let width = if high > low { high - low } else { high.abs().max(1.0) };
        Self { low: low - width * before, high: high + width * after, logarithmic: false }
    }

    /// Where a value lies: 0 at the low end, 1 at the high end.
    pub(super) fn share(&self, value: f64) -> f64 {
        if self.logarithmic {
            libm::log(value / self.low) / libm::log(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Whether a value lies within the domain.
    pub(super) fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Round values to mark, about `count` of them, in ascending order.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic {
            return self.logarithmic_ticks(count);
        }
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let first = libm::ceil(self.low / step - 1e-9) as i64;
        let last = libm::floor(self.high / step + 1e-9) as i64;
        (first..=last).map(|multiple| multiple as f64 * step).collect()
    }

    /// Powers of ten, with their doubles and fivefolds if there is room.
    fn logarithmic_ticks(&self, count: usize) -> Vec<f64> {
        let decades = libm::floor(libm::log10(self.low)) as i32..=libm::ceil(libm::log10(self.high)) as i32;
        let crowded = libm::log10(self.high / self.low) * 3.0 > 1.6 * count as f64;
        let multiples: &[f64] = if crowded { &[1.0] } else { &[1.0, 2.0, 5.0] };
        decades
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * libm::pow(10.0, f64::from(decade))))
            .filter(|tick| self.contains(*tick))
            .collect()
    }
}

/// Smallest and largest of the finite values; the other way round if there are none.
fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `step`.
fn round_step(step: f64) -> f64 {
    let power = libm::pow(10.0, libm::floor(libm::log10(step)));
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// A number for people: thousands separated, as many decimals as three significant digits need, no trailing zeros.
#[must_use]
pub fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    let sign = if value < 0.0 { "−" } else { "" };
    if magnitude >= 1e9 {
        return format!("{sign}{magnitude:.2e}");
    }
    if magnitude >= 100.0 || magnitude == 0.0 {
        return format!("{sign}{}", format_count(libm::round(magnitude) as u64));
    }
    let decimals = (2 - libm::floor(libm::log10(magnitude)) as i32).clamp(0, 6) as usize;
    let text = format!("{magnitude:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (12.5, "12.5"),
            (0.05, "0.05"),
            (1234.4, "1,234"),
            (250_000.0, "250,000"),
            (-3.25, "−3.25"),
        ];
        for (value, text) in cases {
            assert_eq!(format_number(value), text);
        }
    }

    fn covering(values: &[f64]) -> Scale {
        Scale::covering(values.iter().copied(), values.iter().copied(), Direction::Maximise)
    }

    #[test]
    fn linear_ticks_are_round_and_inside() {
        let scale = covering(&[0.0, 43.0]);
        assert_eq!(scale.ticks(5), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let scale = covering(&[90.0, 100.0]);
        assert_eq!(scale.ticks(6), [90.0, 92.0, 94.0, 96.0, 98.0, 100.0]);
        assert!(scale.share(90.0) > 0.0 && scale.share(100.0) < 1.0);
    }

    #[test]
    fn wide_ranges_are_logarithmic() {
        let scale = covering(&[1.0, 1000.0]);
        assert_eq!(scale.ticks(8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]);
        let middle = scale.share(libm::sqrt(1000.0));
        assert!((middle - (scale.share(1.0) + scale.share(1000.0)) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn degenerate_domains_have_a_width() {
        for values in [&[][..], &[f64::NAN], &[0.0], &[5.0, 5.0], &[-5.0]] {
            let scale = covering(values);
            let ticks = scale.ticks(5);
            assert!(!ticks.is_empty() && ticks.len() < 20, "{values:?}: {ticks:?}");
        }
    }
}
