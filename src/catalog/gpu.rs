//! Data sheets of GPUs.

use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::precision::NumberFormat;
use super::toml_file::{self, Checks, Provenance};
use crate::diag::{Diagnostics, Source};

/// One GPU type: peak rates, memory, links and price. Read from `profiles/gpus/NAME.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Catalogue name, e.g. `h100-sxm`.
    pub name: String,
    /// Compute capability times ten, e.g. 90 for Hopper.
    pub sm_version: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
    /// Last-level (L2) cache, in bytes.
    pub l2_bytes: u64,
    /// Dense tensor-core rate for 16-bit floats, in FLOP/s.
    pub bf16_flops: f64,
    /// Dense rate for 8-bit floats, in FLOP/s; `None` where the hardware has none.
    pub fp8_flops: Option<f64>,
    /// Dense rate for 8-bit integers, in operations per second.
    pub int8_flops: f64,
    /// Dense rate for 4-bit floats, in FLOP/s; `None` where the hardware has none.
    pub fp4_flops: Option<f64>,
    /// Peak memory bandwidth, in bytes per second.
    pub memory_bytes_per_second: f64,
    /// Memory as the driver reports it (`cudaMemGetInfo` total), in bytes.
    pub memory_bytes: u64,
    /// Link to the other GPUs of the node.
    pub scale_up: ScaleUp,
    /// Network bandwidth per GPU between nodes, one direction, in bytes per second.
    pub nic_bytes_per_second: f64,
    /// GPUs in one node.
    pub gpus_per_node: u32,
    /// Board power limit, in watts, if published.
    pub power_watts: Option<f64>,
    /// List price of one GPU, in USD per hour.
    pub usd_per_hour: f64,
}

impl Gpu {
    /// Dense rate of matrix products whose activations have this format, in operations per second; `None` where the
    /// tensor cores do not support it. Weight-only formats run at the rate of their bf16 activations.
    #[must_use]
    pub fn flops(&self, activations: NumberFormat) -> Option<f64> {
        match activations {
            NumberFormat::Bf16 => Some(self.bf16_flops),
            NumberFormat::Fp8 | NumberFormat::Fp8Block => self.fp8_flops,
            NumberFormat::Int8 => Some(self.int8_flops),
            NumberFormat::Int4 => None,
            NumberFormat::Nvfp4 | NumberFormat::Mxfp4 => self.fp4_flops,
        }
    }
}

/// The link between GPUs of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScaleUp {
    /// NVLink or NVSwitch.
    NvLink {
        /// Bandwidth per GPU, one direction, in bytes per second.
        bytes_per_second: f64,
    },
    /// PCI Express through the host.
    Pcie {
        /// Bandwidth per GPU, one direction, in bytes per second.
        bytes_per_second: f64,
    },
}

impl ScaleUp {
    /// Bandwidth per GPU, one direction, in bytes per second.
    #[must_use]
    pub fn bytes_per_second(self) -> f64 {
        match self {
            Self::NvLink { bytes_per_second } | Self::Pcie { bytes_per_second } => bytes_per_second,
        }
    }
}

