//! The card of a fitted profile: where its measurements come from, what was left out, and how far to trust it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::catalog::{Gpu, ScaleUp};
use crate::diag::Diagnostic;

/// Name of the card in a profile's folder.
pub const CARD_FILE: &str = "card.toml";
/// Nine of ten values of a normal distribution lie within this many standard deviations.
const Z_90_TWO_SIDED: f64 = 1.645;

/// Content of `card.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// Engine and version whose kernels were measured, e.g. `vllm-0.19`.
    pub engine: String,
    /// Where the measurements were published.
    pub source: String,
    /// Licence of the measurements.
    pub licence: String,
    /// Whom the licence asks to name.
    pub attribution: String,
    /// The measured GPU as it was known when the predictors were fitted.
    pub gpu: GpuFacts,
    /// Predictor files.
    #[serde(rename = "family", default)]
    pub families: Vec<FamilyEntry>,
    /// Rows that were left out, by reason.
    #[serde(default)]
    pub dropped: Vec<DroppedRows>,
    /// Errors on rows that were left out of the fit.
    #[serde(rename = "error", default)]
    pub errors: Vec<ErrorEntry>,
    /// Held-out shapes with the largest errors, worst first within each family.
    #[serde(rename = "worst", default)]
    pub worst: Vec<WorstShape>,
}

/// The part of a data sheet that rooflines and network models use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// Catalogue name.
    pub name: String,
    /// Compute capability times ten.
    pub sm_version: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Last-level cache, in bytes.
    pub l2_bytes: u64,
    /// Dense bf16 rate, in FLOP/s.
    pub bf16_flops: f64,
    /// Dense fp8 rate, in FLOP/s, if the hardware has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8_flops: Option<f64>,
    /// Dense int8 rate, in operations per second.
    pub int8_flops: f64,
    /// Dense fp4 rate, in FLOP/s, if the hardware has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp4_flops: Option<f64>,
    /// Memory bandwidth, in bytes per second.
    pub memory_bytes_per_second: f64,
    /// GPUs of a node are joined by NVLink rather than PCI Express.
    pub nvlink: bool,
    /// Bandwidth of that link per GPU and direction, in bytes per second.
    pub scale_up_bytes_per_second: f64,
    /// Network bandwidth per GPU and direction, in bytes per second.
    pub nic_bytes_per_second: f64,
    /// GPUs in one node.
    pub gpus_per_node: u32,
}

impl GpuFacts {
    /// The facts of a catalogue entry.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        Self {
            name: gpu.name.clone(),
            sm_version: gpu.sm_version,
            sm_count: gpu.sm_count,
            l2_bytes: gpu.l2_bytes,
            bf16_flops: gpu.bf16_flops,
            fp8_flops: gpu.fp8_flops,
            int8_flops: gpu.int8_flops,
            fp4_flops: gpu.fp4_flops,
            memory_bytes_per_second: gpu.memory_bytes_per_second,
            nvlink: matches!(gpu.scale_up, ScaleUp::NvLink { .. }),
            scale_up_bytes_per_second: gpu.scale_up.bytes_per_second(),
            nic_bytes_per_second: gpu.nic_bytes_per_second,
            gpus_per_node: gpu.gpus_per_node,
        }
    }

    /// A GPU with these facts; memory capacity, power and price, which no predictor reads, are zero or absent.
    #[must_use]
    pub fn to_gpu(&self) -> Gpu {
        let bytes_per_second = self.scale_up_bytes_per_second;
        Gpu {
            name: self.name.clone(),
            sm_version: self.sm_version,
            sm_count: self.sm_count,
            l2_bytes: self.l2_bytes,
            bf16_flops: self.bf16_flops,
            fp8_flops: self.fp8_flops,
            int8_flops: self.int8_flops,
            fp4_flops: self.fp4_flops,
            memory_bytes_per_second: self.memory_bytes_per_second,
            memory_bytes: 0,
            scale_up: if self.nvlink {
                ScaleUp::NvLink { bytes_per_second }
            } else {
                ScaleUp::Pcie { bytes_per_second }
            },
            nic_bytes_per_second: self.nic_bytes_per_second,
            gpus_per_node: self.gpus_per_node,
            power_watts: None,
            usd_per_hour: 0.0,
        }
    }
}

/// One predictor file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyEntry {
    /// Operator family.
    pub name: String,
    /// File in the card's folder.
    pub file: String,
    /// Measurements that were fitted.
    pub rows: usize,
    /// Forest nodes over all groups.
    pub nodes: usize,
    /// Residual cells over all groups.
    pub cells: usize,
    /// Ranges of the measurements.
    pub ranges: String,
}

/// Rows that were left out for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedRows {
    /// Why.
    pub reason: String,
    /// How many.
    pub rows: usize,
    /// One of them.
    pub example: String,
}

/// Group of the entries over a whole family.
pub const ALL_GROUPS: &str = "all";
/// Split name of the entries over all splits of one kind.
pub const ALL_SPLITS: &str = "all splits";

/// Which rows a fit was judged on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ErrorKind {
    /// Whole values of a size or shape, with fitted ones around them.
    #[serde(rename = "held-out")]
    HeldOut,
    /// The largest values of a size.
    #[serde(rename = "extrapolation")]
    Extrapolation,
    /// Rows drawn at random, whose neighbours in every direction stay in the fit: comparable with publications that
    /// split this way, and too kind a test of new shapes.
    #[serde(rename = "random rows")]
    RandomRows,
}

