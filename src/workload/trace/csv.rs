//! Comma-separated fields by column name. The formats hold numbers and dates only, so there is no quoting.

use super::{Length, Line, Problem};

/// The position of a column.
pub(super) fn position(header: &str, column: &str) -> Option<usize> {
    // Spreadsheets put a byte-order mark before the first name.
    header.trim_start_matches('\u{feff}').split(',').position(|name| name.trim() == column)
}

/// The header has all of these columns.
pub(super) fn has_columns(header: &str, columns: &[&str]) -> bool {
    columns.iter().all(|column| position(header, column).is_some())
}

/// One field of a row, as a line of its own.
pub(super) fn field<'a>(header: &str, line: Line<'a>, column: &str) -> Result<Line<'a>, Problem> {
    let mut start = line.start;
    let wanted = position(header, column);
    for (index, raw) in line.text.split(',').enumerate() {
        if Some(index) == wanted {
            let leading = raw.len() - raw.trim_start().len();
            return Ok(Line { text: raw.trim(), start: start + leading });
        }
        start += raw.len() + 1;
    }
    Err(Problem { message: format!("the column `{column}` is missing in this row"), span: line.span() })
}

/// A field that counts tokens.
pub(super) fn length(header: &str, line: Line<'_>, column: &str) -> Result<Length, Problem> {
    let field = field(header, line, column)?;
    match field.text.parse() {
        Ok(tokens) => Ok(Length { tokens, span: field.span() }),
        Err(_) => Err(not_a(field, "whole number")),
    }
}

/// "`x` is not a ...".
pub(super) fn not_a(field: Line<'_>, what: &str) -> Problem {
    Problem { message: format!("`{}` is not a {what}", field.text), span: field.span() }
}
