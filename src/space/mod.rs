//! The index space of a sweep: index <-> candidate, constraints and ordering.

pub mod candidate;

pub use candidate::{Architecture, Candidate, CandidateId, EngineLimits, Parallelism, Pool, Role};
