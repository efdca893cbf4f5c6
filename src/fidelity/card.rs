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
    /// Errors on held-out rows.
    #[serde(rename = "error", default)]
    pub errors: Vec<ErrorEntry>,
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

/// Error of one family and group on held-out rows, in per cent of the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorEntry {
    /// Operator family.
    pub family: String,
    /// Formats or kind within the family.
    pub group: String,
    /// What was held out: whole values of this.
    pub held_out: String,
    /// Held-out rows.
    pub rows: usize,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub worst: f64,
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
        toml::to_string_pretty(self).map_err(|error| Diagnostic::new(format!("cannot write the profile card: {error}")))
    }

    /// Standard deviation of ln(time) that the held-out errors of a family and group suggest: their p90 over the splits,
    /// averaged, as the two-sided p90 of a normal distribution.
    #[must_use]
    pub fn uncertainty(&self, family: &str, group: &str) -> Option<f64> {
        let splits = self.errors.iter().filter(|entry| entry.family == family && entry.group == group);
        let (sum, count) = splits.fold((0.0, 0), |(sum, count), entry| (sum + entry.p90, count + 1));
        (count > 0).then(|| sum / f64::from(count) / 100.0 / Z_90_TWO_SIDED)
    }

    /// The largest p95 over the splits of a family and group, in per cent.
    #[must_use]
    pub fn p95(&self, family: &str, group: &str) -> Option<f64> {
        self.errors
            .iter()
            .filter(|entry| entry.family == family && entry.group == group)
            .map(|entry| entry.p95)
            .max_by(f64::total_cmp)
    }
}
