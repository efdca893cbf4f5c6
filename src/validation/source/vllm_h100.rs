//! Runs recorded per request by the inference-perf client: `NAME.meta.json` beside `NAME.csv.gz`.
//!
//! The output length is the configured one: the client counts tokens after tokenising the text again, and its gaps are
//! those between chunks of the stream.

use std::path::Path;

use serde::Deserialize;

use crate::diag::Diagnostic;
use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::{Prefix, Request, RequestStream};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Metric, Run, RunTraffic, Split, Statistic,
};
use super::super::names;
use super::super::table::{Table, read_json};
use super::{Format, sorted_by_arrival};

pub(super) const FORMAT: Format = Format {
    name: "vllm_h100",
    summary: "NAME.meta.json with `workload.shared_prefix`, beside NAME.csv.gz with one row per request",
    recognises: |name, text| name.ends_with(SUFFIX) && text.contains("\"shared_prefix\""),
    read,
};

const SUFFIX: &str = ".meta.json";
/// Runs in which a larger share of requests failed are not compared: the simulator's clients never give up.
const MOST_FAILURES: f64 = 0.01;

#[derive(Deserialize)]
struct Meta {
    experiment: String,
    engine: String,
    gpu: String,
    model: String,
    config: Config,
    max_model_len: u32,
    gpu_memory_utilization: f64,
    chunked_prefill: bool,
    #[serde(default)]
    prefix_caching: bool,
    workload: WorkloadMeta,
}

#[derive(Deserialize)]
struct Config {
    tensor_parallelism: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    kv_blocks_total_gpu: Option<u32>,
}

#[derive(Deserialize)]
struct WorkloadMeta {
    shared_prefix: SharedPrefix,
}

#[derive(Deserialize)]
struct SharedPrefix {
    output_len: u32,
    question_len: u32,
    system_prompt_len: u32,
}

/// Requests as sent, and the latencies of those that succeeded.
#[derive(Default)]
struct Requests {
    sent: Vec<Request>,
    failed: usize,
    ttft: Vec<Ticks>,
    tpot: Vec<Ticks>,
    e2e: Vec<Ticks>,
    last: Ticks,
}

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let meta: Meta = read_json(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let requests = read_requests(
        &path.with_file_name(format!("{}.csv.gz", name.trim_end_matches(SUFFIX))),
        &meta.workload.shared_prefix,
    )?;
    let case = |id: &str, run, measured| Case {
        group: FORMAT.name.to_owned(),
        id: id.to_owned(),
        model: meta.model.clone(),
        gpu: meta.gpu.clone(),
        run,
        measured,
    };
    let (failed, sent) = (requests.failed, requests.sent.len());
    let measured = requests.measured();
    let blocks = meta.config.kv_blocks_total_gpu;
    let blocks = blocks.map(|blocks| Measured::new(Metric::KvBlocks, Statistic::Total, f64::from(blocks)));
    let run = read_run(&meta, requests.sent);
    if failed as f64 <= MOST_FAILURES * sent as f64 {
        let measured = measured.into_iter().chain(blocks).collect();
        return Ok(vec![case(&meta.experiment, run, measured)]);
    }
    let reason = format!("{failed} of {sent} requests failed or timed out; simulated clients wait for ever");
    let mut cases = vec![case(&meta.experiment, Err(reason), measured)];
    if blocks.is_some() {
        cases.push(case(&format!("{} (memory)", meta.experiment), run, blocks.into_iter().collect()));
    }
    Ok(cases)
}

fn read_run(meta: &Meta, sent: Vec<Request>) -> Result<Run, String> {
    let (model, formats) = names::model(&meta.model, "")?;
    let requests = sorted_by_arrival(sent);
    let prefixes = repeated_prompts(&requests);
    Ok(Run {
        model,
        formats,
        gpu: names::gpu(&meta.gpu)?,
        engine: EngineVersion::new("vllm", meta.engine.strip_prefix("vLLM ")),
        split: Split::tensor(meta.config.tensor_parallelism),
        limits: Limits {
            max_num_seqs: meta.config.max_num_seqs,
            max_num_batched_tokens: meta.config.max_num_batched_tokens,
            max_model_len: meta.max_model_len,
            gpu_memory_utilization: meta.gpu_memory_utilization,
            cuda_graph: true,
            chunked_prefill: meta.chunked_prefill,
            prefix_caching: meta.prefix_caching,
            asynchronous: None,
            graphs: GraphSetting::default(),
        },
        traffic: RunTraffic::Recorded(RequestStream::open(requests).with_prefixes(prefixes)?),
    })
}

