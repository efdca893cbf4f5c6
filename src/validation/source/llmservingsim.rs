//! Runs recorded per request inside the engine: a folder GPU_MODEL with `meta.json`, `requests.jsonl`, and another
//! simulator's requests in `sim_noitl.csv`.
//!
//! Arrivals are wall time, everything else is the engine's clock. `queued_ts` is stamped when the step that runs at the
//! arrival ends, so the offset of the clocks is the smallest difference of the two, and latencies count from arrival.
//!
//! `meta.json` names the data set of the run, which holds the token ids of its prompts, in the order of the requests and
//! as long as those. vLLM caches prefixes unless told not to, so prompts with a common start share it, where the data
//! set is at hand: beside the folder or one that contains it, or in `traces` there.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::diag::Diagnostic;
use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::{PrefixIndex, Request, RequestStream};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Metric, Peer, Run, RunTraffic, Split, Statistic,
};
use super::super::names;
use super::super::table::{Table, parse_json, read_json, read_text};
use super::Format;

pub(super) const FORMAT: Format = Format {
    name: "llmservingsim",
    summary: "folder GPU_MODEL with meta.json (`engine_kwargs`) and requests.jsonl",
    recognises: |name, text| name == "meta.json" && text.contains("\"engine_kwargs\""),
    read,
};

const REQUESTS_FILE: &str = "requests.jsonl";
const PEER_FILE: &str = "sim_noitl.csv";
/// Folder of request streams beside the measured runs.
const TRACES: &str = "traces";
const PEER: &str = "LLMServingSim";
/// vLLM's default, which the runs do not change.
const GPU_MEMORY_UTILIZATION: f64 = 0.9;

#[derive(Deserialize)]
struct Meta {
    model: String,
    vllm_version: String,
    engine_kwargs: EngineArguments,
    #[serde(default)]
    dataset_path: PathBuf,
}

#[derive(Deserialize)]
struct EngineArguments {
    tensor_parallel_size: u32,
    data_parallel_size: u32,
    enable_expert_parallel: bool,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_model_len: Option<u32>,
    enable_prefix_caching: Option<bool>,
}

/// One prompt of the data set.
#[derive(Deserialize)]
struct Prompt {
    input_tok_ids: Vec<u64>,
}

/// One request; times in seconds.
#[derive(Deserialize)]
struct Recorded {
    input_toks: u32,
    output_toks: u32,
    arrival_time: f64,
    queued_ts: f64,
    first_token_ts: f64,
    last_token_ts: f64,
}

/// Latencies of a run, measured or predicted.
#[derive(Default)]
struct Latencies {
    ttft: Vec<Ticks>,
    tpot: Vec<Ticks>,
    e2e: Vec<Ticks>,
    first_arrival_s: Option<f64>,
    last_token_s: f64,
    output_tokens: u64,
}

impl Latencies {
    /// Adds a request; times in seconds on one clock.
    fn add(&mut self, arrival: f64, first: f64, last: f64, output_tokens: u32) {
        self.ttft.push(Ticks::from_seconds(first - arrival));
        self.e2e.push(Ticks::from_seconds(last - arrival));
        if output_tokens > 1 {
            self.tpot.push(Ticks::from_seconds((last - first) / f64::from(output_tokens - 1)));
        }
        self.first_arrival_s = Some(self.first_arrival_s.map_or(arrival, |first| first.min(arrival)));
        self.last_token_s = self.last_token_s.max(last);
        self.output_tokens += u64::from(output_tokens);
    }

    fn summaries(&self) -> [(Metric, Summary); 3] {
        [(Metric::Ttft, &self.ttft), (Metric::Tpot, &self.tpot), (Metric::E2e, &self.e2e)]
            .map(|(metric, values)| (metric, Summary::of(&mut values.clone())))
    }

    fn makespan_ms(&self) -> f64 {
        (self.last_token_s - self.first_arrival_s.unwrap_or(0.0)) * 1e3
    }

    fn throughput(&self) -> f64 {
        self.output_tokens as f64 * 1e3 / self.makespan_ms()
    }
}

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let meta: Meta = read_json(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let gpu = id.split('_').next().unwrap_or_default().to_owned();
    let recorded: Vec<Recorded> = read_lines(&folder.join(REQUESTS_FILE))?;
    let measured = measured(&recorded, read_peer(&folder.join(PEER_FILE))?.as_ref());
    let run = read_run(&meta, &gpu, &recorded, &read_prompts(folder, &meta.dataset_path)?);
    Ok(vec![Case { group: FORMAT.name.to_owned(), id, model: meta.model, gpu, run, measured }])
}

/// Values of a file with one JSON object a line.
fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Diagnostic> {
    let text = read_text(path)?;
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| parse_json(line, path)).collect()
}

