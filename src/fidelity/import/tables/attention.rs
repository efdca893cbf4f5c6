//! Attention kernels and cache writes: `attention*.csv`.

use std::path::Path;

use super::{Csv, Record, Sample, Timing, folder_name, head_width, push_samples};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::operator::{AttentionHeads, Operator, StreamingKind};

const REQUIRED: &[&str] = &["n_embd", "n_q_head", "n_kv_head", TENSOR, "batch_size", CHUNK, CONTEXT, "is_prefill"];
const TENSOR: &str = "num_tensor_parallel_workers";
const CHUNK: &str = "prefill_chunk_size";
const CONTEXT: &str = "kv_cache_size";
/// Columns that tell shapes apart; batches of unequal lengths list them.
const SHAPE: &[&str] = &[
    "is_prefill",
    "batch_size",
    CHUNK,
    CONTEXT,
    "seq_lens",
    "prefill_seq_lens",
    "prefill_kv_cache_sizes",
    "decode_kv_cache_sizes",
];

/// Appends the samples of one table.
pub(super) fn read(path: &Path, samples: &mut Vec<Sample>) -> Result<(), Diagnostic> {
    let table = Csv::load(path, REQUIRED)?;
    for record in table.records() {
        // An operator that did not run has zero kernels, but two events around nothing are some microseconds apart.
        let names: &[&str] = if record.is_true("is_true_mixed_batch") {
            &["attn_prefill", "attn_decode"]
        } else if record.is_true("is_prefill") {
            &["attn_kv_cache_save", "attn_prefill"]
        } else {
            &["attn_kv_cache_save", "attn_decode"]
        };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let heads = heads(&record, folder_name(path));
        let operator = |name: &str| {
            let heads = heads.clone()?;
            match name {
                "attn_prefill" => prefill(&record, heads),
                "attn_decode" => decode(&record, heads),
                _ => cache_write(&record, heads),
            }
        };
        push_samples(&table, &record, &names, [SHAPE, &[TENSOR]], Timing::Launch, operator, samples);
    }
    Ok(())
}

/// Heads of one GPU; key-value heads are replicated where there are more GPUs. The cache is in bf16 in every table,
/// also where the weights are fp8.
fn heads(record: &Record<'_>, model: &str) -> Result<AttentionHeads, String> {
    let (query, kv) = (record.positive("n_q_head")?, record.positive("n_kv_head")?);
    let tensor = record.positive(TENSOR)?;
    let head = head_width(model, record.positive("n_embd")?, query)?;
    let kv = kv.div_ceil(tensor);
    Ok(AttentionHeads::grouped(query.div_ceil(tensor), kv, head, NumberFormat::Bf16))
}

/// New tokens per sequence and cached tokens before them; the lengths of a batch are listed, or all the same.
fn chunks(record: &Record<'_>) -> Result<(Vec<u32>, Vec<u32>), String> {
    if record.is_true("is_true_mixed_batch") {
        return Ok((record.list("prefill_seq_lens")?, record.list("prefill_kv_cache_sizes")?));
    }
    let context = record.count(CONTEXT)?;
    let listed = record.list("seq_lens")?;
    let lengths =
        if listed.is_empty() { vec![record.count(CHUNK)?; record.positive("batch_size")? as usize] } else { listed };
    let contexts = vec![context; lengths.len()];
    Ok((lengths, contexts))
}

/// The value that all elements share; zero is allowed for contexts only.
fn shared_value(values: &[u32]) -> Option<u32> {
    let first = *values.first()?;
    values.iter().all(|value| *value == first).then_some(first)
}

fn prefill(record: &Record<'_>, heads: AttentionHeads) -> Result<Operator, String> {
    let (lengths, contexts) = chunks(record)?;
    let (Some(chunk_tokens), Some(context_tokens)) = (shared_value(&lengths), shared_value(&contexts)) else {
        return Err("prefill of unequal lengths in one batch".to_owned());
    };
    if chunk_tokens == 0 {
        return Err("prefill of no tokens".to_owned());
    }
    Ok(Operator::PrefillAttention { batch: lengths.len() as u32, chunk_tokens, context_tokens, heads })
}

/// Cached tokens are counted without the new one.
fn decode(record: &Record<'_>, heads: AttentionHeads) -> Result<Operator, String> {
    let listed = record.list("decode_kv_cache_sizes")?;
    let cached =
        if listed.is_empty() { vec![record.count(CONTEXT)?; record.positive("batch_size")? as usize] } else { listed };
    let mean = cached.iter().copied().map(f64::from).sum::<f64>() / cached.len() as f64;
    let longest = cached.iter().copied().max().unwrap_or_default();
    Ok(Operator::DecodeAttention {
        batch: cached.len() as u32,
        context_tokens: mean + 1.0,
        longest_tokens: f64::from(longest) + 1.0,
        heads,
    })
}

/// Keys and values of the new tokens, read and written.
fn cache_write(record: &Record<'_>, heads: AttentionHeads) -> Result<Operator, String> {
    let tokens: f64 = if record.is_true("is_prefill") {
        chunks(record)?.0.into_iter().map(f64::from).sum()
    } else {
        f64::from(record.positive("batch_size")?)
    };
    let bytes = 2.0 * tokens * f64::from(heads.cached_elements_per_token) * heads.kv_cache.bytes_per_element();
    Ok(Operator::Streaming { kind: StreamingKind::CacheWrite, bytes, kernels: 1 })
}
