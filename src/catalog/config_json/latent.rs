//! Decoders that compress attention: DeepSeek-V3, R1 and Kimi K2 (latent), Step-3 (factorised).

use super::fields::Fields;
use super::mixture::experts;
use super::{Decoder, MAX_HEAD_DIM, MAX_HEADS, layer_count};
use crate::catalog::model::{Attention, Ffn, Layer};

/// DeepSeek-V3, R1, Kimi K2: latent attention, dense first layers, shared experts. The multi-token-prediction module
/// is not part of the decoder.
pub(super) fn deepseek_v3(fields: &mut Fields<'_>) -> Decoder {
    let attention = Attention::Latent {
        heads: fields.count_up_to("num_attention_heads", MAX_HEADS),
        q_lora_rank: fields.optional("q_lora_rank").filter(|rank| *rank > 0),
        kv_lora_rank: fields.count("kv_lora_rank"),
        qk_nope_head_dim: fields.count_up_to("qk_nope_head_dim", MAX_HEAD_DIM),
        qk_rope_head_dim: fields.count_up_to("qk_rope_head_dim", MAX_HEAD_DIM),
        v_head_dim: fields.count_up_to("v_head_dim", MAX_HEAD_DIM),
    };
    let dense = Ffn::Dense { intermediate_size: fields.count("intermediate_size") };
    let shared_experts = fields.optional("n_shared_experts").unwrap_or(0);
    let shared = shared_experts.saturating_mul(fields.count("moe_intermediate_size"));
    let sparse = experts(fields, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", shared);
    let first = fields.optional("first_k_dense_replace").unwrap_or(0);
    let every = fields.optional("moe_layer_freq").unwrap_or(1).max(1);
    let layers = (0..layer_count(fields)).map(|layer| {
        let is_sparse = layer >= first && layer.is_multiple_of(every);
        Layer { window: None, ffn: if is_sparse { sparse } else { dense } }
    });
    Decoder { attention, layers: layers.collect() }
}

/// Step-3: factorised attention, experts in the layers that `moe_layers_enum` lists.
pub(super) fn step3(fields: &mut Fields<'_>) -> Decoder {
    let groups = fields.optional("num_attention_groups").unwrap_or(1);
    if groups != 1 {
        fields.problem("num_attention_groups", format!("`num_attention_groups` is {groups}; only 1 is supported"));
    }
    let attention = Attention::Factorised {
        heads: fields.count_up_to("num_attention_heads", MAX_HEADS),
        head_dim: fields.count_up_to("head_dim", MAX_HEAD_DIM),
        q_rank: fields.count("share_q_dim"),
    };
    let dense = Ffn::Dense { intermediate_size: fields.count("intermediate_size") };
    let shared = fields.optional("share_expert_dim").unwrap_or(0);
    let sparse = experts(fields, "moe_num_experts", "moe_top_k", "moe_intermediate_size", shared);
    let listed = fields.text("moe_layers_enum");
    let sparse_layers: Option<Vec<u32>> =
        listed.map(|text| text.split(',').filter_map(|number| number.trim().parse().ok()).collect());
    let layers = (0..layer_count(fields)).map(|layer| {
        // Without the list every layer but the first has experts, as in the reference implementation.
        let is_sparse = sparse_layers.as_ref().map_or(layer > 0, |list| list.contains(&layer));
        Layer { window: None, ffn: if is_sparse { sparse } else { dense } }
    });
    Decoder { attention, layers: layers.collect() }
}