/// Prompts of the run's data set; none if it is not at hand.
fn read_prompts(folder: &Path, dataset: &Path) -> Result<Vec<Prompt>, Diagnostic> {
    let Some(name) = dataset.file_name() else { return Ok(Vec::new()) };
    let places = folder.ancestors().flat_map(|above| [above.join(name), above.join(TRACES).join(name)]);
    places.into_iter().find(|path| path.is_file()).map_or(Ok(Vec::new()), |path| read_lines(&path))
}

fn measured(recorded: &[Recorded], peer: Option<&Latencies>) -> Vec<Measured> {
    let offset = recorded.iter().map(|one| one.queued_ts - one.arrival_time).fold(f64::INFINITY, f64::min);
    let mut latencies = Latencies::default();
    for one in recorded {
        latencies.add(one.arrival_time, one.first_token_ts - offset, one.last_token_ts - offset, one.output_toks);
    }
    let peer_summaries = peer.map(Latencies::summaries);
    let mut measured = Vec::new();
    for (position, (metric, summary)) in latencies.summaries().into_iter().enumerate() {
        let peers: Vec<(&str, Summary)> =
            peer_summaries.iter().map(|summaries| (PEER, summaries[position].1)).collect();
        measured.extend(Measured::of_summary(metric, &summary, &peers));
    }
    let mut total = |metric, value: f64, of: fn(&Latencies) -> f64| {
        let peers = peer.map(|peer| Peer::new(PEER, of(peer))).into_iter().collect();
        measured.push(Measured { metric, statistic: Statistic::Total, value, peers });
    };
    total(Metric::OutputThroughput, latencies.throughput(), Latencies::throughput);
    total(Metric::Makespan, latencies.makespan_ms(), Latencies::makespan_ms);
    measured
}

fn read_run(meta: &Meta, gpu: &str, recorded: &[Recorded], prompts: &[Prompt]) -> Result<Run, String> {
    let (model, formats) = names::model(&meta.model, "")?;
    let arguments = &meta.engine_kwargs;
    let (tensor, data) = (arguments.tensor_parallel_size.max(1), arguments.data_parallel_size.max(1));
    let gpus = tensor.saturating_mul(data);
    let (expert_tp, expert_parallel) = if arguments.enable_expert_parallel { (1, gpus) } else { (gpus, 1) };
    Ok(Run {
        model,
        formats,
        gpu: names::gpu(gpu)?,
        engine: EngineVersion::new("vllm", Some(&meta.vllm_version)),
        split: Split { pipeline: 1, tensor, data, expert_tp, expert_parallel },
        limits: Limits {
            max_num_seqs: arguments.max_num_seqs,
            max_num_batched_tokens: arguments.max_num_batched_tokens,
            // Without a limit, the longest request is one.
            max_model_len: arguments.max_model_len.unwrap_or(1),
            gpu_memory_utilization: GPU_MEMORY_UTILIZATION,
            cuda_graph: true,
            chunked_prefill: true,
            asynchronous: None,
            prefix_caching: arguments.enable_prefix_caching.unwrap_or(true),
            graphs: GraphSetting::default(),
        },
        traffic: RunTraffic::Recorded(stream(recorded, prompts)?),
    })
}

/// The requests by arrival, with what their prompts have in common if the prompts are known.
fn stream(recorded: &[Recorded], prompts: &[Prompt]) -> Result<RequestStream, String> {
    let lengths = recorded.iter().map(|one| one.input_toks as usize);
    if !prompts.is_empty() && !lengths.eq(prompts.iter().map(|prompt| prompt.input_tok_ids.len())) {
        return Err("the data set that the run names has other requests than the run".to_owned());
    }
    let start = recorded.iter().map(|one| one.arrival_time).fold(f64::INFINITY, f64::min);
    let mut order: Vec<usize> = (0..recorded.len()).collect();
    order.sort_by(|a, b| recorded[*a].arrival_time.total_cmp(&recorded[*b].arrival_time));
    let request = |index: &usize| Request {
        arrival: Ticks::from_seconds(recorded[*index].arrival_time - start),
        prompt_tokens: recorded[*index].input_toks.max(1),
        output_tokens: recorded[*index].output_toks.max(1),
    };
    let mut known = PrefixIndex::default();
    let mut prefix = |index: &usize| {
        let ids = prompts.get(*index).map_or(&[][..], |prompt| &prompt.input_tok_ids);
        known.add(recorded[*index].input_toks.max(1), ids.iter().copied(), 1)
    };
    let prefixes = order.iter().map(&mut prefix).collect();
    RequestStream::open(order.iter().map(request).collect()).with_prefixes(prefixes)
}

