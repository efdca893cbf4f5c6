//! Running a sweep: plan, shared work, worker pool and ordered writer.
//!
//! Workers take blocks of candidates from one cursor in index order and hand rows to a single writer over a bounded channel;
//! the writer restores the order and cuts parts at row counts, so that the bytes do not depend on the number of threads.

mod evaluate;
mod gate;
mod plan;
mod reporter;
mod run;
mod shared;
mod writer;

#[cfg(test)]
mod tests;

pub use evaluate::Evaluator;
pub use plan::{Engines, Exclusion, Plan, engines_of, memory_plan};
pub use reporter::{Progress, Reporter, Silent};
pub use run::{RunError, RunOptions, RunReport, run};
pub use shared::SharedWork;
