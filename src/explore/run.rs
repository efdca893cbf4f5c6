//! Runs the planned candidates on all cores.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crossbeam::channel::{Sender, bounded};

use crate::diag::{Diagnostic, Diagnostics};
use crate::pareto::Bound;
use crate::results::manifest::Session;
use crate::results::{Manifest, OwnedRow};
use crate::sim::Arena;

use super::evaluate::Evaluator;
use super::gate::Gate;
use super::plan::Plan;
use super::reporter::{Progress, Reporter};
use super::writer::{Block, Writer};

/// Candidates in one block: long enough to make the cursor cheap, short enough to spread evenly.
const BLOCK_ROWS: usize = 32;
/// Blocks that workers may be ahead of the writer, per thread.
const WINDOW_PER_THREAD: usize = 32;

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions<'a> {
    /// Worker threads.
    pub threads: usize,
    /// Set to stop taking new blocks; finished parts stay.
    pub stop: &'a AtomicBool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunReport {
    /// Rows written in this session, with those of unfinished parts.
    pub progress: Progress,
    /// Stopped before the end.
    pub interrupted: bool,
    /// Wall time of the simulations, in seconds.
    pub wall_seconds: f64,
}

/// Why a run failed. What was finished is on disk.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Writing failed.
    #[error("{0}")]
    Write(Diagnostics),
    /// The worker threads could not be started.
    #[error("cannot start the worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// Simulates the parts that the manifest misses and writes them into `run_folder`.
///
/// # Errors
/// A full disk, a missing permission, or no threads; finished parts are kept and listed in the manifest.
pub fn run(
    evaluator: &Evaluator<'_>,
    plan: &Plan,
    bounds: &[Bound],
    run_folder: &Path,
    manifest: &mut Manifest,
    options: RunOptions<'_>,
    reporter: &mut dyn Reporter,
) -> Result<RunReport, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build()?;
    let parts = manifest.missing_parts();
    let blocks: Vec<&[(u64, u64)]> = parts
        .iter()
        .flat_map(|&part| {
            let range = manifest.part_range(part);
            plan.feasible[range.start as usize..range.end as usize].chunks(BLOCK_ROWS)
        })
        .collect();
    let total = blocks.iter().map(|block| block.len() as u64).sum();
    let gate = Gate::default();
    let cursor = AtomicUsize::new(0);
    let (sender, receiver) = bounded(2 * options.threads);
    let window = WINDOW_PER_THREAD * options.threads;
    #[expect(clippy::disallowed_methods, reason = "the duration of a session is reported to the user")]
    let started = std::time::Instant::now();
    let (written, progress) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let progress = Progress { total, ..Progress::default() };
            let mut writer = Writer { run_folder, manifest, reporter, gate: &gate, progress };
            let written = writer.consume(&parts, &receiver);
            (written, writer.progress)
        });
        let task =
            Task { evaluator, bounds, blocks: &blocks, cursor: &cursor, gate: &gate, window, stop: options.stop };
        // The last sender goes with this closure, also when a worker panics: the writer then ends.
        pool.broadcast(move |_| task.work(&sender));
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let wall_seconds = started.elapsed().as_secs_f64();
    manifest.sessions.push(Session { threads: options.threads as u64, wall_seconds, simulated: progress.done });
    written
        .and_then(|()| manifest.store(run_folder))
        .map_err(|diagnostic: Diagnostic| RunError::Write(diagnostic.into()))?;
    Ok(RunReport { progress, interrupted: progress.done < total, wall_seconds })
}

/// What every worker sees.
#[derive(Clone, Copy)]
struct Task<'a> {
    evaluator: &'a Evaluator<'a>,
    bounds: &'a [Bound],
    blocks: &'a [&'a [(u64, u64)]],
    cursor: &'a AtomicUsize,
    gate: &'a Gate,
    window: usize,
    stop: &'a AtomicBool,
}

impl Task<'_> {
    /// One worker: takes blocks in order until there are none, the gate closes or the user stops.
    fn work(self, sender: &Sender<Block>) {
        let _on_panic = CloseOnPanic(self.gate);
        let mut arena = Arena::default();
        while !self.stop.load(Ordering::Relaxed) {
            let position = self.cursor.fetch_add(1, Ordering::Relaxed);
            let Some(block) = self.blocks.get(position) else { return };
            if !self.gate.enter(position, self.window) {
                return;
            }
            let row = |&(index, kv_blocks): &(u64, u64)| self.evaluator.row(&mut arena, index, kv_blocks, self.bounds);
            let rows: Vec<OwnedRow> = block.iter().map(row).collect();
            if sender.send(Block { position, rows }).is_err() {
                return;
            }
        }
    }
}

/// Lets the other workers go home when this one panics outside a simulation.
struct CloseOnPanic<'a>(&'a Gate);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
