//! Results of `vllm bench serve --save-result`, with the deployment in a file of its own beside them.
//!
//! Keys are those of `vllm/benchmarks/serve.py`: latencies in milliseconds as `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms`
//! (TPOT, ITL and, on request, E2EL alike); with `--save-detailed` also lengths, start times and latencies per request, in
//! seconds.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::diag::Diagnostic;
use crate::spec::{Arrival, Dialogue, LengthLaw, Traffic, Workload};
use crate::stats::Summary;
use crate::units::Ticks;
use crate::workload::{Request, RequestStream};

use super::super::case::{Case, Measured, Metric, Run, RunTraffic, Statistic};
use super::super::names;
use super::super::table::{parse_json, read_text};
use super::bench_serve_deployment::{self as deployment, DeploymentFile};
use super::{Format, sorted_by_arrival};

pub(super) const FORMAT: Format = Format {
    name: "bench_serve",
    summary: "JSON of `vllm bench serve --save-result`, beside NAME.deployment.toml",
    recognises: |name, text| {
        name.ends_with(".json") && text.contains("\"mean_ttft_ms\"") && text.contains("\"total_input_tokens\"")
    },
    read,
};

/// Draws per run without recorded requests.
const REPETITIONS: u64 = 4;
/// Runs in which a larger share of requests failed are not compared: the simulator's clients never give up.
const MOST_FAILURES: f64 = 0.01;
/// Longest time and most tokens that are believed: beyond them, ticks and token sums would overflow.
const MOST_SECONDS: f64 = 1e6;
const MOST_TOKENS: f64 = 1e7;

/// What matters here; the file has more.
#[derive(Deserialize)]
struct Results {
    model_id: String,
    num_prompts: u32,
    /// Requests per second, or `"inf"`.
    #[serde(default)]
    request_rate: Value,
    burstiness: Option<f64>,
    max_concurrency: Option<u32>,
    ramp_up_strategy: Option<String>,
    completed: u32,
    total_input_tokens: u64,
    total_output_tokens: u64,
    request_throughput: Option<f64>,
    output_throughput: Option<f64>,
    input_lens: Option<Vec<u32>>,
    output_lens: Option<Vec<u32>>,
    ttfts: Option<Vec<f64>>,
    itls: Option<Vec<Vec<f64>>>,
    start_times: Option<Vec<f64>>,
}

fn read(path: &Path) -> Result<Vec<Case>, Diagnostic> {
    let text = read_text(path)?;
    let results: Results = parse_json(&text, path)?;
    let latencies: BTreeMap<String, Value> = parse_json(&text, path)?;
    let problem = |what: &str| Diagnostic::new(format!("`{}`: {what}", path.display()));
    results.check().map_err(|what| problem(&what))?;
    let deployment = deployment::read(path)?;
    let mut measured = aggregates(&latencies).map_err(|key| problem(&format!("`{key}` is not a latency")))?;
    if !measured.iter().any(|one| one.metric == Metric::E2e) {
        measured.extend(results.e2e());
    }
    let totals = [
        (Metric::RequestThroughput, results.request_throughput),
        (Metric::OutputThroughput, results.output_throughput),
    ];
    let total = |(metric, value): (Metric, Option<f64>)| Some(Measured::new(metric, Statistic::Total, value?));
    measured.extend(totals.into_iter().filter_map(total));
    Ok(vec![Case {
        group: FORMAT.name.to_owned(),
        id: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        model: results.model_id.clone(),
        gpu: deployment.gpu.clone(),
        run: results.run(&deployment),
        measured,
    }])
}

