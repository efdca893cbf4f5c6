//! Kernel tables of NVIDIA's AIConfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0): a folder per GPU system
//! with `{gemm,attention,moe}/vllm/VERSION/*.parquet` and `comm/{nccl,vllm}/VERSION/*.parquet`; latencies in
//! milliseconds, message sizes in elements.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::{Array, Float64Array, Int64Array, LargeStringArray, RecordBatch, StringArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Importer, Measurement, Measurements};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::card::DroppedRows;
use crate::fidelity::expert_load::ExpertLoad;
use crate::fidelity::operator::{AttentionHeads, CollectiveKind, Experts, LatentBlock, Operator};

/// Registry entry.
pub const IMPORTER: Importer = Importer {
    name: "aiconfigurator",
    summary: "parquet tables of AIConfigurator: a folder of one GPU system",
    import,
};

/// The NCCL release line that vLLM ships (PyTorch's `nvidia-nccl-cu12` 2.27); tables of other lines are used only where
/// this one is missing.
const PREFERRED_NCCL: &str = "2.27";
/// Bytes of an element in the 16-bit collective tables.
const HALF_BYTES: f64 = 2.0;

/// One kind of table.
struct Table {
    /// Folder below the system's, above the version.
    folder: &'static str,
    /// File in the version's folder.
    file: &'static str,
    /// Columns with text, then columns with whole numbers, that a row is made of.
    text: &'static [&'static str],
    numbers: &'static [&'static str],
    /// The operators of a row (one, or one per launch mode), or why it is left out.
    convert: fn(&Fields<'_>) -> Result<Vec<Operator>, String>,
}

const TABLES: &[Table] = &[
    Table {
        folder: "gemm/vllm",
        file: "gemm_perf.parquet",
        text: &["gemm_dtype"],
        numbers: &["m", "n", "k"],
        convert: gemm,
    },
    Table {
        folder: "attention/vllm",
        file: "context_attention_perf.parquet",
        text: &["kv_cache_dtype"],
        numbers: &["num_heads", "num_key_value_heads", "head_dim", "window_size", "batch_size", "isl", "step"],
        convert: prefill,
    },
    Table {
        folder: "attention/vllm",
        file: "generation_attention_perf.parquet",
        text: &["kv_cache_dtype"],
        numbers: &["num_heads", "num_key_value_heads", "head_dim", "window_size", "batch_size", "isl", "step"],
        convert: decode,
    },
    Table {
        folder: "moe/vllm",
        file: "moe_perf.parquet",
        text: &["moe_dtype", "distribution"],
        numbers: &["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"],
        convert: grouped,
    },
    Table {
        folder: "mla/vllm",
        file: "mla_context_module_perf.parquet",
        text: &["kv_cache_dtype", "gemm_type", "mla_dtype"],
        numbers: &["num_heads", "batch_size", "isl", "step"],
        convert: latent_prefill,
    },
    Table {
        folder: "mla/vllm",
        file: "mla_generation_module_perf.parquet",
        text: &["kv_cache_dtype", "gemm_type", "mla_dtype"],
        numbers: &["num_heads", "batch_size", "isl", "step"],
        convert: latent_decode,
    },
    Table {
        folder: "mla_bmm/vllm",
        file: "mla_bmm_perf.parquet",
        text: &["op_name"],
        numbers: &["num_tokens", "num_heads"],
        convert: latent_products,
    },
    Table {
        folder: "comm/vllm",
        file: "custom_allreduce_perf.parquet",
        text: &["backend"],
        numbers: &["num_gpus", "message_size"],
        convert: custom_all_reduce,
    },
    Table {
        folder: "comm/nccl",
        file: "nccl_perf.parquet",
        text: &["nccl_dtype", "op_name"],
        numbers: &["num_gpus", "message_size"],
        convert: nccl,
    },
];

/// The fields of one row, in the order of [`Table::text`] and [`Table::numbers`].
struct Fields<'a> {
    text: Vec<&'a str>,
    numbers: Vec<u32>,
}

/// Left-out rows by reason: how many, and the first one.
#[derive(Default)]
struct Dropped(BTreeMap<String, (usize, String)>);

impl Dropped {
    fn add(&mut self, reason: String, rows: usize, example: impl FnOnce() -> String) {
        self.0.entry(reason).or_insert_with(|| (0, example())).0 += rows;
    }
}

