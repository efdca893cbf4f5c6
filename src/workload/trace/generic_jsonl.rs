//! Our own JSONL: keys `arrival` (seconds), `input` and `output` (tokens), others ignored.

use super::{Line, Problem, Row, TraceFormat, jsonl, nanoseconds};

pub(super) const FORMAT: TraceFormat = TraceFormat {
    name: "JSONL",
    first_line: r#"{"arrival": 0.5, "input": 100, "output": 20}"#,
    has_header: false,
    recognises: |first| jsonl::has_keys(first, &["arrival", "input", "output"]),
    read,
};

fn read(_: &str, line: Line<'_>) -> Result<Row, Problem> {
    let object = jsonl::object(line)?;
    let seconds = jsonl::number(&object, line, "arrival")?;
    Ok(Row {
        arrival_ns: nanoseconds(seconds, 1e9, jsonl::key_span(line, "arrival"))?,
        input: jsonl::length(&object, line, "input")?,
        output: jsonl::length(&object, line, "output")?,
        content: Vec::new(),
        tokens_per_id: 0,
    })
}
