//! Operator tables of LLMServingSim (github.com/casys-kaist/LLMServingSim, MIT): per GPU, model and number format a
//! `meta.yaml` and folders `tpN` with `dense.csv`, `per_sequence.csv`, `attention.csv`, `skew.csv` and `moe.csv`; times
//! of kernels in microseconds.

use std::fs;
use std::path::{Path, PathBuf};

use super::csv::{Csv, Record};
use super::{Dropped, Importer, Measurement, Measurements, in_release_line, version_of};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::expert_load::ExpertLoad;
use crate::fidelity::operator::{AttentionHeads, Experts, Operator, StreamingKind};

/// Registry entry.
pub const IMPORTER: Importer = Importer {
    name: "llmservingsim",
    summary: "CSV tables of LLMServingSim: a folder of one GPU or of one of its models; the engine is the profiled \
              vLLM, e.g. `vllm-0.19`",
    import,
};

/// Bytes of an activation element.
const ACTIVATION_BYTES: f64 = 2.0;

/// Widths that `meta.yaml` lacks, from the published `config.json` of each model.
struct Widths {
    model: &'static str,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head: u32,
    inner: u32,
    vocab: u32,
    /// Experts, experts per token, inner width of one.
    experts: Option<[u32; 3]>,
}

const MODELS: &[Widths] = &[
    Widths {
        model: "meta-llama/Llama-3.1-8B",
        hidden: 4096,
        heads: 32,
        kv_heads: 8,
        head: 128,
        inner: 14_336,
        vocab: 128_256,
        experts: None,
    },
    Widths {
        model: "Qwen/Qwen3-32B",
        hidden: 5120,
        heads: 64,
        kv_heads: 8,
        head: 128,
        inner: 25_600,
        vocab: 151_936,
        experts: None,
    },
    Widths {
        model: "Qwen/Qwen3-30B-A3B-Instruct-2507",
        hidden: 2048,
        heads: 32,
        kv_heads: 4,
        head: 128,
        inner: 6144,
        vocab: 151_936,
        experts: Some([128, 8, 768]),
    },
];

/// A model split over some GPUs.
struct Shard {
    model: &'static Widths,
    tensor: u32,
}

/// One kind of table.
struct Table {
    file: &'static str,
    columns: &'static [&'static str],
    time: &'static str,
    /// Runs that the time sums up.
    runs: f64,
    convert: fn(&Shard, &Record<'_>) -> Result<Operator, String>,
}

const TABLES: &[Table] = &[
    Table { file: "dense.csv", columns: &["layer", "tokens"], time: "time_us", runs: 1.0, convert: Shard::dense },
    Table {
        file: "per_sequence.csv",
        columns: &["layer", "sequences"],
        time: "time_us",
        runs: 1.0,
        convert: Shard::head,
    },
    Table {
        file: "attention.csv",
        columns: &["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"],
        time: "time_us",
        runs: 1.0,
        convert: Shard::attention,
    },
    Table {
        file: "skew.csv",
        columns: &["regime", "n", "nb", "kvs", "kv_big", "kv_mean"],
        time: "t_skew_us",
        // At equal lengths its times are three times those of `attention.csv`: the three runs of a measurement.
        runs: 3.0,
        convert: Shard::skewed_decode,
    },
    Table {
        file: "moe.csv",
        columns: &["tokens", "activated_experts"],
        time: "time_us",
        runs: 1.0,
        convert: Shard::grouped,
    },
];

/// Reads the tables of `engine` below a folder.
///
/// # Errors
/// An engine other than the profiled one, a model whose widths are not known, a table that cannot be read or lacks a
/// column, or no usable row.
pub fn import(folder: &Path, engine: &str) -> Result<Measurements, Diagnostic> {
    let Some(version) = version_of(engine, "vllm") else {
        return Err(Diagnostic::new(format!("LLMServingSim's tables know no engine `{engine}`"))
            .help("give the engine as `vllm-VERSION`, e.g. `vllm-0.19`"));
    };
    let mut profiles = Vec::new();
    find_profiles(folder, 4, &mut profiles);
    profiles.sort();
    let (mut rows, mut dropped) = (Vec::new(), Dropped::default());
    for profile in profiles {
        read_profile(&profile, version, &mut rows, &mut dropped)?;
    }
    if rows.is_empty() {
        return Err(Diagnostic::new(format!("`{}` holds no tables of `{engine}`", folder.display()))
            .help("give a folder of one GPU, such as `profiles/RTXPRO6000`, or of one of its models"));
    }
    Ok(Measurements {
        rows,
        dropped: dropped.finish(),
        in_engine: true,
        source: format!("LLMServingSim operator tables, {engine} (github.com/casys-kaist/LLMServingSim)"),
        licence: "MIT".to_owned(),
        attribution: "Copyright (c) 2024, CASYS Lab at KAIST".to_owned(),
        ..Measurements::default()
    })
}

