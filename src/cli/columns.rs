//! `servescape columns`: what the columns of the results mean.

use clap::Args;

use crate::results::schema;

use super::exit::{Exit, Failure};
use super::outputs::Output;

/// Arguments of `servescape columns`.
#[derive(Args, Debug)]
pub struct ColumnsArgs {}

pub(super) fn run(_args: &ColumnsArgs, output: &mut Output<'_>) -> Result<Exit, Failure> {
    write!(output.results, "{}", schema::markdown_table())?;
    Ok(Exit::Success)
}
