//! Constants of serving engines, one set per version. Read from `profiles/engines/NAME.toml`.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::host::HostOverhead;
use super::scheduling::{ExpectedOutput, ExpertExchange, GraphCapture, SchedulingRules};
use super::toml_file::{self, Checks, Provenance};
use crate::diag::{Diagnostics, Source};

/// What is known of one version of a serving engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineProfile {
    /// Catalogue name, e.g. `vllm-0.15`.
    pub name: String,
    /// Engine, e.g. `vllm`.
    pub engine: String,
    /// Version, e.g. `0.15`.
    pub version: String,
    /// Memory that is neither weights nor KV cache.
    pub memory: EngineMemory,
    /// Time that the host adds to the GPU's.
    pub host: HostOverhead,
    /// Scheduler policy of this engine, by its name.
    pub scheduler: String,
    /// Settings of that policy.
    pub rules: SchedulingRules,
    /// Captured CUDA graphs.
    pub graphs: GraphCapture,
    /// Communication around experts under data-parallel attention.
    pub expert_exchange: ExpertExchange,
}

/// Constants of the memory model of one engine version; see [`crate::memory`] for how each enters.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMemory {
    /// Growth of memory outside the tensor allocator during the profiling run, in bytes, at any model and size.
    pub fixed_bytes: u64,
    /// Tensors as wide as the residual stream that are alive at the peak of a layer.
    pub hidden_tensors: f64,
    /// Bytes per logit at the peak of the sampler.
    pub sampler_bytes_per_logit: f64,
    /// Tokens that the expert kernels process at once, which bounds their workspace.
    pub expert_chunk_tokens: u32,
    /// The engine subtracts CUDA graphs before it sizes the KV cache; otherwise they must fit into the memory that
    /// `gpu_memory_utilization` leaves free.
    pub graphs_in_budget: bool,
    /// CUDA graphs of all captured batch sizes, in bytes per layer.
    pub graph_bytes_per_layer: u64,
    /// CUDA context and loaded kernels, in bytes; resident before the engine starts to count.
    pub context_bytes: u64,
    /// Communication buffers by group size, ascending.
    pub collective: Vec<CollectiveBuffers>,
}

impl EngineProfile {
    /// Reads the profile that `source` holds; the file's stem is its name.
    ///
    /// # Errors
    /// Invalid TOML, unknown or missing keys, or values out of bounds, with their place in the file.
    pub fn parse(source: &Arc<Source>) -> Result<Self, Diagnostics> {
        parse(&Path::new(&source.name).file_stem().unwrap_or_default().to_string_lossy(), source)
    }
}

impl EngineMemory {
    /// Communication buffers of one GPU in a group of `gpus`, in bytes: those of the smallest listed size that is not
    /// below, or of the largest listed.
    #[must_use]
    pub fn collective_bytes(&self, gpus: u32) -> u64 {
        if gpus <= 1 {
            return 0;
        }
        let listed = self.collective.iter().find(|buffers| buffers.gpus >= gpus).or(self.collective.last());
        listed.map_or(0, |buffers| buffers.bytes)
    }
}

