//! Bytes of weights on one GPU of a pipeline stage.

use std::ops::Range;

use crate::catalog::{Attention, Ffn, Model, NumberFormat, Precision};
use crate::space::Parallelism;

/// vLLM pads the vocabulary to a multiple of this before it splits embedding and LM head over GPUs.
const VOCAB_PADDING: u32 = 64;

/// Bytes of a bf16 element: embedding, LM head, norms, routers and small vectors.
const BF16_BYTES: u64 = 2;

/// Weights on one GPU, in bytes, quantisation scales included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightBytes {
    /// Input embedding, on the first stage.
    pub embedding: u64,
    /// LM head, on the last stage.
    pub lm_head: u64,
    /// Attention of the stage's layers.
    pub attention: u64,
    /// Dense FFNs and shared experts.
    pub dense_ffn: u64,
    /// Routed experts of this GPU.
    pub experts: u64,
    /// Norms and routers.
    pub other: u64,
}

impl WeightBytes {
    /// All weights.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.embedding + self.lm_head + self.attention + self.dense_ffn + self.experts + self.other
    }
}

/// Bytes of one layer, summed over a stage.
#[derive(Clone, Copy, Default)]
struct LayerBytes {
    dense_ffn: u64,
    experts: u64,
    router: u64,
}

/// Weights per GPU for any stage of one sharded model.
pub(super) struct WeightModel<'a> {
    model: &'a Model,
    parallelism: Parallelism,
    precision: Precision,
    attention_layer: u64,
    /// GPUs that share a dense FFN or a shared expert.
    dense_ffn_gpus: u32,
    vocab_matrix: u64,
}

impl<'a> WeightModel<'a> {
    /// Precomputes what is the same in every layer.
    pub(super) fn new(model: &'a Model, parallelism: Parallelism, precision: Precision, dense_ffn_gpus: u32) -> Self {
        let tp = parallelism.tp_attention;
        let padded_vocab = model.vocab_size.next_multiple_of(VOCAB_PADDING);
        Self {
            model,
            parallelism,
            precision,
            attention_layer: attention_bytes(model, tp, model.attention_weights(precision)),
            dense_ffn_gpus,
            vocab_matrix: u64::from(padded_vocab.div_ceil(tp)) * u64::from(model.hidden_size) * BF16_BYTES,
        }
    }

    /// Weights of the stage that holds `layers`.
    pub(super) fn stage(&self, layers: Range<usize>) -> WeightBytes {
        let first = layers.start == 0;
        let last = layers.end == self.model.layers.len();
        let hidden = u64::from(self.model.hidden_size);
        let count = layers.len() as u64;
        let mut weights = WeightBytes {
            embedding: if first { self.vocab_matrix } else { 0 },
            // A tied head needs its own copy only where the embedding is on another stage.
            lm_head: if last && !(self.model.tied_embeddings && first) { self.vocab_matrix } else { 0 },
            attention: count * self.attention_layer,
            other: (2 * count + u64::from(last)) * hidden * BF16_BYTES,
            ..WeightBytes::default()
        };
        // Layers come in runs of the same kind: compute each run's layer once.
        let mut previous: Option<(Ffn, LayerBytes)> = None;
        for layer in &self.model.layers[layers] {
            let bytes = match previous {
                Some((ffn, bytes)) if ffn == layer.ffn => bytes,
                _ => self.layer(layer.ffn),
            };
            previous = Some((layer.ffn, bytes));
            weights.dense_ffn += bytes.dense_ffn;
            weights.experts += bytes.experts;
            weights.other += bytes.router;
        }
        weights
    }

    fn layer(&self, ffn: Ffn) -> LayerBytes {
        let hidden = self.model.hidden_size;
        let dense = ffn.dense_parameters(hidden).div_ceil(u64::from(self.dense_ffn_gpus));
        let (experts, _) = ffn.experts();
        let local_experts = u64::from(experts.div_ceil(self.parallelism.ep_ffn));
        let expert = ffn.expert_parameters(hidden).div_ceil(u64::from(self.parallelism.tp_ffn));
        LayerBytes {
            dense_ffn: format_bytes(dense, self.model.dense_ffn_weights(self.precision)),
            experts: format_bytes(local_experts * expert, self.precision.weights),
            router: ffn.router_parameters(hidden) * BF16_BYTES,
        }
    }
}

fn format_bytes(elements: u64, format: NumberFormat) -> u64 {
    (elements as f64 * format.bytes_per_element()) as u64
}

fn attention_bytes(model: &Model, tp: u32, format: NumberFormat) -> u64 {
    let matrices: u64 = model.attention.projections(model.hidden_size).map(|matrix| matrix.elements_per_gpu(tp)).sum();
    let absorbed = match model.attention {
        // Decoding with latent attention keeps bf16 copies of the key and value up-projections beside the original.
        Attention::Latent { heads, kv_lora_rank, qk_nope_head_dim, v_head_dim, .. } => {
            u64::from(heads.div_ceil(tp)) * u64::from(kv_lora_rank) * u64::from(qk_nope_head_dim + v_head_dim)
        }
        Attention::Grouped { .. } | Attention::Factorised { .. } => 0,
    };
    let vectors = model.attention.vector_parameters(model.hidden_size);
    format_bytes(matrices, format) + (absorbed + vectors) * BF16_BYTES
}
