//! A cost model against the kernel tables of the GPU that it prices: the proof of transferred profiles.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::EstimateSource;
use super::accuracy::reported_group;
use super::card::{ALL_GROUPS, DroppedRows, ErrorStatistics};
use super::family::Family;
use super::import::Measurements;
use super::operator::Operator;
use super::predictor::CostModel;
use super::roofline::{benchmark_ns, roofline_ns};
use super::train::usable_rows;
use crate::diag::Diagnostic;

/// Range of the entries over all sizes.
pub const ALL_SIZES: &str = "all";
/// Upper ends of the ranges of new tokens per step that are reported; the last range is open.
const TOKEN_LIMITS: [f64; 4] = [64.0, 256.0, 1024.0, 8192.0];
/// The same for messages, in bytes.
const BYTE_LIMITS: [f64; 3] = [65_536.0, 1_048_576.0, 16_777_216.0];

/// Content of a check file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferCheck {
    /// GPU whose fitted profile answered; `roofline` if there was none.
    pub from: String,
    /// Engine of that profile.
    pub from_engine: String,
    /// GPU that was priced, and whose tables were read.
    pub to: String,
    /// Engine of the tables.
    pub engine: String,
    /// Where the tables were published.
    pub source: String,
    /// Their licence.
    pub licence: String,
    /// Whom the licence asks to name.
    pub attribution: String,
    /// Errors per family: over all rows, per group, and per range of sizes.
    #[serde(rename = "error", default)]
    pub errors: Vec<TransferError>,
    /// Rows that were left out, by reason.
    #[serde(default)]
    pub dropped: Vec<DroppedRows>,
}

/// Errors of one part of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferError {
    /// Operator family.
    pub family: String,
    /// Formats or kind within the family; `all` for the whole family.
    pub group: String,
    /// New tokens of the step, or bytes of the message; `all` for every size.
    pub range: String,
    /// Rows that the cost model had to price by the roofline alone.
    pub roofline_rows: usize,
    /// Errors of the cost model.
    pub statistics: ErrorStatistics,
    /// Errors of the roofline on the same rows.
    pub roofline: ErrorStatistics,
}

/// Errors of one part, while they are collected.
#[derive(Default)]
struct Part {
    model: Vec<f64>,
    roofline: Vec<f64>,
    roofline_rows: usize,
}

impl TransferCheck {
    /// Prices every row of the tables of `model`'s GPU. Repeats are merged and failed measurements dropped as in a fit.
    ///
    /// # Errors
    /// If the tables hold nothing usable.
    pub fn new(measurements: Measurements, model: &CostModel, engine: &str) -> Result<Self, Diagnostic> {
        let mut dropped = measurements.dropped;
        let rows = usable_rows(&measurements.rows, model.gpu(), &mut dropped);
        let mut parts: BTreeMap<(Family, u8, u8, String), Part> = BTreeMap::new();
        for row in &rows {
            let (estimate, bound_ns) = if measurements.in_engine {
                (model.predict(&row.operator), roofline_ns(&row.operator, model.gpu()))
            } else {
                (model.benchmark(&row.operator), benchmark_ns(&row.operator, model.gpu()))
            };
            let error = |time_ns: f64| (time_ns / row.latency_ns - 1.0) * 100.0;
            let roofline = error(bound_ns);
            let (range, text) = size_range(&row.operator);
            let keys = [(0, 0, String::new()), (1, 0, reported_group(&row.operator)), (2, range, text)];
            for (order, range, name) in keys {
                let part = parts.entry((row.shape.family, order, range, name)).or_default();
                part.model.push(error(estimate.time_ns));
                part.roofline.push(roofline);
                part.roofline_rows += usize::from(estimate.source == EstimateSource::Roofline);
            }
        }
        if parts.is_empty() {
            return Err(Diagnostic::new("there are no measurements to check against"));
        }
        let errors = parts.into_iter().filter_map(|((family, order, _, name), part)| {
            let (group, range) = match order {
                0 => (ALL_GROUPS.to_owned(), ALL_SIZES.to_owned()),
                1 => (name, ALL_SIZES.to_owned()),
                _ => (ALL_GROUPS.to_owned(), name),
            };
            let (statistics, roofline) = (ErrorStatistics::of(part.model)?, ErrorStatistics::of(part.roofline)?);
            let (family, roofline_rows) = (family.name().to_owned(), part.roofline_rows);
            Some(TransferError { family, group, range, roofline_rows, statistics, roofline })
        });
        let card = model.profile().map(|profile| &profile.card);
        Ok(Self {
            from: card.map_or_else(|| "roofline".to_owned(), |card| card.gpu.name.clone()),
            from_engine: card.map_or_else(String::new, |card| card.engine.clone()),
            to: model.gpu().name.clone(),
            engine: engine.to_owned(),
            source: measurements.source,
            licence: measurements.licence,
            attribution: measurements.attribution,
            errors: errors.collect(),
            dropped,
        })
    }