/// Longest period in which clients are looked for to send the same prompts again.
const LONGEST_PERIOD: usize = 500;
/// Share of the prompts that must be as long as those one period before.
const SAME_LENGTHS: f64 = 0.9;

/// Which prompt each request repeats. The client walks through a fixed list of prompts again and again; the runs record their
/// lengths only, which repeat with the period of the list. Lengths that hardly vary tell nothing.
fn repeated_prompts(requests: &[Request]) -> Vec<Option<Prefix>> {
    let same = |lag: usize| {
        let pairs = requests.iter().zip(requests.iter().skip(lag));
        let equal = pairs.filter(|(earlier, later)| earlier.prompt_tokens == later.prompt_tokens).count();
        equal as f64 / requests.len().saturating_sub(lag).max(1) as f64
    };
    let lags = 2..=LONGEST_PERIOD.min(requests.len() / 2);
    let period = lags.into_iter().find(|lag| same(*lag) >= SAME_LENGTHS).filter(|_| same(1) < SAME_LENGTHS);
    let repeated = |(index, request): (usize, &Request)| {
        let source = index.checked_sub(period?)?;
        let tokens = request.prompt_tokens;
        (requests[source].prompt_tokens == tokens).then_some(Prefix { source: source as u32, tokens })
    };
    requests.iter().enumerate().map(repeated).collect()
}

fn read_requests(path: &Path, lengths: &SharedPrefix) -> Result<Requests, Diagnostic> {
    let table = Table::read(path, &["arrival_us", "input_tokens", "has_error", "ttft_s", "e2e_s"])?;
    let output_tokens = lengths.output_len.max(1);
    let mut requests = Requests::default();
    for record in table.records() {
        let arrival = Ticks::from_ns(record.number("arrival_us")? * 1e3);
        // A failed request has no counted prompt; it was as long as the others.
        let nominal = lengths.system_prompt_len + lengths.question_len;
        let prompt_tokens = record.optional_count("input_tokens")?.unwrap_or(nominal.max(1));
        requests.sent.push(Request { arrival, prompt_tokens, output_tokens });
        if record.number("has_error")? != 0.0 {
            requests.failed += 1;
            continue;
        }
        let ttft = Ticks::from_seconds(record.number("ttft_s")?);
        let e2e = Ticks::from_seconds(record.number("e2e_s")?);
        requests.ttft.push(ttft);
        requests.e2e.push(e2e);
        if output_tokens > 1 {
            requests.tpot.push(Ticks(e2e.saturating_since(ttft).0 / u64::from(output_tokens - 1)));
        }
        requests.last = requests.last.max(arrival + e2e);
    }
    Ok(requests)
}

impl Requests {
    fn measured(&self) -> Vec<Measured> {
        let summaries = [(Metric::Ttft, &self.ttft), (Metric::Tpot, &self.tpot), (Metric::E2e, &self.e2e)];
        let mut measured = Vec::new();
        for (metric, values) in summaries {
            measured.extend(Measured::of_summary(metric, &Summary::of(&mut values.clone()), &[]));
        }
        let first = self.sent.iter().map(|request| request.arrival).min().unwrap_or(Ticks::ZERO);
        let span = self.last.saturating_since(first);
        let tokens: u64 = self.sent.iter().map(|request| u64::from(request.output_tokens)).sum();
        let share = self.e2e.len() as f64 / self.sent.len().max(1) as f64;
        let throughput = share * tokens as f64 / span.as_seconds();
        measured.push(Measured::new(Metric::OutputThroughput, Statistic::Total, throughput));
        measured
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const META: &str = r#"{"experiment": "e1", "engine": "vLLM v0.15.1 (+tracing)", "gpu": "H100 80GB SXM",
        "model": "meta-llama/Llama-2-7b-hf", "unknown": 1,
        "config": {"tensor_parallelism": 1, "max_num_seqs": 128, "max_num_batched_tokens": 2048,
                   "kv_blocks_total_gpu": 7462},
        "max_model_len": 4096, "gpu_memory_utilization": 0.9, "chunked_prefill": true,
        "workload": {"shared_prefix": {"output_len": 11, "question_len": 466, "system_prompt_len": 100}}}"#;