/// Folders with a `meta.yaml`.
fn find_profiles(folder: &Path, depth: u32, profiles: &mut Vec<PathBuf>) {
    if folder.join("meta.yaml").is_file() {
        profiles.push(folder.to_owned());
    } else if depth > 0 {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            find_profiles(&entry.path(), depth - 1, profiles);
        }
    }
}

/// The value of a key at the left margin of a YAML file, quotes removed.
fn yaml_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(value.trim().trim_matches(['\'', '"']))
}

fn read_profile(
    folder: &Path,
    version: &str,
    rows: &mut Vec<Measurement>,
    dropped: &mut Dropped,
) -> Result<(), Diagnostic> {
    let path = folder.join("meta.yaml");
    let text = fs::read_to_string(&path)
        .map_err(|error| Diagnostic::new(format!("cannot read `{}`: {error}", path.display())))?;
    let key = |name: &str| {
        yaml_value(&text, name).ok_or_else(|| Diagnostic::new(format!("`{}` has no key `{name}`", path.display())))
    };
    let (profiled, name, variant) = (key("vllm_version")?, key("model")?, key("variant")?);
    let model = MODELS.iter().find(|model| model.model == name);
    let skip = match model {
        _ if !in_release_line(profiled, version) => Some(format!("tables of vLLM {profiled}")),
        _ if variant != "bf16" => Some(format!("tables in `{variant}`: only bf16 ones are read")),
        None => Some(format!("tables of `{name}`, whose widths are not known")),
        Some(_) => None,
    };
    for tensor in [1, 2, 4, 8] {
        let tables = folder.join(format!("tp{tensor}"));
        for table in TABLES {
            let path = tables.join(table.file);
            match (model, &skip) {
                _ if !path.is_file() => {}
                (Some(model), None) => read_table(&path, table, &Shard { model, tensor }, rows, dropped)?,
                (_, reason) => {
                    let count = Csv::load(&path, &[])?.records().count();
                    dropped.add(reason.clone().unwrap_or_default(), count, || path.display().to_string());
                }
            }
        }
    }
    Ok(())
}

fn read_table(
    path: &Path,
    table: &Table,
    shard: &Shard,
    rows: &mut Vec<Measurement>,
    dropped: &mut Dropped,
) -> Result<(), Diagnostic> {
    let csv = Csv::load(path, &[table.columns, &[table.time]].concat())?;
    for record in csv.records() {
        let time = record.number(table.time).ok().filter(|time| *time > 0.0);
        let converted = match time {
            Some(time) => {
                let latency_ns = time * 1e3 / table.runs;
                (table.convert)(shard, &record).map(|operator| Measurement { operator, latency_ns })
            }
            None => Err("the time is not positive".to_owned()),
        };
        match converted {
            Ok(row) => rows.push(row),
            Err(reason) => dropped.add(reason, 1, || {
                let place = format!("{} at tp{}", shard.model.model, shard.tensor);
                format!("{place}, {}: {}", table.file, record.describe(table.columns))
            }),
        }
    }
    Ok(())
}

impl Shard {
    fn heads(&self) -> AttentionHeads {
        let Widths { heads, kv_heads, head, .. } = *self.model;
        let kv = kv_heads.div_ceil(self.tensor);
        AttentionHeads::grouped(heads.div_ceil(self.tensor), kv, head, NumberFormat::Bf16)
    }

    fn gemm(tokens: u32, n: u32, k: u32) -> Operator {
        Operator::Gemm { tokens, n, k, weights: NumberFormat::Bf16, activations: NumberFormat::Bf16 }
    }