/// Communication buffers per GPU at one group size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveBuffers {
    /// GPUs in the group.
    pub gpus: u32,
    /// Bytes on each of them.
    pub bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineFile {
    engine: String,
    version: String,
    memory: MemoryTable,
    host: HostTable,
    scheduling: SchedulingTable,
    graphs: GraphTable,
    experts: ExpertTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpertTable {
    source: Spanned<Provenance>,
    exchange: ExpertExchange,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SchedulingTable {
    source: Spanned<Provenance>,
    policy: String,
    #[serde(default)]
    long_prefill_token_threshold: u32,
    #[serde(default)]
    reserve_full_prompt: bool,
    expected_output: Option<ExpectedOutputTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedOutputTable {
    initial_share: Spanned<f64>,
    least_share: Spanned<f64>,
    decay_steps: Spanned<u32>,
    longest_tokens: Spanned<u32>,
    steps_after_preemption: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphTable {
    source: Spanned<Provenance>,
    sizes: Spanned<Vec<SizeRange>>,
    tokens_per_sequence: u32,
    decode_only: bool,
}

/// The sizes `from`, `from + step`, ... up to `to`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeRange {
    from: u32,
    to: u32,
    step: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    source: Spanned<Provenance>,
    step_us: Spanned<f64>,
    per_sequence_us: Spanned<f64>,
    asynchronous: bool,
    exposed_us: Spanned<f64>,
    eager_layer_launch_us: Spanned<f64>,
    compiled_layer_launch_us: Spanned<f64>,
    request_us: Spanned<f64>,
    serial_request_us: Spanned<f64>,
    serial_prompt_token_us: Spanned<f64>,
    response_us: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    source: Spanned<Provenance>,
    fixed_bytes: u64,
    hidden_tensors: Spanned<f64>,
    sampler_bytes_per_logit: Spanned<f64>,
    expert_chunk_tokens: Spanned<u32>,
    graphs_in_budget: bool,
    graph_bytes_per_layer: u64,
    context_bytes: u64,
    collective: Vec<CollectiveTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CollectiveTable {
    gpus: Spanned<u32>,
    bytes: u64,
}

fn scheduling_rules(table: &SchedulingTable, checks: &mut Checks<'_>) -> SchedulingRules {
    checks.sourced("scheduling", &table.source);
    let expected_output = table.expected_output.as_ref().map_or_else(ExpectedOutput::default, |table| ExpectedOutput {
        initial_share: checks.not_negative("initial_share", &table.initial_share),
        least_share: checks.not_negative("least_share", &table.least_share),
        decay_steps: checks.count("decay_steps", &table.decay_steps),
        longest_tokens: checks.count("longest_tokens", &table.longest_tokens),
        steps_after_preemption: table.steps_after_preemption,
    });
    SchedulingRules {
        long_prefill_token_threshold: table.long_prefill_token_threshold,
        reserve_full_prompt: table.reserve_full_prompt,
        expected_output,
    }
}

fn graph_capture(table: &GraphTable, checks: &mut Checks<'_>) -> GraphCapture {
    checks.sourced("graphs", &table.source);
    let ranges = table.sizes.get_ref().iter().filter(|range| range.step > 0);
    let sizes: Vec<u32> = ranges.flat_map(|range| (range.from..=range.to).step_by(range.step as usize)).collect();
    if sizes.first().is_none_or(|size| *size == 0) || sizes.windows(2).any(|pair| pair[1] <= pair[0]) {
        checks.problem("`sizes` must list sizes above zero that ascend".to_owned(), table.sizes.span());
    }
    GraphCapture { sizes, tokens_per_sequence: table.tokens_per_sequence, decode_only: table.decode_only }
}

/// Reads the engine that `source` describes and calls it `name`.
///
/// # Errors
/// Invalid TOML, unknown or missing keys, or values out of bounds, with their place in the file.
pub(super) fn parse(name: &str, source: &Arc<Source>) -> Result<EngineProfile, Diagnostics> {
    let file: EngineFile = toml_file::parse(source)?;
    let mut checks = Checks::new(source);
    let memory = file.memory;
    let host = file.host;
    checks.sourced("memory", &memory.source);
    checks.sourced("host", &host.source);
    checks.sourced("experts", &file.experts.source);
    for pair in memory.collective.windows(2) {
        if pair[1].gpus.get_ref() <= pair[0].gpus.get_ref() {
            checks.problem("group sizes of `collective` must ascend".to_owned(), pair[1].gpus.span());
        }
    }
    let rules = scheduling_rules(&file.scheduling, &mut checks);
    let graphs = graph_capture(&file.graphs, &mut checks);
    let profile = EngineProfile {
        scheduler: file.scheduling.policy,
        rules,
        graphs,
        expert_exchange: file.experts.exchange,
        name: name.to_owned(),
        engine: file.engine,
        version: file.version,
        memory: EngineMemory {
            fixed_bytes: memory.fixed_bytes,
            hidden_tensors: checks.not_negative("hidden_tensors", &memory.hidden_tensors),
            sampler_bytes_per_logit: checks.not_negative("sampler_bytes_per_logit", &memory.sampler_bytes_per_logit),
            expert_chunk_tokens: checks.count("expert_chunk_tokens", &memory.expert_chunk_tokens),
            graphs_in_budget: memory.graphs_in_budget,
            graph_bytes_per_layer: memory.graph_bytes_per_layer,
            context_bytes: memory.context_bytes,
            collective: memory
                .collective
                .iter()
                .map(|entry| CollectiveBuffers { gpus: checks.count("gpus", &entry.gpus), bytes: entry.bytes })
                .collect(),
        },
        host: HostOverhead {
            step_us: checks.not_negative("step_us", &host.step_us),
            per_sequence_us: checks.not_negative("per_sequence_us", &host.per_sequence_us),
            asynchronous: host.asynchronous,
            exposed_us: checks.not_negative("exposed_us", &host.exposed_us),
            eager_layer_launch_us: checks.not_negative("eager_layer_launch_us", &host.eager_layer_launch_us),
            compiled_layer_launch_us: checks.not_negative("compiled_layer_launch_us", &host.compiled_layer_launch_us),
            request_us: checks.not_negative("request_us", &host.request_us),
            serial_request_us: checks.not_negative("serial_request_us", &host.serial_request_us),
            serial_prompt_token_us: checks.not_negative("serial_prompt_token_us", &host.serial_prompt_token_us),
            response_us: checks.not_negative("response_us", &host.response_us),
        },
    };
    checks.finish(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(collective: Vec<CollectiveBuffers>) -> EngineMemory {
        EngineMemory {
            fixed_bytes: 0,
            hidden_tensors: 2.0,
            sampler_bytes_per_logit: 38.0,
            expert_chunk_tokens: 16_384,
            graphs_in_budget: false,
            graph_bytes_per_layer: 0,
            context_bytes: 0,
            collective,
        }
    }

    #[test]
    fn group_sizes_between_and_beyond_the_listed_ones_are_rounded_up_and_clamped() {
        let engine = memory(vec![CollectiveBuffers { gpus: 2, bytes: 10 }, CollectiveBuffers { gpus: 8, bytes: 30 }]);
        assert_eq!([1, 2, 3, 8, 64].map(|gpus| engine.collective_bytes(gpus)), [0, 10, 30, 30, 30]);
        assert_eq!(memory(Vec::new()).collective_bytes(8), 0);
    }

    #[test]
    fn descending_group_sizes_are_refused_at_their_place() {
        let text = "engine = \"vllm\"\nversion = \"0\"\n[memory]\nsource = \"test\"\nfixed_bytes = 1\nhidden_tensors = 2.0\n\
                    sampler_bytes_per_logit = 1.0\nexpert_chunk_tokens = 1\ngraphs_in_budget = true\n\
                    graph_bytes_per_layer = 1\ncontext_bytes = 1\n\
                    collective = [{ gpus = 4, bytes = 1 }, { gpus = 2, bytes = 1 }]\n\
                    [host]\nsource = \"test\"\nstep_us = 0.0\nper_sequence_us = 0.0\nasynchronous = false\nexposed_us = 0.0\n\
                    eager_layer_launch_us = 0.0\ncompiled_layer_launch_us = 0.0\nrequest_us = 0.0\nserial_request_us = 0.0\nserial_prompt_token_us = 0.0\nresponse_us = 0.0\n\
                    [scheduling]\nsource = \"test\"\npolicy = \"vllm-v1\"\n\
                    [graphs]\nsource = \"test\"\nsizes = [{ from = 1, to = 4, step = 1 }]\ntokens_per_sequence = 2\n\
                    decode_only = false\n[experts]\nsource = \"test\"\nexchange = \"all-to-all\"\n";
        let source = Arc::new(Source { name: "engine.toml".to_owned(), text: text.to_owned() });
        let error = parse("test", &source).unwrap_err();
        assert_eq!(error.0.len(), 1);
        assert_eq!(&text[error.0[0].location.as_ref().unwrap().span.clone()], "2");
    }
}
