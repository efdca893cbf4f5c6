//! What the user wrote: the keys of a sweep file with their places, nothing checked beyond types and names.
//!
//! Every key is optional here, so that one pass over the meaning can report all that is missing. The comments become
//! the descriptions in `schemas/sweep.schema.json`.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::axis::{Axis, AxisValue};
use super::located::Located;
use super::sla::RawSla;

/// A servescape sweep: the deployments to compare, the traffic they face and the promises they must keep.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RawSweep {
    /// Name, seed, model and GPU budget.
    pub sweep: Option<Located<RawHeader>>,
    /// The traffic.
    pub workload: Option<Located<RawWorkload>>,
    /// Latency bounds a deployment must keep, e.g. `ttft_p95_ms = 500`.
    pub sla: Option<RawSla>,
    /// Engine settings of every role; a role may override each of them.
    pub engine: Option<RawEngine>,
    /// Deployments whose replicas do both prefill and decode.
    pub colocation: Option<Vec<Located<RawColocation>>>,
    /// Prefill-decode disaggregation: reserved, not supported yet.
    #[schemars(skip)]
    pub pdd: Option<Located<Reserved>>,
    /// Attention-FFN disaggregation: reserved, not supported yet.
    #[schemars(skip)]
    pub afd: Option<Located<Reserved>>,
    /// The two metrics of the Pareto front.
    pub pareto: Option<RawPareto>,
}

/// A section whose name is taken but whose content is not read yet.
#[derive(Debug)]
pub struct Reserved;

impl<'de> Deserialize<'de> for Reserved {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Name, seed, model and GPU budget.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RawHeader {
    /// Name of the sweep; names the results folder. Default: the file's name.
    pub name: Option<Located<String>>,
    /// Seed of every random stream. Default: 0.
    pub seed: Option<Located<u64>>,
    /// A model of the catalogue, or the path of a Hugging Face config.json relative to this file.
    pub model: Option<Located<String>>,
    /// GPU budget: the sum over all roles of replicas times GPUs per replica.
    pub gpus: Option<Axis<u32>>,
    /// A deployment may leave GPUs of the budget unused. Default: false.
    pub at_most: Option<Located<bool>>,
}

/// The traffic: how many requests, how long, and when they arrive.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RawWorkload {
    /// Requests of one simulation. May be left out for a trace: all of its rows.
    pub requests: Option<Located<u32>>,
    /// The first so many requests load the system but are not measured. Default: 0.
    pub warmup: Option<Located<u32>>,
    /// Prompt lengths, in tokens.
    pub input: Option<Located<RawLengths>>,
    /// Output lengths, in tokens.
    pub output: Option<Located<RawLengths>>,
    /// System prompts that sessions begin with. Default: none.
    pub system_prompt: Option<Located<RawSystemPrompt>>,
    /// Multi-turn sessions. Default: every request is on its own.
    pub sessions: Option<Located<RawSessions>>,
    /// When requests arrive. Its rate, clients or scale is the load axis.
    pub arrival: Option<Located<RawArrival>>,
}

/// System prompts: the common starts of prompts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as `{ count = 8, tokens = 500 }`")]
pub struct RawSystemPrompt {
    /// How many there are; each session begins with one of them, all equally likely.
    pub count: u32,
    /// Length of each, in tokens; comes before `input`.
    pub tokens: u32,
}

/// Multi-turn sessions: the prompt of a turn is the prompt and the output of the turn before, and a new `input`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as `{ turns = 5, think_s = 2.0 }`")]
pub struct RawSessions {
    /// Turns of each session. `requests` counts turns, and so do rates; a client of a closed loop is in one session at a
    /// time.
    pub turns: u32,
    /// From the end of a turn to the next, in seconds. Default: 0.
    pub think_s: Option<f64>,
}

/// A law of lengths, in tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields, expecting = "a law of lengths such as `{ fixed = 512 }`")]
pub enum RawLengths {
    /// Every request has this length.
    Fixed(u32),
    /// Every length between two bounds, both included, is equally likely.
    Uniform {
        /// Shortest length.
        min: u32,
        /// Longest length.
        max: u32,
    },
    /// Lognormal with the given mean and 95th percentile; lengths above `max` become `max`.
    Lognormal {
        /// Mean before the cut at `max`.
        mean: f64,
        /// 95th percentile before the cut at `max`; above the mean and at most 3.86 times it.
        p95: f64,
        /// Longest length.
        max: u32,
    },
    /// Drawn from a list, or from a column of a CSV file.
    Empirical {
        /// The lengths.
        values: Option<Vec<u32>>,
        /// Their relative frequencies. Default: all equal.
        weights: Option<Vec<f64>>,
        /// A CSV file with a header, relative to this file.
        file: Option<String>,
        /// The column of the file.
        column: Option<String>,
    },
}

