//! Units shared by every module: the simulator's clock tick and human-readable formatting.
//!
//! Plain numbers carry their unit as a suffix (`_ns`, `_bytes`, `_tokens`, `_usd_per_hour`); only the clock is a
//! newtype, because mixing ticks with nanoseconds would be silent.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Ticks per nanosecond. A power of two, so that conversion is a shift and step-cost coefficients keep three
/// decimal digits below the nanosecond.
pub const TICKS_PER_NS: u64 = 1024;

/// A point in, or a span of, simulated time, in ticks of 1/1024 ns.
///
/// 64 bits hold 208 days, far beyond any run; integer arithmetic makes fast-forwarding exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The origin of simulated time.
    pub const ZERO: Self = Self(0);
    /// Later than any event: marks "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// Rounds a duration in nanoseconds to the nearest tick; negative and NaN become zero.
    #[must_use]
    pub fn from_ns(ns: f64) -> Self {
        Self(libm::round(ns * TICKS_PER_NS as f64).max(0.0) as u64)
    }

    /// Rounds a duration in seconds to the nearest tick.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self::from_ns(seconds * 1e9)
    }

    /// This span in nanoseconds.
    #[must_use]
    pub fn as_ns(self) -> f64 {
        self.0 as f64 / TICKS_PER_NS as f64
    }

    /// This span in milliseconds.
    #[must_use]
    pub fn as_ms(self) -> f64 {
        self.as_ns() / 1e6
    }

    /// This span in seconds.
    #[must_use]
    pub fn as_seconds(self) -> f64 {
        self.as_ns() / 1e9
    }

    /// `self - earlier`, or zero if `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Ticks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Ticks {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Ticks {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self(self.0 - earlier.0)
    }
}

impl Sum for Ticks {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Bytes in one GiB, the unit in which drivers and engines report memory.
pub const GIB: f64 = (1u64 << 30) as f64;

/// Formats a byte count in GiB with two decimals, e.g. `63.42 GiB`.
#[must_use]
pub fn format_gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / GIB)
}

/// Formats a count with a comma between groups of three digits, e.g. `483,536`.
#[must_use]
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_round_to_nearest_and_clamp_negatives() {
        assert_eq!(Ticks::from_ns(1.0), Ticks(1024));
        assert_eq!(Ticks::from_ns(0.0005), Ticks(1));
        assert_eq!(Ticks::from_ns(-3.0), Ticks::ZERO);
        assert_eq!(Ticks::from_ns(f64::NAN), Ticks::ZERO);
        assert!((Ticks::from_seconds(1.5).as_ms() - 1500.0).abs() < 1e-9);
    }

    #[test]
    fn counts_are_grouped_by_three() {
        assert_eq!(format_count(7), "7");
        assert_eq!(format_count(1000), "1,000");
        assert_eq!(format_count(483_536), "483,536");
    }

    #[test]
    fn gib_is_binary() {
        assert_eq!(format_gib(1 << 30), "1.00 GiB");
    }
}
