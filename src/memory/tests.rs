use std::path::Path;

use super::*;
use crate::catalog::{Catalog, DEFAULT_ENGINE, NumberFormat};

fn catalog() -> Catalog {
    Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn tensor_parallel(tp: u32) -> Parallelism {
    Parallelism { pp: 1, tp_attention: tp, dp_attention: 1, tp_ffn: tp, ep_ffn: 1 }
}

fn limits(max_num_seqs: u32, max_num_batched_tokens: u32, max_model_len: u32) -> EngineLimits {
    EngineLimits {
        scheduler: "vllm-v1",
        max_num_seqs,
        max_num_batched_tokens,
        max_model_len,
        block_size: 16,
        gpu_memory_utilization: 0.9,
        cuda_graph: true,
        chunked_prefill: true,
        prefix_caching: false,
    }
}

fn plan_with(
    model: &str,
    gpu: &str,
    parallelism: Parallelism,
    precision: Option<Precision>,
    limits: &EngineLimits,
) -> MemoryPlan {
    let catalog = catalog();
    let model = catalog.model(model).unwrap();
    let engine = catalog.engine(DEFAULT_ENGINE).unwrap();
    let precision = precision.unwrap_or(model.checkpoint);
    capacity(&model, &catalog.gpu(gpu).unwrap(), parallelism, precision, limits, &engine.memory)
}

/// On H100 80 GB as vLLM 0.15.1 was run there: 128 sequences, 2048 tokens, 4096 tokens a request, bf16.
fn h100(model: &str, parallelism: Parallelism) -> MemoryPlan {
    plan_with(model, "h100-sxm", parallelism, Some(Precision::BF16), &limits(128, 2048, 4096))
}

/// Llama-3.3-70B NVFP4 with fp8 KV on B200, as vLLM 0.15.0 was run there: 8192 tokens.
fn b200(tp: u32, max_num_seqs: u32) -> MemoryPlan {
    plan_with("llama-3.3-70b-fp4", "b200", tensor_parallel(tp), None, &limits(max_num_seqs, 8192, 131_072))
}

#[track_caller]
fn assert_within(measured: u64, computed: u64, tolerance: f64) {
    let error = computed as f64 / measured as f64 - 1.0;
    assert!(error.abs() <= tolerance, "computed {computed}, measured {measured}: {:+.2} %", 100.0 * error);
}

// KV capacities that vLLM reported at start-up; docs/accuracy/memory.md has all of them.

#[test]
fn llama_2_7b_on_one_h100_has_the_blocks_that_vllm_reports() {
    assert_within(7_462, h100("llama-2-7b", tensor_parallel(1)).kv_blocks, 0.01);
}

#[test]
fn mixtral_8x7b_on_two_h100_has_the_blocks_that_vllm_reports() {
    assert_within(27_510, h100("mixtral-8x7b", tensor_parallel(2)).kv_blocks, 0.01);
}

#[test]
fn codellama_34b_on_two_h100_has_the_blocks_that_vllm_reports() {
    assert_within(26_602, h100("codellama-34b", tensor_parallel(2)).kv_blocks, 0.01);
}

#[test]
fn llama_70b_nvfp4_on_one_b200_has_the_tokens_that_vllm_reports() {
    assert_within(782_160, b200(1, 128).kv_blocks * 16, 0.01);
}

#[test]
fn llama_70b_nvfp4_on_four_b200_has_the_tokens_that_vllm_reports() {
    assert_within(3_900_512, b200(4, 16).kv_blocks * 16, 0.01);
}

#[test]
fn many_sequences_cost_cache_through_the_sampler_as_vllm_reports() {
    for (tp, sequences, measured) in [(1, 16, 782_160), (1, 256, 780_992), (1, 512, 773_312), (4, 512, 3_848_736)] {
        assert_within(measured, b200(tp, sequences).kv_blocks * 16, 0.005);
    }
}

#[test]
fn ignoring_what_is_neither_weights_nor_cache_overstates_the_cache() {
    let plan = b200(4, 512);
    let naive = (plan.budget_bytes - plan.weights.total()) / plan.kv_block_bytes;
    assert!(naive as f64 > 1.02 * plan.kv_blocks as f64);
}

#[test]
fn blocks_of_a_pipeline_stage_hold_the_layers_of_that_stage_only() {
    let whole = h100("llama-3.1-8b", tensor_parallel(1));
    let staged = h100("llama-3.1-8b", Parallelism { pp: 4, ..tensor_parallel(1) });
    assert_eq!(staged.stage_layers, 8);
    assert_eq!(staged.kv_block_bytes * 4, whole.kv_block_bytes);
    assert!(staged.kv_blocks > 4 * whole.kv_blocks);
}

#[test]
fn the_fullest_stage_decides() {
    // 61 layers over four stages: 15, 15, 16, 15.
    let plan = plan_with(
        "deepseek-v3",
        "b200",
        Parallelism { pp: 4, tp_attention: 1, dp_attention: 8, tp_ffn: 1, ep_ffn: 8 },
        None,
        &limits(64, 2048, 4096),
    );
    assert_eq!((plan.stage, plan.stage_layers), (2, 16));
    assert_eq!(plan.weights.embedding + plan.weights.lm_head, 0);
}

#[test]
fn fp8_halves_layer_weights_and_cache() {
    let fp8 = Precision { weights: NumberFormat::Fp8, activations: NumberFormat::Fp8, kv_cache: NumberFormat::Fp8 };
    let plan = |precision| {
        plan_with("llama-3.1-70b", "h100-sxm", tensor_parallel(4), Some(precision), &limits(128, 2048, 4096))
    };
    let (wide, narrow) = (plan(Precision::BF16), plan(fp8));
    assert_eq!(narrow.kv_block_bytes * 2, wide.kv_block_bytes);
    assert_eq!(narrow.weights.attention * 2, wide.weights.attention);
    assert_eq!(narrow.weights.dense_ffn * 2, wide.weights.dense_ffn);
    assert_eq!(narrow.weights.embedding, wide.weights.embedding);
}

#[test]
fn embedding_and_lm_head_are_charged_to_their_stages() {
    let whole = h100("llama-3.1-8b", tensor_parallel(1)).weights;
    assert_eq!(whole.embedding, 128_256 * 4096 * 2);
    assert_eq!(whole.lm_head, whole.embedding);
    let model = catalog().model("llama-3.1-8b").unwrap();
    assert_eq!(whole.total(), 2 * model.total_parameters());
}

#[test]
fn a_tied_head_costs_nothing_unless_the_embedding_is_on_another_stage() {
    let catalog = catalog();
    let mut model = catalog.model("llama-3.1-8b").unwrap();
    model.tied_embeddings = true;
    let weights = |pp: u32, stage: u32| {
        let parallelism = Parallelism { pp, ..tensor_parallel(1) };
        weights::WeightModel::new(&model, parallelism, Precision::BF16, 1).stage(stage_layers(32, pp, stage))
    };
    assert_eq!(weights(1, 0).lm_head, 0);
    assert_eq!(weights(2, 1).lm_head, weights(2, 0).embedding);
}

#[test]
fn experts_are_divided_by_expert_and_tensor_parallelism() {
    let experts = |parallelism| h100("qwen3-30b-a3b", parallelism).weights.experts;
    let whole = experts(tensor_parallel(1));
    let expert_parallel = Parallelism { pp: 1, tp_attention: 1, dp_attention: 8, tp_ffn: 1, ep_ffn: 8 };
    assert_eq!(experts(expert_parallel) * 8, whole);
    assert_eq!(experts(tensor_parallel(8)) * 8, whole);
    // Attention is replicated over the data-parallel ranks.
    let attention = |parallelism| h100("qwen3-30b-a3b", parallelism).weights.attention;
    assert_eq!(attention(expert_parallel), attention(tensor_parallel(1)));
}

#[test]
fn every_communicator_has_buffers_of_its_own() {
    let engine = catalog().engine(DEFAULT_ENGINE).unwrap().memory;
    let buffers = |pp, tp_attention, dp_attention| {
        let parallelism =
            Parallelism { pp, tp_attention, dp_attention, tp_ffn: 1, ep_ffn: tp_attention * dp_attention };
        h100("qwen3-30b-a3b", parallelism).collective_bytes
    };
    assert_eq!(buffers(1, 1, 1), 0);
    assert_eq!(buffers(1, 4, 1), engine.collective_bytes(4));
    assert_eq!(buffers(2, 4, 1), engine.collective_bytes(4) + engine.collective_bytes(2));
    assert_eq!(buffers(1, 2, 4), engine.collective_bytes(2) + engine.collective_bytes(8));
}

#[test]
fn key_value_heads_are_replicated_beyond_their_number() {
    let block = |tp| h100("qwen3-30b-a3b", tensor_parallel(tp)).kv_block_bytes;
    assert_eq!(block(4) * 4, block(1));
    assert_eq!(block(8), block(4));
}

#[test]
fn the_latent_cache_is_replicated_and_small() {
    let block =
        |tp| plan_with("deepseek-v3", "b200", tensor_parallel(tp), None, &limits(64, 2048, 4096)).kv_block_bytes;
    assert_eq!(block(8), 16 * 61 * 576 * 2);
    assert_eq!(block(8), block(4));
}

#[test]
fn attention_of_gpt_oss_stays_in_bf16() {
    let weights = h100_checkpoint("gpt-oss-120b").weights;
    let model = catalog().model("gpt-oss-120b").unwrap();
    let layer = model.layer_parameters(&model.layers[0]);
    assert_eq!(weights.attention, 36 * 2 * layer.attention);
    assert_eq!(weights.experts, (36.0 * 128.0 * layer.expert as f64 * 0.53125) as u64);
}

fn h100_checkpoint(model: &str) -> MemoryPlan {
    plan_with(model, "h100-sxm", tensor_parallel(1), None, &limits(128, 2048, 4096))
}

#[test]
fn every_refusal_names_its_reason_and_its_numbers() {
    let too_big = h100("llama-3.1-405b", tensor_parallel(1)).verdict();
    assert_eq!(too_big.reason(), "no_room_for_weights");
    assert!(too_big.to_string().starts_with("weights need 755.96 GiB per GPU"), "{too_big}");

    let mut tight = limits(1024, 65_536, 4096);
    let full = plan_with("qwen3-32b", "h100-sxm", tensor_parallel(1), Some(Precision::BF16), &tight).verdict();
    assert_eq!(full.reason(), "no_kv_blocks", "{full}");

    tight = limits(64, 2048, 4096);
    tight.gpu_memory_utilization = 0.999;
    let greedy = plan_with("llama-3.1-8b", "h100-sxm", tensor_parallel(1), None, &tight).verdict();
    assert_eq!(greedy.reason(), "no_headroom", "{greedy}");

    let long = plan_with("llama-3.1-70b", "h100-sxm", tensor_parallel(2), None, &limits(8, 2048, 131_072)).verdict();
    assert_eq!(long.reason(), "request_too_long", "{long}");
    assert!(matches!(long, Verdict::RequestTooLong { needs_blocks: 8192, has_blocks: 1.. }), "{long}");

    let fits = h100("llama-3.1-8b", tensor_parallel(1)).verdict();
    assert!(fits.fits());
    assert_eq!(fits.reason(), "fits");
}

#[test]
fn graphs_count_against_the_budget_only_where_the_engine_subtracts_them() {
    let catalog = catalog();
    let model = catalog.model("llama-3.1-8b").unwrap();
    let gpu = catalog.gpu("h100-sxm").unwrap();
    let mut engine = catalog.engine(DEFAULT_ENGINE).unwrap().memory;
    let mut with_graphs = limits(128, 2048, 4096);
    let plan = |engine: &EngineMemory, limits: &EngineLimits| {
        capacity(&model, &gpu, tensor_parallel(1), Precision::BF16, limits, engine)
    };
    let outside = plan(&engine, &with_graphs);
    engine.graphs_in_budget = true;
    let inside = plan(&engine, &with_graphs);
    assert!(inside.kv_blocks < outside.kv_blocks);
    with_graphs.cuda_graph = false;
    assert_eq!(plan(&engine, &with_graphs).kv_blocks, outside.kv_blocks);
}

#[test]
fn more_of_anything_never_yields_more_blocks() {
    let blocks = |sequences, tokens| {
        plan_with("llama-3.1-8b", "h100-sxm", tensor_parallel(1), None, &limits(sequences, tokens, 4096)).kv_blocks
    };
    for pair in [64, 128, 256, 512, 1024].windows(2) {
        assert!(blocks(pair[1], 8192) <= blocks(pair[0], 8192));
    }
    for pair in [2048, 4096, 8192, 16_384, 32_768].windows(2) {
        assert!(blocks(64, pair[1]) < blocks(64, pair[0]));
    }
}
