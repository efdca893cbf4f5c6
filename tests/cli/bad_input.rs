//! Bad input gives a message that says what is wrong, where and what to do; the right exit code; and loses nothing.

use std::fs;
use std::io::Write as _;

use crate::support::{Scratch, TINY};

#[test]
fn an_unknown_key_is_located_and_corrected() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("requests = 60", "requets = 60");
    scratch
        .run(&["check", sweep])
        .fails_with(2, &["unknown", "`requets`", "sweep.toml:8:1", "did you mean `requests`"]);
}

#[test]
fn a_wrong_type_is_located() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("seed  = 3", "seed  = \"three\"");
    scratch.run(&["check", sweep]).fails_with(2, &["sweep.toml:3:9", "three"]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let scratch = Scratch::new();
    scratch.file(
        "sweep.toml",
        &TINY
            .replace("ttft_p95_ms", "ttft_p59_ms")
            .replace("h100-sxm", "h100-smx")
            .replace("llama-3.1-8b", "lama-3.1-8b"),
    );
    scratch
        .run(&["check", "sweep.toml"])
        .fails_with(2, &["did you mean `ttft_p50_ms`", "did you mean `h100-sxm`", "did you mean `llama-3.1-8b`"]);
}

#[test]
fn impossible_parallelism_names_the_rule() {
    let scratch = Scratch::new();
    // 32 attention heads cannot be dealt out to three GPUs.
    let sweep = scratch.sweep("gpus  = 2", "gpus  = 3");
    fs::write(scratch.path("sweep.toml"), fs::read_to_string(scratch.path(sweep)).unwrap().replace("[1, 2]", "3"))
        .unwrap();
    scratch.run(&["run", sweep]).fails_with(3, &["heads", "3"]);
}

#[test]
fn an_empty_axis_is_an_error() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("tp = [1, 2]", "tp = []");
    scratch.run(&["check", sweep]).fails_with(2, &["sweep.toml:22:", "empty"]);
}

#[test]
fn an_unknown_model_lists_what_is_known() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("llama-3.1-8b", "gpt-5");
    scratch.run(&["check", sweep]).fails_with(2, &["`gpt-5`", "sweep.toml:4:9"]);
}

#[test]
fn an_unreadable_trace_is_named() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    scratch.run(&["run", sweep, "--trace", "missing.csv"]).fails_with(2, &["missing.csv"]);
}

#[test]
fn a_trace_with_a_negative_length_is_located() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    scratch.file("trace.csv", "arrival,input,output\n0.0,100,10\n0.5,-7,10\n");
    scratch.run(&["run", sweep, "--trace", "trace.csv"]).fails_with(2, &["trace.csv:3", "-7"]);
}

#[test]
fn a_budget_nobody_can_meet_says_why() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("gpus  = 2", "gpus  = 7");
    fs::write(scratch.path("sweep.toml"), fs::read_to_string(scratch.path(sweep)).unwrap().replace("[1, 2]", "[2, 4]"))
        .unwrap();
    scratch.run(&["run", sweep]).fails_with(3, &["7"]);
}

#[test]
fn a_model_too_large_for_its_gpus_is_not_simulated() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("llama-3.1-8b", "llama-3.1-405b");
    scratch.run(&["run", sweep]).fails_with(3, &["weights need", "GiB", "help"]);
    assert!(!scratch.path("results").exists());
}

#[test]
fn an_unwritable_results_folder_fails_before_the_simulation() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    // A file where the folder should be: fails for every user, root included.
    scratch.file("taken", "");
    scratch.run(&["run", sweep, "--out", "taken/run"]).fails_with(5, &["taken", "--out"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_what_is_finished() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let finished = fs::read(scratch.path("run/parts/part-000000.parquet")).unwrap();
    // The part must be written again, to a device that is always full.
    fs::remove_file(scratch.path("run/parts/part-000000.parquet")).unwrap();
    std::os::unix::fs::symlink("/dev/full", scratch.path("run/parts/part-000000.parquet.tmp")).unwrap();
    let full = scratch.run(&["run", sweep, "--out", "run", "--resume", "--quiet"]);
    full.fails_with(5, &["part-000000.parquet", "no space left", "free some space", "--resume --out run"]);
    let _ = fs::remove_file(scratch.path("run/parts/part-000000.parquet.tmp"));
    assert_eq!(scratch.run(&["run", sweep, "--out", "run", "--resume"]).code, 0);
    assert_eq!(fs::read(scratch.path("run/parts/part-000000.parquet")).unwrap(), finished);
}

#[test]
fn a_corrupt_part_is_named_refused_and_recomputed_by_resume() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let part = scratch.path("run/parts/part-000000.parquet");
    let good = fs::read(&part).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    fs::write(&part, &flipped).unwrap();
    scratch.run(&["top", "run"]).fails_with(5, &["part-000000.parquet", "resume"]);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run", "--resume"]).code, 0);
    assert_eq!(fs::read(&part).unwrap(), good);
    fs::File::options().write(true).open(&part).unwrap().set_len(100).unwrap();
    scratch.run(&["top", "run"]).fails_with(5, &["part-000000.parquet"]);
}

