//! What a fitted predictor sees of an operator: its family, its group (one forest each), its class and coordinates
//! in the residual table, and its features.

use super::expert_load::ExpertLoad;
use super::family::Family;
use super::operator::{AttentionHeads, CollectiveKind, Experts, LatentBlock, Operator};
use super::roofline;
use crate::catalog::{Gpu, NumberFormat};

/// Room for the features of any family.
pub const MAX_FEATURES: usize = 17;
/// Room for the class of any family.
pub const CLASS_LENGTH: usize = 6;
/// Room for the coordinates of any family.
pub const MAX_AXES: usize = 3;

/// An operator as a fitted predictor sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its family.
    pub family: Family,
    /// Which forest of the family: weight and activation formats, or zeros.
    pub group: [u8; 2],
    /// Which residual table of the group.
    pub class: [u32; CLASS_LENGTH],
    /// Position in that table, one number per axis of [`Family::axes`]; unused ones are zero.
    pub coordinates: [f64; MAX_AXES],
    /// Inputs of the forest; unused ones are zero.
    pub features: [f32; MAX_FEATURES],
    /// Number of inputs that are used; zero where the residual table stands alone.
    pub feature_count: usize,
    /// Share of the residual that applies: one, but for shapes that only resemble measured ones.
    pub likeness: f64,
}

/// Position of a format in [`NumberFormat::ALL`], used as its code in files.
#[must_use]
pub fn format_code(format: NumberFormat) -> u8 {
    NumberFormat::ALL.iter().position(|other| *other == format).unwrap_or(0) as u8
}

/// Features and table position of an operator, seen on `gpu`; `None` where nothing is fitted.
#[must_use]
pub fn shape(operator: &Operator, gpu: &Gpu) -> Option<Shape> {
    match *operator {
        Operator::Gemm { tokens, n, k, weights, activations } => {
            Some(gemm_shape(operator, [tokens, n, k], [weights, activations], gpu))
        }
        Operator::PrefillAttention { batch, chunk_tokens, context_tokens, heads } => Some(prefill_shape(
            operator,
            f64::from(batch),
            f64::from(chunk_tokens),
            f64::from(context_tokens),
            &heads,
            gpu,
        )),
        Operator::DecodeAttention { batch, context_tokens, heads, .. } => {
            let span = heads.window.map_or(context_tokens, |window| context_tokens.min(f64::from(window)));
            let position = [ln(f64::from(batch)), ln(context_tokens)];
            Some(attention_shape(operator, Family::DecodeAttention, position, ln(span), &heads, gpu))
        }
        Operator::GroupedGemm { tokens, experts, load } => Some(grouped_shape(operator, tokens, &experts, &load, gpu)),
        Operator::LatentPrefill { batch, tokens, block } => {
            Some(latent_shape(operator, Family::LatentPrefill, [ln_positive(batch), ln(tokens)], &block, gpu))
        }
        Operator::LatentDecode { batch, context_tokens, block } => {
            Some(latent_shape(operator, Family::LatentDecode, [ln(batch), ln(context_tokens)], &block, gpu))
        }
        Operator::BatchedGemm { products, tokens, n, k } => {
            let coordinates = [ln(f64::from(tokens)), ln(f64::from(products)), 0.0];
            Some(table_shape(Family::BatchedGemm, [n, k, 0, 0, 0, 0], coordinates))
        }
        Operator::Streaming { kind, bytes, kernels } => {
            let class = [kind as u32, kernels, 0, 0, 0, 0];
            Some(table_shape(Family::Streaming, class, [ln(bytes), 0.0, 0.0]))
        }
        Operator::Collective { kind: CollectiveKind::SendRecv, .. } => None,
        Operator::Collective { kind, bytes, gpus, graph } => {
            let captured = u32::from(graph && kind == CollectiveKind::AllReduce);
            let coordinates = [ln(f64::from(gpus)), ln(bytes), 0.0];
            Some(table_shape(Family::Collective, [kind as u32, captured, 0, 0, 0, 0], coordinates))
        }
    }
}

/// A shape of a family whose residual tables stand alone.
fn table_shape(family: Family, class: [u32; CLASS_LENGTH], coordinates: [f64; MAX_AXES]) -> Shape {
    Shape { family, group: [0; 2], class, coordinates, features: [0.0; MAX_FEATURES], feature_count: 0, likeness: 1.0 }
}

/// Natural logarithm with zero mapped to that of one: shapes are counts.
fn ln(value: f64) -> f64 {
    libm::log(value.max(1.0))
}

/// Share by which rounding up to a multiple of `step` pads `value`.
fn padding(value: f64, step: f64) -> f64 {
    libm::ceil(value / step) * step / value
}

/// Features are rounded to this step, below 1 % of a size: fewer distinct thresholds make a smaller file.
const FEATURE_STEPS: f64 = 128.0;

