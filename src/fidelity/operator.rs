//! The operators a model step is made of, each with the shape its time depends on.

use super::expert_load::ExpertLoad;
use crate::catalog::NumberFormat;
pub use crate::network::CollectiveKind;

/// One kernel, or one collective, on one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    /// Dense matrix product: (tokens x k) by (k x n).
    Gemm {
        /// Rows of the activation matrix (m).
        tokens: u32,
        /// Columns of the weight shard.
        n: u32,
        /// Inner dimension of the shard.
        k: u32,
        /// Format of the weights.
        weights: NumberFormat,
        /// Format of the activations.
        activations: NumberFormat,
    },
    /// Causal attention of `batch` equal chunks of new tokens, each on top of `context` cached tokens.
    PrefillAttention {
        /// Sequences.
        batch: u32,
        /// New tokens per sequence.
        chunk_tokens: u32,
        /// Cached tokens per sequence, before the chunk.
        context_tokens: u32,
        /// Heads on this GPU.
        heads: AttentionHeads,
    },
    /// Attention of one new token per sequence.
    DecodeAttention {
        /// Sequences.
        batch: u32,
        /// Tokens attended to per sequence, the new one included; the mean where lengths differ.
        context_tokens: f64,
        /// Tokens that the longest sequence attends to; equal to the mean where all are equally long.
        longest_tokens: f64,
        /// Heads on this GPU.
        heads: AttentionHeads,
    },
    /// A whole multi-head latent attention block of DeepSeek-V3 in prefill, from the hidden states to the output
    /// projection: how such blocks are measured. Step costs use only its growth with the length.
    LatentPrefill {
        /// Prompts without cached context.
        batch: f64,
        /// Tokens per prompt.
        tokens: f64,
        /// The block.
        block: LatentBlock,
    },
    /// The same block in decode.
    LatentDecode {
        /// Sequences.
        batch: f64,
        /// Tokens attended to per sequence, the new one included.
        context_tokens: f64,
        /// The block.
        block: LatentBlock,
    },
    /// Independent products of equal shape, one per attention head: (tokens x k) by (k x n), in bf16. Latent attention
    /// absorbs its up-projections into queries and outputs this way.
    BatchedGemm {
        /// Products.
        products: u32,
        /// Rows of each.
        tokens: u32,
        /// Columns of each.
        n: u32,
        /// Inner dimension.
        k: u32,
    },
    /// The routed experts of one MoE layer on one GPU: router output to combined output.
    GroupedGemm {
        /// Tokens routed in the whole expert-parallel group.
        tokens: u32,
        /// The experts.
        experts: Experts,
        /// How the tokens spread over them.
        load: ExpertLoad,
    },
    /// Bandwidth-bound kernels: norms, activations, rotary embedding, cache writes, embedding look-up, sampling.
    Streaming {
        /// Which.
        kind: StreamingKind,
        /// Bytes read and written.
        bytes: f64,
        /// Kernels launched.
        kernels: u32,
    },
    /// A collective or a point-to-point transfer inside one group.
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// Bytes of the tensor: the full tensor for all-reduce, the gathered result for all-gather, the input for
        /// reduce-scatter and all-to-all, the message for send/recv.
        bytes: f64,
        /// GPUs in the group.
        gpus: u32,
        /// Replayed inside a CUDA graph.
        graph: bool,
    },
}

impl Operator {
    /// Decode attention of equally long sequences.
    #[must_use]
    pub const fn decode_attention(batch: u32, context_tokens: f64, heads: AttentionHeads) -> Self {
        Self::DecodeAttention { batch, context_tokens, longest_tokens: context_tokens, heads }
    }
}

/// Kernels that move bytes and hardly compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamingKind {
    /// Look-up of the embedding.
    Embedding,
    /// RMS norm, with or without the residual addition.
    Norm,
    /// Rotary position embedding in place.
    Rotary,
    /// Keys and values into their cache blocks.
    CacheWrite,
    /// Gate times up-projection.
    Activation,
    /// Scores of the router, and the choice of the experts.
    Routing,
    /// Softmax and draw over the logits.
    Sampling,
}

impl StreamingKind {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Rotary => "rotary",
            Self::CacheWrite => "cache write",
            Self::Activation => "activation",
            Self::Routing => "routing",
            Self::Sampling => "sampling",
        }
    }

    /// Sustained share of the memory bandwidth. Fitted on the kernel-only timings of Llama-3.1-405B on H800 at tensor
    /// parallelism 1 and 4 (NetX-lab/Frontier, MIT); sampling and routing were not timed and are taken as norms.
    #[must_use]
    pub const fn bandwidth_share(self) -> f64 {
        match self {
            Self::Embedding => 0.90,
            Self::Norm | Self::Routing | Self::Sampling => 0.77,
            Self::Activation => 0.58,
            Self::Rotary => 0.43,
            Self::CacheWrite => 0.20,
        }
    }
}

/// Attention heads of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionHeads {
    /// Query heads.
    pub query: u32,
    /// Key-value heads; 1 for latent and factorised attention.
    pub kv: u32,
    /// Width of the query-key product per head.
    pub qk_dim: u32,
    /// Width of a value per head.
    pub v_dim: u32,
    /// Cached values per token and layer on this GPU, in elements: 2 x kv x head_dim, or the latent's width.
    pub cached_elements_per_token: u32,
    /// Sliding window, in tokens.
    pub window: Option<u32>,
    /// Format of the cache.
    pub kv_cache: NumberFormat,
}

impl AttentionHeads {
    /// Grouped attention without a window: `query` heads share `kv` key-value heads of `width` elements, all cached.
    #[must_use]
    pub const fn grouped(query: u32, kv: u32, width: u32, kv_cache: NumberFormat) -> Self {
        let cached_elements_per_token = 2 * kv * width;
        Self { query, kv, qk_dim: width, v_dim: width, cached_elements_per_token, window: None, kv_cache }
    }
}

/// The routed experts of one layer as one GPU holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Inner width of one expert on this GPU.
    pub intermediate_size: u32,
    /// Experts per token.
    pub top_k: u32,
    /// Experts of the layer.
    pub count: u32,
    /// Experts held by this GPU.
    pub local: u32,
    /// Format of the weights.
    pub weights: NumberFormat,
    /// Format of the activations.
    pub activations: NumberFormat,
}

/// A latent attention block on one GPU, with the widths of DeepSeek-V3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentBlock {
    /// Query heads on this GPU.
    pub heads: u32,
    /// Format of the projections' weights.
    pub weights: NumberFormat,
    /// Format of the cached latents.
    pub kv_cache: NumberFormat,
}
