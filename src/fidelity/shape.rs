//! What a fitted predictor sees of an operator: its family, its group (one forest each), its class and coordinates
//! in the residual table, and its features.

use super::operator::{AttentionHeads, CollectiveKind, Operator};
use super::roofline::{self, active_experts};
use crate::catalog::{Gpu, NumberFormat};

/// Room for the features of any family.
pub const MAX_FEATURES: usize = 16;
/// Room for the class of any family.
pub const CLASS_LENGTH: usize = 5;
/// Room for the coordinates of any family.
pub const MAX_AXES: usize = 3;

/// Operators that are fitted together and stored in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Dense matrix products, one forest per pair of formats.
    Gemm,
    /// Prefill attention.
    PrefillAttention,
    /// Decode attention.
    DecodeAttention,
    /// Routed experts, one forest per pair of formats.
    GroupedGemm,
    /// Collectives inside a node: residual tables only, no forest.
    Collective,
}

/// How the rows of a family are split into fitted and held-out ones: whole values of one key are held out.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// What is held out, for reports.
    pub name: &'static str,
    /// The key of an operator; rows with equal keys stay together.
    pub key: fn(&Operator) -> [u32; 5],
    /// The keys are sizes: held-out ones lie between fitted ones, so the split measures interpolation.
    pub ordered: bool,
}

impl Family {
    /// Every family, in the order of the enum.
    pub const ALL: [Self; 5] =
        [Self::Gemm, Self::PrefillAttention, Self::DecodeAttention, Self::GroupedGemm, Self::Collective];

    /// Name in reports; also the stem of the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::PrefillAttention => "prefill_attention",
            Self::DecodeAttention => "decode_attention",
            Self::GroupedGemm => "grouped_gemm",
            Self::Collective => "collective",
        }
    }

    /// The family of an operator; `None` for those that are priced by roofline only.
    #[must_use]
    pub fn of(operator: &Operator) -> Option<Self> {
        match operator {
            Operator::Gemm { .. } => Some(Self::Gemm),
            Operator::PrefillAttention { .. } => Some(Self::PrefillAttention),
            Operator::DecodeAttention { .. } => Some(Self::DecodeAttention),
            Operator::GroupedGemm { .. } => Some(Self::GroupedGemm),
            Operator::Streaming { .. } => None,
            Operator::Collective { .. } => Some(Self::Collective),
        }
    }

    /// Names of the features, in the order of [`Shape::features`].
    #[must_use]
    pub fn feature_names(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &[
                "ln m",
                "ln n",
                "ln k",
                "ln n*k",
                "ln arithmetic/traffic",
                "ln roofline",
                "padding to 64 rows",
                "padding to 128 rows",
                "padding to 256 rows",
                "ln waves 128x128",
                "tail 128x128",
                "tail 128x256",
                "tail 64x128",
                "m mod 4",
                "m mod 16",
            ],
            Self::PrefillAttention => &[
                "ln batch",
                "ln length",
                "ln kv heads",
                "ln query heads",
                "ln group",
                "width",
                "window",
                "cache bytes",
                "ln bytes",
                "ln flops",
                "ln roofline",
                "ln tiles",
                "tail",
                "ln batch*kv",
                "ln batch*heads",
            ],
            Self::DecodeAttention => &[
                "ln batch",
                "ln context",
                "ln kv heads",
                "ln query heads",
                "ln group",
                "width",
                "window",
                "cache bytes",
                "ln bytes",
                "ln flops",
                "ln roofline",
                "ln tiles",
                "tail",
                "ln batch*kv",
                "ln span",
            ],
            Self::GroupedGemm => &[
                "ln tokens",
                "ln hidden",
                "ln inner",
                "top k",
                "ln experts",
                "ln local experts",
                "ln active experts",
                "ln rows per active expert",
                "padding to 64 rows",
                "ln parameters",
                "ln arithmetic/traffic",
                "ln roofline",
                "ln waves",
            ],
            Self::Collective => &[],
        }
    }

    /// The held-out splits of this family.
    #[must_use]
    pub fn splits(self) -> &'static [Split] {
        match self {
            Self::Gemm => &[
                Split { name: "(n, k) pairs", key: matrix_key, ordered: false },
                Split { name: "token counts", key: size_key, ordered: true },
            ],
            Self::PrefillAttention => &[
                Split { name: "(heads, kv heads)", key: heads_key, ordered: false },
                Split { name: "batch sizes", key: batch_key, ordered: true },
                Split { name: "lengths", key: size_key, ordered: true },
            ],
            Self::DecodeAttention => &[
                Split { name: "(heads, kv heads)", key: heads_key, ordered: false },
                Split { name: "batch sizes", key: batch_key, ordered: true },
                Split { name: "contexts", key: size_key, ordered: true },
            ],
            Self::GroupedGemm => &[
                Split { name: "expert shapes", key: matrix_key, ordered: false },
                Split { name: "token counts", key: size_key, ordered: true },
            ],
            Self::Collective => &[Split { name: "message sizes", key: size_key, ordered: true }],
        }
    }
}