#[test]
fn requests_longer_than_the_engine_accepts_are_not_simulated() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("max_model_len = 4096", "max_model_len = 512");
    scratch.run(&["run", sweep]).fails_with(3, &["the longest request has 980 tokens, max_model_len is 512"]);
}

#[test]
fn files_that_no_run_wrote_are_left_alone() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    fs::create_dir_all(scratch.path("project/parts")).unwrap();
    scratch.file("project/parts/engine.step", "mine");
    for force in [&[][..], &["--force"]] {
        let arguments = [&["run", sweep, "--out", "project"], force].concat();
        scratch.run(&arguments).fails_with(5, &["holds files that no run wrote", "--out"]);
    }
    assert_eq!(fs::read_to_string(scratch.path("project/parts/engine.step")).unwrap(), "mine");
}

#[test]
fn two_runs_cannot_write_into_one_folder() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    fs::create_dir(scratch.path("run")).unwrap();
    let lock = fs::File::create(scratch.path("run/run.lock")).unwrap();
    lock.lock().unwrap();
    scratch.run(&["run", sweep, "--out", "run"]).fails_with(5, &["another process is writing into `run`"]);
    drop(lock);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
}

#[test]
fn numbers_beyond_reason_are_refused_not_attempted() {
    let scratch = Scratch::new();
    for (key, value, expected) in [
        ("requests = 60", "requests = 4294967295", "`requests` must be between 1 and"),
        ("gpus  = 2", "gpus  = 4294967295", "must be between 1 and"),
        ("rate = [4, 16]", "rate = 1e-9", "more than a hundred days"),
        (
            "max_num_seqs  = [8, 64]",
            "max_num_seqs = { from = 1, to = 1000, step = 1 }\n\
          max_num_batched_tokens = { from = 1000, to = 90000, step = 1 }",
            "combinations",
        ),
    ] {
        let sweep = scratch.sweep(key, value);
        scratch.run(&["run", sweep]).fails_with(2, &[expected]);
    }
}

#[test]
fn damaged_tables_beside_the_parts_are_made_again_by_resume() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    assert_eq!(scratch.run(&["merge", "run"]).code, 0);
    let pruned = fs::read(scratch.path("run/pruned.parquet")).unwrap();
    for name in ["run/pruned.parquet", "run/results.parquet"] {
        fs::write(scratch.path(name), "not a table").unwrap();
    }
    assert_eq!(scratch.run(&["run", sweep, "--out", "run", "--resume"]).code, 0);
    assert_eq!(fs::read(scratch.path("run/pruned.parquet")).unwrap(), pruned);
    assert_eq!(scratch.run(&["merge", "run"]).code, 0);
    assert_eq!(scratch.run(&["top", "run"]).code, 0);
}

#[test]
fn a_run_folder_of_another_sweep_is_not_overwritten() {
    let scratch = Scratch::new();
    let sweep = scratch.file("sweep.toml", TINY);
    assert_eq!(scratch.run(&["run", sweep, "--out", "run"]).code, 0);
    let manifest = fs::read(scratch.path("run/manifest.json")).unwrap();
    let other = scratch.sweep("fixed = 80", "fixed = 81");
    scratch.run(&["run", other, "--out", "run"]).fails_with(2, &["different sweep", "--out", "--force"]);
    assert_eq!(fs::read(scratch.path("run/manifest.json")).unwrap(), manifest);
}

#[test]
fn an_sla_that_nobody_meets_is_an_answer_not_an_error() {
    let scratch = Scratch::new();
    let sweep = scratch.sweep("tpot_p95_ms = 50", "tpot_p95_ms = 0.001");
    let ran = scratch.run(&["run", sweep]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.results.starts_with("0 of 8 simulated candidates meet the SLA"), "{}", ran.results);
    assert!(ran.results.contains("Closest values reached"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let scratch = Scratch::new();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_servescape"))
        .args(["schema"])
        .env("SERVESCAPE_CATALOG", env!("CARGO_MANIFEST_DIR"))
        .current_dir(scratch.path("."))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    std::io::stderr().flush().unwrap();
}
