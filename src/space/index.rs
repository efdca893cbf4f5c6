//! The mixed-radix index: every combination of axis values has one number.

use std::sync::Arc;

use super::candidate::{Architecture, Candidate, CandidateId, EngineLimits, Pool, Role};
use super::constraints;
use super::excluded::Excluded;
use super::identity;
use crate::catalog::Model;
use crate::spec::{Budget, ColocationAxes, Sweep};

/// All combinations of a sweep, block after block.
///
/// Within a block the hardware key (GPU, number formats, `pp`, `tp`, `dp`, `ep`) changes slowest, so that few step-cost
/// grids are alive at a time, and the load changes fastest.
#[derive(Clone, Debug)]
pub struct Space {
    model: Arc<Model>,
    budget: Budget,
    traffic_hash: u64,
    longest_request: u32,
    loads: Vec<f64>,
    blocks: Vec<Block>,
}

/// One `[[colocation]]` block and its first index.
#[derive(Clone, Debug)]
struct Block {
    axes: ColocationAxes,
    first: u64,
    len: u64,
}

impl Space {
    /// The space of a sweep.
    #[must_use]
    pub fn new(sweep: &Sweep) -> Self {
        let workload = &sweep.workload;
        let loads: Vec<f64> = (0..workload.loads()).map(|index| workload.load(index)).collect();
        let mut blocks = Vec::with_capacity(sweep.colocation.len());
        let mut first = 0u64;
        for axes in &sweep.colocation {
            let len = size(axes, &sweep.budget, loads.len());
            blocks.push(Block { axes: axes.clone(), first, len });
            first = first.saturating_add(len);
        }
        Self {
            model: Arc::clone(&sweep.model),
            budget: sweep.budget.clone(),
            traffic_hash: sweep.traffic_hash(),
            longest_request: workload.longest_request(),
            loads,
            blocks,
        }
    }

