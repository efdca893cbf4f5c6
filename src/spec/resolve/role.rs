//! A role: its GPUs, its parallelism and its engine settings.

use std::ops::Range;
use std::sync::Arc;

use super::{Context, required};
use crate::catalog::{DEFAULT_ENGINE, Ffn, Gpu, Model, NumberFormat, Precision};
use crate::spec::axis::Axis;
use crate::spec::located::Located;
use crate::spec::problems::Problems;
use crate::spec::raw::{EngineKeys, RawKvCache, RawPrecision, RawRole};

/// Router of a sweep that names none.
pub(super) const DEFAULT_ROUTER: &str = "round_robin";

// Engine defaults as in vLLM 0.15 (vllm/config and engine/arg_utils.py): 16-token blocks, 0.9 of the memory; 8192
// tokens for an API server on GPUs of 70 GiB or more; 256 sequences for all other GPUs (1024 there, which no sweep
// should get unasked).
const DEFAULT_BLOCK_SIZE: u32 = 16;
const DEFAULT_GPU_MEMORY_UTILIZATION: f64 = 0.9;
const DEFAULT_MAX_NUM_BATCHED_TOKENS: u32 = 8192;
const DEFAULT_MAX_NUM_SEQS: u32 = 256;

/// The axes of one role.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleAxes {
    /// GPU types.
    pub gpus: Vec<Arc<Gpu>>,
    /// Formats of weights and activations.
    pub precisions: Vec<WeightFormats>,
    /// KV cache formats.
    pub kv_caches: Vec<NumberFormat>,
    /// Pipeline stages.
    pub pp: Vec<u32>,
    /// Tensor parallelism of attention.
    pub tp: Vec<u32>,
    /// Data parallelism of attention.
    pub dp: Vec<u32>,
    /// Expert parallelism; `[1]` on dense models.
    pub ep: Vec<u32>,
    /// Replicas; `None` takes as many as the budget holds.
    pub replicas: Option<Vec<u32>>,
    /// Engine settings.
    pub engine: EngineAxes,
}

/// Formats of weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightFormats {
    /// Weights of the linear layers and experts.
    pub weights: NumberFormat,
    /// Inputs of the linear layers and experts.
    pub activations: NumberFormat,
}

impl WeightFormats {
    /// These formats with a cache format.
    #[must_use]
    pub fn with_kv_cache(self, kv_cache: NumberFormat) -> Precision {
        Precision { weights: self.weights, activations: self.activations, kv_cache }
    }
}

/// The axes of one role's engine; the names are those of the sweep file.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is documented at the key it comes from, in `RawEngine`")]
pub struct EngineAxes {
    pub engine: Vec<Arc<str>>,
    /// Empty where none is named: each engine has its own, which `own_schedulers` lists in the order of `engine`.
    pub scheduler: Vec<&'static str>,
    pub own_schedulers: Vec<&'static str>,
    pub max_num_seqs: Vec<u32>,
    pub max_num_batched_tokens: Vec<u32>,
    pub max_model_len: Vec<u32>,
    pub block_size: Vec<u32>,
    pub gpu_memory_utilization: Vec<f64>,
    pub cuda_graph: Vec<bool>,
    pub chunked_prefill: Vec<bool>,
    pub prefix_caching: Vec<bool>,
}

