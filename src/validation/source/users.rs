//! Tables of users who compared vLLM with the Frontier simulator: one row per workload and metric. Requests of fixed
//! lengths arrive in a Poisson stream.

use std::collections::BTreeMap;
use std::path::Path;

use crate::diag::Diagnostic;
use crate::spec::{Arrival, Dialogue, LengthLaw, Traffic, Workload};

use super::super::case::{
    Case, EngineVersion, GraphSetting, Limits, Measured, Metric, Peer, Run, RunTraffic, Split, Statistic, latency_named,
};
use super::super::names;
use super::super::table::{Record, Table};
use super::{Format, has_columns};

pub(super) const FORMAT: Format = Format {
    name: "users",
    summary: "CSV with `gpu`, `workload`, `isl`, `osl`, `metric`, `vllm`, `frontier`, one row per metric",
    recognises: |_, text| has_columns(text, &COLUMNS),
    read,
};

const COLUMNS: [&str; 11] =
    ["gpu", "model", "engine", "dp", "pp", "workload", "isl", "osl", "metric", "vllm", "frontier"];
const PEER: &str = "Frontier";
/// Draws per case: fewer requests than this many times over leave their p95 to chance.
const REPETITIONS: u64 = 8;
/// vLLM's default for its server on large GPUs. The note "chunk 512" of the H100 table is about the simulator's profile:
/// vLLM answers prompts of 1,024 tokens after one step (46 ms at 40 ms per step).
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
/// vLLM's default; no run has as many requests.
const MAX_NUM_SEQS: u32 = 1024;
const GPU_MEMORY_UTILIZATION: f64 = 0.9;
/// Requests of rows that do not say: those of the other rows.
const REQUESTS: u32 = 100;

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let table = Table::read(path, &COLUMNS)?;
    let mut rows: BTreeMap<(usize, String), Vec<Record<'_>>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for record in table.records() {
        let id = [record.text("config"), record.text("workload"), record.text("qps")];
        let id = id.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let position = order.iter().position(|known| *known == id).unwrap_or_else(|| {
            order.push(id.clone());
            order.len() - 1
        });
        rows.entry((position, id)).or_default().push(record);
    }
    rows.into_iter().map(|((_, id), records)| read_case(id, &records)).collect()
}

