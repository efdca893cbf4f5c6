//! From a run to everything that the simulator needs, except step costs.

use crate::catalog::{
    Catalog, DEFAULT_ENGINE, EngineProfile, Gpu, GraphCapture, Model, NumberFormat, Precision, Quantized,
};
use crate::diag::Diagnostics;
use crate::memory;
use crate::scheduler::SCHEDULERS;
use crate::space::{EngineLimits, Excluded, Parallelism, check_limits, check_split};

use super::case::{EngineVersion, Formats, GraphSetting, Limits, Run, Split};

/// Tokens in one KV block: vLLM's default, which no run of the known sources changes.
const BLOCK_TOKENS: u32 = 16;

/// A run in the objects of the catalogue.
#[derive(Clone, Debug)]
pub(super) struct Deployed {
    pub(super) model: Model,
    pub(super) gpu: Gpu,
    pub(super) profile: EngineProfile,
    /// Engine and version by which kernels are looked up, e.g. `vllm-0.15`.
    pub(super) kernels: String,
    pub(super) parallelism: Parallelism,
    pub(super) precision: Precision,
    pub(super) limits: EngineLimits,
    /// Blocks of one engine, as the engine would report them.
    pub(super) kv_blocks: u64,
    graphs: GraphSetting,
}

/// What the step costs of a deployment depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CostKey {
    pub(super) kernels: (String, String),
    profile: String,
    asynchronous: bool,
    model: String,
    quantized: bool,
    parallelism: Parallelism,
    precision: [&'static str; 3],
    graph: bool,
    graphs: GraphSetting,
}

impl Deployed {
    /// Builds the deployment of a run whose longest request has `longest_request` tokens; otherwise says why it cannot
    /// be built.
    pub(super) fn new(
        run: &Run,
        longest_request: u32,
        catalog: &Catalog,
        engines: &[EngineProfile],
    ) -> Result<Self, String> {
        let first = |problems: Diagnostics| problems.0.first().map_or_else(String::new, |one| one.message.clone());
        let mut model = catalog.model(&run.model).map_err(first)?;
        let gpu = catalog.gpu(&run.gpu).map_err(first)?;
        let profile = closest_profile(engines, &run.engine).ok_or("the catalog has no engine profile")?;
        let mut profile = profile.clone();
        profile.host.asynchronous = run.limits.asynchronous.unwrap_or(profile.host.asynchronous);
        let graphs = run.limits.graphs;
        capture(&mut profile.graphs, graphs);
        let precision = precision(&mut model, &gpu, run.formats);
        let parallelism = startable(&model, &gpu, parallelism(&model, run.split), precision)?;
        let limits = engine_limits(&profile, &run.limits, longest_request);
        if limits.max_num_seqs == 0 || limits.max_num_batched_tokens == 0 {
            return Err("the engine's limits leave no room for a request".to_owned());
        }
        check_limits(&limits, longest_request).map_err(|excluded| excluded.to_string())?;
        let plan = memory::capacity(&model, &gpu, parallelism, precision, &limits, &profile.memory);
        let verdict = plan.verdict();
        if !verdict.fits() {
            return Err(format!("the memory model says that it does not start: {verdict}"));
        }
        let kernels = match run.engine.number() {
            Some((major, minor)) => format!("{}-{major}.{minor}", run.engine.engine),
            None => profile.name.clone(),
        };
        Ok(Self { model, gpu, profile, kernels, parallelism, precision, limits, kv_blocks: plan.kv_blocks, graphs })
    }

    pub(super) fn cost_key(&self) -> CostKey {
        let Precision { weights, activations, kv_cache } = self.precision;
        CostKey {
            kernels: (self.gpu.name.clone(), self.kernels.clone()),
            profile: self.profile.name.clone(),
            asynchronous: self.profile.host.asynchronous,
            model: self.model.name.clone(),
            quantized: self.model.quantized == Quantized::Linears,
            parallelism: self.parallelism,
            precision: [weights.name(), activations.name(), kv_cache.name()],
            graph: self.limits.cuda_graph,
            graphs: self.graphs,
        }
    }