pub(super) fn resolve(
    raw: &RawRole,
    place: &Range<usize>,
    defaults: EngineKeys<'_>,
    model: Option<&Model>,
    context: &Context<'_>,
    problems: &mut Problems,
) -> Option<RoleAxes> {
    let keys = raw.engine_keys().or(defaults);
    let gpus =
        required(raw.gpu.as_ref(), "gpu", "name a GPU type, e.g. `gpu = \"h100-sxm\"`", place, problems).map(|axis| {
            problems.map("gpu", axis, |problems, written| {
                let gpu = context.lookup.gpu(&written.value);
                gpu.map_err(|error| problems.adopt(&written.span, error)).ok()
            })
        });
    let mut sizes = |key: &str, axis: &Option<Axis<u32>>| at_least_one(key, axis.as_ref(), 1, problems);
    let (pp, tp, dp) = (sizes("pp", &raw.pp), sizes("tp", &raw.tp), sizes("dp", &raw.dp));
    let ep = sizes("ep", &raw.ep);
    let replicas = raw.replicas.as_ref().map(|axis| at_least_one("replicas", Some(axis), 1, problems));
    if let (Some(axis), Some(model)) = (&raw.ep, model) {
        refuse_expert_parallelism_of_dense(axis, model, problems);
    }
    // Without a model the remaining keys are still checked, against a stand-in that accepts anything.
    let (checkpoint, longest) =
        model.map_or((Precision::BF16, u32::MAX), |model| (model.checkpoint, model.max_position_embeddings));
    let precisions = resolve_precisions(keys.precision, checkpoint, problems);
    let kv_caches = resolve_kv_caches(keys.kv_cache, checkpoint, problems);
    let engine = resolve_engine(keys, longest, context, problems);
    Some(RoleAxes { gpus: gpus?, precisions, kv_caches, pp, tp, dp, ep, replicas, engine })
}

fn refuse_expert_parallelism_of_dense(axis: &Axis<u32>, model: &Model, problems: &mut Problems) {
    let has_experts = model.layers.iter().any(|layer| matches!(layer.ffn, Ffn::MixtureOfExperts { .. }));
    if !has_experts && axis.values.iter().any(|ep| ep.value != 1) {
        problems.add_with_help(
            &axis.span,
            format!("`{}` has no experts to place with `ep`", model.name),
            "remove `ep`; `dp` replicates a dense FFN",
        );
    }
}

fn at_least_one(key: &str, axis: Option<&Axis<u32>>, default: u32, problems: &mut Problems) -> Vec<u32> {
    axis.map_or_else(
        || vec![default],
        |axis| problems.values(key, axis, |value| if *value > 0 { Ok(()) } else { Err("must be at least 1".into()) }),
    )
}

fn resolve_precisions(
    axis: Option<&Axis<RawPrecision>>,
    checkpoint: Precision,
    problems: &mut Problems,
) -> Vec<WeightFormats> {
    let meaning = |written: RawPrecision| {
        let (weights, activations) = match written {
            RawPrecision::Checkpoint => (checkpoint.weights, checkpoint.activations),
            RawPrecision::Bf16 => (NumberFormat::Bf16, NumberFormat::Bf16),
            RawPrecision::Fp8 => (NumberFormat::Fp8, NumberFormat::Fp8),
            RawPrecision::Fp8Block => (NumberFormat::Fp8Block, NumberFormat::Fp8Block),
            RawPrecision::Int8 => (NumberFormat::Int8, NumberFormat::Int8),
            RawPrecision::Int4 => (NumberFormat::Int4, NumberFormat::Bf16),
            RawPrecision::Nvfp4 => (NumberFormat::Nvfp4, NumberFormat::Nvfp4),
            RawPrecision::Mxfp4 => (NumberFormat::Mxfp4, NumberFormat::Bf16),
        };
        WeightFormats { weights, activations }
    };
    axis.map_or_else(
        || vec![meaning(RawPrecision::Checkpoint)],
        |axis| problems.map("precision", axis, |_, written| Some(meaning(written.value))),
    )
}

fn resolve_kv_caches(
    axis: Option<&Axis<RawKvCache>>,
    checkpoint: Precision,
    problems: &mut Problems,
) -> Vec<NumberFormat> {
    let meaning = |written: RawKvCache| match written {
        RawKvCache::Auto => checkpoint.kv_cache,
        RawKvCache::Bf16 => NumberFormat::Bf16,
        RawKvCache::Fp8 => NumberFormat::Fp8,
    };
    axis.map_or_else(
        || vec![meaning(RawKvCache::Auto)],
        |axis| problems.map("kv_cache", axis, |_, written| Some(meaning(written.value))),
    )
}

