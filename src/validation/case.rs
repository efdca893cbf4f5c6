//! One measured run: what was deployed, which requests it served, what was measured.

use std::fmt;

use crate::catalog::NumberFormat;
use crate::spec::Workload;
use crate::stats::Summary;
use crate::workload::{RequestStream, generate};

/// A measured run, or the reason why it cannot be simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Cases that are judged together, e.g. `sample_test vllm`.
    pub group: String,
    /// Name within the group.
    pub id: String,
    /// Model as the source names it.
    pub model: String,
    /// GPU as the source names it.
    pub gpu: String,
    /// What to simulate; otherwise why it cannot be.
    pub run: Result<Run, String>,
    /// What was measured.
    pub measured: Vec<Measured>,
}

/// A deployment and its traffic, in the names of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Model of the catalogue, or a path to its `config.json`.
    pub model: String,
    /// Formats of weights and KV cache where the run differs from the checkpoint.
    pub formats: Formats,
    /// GPU of the catalogue.
    pub gpu: String,
    /// Engine.
    pub engine: EngineVersion,
    /// Split over GPUs.
    pub split: Split,
    /// Limits and switches.
    pub limits: Limits,
    /// Requests.
    pub traffic: RunTraffic,
}

/// Number formats that replace those of the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    /// Weights and the arithmetic that goes with them.
    pub weights: Option<NumberFormat>,
    /// Inputs of the linear layers, where they are not those that go with the weights.
    pub activations: Option<NumberFormat>,
    /// KV cache.
    pub kv_cache: Option<NumberFormat>,
}

impl Formats {
    /// These formats, and the others where they say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            weights: self.weights.or(others.weights),
            activations: self.activations.or(others.activations),
            kv_cache: self.kv_cache.or(others.kv_cache),
        }
    }
}

/// Engine and version of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineVersion {
    /// `vllm`, `sglang` or `trtllm`.
    pub engine: String,
    /// Version as the source writes it; `None` where it is not recorded.
    pub version: Option<String>,
}

impl EngineVersion {
    /// An engine with its version.
    #[must_use]
    pub fn new(engine: &str, version: Option<&str>) -> Self {
        Self { engine: engine.to_owned(), version: version.map(str::to_owned) }
    }

    /// Major and minor number of the version, if it has them: `(0, 15)` of `0.15.1` or of `v0.15.1 (+tracing)`.
    #[must_use]
    pub fn number(&self) -> Option<(u32, u32)> {
        let version = self.version.as_deref()?;
        let mut parts = version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.engine, self.version.as_deref().unwrap_or("(version not recorded)"))
    }
}

/// How the run was split over GPUs. Experts: `expert_tp` x `expert_parallel` GPUs hold each layer's, which is
/// `tensor` x `data` GPUs; dense models follow attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Pipeline stages.
    pub pipeline: u32,
    /// Tensor parallelism of attention.
    pub tensor: u32,
    /// Data-parallel ranks of attention; replicas on dense models.
    pub data: u32,
    /// GPUs that share one expert.
    pub expert_tp: u32,
    /// Expert-parallel ranks.
    pub expert_parallel: u32,
}

impl Split {
    /// Tensor parallelism only.
    #[must_use]
    pub fn tensor(gpus: u32) -> Self {
        Self { pipeline: 1, tensor: gpus, data: 1, expert_tp: gpus, expert_parallel: 1 }
    }
}

/// Limits and switches of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Most running sequences of one engine.
    pub max_num_seqs: u32,
    /// Most tokens in one iteration of one engine.
    pub max_num_batched_tokens: u32,
    /// Longest request, in tokens.
    pub max_model_len: u32,
    /// Share of GPU memory that the engine may use.
    pub gpu_memory_utilization: f64,
    /// CUDA graphs; otherwise eager.
    pub cuda_graph: bool,
    /// Long prompts may be split.
    pub chunked_prefill: bool,
    /// Blocks of earlier requests are found again.
    pub prefix_caching: bool,
    /// The next batch is decided while the GPU works on the one before; `None` leaves it to the engine's version.
    pub asynchronous: Option<bool>,
    /// Which graphs are captured, where the run says so.
    pub graphs: GraphSetting,
}

/// What a run changes of the graphs that its engine captures by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphSetting {
    /// Largest captured batch, in tokens.
    pub largest_tokens: Option<u32>,
    /// Only batches without prompts replay graphs.
    pub decode_only: bool,
}

/// The requests of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunTraffic {
    /// As recorded.
    Recorded(RequestStream),
    /// Drawn from the protocol that the source states, so many times with seeds of their own; metrics are averaged.
    Drawn {
        /// Laws of arrivals and lengths; one load.
        workload: Workload,
        /// Independent draws.
        repetitions: u64,
    },
}

