//! Parameter counts, and the weight matrices of attention as tensor parallelism splits them.

use super::model::{Attention, Ffn, Layer, Model};

/// One weight matrix of an attention block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Inner dimension.
    pub inputs: u32,
    /// Columns.
    pub outputs: u32,
    /// Units (heads) that tensor parallelism deals out whole; 1 means that every GPU holds the whole matrix.
    pub units: u32,
    /// Which dimension the units lie along.
    pub split: Split,
}

/// The dimension of a projection that tensor parallelism cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Columns: each GPU computes its heads.
    Outputs,
    /// Inner dimension: each GPU computes a partial sum, completed by an all-reduce.
    Inputs,
}

impl Projection {
    const fn columns(inputs: u32, outputs: u32, units: u32) -> Self {
        Self { inputs, outputs, units, split: Split::Outputs }
    }

    const fn rows(inputs: u32, outputs: u32, units: u32) -> Self {
        Self { inputs, outputs, units, split: Split::Inputs }
    }

    /// Elements of the whole matrix.
    #[must_use]
    pub fn elements(self) -> u64 {
        u64::from(self.inputs) * u64::from(self.outputs)
    }

    /// The (inner dimension, columns) of the shard on one of `tp` GPUs. Units are replicated when there are fewer
    /// than GPUs, as vLLM does with key-value heads.
    #[must_use]
    pub fn shard(self, tp: u32) -> (u32, u32) {
        let local_units = self.units.div_ceil(tp);
        match self.split {
            Split::Outputs => (self.inputs, self.outputs / self.units * local_units),
            Split::Inputs => (self.inputs / self.units * local_units, self.outputs),
        }
    }

    /// Elements of the shard on one of `tp` GPUs.
    #[must_use]
    pub fn elements_per_gpu(self, tp: u32) -> u64 {
        let (inputs, outputs) = self.shard(tp);
        u64::from(inputs) * u64::from(outputs)
    }
}

/// Most projections of one attention block (latent attention with compressed queries).
const MAX_PROJECTIONS: usize = 5;

impl Attention {
    /// The weight matrices in the order of execution. Q, K and V of grouped attention are Q and a joint K and V.
    pub fn projections(self, hidden_size: u32) -> impl Iterator<Item = Projection> {
        let hidden = hidden_size;
        let mut list: [Option<Projection>; MAX_PROJECTIONS] = [None; MAX_PROJECTIONS];
        match self {
            Self::Grouped { heads, kv_heads, head_dim, .. } => {
                list[0] = Some(Projection::columns(hidden, heads * head_dim, heads));
                list[1] = Some(Projection::columns(hidden, 2 * kv_heads * head_dim, kv_heads));
                list[2] = Some(Projection::rows(heads * head_dim, hidden, heads));
            }
            Self::Latent { heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim } => {
                let query_width = heads * (qk_nope_head_dim + qk_rope_head_dim);
                list[0] = q_lora_rank.map(|rank| Projection::columns(hidden, rank, 1));
                list[1] = Some(Projection::columns(q_lora_rank.unwrap_or(hidden), query_width, heads));
                list[2] = Some(Projection::columns(hidden, kv_lora_rank + qk_rope_head_dim, 1));
                list[3] = Some(Projection::columns(kv_lora_rank, heads * (qk_nope_head_dim + v_head_dim), heads));
                list[4] = Some(Projection::rows(heads * v_head_dim, hidden, heads));
            }
            Self::Factorised { heads, head_dim, q_rank } => {
                list[0] = Some(Projection::columns(hidden, q_rank, 1));
                list[1] = Some(Projection::columns(hidden, 2 * head_dim, 1));
                list[2] = Some(Projection::columns(q_rank, heads * head_dim, heads));
                list[3] = Some(Projection::rows(heads * head_dim, hidden, heads));
            }
        }
        list.into_iter().flatten()
    }

    /// Query heads.
    #[must_use]
    pub fn heads(self) -> u32 {
        match self {
            Self::Grouped { heads, .. } | Self::Latent { heads, .. } | Self::Factorised { heads, .. } => heads,
        }
    }