/// The other simulator's requests, if there are any; it writes nanoseconds.
fn read_peer(path: &Path) -> Result<Option<Latencies>, Diagnostic> {
    if !path.is_file() {
        return Ok(None);
    }
    let mut latencies = Latencies::default();
    for record in Table::read(path, &["output", "arrival", "end_time", "TTFT"])?.records() {
        let seconds = |column: &str| Ok::<f64, Diagnostic>(record.number(column)? / 1e9);
        let arrival = seconds("arrival")?;
        latencies.add(arrival, arrival + seconds("TTFT")?, seconds("end_time")?, record.count("output")?);
    }
    Ok(Some(latencies))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A folder with that of a run, without its requests.
    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("RTXPRO6000_Qwen3-30B-A3B");
        fs::create_dir(&run).unwrap();
        let meta = r#"{"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "vllm_version": "0.19.0",
            "dataset_path": "elsewhere/prompts.jsonl", "engine_kwargs": {
            "tensor_parallel_size": 1, "data_parallel_size": 2, "enable_expert_parallel": true, "max_num_seqs": 128,
            "max_num_batched_tokens": 2048, "max_model_len": null}}"#;
        fs::write(run.join("meta.json"), meta).unwrap();
        (folder, run)
    }

    #[test]
    fn prompts_share_what_their_tokens_have_in_common() {
        let (folder, run) = folder();
        let row = |input: u32, arrival: f64| {
            format!(
                r#"{{"input_toks": {input}, "output_toks": 5, "arrival_time": {arrival}, "queued_ts": 1, "first_token_ts": 2, "last_token_ts": 3}}"#
            )
        };
        // The third arrives first.
        let rows = [row(3, 7.0), row(5, 8.0), row(4, 6.0)];
        fs::write(run.join(REQUESTS_FILE), rows.join("\n")).unwrap();
        let prefixes = || {
            let case = read(&run.join("meta.json")).unwrap().remove(0);
            let run = case.run?;
            let stream = run.traffic.streams().remove(0);
            let prefix = |index| stream.prefix(index).map(|prefix| (prefix.source, prefix.tokens));
            Ok::<_, String>((run.limits.prefix_caching, [0, 1, 2].map(prefix)))
        };
        assert_eq!(prefixes(), Ok((true, [None; 3])), "the data set is not at hand");
        let traces = folder.path().join(TRACES);
        fs::create_dir(&traces).unwrap();
        let prompts = |prompts: [&[u32]; 3]| {
            let lines = prompts.map(|ids| format!(r#"{{"input_tok_ids": {ids:?}, "other": 1}}"#));
            fs::write(traces.join("prompts.jsonl"), lines.join("\n")).unwrap();
        };
        prompts([&[1, 2, 3], &[1, 2, 3, 4, 5], &[1, 2, 9, 9]]);
        assert_eq!(prefixes(), Ok((true, [None, Some((0, 2)), Some((1, 3))])));
        prompts([&[1, 2, 3], &[1, 2, 3, 4], &[1, 2, 9, 9]]);
        assert!(prefixes().unwrap_err().contains("other requests"));
    }

    #[test]
    fn latencies_count_from_the_arrival_on_the_engine_clock() {
        let (_folder, run) = folder();
        // The second request is stamped late, at the end of a running step.
        let requests = r#"{"input_toks": 100, "output_toks": 11, "arrival_time": 1000.0, "queued_ts": 5.0, "first_token_ts": 5.5, "last_token_ts": 6.5}
{"input_toks": 200, "output_toks": 21, "arrival_time": 1001.0, "queued_ts": 6.4, "first_token_ts": 7.0, "last_token_ts": 9.0}
"#;
        fs::write(run.join(REQUESTS_FILE), requests).unwrap();
        let peer = "output,arrival,end_time,TTFT\n11,0,1600000000,400000000\n21,1000000000,4200000000,1000000000\n";
        fs::write(run.join(PEER_FILE), peer).unwrap();
        let case = read(&run.join("meta.json")).unwrap().remove(0);
        let find = |metric, statistic| {
            case.measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic)).unwrap()
        };
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-3, "{value} not {expected}");
        close(find(Metric::Ttft, Statistic::Mean).value, 750.0);
        close(find(Metric::Ttft, Statistic::Mean).peers[0].value, 700.0);
        close(find(Metric::Tpot, Statistic::Mean).value, 100.0);
        close(find(Metric::Makespan, Statistic::Total).value, 4000.0);
        close(find(Metric::OutputThroughput, Statistic::Total).value, 8.0);
        let split = case.run.as_ref().unwrap().split;
        assert_eq!((split.tensor, split.data, split.expert_tp, split.expert_parallel), (1, 2, 1, 2));
    }
}
