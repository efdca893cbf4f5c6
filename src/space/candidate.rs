//! A candidate: one fully resolved deployment with its load.

use std::fmt;
use std::sync::Arc;

use crate::catalog::{Gpu, Precision};

/// Content hash of everything that defines a candidate. Stable under reordering and extension of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId(pub u64);

impl fmt::Display for CandidateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How prefill, decode attention and decode FFN are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Architecture {
    /// Every replica does prefill and decode.
    Colocation,
}

impl Architecture {
    /// Name in sweep files and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Colocation => "colocation",
        }
    }
}

/// What a pool of replicas does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill and decode together.
    Colocated,
}

impl Role {
    /// One-letter name: `C`.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Colocated => 'C',
        }
    }
}

/// How one replica is split over GPUs: `pp` stages, each an attention domain of `tp_attention` x `dp_attention` GPUs
/// that is at the same time an FFN domain of `tp_ffn` x `ep_ffn` GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parallelism {
    /// Pipeline stages.
    pub pp: u32,
    /// GPUs that share the heads of one attention block.
    pub tp_attention: u32,
    /// Attention data-parallel ranks, each with its own requests and KV cache.
    pub dp_attention: u32,
    /// GPUs that share the columns of one FFN or expert.
    pub tp_ffn: u32,
    /// Expert-parallel ranks (FFN data parallelism on dense models).
    pub ep_ffn: u32,
}

impl Parallelism {
    /// GPUs in one replica.
    #[must_use]
    pub fn world_size(self) -> u32 {
        self.pp * self.tp_attention * self.dp_attention
    }

    /// Short label without the trivial factors, e.g. `tp4`, `pp2 tp4`, `tp2 dp4 ep8`.
    #[must_use]
    pub fn label(self) -> String {
        let factors = [
            ("pp", self.pp, self.pp > 1),
            ("tp", self.tp_attention, true),
            ("dp", self.dp_attention, self.dp_attention > 1),
            ("ep", self.ep_ffn, self.ep_ffn > 1),
        ];
        let shown: Vec<String> =
            factors.iter().filter(|(_, _, show)| *show).map(|(name, size, _)| format!("{name}{size}")).collect();
        shown.join(" ")
    }
}

/// Limits and switches of the serving engine in one pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineLimits {
    /// Scheduler policy: a name of the registry in `scheduler`.
    pub scheduler: &'static str,
    /// Most sequences in one engine (one attention data-parallel rank) that run at the same time.
    pub max_num_seqs: u32,
    /// Most tokens in one iteration of one engine.
    pub max_num_batched_tokens: u32,
    /// Longest request, prompt and output together, in tokens.
    pub max_model_len: u32,
    /// Tokens in one KV block.
    pub block_size: u32,
    /// Share of GPU memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// Decode batches replay captured CUDA graphs; otherwise every iteration is eager.
    pub cuda_graph: bool,
    /// A long prompt may be split over iterations.
    pub chunked_prefill: bool,
    /// KV blocks of earlier requests are found again by requests that begin with the same tokens.
    pub prefix_caching: bool,
}

/// All replicas of one role: `replicas` x `world_size` GPUs of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// What the pool does.
    pub role: Role,
    /// GPU type of every replica.
    pub gpu: Arc<Gpu>,
    /// Number of identical replicas.
    pub replicas: u32,
    /// Split of one replica.
    pub parallelism: Parallelism,
    /// Number formats.
    pub precision: Precision,
    /// Engine version whose overheads and memory constants apply: the name of a profile under `profiles/engines`.
    pub engine_profile: Arc<str>,
    /// Engine limits.
    pub engine: EngineLimits,
}

impl Pool {
    /// GPUs of the pool.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.replicas * self.parallelism.world_size()
    }
}

/// One fully resolved deployment together with the load it is tested under.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Position in the index space of the sweep; not part of the content.
    pub index: u64,
    /// Content hash.
    pub id: CandidateId,
    /// Placement of the phases.
    pub architecture: Architecture,
    /// Pools, one per role.
    pub pools: Vec<Pool>,
    /// Router policy: a name of the registry in `scheduler::router`.
    pub router: &'static str,
    /// Position on the sweep's load axis.
    pub load_index: usize,
    /// The load as the sweep states it: requests per second, or concurrent clients of a closed loop.
    pub load: f64,
}

impl Candidate {
    /// GPUs of the whole system.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.pools.iter().map(Pool::gpus).sum()
    }

    /// List price of the whole system, in USD per hour.
    #[must_use]
    pub fn usd_per_hour(&self) -> f64 {
        self.pools.iter().map(|pool| f64::from(pool.gpus()) * pool.gpu.usd_per_hour).sum()
    }
}
