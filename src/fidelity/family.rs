//! Operator families: what is fitted together, stored in one file, and judged on which held-out shapes.

use super::operator::Operator;

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
    /// Latent attention blocks in prefill, one forest per weight format.
    LatentPrefill,
    /// Latent attention blocks in decode, one forest per weight format.
    LatentDecode,
    /// One product per head.
    BatchedGemm,
    /// Kernels that move bytes: residual tables only, no forest.
    Streaming,
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
    pub const ALL: [Self; 9] = [
        Self::Gemm,
        Self::PrefillAttention,
        Self::DecodeAttention,
        Self::GroupedGemm,
        Self::Collective,
        Self::LatentPrefill,
        Self::LatentDecode,
        Self::BatchedGemm,
        Self::Streaming,
    ];

    /// Name in reports; also the stem of the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::PrefillAttention => "prefill_attention",
            Self::DecodeAttention => "decode_attention",
            Self::GroupedGemm => "grouped_gemm",
            Self::Collective => "collective",
            Self::LatentPrefill => "latent_prefill",
            Self::LatentDecode => "latent_decode",
            Self::BatchedGemm => "batched_gemm",
            Self::Streaming => "streaming",
        }
    }

    /// The family of an operator.
    #[must_use]
    pub fn of(operator: &Operator) -> Self {
        match operator {
            Operator::Gemm { .. } => Self::Gemm,
            Operator::PrefillAttention { .. } => Self::PrefillAttention,
            Operator::DecodeAttention { .. } => Self::DecodeAttention,
            Operator::GroupedGemm { .. } => Self::GroupedGemm,
            Operator::Streaming { .. } => Self::Streaming,
            Operator::Collective { .. } => Self::Collective,
            Operator::LatentPrefill { .. } => Self::LatentPrefill,
            Operator::LatentDecode { .. } => Self::LatentDecode,
            Operator::BatchedGemm { .. } => Self::BatchedGemm,
        }
    }

    /// Names of the table's axes. All are natural logarithms, but for the exponent of a power law.
    #[must_use]
    pub fn axes(self) -> &'static [&'static str] {
        match self {
            Self::Gemm => &["tokens", "n", "k"],
            Self::PrefillAttention | Self::LatentPrefill => &["batch", "length"],
            Self::DecodeAttention | Self::LatentDecode => &["batch", "context"],
            Self::GroupedGemm => &["tokens", "exponent"],
            Self::Collective => &["gpus", "bytes"],
            Self::BatchedGemm => &["tokens", "products"],
            Self::Streaming => &["bytes"],
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
            Self::LatentPrefill | Self::LatentDecode => &[
                Split { name: "batch sizes", key: batch_key, ordered: true },
                Split { name: "lengths", key: size_key, ordered: true },
            ],
            Self::Streaming => &[Split { name: "sizes", key: size_key, ordered: true }],
            Self::BatchedGemm => &[Split { name: "token counts", key: size_key, ordered: true }],
        }
    }
}

/// Shape of the weights.
fn matrix_key(operator: &Operator) -> [u32; 5] {
    match *operator {
        Operator::Gemm { n, k, .. } => [n, k, 0, 0, 0],
        Operator::GroupedGemm { experts, .. } => {
            [experts.hidden_size, experts.intermediate_size, experts.top_k, experts.count, experts.local]
        }
        _ => [0; 5],
    }
}

/// The coordinate that a simulator moves along: tokens, length, context or bytes.
fn size_key(operator: &Operator) -> [u32; 5] {
    let size = match *operator {
        Operator::Gemm { tokens, .. } | Operator::GroupedGemm { tokens, .. } | Operator::BatchedGemm { tokens, .. } => {
            tokens
        }
        Operator::LatentPrefill { tokens, .. } => tokens as u32,
        Operator::LatentDecode { context_tokens, .. } => context_tokens as u32,
        Operator::PrefillAttention { chunk_tokens, .. } => chunk_tokens,
        Operator::DecodeAttention { context_tokens, .. } => context_tokens as u32,
        Operator::Collective { bytes, .. } | Operator::Streaming { bytes, .. } => bytes as u32,
    };
    [size, 0, 0, 0, 0]
}

fn batch_key(operator: &Operator) -> [u32; 5] {
    match *operator {
        Operator::PrefillAttention { batch, .. } | Operator::DecodeAttention { batch, .. } => [batch, 0, 0, 0, 0],
        Operator::LatentPrefill { batch, .. } | Operator::LatentDecode { batch, .. } => [batch as u32, 0, 0, 0, 0],
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