    /// Heads of the cache: 1 for latent and factorised attention.
    #[must_use]
    pub fn kv_heads(self) -> u32 {
        match self {
            Self::Grouped { kv_heads, .. } => kv_heads,
            Self::Latent { .. } | Self::Factorised { .. } => 1,
        }
    }

    /// Elements that one token adds to the cache of one layer on each of `tp` GPUs. The latent and the single
    /// key-value head of factorised attention are replicated.
    #[must_use]
    pub fn cached_elements_per_token(self, tp: u32) -> u32 {
        match self {
            Self::Grouped { kv_heads, head_dim, .. } => 2 * kv_heads.div_ceil(tp) * head_dim,
            Self::Latent { kv_lora_rank, qk_rope_head_dim, .. } => kv_lora_rank + qk_rope_head_dim,
            Self::Factorised { head_dim, .. } => 2 * head_dim,
        }
    }

    /// Small vectors of one block: biases, norms inside attention and sinks.
    #[must_use]
    pub fn vector_parameters(self, hidden_size: u32) -> u64 {
        let count = match self {
            Self::Grouped { heads, kv_heads, head_dim, qkv_bias, qk_norm, sinks } => {
                // gpt-oss, the only family with sinks, also has a bias on the output projection.
                let output_bias = if qkv_bias && sinks { hidden_size } else { 0 };
                let biases = if qkv_bias { (heads + 2 * kv_heads) * head_dim } else { 0 };
                biases + output_bias + if qk_norm { 2 * head_dim } else { 0 } + if sinks { heads } else { 0 }
            }
            Self::Latent { q_lora_rank, kv_lora_rank, .. } => q_lora_rank.unwrap_or(0) + kv_lora_rank,
            Self::Factorised { q_rank, .. } => q_rank,
        };
        u64::from(count)
    }
}

impl Ffn {
    /// Parameters that every token passes through, router excluded: the dense FFN or the shared expert.
    #[must_use]
    pub fn dense_parameters(self, hidden_size: u32) -> u64 {
        let width = match self {
            Self::Dense { intermediate_size } => intermediate_size,
            Self::MixtureOfExperts { shared_intermediate_size, .. } => shared_intermediate_size,
        };
        3 * u64::from(hidden_size) * u64::from(width)
    }

    /// Router weights, kept in bf16 at any precision.
    #[must_use]
    pub fn router_parameters(self, hidden_size: u32) -> u64 {
        match self {
            Self::Dense { .. } => 0,
            Self::MixtureOfExperts { experts, .. } => u64::from(experts) * u64::from(hidden_size),
        }
    }

    /// Parameters of one routed expert, biases included; 0 in a dense layer.
    #[must_use]
    pub fn expert_parameters(self, hidden_size: u32) -> u64 {
        match self {
            Self::Dense { .. } => 0,
            Self::MixtureOfExperts { expert_intermediate_size: width, expert_bias, .. } => {
                let biases = if expert_bias { 2 * u64::from(width) + u64::from(hidden_size) } else { 0 };
                3 * u64::from(hidden_size) * u64::from(width) + biases
            }
        }
    }

    /// Routed experts of the layer, and how many of them serve one token.
    #[must_use]
    pub fn experts(self) -> (u32, u32) {
        match self {
            Self::Dense { .. } => (0, 0),
            Self::MixtureOfExperts { experts, top_k, .. } => (experts, top_k),
        }
    }
}

/// Parameters of one layer by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerParameters {
    /// Attention with its biases and norms.
    pub attention: u64,
    /// Dense FFN or shared expert.
    pub dense_ffn: u64,
    /// Router.
    pub router: u64,
    /// One routed expert.
    pub expert: u64,
    /// The two norms before attention and FFN.
    pub norms: u64,
    /// Routed experts.
    pub experts: u32,
    /// Routed experts per token.
    pub top_k: u32,
}

impl LayerParameters {
    /// All parameters of the layer.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.always_active() + u64::from(self.experts) * self.expert
    }

    /// Parameters that one token passes through.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.always_active() + u64::from(self.top_k) * self.expert
    }

    fn always_active(&self) -> u64 {
        self.attention + self.dense_ffn + self.router + self.norms
    }
}

