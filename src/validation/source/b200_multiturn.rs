//! Multi-turn chat in a closed loop: `NAME.meta.json`, `NAME.client.csv.gz` with one row per request, and the server's
//! counters in `NAME.server_1hz.csv.gz`.
//!
//! What the client did (vLLM's `benchmark_serving_multi_turn.py`) shows in its rows: no conversation changes its
//! `client_id`, no client has two at a time, `input_num_turns` runs 1, 3, 5, ... in each, and the next turn is sent some 8 ms
//! after the last one was answered. So each client replays whole conversations, one after the other. Each prompt holds all
//! of the conversation before it: it is never shorter than the prompt and the answer of the turn before.
//!
//! The client counts the text of the messages only. With 29 tokens for the start of the chat template and 5 for each
//! message, the prompts of a run add up to what the server counted, within 0.1 % in the runs that the KV cache could hold.
//!
//! The offloading of evicted blocks to host memory, in some of the runs, is not simulated.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::{Request, RequestStream};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Metric, Run, RunTraffic, Split, Statistic,
};
use super::super::names;
use super::super::table::{Record, Table, read_json};
use super::Format;

pub(super) const FORMAT: Format = Format {
    name: "vllm_b200_multiturn",
    summary: "NAME.meta.json with `bench_command`, beside NAME.client.csv.gz with one row per request",
    recognises: |name, text| name.ends_with(SUFFIX) && text.contains("\"bench_command\""),
    read,
};

/// Counters of the server, in the order in which [`server_totals`] reads them.
const COUNTERS: [&str; 4] =
    ["prefix_cache_hits", "prefix_cache_queries", "prompt_tokens_total", "num_preemptions_total"];
const SUFFIX: &str = ".meta.json";
/// vLLM's default, where the command line says nothing.
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
const NO_PREFIX_CACHING: &str = "--no-enable-prefix-caching";
const BLOCK_TOKENS: f64 = 16.0;
/// Tokens of the chat template of Llama 3.3: system header and start of the answer, and around each message.
const TEMPLATE_TOKENS: u32 = 29;
const TOKENS_PER_MESSAGE: u32 = 5;
/// Most by which the queries of the prefix cache may exceed the prompts.
const REPEATED_QUERIES: f64 = 0.01;

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
        &[
            "start_time_ms",
            "ttft_ms",
            "latency_ms",
            "input_num_turns",
            "input_num_tokens",
            "output_num_tokens",
            "conversation_id",
        ],
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
    conversation: String,
    prompt_tokens: u32,
    output_tokens: u32,
}

impl Row {
    fn read(record: Record<'_>) -> Result<Self, Diagnostic> {
        let messages = record.count("input_num_turns")?;
        let template = TEMPLATE_TOKENS.saturating_add(messages.saturating_mul(TOKENS_PER_MESSAGE));
        let text = record.optional_count("input_num_tokens")?.unwrap_or(0);
        Ok(Self {
            start_ms: record.number("start_time_ms")?,
            ttft_ms: record.number("ttft_ms")?,
            latency_ms: record.number("latency_ms")?,
            conversation: record.required("conversation_id")?.to_owned(),
            prompt_tokens: text.saturating_add(template),
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

/// Preemptions and the share of prompt tokens from the prefix cache, from the last row of the counters. There is no such
/// share where the cache was asked about more tokens than the prompts have: vLLM asks again, and counts it, whenever it
/// cannot admit the first of the waiting requests.
fn server_totals(path: &Path) -> Result<Vec<Measured>, Diagnostic> {
    let table = Table::read(path, &COUNTERS)?;
    let Some(last) = table.records().last() else { return Ok(Vec::new()) };
    let [hits, queries, prompts, preemptions] = COUNTERS.map(|counter| last.number(counter));
    let (hits, queries, prompts) = (hits?, queries?, prompts?);
    let mut totals = vec![Measured::new(Metric::Preemptions, Statistic::Total, preemptions?)];
    if queries > 0.0 && queries <= (1.0 + REPEATED_QUERIES) * prompts {
        totals.push(Measured::new(Metric::PrefixHits, Statistic::Total, 100.0 * hits / queries));
    }
    Ok(totals)
}

fn read_run(meta: &Meta, rows: &[Row]) -> Result<Run, String> {
    let (model, mut formats) = names::model(&meta.model, "")?;
    if setting(&meta.config_yaml, "kv-cache-dtype:") == Some("fp8") {
        formats.kv_cache = Some(NumberFormat::Fp8);
    }
    let count = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let max_num_seqs = count(setting(&meta.command, "--max-num-seqs")).ok_or("`--max-num-seqs` is not recorded")?;
    let utilization = setting(&meta.command, "--gpu-memory-utilization").and_then(|text| text.parse().ok());
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
            asynchronous: None,
            // The default of vLLM's V1 engine.
            prefix_caching: !meta.command.contains(NO_PREFIX_CACHING),
            graphs: GraphSetting {
                largest_tokens: count(setting(&meta.config_yaml, "max-cudagraph-capture-size:")),
                decode_only: meta.config_yaml.contains("\"FULL_DECODE_ONLY\""),
            },
        },
        traffic: RunTraffic::Recorded(conversations(rows, meta.clients)),
    })
}

/// The conversations in the order in which they began; `rows` are by start.
fn conversations(rows: &[Row], clients: u32) -> RequestStream {
    let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turns: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let position = *positions.entry(&row.conversation).or_insert(turns.len());
        turns.resize_with(turns.len().max(position + 1), Vec::new);
        turns[position].push(row);
    }
    let pauses = turns.iter().flat_map(|turns| turns.windows(2));
    let pauses = pauses.map(|pair| Ticks::from_ns(1e6 * (pair[1].start_ms - pair[0].start_ms - pair[0].latency_ms)));
    let think = Ticks::from_ns(1e6 * Summary::of(&mut pauses.collect::<Vec<_>>()).mean_ms);
    let request = |row: &&Row| Request {
        arrival: Ticks::ZERO,
        prompt_tokens: row.prompt_tokens,
        output_tokens: row.output_tokens.max(1),
    };
    let mut stream = RequestStream::sessions(turns.iter().map(|turns| turns.iter().map(request).collect()), think);
    stream.clients = Some(clients);
    stream
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

