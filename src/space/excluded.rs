//! Why a combination of axis values is not a deployment.

use thiserror::Error;

use crate::catalog::NumberFormat;

/// A rule that a combination breaks, with the numbers that show it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Excluded {
    /// One replica needs more GPUs than there are.
    #[error("one replica needs {world_size} GPUs, the budget is {gpus}")]
    WorldOverBudget {
        /// GPUs of one replica.
        world_size: u64,
        /// GPU budget.
        gpus: u32,
    },
    /// Replicas fill the budget, but not evenly.
    #[error("replicas of {world_size} GPUs do not fill the budget of {gpus}")]
    WorldDoesNotDivide {
        /// GPUs of one replica.
        world_size: u64,
        /// GPU budget.
        gpus: u32,
    },
    /// The number of replicas is given and misses the budget.
    #[error("{replicas} x {world_size} GPUs miss the budget of {gpus}")]
    BudgetNotMet {
        /// Replicas.
        replicas: u32,
        /// GPUs of one replica.
        world_size: u64,
        /// GPU budget.
        gpus: u32,
    },
    /// Query heads cannot be shared evenly.
    #[error("{heads} heads cannot be split over tp {tp}")]
    Heads {
        /// Query heads.
        heads: u32,
        /// Tensor parallelism of attention.
        tp: u32,
    },
    /// Key-value heads can neither be shared evenly nor replicated evenly.
    #[error("{kv_heads} key-value heads can be neither split nor replicated over tp {tp}")]
    KvHeads {
        /// Key-value heads.
        kv_heads: u32,
        /// Tensor parallelism of attention.
        tp: u32,
    },
    /// Experts cannot be placed evenly.
    #[error("{experts} experts cannot be placed on ep {ep} ranks")]
    Experts {
        /// Routed experts.
        experts: u32,
        /// Expert parallelism.
        ep: u32,
    },
    /// Experts are dealt out over all GPUs of a stage, or not at all.
    #[error("ep must be 1 or tp {tp} x dp {dp}, not {ep}")]
    FfnDomain {
        /// Tensor parallelism of attention.
        tp: u32,
        /// Data parallelism of attention.
        dp: u32,
        /// Expert parallelism.
        ep: u32,
    },
    /// The inner width of an FFN or expert cannot be split.
    #[error("an FFN width of {width} cannot be split over {tp} GPUs in multiples of {multiple}")]
    FfnWidth {
        /// Inner width.
        width: u32,
        /// GPUs that share it.
        tp: u32,
        /// Each share must be a multiple of this: the scale block of the number format, or 1.
        multiple: u32,
    },
    /// More pipeline stages than layers.
    #[error("{layers} layers cannot fill {pp} pipeline stages")]
    Stages {
        /// Decoder layers.
        layers: usize,
        /// Pipeline stages.
        pp: u32,
    },
    /// The engine refuses a token budget below the number of sequences.
    #[error("max_num_batched_tokens {max_num_batched_tokens} is below max_num_seqs {max_num_seqs}")]
    TokensBelowSequences {
        /// Token budget of an iteration.
        max_num_batched_tokens: u32,
        /// Most sequences.
        max_num_seqs: u32,
    },
    /// The engine would refuse the longest request.
    #[error("the longest request has {longest_request} tokens, max_model_len is {max_model_len}")]
    ModelLengthBelowRequest {
        /// Longest sequence that the engine accepts.
        max_model_len: u32,
        /// Prompt and output of the workload's longest request.
        longest_request: u32,
    },
    /// Without chunked prefill the longest prompt must fit in one iteration.
    #[error(
        "without chunked prefill, max_num_batched_tokens {max_num_batched_tokens} is below max_model_len {max_model_len}"
    )]
    TokensBelowModelLength {
        /// Token budget of an iteration.
        max_num_batched_tokens: u32,
        /// Longest request.
        max_model_len: u32,
    },
    /// The GPU has no arithmetic for a number format.
    #[error("`{gpu}` has no {} arithmetic", format.name())]
    Precision {
        /// GPU type.
        gpu: String,
        /// The format it lacks.
        format: NumberFormat,
    },
    /// An earlier block of the sweep holds the same deployment.
    #[error("the same deployment is already in block {block} of the sweep")]
    Repeated {
        /// Number of that block, from 1.
        block: usize,
    },
}

impl Excluded {
    /// A short name for counting: one per rule, the same in every release.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::WorldOverBudget { .. } => "world_over_budget",
            Self::WorldDoesNotDivide { .. } => "world_does_not_divide",
            Self::BudgetNotMet { .. } => "budget_not_met",
            Self::Heads { .. } => "heads",
            Self::KvHeads { .. } => "kv_heads",
            Self::Experts { .. } => "experts",
            Self::FfnDomain { .. } => "ffn_domain",
            Self::FfnWidth { .. } => "ffn_width",
            Self::Stages { .. } => "stages",
            Self::TokensBelowSequences { .. } => "tokens_below_sequences",
            Self::ModelLengthBelowRequest { .. } => "model_length_below_request",
            Self::TokensBelowModelLength { .. } => "tokens_below_model_length",
            Self::Precision { .. } => "precision",
            Self::Repeated { .. } => "repeated",
        }
    }
}
