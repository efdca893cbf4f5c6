//! How many KV blocks a deployment has, and why it may have none.
//!
//! `blocks = floor((utilization * capacity - weights - activation peak - graphs - collective buffers - fixed) / block)`
//! on the pipeline stage with the fewest. Each term follows what vLLM does at start-up; constants come from the engine's
//! profile. The CUDA context, and graphs where the engine does not subtract them, must fit into what
//! `gpu_memory_utilization` leaves free.
//!
//! Layers with a sliding window are charged like full ones: the uniform allocation of vLLM without its hybrid
//! KV-cache manager. That is exact for models without windows and conservative for gpt-oss and Llama 4.

mod activations;
mod stages;
mod verdict;
mod weights;

#[cfg(test)]
mod tests;

use crate::catalog::{EngineMemory, Gpu, Model, Precision};
use crate::space::{EngineLimits, Parallelism};

pub use stages::stage_layers;
pub use verdict::{Verdict, usable_blocks};
pub use weights::WeightBytes;

/// Memory of one GPU of the pipeline stage with the fewest KV blocks, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryPlan {
    /// Memory of the GPU as the driver reports it.
    pub gpu_bytes: u64,
    /// Share of it that the engine may use.
    pub budget_bytes: u64,
    /// The stage that this plan describes, from 0.
    pub stage: u32,
    /// Decoder layers of that stage.
    pub stage_layers: u32,
    /// Weights.
    pub weights: WeightBytes,
    /// Peak of the profiling run.
    pub activation_bytes: u64,
    /// Captured CUDA graphs; 0 without graphs.
    pub graph_bytes: u64,
    /// Graphs are subtracted from the budget.
    pub graphs_in_budget: bool,
    /// NCCL and custom all-reduce buffers.
    pub collective_bytes: u64,
    /// Other growth of memory during the profiling run.
    pub fixed_bytes: u64,
    /// CUDA context and loaded kernels, outside the budget.
    pub context_bytes: u64,
    /// One KV block over all layers of the stage.
    pub kv_block_bytes: u64,
    /// KV blocks of every engine (attention data-parallel rank), as vLLM reports them at start-up.
    pub kv_blocks: u64,
    /// Blocks that a request of `max_model_len` tokens needs.
    pub blocks_per_longest_request: u64,
}

impl MemoryPlan {
    /// Everything that the engine subtracts from its budget before it sizes the KV cache.
    #[must_use]
    pub fn occupied_bytes(&self) -> u64 {
        let graphs = if self.graphs_in_budget { self.graph_bytes } else { 0 };
        self.weights.total() + self.activation_bytes + graphs + self.collective_bytes + self.fixed_bytes
    }

    /// Memory that the engine does not count but the GPU must hold.
    #[must_use]
    pub fn uncounted_bytes(&self) -> u64 {
        self.context_bytes + if self.graphs_in_budget { 0 } else { self.graph_bytes }
    }

    /// Whether the deployment can start, and if not, why.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        verdict::judge(self)
    }
}

/// The memory of one replica's GPUs.
///
/// Never fails: whether the result is usable is for [`MemoryPlan::verdict`] to say. `parallelism` must not have more
/// stages than the model has layers; surplus stages count as empty.
#[must_use]
pub fn capacity(
    model: &Model,
    gpu: &Gpu,
    parallelism: Parallelism,
    precision: Precision,
    limits: &EngineLimits,
    engine: &EngineMemory,
) -> MemoryPlan {
    let dense_ffn_gpus = dense_ffn_gpus(model, parallelism);
    let weights = weights::WeightModel::new(model, parallelism, precision, dense_ffn_gpus);
    let peaks = activations::peaks(model, parallelism, precision, limits, engine, dense_ffn_gpus);
    let collective_bytes = communicators(parallelism).map(|gpus| engine.collective_bytes(gpus)).sum();
    let elements_per_token = u64::from(model.attention.cached_elements_per_token(parallelism.tp_attention));
    let layer_block_bytes =
        (elements_per_token * u64::from(limits.block_size)) as f64 * precision.kv_cache.bytes_per_element();
    let budget_bytes = (gpu.memory_bytes as f64 * limits.gpu_memory_utilization) as u64;
    let graph_bytes_per_layer = if limits.cuda_graph { engine.graph_bytes_per_layer } else { 0 };

    let plan_stage = |stage: u32| {
        let layers = stage_layers(model.layers.len() as u32, parallelism.pp, stage);
        let layer_count = layers.len() as u32;
        let is_last = layers.end == model.layers.len();
        let inside = if stage == 0 { peaks.layer } else { peaks.later_layer };
        let peak = if is_last { inside.max(peaks.sampler) } else { inside };
        let mut plan = MemoryPlan {
            gpu_bytes: gpu.memory_bytes,
            budget_bytes,
            stage,
            stage_layers: layer_count,
            weights: weights.stage(layers),
            activation_bytes: peak as u64,
            graph_bytes: graph_bytes_per_layer * u64::from(layer_count),
            graphs_in_budget: engine.graphs_in_budget,
            collective_bytes,
            fixed_bytes: engine.fixed_bytes,
            context_bytes: engine.context_bytes,
            kv_block_bytes: (layer_block_bytes * f64::from(layer_count)) as u64,
            kv_blocks: 0,
            blocks_per_longest_request: u64::from(limits.max_model_len.div_ceil(limits.block_size)),
        };
        let free = plan.budget_bytes.saturating_sub(plan.occupied_bytes());
        plan.kv_blocks = free.checked_div(plan.kv_block_bytes).unwrap_or(0);
        plan
    };
    let mut worst = plan_stage(0);
    for stage in 1..parallelism.pp {
        let plan = plan_stage(stage);
        // Among stages without any block the fuller one explains more.
        let key = |plan: &MemoryPlan| (plan.kv_blocks, std::cmp::Reverse(plan.occupied_bytes()));
        if key(&plan) < key(&worst) {
            worst = plan;
        }
    }
    worst
}

/// GPUs that share a dense FFN or a shared expert. In a model with experts only the routed experts follow the FFN
/// domain; everything else stays with the attention's tensor-parallel group, as in vLLM.
fn dense_ffn_gpus(model: &Model, parallelism: Parallelism) -> u32 {
    if model.has_experts() { parallelism.tp_attention } else { parallelism.tp_ffn }
}

/// Sizes of the communicators that one GPU belongs to, each with buffers of its own: tensor parallelism, pipeline
/// parallelism and, where attention is data-parallel, the FFN domain.
fn communicators(parallelism: Parallelism) -> impl Iterator<Item = u32> {
    let Parallelism { pp, tp_attention, dp_attention, .. } = parallelism;
    let ffn_domain = if dp_attention > 1 { tp_attention * dp_attention } else { 1 };
    [tp_attention, pp, ffn_domain].into_iter()
}
