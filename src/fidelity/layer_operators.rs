//! Compiles a model to the operators that one GPU runs in one engine step.
//!
//! Operators are grouped by what their time depends on: the tokens of this attention rank (`rank`), the tokens of the
//! whole lock-step group (`shared`: experts serve every data-parallel rank), or the attended context, which is handled by
//! the attention grids. Each physical collective appears exactly once.

use crate::catalog::{Attention, ExpertExchange, Ffn, Layer, Model, NumberFormat, Precision};
use crate::space::Parallelism;

use super::expert_load::ExpertLoad;
use super::operator::{AttentionHeads, CollectiveKind, Experts, Operator, StreamingKind};

/// Bytes of one activation element: vLLM keeps the residual stream and collectives in 16 bits.
const ACTIVATION_BYTES: f64 = 2.0;

/// What is compiled: a model, its split and its number formats.
#[derive(Clone, Copy, Debug)]
pub struct Sharding<'a> {
    /// The model.
    pub model: &'a Model,
    /// The split of one replica.
    pub parallelism: Parallelism,
    /// Number formats.
    pub precision: Precision,
    /// Collectives are replayed inside CUDA graphs.
    pub graph: bool,
    /// GPUs in one node.
    pub gpus_per_node: u32,
    /// Communication around experts under data-parallel attention.
    pub expert_exchange: ExpertExchange,
}

