//! Latency-bandwidth (alpha-beta) model on a two-level topology: the node's scale-up link and the NIC between nodes.
//!
//! Volumes are those of bandwidth-optimal algorithms (Thakur, Rabenseifner and Gropp, "Optimization of collective
//! communication operations in MPICH", IJHPCA 2005): a group of p GPUs moves (p - 1) / p of the tensor per GPU, twice
//! for an all-reduce. A group that spans nodes runs hierarchically, as NCCL's trees and rings do: reduce-scatter
//! inside the node, the collective between nodes on the shard of each rail, all-gather inside the node.

use super::{Backend, CollectiveKind, Network};
use crate::catalog::{Gpu, ScaleUp};

/// Registry entry.
pub const BACKEND: Backend = Backend {
    name: "alpha-beta",
    summary: "latency plus bytes over bandwidth, hierarchical across nodes",
    build: || Box::new(AlphaBeta),
};

/// Start of a collective kernel on NVLink, in nanoseconds: the floor of small all-reduces that replay in a CUDA graph
/// on H100, 4.2 us in the vLLM 0.19 tables of AIConfigurator (Apache-2.0), less one step.
const NVLINK_LAUNCH_NS: f64 = 3_600.0;
/// One step on NVLink, in nanoseconds; NCCL's all-gather floor on H100 is 5.3, 7.1 and 10.3 us at 2, 4 and 8 GPUs.
const NVLINK_STEP_NS: f64 = 700.0;
/// Start of a collective through host memory, in nanoseconds: NCCL's floor on PCIe boards is 10 us and more.
const PCIE_LAUNCH_NS: f64 = 10_000.0;
/// One step through host memory, in nanoseconds.
const PCIE_STEP_NS: f64 = 2_000.0;
/// One step between nodes over RDMA, in nanoseconds: about 5 us from GPU to GPU, switch hops included.
const NIC_STEP_NS: f64 = 5_000.0;
/// Share of the NVLink data-sheet rate that large NCCL transfers reach: 258 to 340 GB/s of 450 on H100, same tables.
const NVLINK_EFFICIENCY: f64 = 0.75;
/// Share of the PCIe rate that transfers between GPUs without peer access reach.
const PCIE_EFFICIENCY: f64 = 0.70;
/// Share of the NIC's line rate that RDMA transfers reach.
const NIC_EFFICIENCY: f64 = 0.85;

/// The alpha-beta backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlphaBeta;

/// Latency per start and per step, and bandwidth, of one link.
struct Link {
    launch_ns: f64,
    step_ns: f64,
    bytes_per_ns: f64,
}

impl Link {
    /// The link inside a node.
    fn scale_up(gpu: &Gpu) -> Self {
        match gpu.scale_up {
            ScaleUp::NvLink { bytes_per_second } => Self {
                launch_ns: NVLINK_LAUNCH_NS,
                step_ns: NVLINK_STEP_NS,
                bytes_per_ns: bytes_per_second * NVLINK_EFFICIENCY / 1e9,
            },
            ScaleUp::Pcie { bytes_per_second } => Self {
                launch_ns: PCIE_LAUNCH_NS,
                step_ns: PCIE_STEP_NS,
                bytes_per_ns: bytes_per_second * PCIE_EFFICIENCY / 1e9,
            },
        }
    }

    /// The network between nodes.
    fn scale_out(gpu: &Gpu) -> Self {
        Self {
            launch_ns: PCIE_LAUNCH_NS,
            step_ns: NIC_STEP_NS,
            bytes_per_ns: gpu.nic_bytes_per_second * NIC_EFFICIENCY / 1e9,
        }
    }

    /// Duration of a collective of `kind` over `ranks` equal ranks; zero for one rank.
    fn collective_ns(&self, kind: CollectiveKind, bytes: f64, ranks: f64) -> f64 {
        if ranks <= 1.0 {
            return 0.0;
        }
        let share = (ranks - 1.0) / ranks;
        let doublings = libm::ceil(libm::log2(ranks));
        let (volume, steps) = match kind {
            CollectiveKind::AllReduce => (2.0 * share, 2.0 * doublings - 1.0),
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => (share, doublings),
            // Every rank sends to every other one at the same time.
            CollectiveKind::AllToAll => (share, 1.0),
            CollectiveKind::SendRecv => (1.0, 1.0),
        };
        self.launch_ns + self.step_ns * steps + volume * bytes / self.bytes_per_ns
    }
}

impl Network for AlphaBeta {
    fn collective_ns(&self, kind: CollectiveKind, bytes: f64, gpus: u32, gpu: &Gpu) -> f64 {
        if gpus <= 1 {
            return 0.0;
        }
        let local = gpus.min(gpu.gpus_per_node.max(1));
        let nodes = f64::from(gpus.div_ceil(local));
        let (inside, between) = (Link::scale_up(gpu), Link::scale_out(gpu));
        if nodes <= 1.0 {
            return inside.collective_ns(kind, bytes, f64::from(gpus));
        }
        let local = f64::from(local);
        match kind {
            CollectiveKind::SendRecv => between.collective_ns(kind, bytes, 2.0),
            // Both links work at the same time; (nodes - 1) / nodes of the data crosses the NIC.
            CollectiveKind::AllToAll => {
                between.collective_ns(kind, bytes, nodes).max(inside.collective_ns(kind, bytes / nodes, local))
            }
            CollectiveKind::AllReduce | CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                inside.collective_ns(kind, bytes, local) + between.collective_ns(kind, bytes / local, nodes)
            }
        }
    }

    fn point_to_point_ns(&self, bytes: f64, same_node: bool, gpu: &Gpu) -> f64 {
        let link = if same_node { Link::scale_up(gpu) } else { Link::scale_out(gpu) };
        link.collective_ns(CollectiveKind::SendRecv, bytes, 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::test_gpus;

    #[test]
    fn large_all_reduce_by_hand() {
        // 1 GB over 8 H100: 2 x 7/8 GB at 450 GB/s x 0.75.
        let time = AlphaBeta.collective_ns(CollectiveKind::AllReduce, 1e9, 8, &test_gpus::h100_sxm());
        let expected = NVLINK_LAUNCH_NS + 5.0 * NVLINK_STEP_NS + 1.75e9 / (450.0 * 0.75);
        assert!((time / expected - 1.0).abs() < 1e-12, "{time} against {expected}");
    }

    #[test]
    fn leaving_the_node_is_slower_than_staying_in_it() {
        let gpu = test_gpus::h100_sxm();
        for kind in CollectiveKind::ALL {
            let inside = AlphaBeta.collective_ns(kind, 1e7, 8, &gpu);
            let across = AlphaBeta.collective_ns(kind, 1e7, 16, &gpu);
            assert!(across > inside, "{}: {across} against {inside}", kind.name());
        }
        assert!(AlphaBeta.point_to_point_ns(1e7, false, &gpu) > AlphaBeta.point_to_point_ns(1e7, true, &gpu));
    }
}