impl RunTraffic {
    /// The request streams.
    #[must_use]
    pub fn streams(&self) -> Vec<RequestStream> {
        match self {
            Self::Recorded(stream) => vec![stream.clone()],
            Self::Drawn { workload, repetitions } => {
                (0..*repetitions).map(|seed| generate(workload, seed, 0)).collect()
            }
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Gap between tokens.
    Itl,
    /// Arrival to last token.
    E2e,
    /// Output tokens per second over the whole run.
    OutputThroughput,
    /// Completed requests per second over the whole run.
    RequestThroughput,
    /// First arrival to last completion.
    Makespan,
    /// KV blocks of one engine.
    KvBlocks,
    /// Preemptions of the whole run.
    Preemptions,
    /// Share of prompt tokens found in the prefix cache, over the whole run.
    PrefixHits,
}

impl Metric {
    /// Every metric, in the order of tables.
    pub const ALL: [Self; 10] = [
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::E2e,
        Self::OutputThroughput,
        Self::RequestThroughput,
        Self::Makespan,
        Self::KvBlocks,
        Self::Preemptions,
        Self::PrefixHits,
    ];

    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::Itl => "ITL",
            Self::E2e => "E2E",
            Self::OutputThroughput => "output throughput",
            Self::RequestThroughput => "request throughput",
            Self::Makespan => "makespan",
            Self::KvBlocks => "KV blocks",
            Self::Preemptions => "preemptions",
            Self::PrefixHits => "prefix hits",
        }
    }

    /// Unit of its values.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Ttft | Self::Tpot | Self::Itl | Self::E2e | Self::Makespan => "ms",
            Self::OutputThroughput => "tokens/s",
            Self::RequestThroughput => "requests/s",
            Self::KvBlocks => "blocks",
            Self::Preemptions => "preemptions",
            Self::PrefixHits => "%",
        }
    }
}

/// Metric and statistic of names like `ttft_p95` or `e2e_mean`, as several sources write them.
pub(super) fn latency_named(name: &str) -> Option<(Metric, Statistic)> {
    let (metric, statistic) = name.split_once('_')?;
    let latencies = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e];
    let metric = latencies.into_iter().find(|known| known.name().eq_ignore_ascii_case(metric))?;
    Some((metric, Statistic::from_name(statistic)?))
}

/// Statistic over requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// One value for the whole run.
    Total,
}

impl Statistic {
    /// Those of a distribution, as [`Summary`] has them.
    pub const OF_REQUESTS: [Self; 5] = [Self::Mean, Self::P50, Self::P90, Self::P95, Self::P99];

    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::Total => "total",
        }
    }

    /// The statistic of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::OF_REQUESTS.into_iter().find(|statistic| statistic.name() == name)
    }

    /// Its value in a summary, in milliseconds; `None` for [`Total`](Self::Total).
    #[must_use]
    pub fn of(self, summary: &Summary) -> Option<f64> {
        match self {
            Self::Mean => Some(summary.mean_ms),
            Self::P50 => Some(summary.p50_ms),
            Self::P90 => Some(summary.p90_ms),
            Self::P95 => Some(summary.p95_ms),
            Self::P99 => Some(summary.p99_ms),
            Self::Total => None,
        }
    }
}

/// A measured value and what others predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Metric.
    pub metric: Metric,
    /// Statistic.
    pub statistic: Statistic,
    /// Value, in the metric's unit.
    pub value: f64,
    /// Predictions of other simulators.
    pub peers: Vec<Peer>,
}

impl Measured {
    /// A value without peers.
    #[must_use]
    pub fn new(metric: Metric, statistic: Statistic, value: f64) -> Self {
        Self { metric, statistic, value, peers: Vec::new() }
    }

    /// All statistics of a distribution, each with those of the peers' distributions.
    pub(super) fn of_summary<'a>(
        metric: Metric,
        summary: &'a Summary,
        peers: &'a [(&'a str, Summary)],
    ) -> impl Iterator<Item = Self> + 'a {
        Statistic::OF_REQUESTS.into_iter().filter_map(move |statistic| {
            let peer = |(name, peer): &(&str, Summary)| Some(Peer::new(name, statistic.of(peer)?));
            let peers = peers.iter().filter_map(peer).collect();
            Some(Self { metric, statistic, value: statistic.of(summary)?, peers })
        })
    }
}

/// What another simulator predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Predicted value, in the metric's unit.
    pub value: f64,
}

impl Peer {
    /// A prediction.
    #[must_use]
    pub fn new(name: &str, value: f64) -> Self {
        Self { name: name.to_owned(), value }
    }
}

/// Signed error of a prediction, in per cent of the measured value; `None` where that is zero.
#[must_use]
pub fn error_pct(predicted: f64, measured: f64) -> Option<f64> {
    Some(100.0 * (predicted / measured - 1.0)).filter(|error| error.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_the_ways_in_which_sources_write_them() {
        let number = |version| EngineVersion::new("vllm", Some(version)).number();
        assert_eq!(number("0.15.1"), Some((0, 15)));
        assert_eq!(number("v0.15.1 (+tracing)"), Some((0, 15)));
        assert_eq!(number("0.5.10.post1"), Some((0, 5)));
        assert_eq!(number("1.2.0rc6.post2"), Some((1, 2)));
        assert_eq!(number("nightly-5b8c30d62b754b57"), None);
        assert_eq!(EngineVersion::new("vllm", None).number(), None);
    }

    #[test]
    fn statistics_pair_with_those_of_the_peers() {
        let ours = Summary { mean_ms: 1.0, p50_ms: 2.0, p90_ms: 3.0, p95_ms: 4.0, p99_ms: 5.0 };
        let theirs = [("other", Summary { mean_ms: 1.5, p50_ms: 2.5, p90_ms: 3.5, p95_ms: 4.5, p99_ms: 5.5 })];
        let measured: Vec<Measured> = Measured::of_summary(Metric::Ttft, &ours, &theirs).collect();
        assert_eq!(measured.len(), 5);
        for one in measured {
            assert_eq!(one.peers[0].value, one.value + 0.5, "{:?}", one.statistic);
        }
    }
}