impl Sharding<'_> {
    /// Attention heads of one GPU in prefill. Latent attention expands the latent and attends like MHA.
    #[must_use]
    pub fn prefill_heads(&self, layer: Layer) -> AttentionHeads {
        let decode = self.heads(layer);
        match self.model.attention {
            Attention::Latent { qk_nope_head_dim, qk_rope_head_dim, v_head_dim, .. } => AttentionHeads {
                kv: decode.query,
                qk_dim: qk_nope_head_dim + qk_rope_head_dim,
                v_dim: v_head_dim,
                ..decode
            },
            Attention::Grouped { .. } | Attention::Factorised { .. } => decode,
        }
    }

    /// Attention heads of one GPU in decode. KV heads are replicated when there are more GPUs than heads.
    #[must_use]
    pub fn heads(&self, layer: Layer) -> AttentionHeads {
        let tp = self.parallelism.tp_attention;
        let (query, kv, qk_dim, v_dim, cached_elements_per_token) = match self.model.attention {
            Attention::Grouped { heads, kv_heads, head_dim, .. } => {
                let kv = kv_heads.div_ceil(tp);
                (heads.div_ceil(tp), kv, head_dim, head_dim, 2 * kv * head_dim)
            }
            // Absorbed form: every query head attends to the one cached latent and rotary key.
            Attention::Latent { heads, kv_lora_rank, qk_rope_head_dim, .. } => {
                let latent = kv_lora_rank + qk_rope_head_dim;
                (heads.div_ceil(tp), 1, latent, kv_lora_rank, latent)
            }
            Attention::Factorised { heads, head_dim, .. } => (heads.div_ceil(tp), 1, head_dim, head_dim, 2 * head_dim),
        };
        let kv_cache = self.precision.kv_cache;
        AttentionHeads { query, kv, qk_dim, v_dim, cached_elements_per_token, window: layer.window, kv_cache }
    }

    /// Operators of one layer that depend on the tokens of this attention rank, without the attention kernel.
    #[must_use]
    pub fn rank_operators(&self, layer: Layer, tokens: u32) -> Vec<Operator> {
        let heads = self.heads(layer);
        let mut operators = vec![self.norm(tokens)];
        operators.extend(self.projections(tokens));
        operators.extend(self.inner_norms(tokens, heads));
        // Rotary embedding in place, then the cache write.
        let rotated = f64::from(match self.model.attention {
            Attention::Latent { qk_rope_head_dim, .. } => (heads.query + 1) * qk_rope_head_dim,
            Attention::Grouped { .. } | Attention::Factorised { .. } => (heads.query + heads.kv) * heads.qk_dim,
        });
        let cached = f64::from(heads.cached_elements_per_token);
        for (kind, elements) in [(StreamingKind::Rotary, rotated), (StreamingKind::CacheWrite, cached)] {
            // Read and written.
            let bytes = 2.0 * f64::from(tokens) * elements * ACTIVATION_BYTES;
            operators.push(Operator::Streaming { kind, bytes, kernels: 1 });
        }
        operators.extend(self.all_reduce(self.parallelism.tp_attention, tokens));
        operators.push(self.norm(tokens));
        operators.extend(self.feed_forward(layer.ffn, tokens));
        operators
    }

    /// Operators of one layer that depend on the tokens of the whole lock-step group: the routed experts.
    #[must_use]
    pub fn shared_operators(&self, layer: Layer, tokens: u32) -> Vec<Operator> {
        let Ffn::MixtureOfExperts { experts, top_k, expert_intermediate_size, .. } = layer.ffn else {
            return Vec::new();
        };
        let Parallelism { tp_ffn, ep_ffn, .. } = self.parallelism;
        let experts = Experts {
            hidden_size: self.model.hidden_size,
            intermediate_size: expert_intermediate_size.div_ceil(tp_ffn),
            top_k,
            count: experts,
            local: experts.div_ceil(ep_ffn),
            weights: self.precision.weights,
            activations: self.precision.activations,
        };
        let load = ExpertLoad::uniform(tokens, &experts);
        let mut operators = vec![Operator::GroupedGemm { tokens, experts, load }];
        operators.extend(self.expert_collectives(tokens, &experts));
        operators
    }

    /// Operators around the layers of the first stage: the embedding look-up.
    #[must_use]
    pub fn embedding_operators(&self, tokens: u32) -> Vec<Operator> {
        let bytes = 2.0 * f64::from(tokens) * f64::from(self.model.hidden_size) * ACTIVATION_BYTES;
        let mut operators = vec![Operator::Streaming { kind: StreamingKind::Embedding, bytes, kernels: 1 }];
        // The vocabulary is sharded over the attention group; partial rows are summed.
        operators.extend(self.all_reduce(self.parallelism.tp_attention, tokens));
        operators
    }

    /// Operators after the layers of the last stage, for the rows that are sampled: final norm, LM head, gathering of the
    /// logits and sampling.
    #[must_use]
    pub fn head_operators(&self, sampled: u32) -> Vec<Operator> {
        let tp = self.parallelism.tp_attention;
        let vocab = self.model.vocab_size;
        let mut operators = vec![
            self.norm(sampled),
            Operator::Gemm {
                tokens: sampled,
                n: vocab.div_ceil(tp),
                k: self.model.hidden_size,
                weights: NumberFormat::Bf16,
                activations: NumberFormat::Bf16,
            },
        ];
        let logits = f64::from(sampled) * f64::from(vocab);
        operators.extend(self.collective(CollectiveKind::AllGather, logits * ACTIVATION_BYTES, tp));
        // Conversion to fp32 (2 + 4 bytes) and an arg-max or a softmax with a draw (two passes of 4 bytes).
        let bytes = logits * (2.0 + 4.0 + 8.0);
        operators.push(Operator::Streaming { kind: StreamingKind::Sampling, bytes, kernels: 4 });
        operators
    }

    /// Hand-over of the activations from a stage to the next: each GPU sends its share to its peer, and the receiving
    /// group gathers the shares. Stages are placed one after the other; what leaves a node uses the NIC.
    #[must_use]
    pub fn stage_transfer(&self, stage: u32, tokens: u32) -> Vec<Operator> {
        let Parallelism { tp_attention, dp_attention, .. } = self.parallelism;
        let stage_gpus = tp_attention * dp_attention;
        let node = |gpu: u32| gpu / self.gpus_per_node.max(1);
        let same_node = node(stage * stage_gpus) == node((stage + 2) * stage_gpus - 1);
        // Hidden state and residual travel separately in vLLM's intermediate tensors.
        let bytes = 2.0 * self.activation_bytes(tokens);
        let mut operators = vec![Operator::Collective {
            kind: CollectiveKind::SendRecv,
            bytes: bytes / f64::from(tp_attention),
            gpus: if same_node { 2 } else { self.gpus_per_node + 1 },
            graph: false,
        }];
        operators.extend(self.collective(CollectiveKind::AllGather, bytes, tp_attention));
        operators
    }

    /// RMS norm fused with the residual addition: two tensors read, two written.
    fn norm(&self, tokens: u32) -> Operator {
        let bytes = 4.0 * f64::from(tokens) * f64::from(self.model.hidden_size) * ACTIVATION_BYTES;
        Operator::Streaming { kind: StreamingKind::Norm, bytes, kernels: 1 }
    }

    /// A linear layer whose weights have this format; unquantised layers also compute in bf16. The conversion of its input to
    /// a narrower format is part of it: kernel tables time the layer, not the product alone.
    fn gemm(&self, tokens: u32, n: u32, k: u32, weights: NumberFormat) -> Operator {
        Operator::Gemm { tokens, n, k, weights, activations: self.activations(weights) }
    }

    fn activations(&self, weights: NumberFormat) -> NumberFormat {
        if weights == NumberFormat::Bf16 { NumberFormat::Bf16 } else { self.precision.activations }
    }

    /// Gate and up in one product, the activation, down.
    fn gated_mlp(&self, tokens: u32, intermediate: u32) -> Vec<Operator> {
        let hidden = self.model.hidden_size;
        let weights = self.model.dense_ffn_weights(self.precision);
        let bytes = 3.0 * f64::from(tokens) * f64::from(intermediate) * ACTIVATION_BYTES;
        let mut operators = vec![self.gemm(tokens, 2 * intermediate, hidden, weights)];
        operators.push(Operator::Streaming { kind: StreamingKind::Activation, bytes, kernels: 1 });
        operators.push(self.gemm(tokens, hidden, intermediate, weights));
        operators
    }

    /// Linear layers of the attention block, fused as the kernels run them (Q, K and V are one product).
    fn projections(&self, tokens: u32) -> Vec<Operator> {
        let hidden = self.model.hidden_size;
        let tp = self.parallelism.tp_attention;
        let weights = self.model.attention_weights(self.precision);
        let gemm = |n, k| self.gemm(tokens, n, k, weights);
        match self.model.attention {
            Attention::Grouped { heads, kv_heads, head_dim, .. } => {
                let query = heads.div_ceil(tp) * head_dim;
                let kv = kv_heads.div_ceil(tp) * head_dim;
                vec![gemm(query + 2 * kv, hidden), gemm(hidden, query)]
            }
            Attention::Latent { heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim } => {
                let heads = heads.div_ceil(tp);
                let query = heads * (qk_nope_head_dim + qk_rope_head_dim);
                let compressed_kv = kv_lora_rank + qk_rope_head_dim;
                let mut operators = match q_lora_rank {
                    // Both down-projections are replicated over the group and fused.
                    Some(rank) => vec![gemm(rank + compressed_kv, hidden), gemm(query, rank)],
                    None => vec![gemm(query, hidden), gemm(compressed_kv, hidden)],
                };
                // Absorption of W_UK into the queries and of W_UV into the outputs, one product per head; the engine
                // keeps dequantised copies of both.
                for [n, k] in [[kv_lora_rank, qk_nope_head_dim], [v_head_dim, kv_lora_rank]] {
                    operators.push(Operator::BatchedGemm { products: heads, tokens, n, k });
                }
                operators.push(gemm(hidden, heads * v_head_dim));
                operators
            }
            Attention::Factorised { heads, head_dim, q_rank } => {
                let query = heads.div_ceil(tp) * head_dim;
                vec![gemm(q_rank + 2 * head_dim, hidden), gemm(query, q_rank), gemm(hidden, query)]
            }
        }
    }

    /// What each attention rank computes for its own tokens, sharded like attention: a dense FFN, or router and shared
    /// expert.
    fn feed_forward(&self, ffn: Ffn, tokens: u32) -> Vec<Operator> {
        let Parallelism { tp_attention, dp_attention, .. } = self.parallelism;
        match ffn {
            Ffn::Dense { intermediate_size } => {
                let mut operators = self.gated_mlp(tokens, intermediate_size.div_ceil(tp_attention));
                operators.extend(self.all_reduce(tp_attention, tokens));
                operators
            }
            Ffn::MixtureOfExperts { experts, shared_intermediate_size, .. } => {
                let mut operators = vec![self.gemm(tokens, experts, self.model.hidden_size, NumberFormat::Bf16)];
                // A softmax or sigmoid writes scores in fp32, the choice of the largest reads them; the chosen ones are few.
                let bytes = 2.0 * f64::from(tokens) * f64::from(experts) * 4.0;
                operators.push(Operator::Streaming { kind: StreamingKind::Routing, bytes, kernels: 2 });
                if shared_intermediate_size > 0 {
                    operators.extend(self.gated_mlp(tokens, shared_intermediate_size.div_ceil(tp_attention)));
                    // Within one rank group the all-reduce of the routed experts completes the shared one too.
                    if dp_attention > 1 {
                        operators.extend(self.all_reduce(tp_attention, tokens));
                    }
                }
                operators
            }
        }
    }

    /// Collectives around the experts. Without data-parallel attention every rank holds all tokens and one all-reduce
    /// combines. With it, GPUs of the same place in their tensor-parallel groups exchange tokens, and each of these groups
    /// sums what its members' experts gave.
    fn expert_collectives(&self, tokens: u32, experts: &Experts) -> Vec<Operator> {
        let Parallelism { tp_attention, tp_ffn, ep_ffn, dp_attention, .. } = self.parallelism;
        let group = tp_ffn * ep_ffn;
        if dp_attention == 1 {
            return self.all_reduce(group, tokens).into_iter().collect();
        }
        let states = self.activation_bytes(tokens);
        let scores = f64::from(tokens) * f64::from(experts.count) * ACTIVATION_BYTES;
        // Ranks in different nodes exchange over the network.
        let ranks = if group <= self.gpus_per_node { dp_attention } else { group };
        let share = f64::from(dp_attention);
        let mut operators: Vec<Operator> = match self.expert_exchange {
            ExpertExchange::Broadcasts => {
                // NCCL's broadcasts are in no table; an all-gather of the same result moves the same bytes to every rank.
                let broadcast = |bytes: f64| self.collective(CollectiveKind::AllGather, bytes / share, ranks);
                let turns = (0..dp_attention).flat_map(|_| [broadcast(states), broadcast(scores)]);
                turns.chain([self.collective(CollectiveKind::AllReduce, states, ranks)]).flatten().collect()
            }
            ExpertExchange::AllGatherReduceScatter => {
                let gathers = [states, scores].map(|bytes| self.collective(CollectiveKind::AllGather, bytes, ranks));
                let scatter = self.collective(CollectiveKind::ReduceScatter, states, ranks);
                gathers.into_iter().chain([scatter]).flatten().collect()
            }
            ExpertExchange::AllToAll => {
                let copies = f64::from(experts.top_k.min(group));
                let bytes = states / share * copies;
                [(); 2].iter().filter_map(|()| self.collective(CollectiveKind::AllToAll, bytes, group)).collect()
            }
        };
        if self.expert_exchange != ExpertExchange::AllToAll {
            operators.extend(self.all_reduce(tp_attention, tokens.div_ceil(dp_attention)));
        }
        operators
    }

    /// Norms inside attention: of each query and key head (Qwen3), or of the compressed queries and the latent.
    fn inner_norms(&self, tokens: u32, heads: AttentionHeads) -> Option<Operator> {
        let width = match self.model.attention {
            Attention::Grouped { qk_norm: true, head_dim, .. } => (heads.query + heads.kv) * head_dim,
            Attention::Latent { q_lora_rank, kv_lora_rank, .. } => q_lora_rank.unwrap_or(0) + kv_lora_rank,
            Attention::Factorised { q_rank, .. } => q_rank,
            Attention::Grouped { .. } => return None,
        };
        // Read and written.
        let bytes = 2.0 * f64::from(tokens) * f64::from(width) * ACTIVATION_BYTES;
        Some(Operator::Streaming { kind: StreamingKind::Norm, bytes, kernels: 2 })
    }

    fn activation_bytes(&self, tokens: u32) -> f64 {
        f64::from(tokens) * f64::from(self.model.hidden_size) * ACTIVATION_BYTES
    }

    fn all_reduce(&self, gpus: u32, tokens: u32) -> Option<Operator> {
        self.collective(CollectiveKind::AllReduce, self.activation_bytes(tokens), gpus)
    }

    fn collective(&self, kind: CollectiveKind, bytes: f64, gpus: u32) -> Option<Operator> {
        (gpus > 1).then_some(Operator::Collective { kind, bytes, gpus, graph: self.graph })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(ffn: Ffn) -> Model {
        Model {
            name: "toy".into(),
            repository: None,
            hidden_size: 4096,
            vocab_size: 32_000,
            tied_embeddings: false,
            max_position_embeddings: 8192,
            attention: Attention::Grouped {
                heads: 32,
                kv_heads: 8,
                head_dim: 128,
                qkv_bias: false,
                qk_norm: false,
                sinks: false,
            },
            layers: vec![Layer { window: None, ffn }; 2],
            checkpoint: Precision::BF16,
            quantized: crate::catalog::Quantized::Linears,
        }
    }

    fn experts() -> Model {
        model(Ffn::MixtureOfExperts {
            experts: 64,
            top_k: 4,
            expert_intermediate_size: 1024,
            shared_intermediate_size: 0,
            expert_bias: false,
        })
    }

    fn split(tp_attention: u32, dp_attention: u32, tp_ffn: u32, ep_ffn: u32) -> Parallelism {
        Parallelism { pp: 1, tp_attention, dp_attention, tp_ffn, ep_ffn }
    }

    fn sharding(model: &Model, parallelism: Parallelism) -> Sharding<'_> {
        Sharding {
            model,
            parallelism,
            precision: Precision::BF16,
            graph: true,
            gpus_per_node: 8,
            expert_exchange: ExpertExchange::default(),
        }
    }

    /// Kinds of the collectives of one layer, over both groups of operators.
    fn collectives(model: &Model, parallelism: Parallelism) -> Vec<CollectiveKind> {
        let sharding = sharding(model, parallelism);
        let layer = model.layers[0];
        let operators = [sharding.rank_operators(layer, 8), sharding.shared_operators(layer, 8)].concat();
        let kind = |operator: &Operator| match operator {
            Operator::Collective { kind, .. } => Some(*kind),
            _ => None,
        };
        operators.iter().filter_map(kind).collect()
    }

    #[test]
    fn each_physical_collective_is_counted_once() {
        use CollectiveKind::{AllGather, AllReduce, ReduceScatter};
        let dense = model(Ffn::Dense { intermediate_size: 14_336 });
        assert_eq!(collectives(&dense, split(1, 1, 1, 1)), []);
        // One all-reduce after the output projection, one after the down projection.
        assert_eq!(collectives(&dense, split(4, 1, 4, 1)), [AllReduce, AllReduce]);
        // The same with the experts' columns or the experts themselves dealt out.
        assert_eq!(collectives(&experts(), split(4, 1, 4, 1)), [AllReduce, AllReduce]);
        assert_eq!(collectives(&experts(), split(4, 1, 1, 4)), [AllReduce, AllReduce]);
        // Data-parallel attention exchanges tokens around the experts instead.
        let exchange = [AllGather, AllGather, ReduceScatter];
        assert_eq!(collectives(&experts(), split(1, 4, 1, 4)), exchange);
        let [states, scores, back] = exchange;
        assert_eq!(collectives(&experts(), split(2, 2, 1, 4)), [AllReduce, states, scores, back, AllReduce]);
    }

    #[test]
    fn ranks_exchange_tokens_as_their_engine_does() {
        use CollectiveKind::{AllGather, AllReduce, AllToAll};
        let model = experts();
        let exchange = |expert_exchange| {
            let sharding = Sharding { expert_exchange, ..sharding(&model, split(2, 2, 1, 4)) };
            let operators = sharding.shared_operators(model.layers[0], 8);
            let collective = |operator: &Operator| match *operator {
                Operator::Collective { kind, bytes, gpus, .. } => Some((kind, bytes, gpus)),
                _ => None,
            };
            operators.iter().filter_map(collective).collect::<Vec<_>>()
        };
        let (states, scores) = (8.0 * 4096.0 * 2.0, 8.0 * 64.0 * 2.0);
        let turn = [(AllGather, states / 2.0, 2), (AllGather, scores / 2.0, 2)];
        // Half the tokens are of each tensor-parallel group.
        let back = [(AllReduce, states, 2), (AllReduce, states / 2.0, 2)];
        assert_eq!(exchange(ExpertExchange::Broadcasts), [turn, turn, back].concat());
        // Each of the four tokens of a rank goes to the GPUs of its experts, at most four.
        assert_eq!(exchange(ExpertExchange::AllToAll), [(AllToAll, states / 2.0 * 4.0, 4); 2]);
    }

    #[test]
    fn expert_work_is_divided_by_expert_parallelism() {
        let model = experts();
        let local = |parallelism| match sharding(&model, parallelism).shared_operators(model.layers[0], 8)[0] {
            Operator::GroupedGemm { experts, .. } => (experts.local, experts.intermediate_size),
            other => panic!("{other:?} is not the experts' product"),
        };
        assert_eq!(local(split(4, 1, 1, 4)), (16, 1024));
        assert_eq!(local(split(4, 1, 4, 1)), (64, 256));
    }

    #[test]
    fn embedding_norm_head_and_sampling_are_charged() {
        let model = model(Ffn::Dense { intermediate_size: 14_336 });
        let sharding = sharding(&model, split(2, 1, 2, 1));
        let embedding = sharding.embedding_operators(8);
        assert!(matches!(embedding[0], Operator::Streaming { bytes, .. } if bytes >= 8.0 * 4096.0 * 2.0));
        let head = sharding.head_operators(3);
        let count = |wanted: fn(&Operator) -> bool| head.iter().filter(|operator| wanted(operator)).count();
        assert_eq!(count(|operator| matches!(operator, Operator::Gemm { tokens: 3, n: 16_000, k: 4096, .. })), 1);
        // Final norm, and sampling over the gathered logits.
        assert_eq!(count(|operator| matches!(operator, Operator::Streaming { .. })), 2);
        assert_eq!(count(|operator| matches!(operator, Operator::Collective { .. })), 1);
    }

    #[test]
    fn key_value_heads_are_replicated_beyond_their_number() {
        let model = model(Ffn::Dense { intermediate_size: 14_336 });
        let heads = sharding(&model, split(16, 1, 16, 1)).heads(model.layers[0]);
        assert_eq!((heads.query, heads.kv, heads.cached_elements_per_token), (2, 1, 256));
    }
}
