//! Peak of tensor memory in the profiling forward pass, on one GPU.
//!
//! Before it sizes the KV cache, the engine runs one step of `max_num_batched_tokens` tokens and one sampling step of
//! `max_num_seqs` sequences. The peak is either inside a layer (residual stream plus the widest pair of intermediate
//! tensors) or in the sampler (hidden states plus several copies of the logits).

use crate::catalog::{Attention, EngineMemory, Ffn, Model, Precision};
use crate::space::{EngineLimits, Parallelism};

/// Bytes of a 16-bit activation.
const BYTES: f64 = 2.0;

/// Peaks of the profiling run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ActivationPeaks {
    /// Inside a layer of the first stage.
    pub layer: f64,
    /// Inside a layer of a later stage, which also holds the tensors it receives.
    pub later_layer: f64,
    /// In the sampler, on the last stage.
    pub sampler: f64,
}

/// Peaks for one sharded model, whose dense FFNs are shared by `dense_ffn_gpus`.
pub(super) fn peaks(
    model: &Model,
    parallelism: Parallelism,
    precision: Precision,
    limits: &EngineLimits,
    engine: &EngineMemory,
    dense_ffn_gpus: u32,
) -> ActivationPeaks {
    let tokens = f64::from(limits.max_num_batched_tokens);
    let hidden = f64::from(model.hidden_size) * BYTES;
    let residual = tokens * engine.hidden_tensors * hidden;
    let attention = tokens * attention_width(model.attention, parallelism.tp_attention) * BYTES;
    let widest = widest_ffn(model, parallelism, precision, limits, engine, dense_ffn_gpus).max(attention);
    let sequences = limits.max_num_seqs.min(limits.max_num_batched_tokens);
    let logits = f64::from(sequences) * f64::from(model.vocab_size);
    ActivationPeaks {
        layer: residual + widest,
        // Hidden state and residual arrive in buffers of their own.
        later_layer: residual + widest + 2.0 * tokens * hidden,
        sampler: residual + logits * engine.sampler_bytes_per_logit,
    }
}

/// Elements per token of Q, K, V and the attention output on one GPU.
fn attention_width(attention: Attention, tp: u32) -> f64 {
    let local_heads = attention.heads().div_ceil(tp);
    let width = match attention {
        Attention::Grouped { head_dim, .. } => 2 * local_heads * head_dim + attention.cached_elements_per_token(tp),
        // Prefill expands the latent into keys and values of every head.
        Attention::Latent { qk_nope_head_dim, qk_rope_head_dim, v_head_dim, .. } => {
            local_heads * (2 * (qk_nope_head_dim + qk_rope_head_dim) + 2 * v_head_dim)
        }
        Attention::Factorised { head_dim, q_rank, .. } => 2 * local_heads * head_dim + q_rank + 2 * head_dim,
    };
    f64::from(width)
}

/// The most that any layer's FFN needs, in bytes.
fn widest_ffn(
    model: &Model,
    parallelism: Parallelism,
    precision: Precision,
    limits: &EngineLimits,
    engine: &EngineMemory,
    dense_ffn_gpus: u32,
) -> f64 {
    let tokens = f64::from(limits.max_num_batched_tokens);
    let mut widest = 0.0_f64;
    let mut previous = None;
    for layer in &model.layers {
        if previous == Some(layer.ffn) {
            continue;
        }
        previous = Some(layer.ffn);
        let bytes = match layer.ffn {
            Ffn::Dense { intermediate_size } => {
                let width = f64::from(intermediate_size.div_ceil(dense_ffn_gpus));
                // Gate and up in 16 bits, their product already in the format of the next matrix product.
                tokens * width * (2.0 * BYTES + precision.activations.bytes_per_element())
            }
            Ffn::MixtureOfExperts { top_k, expert_intermediate_size, .. } => {
                // Every rank sees the tokens of all attention ranks, a chunk at a time.
                let gathered = u64::from(limits.max_num_batched_tokens) * u64::from(parallelism.dp_attention);
                let chunk = gathered.min(u64::from(engine.expert_chunk_tokens)) as f64;
                let width = expert_intermediate_size.div_ceil(parallelism.tp_ffn);
                let copies = f64::from((2 * width).max(model.hidden_size)) + f64::from(width);
                let output = gathered as f64 * f64::from(model.hidden_size);
                (chunk * f64::from(top_k) * copies + output) * BYTES
            }
        };
        widest = widest.max(bytes);
    }
    widest
}
