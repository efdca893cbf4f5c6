//! Dense decoders: Llama, Mistral, Qwen2 and Qwen3.

use super::fields::Fields;
use super::{Decoder, grouped_attention, layer_count};
use crate::catalog::model::{Attention, Ffn, Layer};

/// Llama 2 and 3, CodeLlama, Yi: biases only if `attention_bias` says so.
pub(super) fn llama(fields: &mut Fields<'_>) -> Decoder {
    let bias = fields.flag("attention_bias", false);
    let attention = grouped_attention(fields, bias, false, false);
    decoder(fields, attention, |_| None)
}

/// Mistral: a sliding window in every layer, if any.
pub(super) fn mistral(fields: &mut Fields<'_>) -> Decoder {
    let attention = grouped_attention(fields, false, false, false);
    let window = fields.optional("sliding_window");
    decoder(fields, attention, |_| window)
}

/// Qwen2 and Qwen2.5: Q, K and V always have biases.
pub(super) fn qwen2(fields: &mut Fields<'_>) -> Decoder {
    let attention = grouped_attention(fields, true, false, false);
    qwen(fields, attention)
}

/// Qwen3: per-head norms of Q and K.
pub(super) fn qwen3(fields: &mut Fields<'_>) -> Decoder {
    let bias = fields.flag("attention_bias", false);
    let attention = grouped_attention(fields, bias, true, false);
    qwen(fields, attention)
}

/// Qwen's window, off by default, spares the first `max_window_layers` layers.
fn qwen(fields: &mut Fields<'_>, attention: Attention) -> Decoder {
    let enabled = fields.flag("use_sliding_window", false);
    let window = fields.optional("sliding_window").filter(|_| enabled);
    let first = fields.optional("max_window_layers").unwrap_or(0);
    decoder(fields, attention, |layer| window.filter(|_| layer >= first))
}

fn decoder(fields: &mut Fields<'_>, attention: Attention, window: impl Fn(u32) -> Option<u32>) -> Decoder {
    let ffn = Ffn::Dense { intermediate_size: fields.count("intermediate_size") };
    let layers = (0..layer_count(fields)).map(|layer| Layer { window: window(layer), ffn }).collect();
    Decoder { attention, layers }
}