    /// Replicas, and attention ranks of each that run in lock-step: those of a dense model are replicas of their own.
    pub(super) fn replicas_and_ranks(&self) -> (u32, u32) {
        let ranks = self.parallelism.dp_attention;
        if self.model.has_experts() { (1, ranks) } else { (ranks, 1) }
    }
}

/// The profile of this engine with the closest version, the older one of two that are equally close, the newest if
/// the version is unknown; the default profile for an engine that has none.
pub(super) fn closest_profile<'a>(engines: &'a [EngineProfile], wanted: &EngineVersion) -> Option<&'a EngineProfile> {
    let number = |profile: &EngineProfile| {
        let (major, minor) = EngineVersion::new(&profile.engine, Some(&profile.version)).number().unwrap_or_default();
        major * 1000 + minor
    };
    let own = engines.iter().filter(|profile| profile.engine == wanted.engine);
    let closest = match wanted.number() {
        Some((major, minor)) => own.min_by_key(|profile| {
            let have = number(profile);
            (have.abs_diff(major * 1000 + minor), have)
        }),
        None => own.max_by_key(|profile| number(profile)),
    };
    closest.or_else(|| engines.iter().find(|profile| profile.name == DEFAULT_ENGINE))
}

/// Formats of the run; a GPU without the arithmetic of 4-bit floats computes in bf16.
fn precision(model: &mut Model, gpu: &Gpu, formats: Formats) -> Precision {
    let mut precision = model.checkpoint;
    if let Some(weights) = formats.weights {
        precision.weights = weights;
        precision.activations = match weights {
            NumberFormat::Int4 | NumberFormat::Mxfp4 => NumberFormat::Bf16,
            other => other,
        };
        // Four-bit checkpoints of the mixtures among the known runs quantise nothing but experts (their model cards).
        if matches!(weights, NumberFormat::Int4 | NumberFormat::Nvfp4) && model.has_experts() {
            model.quantized = Quantized::RoutedExperts;
        }
    }
    precision.activations = formats.activations.unwrap_or(precision.activations);
    if gpu.flops(precision.activations).is_none() {
        precision.activations = NumberFormat::Bf16;
    }
    precision.kv_cache = formats.kv_cache.unwrap_or(precision.kv_cache);
    precision
}

/// Changes the default graphs to those of the run. Sizes beyond the default ones continue its last step, and a size that
/// is asked for is not bounded by the sequences (vLLM, `VllmConfig._set_cudagraph_sizes`).
fn capture(graphs: &mut GraphCapture, setting: GraphSetting) {
    graphs.decode_only |= setting.decode_only;
    let (Some(largest), [.., before, last]) = (setting.largest_tokens, graphs.sizes.as_slice()) else { return };
    let (next, step) = (2 * last - before, last - before);
    graphs.sizes.extend((next..=largest).step_by(step as usize));
    let captured = graphs.sizes.partition_point(|size| *size <= largest);
    graphs.sizes.truncate(captured.max(1));
    graphs.tokens_per_sequence = 0;
}

fn parallelism(model: &Model, split: Split) -> Parallelism {
    let Split { pipeline, tensor, data, expert_tp, expert_parallel } = split;
    let (tp_ffn, ep_ffn) = if model.has_experts() { (expert_tp, expert_parallel) } else { (tensor, data) };
    Parallelism { pp: pipeline, tp_attention: tensor, dp_attention: data, tp_ffn, ep_ffn }
}

/// The split, if the engine would accept it. Block-scaled experts that cannot be cut between blocks must have been
/// placed whole: sources that give tensor parallelism for them leave out that experts were dealt out.
fn startable(model: &Model, gpu: &Gpu, split: Parallelism, precision: Precision) -> Result<Parallelism, String> {
    let excluded = match check_split(model, gpu, split, precision) {
        Ok(()) => return Ok(split),
        Err(excluded) => excluded,
    };
    let whole = Parallelism { tp_ffn: 1, ep_ffn: split.tp_ffn * split.ep_ffn, ..split };
    let helps = model.has_experts()
        && matches!(excluded, Excluded::FfnWidth { .. })
        && check_split(model, gpu, whole, precision).is_ok();
    if helps { Ok(whole) } else { Err(excluded.to_string()) }
}

