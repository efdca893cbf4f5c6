//! Behaviour of the simulator: cases worked out by hand, queueing theory, invariants, and the contract of every
//! registered policy.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod conformance;
mod golden;
mod invariants;
mod queueing_theory;
mod support;
