//! Which tables are read, and which operators their rows are.

use crate::catalog::NumberFormat;
use crate::fidelity::expert_load::ExpertLoad;
use crate::fidelity::operator::{AttentionHeads, CollectiveKind, Experts, LatentBlock, Operator};

/// Folder of NCCL's tables; they have no engine.
pub(super) const NCCL: &str = "comm/nccl";
/// Bytes of an element in the 16-bit collective tables.
const HALF_BYTES: f64 = 2.0;

/// One kind of table.
pub(super) struct Table {
    /// Folder below the system's; the engine's and the version's folders lie below it.
    pub(super) family: &'static str,
    /// File in the version's folder.
    pub(super) file: &'static str,
    /// Columns with text, then columns with whole numbers, that a row is made of.
    pub(super) text: &'static [&'static str],
    /// Columns with whole numbers.
    pub(super) numbers: &'static [&'static str],
    /// The operators of a row (one, or one per launch mode), or why it is left out.
    pub(super) convert: fn(&Fields<'_>) -> Result<Vec<Operator>, String>,
}

/// The fields of one row, in the order of [`Table::text`] and [`Table::numbers`].
pub(super) struct Fields<'a> {
    pub(super) text: Vec<&'a str>,
    pub(super) numbers: Vec<u32>,
}

/// Every table that is read; NCCL's come last.
pub(super) const TABLES: &[Table] = &[
    Table {
        family: "gemm",
        file: "gemm_perf.parquet",
        text: &["gemm_dtype"],
        numbers: &["m", "n", "k"],
        convert: gemm,
    },
    Table {
        family: "attention",
        file: "context_attention_perf.parquet",
        text: &["kv_cache_dtype", "attn_dtype"],
        numbers: &["num_heads", "num_key_value_heads", "head_dim", "window_size", "batch_size", "isl", "step"],
        convert: prefill,
    },
    Table {
        family: "attention",
        file: "generation_attention_perf.parquet",
        text: &["kv_cache_dtype", "attn_dtype"],
        numbers: &["num_heads", "num_key_value_heads", "head_dim", "window_size", "batch_size", "isl", "step"],
        convert: decode,
    },
    Table {
        family: "moe",
        file: "moe_perf.parquet",
        text: &["moe_dtype", "distribution"],
        numbers: &["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"],
        convert: grouped,
    },
    Table {
        family: "mla",
        file: "mla_context_module_perf.parquet",
        text: &["kv_cache_dtype", "gemm_type", "mla_dtype"],
        numbers: &["num_heads", "batch_size", "isl", "step"],
        convert: latent_prefill,
    },
    Table {
        family: "mla",
        file: "mla_generation_module_perf.parquet",
        text: &["kv_cache_dtype", "gemm_type", "mla_dtype"],
        numbers: &["num_heads", "batch_size", "isl", "step"],
        convert: latent_decode,
    },
    Table {
        family: "mla_bmm",
        file: "mla_bmm_perf.parquet",
        text: &["op_name", "bmm_dtype"],
        numbers: &["num_tokens", "num_heads"],
        convert: latent_products,
    },
    Table {
        family: "comm",
        file: "custom_allreduce_perf.parquet",
        text: &["backend"],
        numbers: &["num_gpus", "message_size"],
        convert: custom_all_reduce,
    },
    Table {
        family: NCCL,
        file: "nccl_perf.parquet",
        text: &["nccl_dtype", "op_name"],
        numbers: &["num_gpus", "message_size"],
        convert: nccl,
    },
];

/// Weight and activation formats of a table's format name.
fn formats(name: &str) -> Result<(NumberFormat, NumberFormat), String> {
    Ok(match name {
        "bfloat16" | "float16" => (NumberFormat::Bf16, NumberFormat::Bf16),
        "fp8" => (NumberFormat::Fp8, NumberFormat::Fp8),
        "fp8_block" => (NumberFormat::Fp8Block, NumberFormat::Fp8Block),
        "int8" | "sq" => (NumberFormat::Int8, NumberFormat::Int8),
        "int4_wo" => (NumberFormat::Int4, NumberFormat::Bf16),
        "nvfp4" => (NumberFormat::Nvfp4, NumberFormat::Nvfp4),
        "mxfp4" | "w4a16_mxfp4" => (NumberFormat::Mxfp4, NumberFormat::Bf16),
        // 8-bit block floats as inputs: priced as fp8 arithmetic.
        "w4a8_mxfp4_mxfp8" => (NumberFormat::Mxfp4, NumberFormat::Fp8),
        other => return Err(format!("the format `{other}` is not supported")),
    })
}

fn gemm(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let (weights, activations) = formats(fields.text[0])?;
    let [tokens, n, k] = fixed(&fields.numbers)?;
    Ok(vec![Operator::Gemm { tokens, n, k, weights, activations }])
}

/// The numbers as an array; all of them must be positive.
pub(super) fn fixed<const N: usize>(numbers: &[u32]) -> Result<[u32; N], String> {
    let array = <[u32; N]>::try_from(numbers).map_err(|_| "a field is missing".to_owned())?;
    if array.contains(&0) { Err("a dimension is zero".to_owned()) } else { Ok(array) }
}