fn engine_limits(profile: &EngineProfile, limits: &Limits, longest_request: u32) -> EngineLimits {
    let policy = SCHEDULERS.iter().find(|policy| policy.name() == profile.scheduler).unwrap_or(&SCHEDULERS[0]);
    EngineLimits {
        scheduler: policy.name(),
        max_num_seqs: limits.max_num_seqs,
        max_num_batched_tokens: limits.max_num_batched_tokens,
        max_model_len: limits.max_model_len.max(longest_request),
        block_size: BLOCK_TOKENS,
        gpu_memory_utilization: limits.gpu_memory_utilization,
        cuda_graph: limits.cuda_graph,
        chunked_prefill: limits.chunked_prefill,
        prefix_caching: limits.prefix_caching,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn engines() -> Vec<EngineProfile> {
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let load = |version: &str| {
            let mut profile = catalog.engine(DEFAULT_ENGINE).unwrap();
            profile.name = format!("vllm-{version}");
            version.clone_into(&mut profile.version);
            profile
        };
        ["0.10", "0.15", "0.19"].map(load).to_vec()
    }

    #[test]
    fn the_closest_version_of_the_engine_is_taken() {
        let engines = engines();
        let name = |engine: &str, version: Option<&str>| {
            closest_profile(&engines, &EngineVersion::new(engine, version)).unwrap().name.clone()
        };
        assert_eq!(name("vllm", Some("0.12.0")), "vllm-0.10");
        assert_eq!(name("vllm", Some("0.17.0")), "vllm-0.15", "the older one of two equally close");
        assert_eq!(name("vllm", Some("1.2")), "vllm-0.19");
        assert_eq!(name("vllm", Some("nightly-abc")), "vllm-0.19");
        assert_eq!(name("another", Some("1.0")), DEFAULT_ENGINE);
    }

    #[test]
    fn graphs_of_the_run_replace_the_default_ones() {
        let captured = |setting| {
            let mut graphs = GraphCapture { sizes: vec![1, 2, 8, 16, 24], tokens_per_sequence: 2, decode_only: false };
            capture(&mut graphs, setting);
            (graphs.sizes, graphs.tokens_per_sequence, graphs.decode_only)
        };
        let largest = |tokens| GraphSetting { largest_tokens: Some(tokens), decode_only: true };
        assert_eq!(captured(GraphSetting::default()), (vec![1, 2, 8, 16, 24], 2, false));
        assert_eq!(captured(largest(47)), (vec![1, 2, 8, 16, 24, 32, 40], 0, true));
        assert_eq!(captured(largest(9)), (vec![1, 2, 8], 0, true));
    }

    #[test]
    fn block_scaled_experts_that_cannot_be_cut_were_placed_whole() {
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let gpu = catalog.gpu("h200").unwrap();
        let start = |model: &str, gpus: u32| {
            let model = catalog.model(model).unwrap();
            startable(&model, &gpu, parallelism(&model, Split::tensor(gpus)), model.checkpoint)
        };
        // 1,536 columns are twelve blocks of 128.
        assert_eq!(start("minimax-m2.5", 4).unwrap().ep_ffn, 1);
        assert_eq!(start("minimax-m2.5", 8).unwrap().ep_ffn, 8);
        assert!(start("llama-3.1-8b", 64).unwrap_err().contains("heads"));
    }

    #[test]
    fn four_bit_floats_fall_back_to_bf16_arithmetic() {
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let formats =
            Formats { weights: Some(NumberFormat::Nvfp4), kv_cache: Some(NumberFormat::Fp8), ..Formats::default() };
        let on = |gpu: &str| {
            let mut model = catalog.model("qwen3-32b").unwrap();
            precision(&mut model, &catalog.gpu(gpu).unwrap(), formats)
        };
        assert_eq!(on("b200").activations, NumberFormat::Nvfp4);
        assert_eq!(on("h100-sxm").activations, NumberFormat::Bf16);
        assert_eq!(on("h100-sxm").kv_cache, NumberFormat::Fp8);
    }
}
