//! Number formats of weights, activations and KV cache.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one kind of tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumberFormat {
    /// bfloat16 or float16: two bytes, no scales.
    Bf16,
    /// 8-bit float with one scale per tensor or per output channel.
    Fp8,
    /// 8-bit float with one fp32 scale per 128 x 128 block (DeepSeek style).
    Fp8Block,
    /// 8-bit integer with one scale per output channel.
    Int8,
    /// 4-bit integer weights with one 16-bit scale per group of 128 (GPTQ, AWQ), bf16 arithmetic.
    Int4,
    /// 4-bit float with one 8-bit scale per 16 values (NVFP4).
    Nvfp4,
    /// 4-bit float with one 8-bit scale per 32 values (OCP MXFP4).
    Mxfp4,
}

impl NumberFormat {
    /// Every format, in the order of the enum.
    pub const ALL: [Self; 7] =
        [Self::Bf16, Self::Fp8, Self::Fp8Block, Self::Int8, Self::Int4, Self::Nvfp4, Self::Mxfp4];

    /// Bytes per element, scales included.
    #[must_use]
    pub fn bytes_per_element(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Fp8Block => 1.0 + 4.0 / (128.0 * 128.0),
            Self::Int4 => 0.5 + 2.0 / 128.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
            Self::Mxfp4 => 0.5 + 1.0 / 32.0,
        }
    }

    /// The name used in sweep files and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
        }
    }

    /// The format of this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Formats of the three kinds of tensor in one deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Precision {
    /// Weights of the linear layers and experts, as far as the model's checkpoint quantises them (see
    /// [`Quantized`](super::model::Quantized)). Embedding, LM head, norms and router stay in bf16.
    pub weights: NumberFormat,
    /// Inputs of the linear layers and experts: decides which tensor-core rate applies.
    pub activations: NumberFormat,
    /// KV cache entries: `Bf16` or an 8-bit format.
    pub kv_cache: NumberFormat,
}

impl Precision {
    /// Everything in bf16.
    pub const BF16: Self =
        Self { weights: NumberFormat::Bf16, activations: NumberFormat::Bf16, kv_cache: NumberFormat::Bf16 };
}
