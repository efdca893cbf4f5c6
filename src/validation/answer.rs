//! Cases to answers, on all cores.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rayon::prelude::*;

use crate::catalog::{Catalog, EngineProfile, HostOverhead};
use crate::diag::Diagnostics;
use crate::fidelity::{CostModel, CostProvenance, EstimateSource, Sharding, StepCost, StepLimits};
use crate::memory::usable_blocks;
use crate::scheduler::router::{ROUTERS, router};
use crate::scheduler::{SCHEDULERS, scheduler};
use crate::sim::{Advance, Arena, Deployment, FrontEnd, Outcome, RequestBounds, simulate};
use crate::workload::RequestStream;

use super::case::{Case, Metric, Statistic};
use super::deployment::{CostKey, Deployed};

/// vLLM's front end sends a request to the attention rank with the fewest requests.
const ROUTER: &str = "least_outstanding";

/// A case and what became of it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The case.
    pub case: Case,
    /// The simulation, or why there is none.
    pub simulated: Result<Simulated, String>,
}

/// What was simulated.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// One outcome per request stream.
    pub outcomes: Vec<Outcome>,
    /// KV blocks of one engine, as the engine would report them.
    pub kv_blocks: u64,
    /// Engine profile.
    pub profile: String,
    /// The profile is of the run's engine, at whatever version.
    pub own_engine: bool,
    /// Scheduler policy.
    pub scheduler: &'static str,
    /// Parallelism, in short.
    pub parallelism: String,
    /// Share of engine time whose estimates rest on measurements of this GPU.
    pub measured_share: f64,
}

impl Simulated {
    /// The simulated value of a metric, the mean over the request streams.
    #[must_use]
    pub fn value(&self, metric: Metric, statistic: Statistic) -> Option<f64> {
        let of = |outcome: &Outcome| match metric {
            Metric::Ttft => statistic.of(&outcome.ttft),
            Metric::Tpot => statistic.of(&outcome.tpot),
            Metric::Itl => statistic.of(&outcome.itl),
            Metric::E2e => statistic.of(&outcome.e2e),
            Metric::OutputThroughput => Some(outcome.output_tokens as f64 / outcome.makespan_s),
            Metric::RequestThroughput => Some(outcome.completed as f64 / outcome.makespan_s),
            Metric::Makespan => Some(outcome.makespan_s * 1e3),
            Metric::KvBlocks => Some(self.kv_blocks as f64),
            Metric::Preemptions => Some(outcome.preemptions as f64),
            Metric::PrefixHits => Some(100.0 * outcome.prefix_hit_tokens as f64 / outcome.prompt_tokens as f64),
        };
        let values: Option<Vec<f64>> = self.outcomes.iter().map(of).collect();
        let mean = values.map(|values| values.iter().sum::<f64>() / values.len().max(1) as f64);
        // A run without requests has no duration.
        mean.filter(|mean| mean.is_finite())
    }
}

/// Simulates every case that can be; the order is kept. `done` is told of each case that is finished.
///
/// # Errors
/// Engine profiles or predictors of the catalogue that cannot be read.
pub fn answer(cases: Vec<Case>, catalog: &Catalog, done: &(dyn Fn() + Sync)) -> Result<Vec<Answer>, Diagnostics> {
    let prepared = prepare(&cases, catalog, &engines(catalog)?)?;
    let answers = cases.into_par_iter().zip(prepared).map_init(Arena::default, |arena, (case, prepared)| {
        let simulated = prepared.and_then(|prepared| prepared.play(arena, None));
        done();
        Answer { case, simulated }
    });
    Ok(answers.collect())
}

/// Every engine profile of the catalogue.
pub(super) fn engines(catalog: &Catalog) -> Result<Vec<EngineProfile>, Diagnostics> {
    catalog.engine_names().iter().map(|name| catalog.engine(name)).collect()
}

/// A deployment with its step costs and its requests: all that a simulation needs.
pub(super) struct Prepared {
    deployed: Deployed,
    compiled: Arc<Compiled>,
    streams: Vec<RequestStream>,
    own_engine: bool,
}

/// Builds the deployments of cases from these engine profiles and compiles their step costs, each once; a case that
/// cannot be simulated has its reason.
pub(super) fn prepare(
    cases: &[Case],
    catalog: &Catalog,
    engines: &[EngineProfile],
) -> Result<Vec<Result<Prepared, String>>, Diagnostics> {
    let deployed: Vec<Result<(Deployed, Vec<RequestStream>), String>> = cases
        .par_iter()
        .map(|case| {
            let run = case.run.as_ref().map_err(Clone::clone)?;
            let streams = run.traffic.streams();
            Ok((Deployed::new(run, longest_request(&streams), catalog, engines)?, streams))
        })
        .collect();
    let costs = compile(deployed.iter().flatten().map(|(deployed, _)| deployed), catalog)?;
    let prepared = cases.iter().zip(deployed).map(|(case, deployed)| {
        let (deployed, streams) = deployed?;
        let own_engine = case.run.as_ref().is_ok_and(|run| run.engine.engine == deployed.profile.engine);
        Ok(Prepared { compiled: Arc::clone(&costs[&deployed.cost_key()]), deployed, streams, own_engine })
    });
    Ok(prepared.collect())
}

