//! The Mooncake traces (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake): `timestamp` in milliseconds,
//! `input_length` and `output_length` in tokens, and optionally `hash_ids`, one number for the content of every 512 tokens
//! of the prompt together with all before them.

use super::{Line, Problem, Row, TraceFormat, jsonl, nanoseconds};

const TOKENS_PER_HASH: u32 = 512;

pub(super) const FORMAT: TraceFormat = TraceFormat {
    name: "Mooncake JSONL",
    first_line: r#"{"timestamp": 27, "input_length": 6955, "output_length": 52}"#,
    has_header: false,
    recognises: |first| jsonl::has_keys(first, &["timestamp", "input_length", "output_length"]),
    read,
};

fn read(_: &str, line: Line<'_>) -> Result<Row, Problem> {
    let object = jsonl::object(line)?;
    let milliseconds = jsonl::number(&object, line, "timestamp")?;
    Ok(Row {
        arrival_ns: nanoseconds(milliseconds, 1e6, jsonl::key_span(line, "timestamp"))?,
        input: jsonl::length(&object, line, "input_length")?,
        output: jsonl::length(&object, line, "output_length")?,
        content: jsonl::whole_numbers(&object, line, "hash_ids")?,
        tokens_per_id: TOKENS_PER_HASH,
    })
}