/// Reads the tables of `engine` (e.g. `vllm-0.19`) from the folder of one GPU system.
///
/// # Errors
/// If the folder holds no table of this engine version, or a file cannot be read or lacks a column.
pub fn import(folder: &Path, engine: &str) -> Result<Measurements, Diagnostic> {
    let version = engine.strip_prefix("vllm-").ok_or_else(|| {
        Diagnostic::new(format!("this importer knows no engine `{engine}`"))
            .help("give the engine as `vllm-VERSION`, e.g. `vllm-0.19`")
    })?;
    let mut measurements = Measurements {
        source: format!("AIConfigurator kernel tables, {engine} and NCCL (github.com/ai-dynamo/aiconfigurator)"),
        licence: "Apache-2.0".to_owned(),
        attribution: "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES".to_owned(),
        ..Measurements::default()
    };
    let mut dropped = Dropped::default();
    for table in TABLES {
        let wanted = if table.folder == "comm/nccl" { PREFERRED_NCCL } else { version };
        if let Some(path) = find(folder, table, wanted) {
            read(&path, table, &mut measurements.rows, &mut dropped)?;
        }
    }
    if measurements.rows.is_empty() {
        return Err(Diagnostic::new(format!("`{}` holds no tables of `{engine}`", folder.display()))
            .help("give the folder of one GPU system, which has the folders `gemm`, `attention` and `comm`"));
    }
    prefer_custom_all_reduce(&mut measurements.rows, &mut dropped);
    measurements.dropped =
        dropped.0.into_iter().map(|(reason, (rows, example))| DroppedRows { reason, rows, example }).collect();
    Ok(measurements)
}

/// The table's file of the wanted version, e.g. `0.19` finds `0.19.0`; for NCCL any version will do.
fn find(folder: &Path, table: &Table, wanted: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder.join(table.folder)).ok()?;
    let mut versions: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    versions.sort();
    let matches =
        |version: &&String| version.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let version = match versions.iter().find(matches) {
        Some(version) => version,
        None if table.folder == "comm/nccl" => versions.last()?,
        None => return None,
    };
    let path = folder.join(table.folder).join(version).join(table.file);
    path.is_file().then_some(path)
}

/// Appends the rows of one file.
fn read(path: &Path, table: &Table, rows: &mut Vec<Measurement>, dropped: &mut Dropped) -> Result<(), Diagnostic> {
    let fail = |reason: String| Diagnostic::new(format!("cannot read the table `{}`: {reason}", path.display()));
    let file = File::open(path).map_err(|error| fail(error.to_string()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(ParquetRecordBatchReaderBuilder::build)
        .map_err(|error| fail(error.to_string()))?;
    for batch in reader {
        let batch = batch.map_err(|error| fail(error.to_string()))?;
        read_batch(&batch, table, rows, dropped).map_err(fail)?;
    }
    Ok(())
}

fn read_batch(
    batch: &RecordBatch,
    table: &Table,
    rows: &mut Vec<Measurement>,
    dropped: &mut Dropped,
) -> Result<(), String> {
    let text: Vec<Vec<Option<&str>>> =
        table.text.iter().map(|name| text_column(batch, name)).collect::<Result<_, _>>()?;
    let numbers: Vec<&Int64Array> = table.numbers.iter().map(|name| column(batch, name)).collect::<Result<_, _>>()?;
    let latency: &Float64Array = column(batch, "latency")?;
    for row in 0..batch.num_rows() {
        let example = || {
            let mut parts: Vec<String> = table
                .text
                .iter()
                .zip(&text)
                .map(|(name, values)| format!("{name} {}", values[row].unwrap_or("")))
                .collect();
            parts
                .extend(table.numbers.iter().zip(&numbers).map(|(name, array)| format!("{name} {}", array.value(row))));
            format!("{}: {}", table.file.trim_end_matches("_perf.parquet"), parts.join(", "))
        };
        let missing = text.iter().any(|values| values[row].is_none()) || numbers.iter().any(|array| array.is_null(row));
        let latency_ms = if latency.is_null(row) { f64::NAN } else { latency.value(row) };
        let fields: Option<Vec<u32>> = numbers.iter().map(|array| u32::try_from(array.value(row)).ok()).collect();
        let converted = match fields {
            _ if missing => Err("a field is empty".to_owned()),
            None => Err("a count is negative or too large".to_owned()),
            _ if !(latency_ms.is_finite() && latency_ms > 0.0) => Err("the latency is not positive".to_owned()),
            Some(numbers) => {
                (table.convert)(&Fields { text: text.iter().filter_map(|values| values[row]).collect(), numbers })
            }
        };
        match converted {
            Ok(operators) => {
                rows.extend(
                    operators.into_iter().map(|operator| Measurement { operator, latency_ns: latency_ms * 1e6 }),
                );
            }
            Err(reason) => dropped.add(reason, 1, example),
        }
    }
    Ok(())
}

/// A text column by name; some tables have 64-bit offsets.
fn text_column<'a>(batch: &'a RecordBatch, name: &str) -> Result<Vec<Option<&'a str>>, String> {
    match column::<LargeStringArray>(batch, name) {
        Ok(array) => Ok(array.iter().collect()),
        Err(_) => column::<StringArray>(batch, name).map(|array| array.iter().collect()),
    }
}