/// Shape of the weights.
fn matrix_key(operator: &Operator) -> [u32; 5] {
    match *operator {
        Operator::Gemm { n, k, .. } => [n, k, 0, 0, 0],
        Operator::GroupedGemm { hidden_size, intermediate_size, top_k, experts, local_experts, .. } => {
            [hidden_size, intermediate_size, top_k, experts, local_experts]
        }
        _ => [0; 5],
    }
}

/// The coordinate that a simulator moves along: tokens, length, context or bytes.
fn size_key(operator: &Operator) -> [u32; 5] {
    let size = match *operator {
        Operator::Gemm { tokens, .. } | Operator::GroupedGemm { tokens, .. } => tokens,
        Operator::PrefillAttention { chunk_tokens, .. } => chunk_tokens,
        Operator::DecodeAttention { context_tokens, .. } => context_tokens as u32,
        Operator::Collective { bytes, .. } | Operator::Streaming { bytes, .. } => bytes as u32,
    };
    [size, 0, 0, 0, 0]
}

fn batch_key(operator: &Operator) -> [u32; 5] {
    match *operator {
        Operator::PrefillAttention { batch, .. } | Operator::DecodeAttention { batch, .. } => [batch, 0, 0, 0, 0],
        _ => [0; 5],
    }
}

fn heads_key(operator: &Operator) -> [u32; 5] {
    match operator {
        Operator::PrefillAttention { heads, .. } | Operator::DecodeAttention { heads, .. } => {
            [heads.query, heads.kv, 0, 0, 0]
        }
        _ => [0; 5],
    }
}

/// An operator as a fitted predictor sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Its family.
    pub family: Family,
    /// Which forest of the family: weight and activation formats, or zeros.
    pub group: [u8; 2],
    /// Which residual table of the group.
    pub class: [u32; CLASS_LENGTH],
    /// Position in that table: natural logarithms; unused ones are zero.
    pub coordinates: [f64; MAX_AXES],
    /// Inputs of the forest; unused ones are zero.
    pub features: [f32; MAX_FEATURES],
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
        Operator::DecodeAttention { batch, context_tokens, heads } => {
            let span = heads.window.map_or(context_tokens, |window| context_tokens.min(f64::from(window)));
            let position = [ln(f64::from(batch)), ln(context_tokens)];
            Some(attention_shape(operator, Family::DecodeAttention, position, ln(span), &heads, gpu))
        }
        Operator::GroupedGemm { .. } => Some(grouped_shape(operator, gpu)),
        Operator::Collective { kind: CollectiveKind::SendRecv, .. } | Operator::Streaming { .. } => None,
        Operator::Collective { kind, bytes, gpus, graph } => Some(Shape {
            family: Family::Collective,
            group: [0; 2],
            class: [kind as u32, u32::from(graph && kind == CollectiveKind::AllReduce), 0, 0, 0],
            coordinates: [ln(f64::from(gpus)), ln(bytes), 0.0],
            features: [0.0; MAX_FEATURES],
        }),
    }
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

fn collect(values: &[f64]) -> [f32; MAX_FEATURES] {
    let mut features = [0.0; MAX_FEATURES];
    for (feature, value) in features.iter_mut().zip(values) {
        *feature = (libm::round(*value * FEATURE_STEPS) / FEATURE_STEPS) as f32;
    }
    features
}