/// Statistics that the client computed; otherwise the key that is wrong.
fn aggregates(values: &BTreeMap<String, Value>) -> Result<Vec<Measured>, String> {
    let metrics = [(Metric::Ttft, "ttft"), (Metric::Tpot, "tpot"), (Metric::Itl, "itl"), (Metric::E2e, "e2el")];
    let statistics = [
        (Statistic::Mean, "mean"),
        (Statistic::P50, "median"),
        (Statistic::P90, "p90"),
        (Statistic::P95, "p95"),
        (Statistic::P99, "p99"),
    ];
    let mut measured = Vec::new();
    for (metric, name) in metrics {
        for (statistic, prefix) in statistics {
            let key = format!("{prefix}_{name}_ms");
            let Some(value) = values.get(&key).filter(|value| !value.is_null()) else { continue };
            let value = value.as_f64().filter(|value| *value >= 0.0).ok_or(key)?;
            measured.push(Measured::new(metric, statistic, value));
        }
    }
    Ok(measured)
}

impl Results {
    fn check(&self) -> Result<(), String> {
        if self.num_prompts == 0 || self.completed == 0 {
            return Err("no request was completed".to_owned());
        }
        let count = self.input_lens.as_ref().map(Vec::len);
        let lengths = [
            ("output_lens", self.output_lens.as_ref().map(Vec::len)),
            ("ttfts", self.ttfts.as_ref().map(Vec::len)),
            ("itls", self.itls.as_ref().map(Vec::len)),
            ("start_times", self.start_times.as_ref().map(Vec::len)),
        ];
        if let (Some(count), Some((name, length))) = (
            count,
            lengths.into_iter().find_map(|(name, length)| Some((name, length.filter(|it| Some(*it) != count)?))),
        ) {
            return Err(format!("`{name}` has {length} entries, `input_lens` has {count}"));
        }
        let times = self.start_times.iter().flatten().chain(self.ttfts.iter().flatten());
        let believable = |seconds: &f64| (0.0..f64::INFINITY).contains(seconds);
        if !times.chain(self.itls.iter().flatten().flatten()).all(believable) {
            return Err("times must be seconds that are not negative".to_owned());
        }
        let starts = self.start_times.iter().flatten();
        let (first, last) = starts.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), at| (a.min(*at), b.max(*at)));
        if last - first > MOST_SECONDS || self.total_input_tokens as f64 / f64::from(self.completed) > MOST_TOKENS {
            return Err("it is longer than any run can be".to_owned());
        }
        Ok(())
    }

    /// E2E of the requests that succeeded, from the times of their tokens.
    fn e2e(&self) -> Vec<Measured> {
        let (Some(ttfts), Some(itls), Some(outputs)) = (&self.ttfts, &self.itls, &self.output_lens) else {
            return Vec::new();
        };
        let answered = ttfts.iter().zip(itls).zip(outputs).filter(|(_, tokens)| **tokens > 0);
        let mut latencies: Vec<Ticks> = answered
            .map(|((ttft, gaps), _)| Ticks::from_seconds((ttft + gaps.iter().sum::<f64>()).min(MOST_SECONDS)))
            .collect();
        if latencies.is_empty() {
            return Vec::new();
        }
        Measured::of_summary(Metric::E2e, &Summary::of(&mut latencies), &[]).collect()
    }

    fn run(&self, deployment: &DeploymentFile) -> Result<Run, String> {
        let failed = self.num_prompts.saturating_sub(self.completed);
        if f64::from(failed) > MOST_FAILURES * f64::from(self.num_prompts) {
            let sent = self.num_prompts;
            return Err(format!("{failed} of {sent} requests failed; simulated clients wait for ever"));
        }
        let (model, formats) = match &deployment.model {
            Some(model) => (model.clone(), deployment.formats()),
            None => {
                let (model, formats) = names::model(&self.model_id, deployment.quantization())
                    .map_err(|reason| format!("{reason}; set `model` in the deployment file"))?;
                (model, deployment.formats().or(formats))
            }
        };
        Ok(Run {
            model,
            formats,
            gpu: deployment.gpu.clone(),
            engine: deployment.engine_version(),
            split: deployment.split(),
            limits: deployment.limits(),
            traffic: self.traffic()?,
        })
    }

    /// Requests per second; `None` if all were sent at once, or as clients became free.
    fn rate(&self) -> Result<Option<f64>, String> {
        match &self.request_rate {
            Value::Null => Ok(None),
            Value::String(text) if text == "inf" => Ok(None),
            value => match value.as_f64() {
                Some(rate) if rate.is_finite() && rate > 0.0 => Ok(Some(rate)),
                _ => Err(format!("`request_rate` is {value}")),
            },
        }
    }

    fn traffic(&self) -> Result<RunTraffic, String> {
        let (rate, clients) = (self.rate()?, self.max_concurrency.filter(|clients| *clients > 0));
        if let (Some(inputs), Some(outputs)) = (&self.input_lens, &self.output_lens) {
            let request = |(index, (input, output)): (usize, (&u32, &u32))| Request {
                arrival: self.start(index),
                prompt_tokens: (*input).max(1),
                output_tokens: (*output).max(1),
            };
            let requests: Vec<Request> = inputs.iter().zip(outputs).enumerate().map(request).collect();
            let stream = match (rate, clients) {
                // When a client was free again is up to the simulation.
                (None, Some(clients)) => {
                    let at_once = |request: Request| Request { arrival: Ticks::ZERO, ..request };
                    Some(RequestStream::closed(requests.into_iter().map(at_once).collect(), clients))
                }
                (Some(_), _) if self.start_times.is_none() => None,
                _ => Some(RequestStream::open(sorted_by_arrival(requests))),
            };
            if let Some(stream) = stream {
                return Ok(RunTraffic::Recorded(stream));
            }
        }
        if self.ramp_up_strategy.is_some() || (rate.is_some() && clients.is_some()) {
            return Err("its start times are not recorded; use `--save-detailed`".to_owned());
        }
        let burstiness = self.burstiness.filter(|shape| *shape != 1.0 && *shape > 0.0 && shape.is_finite());
        let arrival = match (rate, clients, burstiness) {
            (None, None, _) => Arrival::Batch,
            (None, Some(clients), _) => Arrival::Closed { clients: vec![clients] },
            (Some(rate), _, None) => Arrival::Poisson { rates: vec![rate] },
            (Some(rate), _, Some(burstiness)) => Arrival::Gamma { rates: vec![rate], burstiness },
        };
        let mean = |total: u64| LengthLaw::Fixed(libm::round(total as f64 / f64::from(self.completed)).max(1.0) as u32);
        let traffic = Traffic::Synthetic {
            arrival,
            input: mean(self.total_input_tokens),
            output: mean(self.total_output_tokens),
            dialogue: Dialogue::NONE,
        };
        let workload = Workload { requests: self.num_prompts as usize, warmup: 0, traffic };
        Ok(RunTraffic::Drawn { workload, repetitions: REPETITIONS })
    }

    /// When a request was sent, from the first one.
    fn start(&self, index: usize) -> Ticks {
        let Some(times) = &self.start_times else { return Ticks::ZERO };
        let first = times.iter().copied().fold(f64::INFINITY, f64::min);
        Ticks::from_seconds(times[index] - first)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DEPLOYMENT: &str = "gpu = \"h100-sxm\"\nversion = \"0.15.1\"\n";
    const RESULTS: &str = r#"{"date": "20260101-000000", "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": 2, "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": null, "completed": 2,
        "total_input_tokens": 300, "total_output_tokens": 5, "request_throughput": 1.5, "output_throughput": 3.5,
        "mean_ttft_ms": 30.0, "median_ttft_ms": 29.0, "p99_ttft_ms": 40.0, "mean_tpot_ms": 7.0, "mean_itl_ms": 7.5}"#;

    fn read_files(results: &str, deployment: &str) -> Result<Case, Diagnostic> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs::write(&path, results).unwrap();
        fs::write(folder.path().join("run.deployment.toml"), deployment).unwrap();
        read(&path).map(|cases| cases[0].clone())
    }

    fn detailed(with: &str) -> String {
        let lists = r#""input_lens": [100, 200], "output_lens": [3, 2], "ttfts": [0.03, 0.03],
            "itls": [[0.01, 0.02], [0.04]], "start_times": [7.5, 7.0], "#;
        RESULTS.replacen('{', &format!("{{{lists}{with}"), 1)
    }

    #[test]
    fn totals_give_mean_lengths_and_drawn_arrivals() {
        let case = read_files(RESULTS, DEPLOYMENT).unwrap();
        let run = case.run.as_ref().unwrap();
        assert_eq!((run.model.as_str(), run.engine.number(), case.id.as_str()), ("llama-3.1-8b", Some((0, 15)), "run"));
        let RunTraffic::Drawn { workload, .. } = &run.traffic else { panic!("drawn") };
        let Traffic::Synthetic { arrival, input, output, .. } = &workload.traffic else { panic!("synthetic") };
        assert_eq!(arrival, &Arrival::Poisson { rates: vec![2.0] });
        assert_eq!((input, output), (&LengthLaw::Fixed(150), &LengthLaw::Fixed(3)));
        let value = |metric, statistic| {
            let found = case.measured.iter().find(|one| (one.metric, one.statistic) == (metric, statistic));
            found.map(|one| one.value)
        };
        assert_eq!(value(Metric::Ttft, Statistic::P50), Some(29.0));
        assert_eq!(value(Metric::Itl, Statistic::Mean), Some(7.5));
        assert_eq!(value(Metric::RequestThroughput, Statistic::Total), Some(1.5));
        assert_eq!(
            value(Metric::E2e, Statistic::Mean),
            None,
            "not among the metrics that the client reports by default"
        );
    }

    #[test]
    fn details_are_replayed() {
        let case = read_files(&detailed(""), DEPLOYMENT).unwrap();
        let RunTraffic::Recorded(stream) = &case.run.as_ref().unwrap().traffic else { panic!("recorded") };
        let arrivals: Vec<(Ticks, u32)> = stream.requests.iter().map(|one| (one.arrival, one.prompt_tokens)).collect();
        assert_eq!(arrivals, [(Ticks::ZERO, 200), (Ticks::from_seconds(0.5), 100)]);
        let mean = case.measured.iter().find(|one| one.metric == Metric::E2e && one.statistic == Statistic::Mean);
        // 30 + 10 + 20 and 30 + 40 ms.
        assert!((mean.unwrap().value - 65.0).abs() < 1e-6);
    }

    #[test]
    fn a_bound_on_concurrency_alone_is_a_closed_loop() {
        let text = detailed("").replace("\"request_rate\": 2.0", "\"request_rate\": \"inf\"");
        let case =
            read_files(&text.replace("\"max_concurrency\": null", "\"max_concurrency\": 1"), DEPLOYMENT).unwrap();
        let RunTraffic::Recorded(stream) = &case.run.as_ref().unwrap().traffic else { panic!("recorded") };
        assert_eq!((stream.clients, stream.requests[0].prompt_tokens), (Some(1), 100));
        let both = RESULTS.replace("\"max_concurrency\": null", "\"max_concurrency\": 1");
        assert!(read_files(&both, DEPLOYMENT).unwrap().run.unwrap_err().contains("--save-detailed"));
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let message = |text: &str| read_files(text, DEPLOYMENT).unwrap_err().message;
        let short = detailed("").replace("[3, 2]", "[3]");
        assert!(message(&short).contains("`output_lens` has 1 entries, `input_lens` has 2"));
        assert!(message(&RESULTS.replace("30.0", "\"x\"")).contains("`mean_ttft_ms` is not a latency"));
        assert!(message(&RESULTS.replace("\"completed\": 2", "\"completed\": 0")).contains("no request"));
        let failed = RESULTS.replace("\"num_prompts\": 2", "\"num_prompts\": 9");
        assert!(read_files(&failed, DEPLOYMENT).unwrap().run.unwrap_err().contains("7 of 9 requests failed"));
    }
}
