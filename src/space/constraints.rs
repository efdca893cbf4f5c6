//! The rules a combination must keep, each a function of the numbers it looks at.

use super::candidate::{EngineLimits, Parallelism};
use super::excluded::Excluded;
use crate::catalog::{Attention, Ffn, Gpu, Model, NumberFormat, Precision};

/// Rows and columns of one scale block of [`NumberFormat::Fp8Block`].
const FP8_BLOCK: u32 = 128;

/// Splits the attention domain into an FFN domain of the same GPUs. On dense models every attention data-parallel
/// rank runs its own copy of the FFN; on mixtures of experts all of them share the experts, `ep` ranks wide.
pub(super) fn parallelism(model: &Model, pp: u32, tp: u32, dp: u32, ep: u32) -> Result<Parallelism, Excluded> {
    let group = u64::from(tp) * u64::from(dp);
    let (tp_ffn, ep_ffn) = match u64::from(ep) {
        _ if !model.has_experts() => (tp, dp),
        1 => (group.try_into().unwrap_or(u32::MAX), 1),
        // vLLM's expert parallelism is a switch: experts are dealt out over all GPUs of a stage, or over none.
        wanted if wanted == group => (1, ep),
        _ => return Err(Excluded::FfnDomain { tp, dp, ep }),
    };
    Ok(Parallelism { pp, tp_attention: tp, dp_attention: dp, tp_ffn, ep_ffn })
}

/// Whether a GPU of this type can serve the model cut this way in these formats.
///
/// # Errors
/// The first rule that is broken.
pub fn check_split(model: &Model, gpu: &Gpu, split: Parallelism, precision: Precision) -> Result<(), Excluded> {
    sharding(model, split, precision.weights)?;
    arithmetic(gpu, precision)
}

/// Number of replicas: the given one, or as many as the budget holds. A budget must be met exactly, or with
/// `at_most` not exceeded.
pub(super) fn replicas(world_size: u64, gpus: u32, given: Option<u32>, at_most: bool) -> Result<u32, Excluded> {
    let budget = u64::from(gpus);
    if world_size > budget {
        return Err(Excluded::WorldOverBudget { world_size, gpus });
    }
    match given {
        Some(replicas) => {
            let used = u64::from(replicas).saturating_mul(world_size);
            let is_met = if at_most { used <= budget } else { used == budget };
            if is_met { Ok(replicas) } else { Err(Excluded::BudgetNotMet { replicas, world_size, gpus }) }
        }
        None if !at_most && !budget.is_multiple_of(world_size) => {
            Err(Excluded::WorldDoesNotDivide { world_size, gpus })
        }
        None => Ok((budget / world_size) as u32),
    }
}

/// Whether the model can be cut this way. The rules are those of vLLM: query heads are split evenly, key-value heads
/// evenly or replicated evenly, experts placed evenly; block-scaled weights are cut between blocks.
pub(super) fn sharding(model: &Model, split: Parallelism, weights: NumberFormat) -> Result<(), Excluded> {
    let layers = model.layers.len();
    if split.pp as usize > layers {
        return Err(Excluded::Stages { layers, pp: split.pp });
    }
    attention(&model.attention, split.tp_attention)?;
    let mut previous = None;
    for ffn in model.layers.iter().map(|layer| layer.ffn) {
        // Layers repeat; each kind is looked at once per run of equal layers.
        if previous != Some(ffn) {
            feed_forward(ffn, split, if weights == NumberFormat::Fp8Block { FP8_BLOCK } else { 1 })?;
            previous = Some(ffn);
        }
    }
    Ok(())
}

fn attention(attention: &Attention, tp: u32) -> Result<(), Excluded> {
    let heads = match *attention {
        Attention::Grouped { heads, .. } | Attention::Latent { heads, .. } | Attention::Factorised { heads, .. } => {
            heads
        }
    };
    if !heads.is_multiple_of(tp) {
        return Err(Excluded::Heads { heads, tp });
    }
    match *attention {
        Attention::Grouped { kv_heads, .. } if !kv_heads.is_multiple_of(tp) && !tp.is_multiple_of(kv_heads) => {
            Err(Excluded::KvHeads { kv_heads, tp })
        }
        // The latent, and the single head of factorised attention, are replicated.
        _ => Ok(()),
    }
}

