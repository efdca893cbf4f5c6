//! Physics of one operator: arithmetic, memory traffic, thread blocks and launches, and the time they bound.
//!
//! time = launches + thread-block overhead + max(arithmetic / sustained rate, bytes / sustained bandwidth) +
//! elementwise bytes / sustained bandwidth
//! (Williams, Waterman and Patterson, "Roofline", CACM 2009, with a floor). It never falls when a shape grows. Fitted
//! predictors learn the residual ln(measured / roofline), so outside their measurements an estimate follows this file.

use super::latent;
use super::operator::{AttentionHeads, Experts, Operator};
use crate::catalog::{Gpu, NumberFormat};
use crate::network::{self, Network};

/// Sustained share of the tensor-core peak in a large matrix product; H100 tables give 0.7 to 0.85 (boost clocks drop
/// under load).
const GEMM_EFFICIENCY: f64 = 0.80;
/// The same for grouped products: tiles of an expert are rarely full.
const GROUPED_GEMM_EFFICIENCY: f64 = 0.60;
/// The same for the two chained products of prefill attention (FlashAttention-3, arXiv 2407.08608: 0.65 to 0.75).
const PREFILL_EFFICIENCY: f64 = 0.65;
/// The same for decode attention, whose query tile is mostly padding.
const DECODE_EFFICIENCY: f64 = 0.50;
/// Sustained share of the memory bandwidth in weight-streaming kernels.
const GEMM_BANDWIDTH_EFFICIENCY: f64 = 0.90;
/// Sustained share of the memory bandwidth in attention kernels.
const BANDWIDTH_EFFICIENCY: f64 = 0.85;
/// Shortest kernel on the GPU, in nanoseconds: 2.4 us is the smallest GEMM of the H100 tables.
const KERNEL_FLOOR_NS: f64 = 2_500.0;
/// Floor of an attention layer (scheduling metadata, attention, combination of splits), in nanoseconds.
const ATTENTION_FLOOR_NS: f64 = 6_000.0;
/// Floor of a routed-expert block: sort, two grouped products, activation, combination; in nanoseconds.
const GROUPED_GEMM_FLOOR_NS: f64 = 16_000.0;
/// Floor of a latent attention block in a captured graph: 70 us for one token and one head in the H100 tables.
const LATENT_FLOOR_NS: f64 = 60_000.0;
/// Prologue and epilogue of one attention thread block, in nanoseconds; from the slope of the H100 decode table over
/// batch at the shortest context.
const ATTENTION_BLOCK_NS: f64 = 3_200.0;
/// Rows of one query tile in decode attention: the smallest of the tensor cores' warp-group product (Hopper `wgmma`).
pub(super) const DECODE_TILE_ROWS: u32 = 64;
/// Rows of one query tile in prefill attention.
const PREFILL_TILE_ROWS: f64 = 128.0;

/// What bounds the time of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Arithmetic operations, padding of the tiles included where the hardware cannot skip it.
    pub flops: f64,
    /// Bytes moved to or from memory.
    pub bytes: f64,
    /// Bytes that separate elementwise kernels of the same operator move, before or after.
    pub elementwise_bytes: f64,
    /// Thread blocks per streaming multiprocessor; zero where their overhead is negligible.
    pub blocks_per_sm: f64,
}

/// Arithmetic peak for inputs of this format, in FLOP/s. Formats that the hardware cannot multiply are widened to the
/// next one it can: fp8 to bf16, fp4 to fp8, integer 4-bit weights to bf16.
#[must_use]
pub fn peak_flops(format: NumberFormat, gpu: &Gpu) -> f64 {
    let fp8 = gpu.fp8_flops.unwrap_or(gpu.bf16_flops);
    match format {
        NumberFormat::Bf16 | NumberFormat::Int4 => gpu.bf16_flops,
        NumberFormat::Fp8 | NumberFormat::Fp8Block => fp8,
        NumberFormat::Int8 => gpu.int8_flops,
        NumberFormat::Nvfp4 | NumberFormat::Mxfp4 => gpu.fp4_flops.unwrap_or(fp8),
    }
}

/// Pairs of (query, key) that a causal chunk of `chunk` tokens after `context` cached ones attends to, with an
/// optional sliding window: the sum over i = 1..chunk of min(context + i, window).
#[must_use]
pub fn causal_pairs(chunk: f64, context: f64, window: Option<u32>) -> f64 {
    let full = |tokens: f64| tokens * context + tokens * (tokens + 1.0) / 2.0;
    let Some(window) = window.map(f64::from) else { return full(chunk) };
    let growing = (window - context).clamp(0.0, chunk);
    full(growing) + (chunk - growing) * window
}

