//! servescape: a parallel design-space explorer and Pareto optimizer for LLM serving.
//!
//! Given a model, traffic, an SLA and GPUs, it enumerates deployments, drops those that do not fit in memory, runs a
//! discrete-event simulation of every other one on all cores, and keeps the Pareto front.
//!
//! ```text
//! sweeps/*.toml --spec--> Sweep --space--> index 0..N --memory--> feasible | pruned, with reasons
//! profiles/, models/ --catalog, fidelity, network--> StepCost, one per hardware key
//! workload --> RequestStream, one per load
//! explore: one atomic cursor over candidates -> sim -> one writer, in order -> results/RUN/parts/*.parquet
//! measured runs --validation--> the same simulator --> errors, beside those of others
//! results --> pareto, plots --> front.svg, front.png, front.csv and the table of the best deployments
//! ```
//!
//! Modules from the bottom up; each uses only those above it in this list (`tests/architecture.rs` checks it):
//!
//! | module | what |
//! |---|---|
//! | [`units`] [`rng`] [`stats`] | clock ticks and formatting; named random streams; exact percentiles |
//! | [`diag`] | what is wrong, where, what to do |
//! | [`catalog`] | models, GPUs and engine versions, read from `models/` and `profiles/` |
//! | [`spec`] | the sweep file: what the user wrote, and what it means |
//! | [`space`] | index <-> candidate, constraints, stable ids, deployment commands |
//! | [`memory`] | weights, activations, buffers, KV blocks; verdicts with numbers |
//! | [`network`] | collectives and transfers by topology |
//! | [`fidelity`] | operators, fitted predictors, rooflines, the step-cost grids compiled from them, and where their times come from |
//! | [`workload`] | arrivals, lengths and traces: one request stream per load |
//! | [`scheduler`] | scheduling and routing policies, one file each |
//! | [`sim`] | the discrete-event simulator |
//! | [`results`] | one table of columns; Parquet parts, manifest, reader, merge |
//! | [`pareto`] [`cost`] | SLA filter, dominance, front, knee; spend ratio and cost efficiency |
//! | [`explore`] | plan, shared work, worker pool, ordered writer |
//! | [`validation`] | measured serving runs, simulated again and compared |
//! | [`plots`] | figures |
//! | [`cli`] | one file per verb |
//!
//! Where to add what: a GPU, model, engine version or sweep is a data file in `profiles/gpus`, `models`,
//! `profiles/engines` or `sweeps`. A scheduler, router, trace format, network backend, importer or format of measured
//! runs is one new file and one line in the `const` slice of its module; a result column is one line in
//! `results/schema.rs`; a verb is one file in `cli`.

pub mod catalog;
pub mod cli;
pub mod cost;
pub mod diag;
pub mod explore;
pub mod fidelity;
pub mod memory;
pub mod network;
pub mod pareto;
pub mod plots;
pub mod results;
pub mod rng;
pub mod scheduler;
pub mod sim;
pub mod space;
pub mod spec;
pub mod stats;
pub mod units;
pub mod validation;
pub mod workload;
