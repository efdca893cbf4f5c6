//! A table of vLLM runs with the predictions of several simulators: one row per simulator, run, stage and metric.
//!
//! The table names the workload only. The rest is that of the runs of the same campaign that were published per request
//! (see `vllm_h100`; `2-codellama-34b-tp2-codegen` and `10-mixtral-8x7b-tp2-codegen` are two of these, with equal means):
//! - each stage has exactly rate x duration requests, spread over its duration like a Poisson process (the gaps vary as
//!   much as they are long, but the last request always comes within a second of the end);
//! - the next stage begins 2.5 s after the last answer of the one before;
//! - the client walks through a list of 100 prompts again and again, and the engine caches prefixes: time to first token
//!   falls after the first 100 requests. Which of these have a system prompt in common is not recorded; they are taken to
//!   have none, which matters to 100 of some thousand requests only;
//! - prompts have some 25 to 40 tokens more than asked for, with a standard deviation of 6 to 9: random tokens become others
//!   when their text is tokenised again.

use std::collections::BTreeMap;
use std::path::Path;

use crate::diag::Diagnostic;
use crate::rng::Stream;
use crate::units::Ticks;
use crate::workload::{Prefix, Request, RequestStream};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Peer, Run, RunTraffic, Split, latency_named,
};
use super::super::names;
use super::super::table::{Record, Table};
use super::{Format, has_columns};

pub(super) const FORMAT: Format = Format {
    name: "sim2real",
    summary: "CSV with `simulator`, `metric_name`, `predicted`, `actual`, one row per simulator, run and metric",
    recognises: |_, text| has_columns(text, &COLUMNS),
    read,
};

const COLUMNS: [&str; 11] = [
    "simulator",
    "model",
    "workload",
    "stage_index",
    "metric_name",
    "predicted",
    "actual",
    "hardware",
    "tp",
    "max_num_batched_tokens",
    "experiment",
];

/// Rows of the whole run; the others are of one stage.
const WHOLE_RUN: f64 = -1.0;
const VLLM: &str = "0.15.1";
/// Limits of the campaign's runs that were published in full.
const MAX_NUM_SEQS: u32 = 128;
const MAX_MODEL_LEN: u32 = 4096;
const GPU_MEMORY_UTILIZATION: f64 = 0.9;

/// A workload of the campaign.
struct Load {
    name: &'static str,
    /// Shortest and longest prompt.
    prompt_tokens: (u32, u32),
    output_tokens: u32,
    /// Requests per second and seconds of each stage.
    stages: &'static [(f64, f64)],
}

/// Prompts in the list of the client.
const PROMPTS: usize = 100;
/// Between two stages: until the last answer, some seconds, and 2.5 s.
const PAUSE_S: f64 = 5.0;

/// Prompts: uniform with mean and standard deviation of the runs with counts. The rates of the lighter variant are not published; its stages have rates of
/// 5 : 12 (the mean of the whole run lies at 12/17 between those of its stages, in all of its runs), and on the L40S, at
/// 18 s per request and at most 128 running, the second stage cannot be faster than 7 per second.
const LOADS: [Load; 5] = [
    Load { name: "codegen", prompt_tokens: (581, 602), output_tokens: 247, stages: &[(5.0, 600.0), (10.0, 600.0)] },
    Load { name: "general", prompt_tokens: (562, 585), output_tokens: 248, stages: &[(8.0, 600.0), (20.0, 600.0)] },
    Load { name: "general-lite", prompt_tokens: (562, 585), output_tokens: 248, stages: &[(2.5, 600.0), (6.0, 600.0)] },
    Load { name: "roleplay", prompt_tokens: (773, 799), output_tokens: 251, stages: &[(6.0, 1200.0)] },
    Load { name: "reasoning", prompt_tokens: (1063, 1094), output_tokens: 1448, stages: &[(4.0, 1200.0)] },
];

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let table = Table::read(path, &COLUMNS)?;
    let mut cases: Vec<Case> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for record in table.records() {
        if record.number("stage_index")? != WHOLE_RUN {
            continue;
        }
        let experiment = record.required("experiment")?;
        let position = *positions.entry(experiment.to_owned()).or_insert(cases.len());
        if position == cases.len() {
            cases.push(read_case(record, experiment)?);
        }
        add_metric(&mut cases[position].measured, record)?;
    }
    Ok(cases)
}

fn add_metric(measured: &mut Vec<Measured>, record: Record<'_>) -> Result<(), Diagnostic> {
    let Some((metric, statistic)) = latency_named(record.required("metric_name")?) else { return Ok(()) };
    let peer = Peer::new(record.required("simulator")?, record.number("predicted")?);
    match measured.iter_mut().find(|one| (one.metric, one.statistic) == (metric, statistic)) {
        Some(one) => one.peers.push(peer),
        None => measured.push(Measured { metric, statistic, value: record.number("actual")?, peers: vec![peer] }),
    }
    Ok(())
}