impl Model {
    /// Parameters of `layer` by kind.
    #[must_use]
    pub fn layer_parameters(&self, layer: &Layer) -> LayerParameters {
        let hidden = self.hidden_size;
        let matrices: u64 = self.attention.projections(hidden).map(Projection::elements).sum();
        let (experts, top_k) = layer.ffn.experts();
        LayerParameters {
            attention: matrices + self.attention.vector_parameters(hidden),
            dense_ffn: layer.ffn.dense_parameters(hidden),
            router: layer.ffn.router_parameters(hidden),
            expert: layer.ffn.expert_parameters(hidden),
            norms: 2 * u64::from(hidden),
            experts,
            top_k,
        }
    }

    /// Parameters of the input embedding.
    #[must_use]
    pub fn embedding_parameters(&self) -> u64 {
        u64::from(self.vocab_size) * u64::from(self.hidden_size)
    }

    /// Parameters of the LM head; 0 if it shares the embedding.
    #[must_use]
    pub fn lm_head_parameters(&self) -> u64 {
        if self.tied_embeddings { 0 } else { self.embedding_parameters() }
    }

    /// All parameters of the decoder, embedding and LM head included; no vision encoder, no token-prediction modules.
    #[must_use]
    pub fn total_parameters(&self) -> u64 {
        self.outside_layers() + self.layers.iter().map(|layer| self.layer_parameters(layer).total()).sum::<u64>()
    }

    /// Parameters that belong to one token's forward pass, embedding and LM head included.
    #[must_use]
    pub fn active_parameters(&self) -> u64 {
        self.outside_layers() + self.layers.iter().map(|layer| self.layer_parameters(layer).active()).sum::<u64>()
    }

    fn outside_layers(&self) -> u64 {
        self.embedding_parameters() + self.lm_head_parameters() + u64::from(self.hidden_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENT: Attention = Attention::Latent {
        heads: 128,
        q_lora_rank: Some(1536),
        kv_lora_rank: 512,
        qk_nope_head_dim: 128,
        qk_rope_head_dim: 64,
        v_head_dim: 128,
    };

    fn grouped(heads: u32, kv_heads: u32) -> Attention {
        Attention::Grouped { heads, kv_heads, head_dim: 128, qkv_bias: false, qk_norm: false, sinks: false }
    }

    #[test]
    fn kv_heads_are_replicated_when_there_are_more_gpus_than_heads() {
        let attention = grouped(64, 8);
        assert_eq!(attention.cached_elements_per_token(1), 2 * 8 * 128);
        assert_eq!(attention.cached_elements_per_token(8), 2 * 128);
        assert_eq!(attention.cached_elements_per_token(16), 2 * 128);
        let kv = attention.projections(8192).nth(1).unwrap();
        assert_eq!(kv.shard(16), (8192, 256));
    }

    #[test]
    fn the_output_projection_is_split_along_its_inputs() {
        let output = grouped(64, 8).projections(8192).last().unwrap();
        assert_eq!(output.shard(4), (2048, 8192));
        assert_eq!(output.elements_per_gpu(4) * 4, output.elements());
    }

    #[test]
    fn latent_attention_replicates_its_compressions_and_its_cache() {
        assert_eq!(LATENT.cached_elements_per_token(1), 576);
        assert_eq!(LATENT.cached_elements_per_token(8), 576);
        let shards: Vec<(u32, u32)> = LATENT.projections(7168).map(|projection| projection.shard(8)).collect();
        assert_eq!(shards, [(7168, 1536), (1536, 16 * 192), (7168, 576), (512, 16 * 256), (16 * 128, 7168)]);
    }

    #[test]
    fn a_token_uses_top_k_of_the_experts() {
        let ffn = Ffn::MixtureOfExperts {
            experts: 8,
            top_k: 2,
            expert_intermediate_size: 100,
            shared_intermediate_size: 0,
            expert_bias: false,
        };
        assert_eq!(ffn.expert_parameters(10), 3000);
        assert_eq!(ffn.experts(), (8, 2));
        assert_eq!(ffn.router_parameters(10), 80);
    }
}
