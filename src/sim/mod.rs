//! The discrete-event simulator: integer time, one event per run of equal engine steps, no allocation once warm.
//!
//! It never reads a file, prints, or knows that there is a sweep.

pub mod colocation;
pub mod front_end;
pub mod observer;
pub mod outcome;

mod cohort;
mod engine;
mod gaps;
mod prefix_cache;
mod queue;
mod replica;
mod request;

pub use colocation::{Arena, Deployment, simulate};
pub use front_end::FrontEnd;
pub use observer::{Observer, StepRecord};
pub use outcome::{Outcome, RequestBounds, RequestTiming};
pub use replica::Advance;
