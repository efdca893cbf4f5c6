//! The README's commands are what works.

use std::fs;
use std::path::Path;

use crate::support::Scratch;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// Command lines of the README's shell blocks.
fn commands() -> Vec<String> {
    let text = readme();
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

#[test]
fn the_quick_start_is_two_commands_and_ci_runs_the_second() {
    let commands = commands();
    assert_eq!(commands[0], "cargo run --release -- run sweeps/10-llama70b-h100.toml");
    assert_eq!(commands[1], "cargo test --locked");
    let ci = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run")).unwrap();
    assert!(ci.lines().any(|line| line == commands[1]));
}

#[test]
fn every_verb_and_flag_in_the_readme_exists() {
    let scratch = Scratch::new();
    for command in commands() {
        let Some(arguments) = command.strip_prefix("servescape ") else { continue };
        let words: Vec<&str> = arguments.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        let verbs = if words[0] == "profile" { 2 } else { 1 };
        let help = scratch.run(&[&words[..verbs], &["--help"]].concat());
        assert_eq!(help.code, 0, "{command}");
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.results.contains(flag), "`{command}`: {} has no {flag}", words[0]);
        }
    }
}

#[test]
fn every_shipped_sweep_is_valid_and_opens_with_its_question() {
    let scratch = Scratch::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sweeps");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ") && text.split('[').next().unwrap().contains('?'), "{}", path.display());
        let ran = scratch.run(&["check", path.to_str().unwrap()]);
        assert_eq!(ran.code, 0, "{}", ran.messages);
    }
}
