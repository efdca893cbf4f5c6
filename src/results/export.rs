//! Tables that are no part of a run.

use std::path::Path;

use super::column::{Kind, Value};
use super::durable::replace_bytes;
use super::encode::{Field, encode};
use crate::diag::Diagnostic;

/// Writes `rows` rows with these columns as one Parquet file; `cell(column, row)` must have the column's kind or be null.
///
/// # Errors
/// If the file cannot be written.
pub fn write_table<'a>(
    path: &Path,
    columns: &[(String, Kind)],
    rows: usize,
    cell: impl Fn(usize, usize) -> Value<'a>,
) -> Result<(), Diagnostic> {
    let field = |(name, kind): &(String, Kind)| Field {
        name: name.clone(),
        kind: *kind,
        dictionary: matches!(kind, Kind::Text),
    };
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let bytes = encode(&fields, rows, cell)
        .map_err(|error| Diagnostic::new(format!("cannot encode `{}`: {error}", path.display())))?;
    replace_bytes(path, &bytes)
}
