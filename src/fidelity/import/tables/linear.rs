//! Operators over the tokens of a step: `linear_op*.csv`, in Vidur's older layout `mlp.csv`.

use std::path::Path;

use super::{Csv, Record, Sample, Timing, folder_name, format, head_width, push_samples};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::operator::{Operator, StreamingKind};

const REQUIRED: &[&str] = &["n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "num_tokens", TENSOR];
const TENSOR: &str = "num_tensor_parallel_workers";
/// Bytes of an activation element.
const ACTIVATION_BYTES: f64 = 2.0;

/// Widths of one model on one of its GPUs.
struct Widths {
    tokens: u32,
    hidden: u32,
    /// All query heads, then all key-value heads.
    query: u32,
    kv: u32,
    inner: u32,
    shared_inner: u32,
    vocab: u32,
    gated: bool,
    /// The projection before attention holds more than one product: norms of heads, a gate, or a factorised query.
    composite_projection: bool,
    /// Residual additions are timed on their own; otherwise the second norm includes one.
    separate_addition: bool,
    format: NumberFormat,
}

/// Appends the samples of one table.
pub(super) fn read(path: &Path, samples: &mut Vec<Sample>) -> Result<(), Diagnostic> {
    let table = Csv::load(path, REQUIRED)?;
    let names = table.timed_operators();
    for record in table.records() {
        let widths = widths(&record, folder_name(path));
        let operator = |name: &str| operator(name, widths.as_ref().map_err(Clone::clone)?);
        push_samples(&table, &record, &names, [&["num_tokens"], &[TENSOR]], Timing::Kernel, operator, samples);
    }
    Ok(())
}

fn widths(record: &Record<'_>, model: &str) -> Result<Widths, String> {
    let (heads, kv_heads) = (record.positive("n_head")?, record.positive("n_kv_head")?);
    let (hidden, tensor) = (record.positive("n_embd")?, record.positive(TENSOR)?);
    let head = head_width(model, hidden, heads)?;
    let inner = record.positive("padded_n_expanded_embd").or_else(|_| record.positive("n_expanded_embd"))?;
    let shared = record.positive("share_expert_dim").unwrap_or(inner);
    Ok(Widths {
        tokens: record.positive("num_tokens")?,
        hidden,
        query: heads.div_ceil(tensor) * head,
        kv: kv_heads.div_ceil(tensor) * head,
        inner: inner.div_ceil(tensor),
        shared_inner: shared.div_ceil(tensor),
        vocab: record.positive("vocab_size")?.div_ceil(tensor),
        gated: record.is_true("use_gated_mlp") || record.text("use_gated_mlp").is_none(),
        composite_projection: record.is_true("use_qk_norm")
            || record.is_true("attn_output_gate")
            || record.text("share_q_dim").is_some()
            || model.to_lowercase().starts_with("step"),
        separate_addition: record.text("time_stats.add.median").is_some(),
        format: format(record)?,
    })
}

/// The counterpart of a timed operator.
fn operator(name: &str, widths: &Widths) -> Result<Operator, String> {
    let &Widths { tokens, hidden, query, kv, inner, shared_inner, .. } = widths;
    let gemm = |n: u32, k: u32, format: NumberFormat| {
        Ok(Operator::Gemm { tokens, n, k, weights: format, activations: format })
    };
    // Tensors of `width` elements per token that are read or written.
    let streaming = |kind: StreamingKind, tensors: f64, width: u32| {
        let bytes = tensors * f64::from(tokens) * f64::from(width) * ACTIVATION_BYTES;
        Ok(Operator::Streaming { kind, bytes, kernels: 1 })
    };
    let up = |inner: u32| gemm(if widths.gated { 2 * inner } else { inner }, hidden, widths.format);
    let activation_tensors = if widths.gated { 3.0 } else { 2.0 };
    match name {
        "emb" => streaming(StreamingKind::Embedding, 2.0, hidden),
        "input_layernorm" => streaming(StreamingKind::Norm, 2.0, hidden),
        "post_attention_layernorm" => {
            streaming(StreamingKind::Norm, if widths.separate_addition { 2.0 } else { 4.0 }, hidden)
        }
        "add" => streaming(StreamingKind::Norm, 3.0, hidden),
        "attn_pre_proj" if widths.composite_projection => {
            Err("projections before attention that are timed together with norms or gates".to_owned())
        }
        "attn_pre_proj" => gemm(query + 2 * kv, hidden, widths.format),
        "attn_rope" => streaming(StreamingKind::Rotary, 2.0, query + kv),
        "attn_post_proj" => gemm(hidden, query, widths.format),
        "mlp_up_proj" => up(inner),
        "mlp_act" => streaming(StreamingKind::Activation, activation_tensors, inner),
        "mlp_down_proj" => gemm(hidden, inner, widths.format),
        "share_expert_up_proj" => up(shared_inner),
        "share_expert_act" => streaming(StreamingKind::Activation, activation_tensors, shared_inner),
        "share_expert_down_proj" => gemm(hidden, shared_inner, widths.format),
        "lm_head_linear" => gemm(widths.vocab, hidden, NumberFormat::Bf16),
        other => Err(format!("the operator `{other}` has no counterpart")),
    }
}