/// A column by name and type. The tables hold text, 64-bit integers and 64-bit floats only.
fn column<'a, A: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a A, String> {
    let array = batch.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
    array.as_any().downcast_ref::<A>().ok_or_else(|| format!("column `{name}` has the type {}", array.data_type()))
}

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
fn fixed<const N: usize>(numbers: &[u32]) -> Result<[u32; N], String> {
    let array = <[u32; N]>::try_from(numbers).map_err(|_| "a field is missing".to_owned())?;
    if array.contains(&0) { Err("a dimension is zero".to_owned()) } else { Ok(array) }
}

fn attention_heads(fields: &Fields<'_>) -> Result<AttentionHeads, String> {
    let [query, kv, head_dim] = fixed(&fields.numbers[..3])?;
    let kv_cache = formats(fields.text[0])?.0;
    let window = Some(fields.numbers[3]).filter(|window| *window > 0);
    Ok(AttentionHeads {
        query,
        kv,
        qk_dim: head_dim,
        v_dim: head_dim,
        cached_elements_per_token: 2 * kv * head_dim,
        window,
        kv_cache,
    })
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
    Ok(vec![Operator::decode_attention(batch, context_tokens, heads)])
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
    let graph = match fields.text[0] {
        "vllm_graph" => true,
        "vllm_eager" => false,
        other => return Err(format!("the all-reduce backend `{other}` is not vLLM's")),
    };
    let bytes = f64::from(elements) * HALF_BYTES;
    Ok(vec![Operator::Collective { kind: CollectiveKind::AllReduce, bytes, gpus, graph }])
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

/// vLLM's own all-reduce table covers every size: its kernels where they apply, NCCL above. Where it exists, NCCL's
/// all-reduce rows, which come last, are left out.
fn prefer_custom_all_reduce(rows: &mut Vec<Measurement>, dropped: &mut Dropped) {
    let is_all_reduce =
        |row: &Measurement| matches!(row.operator, Operator::Collective { kind: CollectiveKind::AllReduce, .. });
    let is_gather = |row: &Measurement| matches!(row.operator, Operator::Collective { kind, .. } if kind != CollectiveKind::AllReduce);
    // NCCL's file opens with all-gathers, so all-reduces before the first of those are vLLM's.
    let Some(first_nccl) = rows.iter().position(is_gather) else { return };
    if !rows[..first_nccl].iter().any(is_all_reduce) {
        return;
    }
    let mut position = 0;
    rows.retain(|row| {
        let drop = position >= first_nccl && is_all_reduce(row);
        position += 1;
        if drop {
            dropped
                .add("NCCL all-reduces: vLLM's own table covers them".to_owned(), 1, || format!("{:?}", row.operator));
        }
        !drop
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field, Schema};
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn write_gemm(folder: &Path, with_k: bool, latencies: &[f64]) {
        let folder = folder.join("gemm/vllm/0.19.0");
        fs::create_dir_all(&folder).unwrap();
        let count = latencies.len();
        let int = |value: i64| Arc::new(Int64Array::from(vec![value; count])) as Arc<dyn Array>;
        let mut fields = vec![
            Field::new("gemm_dtype", DataType::Utf8, true),
            Field::new("latency", DataType::Float64, true),
            Field::new("m", DataType::Int64, true),
            Field::new("n", DataType::Int64, true),
        ];
        let mut columns: Vec<Arc<dyn Array>> = vec![
            Arc::new(StringArray::from(vec!["fp8"; count])),
            Arc::new(Float64Array::from(latencies.to_vec())),
            int(16),
            int(1024),
        ];
        if with_k {
            fields.push(Field::new("k", DataType::Int64, true));
            columns.push(int(2048));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let file = File::create(folder.join("gemm_perf.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn reads_columns_by_name_and_names_bad_rows() {
        let folder = tempfile::tempdir().unwrap();
        write_gemm(folder.path(), true, &[0.5, -1.0, f64::NAN]);
        let measurements = import(folder.path(), "vllm-0.19").unwrap();
        let fp8 = NumberFormat::Fp8;
        let operator = Operator::Gemm { tokens: 16, n: 1024, k: 2048, weights: fp8, activations: fp8 };
        assert_eq!(measurements.rows, [Measurement { operator, latency_ns: 0.5e6 }]);
        assert_eq!(measurements.dropped.len(), 1);
        assert_eq!(measurements.dropped[0].rows, 2);
        assert!(measurements.dropped[0].reason.contains("not positive"));
        assert!(measurements.dropped[0].example.contains("m 16"), "{}", measurements.dropped[0].example);
    }

    #[test]
    fn a_missing_column_or_version_is_a_diagnostic() {
        let folder = tempfile::tempdir().unwrap();
        write_gemm(folder.path(), false, &[0.5]);
        assert!(import(folder.path(), "vllm-0.19").unwrap_err().message.contains("no column `k`"));
        assert!(import(folder.path(), "vllm-0.1").unwrap_err().message.contains("no tables"));
        assert!(import(folder.path(), "other-1").unwrap_err().help.is_some());
    }
}
