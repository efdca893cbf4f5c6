//! Mixture-of-experts decoders with grouped attention: Mixtral, Qwen3 MoE, Llama 4, gpt-oss and MiniMax M2.

use serde_json::Value;

use super::fields::Fields;
use super::{Decoder, grouped_attention, layer_count};
use crate::catalog::model::{Ffn, Layer};

/// Mixtral: experts in every layer.
pub(super) fn mixtral(fields: &mut Fields<'_>) -> Decoder {
    let attention = grouped_attention(fields, false, false, false);
    let window = fields.optional("sliding_window");
    let ffn = experts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", 0);
    let layers = (0..layer_count(fields)).map(|_| Layer { window, ffn }).collect();
    Decoder { attention, layers }
}

/// Qwen3 MoE: experts in every `decoder_sparse_step`-th layer but those of `mlp_only_layers`.
pub(super) fn qwen3_moe(fields: &mut Fields<'_>) -> Decoder {
    let bias = fields.flag("attention_bias", false);
    let attention = grouped_attention(fields, bias, true, false);
    let sparse = experts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", 0);
    let step = fields.optional("decoder_sparse_step").unwrap_or(1).max(1);
    let dense_layers: Vec<u64> = fields.list("mlp_only_layers").iter().filter_map(Value::as_u64).collect();
    let dense = Ffn::Dense { intermediate_size: fields.optional("intermediate_size").unwrap_or(1) };
    let layers = (0..layer_count(fields)).map(|layer| {
        let is_sparse = (layer + 1).is_multiple_of(step) && !dense_layers.contains(&u64::from(layer));
        Layer { window: None, ffn: if is_sparse { sparse } else { dense } }
    });
    Decoder { attention, layers: layers.collect() }
}

/// Llama 4: a shared expert as wide as a routed one, dense layers between the sparse ones where
/// `interleave_moe_layer_step` exceeds 1, and three of four layers attend only within chunks.
///
/// Chunked attention is described by its longest reach, as a window of `attention_chunk_size`.
pub(super) fn llama4(fields: &mut Fields<'_>) -> Decoder {
    let bias = fields.flag("attention_bias", false);
    let qk_norm = fields.flag("use_qk_norm", true);
    let attention = grouped_attention(fields, bias, qk_norm, false);
    let shared = fields.count("intermediate_size");
    let sparse = experts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", shared);
    let step = fields.optional("interleave_moe_layer_step").unwrap_or(1).max(1);
    let dense = Ffn::Dense { intermediate_size: fields.optional("intermediate_size_mlp").unwrap_or(shared) };
    let chunk = fields.optional("attention_chunk_size");
    // 1 marks a layer with rotary positions and chunks, 0 one without, which sees everything.
    let rotary: Vec<bool> = fields.list("no_rope_layers").iter().map(|mark| mark.as_u64() == Some(1)).collect();
    let layers = (0..layer_count(fields)).map(|layer| {
        let chunked = rotary.get(layer as usize).copied().unwrap_or(!(layer + 1).is_multiple_of(4));
        let ffn = if (layer + 1).is_multiple_of(step) { sparse } else { dense };
        Layer { window: chunk.filter(|_| chunked), ffn }
    });
    Decoder { attention, layers: layers.collect() }
}

/// gpt-oss: attention sinks, biases everywhere, a sliding window in every other layer.
pub(super) fn gpt_oss(fields: &mut Fields<'_>) -> Decoder {
    let bias = fields.flag("attention_bias", true);
    let attention = grouped_attention(fields, bias, false, true);
    let mut ffn = experts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", 0);
    if let Ffn::MixtureOfExperts { expert_bias, .. } = &mut ffn {
        *expert_bias = true;
    }
    let window = fields.optional("sliding_window");
    let types = fields.list("layer_types");
    let layers = (0..layer_count(fields)).map(|layer| {
        let named = types.get(layer as usize).and_then(Value::as_str);
        let sliding = named.map_or(layer.is_multiple_of(2), |name| name == "sliding_attention");
        Layer { window: window.filter(|_| sliding), ffn }
    });
    Decoder { attention, layers: layers.collect() }
}

/// MiniMax M2 and M2.5: Qwen-like, with Q and K normalised.
pub(super) fn minimax_m2(fields: &mut Fields<'_>) -> Decoder {
    let qk_norm = fields.flag("use_qk_norm", false);
    let attention = grouped_attention(fields, false, qk_norm, false);
    let shared = fields.optional("shared_intermediate_size").unwrap_or(0);
    let ffn = experts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", shared);
    let layers = (0..layer_count(fields)).map(|_| Layer { window: None, ffn }).collect();
    Decoder { attention, layers }
}

/// A mixture whose sizes stand under the given keys; no biases.
pub(super) fn experts(
    fields: &mut Fields<'_>,
    experts_key: &'static str,
    top_k_key: &'static str,
    width_key: &'static str,
    shared_intermediate_size: u32,
) -> Ffn {
    let experts = fields.count(experts_key);
    let top_k = fields.count(top_k_key);
    if top_k > experts {
        fields.problem(top_k_key, format!("`{top_k_key}` is {top_k}, more than the {experts} experts"));
    }
    Ffn::MixtureOfExperts {
        experts,
        top_k: top_k.min(experts),
        expert_intermediate_size: fields.count(width_key),
        shared_intermediate_size,
        expert_bias: false,
    }
}
