//! The index space of a sweep: index <-> candidate, constraints and ordering.

pub mod candidate;
mod constraints;
mod deploy;
mod excluded;
mod identity;
mod index;

pub use candidate::{Architecture, Candidate, CandidateId, EngineLimits, Parallelism, Pool, Role};
pub use constraints::{check_split, limits as check_limits};
pub use deploy::deployment_commands;
pub use excluded::Excluded;
pub use index::Space;
