//! The command that deploys a candidate.

use crate::catalog::{Model, NumberFormat};

use super::candidate::{Candidate, Pool};

/// The command that starts one replica of each pool, in the language of its engine.
///
/// Flags are those of vLLM's V1 engine (docs.vllm.ai, "Engine arguments"), where prefix caching is on by default; of SGLang's
/// server (docs.sglang.io, "Server arguments"); or of `trtllm-serve` (nvidia.github.io/TensorRT-LLM).
#[must_use]
pub fn deployment_commands(candidate: &Candidate, model: &Model) -> Vec<String> {
    candidate.pools.iter().map(|pool| pool_command(pool, model)).collect()
}

fn pool_command(pool: &Pool, model: &Model) -> String {
    let checkpoint = Checkpoint::of(pool, model);
    let has_experts = pool.parallelism.ep_ffn > 1 && model.has_experts();
    match pool.engine_profile.split('-').next() {
        Some("sglang") => sglang_command(pool, &checkpoint, has_experts),
        Some("trtllm") => tensorrt_llm_command(pool, &checkpoint, has_experts),
        _ => vllm_command(pool, &checkpoint, has_experts),
    }
}

/// What to load.
struct Checkpoint {
    /// Its name, quoted for the shell; a placeholder where the wanted format needs another checkpoint.
    name: String,
    /// A 16-bit checkpoint that the engine quantises to fp8 while loading.
    quantise: bool,
}

impl Checkpoint {
    fn of(pool: &Pool, model: &Model) -> Self {
        let (wanted, stored) = (pool.precision.weights, model.checkpoint.weights);
        let quantise = wanted == NumberFormat::Fp8 && stored == NumberFormat::Bf16;
        let name = if wanted == stored || quantise {
            quoted(model.repository.as_deref().unwrap_or(&model.name))
        } else {
            quoted(&format!("<{} checkpoint of {}>", wanted.name(), model.name))
        };
        Self { name, quantise }
    }
}

/// Flags with values, where they apply, and switches, where they are on.
fn command(start: String, flags: &[(&str, Option<String>)], switches: &[(&str, bool)]) -> String {
    let flags = flags.iter().filter_map(|(name, value)| Some(format!("--{name} {}", value.as_ref()?)));
    let switches = switches.iter().filter(|(_, on)| *on).map(|(switch, _)| (*switch).to_owned());
    std::iter::once(start).chain(flags).chain(switches).collect::<Vec<String>>().join(" ")
}

fn above_one(number: u32) -> Option<String> {
    (number > 1).then(|| number.to_string())
}

/// The format of the KV cache, where it is not the default.
fn kv_cache(pool: &Pool, fp8: &str) -> Option<String> {
    match pool.precision.kv_cache {
        NumberFormat::Bf16 => None,
        NumberFormat::Fp8 => Some(fp8.to_owned()),
        format => Some(format.name().to_owned()),
    }
}

fn vllm_command(pool: &Pool, checkpoint: &Checkpoint, has_experts: bool) -> String {
    let (engine, split) = (&pool.engine, pool.parallelism);
    let flags = [
        ("tensor-parallel-size", Some(split.tp_attention.to_string())),
        ("pipeline-parallel-size", above_one(split.pp)),
        ("data-parallel-size", above_one(split.dp_attention)),
        ("max-num-seqs", Some(engine.max_num_seqs.to_string())),
        ("max-num-batched-tokens", Some(engine.max_num_batched_tokens.to_string())),
        ("max-model-len", Some(engine.max_model_len.to_string())),
        ("block-size", Some(engine.block_size.to_string())),
        ("gpu-memory-utilization", Some(engine.gpu_memory_utilization.to_string())),
        ("quantization", checkpoint.quantise.then(|| "fp8".to_owned())),
        ("kv-cache-dtype", kv_cache(pool, "fp8")),
    ];
    let switches = [
        ("--enable-expert-parallel", has_experts),
        ("--enforce-eager", !engine.cuda_graph),
        ("--no-enable-chunked-prefill", !engine.chunked_prefill),
        ("--no-enable-prefix-caching", !engine.prefix_caching),
    ];
    command(format!("vllm serve {}", checkpoint.name), &flags, &switches)
}

