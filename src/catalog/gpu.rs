//! Data sheets of GPUs.

/// One GPU type: peak rates, memory, links and price. Read from `profiles/gpus/NAME.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Catalogue name, e.g. `h100-sxm`.
    pub name: String,
    /// Compute capability times ten, e.g. 90 for Hopper.
    pub sm_version: u32,
    /// Streaming multiprocessors.
    pub sm_count: u32,
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