/// Arithmetic, bytes and thread blocks of one operator on `gpu`; zero arithmetic for collectives, which the network
/// model times.
#[must_use]
pub fn work(operator: &Operator, gpu: &Gpu) -> Work {
    match *operator {
        Operator::Gemm { tokens, n, k, weights, activations } => {
            let (m, n, k) = (f64::from(tokens), f64::from(n), f64::from(k));
            let bytes = n * k * weights.bytes_per_element() + m * k * activations.bytes_per_element() + 2.0 * m * n;
            Work { flops: 2.0 * m * n * k, bytes, ..Work::default() }
        }
        Operator::PrefillAttention { batch, chunk_tokens, context_tokens, heads } => {
            prefill_work(f64::from(batch), f64::from(chunk_tokens), f64::from(context_tokens), &heads, gpu)
        }
        Operator::DecodeAttention { batch, context_tokens, heads, .. } => {
            decode_work(f64::from(batch), context_tokens, &heads, gpu)
        }
        Operator::LatentPrefill { batch, tokens, block } => latent::prefill_work(batch, tokens, &block),
        Operator::LatentDecode { batch, context_tokens, block } => latent::decode_work(batch, context_tokens, &block),
        Operator::BatchedGemm { products, tokens, n, k } => {
            let [products, m, n, k] = [products, tokens, n, k].map(f64::from);
            let bytes = 2.0 * products * (n * k + m * k + m * n);
            Work { flops: 2.0 * products * m * n * k, bytes, ..Work::default() }
        }
        Operator::GroupedGemm { tokens, experts, load } => {
            let Experts { hidden_size, intermediate_size, top_k, weights, activations, .. } = experts;
            let parameters = 3.0 * f64::from(hidden_size) * f64::from(intermediate_size);
            let weight_bytes = load.hit * parameters * weights.bytes_per_element();
            // The activation and the weighted sum run over every routed row, those of other GPUs' experts included
            // (vLLM `fused_moe`): two passes over the hidden width, three over the inner one, in 16 bits.
            let row_elements = 2.0 * f64::from(hidden_size) + 3.0 * f64::from(intermediate_size);
            Work {
                flops: 2.0 * load.rows * parameters,
                bytes: weight_bytes + load.rows * f64::from(hidden_size) * activations.bytes_per_element(),
                elementwise_bytes: f64::from(tokens) * f64::from(top_k) * row_elements * 2.0,
                ..Work::default()
            }
        }
        Operator::Streaming { bytes, .. } => Work { bytes, ..Work::default() },
        Operator::Collective { .. } => Work::default(),
    }
}

/// Prefill kernels split the keys of one query tile over several multiprocessors when tiles are few: FlashAttention-3
/// on Hopper and the data-centre Blackwell kernels do, FlashAttention-2 with a paged cache does not (measured on RTX PRO
/// 6000 by LLMServingSim, MIT: 370 us at context 16,384 for any chunk of 16 to 256 tokens).
fn splits_keys(gpu: &Gpu) -> bool {
    (90..120).contains(&gpu.sm_version)
}

/// Query tiles of prefill attention: the query heads of one key-value head share tiles.
#[must_use]
pub fn prefill_tiles(batch: f64, chunk: f64, heads: &AttentionHeads) -> f64 {
    let (query, kv) = (f64::from(heads.query), f64::from(heads.kv));
    batch * kv * libm::ceil(chunk * query / kv / PREFILL_TILE_ROWS)
}

fn prefill_work(batch: f64, chunk: f64, context: f64, heads: &AttentionHeads, gpu: &Gpu) -> Work {
    let query = f64::from(heads.query);
    let widths = f64::from(heads.qk_dim + heads.v_dim);
    let span = heads.window.map_or(context, |window| context.min(f64::from(window)));
    let cache = (span + chunk) * f64::from(heads.cached_elements_per_token) * heads.kv_cache.bytes_per_element();
    let tiles = prefill_tiles(batch, chunk, heads);
    let mut flops = 2.0 * batch * causal_pairs(chunk, context, heads.window) * query * widths;
    if !splits_keys(gpu) {
        // A tile walks its keys alone: the time of one full tile is the least, however many multiprocessors idle.
        let longest = causal_pairs(1.0, context + chunk / 2.0, heads.window);
        let one_tile = 2.0 * PREFILL_TILE_ROWS * longest * widths;
        flops = flops.max(one_tile * f64::from(gpu.sm_count) * PREFILL_EFFICIENCY);
    }
    Work {
        flops,
        bytes: batch * (cache + 2.0 * chunk * query * widths),
        blocks_per_sm: (tiles / f64::from(gpu.sm_count)).max(1.0),
        ..Work::default()
    }
}