impl ErrorKind {
    /// Name in reports and cards.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HeldOut => "held-out",
            Self::Extrapolation => "extrapolation",
            Self::RandomRows => "random rows",
        }
    }
}

/// Quantiles listed in [`ErrorStatistics::quantiles`]: 0, 5, ... 100 %.
pub const QUANTILES: usize = 21;

/// Distribution of relative errors, predicted / measured - 1, in per cent. All but the bias are of absolute values; every
/// number is an observed error, rounded to a hundredth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorStatistics {
    /// Rows.
    pub rows: usize,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub worst: f64,
    /// Median with its sign: positive where predictions are too slow.
    pub bias: f64,
    /// The [`QUANTILES`] quantiles from the smallest to the largest error.
    pub quantiles: Vec<f64>,
}

impl ErrorStatistics {
    /// Summarises signed errors in per cent; `None` if there are none.
    #[must_use]
    pub fn of(mut signed: Vec<f64>) -> Option<Self> {
        if signed.is_empty() {
            return None;
        }
        signed.sort_unstable_by(f64::total_cmp);
        let bias = nearest_rank(&signed, 50);
        let mut errors: Vec<f64> = signed.into_iter().map(f64::abs).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let at = |percent| nearest_rank(&errors, percent);
        Some(Self {
            rows: errors.len(),
            p50: at(50),
            p90: at(90),
            p95: at(95),
            worst: at(100),
            bias,
            quantiles: (0..QUANTILES).map(|step| at(step * 100 / (QUANTILES - 1))).collect(),
        })
    }
}

/// The smallest value with at least `percent` per cent of a sorted, non-empty sample at or below it, rounded.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    libm::round(sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1] * 100.0) / 100.0
}

/// Errors of one family and group on rows that the judged fit has not seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorEntry {
    /// Operator family.
    pub family: String,
    /// Formats or kind within the family; `all` for the whole family.
    pub group: String,
    /// How the rows were chosen.
    pub kind: ErrorKind,
    /// What was held out: whole values of this; `all splits` for the splits of one kind together.
    pub held_out: String,
    /// The errors.
    pub statistics: ErrorStatistics,
}

/// A held-out shape that was predicted badly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorstShape {
    /// Operator family.
    pub family: String,
    /// Formats or kind within the family.
    pub group: String,
    /// The split it was held out in.
    pub held_out: String,
    /// The operator, for people.
    pub shape: String,
    /// Measured time, in microseconds.
    pub measured_us: f64,
    /// Predicted time, in microseconds.
    pub predicted_us: f64,
    /// Relative error with its sign, in per cent.
    pub error: f64,
}

impl Card {
    /// Reads a card.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a card.
    pub fn load(path: &Path) -> Result<Self, Diagnostic> {
        let text = fs::read_to_string(path)
            .map_err(|error| Diagnostic::new(format!("cannot read the profile card `{}`: {error}", path.display())))?;
        toml::from_str(&text).map_err(|error| {
            Diagnostic::new(format!("`{}` is not a profile card: {}", path.display(), error.message()))
        })
    }

    /// The text of `card.toml`.
    ///
    /// # Errors
    /// If a value cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, Diagnostic> {
        toml::to_string(self).map_err(|error| Diagnostic::new(format!("cannot write the profile card: {error}")))
    }

    /// Standard deviation of ln(time) that the errors of a family and kind suggest: their p90 over all splits and groups, as
    /// the two-sided p90 of a normal distribution.
    #[must_use]
    pub fn uncertainty(&self, family: &str, kind: ErrorKind) -> Option<f64> {
        let errors = self.error(family, kind, ALL_SPLITS, ALL_GROUPS)?;
        Some(errors.p90 / 100.0 / Z_90_TWO_SIDED)
    }

    /// The entry of a family, split and group.
    #[must_use]
    pub fn error(&self, family: &str, kind: ErrorKind, held_out: &str, group: &str) -> Option<&ErrorStatistics> {
        let wanted = |entry: &&ErrorEntry| {
            entry.family == family && entry.kind == kind && entry.held_out == held_out && entry.group == group
        };
        self.errors.iter().find(wanted).map(|entry| &entry.statistics)
    }

    /// The largest p95 over the held-out splits of a family and group, in per cent.
    #[must_use]
    pub fn p95(&self, family: &str, group: &str) -> Option<f64> {
        self.errors
            .iter()
            .filter(|entry| entry.kind == ErrorKind::HeldOut && entry.family == family && entry.group == group)
            .map(|entry| entry.statistics.p95)
            .max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_nearest_ranks_of_absolute_errors_and_a_signed_median() {
        let signed = (1..=20).map(|rank| if rank % 2 == 0 { -f64::from(rank) } else { f64::from(rank) }).collect();
        let statistics = ErrorStatistics::of(signed).unwrap();
        assert_eq!((statistics.p50, statistics.p90, statistics.p95, statistics.worst), (10.0, 18.0, 19.0, 20.0));
        // Ten errors are negative, -20 to -2; the tenth from below is -2.
        assert_eq!((statistics.rows, statistics.bias), (20, -2.0));
        assert_eq!(statistics.quantiles.len(), QUANTILES);
        assert_eq!((statistics.quantiles[0], statistics.quantiles[1], statistics.quantiles[20]), (1.0, 1.0, 20.0));
        assert_eq!(ErrorStatistics::of(Vec::new()), None);
    }
}
