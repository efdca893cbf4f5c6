//! The SLA as bounds on result columns.

use std::fmt;

use crate::diag::Diagnostics;
use crate::results::{Row, Table, schema};

/// Which side of its value a bound allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Values up to and including this one.
    AtMost(f64),
    /// Values from this one up.
    AtLeast(f64),
}

impl Limit {
    /// The number.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Self::AtMost(limit) | Self::AtLeast(limit) => limit,
        }
    }
}

/// One bound on a result column.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Name of a column of [`schema::columns`].
    pub column: String,
    /// Allowed values, in the column's unit.
    pub limit: Limit,
}

impl Bound {
    /// `column` must not exceed `value`.
    #[must_use]
    pub fn at_most(column: impl Into<String>, value: f64) -> Self {
        Self { column: column.into(), limit: Limit::AtMost(value) }
    }

    /// `column` must reach `value`.
    #[must_use]
    pub fn at_least(column: impl Into<String>, value: f64) -> Self {
        Self { column: column.into(), limit: Limit::AtLeast(value) }
    }

    /// Whether a value meets the bound; NaN, which stands for a null, does not.
    #[must_use]
    pub fn allows(&self, value: f64) -> bool {
        match self.limit {
            Limit::AtMost(limit) => value <= limit,
            Limit::AtLeast(limit) => value >= limit,
        }
    }

    /// Whether a row meets the bound; a null, or a column that does not exist, does not.
    #[must_use]
    pub fn allows_row(&self, row: &Row<'_>) -> bool {
        // Latencies are compared as they are stored, so that a row and its copy read from Parquet always agree.
        let value = schema::column(&self.column).ok().and_then(|column| column.value(row).number());
        value.is_some_and(|value| self.allows(value))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Limit::AtMost(limit) => write!(f, "{} ≤ {limit}", self.column),
            Limit::AtLeast(limit) => write!(f, "{} ≥ {limit}", self.column),
        }
    }
}

/// Per row of the table, whether every bound holds.
///
/// # Errors
/// One diagnostic for each bound whose column does not exist, was not read, or is text.
pub fn feasible(table: &Table, bounds: &[Bound]) -> Result<Vec<bool>, Diagnostics> {
    let mut verdicts = vec![true; table.rows()];
    let mut problems = Vec::new();
    for bound in bounds {
        match table.numbers(&bound.column) {
            Ok(values) => {
                for (verdict, value) in verdicts.iter_mut().zip(values) {
                    *verdict &= bound.allows(value);
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(verdicts) } else { Err(Diagnostics(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixture;

    #[test]
    fn rows_are_judged_like_the_table_they_are_stored_in() {
        let row = fixture::row(1);
        assert!(Bound::at_most("tpot_p95_ms", 26.0).allows_row(&row.as_row()));
        assert!(!Bound::at_most("tpot_p95_ms", 25.9).allows_row(&row.as_row()));
        assert!(!Bound::at_most("tpot_p95_ms", 1e9).allows_row(&fixture::panicked_row(1).as_row()));
    }

    #[test]
    fn bounds_include_their_limit_and_refuse_nulls() {
        let bound = Bound::at_most("ttft_p95_ms", 500.0);
        assert!(bound.allows(500.0) && !bound.allows(500.1) && !bound.allows(f64::NAN));
        let bound = Bound::at_least("gen_speed_p95", 50.0);
        assert!(bound.allows(50.0) && !bound.allows(49.9) && !bound.allows(f64::NAN));
        assert_eq!(bound.to_string(), "gen_speed_p95 ≥ 50");
    }
}
