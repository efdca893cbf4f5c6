//! From measurements to a fitted profile: merge repeats, drop implausible rows, fit, describe.

use std::collections::BTreeMap;

use super::accuracy::{self, reported_group};
use super::card::{Card, DroppedRows, FamilyEntry, GpuFacts};
use super::family::Family;
use super::fit::{ForestSettings, fit_forest};
use super::fitted::{FittedFamily, Group, TREND_WEIGHT};
use super::import::{Measurement, Measurements};
use super::operator::Operator;
use super::roofline::{arithmetic_ns, benchmark_ns};
use super::shape::{CLASS_LENGTH, MAX_AXES, MAX_FEATURES, Shape, shape};
use super::table::ResidualTable;
use crate::catalog::Gpu;
use crate::diag::Diagnostic;

/// A row this far from its group's median of ln(measured / roofline), a factor of 20, is a failed measurement.
const IMPLAUSIBLE: f64 = 3.0;
/// A row below this share of the time at the peak rate was not measured on what it says. Boost clocks explain a few per
/// cent, fp8 arithmetic on an fp8 cache a factor below two.
const FASTEST: f64 = 0.5;
/// Share of impossible rows from which a group is not trusted at all.
const UNTRUSTED_SHARE: f64 = 0.02;
/// Repeats of one shape that differ by more than this factor are named on the card.
const DISAGREEMENT: f64 = 1.25;

/// One usable measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// What ran.
    pub(super) operator: Operator,
    /// How long: the median of repeats, in nanoseconds.
    pub(super) latency_ns: f64,
    /// What a predictor sees of the operator.
    pub(super) shape: Shape,
    /// ln(measured / roofline).
    target: f64,
}

/// Everything `profile fit` writes.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The card.
    pub card: Card,
    /// The predictors, in the order of [`Family::ALL`].
    pub families: Vec<FittedFamily>,
}

/// Sizes that balance error on held-out shapes against bytes; doubling the trees gains less than 0.1 points of p50.
fn settings(family: Family) -> ForestSettings {
    match family {
        Family::Gemm => ForestSettings { trees: 8, min_leaf: 24 },
        Family::PrefillAttention | Family::DecodeAttention => ForestSettings { trees: 8, min_leaf: 16 },
        Family::GroupedGemm => ForestSettings { trees: 8, min_leaf: 8 },
        Family::LatentPrefill | Family::LatentDecode => ForestSettings { trees: 4, min_leaf: 9 },
        // Never reached: these families have no features, and so no forest.
        Family::Collective | Family::BatchedGemm | Family::Streaming => ForestSettings { trees: 0, min_leaf: 1 },
    }
}

/// Fits every family that has measurements.
///
/// # Errors
/// If there is nothing to fit, or a fit fails.
pub fn train(measurements: Measurements, gpu: &Gpu, engine: &str) -> Result<Fitted, Diagnostic> {
    let mut card = Card {
        engine: engine.to_owned(),
        source: measurements.source,
        licence: measurements.licence,
        attribution: measurements.attribution,
        gpu: GpuFacts::of(gpu),
        families: Vec::new(),
        dropped: measurements.dropped,
        errors: Vec::new(),
        worst: Vec::new(),
    };
    let rows = usable_rows(&measurements.rows, gpu, &mut card.dropped);
    let mut families = Vec::new();
    for family in Family::ALL {
        let rows: Vec<Row> = rows.iter().filter(|row| row.shape.family == family).copied().collect();
        if rows.is_empty() {
            continue;
        }
        let fitted = fit_family(family, &rows)?;
        card.families.push(describe(&fitted, &rows));
        let (errors, worst) = accuracy::judge(family, &rows, gpu)?;
        card.errors.extend(errors);
        card.worst.extend(worst);
        families.push(fitted);
    }
    if families.is_empty() {
        return Err(Diagnostic::new("there are no measurements to fit"));
    }
    Ok(Fitted { card, families })
}