fn sglang_command(pool: &Pool, checkpoint: &Checkpoint, has_experts: bool) -> String {
    let (engine, split) = (&pool.engine, pool.parallelism);
    // SGLang counts all GPUs of a stage as tensor parallel, and divides attention among the data-parallel ranks.
    let chunk = if engine.chunked_prefill { engine.max_num_batched_tokens.to_string() } else { "-1".to_owned() };
    let flags = [
        ("tp-size", Some((split.tp_attention * split.dp_attention).to_string())),
        ("pp-size", above_one(split.pp)),
        ("dp-size", above_one(split.dp_attention)),
        ("ep-size", has_experts.then(|| split.ep_ffn.to_string())),
        ("max-running-requests", Some(engine.max_num_seqs.to_string())),
        ("chunked-prefill-size", Some(chunk)),
        ("context-length", Some(engine.max_model_len.to_string())),
        ("page-size", Some(engine.block_size.to_string())),
        ("mem-fraction-static", Some(engine.gpu_memory_utilization.to_string())),
        ("quantization", checkpoint.quantise.then(|| "fp8".to_owned())),
        ("kv-cache-dtype", kv_cache(pool, "fp8_e4m3")),
    ];
    let switches = [
        ("--enable-dp-attention", split.dp_attention > 1),
        ("--disable-cuda-graph", !engine.cuda_graph),
        ("--disable-radix-cache", !engine.prefix_caching),
    ];
    command(format!("python -m sglang.launch_server --model-path {}", checkpoint.name), &flags, &switches)
}

fn tensorrt_llm_command(pool: &Pool, checkpoint: &Checkpoint, has_experts: bool) -> String {
    let (engine, split) = (&pool.engine, pool.parallelism);
    let flags = [
        ("tp_size", Some((split.tp_attention * split.dp_attention).to_string())),
        ("pp_size", above_one(split.pp)),
        ("ep_size", has_experts.then(|| split.ep_ffn.to_string())),
        ("max_batch_size", Some(engine.max_num_seqs.to_string())),
        ("max_num_tokens", Some(engine.max_num_batched_tokens.to_string())),
        ("max_seq_len", Some(engine.max_model_len.to_string())),
        ("kv_cache_free_gpu_memory_fraction", Some(engine.gpu_memory_utilization.to_string())),
    ];
    command(format!("trtllm-serve {}", checkpoint.name), &flags, &[])
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
    fn other_engines_have_their_own_command() {
        let split = Parallelism { pp: 1, tp_attention: 2, dp_attention: 2, tp_ffn: 1, ep_ffn: 4 };
        let sglang = Pool { engine_profile: "sglang-0.5".into(), ..pool(split, NumberFormat::Bf16) };
        assert_eq!(
            pool_command(&sglang, &mixture()),
            "python -m sglang.launch_server --model-path moe-8x7b --tp-size 4 --dp-size 2 --ep-size 4 \
             --max-running-requests 64 --chunked-prefill-size 2048 --context-length 4096 --page-size 16 \
             --mem-fraction-static 0.9 --enable-dp-attention --disable-cuda-graph --disable-radix-cache"
        );
        let trtllm = Pool { engine_profile: "trtllm-1.0".into(), ..sglang };
        assert_eq!(
            pool_command(&trtllm, &mixture()),
            "trtllm-serve moe-8x7b --tp_size 4 --ep_size 4 --max_batch_size 64 --max_num_tokens 2048 --max_seq_len 4096 \
             --kv_cache_free_gpu_memory_fraction 0.9"
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
