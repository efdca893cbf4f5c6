//! Our own CSV: columns `arrival` (seconds), `input` and `output` (tokens), in any order, others ignored.

use super::{Line, Problem, Row, TraceFormat, csv, nanoseconds};

pub(super) const FORMAT: TraceFormat = TraceFormat {
    name: "CSV",
    first_line: "arrival,input,output",
    has_header: true,
    recognises: |first| csv::has_columns(first, &["arrival", "input", "output"]),
    read,
};

fn read(header: &str, line: Line<'_>) -> Result<Row, Problem> {
    let arrival = csv::field(header, line, "arrival")?;
    let seconds: f64 = arrival.text.parse().map_err(|_| csv::not_a(arrival, "number of seconds"))?;
    Ok(Row {
        arrival_ns: nanoseconds(seconds, 1e9, arrival.span())?,
        input: csv::length(header, line, "input")?,
        output: csv::length(header, line, "output")?,
        content: Vec::new(),
        tokens_per_id: 0,
    })
}
