//! The command that deploys a candidate.

use crate::catalog::{Model, NumberFormat};

use super::candidate::{Candidate, Pool};

/// The `vllm serve` command of one replica of each pool.
///
/// Flags are those of vLLM's V1 engine (docs.vllm.ai, "Engine arguments"). Prefix caching is on there by default.
#[must_use]
pub fn deployment_commands(candidate: &Candidate, model: &Model) -> Vec<String> {
    candidate.pools.iter().map(|pool| pool_command(pool, model)).collect()
}

fn pool_command(pool: &Pool, model: &Model) -> String {
    let engine = &pool.engine;
    let split = pool.parallelism;
    let repository = quoted(model.repository.as_deref().unwrap_or(&model.name));
    let (wanted, stored) = (pool.precision, model.checkpoint);
    // vLLM quantises a 16-bit checkpoint to fp8 while loading; other formats need a checkpoint that has them.
    let quantise = wanted.weights == NumberFormat::Fp8 && stored.weights == NumberFormat::Bf16;
    let checkpoint = match wanted.weights {
        format if format == stored.weights || quantise => repository,
        format => quoted(&format!("<{} checkpoint of {}>", format.name(), model.name)),
    };
    let mut flags = vec![format!("vllm serve {checkpoint}")];
    let mut flag = |name: &str, value: String| flags.push(format!("--{name} {value}"));
    flag("tensor-parallel-size", split.tp_attention.to_string());
    if split.pp > 1 {
        flag("pipeline-parallel-size", split.pp.to_string());
    }
    if split.dp_attention > 1 {
        flag("data-parallel-size", split.dp_attention.to_string());
    }
    flag("max-num-seqs", engine.max_num_seqs.to_string());
    flag("max-num-batched-tokens", engine.max_num_batched_tokens.to_string());
    flag("max-model-len", engine.max_model_len.to_string());
    flag("block-size", engine.block_size.to_string());
    flag("gpu-memory-utilization", engine.gpu_memory_utilization.to_string());
    if quantise {
        flag("quantization", "fp8".to_owned());
    }
    if wanted.kv_cache != NumberFormat::Bf16 {
        flag("kv-cache-dtype", wanted.kv_cache.name().to_owned());
    }
    let switches = [
        ("--enable-expert-parallel", split.ep_ffn > 1 && model.has_experts()),
        ("--enforce-eager", !engine.cuda_graph),
        ("--no-enable-chunked-prefill", !engine.chunked_prefill),
        ("--no-enable-prefix-caching", !engine.prefix_caching),
    ];
    flags.extend(switches.iter().filter(|(_, on)| *on).map(|(switch, _)| (*switch).to_owned()));
    flags.join(" ")
}

/// A word as a shell takes it literally.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::Precision;
    use crate::space::{EngineLimits, Parallelism, Role};
    use crate::spec::fake::{dense, gpu, mixture};

    fn pool(parallelism: Parallelism, weights: NumberFormat) -> Pool {
        Pool {
            role: Role::Colocated,
            gpu: Arc::new(gpu("h", true)),
            replicas: 2,
            parallelism,
            precision: Precision { weights, ..Precision::BF16 },
            engine_profile: "vllm-0.15".into(),
            engine: EngineLimits {
                scheduler: "vllm-v1",
                max_num_seqs: 64,
                max_num_batched_tokens: 2048,
                max_model_len: 4096,
                block_size: 16,
                gpu_memory_utilization: 0.9,
                cuda_graph: false,
                chunked_prefill: true,
                prefix_caching: false,
            },
        }
    }

    #[test]
    fn experts_over_a_lock_step_group() {
        let split = Parallelism { pp: 2, tp_attention: 2, dp_attention: 4, tp_ffn: 1, ep_ffn: 8 };
        assert_eq!(
            pool_command(&pool(split, NumberFormat::Bf16), &mixture()),
            "vllm serve moe-8x7b --tensor-parallel-size 2 --pipeline-parallel-size 2 --data-parallel-size 4 \
             --max-num-seqs 64 --max-num-batched-tokens 2048 --max-model-len 4096 --block-size 16 \
             --gpu-memory-utilization 0.9 --enable-expert-parallel --enforce-eager --no-enable-prefix-caching"
        );
    }

    #[test]
    fn names_are_quoted_for_the_shell() {
        assert_eq!(quoted("meta-llama/Llama-3.1-8B"), "meta-llama/Llama-3.1-8B");
        assert_eq!(quoted("a b; $(c)"), "'a b; $(c)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn only_fp8_is_made_while_loading() {
        let single = Parallelism { pp: 1, tp_attention: 1, dp_attention: 1, tp_ffn: 1, ep_ffn: 1 };
        let command = |weights| pool_command(&pool(single, weights), &dense());
        assert!(command(NumberFormat::Fp8).contains("--quantization fp8"));
        let int4 = command(NumberFormat::Int4);
        assert!(int4.starts_with("vllm serve '<int4 checkpoint of dense-70b>'") && !int4.contains("--quantization"));
    }
}
