//! The discrete-event simulator.

pub mod outcome;

pub use outcome::Outcome;