    fn cases(rows: &str) -> Vec<Case> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.meta.json");
        fs::write(&path, META).unwrap();
        let mut encoder =
            GzEncoder::new(fs::File::create(folder.path().join("r.csv.gz")).unwrap(), Compression::fast());
        let header = "index,arrival_us,input_tokens,output_tokens_client,has_error,ttft_s,e2e_s";
        encoder.write_all(format!("{header}\n{rows}").as_bytes()).unwrap();
        encoder.finish().unwrap();
        read(&path).unwrap()
    }

    #[test]
    fn repeated_prompts_are_found_by_the_period_of_their_lengths() {
        let request = |prompt_tokens| Request { arrival: Ticks::ZERO, prompt_tokens, output_tokens: 1 };
        let lengths = [500, 510, 520].into_iter().cycle().take(12);
        let mut requests: Vec<Request> = lengths.map(request).collect();
        // A client that answered out of order.
        requests[7].prompt_tokens = 999;
        let prefixes = repeated_prompts(&requests);
        assert!(prefixes.iter().all(Option::is_none), "two of nine pairs differ, more than one in ten");
        requests.extend([500, 510, 520].into_iter().cycle().take(30).map(request));
        let prefixes = repeated_prompts(&requests);
        assert_eq!(prefixes[..3], [None; 3]);
        assert_eq!(prefixes[4], Some(Prefix { source: 1, tokens: 510 }));
        assert_eq!((prefixes[7], prefixes[10]), (None, None));
        let same = vec![request(500); 40];
        assert!(repeated_prompts(&same).iter().all(Option::is_none), "equal lengths tell nothing");
    }

    #[test]
    fn tpot_comes_from_the_configured_output_length() {
        let cases = cases("0,0,590,200,0,0.1,1.1\n1,500000,600,3,0,0.2,1.4\n");
        let run = cases[0].run.as_ref().unwrap();
        assert_eq!(
            (run.model.as_str(), run.gpu.as_str(), run.engine.number()),
            ("llama-2-7b", "h100-sxm", Some((0, 15)))
        );
        let RunTraffic::Recorded(stream) = &run.traffic else { panic!("arrivals were recorded") };
        assert_eq!(stream.requests[1].arrival, Ticks::from_seconds(0.5));
        assert!(stream.requests.iter().all(|request| request.output_tokens == 11));
        let value = |metric, statistic| {
            let found = cases[0].measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic));
            found.unwrap().value
        };
        assert!((value(Metric::Tpot, Statistic::Mean) - 110.0).abs() < 1e-6);
        assert!((value(Metric::Ttft, Statistic::P50) - 100.0).abs() < 1e-6);
        // 22 tokens from 0 to 1.9 s.
        assert!((value(Metric::OutputThroughput, Statistic::Total) - 22.0 / 1.9).abs() < 1e-6);
        assert_eq!(value(Metric::KvBlocks, Statistic::Total), 7462.0);
    }

    #[test]
    fn runs_with_time_outs_keep_only_their_memory() {
        let cases = cases("0,0,590,200,0,0.1,1.1\n1,500000,0,0,1,,\n");
        assert!(cases[0].run.as_ref().unwrap_err().contains("1 of 2 requests"));
        let RunTraffic::Recorded(stream) = &cases[1].run.as_ref().unwrap().traffic else { panic!("recorded") };
        assert_eq!(stream.requests[1].prompt_tokens, 566, "the nominal length of a request without a count");
        assert_eq!(cases[1].measured.len(), 1);
    }
}