fn resolve_engine(keys: EngineKeys<'_>, longest: u32, context: &Context<'_>, problems: &mut Problems) -> EngineAxes {
    let engines = context.lookup.engines();
    let engine_names: Vec<&str> = engines.iter().map(String::as_str).collect();
    let engine = names("engine", keys.engine, DEFAULT_ENGINE, &engine_names, problems);
    let flags = |axis: Option<&Axis<bool>>, key, default, problems: &mut Problems| {
        axis.map_or_else(|| vec![default], |axis| problems.values(key, axis, |_| Ok(())))
    };
    let own_schedulers = engine.iter().filter_map(|name| {
        let scheduler = context.lookup.scheduler_of(name);
        let place = keys.engine.map_or(0..0, |axis| axis.span.clone());
        scheduler.map_err(|error| problems.adopt(&place, error)).ok()
    });
    EngineAxes {
        own_schedulers: own_schedulers.collect(),
        engine: engine.into_iter().map(Arc::from).collect(),
        scheduler: keys
            .scheduler
            .map_or_else(Vec::new, |axis| names("scheduler", Some(axis), "", &context.lookup.schedulers(), problems)),
        max_num_seqs: at_least_one("max_num_seqs", keys.max_num_seqs, DEFAULT_MAX_NUM_SEQS, problems),
        max_num_batched_tokens: at_least_one(
            "max_num_batched_tokens",
            keys.max_num_batched_tokens,
            DEFAULT_MAX_NUM_BATCHED_TOKENS,
            problems,
        ),
        max_model_len: resolve_max_model_len(keys.max_model_len, longest, problems),
        block_size: resolve_block_size(keys.block_size, problems),
        gpu_memory_utilization: resolve_utilization(keys.gpu_memory_utilization, problems),
        cuda_graph: flags(keys.cuda_graph, "cuda_graph", true, problems),
        chunked_prefill: flags(keys.chunked_prefill, "chunked_prefill", true, problems),
        prefix_caching: flags(keys.prefix_caching, "prefix_caching", false, problems),
    }
}

fn resolve_max_model_len(axis: Option<&Axis<u32>>, longest: u32, problems: &mut Problems) -> Vec<u32> {
    let Some(axis) = axis else { return vec![longest] };
    problems.values("max_model_len", axis, |length| match *length {
        0 | 1 => Err("must be at least 2: one prompt token and one output token".into()),
        length if length > longest => Err(format!("{length} is more than the {longest} tokens the model supports")),
        _ => Ok(()),
    })
}

fn resolve_block_size(axis: Option<&Axis<u32>>, problems: &mut Problems) -> Vec<u32> {
    let Some(axis) = axis else { return vec![DEFAULT_BLOCK_SIZE] };
    problems.values("block_size", axis, |size| {
        if size.is_power_of_two() && *size <= 256 { Ok(()) } else { Err("must be a power of two up to 256".into()) }
    })
}

fn resolve_utilization(axis: Option<&Axis<f64>>, problems: &mut Problems) -> Vec<f64> {
    let Some(axis) = axis else { return vec![DEFAULT_GPU_MEMORY_UTILIZATION] };
    problems.values("gpu_memory_utilization", axis, |share| {
        if *share > 0.0 && *share <= 1.0 { Ok(()) } else { Err("must be above 0 and at most 1".into()) }
    })
}

/// The registered names that an axis, or its default, stands for.
pub(super) fn names<'n>(
    kind: &str,
    axis: Option<&Axis<String>>,
    default: &str,
    valid: &[&'n str],
    problems: &mut Problems,
) -> Vec<&'n str> {
    let find = |name: &str| valid.iter().copied().find(|candidate| *candidate == name);
    let Some(axis) = axis else {
        if let Some(name) = find(default) {
            return vec![name];
        }
        problems.missing(None, &format!("the default {kind} `{default}` is not installed"), &format!("name a {kind}"));
        return Vec::new();
    };
    problems.map(kind, axis, |problems, Located { value, span }| {
        let found = find(value);
        if found.is_none() {
            problems.unknown(span, kind, value, valid);
        }
        found
    })
}
