//! Multi-turn chat in a closed loop: `NAME.meta.json`, `NAME.client.csv.gz` with one row per request, and the server's
//! counters in `NAME.server_1hz.csv.gz`.
//!
//! Clients send the requests in the recorded order, each its next one when its last one is answered. Prompts include the
//! conversation so far.

use std::path::Path;

use serde::Deserialize;

use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::{Request, RequestStream};

use super::super::case::{Case, EngineVersion, Limits, Measured, Metric, Run, RunTraffic, Split, Statistic};
use super::super::names;
use super::super::table::{Record, Table, read_json};
use super::Format;

pub(super) const FORMAT: Format = Format {
    name: "vllm_b200_multiturn",
    summary: "NAME.meta.json with `bench_command`, beside NAME.client.csv.gz with one row per request",
    recognises: |name, text| name.ends_with(SUFFIX) && text.contains("\"bench_command\""),
    read,
};

const SUFFIX: &str = ".meta.json";
/// vLLM's default, where the command line says nothing.
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
const BLOCK_TOKENS: f64 = 16.0;

#[derive(Deserialize)]
struct Meta {
    exp: String,
    model: String,
    gpu: String,
    tp: u32,
    vllm_version: String,
    command: String,
    config_yaml: String,
    kv_tokens: Option<f64>,
    clients: u32,
}

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let meta: Meta = read_json(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = |ending: &str| path.with_file_name(format!("{}.{ending}", name.trim_end_matches(SUFFIX)));
    let client = Table::read(
        &beside("client.csv.gz"),
        &["start_time_ms", "ttft_ms", "latency_ms", "input_num_tokens", "output_num_tokens"],
    )?;
    let mut rows = client.records().map(Row::read).collect::<Result<Vec<Row>, Diagnostic>>()?;
    rows.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
    let mut measured = measured(&rows);
    if let Some(tokens) = meta.kv_tokens {
        measured.push(Measured::new(Metric::KvBlocks, Statistic::Total, tokens / BLOCK_TOKENS));
    }
    let server = beside("server_1hz.csv.gz");
    if server.is_file() {
        measured.extend(server_totals(&server)?);
    }
    let run = read_run(&meta, &rows);
    Ok(vec![Case { group: FORMAT.name.to_owned(), id: meta.exp, model: meta.model, gpu: meta.gpu, run, measured }])
}

/// One answered request, times in milliseconds.
struct Row {
    start_ms: f64,
    ttft_ms: f64,
    latency_ms: f64,
    prompt_tokens: u32,
    output_tokens: u32,
}

impl Row {
    fn read(record: Record<'_>) -> Result<Self, Diagnostic> {
        Ok(Self {
            start_ms: record.number("start_time_ms")?,
            ttft_ms: record.number("ttft_ms")?,
            latency_ms: record.number("latency_ms")?,
            prompt_tokens: record.optional_count("input_num_tokens")?.unwrap_or(1),
            output_tokens: record.optional_count("output_num_tokens")?.unwrap_or(1),
        })
    }
}

fn measured(rows: &[Row]) -> Vec<Measured> {
    let ticks = |ms: f64| Ticks::from_ns(ms * 1e6);
    let summary = |values: &mut dyn Iterator<Item = Ticks>| Summary::of(&mut values.collect::<Vec<_>>());
    let long = rows.iter().filter(|row| row.output_tokens > 1);
    let ttft = summary(&mut rows.iter().map(|row| ticks(row.ttft_ms)));
    let tpot = summary(&mut long.map(|row| ticks((row.latency_ms - row.ttft_ms) / f64::from(row.output_tokens - 1))));
    let e2e = summary(&mut rows.iter().map(|row| ticks(row.latency_ms)));
    let mut measured = Vec::new();
    for (metric, summary) in [(Metric::Ttft, ttft), (Metric::Tpot, tpot), (Metric::E2e, e2e)] {
        measured.extend(Measured::of_summary(metric, &summary, &[]));
    }
    let start = rows.first().map_or(0.0, |row| row.start_ms);
    let end = rows.iter().map(|row| row.start_ms + row.latency_ms).fold(start, f64::max);
    let tokens: f64 = rows.iter().map(|row| f64::from(row.output_tokens)).sum();
    measured.push(Measured::new(Metric::OutputThroughput, Statistic::Total, tokens * 1e3 / (end - start)));
    measured
}

