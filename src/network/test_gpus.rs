//! Data sheets written by hand for unit tests, so that they do not depend on the catalogue's files.

use crate::catalog::{Gpu, ScaleUp};

/// H100 80 GB SXM5.
pub(crate) fn h100_sxm() -> Gpu {
    Gpu {
        name: "h100-sxm".to_owned(),
        sm_version: 90,
        sm_count: 132,
        l2_bytes: 50_000_000,
        bf16_flops: 989e12,
        fp8_flops: Some(1979e12),
        int8_flops: 1979e12,
        fp4_flops: None,
        memory_bytes_per_second: 3.35e12,
        memory_bytes: 85_045_870_592,
        scale_up: ScaleUp::NvLink { bytes_per_second: 450e9 },
        nic_bytes_per_second: 50e9,
        gpus_per_node: 8,
        power_watts: Some(700.0),
        usd_per_hour: 3.0,
    }
}

/// H800: H100 SXM with NVLink cut to 400 GB/s in both directions together.
pub(crate) fn h800() -> Gpu {
    Gpu { name: "h800".to_owned(), scale_up: ScaleUp::NvLink { bytes_per_second: 200e9 }, ..h100_sxm() }
}

/// H20: Hopper with a fraction of the arithmetic and more memory bandwidth.
pub(crate) fn h20() -> Gpu {
    Gpu {
        name: "h20".to_owned(),
        sm_count: 78,
        l2_bytes: 60_000_000,
        bf16_flops: 148e12,
        fp8_flops: Some(296e12),
        int8_flops: 296e12,
        memory_bytes_per_second: 4.0e12,
        ..h100_sxm()
    }
}

/// L40S: Ada, PCIe only.
pub(crate) fn l40s() -> Gpu {
    Gpu {
        name: "l40s".to_owned(),
        sm_version: 89,
        sm_count: 142,
        l2_bytes: 96_000_000,
        bf16_flops: 362e12,
        fp8_flops: Some(733e12),
        int8_flops: 733e12,
        memory_bytes_per_second: 0.864e12,
        scale_up: ScaleUp::Pcie { bytes_per_second: 32e9 },
        ..h100_sxm()
    }
}