/// Shapes and targets of the measurements, repeats merged by their median, failed measurements dropped.
pub(super) fn usable_rows(measurements: &[Measurement], gpu: &Gpu, dropped: &mut Vec<DroppedRows>) -> Vec<Row> {
    let mut repeats: BTreeMap<String, (Operator, Vec<f64>)> = BTreeMap::new();
    for Measurement { operator, latency_ns } in measurements {
        let entry = repeats.entry(format!("{operator:?}")).or_insert_with(|| (*operator, Vec::new()));
        entry.1.push(*latency_ns);
    }
    let mut merged = Tally::new("merged into the median of repeats of the same shape");
    let mut disagreeing = Tally::new("shapes whose repeats differ by more than 25 % (the median is used)");
    let mut rows = Vec::with_capacity(repeats.len());
    for (name, (operator, mut times)) in repeats {
        times.sort_unstable_by(f64::total_cmp);
        let latency_ns = (times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0;
        merged.add(times.len() - 1, &name);
        if times[times.len() - 1] > DISAGREEMENT * times[0] {
            disagreeing.add(1, &name);
        }
        if let Some(shape) = shape(&operator, gpu) {
            rows.push(Row {
                operator,
                latency_ns,
                shape,
                target: libm::log(latency_ns / benchmark_ns(&operator, gpu)),
            });
        }
    }
    let medians = medians(&rows);
    let mut implausible = Tally::new("more than 20 times off the other rows of the same kind");
    rows.retain(|row| {
        let keep = (row.target - medians[&(row.shape.family, row.shape.group)]).abs() <= IMPLAUSIBLE;
        if !keep {
            implausible.add(1, &format!("{:?}: {} ns", row.operator, row.latency_ns));
        }
        keep
    });
    dropped.extend([merged, disagreeing, implausible].into_iter().filter_map(Tally::finish));
    dropped.extend(drop_impossible(&mut rows, gpu));
    rows
}

/// Removes rows that are faster than twice the peak rate. A group (family, formats) with more than a few of them did not
/// run what it says and goes as a whole: its other rows are wrong by less, and nobody knows by how much.
fn drop_impossible(rows: &mut Vec<Row>, gpu: &Gpu) -> Vec<DroppedRows> {
    let impossible = |row: &Row| row.latency_ns < FASTEST * arithmetic_ns(&row.operator, gpu);
    let mut groups: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let group = |row: &Row| format!("{}, {}", row.shape.family.name(), reported_group(&row.operator));
    for row in rows.iter() {
        let counts = groups.entry(group(row)).or_default();
        counts[0] += 1;
        counts[1] += usize::from(impossible(row));
    }
    let broken = |row: &Row| {
        let [all, bad] = groups[&group(row)];
        bad as f64 > UNTRUSTED_SHARE * all as f64
    };
    let mut single = Tally::new("faster than twice the peak rate of the GPU");
    let mut whole = Tally::new("of groups in which more than 2 % of the rows are faster than twice the peak rate");
    rows.retain(|row| {
        let tally = match (broken(row), impossible(row)) {
            (true, _) => &mut whole,
            (false, true) => &mut single,
            (false, false) => return true,
        };
        tally.add(1, &format!("{}: {:?}: {} ns", group(row), row.operator, row.latency_ns));
        false
    });
    [single, whole].into_iter().filter_map(Tally::finish).collect()
}

/// Counts rows of one kind and keeps the first as the example.
struct Tally(DroppedRows);

impl Tally {
    fn new(reason: &str) -> Self {
        Self(DroppedRows { reason: reason.to_owned(), rows: 0, example: String::new() })
    }

    fn add(&mut self, rows: usize, example: &str) {
        if rows > 0 && self.0.rows == 0 {
            example.clone_into(&mut self.0.example);
        }
        self.0.rows += rows;
    }

    fn finish(self) -> Option<DroppedRows> {
        (self.0.rows > 0).then_some(self.0)
    }
}

fn medians(rows: &[Row]) -> BTreeMap<(Family, [u8; 2]), f64> {
    let mut targets: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for row in rows {
        targets.entry((row.shape.family, row.shape.group)).or_default().push(row.target);
    }
    let median = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    targets.into_iter().map(|(key, values)| (key, median(values))).collect()
}

/// Fits one family: per group a forest on the targets, per class a table of what the forest leaves.
pub(super) fn fit_family(family: Family, rows: &[Row]) -> Result<FittedFamily, Diagnostic> {
    let mut by_group: BTreeMap<[u8; 2], Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_group.entry(row.shape.group).or_default().push(row);
    }
    let groups = by_group.into_iter().map(|(key, rows)| fit_group(family, key, &rows)).collect::<Result<_, _>>()?;
    Ok(FittedFamily { family, groups })
}

fn fit_group(family: Family, key: [u8; 2], rows: &[&Row]) -> Result<Group, Diagnostic> {
    let features: Vec<[f32; MAX_FEATURES]> = rows.iter().map(|row| row.shape.features).collect();
    let targets: Vec<f64> = rows.iter().map(|row| row.target).collect();
    let forest =
        fit_forest(&features, rows.first().map_or(0, |row| row.shape.feature_count), &targets, settings(family))?;
    let mut residuals: BTreeMap<[u32; CLASS_LENGTH], Vec<([f64; MAX_AXES], f64)>> = BTreeMap::new();
    for row in rows {
        let residual = row.target - TREND_WEIGHT * forest.predict(&row.shape.features).0;
        residuals.entry(row.shape.class).or_default().push((row.shape.coordinates, residual));
    }
    let tables = residuals.iter().map(|(class, points)| ResidualTable::new(*class, points)).collect();
    Ok(Group { key, forest, tables })
}

/// The card's entry of a fitted family.
fn describe(fitted: &FittedFamily, rows: &[Row]) -> FamilyEntry {
    let ranges: Vec<String> = fitted
        .family
        .axes()
        .iter()
        .enumerate()
        .filter(|(_, name)| **name != "exponent")
        .map(|(axis, name)| {
            let value = |row: &Row| libm::round(libm::exp(row.shape.coordinates[axis]));
            let (low, high) =
                rows.iter().map(value).fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
            format!("{name} {low}..{high}")
        })
        .collect();
    FamilyEntry {
        name: fitted.family.name().to_owned(),
        file: format!("{}.forest", fitted.family.name()),
        rows: rows.len(),
        nodes: fitted.groups.iter().map(|group| group.forest.nodes()).sum(),
        cells: fitted.groups.iter().flat_map(|group| &group.tables).map(ResidualTable::cells).sum(),
        ranges: ranges.join(", "),
    }
}
