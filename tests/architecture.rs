//! The shape of the code: dependencies point one way, and a few crates stay in their place.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

/// Modules from the bottom up; each may use only those above it in this list.
const ORDER: &[&str] = &[
    "units",
    "rng",
    "stats",
    "diag",
    "catalog",
    "spec",
    "space",
    "memory",
    "network",
    "fidelity",
    "workload",
    "scheduler",
    "sim",
    "results",
    "pareto",
    "cost",
    "explore",
    "validation",
    "plots",
    "cli",
];

/// Crates and paths that only some files may use.
const RESTRICTED: &[(&str, &[&str])] = &[
    ("plotters::", &["src/plots/chart.rs"]),
    ("smartcore::", &["src/fidelity/fit.rs"]),
    ("std::time", &["src/explore/", "src/cli/"]),
    (
        "std::fs",
        &[
            "src/catalog/",
            "src/spec/",
            "src/fidelity/",
            "src/workload/",
            "src/results/",
            "src/validation/",
            "src/plots/",
            "src/cli/",
        ],
    ),
    ("rayon::", &["src/explore/", "src/fidelity/", "src/validation/"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Path relative to the repository, and the code of the file without comments.
fn code() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    sources(&root.join("src"))
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            (path.strip_prefix(root).unwrap().display().to_string(), code.join("\n"))
        })
        .collect()
}

/// The module of `src/x.rs` and of everything in `src/x/`.
fn module(path: &str) -> &str {
    let rest = path.trim_start_matches("src/");
    rest.split('/').next().unwrap().trim_end_matches(".rs")
}

/// Modules named in `crate::x` and `crate::{x, y::z}`.
fn used_modules(code: &str) -> Vec<&str> {
    let mut used = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let rest = &code[position + "crate::".len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        used.extend(ORDER.iter().copied().find(|name| *name == &rest[..end]));
        assert!(!rest.starts_with('{'), "write one `use crate::module` per module, so that this test can read it");
    }
    used
}

#[test]
fn dependencies_point_one_way() {
    let rank = |name: &str| ORDER.iter().position(|module| *module == name);
    for (path, code) in code() {
        let from = module(&path);
        let Some(from_rank) = rank(from) else {
            assert!(["lib", "main"].contains(&from), "{path} belongs to no module of the list");
            continue;
        };
        for used in used_modules(&code) {
            assert!(
                rank(used).unwrap() <= from_rank,
                "{path} uses `{used}`, which comes later in the order of modules"
            );
        }
    }
}

#[test]
fn some_crates_stay_in_their_place() {
    for (path, code) in code() {
        for (name, allowed) in RESTRICTED {
            let permitted = allowed.iter().any(|prefix| path.starts_with(prefix));
            assert!(permitted || !code.contains(name), "{path} uses `{name}`, which belongs in {allowed:?}");
        }
    }
}

#[test]
fn files_stay_small_and_strict() {
    for (path, code) in code() {
        assert!(code.lines().count() <= 600, "{path} has {} lines of code", code.lines().count());
        for banned in ["serde(flatten)", "serde(untagged)", "serde( flatten"] {
            assert!(!code.contains(banned), "{path}: `{banned}` loses unknown-key checks or spans");
        }
    }
    let main = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs")).unwrap();
    assert!(main.lines().count() < 60);
}