fn collect(values: &[f64]) -> ([f32; MAX_FEATURES], usize) {
    let mut features = [0.0; MAX_FEATURES];
    for (feature, value) in features.iter_mut().zip(values) {
        *feature = (libm::round(*value * FEATURE_STEPS) / FEATURE_STEPS) as f32;
    }
    (features, values.len())
}

fn gemm_shape(operator: &Operator, [tokens, n, k]: [u32; 3], formats: [NumberFormat; 2], gpu: &Gpu) -> Shape {
    let work = roofline::work(operator, gpu);
    let balance = work.flops / roofline::peak_flops(formats[1], gpu) / (work.bytes / gpu.memory_bytes_per_second);
    let (m, columns) = (f64::from(tokens), f64::from(n));
    let waves = |rows: f64, width: f64| libm::ceil(m / rows) * libm::ceil(columns / width) / f64::from(gpu.sm_count);
    let (square, wide, short) = (waves(128.0, 128.0), waves(128.0, 256.0), waves(64.0, 128.0));
    // Block-scaled fp8 kernels pad the activations to four rows by a copy; the two cases are different curves.
    let unaligned = formats[1] == NumberFormat::Fp8Block && !tokens.is_multiple_of(4);
    let (ln_columns, ln_inner) = (ln(columns), ln(f64::from(k)));
    let (features, feature_count) = collect(&[
        ln(m),
        ln_columns,
        ln_inner,
        ln_columns + ln_inner,
        ln_positive(balance),
        ln_positive(roofline::benchmark_ns(operator, gpu)),
        padding(m, 64.0),
        padding(m, 128.0),
        padding(m, 256.0),
        ln_positive(square),
        padding(square, 1.0),
        padding(wide, 1.0),
        padding(short, 1.0),
        f64::from(u8::from(!tokens.is_multiple_of(4))),
        f64::from(u8::from(!tokens.is_multiple_of(16))),
    ]);
    Shape {
        family: Family::Gemm,
        group: formats.map(format_code),
        class: [u32::from(unaligned), 0, 0, 0, 0, 0],
        coordinates: [ln(m), ln_columns, ln_inner],
        features,
        feature_count,
        likeness: 1.0,
    }
}

/// Natural logarithm of a positive ratio, which may lie below one.
fn ln_positive(value: f64) -> f64 {
    libm::log(value.max(f64::MIN_POSITIVE))
}

/// Tables hold prompts without cached context. A chunk q on context c is seen as the prompts with the same number of
/// query tiles and the same mean keys per tile: length 2c + q, batch x q / (2c + q).
fn prefill_shape(
    operator: &Operator,
    batch: f64,
    chunk: f64,
    context: f64,
    heads: &AttentionHeads,
    gpu: &Gpu,
) -> Shape {
    let length = 2.0 * context + chunk;
    let prompts = batch * chunk / length.max(1.0);
    let shape = attention_shape(
        operator,
        Family::PrefillAttention,
        [ln_positive(prompts), ln(length)],
        ln(batch * f64::from(heads.query)),
        heads,
        gpu,
    );
    // No prompt of that length leaves multiprocessors idle as a short chunk does, whose tiles walk their keys alone.
    let busy = roofline::prefill_tiles(batch, chunk, heads) / f64::from(gpu.sm_count);
    Shape { likeness: if context > 0.0 { busy.min(1.0) } else { 1.0 }, ..shape }
}

fn attention_shape(
    operator: &Operator,
    family: Family,
    [ln_batch, ln_length]: [f64; 2],
    last: f64,
    heads: &AttentionHeads,
    gpu: &Gpu,
) -> Shape {
    let work = roofline::work(operator, gpu);
    let (query, kv) = (f64::from(heads.query), f64::from(heads.kv));
    let window = heads.window.unwrap_or(0);
    let cache_format = streamed_format(heads.kv_cache);
    let (features, feature_count) = collect(&[
        ln_batch,
        ln_length,
        ln(kv),
        ln(query),
        ln(query / kv),
        f64::from(heads.qk_dim),
        f64::from(window),
        cache_format.bytes_per_element(),
        ln_positive(work.bytes),
        ln_positive(work.flops),
        ln_positive(roofline::benchmark_ns(operator, gpu)),
        ln_positive(work.blocks_per_sm),
        padding(work.blocks_per_sm, 1.0),
        ln_batch + ln(kv),
        last,
    ]);
    // A full window, or a batch too large for the scheduler of split keys, is another curve.
    let beyond_window = heads.window.is_some_and(|window| libm::exp(ln_length) > f64::from(window) + 0.5);
    let unsplit = family == Family::DecodeAttention && gpu.sm_version == 90 && ln_batch > ln(SPLIT_BATCH);
    let regime = u32::from(beyond_window) + 2 * u32::from(unsplit);
    let class = [heads.query, heads.kv, heads.qk_dim, window, u32::from(format_code(cache_format)), regime];
    Shape {
        family,
        group: [0; 2],
        class,
        coordinates: [ln_batch, ln_length, 0.0],
        features,
        feature_count,
        likeness: 1.0,
    }
}

