//! servescape: a parallel design-space explorer and Pareto optimizer for LLM serving.

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
pub mod workload;
