//! Run folders: one table of columns, Parquet parts, a manifest with their hashes, and the reader of both.
//!
//! ```text
//! results/RUN/
//!   manifest.json               what was run, which parts exist, their hashes, and facts of the host
//!   sweep.toml                  the sweep as the user wrote it
//!   pruned.parquet              candidates dropped before simulation, with the reason in numbers
//!   parts/part-000000.parquet   rows in index order, cut at fixed row counts
//!   results.parquet             the parts in one file, once they were merged
//! ```
//!
//! Nothing in a Parquet file depends on time, host or number of threads, so equal runs give equal bytes.

mod column;
mod derived;
mod durable;
mod encode;
mod export;
#[cfg(test)]
pub(crate) mod fixture;
pub mod manifest;
pub mod merge;
pub mod part;
pub mod reader;
pub mod row;
pub mod schema;

pub use column::{Column, Direction, Group, Kind, Value};
pub use derived::{IDLE_POWER_SHARE, tokens_per_usd};
pub use durable::failure;
pub(crate) use durable::replace_bytes;
pub use export::write_table;
pub use manifest::Manifest;
pub use reader::Table;
pub use row::{OwnedRow, PrunedRow, Row, Status};