fn decode_work(batch: f64, context: f64, heads: &AttentionHeads, gpu: &Gpu) -> Work {
    let span = heads.window.map_or(context, |window| context.min(f64::from(window)));
    let widths = f64::from(heads.qk_dim + heads.v_dim);
    let tiles = heads.query.div_ceil(heads.kv.max(1)).div_ceil(DECODE_TILE_ROWS) * heads.kv;
    let padded_queries = f64::from(heads.query.max(DECODE_TILE_ROWS * heads.kv));
    let cache = span * f64::from(heads.cached_elements_per_token) * heads.kv_cache.bytes_per_element();
    Work {
        flops: 2.0 * batch * span * padded_queries * widths,
        bytes: batch * (cache + 2.0 * f64::from(heads.query) * widths),
        blocks_per_sm: (batch * f64::from(tiles) / f64::from(gpu.sm_count)).max(1.0),
        ..Work::default()
    }
}

/// Least time in nanoseconds that the arithmetic of an operator takes at the peak rate, without any padding; zero where
/// arithmetic is not what limits.
#[must_use]
pub fn arithmetic_ns(operator: &Operator, gpu: &Gpu) -> f64 {
    let (flops, format) = match *operator {
        Operator::Gemm { activations, .. } => (work(operator, gpu).flops, activations),
        Operator::GroupedGemm { experts, .. } => (work(operator, gpu).flops, experts.activations),
        Operator::LatentPrefill { .. } => (work(operator, gpu).flops, NumberFormat::Bf16),
        Operator::PrefillAttention { batch, chunk_tokens, context_tokens, heads } => {
            let pairs = causal_pairs(f64::from(chunk_tokens), f64::from(context_tokens), heads.window);
            let widths = f64::from(heads.qk_dim + heads.v_dim);
            (2.0 * f64::from(batch) * pairs * f64::from(heads.query) * widths, NumberFormat::Bf16)
        }
        _ => return 0.0,
    };
    flops / peak_flops(format, gpu) * 1e9
}

/// Share of the memory's bandwidth that the L2 delivers, at least: the slope of the H100, B200 and L40S decode tables over
/// bytes below the capacity of the L2 is 2 to 4 times that of the memory.
const L2_SPEED: f64 = 3.0;
/// What one multiprocessor streams from the L2, in bytes per second, relative to the same kernel's share of the memory's
/// bandwidth: norms, activations and rotary embeddings of Llama-3.1-8B take 2.4 to 3.4 times less than memory allows on RTX PRO
/// 6000 (casys-kaist/LLMServingSim, MIT), and hardly less on H800 (NetX-lab/Frontier, MIT), whose memory keeps up.
const L2_BYTES_PER_SM_SECOND: f64 = 26e9;
/// Caches up to this multiple of the L2 stay there between two runs of a benchmark.
const L2_REACH: f64 = 1.1;

/// The time in nanoseconds that a benchmark measures by running an operator again and again: as [`roofline_ns`], but decode
/// attention finds a small cache in the L2 (67 MB take 36 us on an L40S, a third of what its memory needs).
#[must_use]
pub fn benchmark_ns(operator: &Operator, gpu: &Gpu) -> f64 {
    let mut work = work(operator, gpu);
    if matches!(operator, Operator::DecodeAttention { .. }) && work.bytes < L2_REACH * gpu.l2_bytes as f64 {
        work.bytes /= L2_SPEED;
    }
    time_ns(operator, work, gpu)
}

/// Time in nanoseconds of one operator by the roofline with default efficiencies, its operands in memory; collectives by the
/// default network model. Positive, finite for finite shapes, and never smaller for a larger shape.
#[must_use]
pub fn roofline_ns(operator: &Operator, gpu: &Gpu) -> f64 {
    time_ns(operator, work(operator, gpu), gpu)
}

