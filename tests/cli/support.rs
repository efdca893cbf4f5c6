//! A scratch folder with a sweep in it, and the binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;

/// A sweep of eight candidates that simulates in milliseconds.
pub(crate) const TINY: &str = r#"[sweep]
name  = "tiny"
seed  = 3
model = "llama-3.1-8b"
gpus  = 2

[workload]
requests = 60
input    = { uniform = { min = 100, max = 900 } }
output   = { fixed = 80 }
arrival  = { poisson = { rate = [4, 16] } }

[sla]
ttft_p95_ms = 1000
tpot_p95_ms = 50

[engine]
max_model_len = 4096
max_num_seqs  = [8, 64]

[[colocation]]
all = { gpu = "h100-sxm", tp = [1, 2] }
"#;

pub(crate) struct Scratch {
    folder: TempDir,
}

/// What a command printed, and its exit code.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) results: String,
    pub(crate) messages: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its name.
    pub(crate) fn file<'a>(&self, name: &'a str, text: &str) -> &'a str {
        fs::write(self.path(name), text).unwrap();
        name
    }

    /// Writes a variant of the tiny sweep as `sweep.toml`.
    pub(crate) fn sweep(&self, replace: &str, with: &str) -> &'static str {
        assert!(TINY.contains(replace), "the sweep has no `{replace}`");
        self.file("sweep.toml", &TINY.replacen(replace, with, 1));
        "sweep.toml"
    }

    /// Runs the binary in this folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command().args(arguments).output().unwrap();
        Ran::of(&output, self.folder.path())
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::cargo_bin("servescape").unwrap();
        command.current_dir(self.folder.path());
        command.env("SERVESCAPE_CATALOG", env!("CARGO_MANIFEST_DIR"));
        command
    }
}

impl Ran {
    fn of(output: &Output, folder: &Path) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&folder.display().to_string(), "SCRATCH");
        Self { code: output.status.code().unwrap_or(-1), results: text(&output.stdout), messages: text(&output.stderr) }
    }

    /// Asserts the exit code, and that the message fits on a screen and contains every one of `needles`.
    pub(crate) fn fails_with(&self, code: i32, needles: &[&str]) {
        assert_eq!(self.code, code, "{}", self.messages);
        assert!(self.messages.lines().count() <= 24, "more than a screen:\n{}", self.messages);
        for needle in needles {
            assert!(self.messages.contains(needle), "`{needle}` is not in:\n{}", self.messages);
        }
    }
}