/// The file as written. Rates are dense; link bandwidths are per GPU and in one direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuFile {
    sm_version: Spanned<u32>,
    sm_count: Spanned<u32>,
    l2_bytes: Spanned<u64>,
    gpus_per_node: Spanned<u32>,
    power_watts: Option<Spanned<f64>>,
    compute: ComputeTable,
    memory: MemoryTable,
    scale_up: ScaleUpTable,
    scale_out: ScaleOutTable,
    price: PriceTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComputeTable {
    source: Spanned<Provenance>,
    bf16_flops: Spanned<f64>,
    fp8_flops: Option<Spanned<f64>>,
    int8_ops: Spanned<f64>,
    fp4_flops: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    source: Spanned<Provenance>,
    bytes: Spanned<u64>,
    bytes_per_second: Spanned<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LinkKind {
    Nvlink,
    Pcie,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleUpTable {
    source: Spanned<Provenance>,
    kind: LinkKind,
    bytes_per_second: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaleOutTable {
    source: Spanned<Provenance>,
    bytes_per_second: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    source: Spanned<Provenance>,
    /// Month of the price, as YYYY-MM.
    as_of: Spanned<String>,
    usd_per_hour: Spanned<f64>,
}

/// Reads the GPU that `source` describes and calls it `name`.
///
/// # Errors
/// Invalid TOML, unknown or missing keys, or values out of bounds, with their place in the file.
pub(super) fn parse(name: &str, source: &Arc<Source>) -> Result<Gpu, Diagnostics> {
    let file: GpuFile = toml_file::parse(source)?;
    let mut checks = Checks::new(source);
    checks.sourced("compute", &file.compute.source);
    checks.sourced("memory", &file.memory.source);
    checks.sourced("scale_up", &file.scale_up.source);
    checks.sourced("scale_out", &file.scale_out.source);
    checks.sourced("price", &file.price.source);
    if !is_month(file.price.as_of.get_ref()) {
        checks.problem("`as_of` must be a month, as in `2025-11`".to_owned(), file.price.as_of.span());
    }
    let link = checks.positive("bytes_per_second", &file.scale_up.bytes_per_second);
    let gpu = Gpu {
        name: name.to_owned(),
        sm_version: checks.count("sm_version", &file.sm_version),
        sm_count: checks.count("sm_count", &file.sm_count),
        l2_bytes: checks.count("l2_bytes", &file.l2_bytes),
        bf16_flops: checks.positive("bf16_flops", &file.compute.bf16_flops),
        fp8_flops: file.compute.fp8_flops.as_ref().map(|rate| checks.positive("fp8_flops", rate)),
        int8_flops: checks.positive("int8_ops", &file.compute.int8_ops),
        fp4_flops: file.compute.fp4_flops.as_ref().map(|rate| checks.positive("fp4_flops", rate)),
        memory_bytes_per_second: checks.positive("bytes_per_second", &file.memory.bytes_per_second),
        memory_bytes: checks.count("bytes", &file.memory.bytes),
        scale_up: match file.scale_up.kind {
            LinkKind::Nvlink => ScaleUp::NvLink { bytes_per_second: link },
            LinkKind::Pcie => ScaleUp::Pcie { bytes_per_second: link },
        },
        nic_bytes_per_second: checks.positive("bytes_per_second", &file.scale_out.bytes_per_second),
        gpus_per_node: checks.count("gpus_per_node", &file.gpus_per_node),
        power_watts: file.power_watts.as_ref().map(|watts| checks.positive("power_watts", watts)),
        usd_per_hour: checks.not_negative("usd_per_hour", &file.price.usd_per_hour),
    };
    checks.finish(gpu)
}

/// Whether `text` reads YYYY-MM.
fn is_month(text: &str) -> bool {
    let digits = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-')
        .is_some_and(|(year, month)| digits(year, 4) && digits(month, 2) && ("01"..="12").contains(&month))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
sm_version = 90
sm_count = 132
l2_bytes = 50_000_000
gpus_per_node = 8

[compute]
source = "data sheet"
bf16_flops = 989e12
int8_ops = 1979e12

[memory]
source = "driver"
bytes = 84_943_765_504
bytes_per_second = 3.35e12

[scale_up]
source = "NVLink 4"
kind = "nvlink"
bytes_per_second = 450e9

[scale_out]
source = "400 Gb/s"
bytes_per_second = 50e9

[price]
source = "list"
as_of = "2025-11"
usd_per_hour = 3.0
"#;

    fn read(text: String) -> Result<Gpu, Diagnostics> {
        parse("test", &Arc::new(Source { name: "test.toml".to_owned(), text }))
    }

    /// The source text that the only problem points at.
    fn place(error: &Diagnostics) -> &str {
        let location = error.0[0].location.as_ref().unwrap();
        &location.source.text[location.span.clone()]
    }

    #[test]
    fn a_complete_file_is_read() {
        let gpu = read(FILE.to_owned()).unwrap();
        assert_eq!(gpu.memory_bytes, 84_943_765_504);
        assert_eq!(gpu.scale_up, ScaleUp::NvLink { bytes_per_second: 450e9 });
        assert_eq!((gpu.fp8_flops, gpu.power_watts), (None, None));
    }

    #[test]
    fn an_unknown_key_is_an_error_at_the_key() {
        let error = read(FILE.replace("sm_count = 132", "sm_count = 132\ncolour = 1")).unwrap_err();
        assert_eq!(place(&error), "colour");
    }

    #[test]
    fn every_value_out_of_bounds_is_reported_at_its_place() {
        let text = FILE.replace("989e12", "0.0").replace("usd_per_hour = 3.0", "usd_per_hour = -1.0");
        let error = read(text).unwrap_err();
        assert_eq!(error.0.len(), 2);
        assert_eq!(place(&error), "0.0");
    }

    #[test]
    fn facts_without_a_source_are_refused() {
        let error = read(FILE.replace("source = \"driver\"", "source = \"\"")).unwrap_err();
        assert!(error.0[0].message.contains("`memory`"), "{error}");
    }

    #[test]
    fn a_price_without_a_month_is_refused_at_its_place() {
        for date in ["2025", "2025-13", "Nov 2025", ""] {
            let error = read(FILE.replace("2025-11", date)).unwrap_err();
            assert_eq!(place(&error), format!("\"{date}\""));
        }
    }

    #[test]
    fn rates_of_formats_that_the_hardware_lacks_are_absent() {
        let gpu = read(FILE.to_owned()).unwrap();
        assert_eq!(gpu.flops(NumberFormat::Bf16), Some(989e12));
        assert_eq!(gpu.flops(NumberFormat::Int8), Some(1979e12));
        assert_eq!(gpu.flops(NumberFormat::Fp8), None);
        assert_eq!(gpu.flops(NumberFormat::Nvfp4), None);
    }
}