fn time_ns(operator: &Operator, work: Work, gpu: &Gpu) -> f64 {
    let Work { flops, mut bytes, elementwise_bytes, blocks_per_sm } = work;
    if matches!(operator, Operator::Streaming { .. }) && bytes < gpu.l2_bytes as f64 {
        // What the kernel before wrote is still in the L2.
        let from_l2 = L2_BYTES_PER_SM_SECOND * f64::from(gpu.sm_count) / gpu.memory_bytes_per_second;
        bytes /= from_l2.max(1.0);
    }
    let bound = |floor_ns: f64, rate: f64, bandwidth_efficiency: f64| {
        let arithmetic = flops / rate * 1e9;
        let traffic = bytes / (gpu.memory_bytes_per_second * bandwidth_efficiency) * 1e9;
        let elementwise = elementwise_bytes / (gpu.memory_bytes_per_second * BANDWIDTH_EFFICIENCY) * 1e9;
        floor_ns + blocks_per_sm * ATTENTION_BLOCK_NS + arithmetic.max(traffic) + elementwise
    };
    let bf16 = peak_flops(NumberFormat::Bf16, gpu);
    match *operator {
        Operator::Gemm { activations, .. } => {
            bound(KERNEL_FLOOR_NS, peak_flops(activations, gpu) * GEMM_EFFICIENCY, GEMM_BANDWIDTH_EFFICIENCY)
        }
        Operator::PrefillAttention { .. } => bound(ATTENTION_FLOOR_NS, bf16 * PREFILL_EFFICIENCY, BANDWIDTH_EFFICIENCY),
        Operator::DecodeAttention { .. } => bound(ATTENTION_FLOOR_NS, bf16 * DECODE_EFFICIENCY, BANDWIDTH_EFFICIENCY),
        Operator::GroupedGemm { experts, .. } => bound(
            GROUPED_GEMM_FLOOR_NS,
            peak_flops(experts.activations, gpu) * GROUPED_GEMM_EFFICIENCY,
            GEMM_BANDWIDTH_EFFICIENCY,
        ),
        Operator::LatentPrefill { .. } | Operator::LatentDecode { .. } => {
            bound(LATENT_FLOOR_NS, bf16 * DECODE_EFFICIENCY, BANDWIDTH_EFFICIENCY)
        }
        Operator::BatchedGemm { .. } => bound(KERNEL_FLOOR_NS, bf16 * GEMM_EFFICIENCY, GEMM_BANDWIDTH_EFFICIENCY),
        Operator::Streaming { kind, kernels, .. } => {
            bound(KERNEL_FLOOR_NS * f64::from(kernels), bf16, kind.bandwidth_share())
        }
        Operator::Collective { kind, bytes, gpus, .. } => {
            network::alpha_beta::AlphaBeta.collective_ns(kind, bytes, gpus, gpu)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expert_load::ExpertLoad;
    use super::super::operator::{LatentBlock, StreamingKind};
    use super::*;
    use crate::network::test_gpus;

    fn gemm(tokens: u32, n: u32, k: u32, format: NumberFormat) -> Operator {
        Operator::Gemm { tokens, n, k, weights: format, activations: format }
    }

    fn heads(window: Option<u32>) -> AttentionHeads {
        AttentionHeads {
            query: 16,
            kv: 2,
            qk_dim: 128,
            v_dim: 128,
            cached_elements_per_token: 512,
            window,
            kv_cache: NumberFormat::Bf16,
        }
    }

    fn decode(batch: u32, context_tokens: f64) -> Operator {
        Operator::decode_attention(batch, context_tokens, heads(None))
    }

    fn experts() -> Experts {
        let fp8 = NumberFormat::Fp8;
        Experts {
            hidden_size: 2048,
            intermediate_size: 768,
            top_k: 8,
            count: 128,
            local: 32,
            weights: fp8,
            activations: fp8,
        }
    }

    fn block() -> LatentBlock {
        LatentBlock { heads: 16, weights: NumberFormat::Bf16, kv_cache: NumberFormat::Bf16 }
    }

    #[test]
    fn small_streaming_kernels_read_what_the_one_before_left_in_the_l2() {
        // 142 multiprocessors stream 3.7 TB/s from the L2 of an L40S, whose memory has 0.86.
        let gpu = test_gpus::l40s();
        let time = |bytes| roofline_ns(&Operator::Streaming { kind: StreamingKind::Norm, bytes, kernels: 1 }, &gpu);
        let beyond_launch = |bytes| time(bytes) - KERNEL_FLOOR_NS;
        let (small, large) = (0.9 * gpu.l2_bytes as f64, 1.1 * gpu.l2_bytes as f64);
        let ratio = (beyond_launch(large) / large) / (beyond_launch(small) / small);
        let expected = L2_BYTES_PER_SM_SECOND * 142.0 / gpu.memory_bytes_per_second;
        assert!((ratio - expected).abs() < 1e-9 && expected > 4.0, "{ratio} against {expected}");
    }

    #[test]
    fn gemm_by_hand() {
        let gpu = test_gpus::h100_sxm();
        let work = work(&gemm(16, 8192, 4096, NumberFormat::Bf16), &gpu);
        assert_eq!(work.flops, 2.0 * 16.0 * 8192.0 * 4096.0);
        assert_eq!(work.bytes, 2.0 * (8192.0 * 4096.0 + 16.0 * 4096.0 + 16.0 * 8192.0));
        let time = roofline_ns(&gemm(16, 8192, 4096, NumberFormat::Bf16), &gpu);
        assert!((time - (KERNEL_FLOOR_NS + work.bytes / (3.35e12 * 0.9) * 1e9)).abs() < 1e-6);
        assert!(
            roofline_ns(&gemm(8192, 8192, 4096, NumberFormat::Fp8), &gpu)
                < 0.6 * roofline_ns(&gemm(8192, 8192, 4096, NumberFormat::Bf16), &gpu)
        );
    }

    #[test]
    fn causal_pairs_equal_the_sum() {
        for (chunk, context, window) in
            [(5u32, 0u32, None), (7, 3, None), (7, 3, Some(5)), (4, 9, Some(5)), (3, 0, Some(8))]
        {
            let sum: u32 = (1..=chunk).map(|i| (context + i).min(window.unwrap_or(u32::MAX))).sum();
            assert_eq!(causal_pairs(f64::from(chunk), f64::from(context), window), f64::from(sum));
        }
    }

    #[test]
    fn a_short_chunk_on_a_long_context_pays_for_its_keys() {
        let chunk = |chunk_tokens| Operator::PrefillAttention {
            batch: 1,
            chunk_tokens,
            context_tokens: 16_384,
            heads: heads(None),
        };
        let gpu = test_gpus::l40s();
        let (short, longer) = (roofline_ns(&chunk(16), &gpu), roofline_ns(&chunk(128), &gpu));
        assert!(longer < 1.1 * short, "one tile per head either way: {short} and {longer}");
        assert!(
            short
                > 3.0
                    * roofline_ns(
                        &Operator::PrefillAttention {
                            batch: 1,
                            chunk_tokens: 16,
                            context_tokens: 2048,
                            heads: heads(None)
                        },
                        &gpu
                    )
        );
    }

    #[test]
    fn every_growing_shape_costs_no_less() {
        for gpu in [test_gpus::h100_sxm(), test_gpus::h20(), test_gpus::l40s()] {
            let steps = (0..18).map(|e| 1u32 << e);
            let families: Vec<Box<dyn Fn(u32) -> Operator>> = vec![
                Box::new(|x| gemm(x, 4096, 4096, NumberFormat::Fp8)),
                Box::new(|x| gemm(64, x, 4096, NumberFormat::Bf16)),
                Box::new(|x| Operator::PrefillAttention {
                    batch: 2,
                    chunk_tokens: x,
                    context_tokens: 100,
                    heads: heads(None),
                }),
                Box::new(|x| Operator::PrefillAttention {
                    batch: 2,
                    chunk_tokens: 64,
                    context_tokens: x,
                    heads: heads(Some(128)),
                }),
                Box::new(|x| decode(x, 100.5)),
                Box::new(|x| decode(8, f64::from(x))),
                Box::new(|x| Operator::Streaming { kind: StreamingKind::Norm, bytes: f64::from(x), kernels: 2 }),
                Box::new(|x| {
                    let experts = experts();
                    Operator::GroupedGemm { tokens: x, experts, load: ExpertLoad::uniform(x, &experts) }
                }),
                Box::new(|x| Operator::BatchedGemm { products: 16, tokens: x, n: 512, k: 128 }),
                Box::new(|x| Operator::LatentDecode { batch: 8.0, context_tokens: f64::from(x), block: block() }),
                Box::new(|x| Operator::LatentPrefill { batch: 2.0, tokens: f64::from(x), block: block() }),
            ];
            for family in &families {
                let times: Vec<f64> = steps.clone().map(|x| roofline_ns(&family(x), &gpu)).collect();
                assert!(times.windows(2).all(|w| w[0] <= w[1] && w[1].is_finite()), "{:?}: {times:?}", family(1));
            }
        }
    }
}
