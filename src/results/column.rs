//! What a result column is: its name, type, unit, meaning, and how its value is taken from a row.

use std::borrow::Cow;

use super::row::Row;
use crate::fidelity::TimeProvenance;
use crate::sim::Outcome;
use crate::space::{Candidate, Pool, Role};

/// Physical type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned integer.
    U64,
    /// Double: sums, rates and prices.
    F64,
    /// Float: latencies and shares, where seven digits are more than any model knows.
    F32,
    /// UTF-8 text.
    Text,
    /// True or false.
    Bool,
}

impl Kind {
    /// Name in the documentation.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Text => "text",
            Self::Bool => "bool",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unknown, undefined or not applicable.
    Null,
    /// Unsigned integer.
    U64(u64),
    /// Double.
    F64(f64),
    /// Float.
    F32(f32),
    /// Text.
    Text(Cow<'a, str>),
    /// Boolean.
    Bool(bool),
}

impl Value<'_> {
    /// The value as a number; `None` for nulls and text, 0 or 1 for booleans.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::U64(value) => Some(value as f64),
            Self::F64(value) => Some(value),
            Self::F32(value) => Some(f64::from(value)),
            Self::Bool(value) => Some(f64::from(u8::from(value))),
            Self::Null | Self::Text(_) => None,
        }
    }
}

/// Which way a quantity gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Higher is better.
    Maximise,
    /// Lower is better.
    Minimise,
}

impl Direction {
    /// Factor that turns values into "higher is better".
    #[must_use]
    pub fn sign(self) -> f64 {
        match self {
            Self::Maximise => 1.0,
            Self::Minimise => -1.0,
        }
    }
}

/// What a column says about a row; decides its encoding and whether a row without an outcome has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Which row this is: unique values.
    Identity,
    /// What was simulated: few distinct values, known without simulating.
    Configuration,
    /// What the simulation measured, or what follows from it: null without an outcome.
    Metric,
}