    /// Number of combinations, valid or not; `u64::MAX` stands for that many or more.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.first.saturating_add(block.len))
    }

    /// There is no combination at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The candidate with this index.
    ///
    /// # Errors
    /// The first rule that the combination breaks.
    ///
    /// # Panics
    /// If `index` is not below [`Space::len`].
    pub fn candidate(&self, index: u64) -> Result<Candidate, Excluded> {
        let position = self.blocks.partition_point(|block| block.first <= index).checked_sub(1);
        let position = position.filter(|_| index < self.len()).expect("the index is below the length of the space");
        let block = &self.blocks[position];
        let mut candidate = self.decode(&block.axes, index - block.first)?;
        let repeated = self.blocks[..position].iter().position(|earlier| self.holds(&earlier.axes, &candidate));
        if let Some(earlier) = repeated {
            return Err(Excluded::Repeated { block: earlier + 1 });
        }
        candidate.index = index;
        candidate.id = identity::identify(&self.model.name, self.traffic_hash, &candidate);
        Ok(candidate)
    }

    /// Takes one value of each axis, the fastest-changing axis first; [`size`] lists the same axes.
    fn decode(&self, axes: &ColocationAxes, offset: u64) -> Result<Candidate, Excluded> {
        let role = &axes.all;
        let mut digits = Digits(offset);
        let load_index = digits.next(self.loads.len());
        let max_num_seqs = digits.pick(&role.engine.max_num_seqs);
        let max_num_batched_tokens = digits.pick(&role.engine.max_num_batched_tokens);
        let max_model_len = digits.pick(&role.engine.max_model_len);
        let prefix_caching = digits.pick(&role.engine.prefix_caching);
        let chunked_prefill = digits.pick(&role.engine.chunked_prefill);
        let cuda_graph = digits.pick(&role.engine.cuda_graph);
        let gpu_memory_utilization = digits.pick(&role.engine.gpu_memory_utilization);
        let block_size = digits.pick(&role.engine.block_size);
        let named_scheduler = (!role.engine.scheduler.is_empty()).then(|| digits.pick(&role.engine.scheduler));
        let router = digits.pick(&axes.routers);
        let given_replicas = role.replicas.as_ref().map(|replicas| digits.pick(replicas));
        let budget = digits.pick(&self.budget.gpus);
        let engine_index = digits.next(role.engine.engine.len());
        let engine_profile = Arc::clone(&role.engine.engine[engine_index]);
        let scheduler = named_scheduler.unwrap_or_else(|| role.engine.own_schedulers[engine_index]);
        let (ep, dp, tp, pp) =
            (digits.pick(&role.ep), digits.pick(&role.dp), digits.pick(&role.tp), digits.pick(&role.pp));
        let kv_cache = digits.pick(&role.kv_caches);
        let precision = digits.pick(&role.precisions).with_kv_cache(kv_cache);
        let gpu = digits.pick(&role.gpus);

        let engine = EngineLimits {
            scheduler,
            max_num_seqs,
            max_num_batched_tokens,
            max_model_len,
            block_size,
            gpu_memory_utilization,
            cuda_graph,
            chunked_prefill,
            prefix_caching,
        };
        constraints::arithmetic(&gpu, precision)?;
        // Checked before the product can overflow 32 bits.
        let world_size = u64::from(pp).saturating_mul(u64::from(tp)).saturating_mul(u64::from(dp));
        let replicas = constraints::replicas(world_size, budget, given_replicas, self.budget.at_most)?;
        let parallelism = constraints::parallelism(&self.model, pp, tp, dp, ep)?;
        constraints::sharding(&self.model, parallelism, precision.weights)?;
        constraints::limits(&engine, self.longest_request)?;
        let pool = Pool { role: Role::Colocated, gpu, replicas, parallelism, precision, engine_profile, engine };
        Ok(Candidate {
            index: 0,
            id: CandidateId(0),
            architecture: Architecture::Colocation,
            pools: vec![pool],
            router,
            load_index,
            load: self.loads[load_index],
        })
    }

    /// Whether a block holds this valid candidate.
    fn holds(&self, axes: &ColocationAxes, candidate: &Candidate) -> bool {
        let role = &axes.all;
        candidate.pools.iter().all(|pool| {
            let (split, engine) = (pool.parallelism, &pool.engine);
            let world_size = u64::from(split.world_size());
            let replicas_match = match &role.replicas {
                Some(replicas) => replicas.contains(&pool.replicas),
                None => self.budget.gpus.iter().any(|gpus| {
                    constraints::replicas(world_size, *gpus, None, self.budget.at_most) == Ok(pool.replicas)
                }),
            };
            let split_matches = role.pp.contains(&split.pp)
                && role.tp.contains(&split.tp_attention)
                && role.dp.contains(&split.dp_attention)
                && role.ep.iter().any(|ep| {
                    constraints::parallelism(&self.model, split.pp, split.tp_attention, split.dp_attention, *ep)
                        == Ok(split)
                });
            let formats_match = role.gpus.iter().any(|gpu| gpu.name == pool.gpu.name)
                && role.kv_caches.contains(&pool.precision.kv_cache)
                && role.precisions.iter().any(|p| p.with_kv_cache(pool.precision.kv_cache) == pool.precision);
            let own_scheduler = role.engine.engine.iter().zip(&role.engine.own_schedulers);
            let scheduler_matches = match role.engine.scheduler.is_empty() {
                true => own_scheduler.into_iter().any(|own| own == (&pool.engine_profile, &engine.scheduler)),
                false => role.engine.scheduler.contains(&engine.scheduler),
            };
            let engine_matches = role.engine.engine.contains(&pool.engine_profile)
                && scheduler_matches
                && role.engine.max_num_seqs.contains(&engine.max_num_seqs)
                && role.engine.max_num_batched_tokens.contains(&engine.max_num_batched_tokens)
                && role.engine.max_model_len.contains(&engine.max_model_len)
                && role.engine.block_size.contains(&engine.block_size)
                && role.engine.gpu_memory_utilization.contains(&engine.gpu_memory_utilization)
                && role.engine.cuda_graph.contains(&engine.cuda_graph)
                && role.engine.chunked_prefill.contains(&engine.chunked_prefill)
                && role.engine.prefix_caching.contains(&engine.prefix_caching);
            replicas_match && split_matches && formats_match && engine_matches
        }) && axes.routers.contains(&candidate.router)
    }
}

/// Number of combinations of a block: the product of the lengths of all axes.
fn size(axes: &ColocationAxes, budget: &Budget, loads: usize) -> u64 {
    let role = &axes.all;
    let engine = &role.engine;
    [
        loads,
        engine.max_num_seqs.len(),
        engine.max_num_batched_tokens.len(),
        engine.max_model_len.len(),
        engine.prefix_caching.len(),
        engine.chunked_prefill.len(),
        engine.cuda_graph.len(),
        engine.gpu_memory_utilization.len(),
        engine.block_size.len(),
        engine.scheduler.len().max(1),
        axes.routers.len(),
        role.replicas.as_ref().map_or(1, Vec::len),
        budget.gpus.len(),
        engine.engine.len(),
        role.ep.len(),
        role.dp.len(),
        role.tp.len(),
        role.pp.len(),
        role.kv_caches.len(),
        role.precisions.len(),
        role.gpus.len(),
    ]
    .iter()
    .fold(1, |product: u64, len| product.saturating_mul(*len as u64))
}

/// The digits of a mixed-radix number, the fastest-changing first.
struct Digits(u64);

impl Digits {
    /// The next digit of this radix.
    fn next(&mut self, radix: usize) -> usize {
        let digit = self.0 % radix as u64;
        self.0 /= radix as u64;
        digit as usize
    }

    /// The value of an axis that the next digit stands for.
    fn pick<T: Clone>(&mut self, axis: &[T]) -> T {
        axis[self.next(axis.len())].clone()
    }
}

#[cfg(test)]
mod tests;