fn gemm_shape(operator: &Operator, [tokens, n, k]: [u32; 3], formats: [NumberFormat; 2], gpu: &Gpu) -> Shape {
    let work = roofline::work(operator, gpu);
    let balance = work.flops / roofline::peak_flops(formats[1], gpu) / (work.bytes / gpu.memory_bytes_per_second);
    let (m, columns) = (f64::from(tokens), f64::from(n));
    let waves = |rows: f64, width: f64| libm::ceil(m / rows) * libm::ceil(columns / width) / f64::from(gpu.sm_count);
    let (square, wide, short) = (waves(128.0, 128.0), waves(128.0, 256.0), waves(64.0, 128.0));
    // Block-scaled fp8 kernels pad the activations to four rows by a copy; the two cases are different curves.
    let unaligned = formats[1] == NumberFormat::Fp8Block && !tokens.is_multiple_of(4);
    let coordinates = [ln(m), ln(columns), ln(f64::from(k))];
    Shape {
        family: Family::Gemm,
        group: formats.map(format_code),
        class: [u32::from(unaligned), 0, 0, 0, 0],
        coordinates,
        features: collect(&[
            coordinates[0],
            coordinates[1],
            coordinates[2],
            coordinates[1] + coordinates[2],
            ln_positive(balance),
            ln_positive(roofline::roofline_ns(operator, gpu)),
            padding(m, 64.0),
            padding(m, 128.0),
            padding(m, 256.0),
            ln_positive(square),
            padding(square, 1.0),
            padding(wide, 1.0),
            padding(short, 1.0),
            f64::from(u8::from(!tokens.is_multiple_of(4))),
            f64::from(u8::from(!tokens.is_multiple_of(16))),
        ]),
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
    attention_shape(
        operator,
        Family::PrefillAttention,
        [ln_positive(prompts), ln(length)],
        ln(batch * f64::from(heads.query)),
        heads,
        gpu,
    )
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
    let mut cache_format = heads.kv_cache;
    if cache_format != NumberFormat::Bf16 {
        // Every 8-bit cache format streams the same bytes through the same kernels.
        cache_format = NumberFormat::Fp8;
    }
    Shape {
        family,
        group: [0; 2],
        class: [heads.query, heads.kv, heads.qk_dim, window, u32::from(format_code(cache_format))],
        coordinates: [ln_batch, ln_length, 0.0],
        features: collect(&[
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
            ln_positive(roofline::roofline_ns(operator, gpu)),
            ln_positive(work.blocks_per_sm),
            padding(work.blocks_per_sm, 1.0),
            ln_batch + ln(kv),
            last,
        ]),
    }
}

fn grouped_shape(operator: &Operator, gpu: &Gpu) -> Shape {
    let Operator::GroupedGemm {
        tokens,
        hidden_size,
        intermediate_size,
        top_k,
        experts,
        local_experts,
        weights,
        activations,
    } = *operator
    else {
        unreachable!("called for grouped products only")
    };
    let work = roofline::work(operator, gpu);
    let balance = work.flops / roofline::peak_flops(activations, gpu) / (work.bytes / gpu.memory_bytes_per_second);
    let (m, k) = (f64::from(tokens), f64::from(top_k));
    let (all, local) = (f64::from(experts), f64::from(local_experts));
    let active = active_experts(m, k, all, local).max(1e-6);
    let rows = (m * k * local / all / active).max(1e-6);
    let (hidden, inner) = (f64::from(hidden_size), f64::from(intermediate_size));
    let tiles = active * libm::ceil(rows / 64.0) * libm::ceil(2.0 * inner / 128.0);
    Shape {
        family: Family::GroupedGemm,
        group: [format_code(weights), format_code(activations)],
        class: [hidden_size, intermediate_size, top_k, experts, local_experts],
        coordinates: [ln(m), 0.0, 0.0],
        features: collect(&[
            ln(m),
            ln(hidden),
            ln(inner),
            k,
            ln(all),
            ln(local),
            ln_positive(active),
            ln_positive(rows),
            padding(rows, 64.0),
            ln(hidden * inner),
            ln_positive(balance),
            ln_positive(roofline::roofline_ns(operator, gpu)),
            ln_positive(tiles / f64::from(gpu.sm_count)),
        ]),
    }
}