fn read_case(record: Record<'_>, experiment: &str) -> Result<Case, Diagnostic> {
    let model = record.required("model")?;
    let gpu = record.required("hardware")?;
    let name = |workload: &str| {
        // The workload's column drops the variant in some rows; the run's name has it.
        let lite = experiment.contains("-lite") && !workload.ends_with("-lite");
        if lite { format!("{workload}-lite") } else { workload.to_owned() }
    };
    let workload = name(record.required("workload")?);
    let limits = Limits {
        max_num_seqs: MAX_NUM_SEQS,
        max_num_batched_tokens: record.count("max_num_batched_tokens")?,
        max_model_len: MAX_MODEL_LEN,
        gpu_memory_utilization: match record.text("gpu_mem_util") {
            Some(_) => record.number("gpu_mem_util")?,
            None => GPU_MEMORY_UTILIZATION,
        },
        cuda_graph: true,
        chunked_prefill: true,
        asynchronous: None,
        prefix_caching: true,
        graphs: GraphSetting::default(),
    };
    let tensor = record.count("tp")?;
    let run = || -> Result<Run, String> {
        let (catalog_model, formats) = names::model(model, record.text("precision").unwrap_or_default())?;
        let load = LOADS.iter().find(|load| load.name == workload);
        let load = load.ok_or_else(|| format!("the rate of the workload `{workload}` is not published"))?;
        Ok(Run {
            model: catalog_model,
            formats,
            gpu: names::gpu(gpu)?,
            engine: EngineVersion::new("vllm", Some(VLLM)),
            split: Split::tensor(tensor),
            limits,
            traffic: RunTraffic::Recorded(stream(load)?),
        })
    };
    Ok(Case {
        group: FORMAT.name.to_owned(),
        id: experiment.to_owned(),
        model: model.to_owned(),
        gpu: gpu.to_owned(),
        run: run(),
        measured: Vec::new(),
    })
}

/// The stages one after the other, with prompts from the list.
fn stream(load: &Load) -> Result<RequestStream, String> {
    let mut arrivals = Stream::new(0, "validation.sim2real", 0);
    let mut lengths = Stream::new(0, "validation.sim2real.prompts", 0);
    let (shortest, longest) = load.prompt_tokens;
    let prompts: Vec<u32> =
        (0..PROMPTS).map(|_| shortest + lengths.below(u64::from(longest - shortest) + 1) as u32).collect();
    let mut requests = Vec::new();
    let mut start = 0.0;
    for &(rate, seconds) in load.stages {
        for at in spread(&mut arrivals, libm::round(rate * seconds) as usize, seconds) {
            requests.push(Request {
                arrival: Ticks::from_seconds(start + at),
                prompt_tokens: prompts[requests.len() % PROMPTS],
                output_tokens: load.output_tokens,
            });
        }
        start += seconds + PAUSE_S;
    }
    let repeated = |(index, request): (usize, &Request)| {
        let source = index % PROMPTS;
        (source < index).then_some(Prefix { source: source as u32, tokens: request.prompt_tokens })
    };
    let prefixes = requests.iter().enumerate().map(repeated).collect();
    RequestStream::open(requests).with_prefixes(prefixes)
}

/// So many times of a Poisson process that has as many within these seconds.
fn spread(draws: &mut Stream, count: usize, seconds: f64) -> Vec<f64> {
    let mut times = Vec::with_capacity(count + 1);
    let mut at = 0.0;
    for _ in 0..=count {
        at += draws.exponential();
        times.push(at);
    }
    times.truncate(count);
    times.iter().map(|time| time * seconds / at).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::case::{Metric, Statistic};
    use super::*;

    #[test]
    fn a_run_gathers_the_predictions_of_all_simulators() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let header = "simulator,model,workload,stage_index,metric_name,predicted,actual,hardware,tp,\
                      max_num_batched_tokens,gpu_mem_util,precision,experiment";
        let row = |simulator: &str, stage: &str, metric: &str, predicted: &str, experiment: &str| {
            format!(
                "{simulator},Qwen/Qwen3-14B,general,{stage},{metric},{predicted},100,H100,1.0,2048.0,,FP16,{experiment}\n"
            )
        };
        let text = [
            row("a", "-1", "ttft_mean", "90", "1-general"),
            row("a", "0", "ttft_mean", "1", "1-general"),
            row("b", "-1", "ttft_mean", "120", "1-general"),
            row("a", "-1", "e2e_p99", "90", "1-general"),
            row("a", "-1", "ttft_mean", "90", "2-general-lite"),
        ];
        fs::write(&path, format!("{header}\n{}", text.concat())).unwrap();
        let cases = read(&path).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].measured.len(), 2);
        let ttft = &cases[0].measured[0];
        assert_eq!((ttft.metric, ttft.statistic), (Metric::Ttft, Statistic::Mean));
        assert_eq!(ttft.peers, [Peer::new("a", 90.0), Peer::new("b", 120.0)]);
        let requests = |case: &Case| case.run.as_ref().unwrap().traffic.streams()[0].requests.len();
        assert_eq!((requests(&cases[0]), requests(&cases[1])), (16_800, 5_100));
        assert!(cases[0].run.as_ref().unwrap().limits.prefix_caching);
    }

    #[test]
    fn the_client_walks_through_its_prompts_again_and_again() {
        let load = Load { name: "l", prompt_tokens: (50, 60), output_tokens: 7, stages: &[(5.0, 30.0), (10.0, 20.0)] };
        let stream = stream(&load).unwrap();
        assert_eq!(stream.requests.len(), 350);
        let repeated = |index| stream.prefix(index).map(|prefix| prefix.source);
        assert_eq!([99, 100, 250, 349].map(repeated), [None, Some(0), Some(50), Some(49)]);
        let lengths = || stream.requests.iter().map(|request| request.prompt_tokens);
        assert!(lengths().skip(PROMPTS).eq(lengths().take(250)));
        assert_eq!((lengths().min(), lengths().max()), (Some(50), Some(60)));
        assert_eq!(stream.prefix(123).unwrap().tokens, stream.requests[23].prompt_tokens);
        let seconds: Vec<f64> = stream.requests.iter().map(|request| request.arrival.as_seconds()).collect();
        assert!(seconds.is_sorted());
        let (first, second) = seconds.split_at(150);
        assert!(first.iter().all(|at| *at < 30.0) && first[149] > 27.0);
        assert!(second.iter().all(|at| (35.0..55.0).contains(at)));
    }
}
