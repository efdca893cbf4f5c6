use super::*;
use crate::diag::render;
use crate::spec::Prefix;

/// Writes a file and reads it back as a trace; the folder's name does not appear in messages.
fn trace(name: &str, content: impl AsRef<[u8]>) -> Result<Arc<Trace>, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("a writable file");
    let prefix = format!("{}/", folder.path().display());
    read(&path).map_err(|problems| render(&problems, false).replace(&prefix, ""))
}

fn rows(name: &str, content: &str) -> Vec<(u64, u32, u32)> {
    let trace = trace(name, content).expect("a valid trace");
    trace.rows.iter().map(|row| (row.arrival.as_ns() as u64, row.prompt_tokens, row.output_tokens)).collect()
}

#[test]
fn every_format_is_recognised_by_its_first_line() {
    let expected = [(0, 374, 44), (500_000_000, 396, 109)];
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:47.1805900,396,109";
    let mooncake = "{\"timestamp\": 1000, \"input_length\": 374, \"output_length\": 44, \"hash_ids\": [1]}\n{\"timestamp\": 1500, \"input_length\": 396, \"output_length\": 109, \"hash_ids\": []}\n";
    let csv = "id,output,arrival,input\n1,44,2.0,374\n2,109, 2.5 ,396\n\n";
    let jsonl =
        "{\"arrival\": 0, \"input\": 374, \"output\": 44}\n{\"arrival\": 0.5, \"input\": 396, \"output\": 109}\n";
    for (name, content) in [("azure.csv", azure), ("mooncake.jsonl", mooncake), ("own.csv", csv), ("own.jsonl", jsonl)]
    {
        assert_eq!(rows(name, content), expected, "{name}");
    }
}

#[test]
fn the_advertised_first_line_of_each_format_is_recognised_as_its_own() {
    for format in FORMATS {
        let recognised = FORMATS.iter().find(|other| (other.recognises)(format.first_line)).expect("recognised");
        assert_eq!(recognised.name, format.name);
    }
}

#[test]
fn malformed_rows_are_shown_in_place() {
    let content = "arrival,input,output\n0,100,20\n1,-5,20\n2,100,0\n1.5,100,x\n0.5,100,20\n";
    insta::assert_snapshot!(trace("bad.csv", content).expect_err("a wrong trace"), @r"
    error: a length of -5 tokens; every request needs at least one
     --> bad.csv:3:3
      |
    3 | 1,-5,20
      |   ^^

    error: a length of 0 tokens; every request needs at least one
     --> bad.csv:4:7
      |
    4 | 2,100,0
      |       ^

    error: `x` is not a whole number
     --> bad.csv:5:9
      |
    5 | 1.5,100,x
      |         ^

    error: arrives 1.5 s before the previous row; sort the trace
     --> bad.csv:6:1
      |
    6 | 0.5,100,20
      | ^^^^^^^^^^
    ");
}

#[test]
fn malformed_json_is_shown_in_place() {
    let content = "{\"arrival\": 0, \"input\": 100, \"output\": 20}\n{\"arrival\": 1, \"input\": 0, \"output\": 20}\n{\"arrival\": 1, \"input\": 1.5, \"output\": 20}\n{\"arrival\": 2, \"input\": }\n";
    insta::assert_snapshot!(trace("bad.jsonl", content).expect_err("a wrong trace"), @r#"
    error: a length of 0 tokens; every request needs at least one
     --> bad.jsonl:2:16
      |
    2 | {"arrival": 1, "input": 0, "output": 20}
      |                ^^^^^^^

    error: `input` must be a whole number
     --> bad.jsonl:3:16
      |
    3 | {"arrival": 1, "input": 1.5, "output": 20}
      |                ^^^^^^^

    error: not a JSON object: expected value
     --> bad.jsonl:4:25
      |
    4 | {"arrival": 2, "input": }
      |                         ^
    "#);
}

#[test]
fn an_unknown_format_lists_the_known_ones() {
    insta::assert_snapshot!(trace("odd.csv", "time;in;out\n1;2;3\n").expect_err("an unknown format"), @r#"
    error: unknown trace format
     --> odd.csv:1:1
      |
    1 | time;in;out
      | ^^^^^^^^^^^
      |
      = help: the first line must look like one of
              Azure 2023 CSV: `TIMESTAMP,ContextTokens,GeneratedTokens`
              Mooncake JSONL: `{"timestamp": 27, "input_length": 6955, "output_length": 52}`
              CSV: `arrival,input,output`
              JSONL: `{"arrival": 0.5, "input": 100, "output": 20}`
    "#);
}

#[test]
fn files_without_rows_and_unreadable_files_are_refused() {
    let message = |result: Result<Arc<Trace>, String>| result.expect_err("a wrong trace");
    assert!(message(trace("empty.csv", "")).contains("has no rows"));
    assert!(message(trace("blank.csv", "\n\n")).contains("has no rows"));
    assert!(message(trace("header.csv", "arrival,input,output\n")).contains("has no rows"));
    assert!(message(trace("binary.csv", [0xff, 0xfe, 0x00])).contains("cannot read"));
    assert!(read(Path::new("no/such/trace.csv")).expect_err("no file").to_string().contains("no/such/trace.csv"));
}

#[test]
fn impossible_numbers_are_problems_not_panics() {
    for row in [
        "nan,1,1",
        "inf,1,1",
        "1e300,1,1",
        "0,99999999999,1",
        "0,99999999999999999999999,1",
        "0,1",
        ",,",
        "0,1,1\n1e9,1,1",
    ] {
        assert!(trace("odd.csv", format!("arrival,input,output\n{row}\n")).is_err(), "{row}");
    }
}

#[test]
fn a_column_of_lengths_is_read_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lengths.csv");
    std::fs::write(&path, "prompt,completion\n10,20\n30,40\n").expect("a writable file");
    assert_eq!(read_lengths(&path, "completion"), Ok(vec![20, 40]));
    let problems = read_lengths(&path, "promt").expect_err("an unknown column");
    assert_eq!(problems.0[0].help.as_deref(), Some("did you mean `prompt`?"));
}

#[test]
fn hashes_of_a_mooncake_trace_say_what_prompts_share() {
    let row = |input: u32, hashes: &str| {
        format!("{{\"timestamp\": 0, \"input_length\": {input}, \"output_length\": 1, \"hash_ids\": [{hashes}]}}\n")
    };
    let content = row(1300, "0, 1, 2") + &row(700, "0, 3") + &row(2000, "0, 1, 4, 5");
    let prefixes: Vec<_> =
        trace("m.jsonl", content).expect("a valid trace").rows.iter().map(|row| row.prefix).collect();
    assert_eq!(prefixes, [None, Some(Prefix { source: 0, tokens: 512 }), Some(Prefix { source: 0, tokens: 1024 })]);
    let message = trace("m.jsonl", row(1300, "0, -1")).expect_err("a wrong trace");
    assert!(message.contains("`hash_ids` must be a list of whole numbers"), "{message}");
}
