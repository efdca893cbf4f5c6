//! The command line, through the real binary.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod calibrate;
mod main_job;
mod quick_start;
mod support;
mod validate;
