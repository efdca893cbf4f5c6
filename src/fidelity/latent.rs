//! Multi-head latent attention, which is measured as whole blocks with the widths of DeepSeek-V3: what a block works, and
//! what of its time is attention.
//!
//! A block holds projections, absorbed products, rotary embedding, cache write and attention. Only the attention grows
//! with the length at a given number of tokens, so its time is the growth of the block over the shortest length, on top
//! of the roofline of the kernel at that length. Everything else is priced operator by operator.

use super::operator::{AttentionHeads, LatentBlock, Operator};
use super::roofline::{DECODE_TILE_ROWS, Work, causal_pairs};
use crate::catalog::NumberFormat;

/// Prompts of this length attend to almost nothing: the shortest in the tables beyond a single token.
const SHORT_PROMPT_TOKENS: f64 = 16.0;

/// Widths of a latent attention block of DeepSeek-V3 (its config.json): residual stream, compressed queries, latent,
/// rotary part, and query, key and value width per head.
const HIDDEN: f64 = 7168.0;
const QUERY_RANK: f64 = 1536.0;
const RANK: f64 = 512.0;
const ROTARY: f64 = 64.0;
const NOPE: f64 = 128.0;
const VALUE: f64 = 128.0;

/// Projections of one block for `tokens` tokens: parameters that are read, and products.
fn projections(tokens: f64, block: &LatentBlock) -> Work {
    let heads = f64::from(block.heads);
    let parameters = HIDDEN * (QUERY_RANK + RANK + ROTARY)
        + heads * QUERY_RANK * (NOPE + ROTARY)
        + heads * RANK * (NOPE + VALUE)
        + heads * VALUE * HIDDEN;
    let bytes = parameters * block.weights.bytes_per_element() + 4.0 * tokens * HIDDEN;
    Work { flops: 2.0 * tokens * parameters, bytes, ..Work::default() }
}

/// Arithmetic and bytes of a block over `batch` prompts of `length` tokens.
///
/// Prefill expands the latents and attends with one key-value head per query head.
#[must_use]
pub fn prefill_work(batch: f64, length: f64, block: &LatentBlock) -> Work {
    let tokens = batch * length;
    let Work { flops, bytes, .. } = projections(tokens, block);
    let widths = f64::from(block.heads) * (NOPE + ROTARY + VALUE);
    Work {
        flops: flops + 2.0 * batch * causal_pairs(length, 0.0, None) * widths,
        bytes: bytes + 2.0 * 2.0 * tokens * widths,
        ..Work::default()
    }
}

/// Arithmetic and bytes of a block over `batch` sequences that attend to `context` tokens each.
///
/// Decode absorbs the expansion and attends to the latents themselves.
#[must_use]
pub fn decode_work(batch: f64, context: f64, block: &LatentBlock) -> Work {
    let Work { flops, bytes, .. } = projections(batch, block);
    let cached = RANK + ROTARY;
    let queries = f64::from(block.heads.max(DECODE_TILE_ROWS));
    Work {
        flops: flops + 2.0 * batch * context * queries * (cached + RANK),
        bytes: bytes + batch * context * cached * block.kv_cache.bytes_per_element(),
        ..Work::default()
    }
}

/// Two blocks with equal projections: what the first takes longer than the second is attention.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// The block with the attention in question.
    pub block: Operator,
    /// The same tokens with hardly any attention.
    pub shortest: Operator,
    /// Share of the difference that the operator in question takes.
    pub share: f64,
    /// The attention kernel where `shortest` is.
    pub floor: Operator,
}

/// Whether these heads are those of latent attention: keys are wider than values.
const fn is_latent(heads: &AttentionHeads) -> bool {
    heads.qk_dim > heads.v_dim
}

/// The block whose growth prices an attention kernel of latent attention; `None` for other operators.
#[must_use]
pub fn growth(operator: &Operator) -> Option<Growth> {
    let block = |heads: &AttentionHeads| LatentBlock {
        heads: heads.query,
        weights: NumberFormat::Bf16,
        kv_cache: heads.kv_cache,
    };
    match *operator {
        Operator::DecodeAttention { batch, context_tokens, heads, .. } if is_latent(&heads) => {
            let at = |context_tokens| Operator::LatentDecode {
                batch: f64::from(batch),
                context_tokens,
                block: block(&heads),
            };
            Some(Growth {
                block: at(context_tokens),
                shortest: at(1.0),
                share: 1.0,
                floor: Operator::decode_attention(batch, 1.0, heads),
            })
        }
        Operator::PrefillAttention { batch, chunk_tokens, context_tokens, heads } if is_latent(&heads) => {
            // A chunk on context takes its share of the prompt with as many keys per query.
            let length = 2.0 * f64::from(context_tokens) + f64::from(chunk_tokens);
            let at = |batch, tokens| Operator::LatentPrefill { batch, tokens, block: block(&heads) };
            let prompts = f64::from(batch);
            Some(Growth {
                block: at(prompts, length),
                shortest: at(prompts * length / SHORT_PROMPT_TOKENS, SHORT_PROMPT_TOKENS),
                share: f64::from(chunk_tokens) / length,
                floor: Operator::PrefillAttention { batch, chunk_tokens: 1, context_tokens: 0, heads },
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: AttentionHeads = AttentionHeads {
        query: 16,
        kv: 1,
        qk_dim: 576,
        v_dim: 512,
        cached_elements_per_token: 576,
        window: None,
        kv_cache: NumberFormat::Fp8,
    };

    #[test]
    fn decode_grows_from_the_first_token_and_keeps_its_projections() {
        let growth = growth(&Operator::decode_attention(8, 1000.0, HEADS)).unwrap();
        let block = LatentBlock { heads: 16, weights: NumberFormat::Bf16, kv_cache: NumberFormat::Fp8 };
        assert_eq!(growth.block, Operator::LatentDecode { batch: 8.0, context_tokens: 1000.0, block });
        assert_eq!(growth.shortest, Operator::LatentDecode { batch: 8.0, context_tokens: 1.0, block });
        assert_eq!(growth.share, 1.0);
        // 999 further tokens of 576 bytes for each of 8 sequences.
        let bytes = |context| decode_work(8.0, context, &block).bytes;
        assert_eq!(bytes(1000.0) - bytes(1.0), 8.0 * 999.0 * 576.0);
    }

    #[test]
    fn a_prompt_is_compared_with_as_many_tokens_in_short_ones() {
        let heads = AttentionHeads { kv: 16, qk_dim: 192, v_dim: 128, ..HEADS };
        let chunk = Operator::PrefillAttention { batch: 2, chunk_tokens: 512, context_tokens: 256, heads };
        let growth = growth(&chunk).unwrap();
        let Operator::LatentPrefill { batch, tokens, .. } = growth.block else { panic!("{growth:?}") };
        let Operator::LatentPrefill { batch: short_batch, tokens: short, .. } = growth.shortest else {
            panic!("{growth:?}")
        };
        assert_eq!((batch * tokens, short_batch * short, short), (2048.0, 2048.0, SHORT_PROMPT_TOKENS));
        assert_eq!(growth.share, 0.5);
    }

    #[test]
    fn grouped_attention_has_no_block() {
        let heads = AttentionHeads { kv: 2, qk_dim: 128, v_dim: 128, ..HEADS };
        assert!(growth(&Operator::decode_attention(8, 1000.0, heads)).is_none());
    }
}
