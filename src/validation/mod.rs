//! Measured serving runs, simulated again and compared.
//!
//! A [`source`] reads published or own measurements into [`Case`]s: a deployment, its traffic, what was measured, and
//! what other simulators said of the same run. [`answer`] builds each deployment from the catalogue, simulates it, and
//! gives an [`Answer`] or the reason why there is none; [`summary`], [`report`] and [`output`] make tables of them.
//! Nothing is fitted there; [`mod@calibrate`] fits the host constants of an engine profile to runs.

pub mod aims;
mod answer;
pub mod calibrate;
pub mod case;
mod deployment;
mod names;
pub mod output;
pub mod report;
pub mod source;
pub mod summary;
mod table;

pub use answer::{Answer, Simulated, answer};
pub use case::{Case, EngineVersion, Limits, Measured, Metric, Peer, Run, RunTraffic, Statistic};
pub use source::{FORMATS, Format, check_formats, read};