fn attention_heads(fields: &Fields<'_>) -> Result<AttentionHeads, String> {
    let [query, kv, head_dim] = fixed(&fields.numbers[..3])?;
    let kv_cache = formats(fields.text[0])?.0;
    if formats(fields.text[1])?.0 != NumberFormat::Bf16 {
        return Err(format!("attention in `{}`: only 16-bit arithmetic is fitted", fields.text[1]));
    }
    let window = Some(fields.numbers[3]).filter(|window| *window > 0);
    Ok(AttentionHeads { window, ..AttentionHeads::grouped(query, kv, head_dim, kv_cache) })
}

fn prefill(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let heads = attention_heads(fields)?;
    let [batch, chunk_tokens] = fixed(&fields.numbers[4..6])?;
    Ok(vec![Operator::PrefillAttention { batch, chunk_tokens, context_tokens: fields.numbers[6], heads }])
}

fn decode(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let heads = attention_heads(fields)?;
    let [batch, new_tokens] = fixed(&fields.numbers[4..6])?;
    let context_tokens = f64::from(new_tokens) + f64::from(fields.numbers[6]);
    Ok(vec![Operator::DecodeAttention { batch, context_tokens, longest_tokens: context_tokens, heads }])
}

/// Head count, batch, new tokens and tokens before, and the block's formats, of a latent attention block. A block on one
/// of several GPUs is listed by the heads that it holds.
fn latent_block(fields: &Fields<'_>) -> Result<([u32; 3], LatentBlock), String> {
    let [heads, batch, new_tokens] = fixed(&fields.numbers[..3])?;
    if fields.text[2] != "bfloat16" {
        return Err(format!("latent attention in `{}`: only 16-bit arithmetic is fitted", fields.text[2]));
    }
    let (kv_cache, weights) = (formats(fields.text[0])?.0, formats(fields.text[1])?.0);
    Ok(([batch, new_tokens, fields.numbers[3]], LatentBlock { heads, weights, kv_cache }))
}

fn latent_prefill(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let ([batch, tokens, before], block) = latent_block(fields)?;
    if before > 0 {
        return Err("latent attention on cached context is not fitted".to_owned());
    }
    Ok(vec![Operator::LatentPrefill { batch: f64::from(batch), tokens: f64::from(tokens), block }])
}

fn latent_decode(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let ([batch, new_tokens, before], block) = latent_block(fields)?;
    let context_tokens = f64::from(new_tokens) + f64::from(before);
    Ok(vec![Operator::LatentDecode { batch: f64::from(batch), context_tokens, block }])
}

/// Widths of DeepSeek-V3: queries of 128 become latents of 512, and outputs the other way round.
fn latent_products(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let [tokens, products] = fixed(&fields.numbers)?;
    let [n, k] = match fields.text[0] {
        "mla_gen_pre" => [512, 128],
        "mla_gen_post" => [128, 512],
        other => return Err(format!("the product `{other}` is not supported")),
    };
    if formats(fields.text[1])?.0 != NumberFormat::Bf16 {
        return Err(format!("products per head in `{}`: only 16-bit ones are fitted", fields.text[1]));
    }
    Ok(vec![Operator::BatchedGemm { products, tokens, n, k }])
}

fn grouped(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let (weights, activations) = formats(fields.text[0])?;
    let [tokens, hidden_size, inner, top_k, count, tensor_shards, expert_shards] = fixed(&fields.numbers)?;
    if inner % tensor_shards != 0 || count % expert_shards != 0 {
        return Err("the experts do not divide over the GPUs".to_owned());
    }
    let experts = Experts {
        hidden_size,
        intermediate_size: inner / tensor_shards,
        top_k,
        count,
        local: count / expert_shards,
        weights,
        activations,
    };
    let load = match fields.text[1].strip_prefix("power_law_").map(str::parse) {
        Some(Ok(exponent)) => ExpertLoad::power_law(exponent, tokens, &experts),
        None if fields.text[1] == "balanced" => ExpertLoad::balanced(tokens, &experts),
        _ => return Err(format!("the expert load `{}` is not supported", fields.text[1])),
    };
    Ok(vec![Operator::GroupedGemm { tokens, experts, load }])
}

fn custom_all_reduce(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let [gpus, elements] = fixed(&fields.numbers)?;
    let modes: &[bool] = match fields.text[0] {
        "vllm_graph" | "sglang_graph" => &[true],
        "vllm_eager" | "sglang_eager" => &[false],
        // One table for both: the kernel alone, replayed from a graph.
        "trtllm" => &[false, true],
        other => return Err(format!("the all-reduce backend `{other}` is not the engine's own")),
    };
    let bytes = f64::from(elements) * HALF_BYTES;
    let all_reduce =
        |graph: &bool| Operator::Collective { kind: CollectiveKind::AllReduce, bytes, gpus, graph: *graph };
    Ok(modes.iter().map(all_reduce).collect())
}

fn nccl(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let [gpus, elements] = fixed(&fields.numbers)?;
    if fields.text[0] != "half" {
        return Err(format!("collectives of `{}`: only 16-bit ones are fitted", fields.text[0]));
    }
    let kind = match fields.text[1] {
        "all_reduce" => CollectiveKind::AllReduce,
        "all_gather" => CollectiveKind::AllGather,
        "reduce_scatter" => CollectiveKind::ReduceScatter,
        "alltoall" => CollectiveKind::AllToAll,
        other => return Err(format!("the collective `{other}` is not supported")),
    };
    let bytes = f64::from(elements) * HALF_BYTES;
    let modes: &[bool] = if kind == CollectiveKind::AllReduce { &[false, true] } else { &[false] };
    Ok(modes.iter().map(|graph| Operator::Collective { kind, bytes, gpus, graph: *graph }).collect())
}