/// Largest batch whose keys FlashAttention-3 divides by its scheduling kernel (`prepare_varlen_num_blocks`).
const SPLIT_BATCH: f64 = 992.0;

/// Every 8-bit cache format streams the same bytes through the same kernels.
fn streamed_format(cache: NumberFormat) -> NumberFormat {
    if cache == NumberFormat::Bf16 { NumberFormat::Bf16 } else { NumberFormat::Fp8 }
}

fn grouped_shape(operator: &Operator, tokens: u32, experts: &Experts, load: &ExpertLoad, gpu: &Gpu) -> Shape {
    let Experts { hidden_size, intermediate_size, top_k, count, local, weights, activations } = *experts;
    let work = roofline::work(operator, gpu);
    let balance = work.flops / roofline::peak_flops(activations, gpu) / (work.bytes / gpu.memory_bytes_per_second);
    let m = f64::from(tokens);
    let hit = load.hit.max(1e-6);
    let rows = (load.rows / hit).max(1e-6);
    let (hidden, inner) = (f64::from(hidden_size), f64::from(intermediate_size));
    // The kernels sort rows into blocks per expert and pad each to a whole block.
    let block = block_rows(weights, m, f64::from(top_k), f64::from(local));
    let blocks = libm::ceil(rows / block);
    let tiles = hit * blocks * libm::ceil(2.0 * inner / 128.0);
    // The largest power of two, up to 64, that divides the inner width: narrow or odd widths cannot be loaded in whole
    // vectors.
    let alignment = f64::from(intermediate_size.trailing_zeros().min(6));
    let (features, feature_count) = collect(&[
        ln(m),
        ln(hidden),
        ln(inner),
        f64::from(top_k),
        ln(f64::from(count)),
        ln(f64::from(local)),
        ln_positive(hit),
        ln_positive(rows),
        padding(rows, block),
        ln(block),
        alignment,
        ln(hidden * inner),
        ln_positive(balance),
        ln_positive(roofline::benchmark_ns(operator, gpu)),
        ln_positive(tiles / f64::from(gpu.sm_count)),
        ln_positive(load.largest.max(1e-6) / rows),
        load.exponent,
    ]);
    Shape {
        family: Family::GroupedGemm,
        group: [weights, activations].map(format_code),
        class: [hidden_size, intermediate_size, top_k, count, local, 0],
        coordinates: [ln(m), load.exponent, 0.0],
        features,
        feature_count,
        likeness: 1.0,
    }
}

/// Rows of one block of the grouped product. Marlin takes the smallest of 8, 16, 32 and 48 that the mean rows per local
/// expert fill to less than nine tenths, else 64; the Triton kernels 16 while there are fewer tokens than experts, else 64
/// (vLLM `fused_marlin_moe` and the default configuration of `fused_moe`).
fn block_rows(weights: NumberFormat, tokens: f64, top_k: f64, local: f64) -> f64 {
    if matches!(weights, NumberFormat::Int4 | NumberFormat::Mxfp4) {
        let rows = tokens * top_k / local;
        return [8.0, 16.0, 32.0, 48.0].into_iter().find(|block| rows / block < 0.9).unwrap_or(64.0);
    }
    if tokens <= local { 16.0 } else { 64.0 }
}

fn latent_shape(
    operator: &Operator,
    family: Family,
    [ln_batch, ln_length]: [f64; 2],
    block: &LatentBlock,
    gpu: &Gpu,
) -> Shape {
    let work = roofline::work(operator, gpu);
    let cache_format = streamed_format(block.kv_cache);
    let (features, feature_count) = collect(&[
        ln_batch,
        ln_length,
        ln_batch + ln_length,
        ln(f64::from(block.heads)),
        cache_format.bytes_per_element(),
        ln_positive(work.bytes),
        ln_positive(work.flops),
        ln_positive(roofline::benchmark_ns(operator, gpu)),
    ]);
    Shape {
        family,
        group: [format_code(block.weights), 0],
        class: [block.heads, u32::from(format_code(cache_format)), 0, 0, 0, 0],
        coordinates: [ln_batch, ln_length, 0.0],
        features,
        feature_count,
        likeness: 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::test_gpus;

    #[test]
    fn a_chunk_resembles_prompts_as_far_as_its_tiles_fill_the_gpu() {
        let gpu = test_gpus::h100_sxm();
        let heads = AttentionHeads::grouped(32, 8, 128, NumberFormat::Bf16);
        let likeness = |chunk_tokens, context_tokens| {
            shape(&Operator::PrefillAttention { batch: 1, chunk_tokens, context_tokens, heads }, &gpu).unwrap().likeness
        };
        // 64 tokens of 4 heads each are 2 tiles of 128 rows for each of 8 key-value heads, over 132 multiprocessors.
        assert_eq!(likeness(64, 8192), 16.0 / 132.0);
        assert_eq!(likeness(1024, 8192), 1.0);
        assert_eq!(likeness(64, 0), 1.0, "prompts were measured themselves");
    }
}
