//! Time of collectives and point-to-point messages: one trait, one file per backend.
//!
//! To add a backend: write `src/network/NAME.rs` with a type that implements [`Network`], then list it in
//! [`BACKENDS`].

pub mod alpha_beta;
#[cfg(test)]
pub(crate) mod test_gpus;

use crate::catalog::Gpu;

/// Collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Sum over the group, result everywhere.
    AllReduce,
    /// Concatenation over the group, result everywhere.
    AllGather,
    /// Sum over the group, result scattered.
    ReduceScatter,
    /// Personalised exchange.
    AllToAll,
    /// One message from one GPU to another.
    SendRecv,
}

impl CollectiveKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 5] = [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::SendRecv];

    /// Name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::SendRecv => "send_recv",
        }
    }
}

/// Predicts how long a group of GPUs communicates.
pub trait Network: Send + Sync + std::fmt::Debug {
    /// Duration in nanoseconds of one collective of `kind` over `gpus` GPUs of type `gpu`, packed into as few nodes as
    /// possible.
    ///
    /// `bytes` is the size of the whole tensor: the reduced tensor, the gathered result, the scattered or exchanged
    /// input, or the message. Zero for a group of one. Never falls when `bytes` rises.
    fn collective_ns(&self, kind: CollectiveKind, bytes: f64, gpus: u32, gpu: &Gpu) -> f64;

    /// Duration in nanoseconds of one message of `bytes` from a GPU to another, in the same node or in another one.
    fn point_to_point_ns(&self, bytes: f64, same_node: bool, gpu: &Gpu) -> f64;
}

/// One entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    /// Name in sweep files and results.
    pub name: &'static str,
    /// One sentence for `--help` and the documentation.
    pub summary: &'static str,
    /// Makes the backend.
    pub build: fn() -> Box<dyn Network>,
}

/// Every backend; the first is the default.
pub const BACKENDS: &[Backend] = &[alpha_beta::BACKEND];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::test_gpus;

    #[test]
    fn every_backend_grows_with_bytes_and_is_free_for_one_gpu() {
        for backend in BACKENDS {
            let network = (backend.build)();
            for gpu in [test_gpus::h100_sxm(), test_gpus::l40s()] {
                for kind in CollectiveKind::ALL {
                    assert_eq!(network.collective_ns(kind, 1e6, 1, &gpu), 0.0, "{} {}", backend.name, kind.name());
                    for gpus in [2, 4, 8, 16, 64] {
                        let times: Vec<f64> =
                            (8..32).map(|e| network.collective_ns(kind, f64::from(1u32 << e), gpus, &gpu)).collect();
                        assert!(times[0] > 0.0);
                        assert!(times.windows(2).all(|w| w[0] <= w[1]), "{} {gpus} GPUs: {times:?}", kind.name());
                    }
                }
            }
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, backend) in BACKENDS.iter().enumerate() {
            assert!(!backend.summary.is_empty());
            assert!(BACKENDS[i + 1..].iter().all(|other| other.name != backend.name));
        }
    }
}
