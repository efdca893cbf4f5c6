//! `quantization_config`: which number formats a checkpoint uses, and for which of its linear layers.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::catalog::model::{Ffn, Layer, Quantized};
use crate::catalog::precision::{NumberFormat, Precision};

type Object = Map<String, Value>;

/// Reads the methods of the checkpoints that vLLM and SGLang load; no configuration means bf16.
pub(super) fn read(config: Option<&Object>, layers: &[Layer], fields: &mut Fields<'_>) -> (Precision, Quantized) {
    let Some(config) = config else { return (Precision::BF16, Quantized::Linears) };
    let method = text(config, "quant_method").unwrap_or_default();
    let formats = match method {
        "fp8" if config.get("weight_block_size").is_some_and(Value::is_array) => {
            Some((NumberFormat::Fp8Block, NumberFormat::Fp8Block))
        }
        "fp8" | "fbgemm_fp8" => Some((NumberFormat::Fp8, NumberFormat::Fp8)),
        "modelopt" | "modelopt_fp4" => modelopt(config),
        "compressed-tensors" => compressed_tensors(config),
        "gptq" | "awq" => integer_weights(config.get("bits").or_else(|| config.get("w_bit")).and_then(Value::as_u64)),
        "mxfp4" => Some((NumberFormat::Mxfp4, NumberFormat::Bf16)),
        _ => None,
    };
    let Some((weights, activations)) = formats else {
        fields.problem_with_help(
            "quantization_config",
            format!("cannot tell the number formats of `quantization_config` with method `{method}`"),
            "known: fp8, fbgemm_fp8, modelopt (FP8, NVFP4), compressed-tensors (8-bit, int4, nvfp4), gptq and awq \
             (4 and 8 bits), mxfp4; remove the key to get bf16 and choose the precision in the sweep"
                .to_owned(),
        );
        return (Precision::BF16, Quantized::Linears);
    };
    let quantized = if method == "mxfp4" { Quantized::RoutedExperts } else { quantized_part(config, layers) };
    (Precision { weights, activations, kv_cache: kv_cache(config) }, quantized)
}

fn text<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

fn modelopt(config: &Object) -> Option<(NumberFormat, NumberFormat)> {
    let inner = config.get("quantization").and_then(Value::as_object);
    let algorithm = text(config, "quant_algo").or_else(|| inner.and_then(|inner| text(inner, "quant_algo")));
    match algorithm? {
        "FP8" => Some((NumberFormat::Fp8, NumberFormat::Fp8)),
        "NVFP4" => Some((NumberFormat::Nvfp4, NumberFormat::Nvfp4)),
        _ => None,
    }
}

/// The first group decides; checkpoints with several differ in details only.
fn compressed_tensors(config: &Object) -> Option<(NumberFormat, NumberFormat)> {
    let group = config.get("config_groups")?.as_object()?.values().next()?;
    let weights = group.get("weights")?;
    let scheme = |part: &Value| Some((part.get("num_bits")?.as_u64()?, part.get("type")?.as_str()?.to_owned()));
    let by_block = weights.get("strategy").and_then(Value::as_str) == Some("block");
    let weight_only = group.get("input_activations").is_none_or(Value::is_null);
    let (bits, kind) = scheme(weights)?;
    let format = match (bits, kind.as_str()) {
        (8, "float") if by_block => NumberFormat::Fp8Block,
        (8, "float") => NumberFormat::Fp8,
        (8, "int") => NumberFormat::Int8,
        (4, "float") => NumberFormat::Nvfp4,
        (4, "int") => NumberFormat::Int4,
        _ => return None,
    };
    Some((format, if weight_only { NumberFormat::Bf16 } else { format }))
}

fn integer_weights(bits: Option<u64>) -> Option<(NumberFormat, NumberFormat)> {
    match bits? {
        4 => Some((NumberFormat::Int4, NumberFormat::Bf16)),
        8 => Some((NumberFormat::Int8, NumberFormat::Bf16)),
        _ => None,
    }
}

fn kv_cache(config: &Object) -> NumberFormat {
    let inner = config.get("quantization").and_then(Value::as_object).unwrap_or(config);
    let algorithm = text(inner, "kv_cache_quant_algo");
    let scheme = config.get("kv_cache_scheme").and_then(Value::as_object);
    match (algorithm, scheme.and_then(|scheme| text(scheme, "type"))) {
        (Some("FP8"), _) | (_, Some("float")) => NumberFormat::Fp8,
        (Some("INT8"), _) | (_, Some("int")) => NumberFormat::Int8,
        _ => NumberFormat::Bf16,
    }
}

/// What the exclusion list leaves quantised. Single excluded layers do not matter; a class of layers does.
fn quantized_part(config: &Object, layers: &[Layer]) -> Quantized {
    let excluded: Vec<&str> = ["ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"]
        .iter()
        .filter_map(|key| config.get(*key).and_then(Value::as_array))
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let excludes = |part: &str| {
        let hits: Vec<&str> =
            excluded.iter().filter_map(|entry| entry.split_once(part)).map(|(head, _)| head).collect();
        hits.len() >= layers.len() || hits.iter().any(|head| head.is_empty() || head.contains('*'))
    };
    let has_experts = layers.iter().any(|layer| matches!(layer.ffn, Ffn::MixtureOfExperts { .. }));
    match (excludes("self_attn"), has_experts && excludes("shared_expert")) {
        (false, _) => Quantized::Linears,
        (true, false) => Quantized::FeedForward,
        (true, true) => Quantized::RoutedExperts,
    }
}
