//! Rows that are JSON objects, one per line.

use serde_json::{Map, Value};

use super::{Length, Line, Problem};

/// The object on a line.
pub(super) fn object(line: Line<'_>) -> Result<Map<String, Value>, Problem> {
    serde_json::from_str(line.text).map_err(|error| {
        let start = line.start + error.column().saturating_sub(1).min(line.text.len());
        // serde_json appends its own position, which counts from the start of this line.
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        Problem { message: format!("not a JSON object: {reason}"), span: start..start + 1 }
    })
}

/// The line holds all of these keys.
pub(super) fn has_keys(line: &str, keys: &[&str]) -> bool {
    line.starts_with('{') && keys.iter().all(|key| line.contains(&format!("\"{key}\"")))
}

/// A number of any kind.
pub(super) fn number(object: &Map<String, Value>, line: Line<'_>, key: &str) -> Result<f64, Problem> {
    object.get(key).and_then(Value::as_f64).ok_or_else(|| not_a(line, key, "number"))
}

/// A number of tokens.
pub(super) fn length(object: &Map<String, Value>, line: Line<'_>, key: &str) -> Result<Length, Problem> {
    let tokens = object.get(key).and_then(Value::as_i64).ok_or_else(|| not_a(line, key, "whole number"))?;
    Ok(Length { tokens, span: key_span(line, key) })
}

/// A list of whole numbers; empty if the key is absent.
pub(super) fn whole_numbers(object: &Map<String, Value>, line: Line<'_>, key: &str) -> Result<Vec<u64>, Problem> {
    let Some(value) = object.get(key) else { return Ok(Vec::new()) };
    let numbers = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    numbers.ok_or_else(|| not_a(line, key, "list of whole numbers"))
}

fn not_a(line: Line<'_>, key: &str, what: &str) -> Problem {
    Problem { message: format!("`{key}` must be a {what}"), span: key_span(line, key) }
}

/// The key in the line, or the whole line if it is absent.
pub(super) fn key_span(line: Line<'_>, key: &str) -> std::ops::Range<usize> {
    let quoted = format!("\"{key}\"");
    line.text.find(&quoted).map_or_else(|| line.span(), |at| line.start + at..line.start + at + quoted.len())
}