    /// Reads a check file.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a check file.
    pub fn load(path: &Path) -> Result<Self, Diagnostic> {
        let text = fs::read_to_string(path)
            .map_err(|error| Diagnostic::new(format!("cannot read the check file `{}`: {error}", path.display())))?;
        toml::from_str(&text)
            .map_err(|error| Diagnostic::new(format!("`{}` is not a check file: {}", path.display(), error.message())))
    }

    /// The text of the check file.
    ///
    /// # Errors
    /// If a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, Diagnostic> {
        toml::to_string(self).map_err(|error| Diagnostic::new(format!("cannot write the check file: {error}")))
    }
}

/// Which range of sizes an operator is reported in, and its name.
fn size_range(operator: &Operator) -> (u8, String) {
    let range = |size: f64, limits: &[f64], text: &dyn Fn(f64) -> String, unit: &str| {
        let position = limits.iter().take_while(|limit| size > **limit).count();
        let name = match (position.checked_sub(1).map(|below| limits[below]), limits.get(position)) {
            (_, Some(high)) => format!("up to {}{unit}", text(*high)),
            (Some(low), None) => format!("above {}{unit}", text(low)),
            (None, None) => ALL_SIZES.to_owned(),
        };
        (position as u8, name)
    };
    let tokens = match *operator {
        Operator::Collective { bytes, .. } | Operator::Streaming { bytes, .. } => {
            return range(bytes, &BYTE_LIMITS, &|bytes| format!("{}", bytes / 1024.0), " KiB");
        }
        Operator::Gemm { tokens, .. } | Operator::GroupedGemm { tokens, .. } | Operator::BatchedGemm { tokens, .. } => {
            f64::from(tokens)
        }
        Operator::LatentPrefill { batch, tokens, .. } => batch * tokens,
        Operator::LatentDecode { batch, .. } => batch,
        Operator::PrefillAttention { batch, chunk_tokens, .. } => f64::from(batch) * f64::from(chunk_tokens),
        Operator::DecodeAttention { batch, .. } => f64::from(batch),
    };
    range(tokens, &TOKEN_LIMITS, &|tokens| format!("{tokens}"), " tokens")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NumberFormat;
    use crate::fidelity::fitted::FittedProfile;
    use crate::fidelity::import::Measurement;
    use crate::fidelity::train::{Fitted, train};
    use crate::network::test_gpus;

    /// Matrix products that take `factor` times the roofline of a GPU.
    fn tables(gpu: &crate::catalog::Gpu, factor: f64) -> Measurements {
        let format = NumberFormat::Bf16;
        let shapes = (0..14).flat_map(|exponent| [512, 1024, 2048, 4096].map(|n| (1u32 << exponent, n)));
        let operators =
            shapes.map(|(tokens, n)| Operator::Gemm { tokens, n, k: 2048, weights: format, activations: format });
        let rows = operators
            .map(|operator| Measurement { operator, latency_ns: factor * benchmark_ns(&operator, gpu) })
            .collect();
        Measurements { rows, ..Measurements::default() }
    }

    #[test]
    fn a_transfer_between_equally_efficient_gpus_is_exact_where_the_roofline_is_not() {
        let (h100, h20) = (test_gpus::h100_sxm(), test_gpus::h20());
        let Fitted { card, families } = train(tables(&h100, 2.0), &h100, "made-up-1").unwrap();
        let model = CostModel::new(&h20, Some(FittedProfile::new(card, families)));
        let check = TransferCheck::new(tables(&h20, 2.0), &model, "made-up-1").unwrap();
        assert_eq!((check.from.as_str(), check.to.as_str()), ("h100-sxm", "h20"));
        let names: Vec<(&str, &str)> =
            check.errors.iter().map(|entry| (entry.group.as_str(), entry.range.as_str())).collect();
        let ranges = ["up to 64 tokens", "up to 256 tokens", "up to 1024 tokens", "up to 8192 tokens"];
        assert_eq!(names[..2], [("all", "all"), ("bf16", "all")]);
        assert_eq!(names[2..], ranges.map(|range| ("all", range)));
        let all = &check.errors[0];
        assert!(all.statistics.worst < 1.0, "{all:?}");
        assert_eq!((all.roofline.p50, all.roofline.bias, all.roofline_rows), (50.0, -50.0, 0));
        assert_eq!(toml::from_str::<TransferCheck>(&check.to_toml().unwrap()).unwrap(), check);
    }

    #[test]
    fn empty_tables_are_refused() {
        let model = CostModel::new(&test_gpus::h20(), None);
        assert!(TransferCheck::new(Measurements::default(), &model, "made-up-1").is_err());
    }
}
