//! Reads a Hugging Face `config.json`.
//!
//! To support another architecture, add an entry to `ARCHITECTURES` and, if no family fits, one file with its reader.

mod dense;
mod fields;
mod latent;
mod mixture;
mod quantization;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::model::{Attention, Layer, Model};
use crate::diag::{Diagnostic, Diagnostics, Source, nearest};
use fields::{Fields, span_of};

/// The parts of a model that differ between families.
struct Decoder {
    attention: Attention,
    layers: Vec<Layer>,
}

/// One entry of the registry: the class name in `architectures` and how its keys are read.
struct Architecture {
    name: &'static str,
    /// Key of the object that holds the language model, if the file describes more than that.
    nested: Option<&'static str>,
    read: fn(&mut Fields<'_>) -> Decoder,
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "LlamaForCausalLM", nested: None, read: dense::llama },
    Architecture { name: "MistralForCausalLM", nested: None, read: dense::mistral },
    Architecture { name: "Qwen2ForCausalLM", nested: None, read: dense::qwen2 },
    Architecture { name: "Qwen3ForCausalLM", nested: None, read: dense::qwen3 },
    Architecture { name: "MixtralForCausalLM", nested: None, read: mixture::mixtral },
    Architecture { name: "Qwen3MoeForCausalLM", nested: None, read: mixture::qwen3_moe },
    Architecture { name: "Llama4ForConditionalGeneration", nested: Some("text_config"), read: mixture::llama4 },
    Architecture { name: "GptOssForCausalLM", nested: None, read: mixture::gpt_oss },
    Architecture { name: "MiniMaxM2ForCausalLM", nested: None, read: mixture::minimax_m2 },
    Architecture { name: "DeepseekV3ForCausalLM", nested: None, read: latent::deepseek_v3 },
    Architecture { name: "KimiK25ForConditionalGeneration", nested: Some("text_config"), read: latent::deepseek_v3 },
    Architecture { name: "Step3TextForCausalLM", nested: None, read: latent::step3 },
];

/// More layers and heads than any published model has, and wider heads: products of these fit into 32 bits.
const MAX_LAYERS: u32 = 4096;
const MAX_HEADS: u32 = 4096;
const MAX_HEAD_DIM: u32 = 1 << 16;

/// The class names that [`parse`] understands.
pub fn known_architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name)
}

/// Reads the model that `source` describes and calls it `name`.
///
/// # Errors
/// Invalid JSON, an unknown architecture, missing keys, wrong types and unknown quantisation methods, all at once.
pub fn parse(name: &str, source: &Arc<Source>) -> Result<Model, Diagnostics> {
    let root = parse_object(source)?;
    let architecture = find_architecture(&root, source)?;
    let object = match architecture.nested {
        None => &root,
        Some(key) => root.get(key).and_then(Value::as_object).ok_or_else(|| {
            Diagnostic::new(format!("missing object `{key}` in the configuration of a `{}`", architecture.name))
                .at(source, span_of("architectures", &source.text))
        })?,
    };
    let mut fields = Fields::new(object, source);
    let decoder = (architecture.read)(&mut fields);
    let repository = repository(&root);
    // The quantisation is described beside the language model or inside it.
    let quantization = root.get("quantization_config").and_then(Value::as_object);
    let quantization = quantization.or_else(|| fields.object("quantization_config"));
    let (checkpoint, quantized) = quantization::read(quantization, &decoder.layers, &mut fields);
    let tied_at_root = root.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false);
    let model = Model {
        name: name.to_owned(),
        repository,
        hidden_size: fields.count("hidden_size"),
        vocab_size: fields.count("vocab_size"),
        tied_embeddings: fields.flag("tie_word_embeddings", tied_at_root),
        max_position_embeddings: fields.count("max_position_embeddings"),
        attention: decoder.attention,
        layers: decoder.layers,
        checkpoint,
        quantized,
    };
    let problems = fields.into_problems(architecture.name);
    if problems.is_empty() { Ok(model) } else { Err(Diagnostics(problems)) }
}

fn parse_object(source: &Arc<Source>) -> Result<Map<String, Value>, Diagnostic> {
    serde_json::from_str(&source.text).map_err(|error| {
        let line_start: usize =
            source.text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = (line_start + error.column().saturating_sub(1)).min(source.text.len());
        Diagnostic::new(format!("not a JSON object: {error}")).at(source, at..at)
    })
}

fn find_architecture(root: &Map<String, Value>, source: &Arc<Source>) -> Result<&'static Architecture, Diagnostic> {
    let known = || known_architectures().collect::<Vec<_>>().join(", ");
    let named = root.get("architectures").and_then(|list| list.get(0)).and_then(Value::as_str);
    let Some(named) = named else {
        return Err(Diagnostic::new("missing `architectures`: a list with the name of the model's class")
            .at(source, 0..0)
            .help(format!("known architectures: {}", known())));
    };
    ARCHITECTURES.iter().find(|architecture| architecture.name == named).ok_or_else(|| {
        let guess = nearest(named, known_architectures())
            .map_or(String::new(), |name| format!("; if its layers are the same, write `{name}`"));
        Diagnostic::new(format!("unknown architecture `{named}`"))
            .at(source, span_of(named, &source.text))
            .help(format!("known architectures: {}{guess}", known()))
    })
}

/// `_source` of our own files, else `_name_or_path` where it looks like a repository.
fn repository(root: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| root.get(key).and_then(Value::as_str);
    let is_repository = |name: &&str| !name.starts_with(['/', '.']) && name.matches('/').count() == 1;
    text("_source").or_else(|| text("_name_or_path")).filter(is_repository).map(str::to_owned)
}

fn layer_count(fields: &mut Fields<'_>) -> u32 {
    fields.count_up_to("num_hidden_layers", MAX_LAYERS)
}

/// The heads of MHA, GQA and MQA; without `head_dim` the heads share the residual width.
fn grouped_attention(fields: &mut Fields<'_>, qkv_bias: bool, qk_norm: bool, sinks: bool) -> Attention {
    let heads = fields.count_up_to("num_attention_heads", MAX_HEADS);
    let kv_heads = fields.optional("num_key_value_heads").unwrap_or(heads).clamp(1, MAX_HEADS);
    if !heads.is_multiple_of(kv_heads) {
        fields.problem(
            "num_key_value_heads",
            format!("{heads} attention heads cannot share {kv_heads} key-value heads evenly"),
        );
    }
    let head_dim = match fields.optional("head_dim") {
        Some(_) => fields.count_up_to("head_dim", MAX_HEAD_DIM),
        None => (fields.count("hidden_size") / heads).clamp(1, MAX_HEAD_DIM),
    };
    Attention::Grouped { heads, kv_heads, head_dim, qkv_bias, qk_norm, sinks }
}
