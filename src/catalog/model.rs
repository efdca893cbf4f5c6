//! What the simulator needs to know of a model: shapes, layer kinds and the checkpoint's number formats.

use super::precision::{NumberFormat, Precision};

/// A decoder-only transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Catalogue name, e.g. `llama-3.3-70b`, or the file stem of a configuration given by path.
    pub name: String,
    /// Hugging Face repository, if known; goes into the deployment flags.
    pub repository: Option<String>,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Rows of the embedding and columns of the LM head, unpadded.
    pub vocab_size: u32,
    /// The LM head shares the embedding's weights.
    pub tied_embeddings: bool,
    /// Longest context the checkpoint supports, in tokens.
    pub max_position_embeddings: u32,
    /// Attention block, the same in every layer but for the window.
    pub attention: Attention,
    /// Decoder layers, bottom to top.
    pub layers: Vec<Layer>,
    /// Number formats of the published checkpoint, and bf16 KV cache unless the configuration says otherwise.
    pub checkpoint: Precision,
    /// Which linear layers a quantised weight format applies to; the rest stays in bf16.
    pub quantized: Quantized,
}

/// The linear layers that a checkpoint quantises. Embedding, LM head, norms and routers never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantized {
    /// All of attention and FFN.
    Linears,
    /// Dense FFNs, shared and routed experts; attention stays in bf16.
    FeedForward,
    /// Routed experts only (gpt-oss).
    RoutedExperts,
}

impl Model {
    /// Format of the attention projections when the model is deployed with `precision`.
    #[must_use]
    pub fn attention_weights(&self, precision: Precision) -> NumberFormat {
        match self.quantized {
            Quantized::Linears => precision.weights,
            Quantized::FeedForward | Quantized::RoutedExperts => NumberFormat::Bf16,
        }
    }

    /// Format of dense FFNs and shared experts when the model is deployed with `precision`. Routed experts always
    /// have `precision.weights`.
    #[must_use]
    pub fn dense_ffn_weights(&self, precision: Precision) -> NumberFormat {
        match self.quantized {
            Quantized::Linears | Quantized::FeedForward => precision.weights,
            Quantized::RoutedExperts => NumberFormat::Bf16,
        }
    }

    /// Whether any layer has experts.
    #[must_use]
    pub fn has_experts(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.ffn, Ffn::MixtureOfExperts { .. }))
    }
}

/// One decoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Sliding-window length in tokens; `None` attends to the whole context.
    pub window: Option<u32>,
    /// Feed-forward block.
    pub ffn: Ffn,
}

/// Attention block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// MHA, GQA and MQA: `kv_heads` equals `heads`, lies between, or is one.
    Grouped {
        /// Query heads.
        heads: u32,
        /// Key-value heads.
        kv_heads: u32,
        /// Width of one head.
        head_dim: u32,
        /// Q, K and V projections have biases.
        qkv_bias: bool,
        /// Per-head RMS norm of Q and K (Qwen3).
        qk_norm: bool,
        /// A learned sink logit per head (gpt-oss).
        sinks: bool,
    },
    /// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a shared latent per token is cached.
    Latent {
        /// Query heads.
        heads: u32,
        /// Rank of the query compression; `None` projects the queries directly.
        q_lora_rank: Option<u32>,
        /// Rank of the cached latent.
        kv_lora_rank: u32,
        /// Per-head width without position encoding.
        qk_nope_head_dim: u32,
        /// Width of the shared rotary key.
        qk_rope_head_dim: u32,
        /// Per-head value width.
        v_head_dim: u32,
    },
    /// Multi-matrix factorisation attention (Step-3, arXiv 2507.19427): low-rank shared queries, one KV head.
    Factorised {
        /// Query heads.
        heads: u32,
        /// Width of one head.
        head_dim: u32,
        /// Rank of the shared query projection.
        q_rank: u32,
    },
}

/// Feed-forward block of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ffn {
    /// Gated MLP: gate, up and down projections.
    Dense {
        /// Inner width.
        intermediate_size: u32,
    },
    /// Mixture of experts, each a gated MLP.
    MixtureOfExperts {
        /// Routed experts.
        experts: u32,
        /// Routed experts per token.
        top_k: u32,
        /// Inner width of one routed expert.
        expert_intermediate_size: u32,
        /// Inner width of the always-active shared expert; zero if there is none.
        shared_intermediate_size: u32,
        /// Expert projections have biases (gpt-oss).
        expert_bias: bool,
    },
}
