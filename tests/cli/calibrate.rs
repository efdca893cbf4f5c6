//! Host constants from measured runs: what was simulated with known constants must come back.

use std::fs;
use std::path::Path;

use crate::support::Scratch;

/// Constants of the hidden truth that differ from the start.
const TRUTH: [(&str, f64); 3] =
    [("exposed_us", 1600.0), ("eager_layer_launch_us", 700.0), ("serial_request_us", 9000.0)];
/// The same ones at the start, whatever the shipped profile says.
const START: [(&str, f64); 3] =
    [("exposed_us", 900.0), ("eager_layer_launch_us", 450.0), ("serial_request_us", 5000.0)];

/// A catalog with one model, one GPU and one engine.
fn catalog(scratch: &Scratch, name: &str, truth: &[(&str, f64)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["models", "profiles/gpus", "profiles/engines"] {
        fs::create_dir_all(scratch.path(name).join(folder)).unwrap();
    }
    for file in ["models/llama-3.1-8b.json", "profiles/gpus/h100-sxm.toml"] {
        fs::copy(root.join(file), scratch.path(name).join(file)).unwrap();
    }
    let profile = fs::read_to_string(root.join("profiles/engines/vllm-0.15.toml")).unwrap();
    let changed = |line: &str| {
        let value = truth.iter().find(|(key, _)| line.starts_with(&format!("{key} = ")));
        value.map_or_else(|| line.to_owned(), |(key, value)| format!("{key} = {value:?}"))
    };
    let lines: Vec<String> = profile.lines().map(changed).collect();
    fs::write(scratch.path(name).join("profiles/engines/vllm-0.15.toml"), lines.join("\n") + "\n").unwrap();
}

/// A result file; the latencies are placeholders until `measure` puts in those of a simulation.
fn result(rate: f64, prompts: u32, latencies: &[(String, f64)]) -> String {
    let latency = |name: &str| latencies.iter().find(|(key, _)| key == name).map_or(1.0, |(_, value)| *value);
    let keys = ["median_ttft_ms", "mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms"];
    let fields: Vec<String> = keys.iter().map(|key| format!("\"{key}\": {}", latency(key))).collect();
    format!(
        "{{\"model_id\": \"meta-llama/Llama-3.1-8B-Instruct\", \"num_prompts\": {prompts}, \"request_rate\": {rate}, \
         \"burstiness\": 1.0, \"max_concurrency\": null, \"completed\": {prompts}, \"total_input_tokens\": {}, \
         \"total_output_tokens\": {}, {}}}",
        300 * prompts,
        40 * prompts,
        fields.join(", ")
    )
}

/// Writes runs whose latencies are those of a simulation with the true constants.
fn measure(scratch: &Scratch, prompts: u32) {
    catalog(scratch, "true", &TRUTH);
    catalog(scratch, "start", &START);
    fs::create_dir(scratch.path("runs")).unwrap();
    let runs = [("slow", 1.0, ""), ("fast", 8.0, ""), ("eager", 2.0, "enforce_eager = true\n")];
    for (name, rate, more) in runs {
        scratch.file(&format!("runs/{name}.json"), &result(rate, prompts, &[]));
        let deployment = format!(
            "gpu = \"h100-sxm\"\nversion = \"0.15.1\"\nmax_num_seqs = 64\nmax_num_batched_tokens = 2048\n{more}"
        );
        scratch.file(&format!("runs/{name}.deployment.toml"), &deployment);
    }
    let ran = scratch.run(&["validate", "runs", "--out", "out", "--catalog", "true"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    let cases = fs::read_to_string(scratch.path("out/cases.csv")).unwrap();
    let mut rows = cases.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (case, metric, statistic, simulated) =
        (column("case"), column("metric"), column("statistic"), column("simulated"));
    let rows: Vec<Vec<&str>> = rows.collect();
    for (name, rate, _) in runs {
        let latency = |row: &Vec<&str>| {
            let metric = match row[metric] {
                "E2E" => "e2el".to_owned(),
                other => other.to_lowercase(),
            };
            let statistic = if row[statistic] == "p50" { "median" } else { row[statistic] };
            (format!("{statistic}_{metric}_ms"), row[simulated].parse().unwrap())
        };
        let latencies: Vec<(String, f64)> = rows.iter().filter(|row| row[case] == name).map(latency).collect();
        assert_eq!(latencies.len(), 4, "{cases}");
        scratch.file(&format!("runs/{name}.json"), &result(rate, prompts, &latencies));
    }
}

#[test]
fn known_constants_are_recovered_from_a_wrong_start() {
    let scratch = Scratch::new();
    measure(&scratch, 200);
    let calibrate = |start| {
        scratch.run(&["calibrate", "runs", "--engine", "vllm-0.15", "--out", "fitted.toml", "--catalog", start])
    };
    let ran = calibrate("start");
    assert_eq!(ran.code, 0, "{}", ran.messages);
    let fitted = fs::read_to_string(scratch.path("fitted.toml")).unwrap();
    for (key, truth) in TRUTH {
        let line = fitted.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!((value / truth - 1.0).abs() < 0.05, "{key} = {value}, not {truth}\n{}\n{}", ran.results, ran.messages);
    }
    // Work that is hidden behind the GPU leaves no trace, and two latencies that add up are one.
    for hidden in ["per_sequence_us", "response_us"] {
        assert!(ran.messages.contains(&format!("do not identify `{hidden}`: anything from")), "{}", ran.messages);
    }
    assert!(
        fitted
            .contains("Fitted by `servescape calibrate` from vllm-0.15 as it was before, on 3 runs: bench_serve/eager")
    );
    assert!(fitted.contains("# Eager mode: about 22 ms"), "comments stay");
}

#[test]
fn runs_that_were_not_chosen_are_held_out() {
    let scratch = Scratch::new();
    measure(&scratch, 20);
    let calibrate = |more: &[&str]| {
        let common = ["calibrate", "runs", "--engine", "vllm-0.15", "--out", "fitted.toml", "--catalog", "start"];
        scratch.run(&[common.as_slice(), more].concat())
    };
    let ran = calibrate(&["--fit", "bench_serve/slow", "--fit", "bench_serve/fast"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.messages.contains("2 runs fitted, 1 held out"), "{}", ran.messages);
    assert!(
        ran.messages.contains("do not identify `eager_layer_launch_us`: none of them depends on it"),
        "{}",
        ran.messages
    );
    assert!(ran.results.contains("| bench_serve/eager | held out | TTFT p50 |"), "{}", ran.results);
    calibrate(&["--fit", "bench_serve/x"]).fails_with(2, &["begins with `bench_serve/x`", "bench_serve"]);
    calibrate(&["--only", "bench"]).fails_with(2, &["no format `bench`", "bench_serve"]);
    calibrate(&["--engine", "vllm-0.16"]).fails_with(2, &["--engine"]);
}

#[test]
fn mistakes_are_shown_in_their_place() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("runs")).unwrap();
    scratch.file("runs/a.json", &result(1.0, 40, &[]));
    let calibrate = |engine: &str| scratch.run(&["calibrate", "runs", "--engine", engine, "--out", "fitted.toml"]);
    calibrate("vllm-0.15").fails_with(2, &["a.json", "a.deployment.toml", "docs/calibration.md"]);
    scratch.file("runs/a.deployment.toml", "gpu = \"h100-sxm\"\nversion = \"0.15\"\ntp = 2\n");
    calibrate("vllm-0.15").fails_with(2, &["unknown key `tp`", "a.deployment.toml:3:1"]);
    scratch.file("runs/a.deployment.toml", "gpu = \"h100-sxm\"\nengine = \"sglang\"\n");
    calibrate("vllm-0.15").fails_with(2, &["none of the runs is of vllm 0.15"]);
    calibrate("vllm-0.51").fails_with(2, &["unknown engine `vllm-0.51`", "vllm-0.15"]);
    assert!(!scratch.path("fitted.toml").exists());
}