/// An arrival law.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "an arrival law such as `{ poisson = { rate = 8 } }`"
)]
pub enum RawArrival {
    /// Independent arrivals: exponential gaps.
    Poisson {
        /// Requests per second.
        rate: Axis<f64>,
    },
    /// Gamma-distributed gaps.
    Gamma {
        /// Requests per second.
        rate: Axis<f64>,
        /// Shape of the law: 1 is Poisson, below 1 is burstier. The coefficient of variation of the gaps is
        /// 1 / sqrt(burstiness).
        burstiness: f64,
    },
    /// Equal gaps.
    Constant {
        /// Requests per second.
        rate: Axis<f64>,
    },
    /// A fixed number of clients, each sending its next request when its last one completes.
    Closed {
        /// Concurrent clients.
        clients: Axis<u32>,
    },
    /// All requests at time zero.
    Batch {},
    /// Arrivals and lengths of a recorded trace.
    Trace {
        /// CSV or JSONL file, relative to this file.
        file: Located<String>,
        /// Replays the trace so many times faster. Default: 1.
        scale: Option<Axis<f64>>,
    },
}

/// Weight and activation formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawPrecision {
    /// As the checkpoint was published.
    Checkpoint,
    /// 16-bit weights and arithmetic.
    Bf16,
    /// 8-bit float weights and arithmetic, one scale per tensor or channel.
    Fp8,
    /// 8-bit float weights and arithmetic, one scale per 128 x 128 block.
    Fp8Block,
    /// 8-bit integer weights and arithmetic.
    Int8,
    /// 4-bit integer weights, bf16 arithmetic.
    Int4,
    /// 4-bit float weights and arithmetic (NVFP4).
    Nvfp4,
    /// 4-bit float weights (MXFP4), bf16 arithmetic.
    Mxfp4,
}

impl AxisValue for RawPrecision {
    const NUMERIC: bool = false;
    const WORDS: &'static str = "the name of a precision";
}

/// Format of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawKvCache {
    /// As the checkpoint says, bf16 if it says nothing.
    Auto,
    /// Two bytes per value.
    Bf16,
    /// One byte per value.
    Fp8,
}

impl AxisValue for RawKvCache {
    const NUMERIC: bool = false;
    const WORDS: &'static str = "the name of a KV cache format";
}

/// Declares a table that has, besides its own keys, every engine setting. Spelt as a macro because `serde(flatten)`
/// would lose the check for unknown keys and the spans.
macro_rules! with_engine_keys {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$own_meta:meta])* pub $own:ident: $own_type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, expecting = "a table")]
        pub struct $name {
            $($(#[$own_meta])* pub $own: $own_type,)*
            /// Weight and activation formats. Default: `checkpoint`.
            pub precision: Option<Axis<RawPrecision>>,
            /// KV cache format. Default: `auto`.
            pub kv_cache: Option<Axis<RawKvCache>>,
            /// Engine version whose overheads and memory constants apply: a profile under profiles/engines.
            pub engine: Option<Axis<String>>,
            /// Scheduler policy. Default: that of the engine.
            pub scheduler: Option<Axis<String>>,
            /// Most sequences that one engine runs at the same time. Default: 256.
            pub max_num_seqs: Option<Axis<u32>>,
            /// Most tokens in one iteration of one engine. Default: 8192.
            pub max_num_batched_tokens: Option<Axis<u32>>,
            /// Longest request, prompt and output together, in tokens. Default: what the model supports.
            pub max_model_len: Option<Axis<u32>>,
            /// Tokens in one KV block. Default: 16.
            pub block_size: Option<Axis<u32>>,
            /// Share of GPU memory that the engine may use. Default: 0.9.
            pub gpu_memory_utilization: Option<Axis<f64>>,
            /// Decode batches replay captured CUDA graphs. Default: true.
            pub cuda_graph: Option<Axis<bool>>,
            /// A long prompt may be split over iterations. Default: true.
            pub chunked_prefill: Option<Axis<bool>>,
            /// KV blocks of earlier requests are found again by requests that begin with the same tokens. Default: false.
            pub prefix_caching: Option<Axis<bool>>,
        }

        impl $name {
            /// The engine settings of this table.
            #[must_use]
            pub fn engine_keys(&self) -> EngineKeys<'_> {
                EngineKeys {
                    precision: self.precision.as_ref(),
                    kv_cache: self.kv_cache.as_ref(),
                    engine: self.engine.as_ref(),
                    scheduler: self.scheduler.as_ref(),
                    max_num_seqs: self.max_num_seqs.as_ref(),
                    max_num_batched_tokens: self.max_num_batched_tokens.as_ref(),
                    max_model_len: self.max_model_len.as_ref(),
                    block_size: self.block_size.as_ref(),
                    gpu_memory_utilization: self.gpu_memory_utilization.as_ref(),
                    cuda_graph: self.cuda_graph.as_ref(),
                    chunked_prefill: self.chunked_prefill.as_ref(),
                    prefix_caching: self.prefix_caching.as_ref(),
                }
            }
        }
    };
}

