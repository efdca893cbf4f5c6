//! Measured runs, simulated again.

use std::fs;

use crate::support::Scratch;

const SAMPLE: &str = "\
id,backend,backend_version,model_path,system,precision,mode,isl,osl,tp_size,silicon_ttft_ms,silicon_tpot_ms,concurrency
known,vllm,0.15.1,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,,agg,200,20,1,30,7,2
apart,vllm,0.15.1,meta-llama/Llama-3.1-8B-Instruct,h100_sxm,,disagg,200,20,1,30,7,2
unknown,vllm,0.15.1,some/Model-9B,h100_sxm,,agg,200,20,1,30,7,2
";

#[test]
fn every_case_is_answered_or_has_its_reason() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("data")).unwrap();
    scratch.file("data/sample_test.csv", SAMPLE);
    scratch.file("data/README.md", "not a format of runs");
    let ran = scratch.run(&["validate", "data", "--out", "out", "--report", "docs/serving.md"]);
    assert_eq!(ran.code, 0, "{}", ran.messages);
    assert!(ran.results.contains("sample_test vllm: 1 of 2 answered"), "{}", ran.results);
    assert!(ran.results.contains("| sample_test vllm | TPOT mean | median <= 8 % |"), "{}", ran.results);
    let cases = fs::read_to_string(scratch.path("out/cases.csv")).unwrap();
    let line = |id: &str| cases.lines().filter(|line| line.contains(&format!(",{id},"))).collect::<Vec<_>>();
    assert_eq!((line("known").len(), line("apart").len(), line("unknown").len()), (2, 2, 2));
    assert!(line("unknown")[0].contains("the catalog has no model `Model-9B`"), "{:?}", line("unknown"));
    for file in ["out/cases.parquet", "out/report.md", "out/agreement.png", "out/errors.svg"] {
        assert!(fs::metadata(scratch.path(file)).unwrap().len() > 0, "{file}");
    }
    let report = fs::read_to_string(scratch.path("docs/serving.md")).unwrap();
    assert!(report.contains("](serving-agreement.png)") && scratch.path("docs/serving-errors.png").is_file());
    assert!(report.contains("disaggregated serving is not simulated yet"), "{report}");
}

#[test]
fn what_is_no_measured_run_is_named() {
    let scratch = Scratch::new();
    scratch.file("notes.csv", "a,b\n1,2\n");
    let validate = |source: &str, more: &[&str]| {
        let arguments: Vec<&str> = ["validate", source, "--out", "out"].iter().chain(more).copied().collect();
        scratch.run(&arguments)
    };
    validate("notes.csv", &[]).fails_with(2, &["notes.csv", "no known format", "silicon_ttft_ms"]);
    validate(".", &[]).fails_with(2, &["no measured runs"]);
    validate("absent.csv", &[]).fails_with(2, &["cannot read `absent.csv`"]);
    validate(".", &["--only", "sampel"]).fails_with(2, &["no format `sampel`", "did you mean `sample`"]);
    scratch.file("bad.csv", &SAMPLE.replace(",30,7,2\n", ",x,7,2\n"));
    validate("bad.csv", &[]).fails_with(2, &["row 2: `silicon_ttft_ms` is not a number"]);
}