fn read_case(id: String, records: &[Record<'_>]) -> Result<Case, Diagnostic> {
    let first = records[0];
    let gpu = first.required("gpu")?;
    let mut values = Vec::new();
    for record in records {
        if let Some((metric, statistic)) = named(record.required("metric")?) {
            let peers = vec![Peer::new(PEER, record.number("frontier")?)];
            values.push(Measured { metric, statistic, value: record.number("vllm")?, peers });
        }
    }
    let given_rate = first.text("qps").map(|_| first.number("qps")).transpose()?;
    let requests = first.optional_count("n_requests")?.unwrap_or(REQUESTS);
    let rate = given_rate.or_else(|| rate_of(&values, requests));
    // Where the rate is given, both sides drew their own arrivals, so that rates of completion say nothing; where it is
    // not, it was taken from the makespan.
    let totals = given_rate.is_none();
    values.retain(|one| one.metric != Metric::Makespan && (totals || one.statistic != Statistic::Total));
    let run = read_run(first, gpu, requests, rate)?;
    let model = first.required("model")?.to_owned();
    Ok(Case { group: format!("users {gpu}"), id, model, gpu: gpu.to_owned(), run, measured: values })
}

fn named(name: &str) -> Option<(Metric, Statistic)> {
    match name {
        "makespan" => Some((Metric::Makespan, Statistic::Total)),
        "request_throughput" => Some((Metric::RequestThroughput, Statistic::Total)),
        "decode_token_throughput" => Some((Metric::OutputThroughput, Statistic::Total)),
        name => latency_named(name),
    }
}

/// The rate of arrivals that the source does not state: all but the last request arrive before the last answer begins
/// to take its time.
fn rate_of(values: &[Measured], requests: u32) -> Option<f64> {
    let value = |metric| values.iter().find(|one| one.metric == metric).map(|one| one.value);
    let arrivals_ms = value(Metric::Makespan)? - value(Metric::E2e)?;
    (arrivals_ms > 0.0).then(|| f64::from(requests - 1) * 1e3 / arrivals_ms)
}

fn read_run(
    record: Record<'_>,
    gpu: &str,
    requests: u32,
    rate: Option<f64>,
) -> Result<Result<Run, String>, Diagnostic> {
    let size = |column: &str| record.optional_count(column);
    let group = |column: &str| record.group_size(column);
    let tensor = group("tp")?.or(group("attn_tp")?).unwrap_or(1);
    let expert_parallel = group("ep")?.or(group("moe_ep")?).unwrap_or(1);
    let (data, pipeline) = (group("dp")?.unwrap_or(1), group("pp")?.unwrap_or(1));
    let gpus = tensor * data;
    let limits = Limits {
        max_num_seqs: size("max_num_seqs")?.unwrap_or(MAX_NUM_SEQS),
        max_num_batched_tokens: size("max_num_batched_tokens")?.unwrap_or(MAX_NUM_BATCHED_TOKENS),
        max_model_len: 1,
        gpu_memory_utilization: GPU_MEMORY_UTILIZATION,
        cuda_graph: !record.text("enforce_eager").is_some_and(|text| text.eq_ignore_ascii_case("true")),
        // The V1 engine always splits prompts; the column is the simulator's setting.
        chunked_prefill: true,
        prefix_caching: false,
        asynchronous: None,
        graphs: GraphSetting::default(),
    };
    let engine = record.required("engine")?;
    let version = engine.split_whitespace().find(|word| word.contains('.'));
    let lengths = |column: &str| record.text(column).and_then(|text| text.parse::<u32>().ok()).filter(|n| *n > 0);
    let run = || -> Result<Run, String> {
        let (model, formats) = names::model(record.text("model").unwrap_or_default(), "")?;
        let (Some(isl), Some(osl)) = (lengths("isl"), lengths("osl")) else {
            return Err("the lengths of its requests are not recorded".to_owned());
        };
        let rate = rate.filter(|rate| *rate > 0.0).ok_or("the rate of arrivals is not recorded")?;
        let workload = Workload {
            requests: requests as usize,
            warmup: 0,
            traffic: Traffic::Synthetic {
                arrival: Arrival::Poisson { rates: vec![rate] },
                input: LengthLaw::Fixed(isl),
                output: LengthLaw::Fixed(osl),
                dialogue: Dialogue::NONE,
            },
        };
        Ok(Run {
            model,
            formats,
            gpu: names::gpu(gpu)?,
            engine: EngineVersion::new("vllm", version),
            split: Split { pipeline, tensor, data, expert_tp: (gpus / expert_parallel).max(1), expert_parallel },
            limits,
            traffic: RunTraffic::Drawn { workload, repetitions: REPETITIONS },
        })
    };
    Ok(run())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn cases(text: &str) -> Vec<Case> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.csv");
        fs::write(&path, text).unwrap();
        read(&path).unwrap()
    }

    #[test]
    fn a_rate_that_is_not_stated_comes_from_the_makespan() {
        let header = "gpu,model,engine,config,pp,tp,ep,dp,enforce_eager,max_num_seqs,workload,isl,osl,n_requests,metric,\
                      vllm,frontier";
        let row = |isl: &str, metric: &str, vllm: &str| {
            let run = "H100 80GB,Qwen3-30B-A3B,\"vLLM v1 0.10.2 (FlashInfer 0.3.1, x)\",c,1,8,8,1,true,32";
            format!("{run},w{isl},{isl},100,64,{metric},{vllm},1\n")
        };
        let text = [
            row("1024", "makespan", "40000"),
            row("1024", "e2e_p95", "8500"),
            row("1024", "request_throughput", "1.6"),
            row("sharegpt", "e2e_p95", "8500"),
        ];
        let cases = cases(&format!("{header}\n{}", text.concat()));
        let run = cases[0].run.as_ref().unwrap();
        assert!(!run.limits.cuda_graph);
        assert_eq!((run.engine.number(), run.split.tensor, run.split.expert_parallel), (Some((0, 10)), 8, 8));
        let RunTraffic::Drawn { workload, .. } = &run.traffic else { panic!("drawn") };
        assert!((workload.load(0) - 2.0).abs() < 1e-9);
        assert_eq!(cases[0].measured.len(), 2, "the makespan is an input");
        assert!(cases[1].run.as_ref().unwrap_err().contains("lengths"));
    }

    #[test]
    fn rates_of_completion_are_not_compared_where_arrivals_were_not_the_same() {
        let text = "gpu,model,engine,attn_tp,dp,moe_ep,pp,max_num_batched_tokens,workload,isl,osl,qps,n_requests,metric,\
                    vllm,frontier\n\
                    H20,Qwen3-30B-A3B-Instruct-2507,vLLM v1 0.10.2,4,2,8,1,16384,w,64,1024,2.0,100.0,ttft_mean,33.4,46.6\n\
                    H20,Qwen3-30B-A3B-Instruct-2507,vLLM v1 0.10.2,4,2,8,1,16384,w,64,1024,2.0,100.0,request_throughput,1.6,2\n\
                    H20,Qwen3-30B-A3B-Instruct-2507,vLLM v1 0.10.2,4,2,8,1,16384,w,64,1024,0.2,,ttft_p50,40,50\n";
        let cases = cases(text);
        assert_eq!((cases.len(), cases[0].measured.len()), (2, 1));
        let split = cases[0].run.as_ref().unwrap().split;
        assert_eq!((split.tensor, split.data, split.expert_tp, split.expert_parallel), (4, 2, 1, 8));
        assert_eq!(cases[1].measured[0].statistic, Statistic::P50);
    }
}