    const META: &str = r#"{"exp": "x", "model": "nvidia/Llama-3.3-70B-Instruct-FP4", "gpu": "B200 180GB (Nebius)", "tp": 4,
        "vllm_version": "0.15.0", "command": "vllm serve M --max-num-seqs 64 --gpu-memory-utilization 0.8",
        "config_yaml": "kv-cache-dtype: fp8\ncompilation-config: '{\"cudagraph_mode\":\"FULL_DECODE_ONLY\"}'\nmax-cudagraph-capture-size: 2048\nmax-num-batched-tokens: 4096\n",
        "bench_command": "", "kv_tokens": 160, "clients": 8}"#;

    /// A case with these rows of the client, and the last row of the server's counters.
    fn case(rows: &str, counters: &str) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let pack = |name: &str, text: &str| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let mut encoder = GzEncoder::new(file, Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap();
        };
        let path = folder.path().join("x.meta.json");
        fs::write(&path, META).unwrap();
        let header =
            "start_time_ms,ttft_ms,latency_ms,input_num_turns,input_num_tokens,output_num_tokens,conversation_id";
        pack("x.client.csv.gz", &format!("{header}\n{rows}"));
        pack("x.server_1hz.csv.gz", &format!("{}\n0,0,0,0\n{counters}\n", COUNTERS.join(",")));
        read(&path).unwrap().remove(0)
    }

    fn value(case: &Case, metric: Metric, statistic: Statistic) -> Option<f64> {
        let found = case.measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic));
        found.map(|one| one.value)
    }

    #[test]
    fn settings_and_measurements_are_those_of_the_files() {
        let case = case("2000,100,1100,1,900,11,b\n1000,200,400,1,600,1,a\n", "30,40,40,7");
        let run = case.run.as_ref().unwrap();
        assert_eq!(run.formats.kv_cache, Some(NumberFormat::Fp8));
        assert_eq!((run.limits.max_num_seqs, run.limits.max_num_batched_tokens), (64, 4096));
        assert_eq!((run.limits.gpu_memory_utilization, run.limits.prefix_caching), (0.8, true));
        assert_eq!(run.limits.graphs, GraphSetting { largest_tokens: Some(2048), decode_only: true });
        assert_eq!(value(&case, Metric::Tpot, Statistic::Mean), Some(100.0));
        assert_eq!(value(&case, Metric::KvBlocks, Statistic::Total), Some(10.0));
        assert_eq!(value(&case, Metric::Preemptions, Statistic::Total), Some(7.0));
        assert_eq!(value(&case, Metric::PrefixHits, Statistic::Total), Some(75.0));
        let throughput = value(&case, Metric::OutputThroughput, Statistic::Total).unwrap();
        assert!((throughput - 12.0 / 2.1).abs() < 1e-9);
    }

    #[test]
    fn clients_replay_whole_conversations() {
        // Two conversations at the same time; the second turn of `a` comes 6 ms after the first is answered, that of `b`
        // after 10 ms.
        let case = case(
            "1000,50,400,1,100,20,a\n1001,50,299,1,7,3,b\n1406,50,300,3,150,5,a\n1310,50,90,3,30,5,b\n",
            "0,10,10,0",
        );
        let stream = case.run.as_ref().unwrap().traffic.streams().remove(0);
        assert_eq!(stream.clients, Some(8));
        let prompts: Vec<u32> = stream.requests.iter().map(|request| request.prompt_tokens).collect();
        assert_eq!(prompts, [134, 194, 41, 74], "with the chat template");
        let turn = |index| stream.turn(index).map(|turn| (turn.follows, turn.think.as_ns()));
        assert_eq!([0, 1, 2, 3].map(turn), [None, Some((0, 8e6)), None, Some((2, 8e6))]);
        let prefix = |index| stream.prefix(index).map(|prefix| (prefix.source, prefix.tokens));
        assert_eq!([0, 1, 2, 3].map(prefix), [None, Some((0, 154)), None, Some((2, 44))]);
    }

    #[test]
    fn queries_that_were_repeated_give_no_share_of_hits() {
        let case = case("2000,100,1100,1,900,11,b\n", "30,400,40,7");
        assert_eq!(value(&case, Metric::PrefixHits, Statistic::Total), None);
        assert_eq!(value(&case, Metric::Preemptions, Statistic::Total), Some(7.0));
    }
}
