//! The main job end to end.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Scratch, TINY};

/// Every Parquet file of a run folder with its content.
fn parquet_files(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in [run.to_path_buf(), run.join("parts")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                files.insert(path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap());
            }
        }
    }
    assert!(files.contains_key("part-000000.parquet"));
    files
}

#[test]
fn a_run_writes_parts_figures_and_the_answer() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    let ran = scratch.run(&["run", sweep]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.results.contains("of 8 simulated candidates meet the SLA"), "{}", ran.results);
    assert!(ran.results.contains("vllm serve meta-llama/Llama-3.1-8B"), "{}", ran.results);
    assert!(ran.messages.contains("8  combinations") && ran.messages.contains("8  to simulate"), "{}", ran.messages);
    let run = scratch.path("results/tiny");
    for file in
        ["manifest.json", "sweep.toml", "pruned.parquet", "plots/front.svg", "plots/front.png", "plots/front.csv"]
    {
        assert!(run.join(file).exists(), "{file}");
    }
    assert_eq!(fs::read_to_string(run.join("sweep.toml")).unwrap(), TINY);
    // A second run of the same sweep finds it finished and answers at once.
    let again = scratch.run(&["run", sweep, "--quiet"]);
    assert_eq!((again.code, &again.results), (0, &ran.results));
    assert_eq!(again.messages, "");
}

/// 640 candidates: three parts of many blocks.
fn wide(scratch: &Scratch) -> &'static str {
    let text = TINY
        .replace("rate = [4, 16]", "rate = { from = 1, to = 16, step = 1 }")
        .replace("[8, 64]", "{ from = 8, to = 80, step = 8 }\nmax_num_batched_tokens = [512, 2048]")
        .replace("requests = 60", "requests = 20");
    scratch.file("wide.toml", &text)
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let scratch = Scratch::new();
    let sweep = wide(&scratch);
    let run = |threads: &str| {
        let folder = format!("run-{threads}");
        assert_eq!(scratch.run(&["run", sweep, "--out", &folder, "--threads", threads, "--quiet"]).code, 0);
        parquet_files(&scratch.path(&folder))
    };
    let one = run("1");
    assert_eq!(one.len(), 4, "pruned candidates and three parts");
    assert_eq!(one, run("2"));
    assert_eq!(one, run("7"));
}

#[test]
fn a_resumed_run_ends_with_the_bytes_of_an_uninterrupted_one() {
    let scratch = Scratch::new();
    let sweep = wide(&scratch);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run", "--quiet"]).code, 0);
    let whole = parquet_files(&scratch.path("run"));
    // As after a crash: the second part is not there, and the manifest does not list it.
    fs::remove_file(scratch.path("run/parts/part-000001.parquet")).unwrap();
    scratch.run(&["top", "run"]).fails_with(5, &["part-000001.parquet"]);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run", "--resume", "--quiet"]).code, 0);
    assert_eq!(parquet_files(&scratch.path("run")), whole);
}

#[test]
fn the_front_can_be_filtered_again_without_simulating() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let ran = scratch.run(&["pareto", "run", "--sla", "gen_speed_p95>=1", "--y", "tokens_per_usd", "--out", "figure"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.results.contains("front of tokens_per_usd against gen_speed_p95"), "{}", ran.results);
    assert!(scratch.path("figure/front.svg").exists());
    scratch.run(&["pareto", "run", "--x", "ttft_p95"]).fails_with(2, &["`ttft_p95`"]);
    scratch.run(&["pareto", "run", "--sla", "ttft_p95_ms=5"]).fails_with(2, &["is not a bound"]);
}

#[test]
fn top_prints_as_many_deployments_as_asked() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let ran = scratch.run(&["top", "run", "-n", "2"]);
    assert_eq!(ran.results.matches("vllm serve").count(), 2, "{}", ran.results);
}

#[test]
fn parts_merge_into_one_file_that_reads_the_same() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let before = scratch.run(&["top", "run"]);
    assert_eq!(scratch.run(&["merge", "run"]).code, 0);
    assert!(scratch.path("run/results.parquet").exists());
    assert_eq!(scratch.run(&["top", "run"]).results, before.results);
}

#[test]
fn a_trace_replaces_arrivals_and_lengths() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    let mut azure = String::from("TIMESTAMP,ContextTokens,GeneratedTokens\n");
    for second in 0..60 {
        azure += &format!("2023-11-16 18:15:{second:02}.6805900,{},{}\n", 200 + second, 20 + second);
    }
    scratch.file("azure.csv", &azure);
    let ran = scratch.run(&["run", sweep, "--trace", "azure.csv", "--out", "run"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    // The trace takes the place of both loads.
    assert!(ran.results.contains("of 4 simulated candidates"), "{}", ran.results);
    assert_eq!(scratch.run(&["top", "run"]).code, 0);
}

#[test]
fn a_run_with_a_trace_beside_its_sweep_can_be_read_again() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("data")).unwrap();
    scratch.file("data/trace.csv", "arrival,input,output\n0.0,100,10\n0.5,70,10\n0.9,80,12\n");
    let sweep = scratch.sweep(
        "input    = { uniform = { min = 100, max = 900 } }\noutput   = { fixed = 80 }\n\
         arrival  = { poisson = { rate = [4, 16] } }",
        "arrival = { trace = { file = \"data/trace.csv\" } }",
    );
    let text = fs::read_to_string(scratch.path(sweep)).unwrap().replace("requests = 60\n", "");
    scratch.file("sweep.toml", &text);
    let ran = scratch.run(&["run", sweep, "--out", "runs/one"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert_eq!(scratch.run(&["top", "runs/one"]).results, ran.results);
}

#[test]
fn answers_of_one_token_meet_an_sla_without_a_generation_speed() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("output   = { fixed = 80 }", "output   = { fixed = 1 }");
    let ran = scratch.run(&["run", sweep]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.results.starts_with("8 of 8 simulated candidates meet the SLA"), "{}", ran.results);
    assert!(ran.results.contains("choose other axes"), "{}", ran.results);
}

#[test]
fn plan_counts_without_simulating() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("llama-3.1-8b", "llama-3.1-405b");
    let ran = scratch.run(&["plan", sweep]);
    assert_eq!(ran.code, 3, "{}", ran.messages);
    assert!(ran.results.contains("out of memory: no_room_for_weights, e.g. weights need"), "{}", ran.results);
    assert!(!scratch.path("results").exists());
}
