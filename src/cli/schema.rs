//! `servescape schema`: the JSON Schema of the sweep file.

use clap::Args;

use crate::spec::schema::json_schema;

use super::exit::{Exit, Failure};
use super::outputs::Output;

/// Arguments of `servescape schema`.
#[derive(Args, Debug)]
pub struct SchemaArgs {}

pub(super) fn run(_args: &SchemaArgs, output: &mut Output<'_>) -> Result<Exit, Failure> {
    writeln!(output.results, "{:#}", json_schema())?;
    Ok(Exit::Success)
}