    /// Layers over the tokens of a step.
    fn dense(&self, record: &Record<'_>) -> Result<Operator, String> {
        let tokens = record.positive("tokens")?;
        let heads = self.heads();
        let (query, kv) = (heads.query * heads.qk_dim, heads.kv * heads.qk_dim);
        let (hidden, inner) = (self.model.hidden, self.model.inner.div_ceil(self.tensor));
        let streaming = |kind: StreamingKind, tensors: f64, width: u32| Operator::Streaming {
            kind,
            bytes: tensors * f64::from(tokens) * f64::from(width) * ACTIVATION_BYTES,
            kernels: 1,
        };
        Ok(match record.text("layer").unwrap_or_default() {
            "embedding" => streaming(StreamingKind::Embedding, 2.0, hidden),
            // The final norm adds the residual, the other one is timed without.
            "layernorm" => streaming(StreamingKind::Norm, 2.0, hidden),
            "final_layernorm" => streaming(StreamingKind::Norm, 4.0, hidden),
            "qk_norm" => streaming(StreamingKind::Norm, 2.0, query + kv),
            "rotary_emb" => streaming(StreamingKind::Rotary, 2.0, query + kv),
            "qkv_proj" => Self::gemm(tokens, query + 2 * kv, hidden),
            "o_proj" => Self::gemm(tokens, hidden, query),
            "gate_up_proj" => Self::gemm(tokens, 2 * inner, hidden),
            "act_fn" => streaming(StreamingKind::Activation, 3.0, inner),
            "down_proj" => Self::gemm(tokens, hidden, inner),
            other => return Err(format!("the layer `{other}` has no counterpart")),
        })
    }

    /// Layers over the sequences of a step.
    fn head(&self, record: &Record<'_>) -> Result<Operator, String> {
        let (sequences, vocab) = (record.positive("sequences")?, self.model.vocab);
        match record.text("layer").unwrap_or_default() {
            "lm_head" => Ok(Self::gemm(sequences, vocab.div_ceil(self.tensor), self.model.hidden)),
            // Conversion to fp32 and two passes over the logits.
            "sampler" => Ok(Operator::Streaming {
                kind: StreamingKind::Sampling,
                bytes: f64::from(sequences) * f64::from(vocab) * (2.0 + 4.0 + 8.0),
                kernels: 4,
            }),
            other => Err(format!("the layer `{other}` has no counterpart")),
        }
    }

    fn attention(&self, record: &Record<'_>) -> Result<Operator, String> {
        let (chunk_tokens, batch) = (record.count("prefill_chunk")?, record.count("n_decode")?);
        let heads = self.heads();
        match (chunk_tokens, batch) {
            (0, 0) => Err("attention of no tokens".to_owned()),
            (0, batch) => {
                let context_tokens = f64::from(record.positive("kv_decode")?);
                Ok(Operator::DecodeAttention { batch, context_tokens, longest_tokens: context_tokens, heads })
            }
            (chunk_tokens, 0) => {
                let context_tokens = record.count("kv_prefill")?;
                Ok(Operator::PrefillAttention { batch: 1, chunk_tokens, context_tokens, heads })
            }
            _ => Err("prefill and decode in one attention kernel".to_owned()),
        }
    }

    /// Decode with `nb` long sequences among `n`.
    fn skewed_decode(&self, record: &Record<'_>) -> Result<Operator, String> {
        if record.text("regime") != Some("pure") {
            return Err("prefill and decode in one attention kernel".to_owned());
        }
        let (batch, long) = (record.positive("n")?, record.count("nb")?);
        let (short_tokens, longest) = (f64::from(record.positive("kvs")?), f64::from(record.positive("kv_big")?));
        if long == 0 || long > batch || longest < short_tokens {
            return Err("a mixture of lengths that cannot be".to_owned());
        }
        let tokens = f64::from(batch - long) * short_tokens + f64::from(long) * longest;
        let context_tokens = tokens / f64::from(batch);
        Ok(Operator::DecodeAttention { batch, context_tokens, longest_tokens: longest, heads: self.heads() })
    }