/// Tokens of the longest request, prompt and output together.
fn longest_request(streams: &[RequestStream]) -> u32 {
    let requests = streams.iter().flat_map(|stream| &stream.requests);
    requests.map(|request| request.prompt_tokens.saturating_add(request.output_tokens)).max().unwrap_or(1)
}

/// Step durations of a deployment, and where they come from.
struct Compiled {
    cost: StepCost,
    provenance: CostProvenance,
}

/// Step costs of all deployments, each compiled once, wide enough for every case that uses it.
fn compile<'a>(
    deployed: impl Iterator<Item = &'a Deployed>,
    catalog: &Catalog,
) -> Result<BTreeMap<CostKey, Arc<Compiled>>, Diagnostics> {
    let mut kinds: BTreeMap<CostKey, (&Deployed, StepLimits)> = BTreeMap::new();
    let mut models: BTreeMap<(String, String), CostModel> = BTreeMap::new();
    for deployed in deployed {
        let key = deployed.cost_key();
        if !models.contains_key(&key.kernels) {
            models.insert(key.kernels.clone(), CostModel::load(catalog.root(), &deployed.gpu, &deployed.kernels)?);
        }
        let none = StepLimits { max_num_seqs: 1, max_num_batched_tokens: 1, max_model_len: 1 };
        let (_, limits) = kinds.entry(key).or_insert((deployed, none));
        limits.max_num_seqs = limits.max_num_seqs.max(deployed.limits.max_num_seqs);
        limits.max_num_batched_tokens = limits.max_num_batched_tokens.max(deployed.limits.max_num_batched_tokens);
        limits.max_model_len = limits.max_model_len.max(deployed.limits.max_model_len);
    }
    let compiled = kinds.into_par_iter().map(|(key, (deployed, limits))| {
        let sharding = Sharding {
            model: &deployed.model,
            parallelism: deployed.parallelism,
            precision: deployed.precision,
            graph: deployed.limits.cuda_graph,
            gpus_per_node: deployed.gpu.gpus_per_node,
            expert_exchange: deployed.profile.expert_exchange,
        };
        let kernels = &models[&key.kernels];
        let time_ns = |operator: &_| kernels.predict(operator).time_ns;
        let cost = StepCost::compile(&sharding, limits, &deployed.profile.host, &time_ns)
            .with_graphs(deployed.profile.graphs.clone());
        let provenance = CostProvenance::compile(&sharding, limits, &|operator| kernels.predict(operator));
        (key, Arc::new(Compiled { cost, provenance }))
    });
    Ok(compiled.collect())
}

impl Prepared {
    /// Simulates with the profile's host, or with the times of another one; when batches are decided stays as the run was
    /// started.
    pub(super) fn play(&self, arena: &mut Arena, other_host: Option<&HostOverhead>) -> Result<Simulated, String> {
        let Self { deployed, compiled, streams, own_engine } = self;
        let (replicas, ranks) = deployed.replicas_and_ranks();
        let own = &deployed.profile.host;
        let other_host = other_host.map(|host| HostOverhead { asynchronous: own.asynchronous, ..*host });
        let host = other_host.as_ref().unwrap_or(own);
        let cost = match &other_host {
            Some(host) => Cow::Owned(compiled.cost.clone().with_host(host)),
            None => Cow::Borrowed(&compiled.cost),
        };
        let deployment = Deployment {
            replicas,
            ranks,
            cost: &cost,
            kv_blocks: usable_blocks(deployed.kv_blocks),
            limits: &deployed.limits,
            rules: deployed.profile.rules,
            scheduler: scheduler(deployed.limits.scheduler).unwrap_or(SCHEDULERS[0]),
            router: router(ROUTER).unwrap_or(ROUTERS[0]),
            front_end: FrontEnd::new(host),
            seed: 0,
        };
        let mut outcomes = Vec::new();
        for stream in streams {
            let simulation = AssertUnwindSafe(|| {
                simulate(arena, &deployment, stream, &RequestBounds::NONE, Advance::FastForward, &mut ())
            });
            match catch_unwind(simulation) {
                Ok(outcome) => outcomes.push(outcome),
                Err(_) => {
                    *arena = Arena::default();
                    return Err("the simulator failed on it; this is a bug".to_owned());
                }
            }
        }
        let time = compiled.provenance.weigh(arena.step_mix());
        let sources = [EstimateSource::Measured, EstimateSource::Interpolated, EstimateSource::Extrapolated];
        Ok(Simulated {
            outcomes,
            measured_share: sources.map(|source| time.share(source)).iter().sum(),
            kv_blocks: deployed.kv_blocks,
            own_engine: *own_engine,
            profile: deployed.profile.name.clone(),
            scheduler: deployed.limits.scheduler,
            parallelism: deployed.parallelism.label(),
        })
    }
}