/// How a column gets its value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Getter {
    /// From the whole row.
    Row(fn(&Row<'_>) -> Value<'static>),
    /// Text borrowed from the row.
    Text(for<'a> fn(&Row<'a>) -> Option<Cow<'a, str>>),
    /// From the pool of one role.
    Pool(Role, fn(&Pool) -> Value<'_>),
    /// A count of the outcome.
    Count(fn(&Outcome) -> u64),
    /// A real number of the outcome.
    Measure(fn(&Outcome) -> f64),
    /// A property of the provenance of the outcome's times.
    Provenance(fn(&TimeProvenance) -> f64),
    /// A quantity computed from candidate and outcome; `None` where it is undefined.
    Derived(fn(&Candidate, &Outcome) -> Option<f64>),
}

/// One column of the result table.
#[derive(Clone, Debug)]
pub struct Column {
    /// Name in Parquet, in sweep files and on plots' data.
    pub name: Cow<'static, str>,
    /// Type.
    pub kind: Kind,
    /// Unit, empty for pure numbers and names.
    pub unit: &'static str,
    /// Meaning, without the unit.
    pub doc: Cow<'static, str>,
    /// What it says about the row.
    pub group: Group,
    /// Which way it gets better, if either.
    pub better: Option<Direction>,
    pub(super) getter: Getter,
}

impl Column {
    const fn new(name: &'static str, kind: Kind, doc: &'static str, group: Group, getter: Getter) -> Self {
        Self { name: Cow::Borrowed(name), kind, unit: "", doc: Cow::Borrowed(doc), group, better: None, getter }
    }

    /// A column that identifies the row.
    pub(super) const fn identity(
        name: &'static str,
        kind: Kind,
        doc: &'static str,
        get: fn(&Row<'_>) -> Value<'static>,
    ) -> Self {
        Self::new(name, kind, doc, Group::Identity, Getter::Row(get))
    }

    /// A non-text column of the candidate or of the row's fate.
    pub(super) const fn row(
        name: &'static str,
        kind: Kind,
        doc: &'static str,
        get: fn(&Row<'_>) -> Value<'static>,
    ) -> Self {
        Self::new(name, kind, doc, Group::Configuration, Getter::Row(get))
    }

    /// A text column of the candidate or of the row's fate.
    pub(super) const fn text(
        name: &'static str,
        doc: &'static str,
        get: for<'a> fn(&Row<'a>) -> Option<Cow<'a, str>>,
    ) -> Self {
        Self::new(name, Kind::Text, doc, Group::Configuration, Getter::Text(get))
    }

    /// A column of every role's pool; its name is prefixed by the role's letter for each role.
    pub(super) const fn pool(name: &'static str, kind: Kind, doc: &'static str, get: fn(&Pool) -> Value<'_>) -> Self {
        Self::new(name, kind, doc, Group::Configuration, Getter::Pool(Role::Colocated, get))
    }

    /// A count measured by the simulation.
    pub(super) const fn count(name: &'static str, doc: &'static str, get: fn(&Outcome) -> u64) -> Self {
        Self::new(name, Kind::U64, doc, Group::Metric, Getter::Count(get))
    }

    /// A real number measured by the simulation, kept as f64.
    pub(super) const fn measure(name: &'static str, doc: &'static str, get: fn(&Outcome) -> f64) -> Self {
        Self::new(name, Kind::F64, doc, Group::Metric, Getter::Measure(get))
    }

    /// A share or a mean measured by the simulation, kept as f32.
    pub(super) const fn ratio(name: &'static str, doc: &'static str, get: fn(&Outcome) -> f64) -> Self {
        Self::new(name, Kind::F32, doc, Group::Metric, Getter::Measure(get))
    }

    /// A latency in milliseconds, kept as f32; lower is better.
    pub(super) const fn latency(name: &'static str, doc: &'static str, get: fn(&Outcome) -> f64) -> Self {
        let column = Self::new(name, Kind::F32, doc, Group::Metric, Getter::Measure(get));
        column.unit("ms").better(Direction::Minimise)
    }

    /// A quantity that follows from candidate and outcome, kept as f64.
    pub(super) const fn derived(
        name: &'static str,
        doc: &'static str,
        get: fn(&Candidate, &Outcome) -> Option<f64>,
    ) -> Self {
        Self::new(name, Kind::F64, doc, Group::Metric, Getter::Derived(get))
    }

    /// A share or an uncertainty that follows from where the outcome's times come from, kept as f32.
    pub(super) const fn provenance(name: &'static str, doc: &'static str, get: fn(&TimeProvenance) -> f64) -> Self {
        Self::new(name, Kind::F32, doc, Group::Metric, Getter::Provenance(get))
    }

    /// Sets the unit.
    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Sets which way the column gets better.
    pub(super) const fn better(mut self, direction: Direction) -> Self {
        self.better = Some(direction);
        self
    }

    /// This pool column for one role: `gpu` becomes `c_gpu`.
    pub(super) fn for_role(&self, role: Role) -> Self {
        let mut column = self.clone();
        column.name = Cow::Owned(format!("{}_{}", role.letter().to_ascii_lowercase(), self.name));
        column.doc = Cow::Owned(format!("{} (role {})", self.doc, role.letter()));
        if let Getter::Pool(_, get) = self.getter {
            column.getter = Getter::Pool(role, get);
        }
        column
    }

    /// The column's value in a row; null where the row has no outcome or no such role, and for numbers that are not
    /// finite.
    #[must_use]
    pub fn value<'a>(&self, row: &Row<'a>) -> Value<'a> {
        let outcome = row.outcome;
        match self.getter {
            Getter::Row(get) => get(row),
            Getter::Text(get) => get(row).map_or(Value::Null, Value::Text),
            Getter::Pool(role, get) => {
                row.candidate.pools.iter().find(|pool| pool.role == role).map_or(Value::Null, get)
            }
            Getter::Count(get) => outcome.map_or(Value::Null, |outcome| Value::U64(get(outcome))),
            Getter::Measure(get) => self.real(outcome.map(get)),
            Getter::Provenance(get) => self.real(row.provenance.map(get)),
            Getter::Derived(get) => self.real(outcome.and_then(|outcome| get(row.candidate, outcome))),
        }
    }

    /// A real number in the column's width.
    fn real<'a>(&self, value: Option<f64>) -> Value<'a> {
        match value.filter(|value| value.is_finite()) {
            None => Value::Null,
            Some(value) if self.kind == Kind::F32 => Value::F32(value as f32),
            Some(value) => Value::F64(value),
        }
    }

    /// Title of an axis or table heading: the meaning with its unit.
    #[must_use]
    pub fn title(&self) -> String {
        if self.unit.is_empty() { self.doc.to_string() } else { format!("{} ({})", self.doc, self.unit) }
    }
}