fn feed_forward(ffn: Ffn, split: Parallelism, multiple: u32) -> Result<(), Excluded> {
    match ffn {
        // Dense layers follow the attention domain, also inside a mixture of experts.
        Ffn::Dense { intermediate_size } => width(intermediate_size, split.tp_attention, multiple),
        Ffn::MixtureOfExperts { experts, expert_intermediate_size, shared_intermediate_size, .. } => {
            let ep = split.ep_ffn;
            if !experts.is_multiple_of(ep) {
                return Err(Excluded::Experts { experts, ep });
            }
            width(expert_intermediate_size, split.tp_ffn, multiple)?;
            width(shared_intermediate_size, split.tp_attention, multiple)
        }
    }
}

fn width(width: u32, tp: u32, multiple: u32) -> Result<(), Excluded> {
    if u64::from(width).is_multiple_of(u64::from(tp) * u64::from(multiple)) {
        Ok(())
    } else {
        Err(Excluded::FfnWidth { width, tp, multiple })
    }
}

/// Whether the engine accepts these limits (the checks of vLLM's `SchedulerConfig`) and every request of the workload.
///
/// # Errors
/// The first rule that is broken.
pub fn limits(engine: &EngineLimits, longest_request: u32) -> Result<(), Excluded> {
    let EngineLimits { max_num_batched_tokens, max_num_seqs, max_model_len, .. } = *engine;
    if max_model_len < longest_request {
        return Err(Excluded::ModelLengthBelowRequest { max_model_len, longest_request });
    }
    if max_num_batched_tokens < max_num_seqs {
        return Err(Excluded::TokensBelowSequences { max_num_batched_tokens, max_num_seqs });
    }
    if !engine.chunked_prefill && max_num_batched_tokens < max_model_len {
        return Err(Excluded::TokensBelowModelLength { max_num_batched_tokens, max_model_len });
    }
    Ok(())
}

