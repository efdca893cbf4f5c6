//! Work that candidates share: step costs per hardware key, request streams per load.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rayon::prelude::*;

use crate::catalog::{Gpu, Precision};
use crate::diag::Diagnostics;
use crate::fidelity::{CostModel, CostProvenance, Sharding, StepCost, StepLimits};
use crate::space::{Candidate, Parallelism, Pool, Space};
use crate::spec::Sweep;
use crate::workload::{RequestStream, generate};

use super::plan::{Engines, Plan};

/// What a step cost depends on. Candidates are ordered so that it changes slowest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HardwareKey {
    gpu: String,
    engine: String,
    parallelism: Parallelism,
    precision: [&'static str; 3],
    graph: bool,
}

impl HardwareKey {
    fn of(pool: &Pool) -> Self {
        let Precision { weights, activations, kv_cache } = pool.precision;
        Self {
            gpu: pool.gpu.name.clone(),
            engine: pool.engine_profile.to_string(),
            parallelism: pool.parallelism,
            precision: [weights.name(), activations.name(), kv_cache.name()],
            graph: pool.engine.cuda_graph,
        }
    }

    /// What the kernels' times depend on: GPU and engine.
    fn kernels(&self) -> (String, String) {
        (self.gpu.clone(), self.engine.clone())
    }
}

/// What is compiled for one hardware key.
#[derive(Debug)]
struct Compiled {
    cost: StepCost,
    provenance: CostProvenance,
}

/// Step costs and request streams, computed once and shared by all candidates and threads.
#[derive(Debug)]
pub struct SharedWork {
    costs: BTreeMap<HardwareKey, Compiled>,
    streams: Vec<RequestStream>,
}

impl SharedWork {
    /// Compiles the step costs of every hardware key among the planned candidates, and draws the streams.
    ///
    /// `cost_model` finds the predictors of a GPU and an engine profile, by its name.
    ///
    /// # Errors
    /// What `cost_model` reports.
    pub fn prepare(
        sweep: &Sweep,
        space: &Space,
        plan: &Plan,
        engines: &Engines,
        cost_model: impl Fn(&Gpu, &str) -> Result<CostModel, Diagnostics>,
    ) -> Result<Self, Diagnostics> {
        let mut pools: BTreeMap<HardwareKey, Pool> = BTreeMap::new();
        let mut models: BTreeMap<(String, String), CostModel> = BTreeMap::new();
        let mut limits = StepLimits { max_num_seqs: 1, max_num_batched_tokens: 1, max_model_len: 1 };
        for candidate in plan.feasible.iter().filter_map(|&(index, _)| space.candidate(index).ok()) {
            for pool in candidate.pools {
                limits = cover(limits, &pool);
                let key = HardwareKey::of(&pool);
                if let Entry::Vacant(vacant) = models.entry(key.kernels()) {
                    vacant.insert(cost_model(&pool.gpu, &pool.engine_profile)?);
                }
                pools.entry(key).or_insert(pool);
            }
        }
        let costs = pools
            .into_par_iter()
            .map(|(key, pool)| {
                let compiled = compile(sweep, &pool, limits, engines, &models[&key.kernels()]);
                (key, compiled)
            })
            .collect();
        let streams = (0..sweep.workload.loads()).map(|load| generate(&sweep.workload, sweep.seed, load)).collect();
        Ok(Self { costs, streams })
    }

    /// Number of step costs compiled.
    #[must_use]
    pub fn hardware_keys(&self) -> usize {
        self.costs.len()
    }

    /// Step cost of a pool; `None` if the pool was not among the planned candidates.
    #[must_use]
    pub fn cost(&self, pool: &Pool) -> Option<&StepCost> {
        self.costs.get(&HardwareKey::of(pool)).map(|compiled| &compiled.cost)
    }

    /// Where the step cost of a pool comes from; `None` if the pool was not among the planned candidates.
    #[must_use]
    pub fn provenance(&self, pool: &Pool) -> Option<&CostProvenance> {
        self.costs.get(&HardwareKey::of(pool)).map(|compiled| &compiled.provenance)
    }

    /// Request stream of a candidate.
    #[must_use]
    pub fn stream(&self, candidate: &Candidate) -> &RequestStream {
        &self.streams[candidate.load_index]
    }
}

fn cover(limits: StepLimits, pool: &Pool) -> StepLimits {
    StepLimits {
        max_num_seqs: limits.max_num_seqs.max(pool.engine.max_num_seqs),
        max_num_batched_tokens: limits.max_num_batched_tokens.max(pool.engine.max_num_batched_tokens),
        max_model_len: limits.max_model_len.max(pool.engine.max_model_len),
    }
}

fn compile(sweep: &Sweep, pool: &Pool, limits: StepLimits, engines: &Engines, model: &CostModel) -> Compiled {
    let engine = &engines[&*pool.engine_profile];
    let sharding = Sharding {
        model: &sweep.model,
        parallelism: pool.parallelism,
        precision: pool.precision,
        graph: pool.engine.cuda_graph,
        gpus_per_node: pool.gpu.gpus_per_node,
        expert_exchange: engine.expert_exchange,
    };
    Compiled {
        cost: StepCost::compile(&sharding, limits, &engine.host, &|operator| model.predict(operator).time_ns)
            .with_graphs(engine.graphs.clone()),
        provenance: CostProvenance::compile(&sharding, limits, &|operator| model.predict(operator)),
    }
}