    /// Experts with an even load over those that are activated.
    fn grouped(&self, record: &Record<'_>) -> Result<Operator, String> {
        let [count, top_k, inner] = self.model.experts.ok_or("experts of a model that has none")?;
        let (tokens, hit) = (record.positive("tokens")?, record.positive("activated_experts")?);
        let (weights, activations) = (NumberFormat::Bf16, NumberFormat::Bf16);
        let intermediate_size = inner.div_ceil(self.tensor);
        let hidden_size = self.model.hidden;
        let experts = Experts { hidden_size, intermediate_size, top_k, count, local: count, weights, activations };
        let rows = f64::from(tokens) * f64::from(top_k);
        let hit = f64::from(hit);
        if hit > rows || hit < f64::from(top_k) || hit > f64::from(count) {
            return Err("more or fewer experts activated than there can be".to_owned());
        }
        let load = ExpertLoad::measured(rows, hit, (rows / hit).ceil(), tokens, &experts);
        Ok(Operator::GroupedGemm { tokens, experts, load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = "vllm_version: '0.19.0'\nmodel: Qwen/Qwen3-30B-A3B-Instruct-2507\nvariant: bf16\n";

    fn profile(meta: &str, tables: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("RTX/model/bf16");
        fs::create_dir_all(profile.join("tp2")).unwrap();
        fs::write(profile.join("meta.yaml"), meta).unwrap();
        for (file, text) in tables {
            fs::write(profile.join("tp2").join(file), text).unwrap();
        }
        folder
    }

    fn dropped(measurements: &Measurements) -> Vec<(&str, usize)> {
        measurements.dropped.iter().map(|dropped| (dropped.reason.as_str(), dropped.rows)).collect()
    }

    #[test]
    fn layers_are_sharded_and_unknown_ones_named() {
        let dense = "layer,tokens,time_us\nqkv_proj,16,5.5\nother,16,1\nqkv_proj,16,-1\n";
        let folder = profile(META, &[("dense.csv", dense), ("per_sequence.csv", "layer,sequences,time_us\n")]);
        let measurements = import(folder.path(), "vllm-0.19").unwrap();
        // 16 + 2 x 2 heads of 128.
        let expected = Measurement { operator: Shard::gemm(16, 2560, 2048), latency_ns: 5500.0 };
        assert_eq!(measurements.rows, [expected]);
        let expected = [("the layer `other` has no counterpart", 1), ("the time is not positive", 1)];
        assert_eq!(dropped(&measurements), expected);
    }

    #[test]
    fn attention_is_read_where_it_is_prefill_or_decode_alone() {
        let attention = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n\
                         0,0,4,512,8\n64,128,0,0,9\n64,128,4,512,10\n";
        let skew = "regime,n,nb,kvs,kv_big,kv_mean,t_skew_us\npure,4,1,128,512,224,11\nmixed,4,1,128,512,224,12\n";
        let folder = profile(META, &[("attention.csv", attention), ("skew.csv", skew)]);
        let measurements = import(folder.path(), "vllm-0.19").unwrap();
        let operators: Vec<Operator> = measurements.rows.iter().map(|row| row.operator).collect();
        let heads = Shard { model: &MODELS[2], tensor: 2 }.heads();
        let decode = |context_tokens, longest_tokens| Operator::DecodeAttention {
            batch: 4,
            context_tokens,
            longest_tokens,
            heads,
        };
        let prefill = Operator::PrefillAttention { batch: 1, chunk_tokens: 64, context_tokens: 128, heads };
        assert_eq!(operators, [decode(512.0, 512.0), prefill, decode(224.0, 512.0)]);
        assert_eq!(dropped(&measurements), [("prefill and decode in one attention kernel", 2)]);
    }

    #[test]
    fn activated_experts_set_the_load() {
        let moe = "tokens,activated_experts,time_us\n16,32,100\n1,64,100\n";
        let folder = profile(META, &[("moe.csv", moe)]);
        let measurements = import(folder.path(), "vllm-0.19").unwrap();
        let Operator::GroupedGemm { experts, load, .. } = measurements.rows[0].operator else {
            panic!("{:?}", measurements.rows)
        };
        assert_eq!((experts.intermediate_size, load.rows, load.hit, load.largest), (384, 128.0, 32.0, 4.0));
        assert_eq!(dropped(&measurements), [("more or fewer experts activated than there can be", 1)]);
    }

    #[test]
    fn a_missing_column_another_version_or_model_is_a_diagnostic() {
        let folder = profile(META, &[("dense.csv", "layer,time_us\nqkv_proj,1\n")]);
        assert!(import(folder.path(), "vllm-0.19").unwrap_err().message.contains("no column `tokens`"));
        assert!(import(folder.path(), "vllm-0.1").unwrap_err().message.contains("no tables"));
        assert!(import(folder.path(), "sglang-0.5").unwrap_err().help.is_some());
        let unknown = META.replace("Qwen3-30B-A3B-Instruct-2507", "Other");
        let folder = profile(&unknown, &[("dense.csv", "layer,tokens,time_us\nqkv_proj,1,1\n")]);
        assert!(import(folder.path(), "vllm-0.19").unwrap_err().message.contains("no tables"));
    }
}