/// Whether the GPU computes in these formats. Weight-only formats need only the arithmetic of their activations; an
/// fp8 cache is taken to need fp8 arithmetic, as the fast attention kernels do.
pub(super) fn arithmetic(gpu: &Gpu, precision: Precision) -> Result<(), Excluded> {
    for format in [precision.activations, precision.kv_cache] {
        let is_supported = match format {
            NumberFormat::Bf16 | NumberFormat::Int4 => true,
            NumberFormat::Fp8 | NumberFormat::Fp8Block => gpu.fp8_flops.is_some(),
            NumberFormat::Int8 => gpu.int8_flops > 0.0,
            NumberFormat::Nvfp4 | NumberFormat::Mxfp4 => gpu.fp4_flops.is_some(),
        };
        if !is_supported {
            return Err(Excluded::Precision { gpu: gpu.name.clone(), format });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::fake::{dense, gpu, mixture};

    fn split(model: &Model, pp: u32, tp: u32, dp: u32, ep: u32) -> Result<Parallelism, Excluded> {
        let parallelism = parallelism(model, pp, tp, dp, ep)?;
        sharding(model, parallelism, NumberFormat::Bf16).map(|()| parallelism)
    }

    #[test]
    fn both_domains_cover_the_same_gpus() {
        for (model, tp, dp, ep) in
            [(dense(), 4, 2, 1), (mixture(), 2, 4, 8), (mixture(), 2, 4, 1), (mixture(), 8, 1, 8)]
        {
            let parallelism = split(&model, 2, tp, dp, ep).expect("a valid split");
            assert_eq!(parallelism.tp_attention * parallelism.dp_attention, parallelism.tp_ffn * parallelism.ep_ffn);
        }
        for ep in [2, 8] {
            assert_eq!(split(&mixture(), 1, 4, 1, ep), Err(Excluded::FfnDomain { tp: 4, dp: 1, ep }));
        }
    }

    #[test]
    fn heads_are_split_or_replicated_as_vllm_does() {
        assert!(split(&dense(), 1, 8, 1, 1).is_ok());
        assert!(split(&dense(), 1, 16, 1, 1).is_ok(), "8 key-value heads, each on two GPUs");
        assert_eq!(split(&dense(), 1, 3, 1, 1), Err(Excluded::Heads { heads: 64, tp: 3 }));
        let mut model = dense();
        model.attention =
            Attention::Grouped { heads: 48, kv_heads: 8, head_dim: 128, qkv_bias: false, qk_norm: false, sinks: false };
        assert_eq!(split(&model, 1, 12, 1, 1), Err(Excluded::KvHeads { kv_heads: 8, tp: 12 }));
    }

    #[test]
    fn layers_experts_and_widths_limit_the_cut() {
        assert_eq!(split(&dense(), 81, 1, 1, 1), Err(Excluded::Stages { layers: 80, pp: 81 }));
        assert_eq!(split(&mixture(), 1, 16, 1, 16), Err(Excluded::Experts { experts: 8, ep: 16 }));
        let mut narrow = mixture();
        for layer in &mut narrow.layers {
            layer.ffn = Ffn::MixtureOfExperts {
                experts: 8,
                top_k: 2,
                expert_intermediate_size: 1536,
                shared_intermediate_size: 0,
                expert_bias: false,
            };
        }
        let eight = parallelism(&narrow, 1, 8, 1, 1).expect("a whole domain");
        assert_eq!(sharding(&narrow, eight, NumberFormat::Fp8), Ok(()));
        assert_eq!(
            sharding(&narrow, eight, NumberFormat::Fp8Block),
            Err(Excluded::FfnWidth { width: 1536, tp: 8, multiple: 128 }),
            "192 columns are not whole blocks of 128"
        );
    }

    #[test]
    fn replicas_meet_the_budget_exactly_or_stay_below() {
        assert_eq!(replicas(4, 16, None, false), Ok(4));
        assert_eq!(replicas(5, 16, None, false), Err(Excluded::WorldDoesNotDivide { world_size: 5, gpus: 16 }));
        assert_eq!(replicas(5, 16, None, true), Ok(3));
        assert_eq!(replicas(32, 16, None, true), Err(Excluded::WorldOverBudget { world_size: 32, gpus: 16 }));
        let missed = Err(Excluded::BudgetNotMet { replicas: 3, world_size: 4, gpus: 16 });
        assert_eq!(replicas(4, 16, Some(3), false), missed);
        assert_eq!(replicas(4, 16, Some(3), true), Ok(3));
    }

    #[test]
    fn formats_need_the_arithmetic_of_the_gpu() {
        let fp8 = Precision { weights: NumberFormat::Fp8, activations: NumberFormat::Fp8, ..Precision::BF16 };
        let weight_only = Precision { weights: NumberFormat::Mxfp4, ..Precision::BF16 };
        let nvfp4 = Precision { weights: NumberFormat::Nvfp4, activations: NumberFormat::Nvfp4, ..Precision::BF16 };
        let fp8_cache = Precision { kv_cache: NumberFormat::Fp8, ..Precision::BF16 };
        let (hopper, ampere) = (gpu("hopper", true), gpu("ampere", false));
        assert_eq!(arithmetic(&hopper, fp8), Ok(()));
        assert_eq!(
            arithmetic(&ampere, fp8),
            Err(Excluded::Precision { gpu: "ampere".into(), format: NumberFormat::Fp8 })
        );
        assert!(arithmetic(&ampere, fp8_cache).is_err());
        assert!(arithmetic(&hopper, nvfp4).is_err());
        assert!(arithmetic(&ampere, weight_only).is_ok());
    }
}
