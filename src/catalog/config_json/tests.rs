use serde_json::json;

use super::*;
use crate::catalog::model::{Ffn, Quantized};
use crate::catalog::precision::{NumberFormat, Precision};

fn read(config: &Value) -> Result<Model, Diagnostics> {
    let source = Source { name: "config.json".to_owned(), text: serde_json::to_string_pretty(config).unwrap() };
    parse("test", &Arc::new(source))
}

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1000,
        "max_position_embeddings": 8192, "tie_word_embeddings": true
    })
}

fn with(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

/// Formats of a two-layer Llama with this `quantization_config`.
fn quantized(config: Value) -> (Precision, Quantized) {
    let model = read(&with(llama(), "quantization_config", config)).unwrap();
    (model.checkpoint, model.quantized)
}

#[test]
fn a_llama_is_read_and_its_head_width_follows_from_the_residual_width() {
    let model = read(&llama()).unwrap();
    assert!(model.tied_embeddings);
    assert_eq!(model.checkpoint, Precision::BF16);
    assert_eq!(model.layers, vec![Layer { window: None, ffn: Ffn::Dense { intermediate_size: 14336 } }; 2]);
    assert!(matches!(model.attention, Attention::Grouped { heads: 32, kv_heads: 8, head_dim: 128, .. }));
}

#[test]
fn all_missing_keys_are_listed_at_once_beside_other_problems() {
    let mut config = with(llama(), "intermediate_size", json!("wide"));
    config.as_object_mut().unwrap().remove("vocab_size");
    config.as_object_mut().unwrap().remove("num_hidden_layers");
    let error = read(&config).unwrap_err();
    let messages: Vec<&str> = error.0.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "missing `num_hidden_layers`, `vocab_size` in the configuration of a `LlamaForCausalLM`",
            "`intermediate_size` must be a whole number, found `\"wide\"`",
        ]
    );
}

#[test]
fn an_unknown_architecture_lists_the_known_ones() {
    let error = read(&with(llama(), "architectures", json!(["LlamaForCausalLN"]))).unwrap_err();
    assert_eq!(error.0[0].message, "unknown architecture `LlamaForCausalLN`");
    let help = error.0[0].help.as_ref().unwrap();
    assert!(help.contains("DeepseekV3ForCausalLM") && help.ends_with("write `LlamaForCausalLM`"), "{help}");
}

#[test]
fn broken_json_and_nonsense_numbers_are_errors_not_panics() {
    let broken = Source { name: "config.json".to_owned(), text: "{\n  \"hidden_size\": ,\n}".to_owned() };
    let error = parse("test", &Arc::new(broken)).unwrap_err();
    let location = error.0[0].location.as_ref().unwrap();
    assert_eq!(location.source.text[..location.span.start].matches('\n').count(), 1);
    for (key, value) in [
        ("num_attention_heads", json!(0)),
        ("num_attention_heads", json!(4_000_000_000_u32)),
        ("num_hidden_layers", json!(1_000_000_000)),
        ("head_dim", json!(4_000_000_000_u32)),
        ("hidden_size", json!(-1)),
        ("num_key_value_heads", json!(7)),
        ("architectures", json!([])),
        ("quantization_config", json!({"quant_method": "magic"})),
    ] {
        assert!(read(&with(llama(), key, value.clone())).is_err(), "{key} = {value}");
    }
}

#[test]
fn sliding_layers_follow_the_list_or_alternate() {
    let mut config = llama();
    config["architectures"] = json!(["GptOssForCausalLM"]);
    config["sliding_window"] = json!(128);
    config["num_local_experts"] = json!(8);
    config["num_experts_per_tok"] = json!(2);
    let windows = |config: &Value| -> Vec<Option<u32>> {
        read(config).unwrap().layers.iter().map(|layer| layer.window).collect()
    };
    assert_eq!(windows(&config), [Some(128), None]);
    config["layer_types"] = json!(["full_attention", "sliding_attention"]);
    assert_eq!(windows(&config), [None, Some(128)]);
}

#[test]
fn a_window_that_is_switched_off_is_ignored() {
    let config = with(with(llama(), "architectures", json!(["Qwen2ForCausalLM"])), "sliding_window", json!(4096));
    assert!(read(&config).unwrap().layers.iter().all(|layer| layer.window.is_none()));
    let on = with(with(config, "use_sliding_window", json!(true)), "max_window_layers", json!(1));
    assert_eq!(read(&on).unwrap().layers[1].window, Some(4096));
}

#[test]
fn dense_layers_come_before_experts_in_deepseek() {
    let model = read(&json!({
        "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "moe_intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "q_lora_rank": null,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8,
        "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "vocab_size": 100,
        "max_position_embeddings": 1024
    }))
    .unwrap();
    assert_eq!(model.layers[0].ffn, Ffn::Dense { intermediate_size: 128 });
    assert!(matches!(model.layers[1].ffn, Ffn::MixtureOfExperts { shared_intermediate_size: 64, .. }));
    assert!(matches!(model.attention, Attention::Latent { q_lora_rank: None, .. }));
}

#[test]
fn the_common_quantisations_are_recognised() {
    use NumberFormat::{Bf16, Fp8, Fp8Block, Int4, Int8, Nvfp4};
    let group = |bits: u32, kind: &str, strategy: &str, activations: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
            "weights": {"num_bits": bits, "type": kind, "strategy": strategy}, "input_activations": activations}}})
    };
    for (config, weights, activations, kv_cache) in [
        (json!({"quant_method": "fp8"}), Fp8, Fp8, Bf16),
        (json!({"quant_method": "fp8", "weight_block_size": [128, 128]}), Fp8Block, Fp8Block, Bf16),
        (json!({"quant_method": "fbgemm_fp8"}), Fp8, Fp8, Bf16),
        (json!({"quant_method": "gptq", "bits": 4}), Int4, Bf16, Bf16),
        (json!({"quant_method": "awq", "bits": 4}), Int4, Bf16, Bf16),
        (group(8, "float", "channel", json!({})), Fp8, Fp8, Bf16),
        (group(8, "int", "channel", json!({})), Int8, Int8, Bf16),
        (group(4, "int", "group", Value::Null), Int4, Bf16, Bf16),
        (
            json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"type": "float"}}),
            Nvfp4,
            Nvfp4,
            Fp8,
        ),
        (
            json!({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}),
            Fp8,
            Fp8,
            Fp8,
        ),
    ] {
        assert_eq!(quantized(config.clone()).0, Precision { weights, activations, kv_cache }, "{config}");
    }
}

#[test]
fn exclusion_lists_say_what_stays_in_bf16() {
    let part = |ignore: Value| quantized(json!({"quant_method": "fp8", "ignore": ignore})).1;
    assert_eq!(part(json!(["lm_head"])), Quantized::Linears);
    // One layer of two is an exception, both are a rule.
    assert_eq!(part(json!(["model.layers.0.self_attn*"])), Quantized::Linears);
    assert_eq!(part(json!(["model.layers.0.self_attn*", "model.layers.1.self_attn*"])), Quantized::FeedForward);
    assert_eq!(part(json!(["re:.*self_attn.*"])), Quantized::FeedForward);
}
