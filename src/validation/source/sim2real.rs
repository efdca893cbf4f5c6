//! A table of vLLM runs with the predictions of several simulators: one row per simulator, run, stage and metric.
//!
//! The table names the workload only. Its parameters are those of the runs of the same campaign that were published per
//! request (the same names, see `vllm_h100`), with Poisson arrivals.

use std::collections::BTreeMap;
use std::path::Path;

use crate::diag::Diagnostic;
use crate::rng::Stream;
use crate::units::Ticks;
use crate::workload::{Request, RequestStream};

use super::super::case::{Case, EngineVersion, Limits, Measured, Peer, Run, RunTraffic, Split, latency_named};
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
    prompt_tokens: u32,
    output_tokens: u32,
    /// Requests per second and seconds of each stage.
    stages: &'static [(f64, f64)],
}

/// Prompt: system prompt and question. The rates of the lighter variant are not published; its stages have rates of
/// 5 : 12 (the mean of the whole run lies at 12/17 between those of its stages, in all of its runs), and on the L40S, at
/// 18 s per request and at most 128 running, the second stage cannot be faster than 7 per second.
const LOADS: [Load; 5] = [
    Load { name: "codegen", prompt_tokens: 566, output_tokens: 247, stages: &[(5.0, 600.0), (10.0, 600.0)] },
    Load { name: "general", prompt_tokens: 547, output_tokens: 248, stages: &[(8.0, 600.0), (20.0, 600.0)] },
    Load { name: "general-lite", prompt_tokens: 547, output_tokens: 248, stages: &[(2.5, 600.0), (6.0, 600.0)] },
    Load { name: "roleplay", prompt_tokens: 750, output_tokens: 251, stages: &[(6.0, 1200.0)] },
    Load { name: "reasoning", prompt_tokens: 1034, output_tokens: 1448, stages: &[(4.0, 1200.0)] },
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
        prefix_caching: false,
        asynchronous: None,
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
            traffic: RunTraffic::Recorded(stream(load)),
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

/// Poisson arrivals, one stage after the other.
fn stream(load: &Load) -> RequestStream {
    let mut draws = Stream::new(0, "validation.sim2real", 0);
    let mut requests = Vec::new();
    let mut start = 0.0;
    for &(rate, seconds) in load.stages {
        let mut at = start;
        for _ in 0..libm::round(rate * seconds) as usize {
            at += draws.exponential() / rate;
            requests.push(Request {
                arrival: Ticks::from_seconds(at),
                prompt_tokens: load.prompt_tokens,
                output_tokens: load.output_tokens,
            });
        }
        start = f64::max(start + seconds, at);
    }
    RequestStream::open(requests)
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
    }
}