/// The engine settings written in one table, or those of a role with the defaults of `[engine]` behind them.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the keys are documented once, in the tables that hold them")]
pub struct EngineKeys<'a> {
    pub precision: Option<&'a Axis<RawPrecision>>,
    pub kv_cache: Option<&'a Axis<RawKvCache>>,
    pub engine: Option<&'a Axis<String>>,
    pub scheduler: Option<&'a Axis<String>>,
    pub max_num_seqs: Option<&'a Axis<u32>>,
    pub max_num_batched_tokens: Option<&'a Axis<u32>>,
    pub max_model_len: Option<&'a Axis<u32>>,
    pub block_size: Option<&'a Axis<u32>>,
    pub gpu_memory_utilization: Option<&'a Axis<f64>>,
    pub cuda_graph: Option<&'a Axis<bool>>,
    pub chunked_prefill: Option<&'a Axis<bool>>,
    pub prefix_caching: Option<&'a Axis<bool>>,
}

impl EngineKeys<'_> {
    /// These settings, and where one is not written, that of `defaults`.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            precision: self.precision.or(defaults.precision),
            kv_cache: self.kv_cache.or(defaults.kv_cache),
            engine: self.engine.or(defaults.engine),
            scheduler: self.scheduler.or(defaults.scheduler),
            max_num_seqs: self.max_num_seqs.or(defaults.max_num_seqs),
            max_num_batched_tokens: self.max_num_batched_tokens.or(defaults.max_num_batched_tokens),
            max_model_len: self.max_model_len.or(defaults.max_model_len),
            block_size: self.block_size.or(defaults.block_size),
            gpu_memory_utilization: self.gpu_memory_utilization.or(defaults.gpu_memory_utilization),
            cuda_graph: self.cuda_graph.or(defaults.cuda_graph),
            chunked_prefill: self.chunked_prefill.or(defaults.chunked_prefill),
            prefix_caching: self.prefix_caching.or(defaults.prefix_caching),
        }
    }
}

with_engine_keys! {
    /// Engine settings of every role.
    pub struct RawEngine {}
}

with_engine_keys! {
    /// One role: its GPUs, how one replica is split over them, and its engine settings.
    pub struct RawRole {
        /// GPU type: a name under profiles/gpus.
        pub gpu: Option<Axis<String>>,
        /// Number of replicas. Default: as many as the budget holds.
        pub replicas: Option<Axis<u32>>,
        /// Pipeline stages. Default: 1.
        pub pp: Option<Axis<u32>>,
        /// Tensor parallelism of attention. Default: 1.
        pub tp: Option<Axis<u32>>,
        /// Data parallelism of attention inside one replica. Default: 1.
        pub dp: Option<Axis<u32>>,
        /// Expert parallelism, for mixtures of experts. Default: 1.
        pub ep: Option<Axis<u32>>,
    }
}

/// Deployments whose replicas do both prefill and decode.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RawColocation {
    /// The only role.
    pub all: Option<Located<RawRole>>,
    /// How requests are spread over the engines. Default: `round_robin`.
    pub router: Option<Axis<String>>,
}

/// The two metrics of the Pareto front: columns of the results.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct RawPareto {
    /// Horizontal axis. Default: `gen_speed_p95`.
    pub x: Option<Located<String>>,
    /// Vertical axis. Default: `throughput_per_gpu`.
    pub y: Option<Located<String>>,
}