/// Preemptions and the share of prompt tokens from the prefix cache, from the last row of the counters.
fn server_totals(path: &Path) -> Result<Vec<Measured>, Diagnostic> {
    let table = Table::read(path, &["prefix_cache_hits", "prefix_cache_queries", "num_preemptions_total"])?;
    let Some(last) = table.records().last() else { return Ok(Vec::new()) };
    let hits = 100.0 * last.number("prefix_cache_hits")? / last.number("prefix_cache_queries")?.max(1.0);
    Ok(vec![
        Measured::new(Metric::Preemptions, Statistic::Total, last.number("num_preemptions_total")?),
        Measured::new(Metric::PrefixHits, Statistic::Total, hits),
    ])
}

fn read_run(meta: &Meta, rows: &[Row]) -> Result<Run, String> {
    let (model, mut formats) = names::model(&meta.model, "")?;
    if setting(&meta.config_yaml, "kv-cache-dtype:") == Some("fp8") {
        formats.kv_cache = Some(NumberFormat::Fp8);
    }
    let count = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let max_num_seqs = count(setting(&meta.command, "--max-num-seqs")).ok_or("`--max-num-seqs` is not recorded")?;
    let utilization = setting(&meta.command, "--gpu-memory-utilization").and_then(|text| text.parse().ok());
    let requests = rows.iter().map(|row| Request {
        arrival: Ticks::ZERO,
        prompt_tokens: row.prompt_tokens,
        output_tokens: row.output_tokens,
    });
    Ok(Run {
        model,
        formats,
        gpu: names::gpu(&meta.gpu)?,
        engine: EngineVersion::new("vllm", Some(&meta.vllm_version)),
        split: Split::tensor(meta.tp),
        limits: Limits {
            max_num_seqs,
            max_num_batched_tokens: count(setting(&meta.config_yaml, "max-num-batched-tokens:"))
                .unwrap_or(MAX_NUM_BATCHED_TOKENS),
            max_model_len: 1,
            gpu_memory_utilization: utilization.unwrap_or(0.9),
            cuda_graph: true,
            chunked_prefill: true,
            prefix_caching: false,
            asynchronous: None,
        },
        traffic: RunTraffic::Recorded(RequestStream::closed(requests.collect(), meta.clients)),
    })
}

/// The word after `key`.
fn setting<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == key)?;
    words.next()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn clients_send_the_recorded_requests_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let pack = |name: &str, text: &str| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let mut encoder = GzEncoder::new(file, Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap();
        };
        let path = folder.path().join("x.meta.json");
        let meta = r#"{"exp": "x", "model": "nvidia/Llama-3.3-70B-Instruct-FP4", "gpu": "B200 180GB (Nebius)", "tp": 4,
            "vllm_version": "0.15.0", "command": "vllm serve M --max-num-seqs 64 --gpu-memory-utilization 0.8",
            "config_yaml": "kv-cache-dtype: fp8\nmax-num-batched-tokens: 4096\n", "bench_command": "",
            "kv_tokens": 160, "clients": 8}"#;
        fs::write(&path, meta).unwrap();
        let header = "start_time_ms,ttft_ms,latency_ms,input_num_tokens,output_num_tokens";
        pack("x.client.csv.gz", &format!("{header}\n2000,100,1100,900,11\n1000,200,400,600,1\n"));
        let counters = "prefix_cache_hits,prefix_cache_queries,num_preemptions_total";
        pack("x.server_1hz.csv.gz", &format!("{counters}\n0,0,0\n30,40,7\n"));
        let case = read(&path).unwrap().remove(0);
        let run = case.run.as_ref().unwrap();
        assert_eq!(run.formats.kv_cache, Some(NumberFormat::Fp8));
        assert_eq!((run.limits.max_num_seqs, run.limits.max_num_batched_tokens), (64, 4096));
        assert_eq!(run.limits.gpu_memory_utilization, 0.8);
        let stream = run.traffic.streams().remove(0);
        assert_eq!((stream.clients, stream.requests[0].prompt_tokens), (Some(8), 600));
        let value = |metric, statistic| {
            case.measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic)).unwrap().value
        };
        assert_eq!(value(Metric::Tpot, Statistic::Mean), 100.0);
        assert_eq!(value(Metric::KvBlocks, Statistic::Total), 10.0);
        assert_eq!(value(Metric::Preemptions, Statistic::Total), 7.0);
        assert_eq!(value(Metric::PrefixHits, Statistic::Total), 75.0);
        assert!((value(Metric::OutputThroughput, Statistic::Total) - 12.0 / 2.1).abs() < 1e-9);
    }
}
