//! Runs of a small sweep against a roofline, in a scratch folder.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;
use crate::catalog::Catalog;
use crate::fidelity::predictor::ROOFLINE_UNCERTAINTY;
use crate::fidelity::{CostModel, EstimateSource};
use crate::results::{Manifest, OwnedRow, Status, Table};
use crate::sim::Arena;
use crate::space::Space;
use crate::spec::Sweep;
use crate::spec::fake::Fake;

const SWEEP: &str = r#"
[sweep]
name  = "small"
model = "dense-70b"
gpus  = 8

[workload]
requests = 12
input    = { fixed = 200 }
output   = { fixed = 20 }
arrival  = { poisson = { rate = { from = 1, to = 20, step = 1 } } }

[sla]
ttft_p95_ms = 1000

[engine]
max_model_len = 1024
max_num_seqs = { from = 8, to = 64, step = 8 }

[[colocation]]
all = { gpu = "h100-sxm", tp = [4, 8] }
"#;

struct World {
    sweep: Sweep,
    space: Space,
    engines: Engines,
    plan: Plan,
    shared: SharedWork,
}

impl World {
    fn new() -> Self {
        let sweep = Sweep::from_text("small.toml", SWEEP.to_owned(), &Fake).unwrap();
        let space = Space::new(&sweep);
        let catalog = Catalog::open(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let engines = engines_of(&sweep, |name| catalog.engine(name)).unwrap();
        let plan = Plan::new(&sweep, &space, &engines);
        let shared =
            SharedWork::prepare(&sweep, &space, &plan, &engines, |gpu, _| Ok(CostModel::new(gpu, None))).unwrap();
        Self { sweep, space, engines, plan, shared }
    }

    fn evaluator(&self) -> Evaluator<'_> {
        Evaluator { sweep: &self.sweep, space: &self.space, shared: &self.shared, engines: &self.engines }
    }

    fn manifest(&self, rows_per_part: u64) -> Manifest {
        Manifest::new("small", "hash", self.plan.points, self.plan.feasible.len() as u64, rows_per_part)
    }

    fn run(&self, folder: &Path, manifest: &mut Manifest, stop: &AtomicBool, reporter: &mut dyn Reporter) -> RunReport {
        let options = RunOptions { threads: 2, stop };
        run(&self.evaluator(), &self.plan, &[], folder, manifest, options, reporter).unwrap()
    }
}

/// Presses Ctrl-C after so many blocks.
struct Impatient<'a> {
    blocks_left: u32,
    stop: &'a AtomicBool,
}

impl Reporter for Impatient<'_> {
    fn rows(&mut self, _progress: Progress, _rows: &[OwnedRow]) {
        self.blocks_left = self.blocks_left.saturating_sub(1);
        self.stop.store(self.blocks_left == 0, Ordering::Relaxed);
    }
}

#[test]
fn every_feasible_candidate_gets_a_row_in_order() {
    let world = World::new();
    assert_eq!((world.plan.points, world.plan.feasible.len(), world.shared.hardware_keys()), (320, 320, 2));
    let folder = TempDir::new().unwrap();
    let mut manifest = world.manifest(100);
    let report = world.run(folder.path(), &mut manifest, &AtomicBool::new(false), &mut Silent);
    assert_eq!((report.progress.done, report.progress.sla_met, report.interrupted), (320, 320, false));
    let table = Table::load(folder.path(), &["index"]).unwrap();
    let indices = table.numbers("index").unwrap();
    assert_eq!(indices, (0..320).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn an_interrupted_run_keeps_whole_parts_and_goes_on_from_there() {
    let world = World::new();
    let folder = TempDir::new().unwrap();
    // Parts of two rows are more blocks than the workers may be ahead of the writer, so the interruption always comes first.
    let mut manifest = world.manifest(2);
    let stop = AtomicBool::new(false);
    let report = world.run(folder.path(), &mut manifest, &stop, &mut Impatient { blocks_left: 3, stop: &stop });
    assert!(report.interrupted && report.progress.done >= 6 && report.progress.done < 320, "{report:?}");
    let kept = manifest.parts.len() as u64;
    assert!(kept >= 3);
    let rest = world.run(folder.path(), &mut manifest, &AtomicBool::new(false), &mut Silent);
    assert_eq!((rest.progress.done, rest.interrupted), (320 - 2 * kept, false));
    assert_eq!(Table::load(folder.path(), &["index"]).unwrap().rows(), 320);
}

#[test]
fn a_candidate_that_panics_becomes_a_row_and_the_next_one_is_not_affected() {
    let world = World::new();
    let (evaluator, mut arena) = (world.evaluator(), Arena::default());
    let clean = evaluator.row(&mut Arena::default(), 1, 10_000, &[]);
    // Too few blocks for one request, as only a wrong plan could have them.
    let broken = evaluator.row(&mut arena, 0, 5, &[]);
    assert_eq!((broken.status, broken.outcome), (Status::Panicked, None));
    assert!(broken.error.unwrap().contains("the longest request needs 14 KV blocks, an engine has 4"));
    assert_eq!(evaluator.row(&mut arena, 1, 10_000, &[]).outcome, clean.outcome);
}

#[test]
fn a_gpu_without_measurements_is_simulated_on_rooflines_alone() {
    let world = World::new();
    let row = world.evaluator().row(&mut Arena::default(), 3, 10_000, &[]);
    let provenance = row.provenance.unwrap();
    assert!((provenance.share(EstimateSource::Roofline) - 1.0).abs() < 1e-12, "{provenance:?}");
    // Families are independent, so that a step is better known than any of its operators.
    for uncertainty in [provenance.tpot_uncertainty, provenance.ttft_uncertainty] {
        assert!(uncertainty > 0.1 && uncertainty < ROOFLINE_UNCERTAINTY, "{provenance:?}");
    }
}
