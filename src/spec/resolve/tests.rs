use super::*;
use crate::catalog::NumberFormat;
use crate::diag::render;
use crate::spec::fake::Fake;
use crate::spec::traffic::{Arrival, Traffic};

const VALID: &str = r#"
[sweep]
name  = "demo"
seed  = 7
model = "dense-70b"
gpus  = 16

[workload]
requests = 512
input    = { lognormal = { mean = 860, p95 = 1750, max = 4096 } }
output   = { fixed = 512 }
arrival  = { poisson = { rate = [4, 8] } }

[sla]
tpot_p95_ms = 50
ttft_p95_ms = 1000

[engine]
max_num_seqs = [64, 128]
gpu_memory_utilization = 0.92

[[colocation]]
router = "power_of_two"
all = { gpu = ["h100-sxm", "h800"], pp = [1, 2], tp = { pow2 = [1, 8] }, max_num_seqs = 32, precision = ["bf16", "fp8"] }
"#;

fn resolve_text(text: &str) -> Result<Sweep, String> {
    Sweep::from_text("sweeps/demo.toml", text.into(), &Fake).map_err(|problems| render(&problems, false))
}

fn valid() -> Sweep {
    resolve_text(VALID).expect("the sweep is valid")
}

fn problems(text: &str) -> String {
    resolve_text(text).expect_err("the sweep is wrong")
}

#[test]
fn a_role_overrides_the_engine_section_and_defaults_fill_the_rest() {
    let sweep = valid();
    let block = &sweep.colocation[0];
    assert_eq!(block.routers, ["power_of_two"]);
    assert_eq!(block.all.tp, [1, 2, 4, 8]);
    assert_eq!(block.all.engine.max_num_seqs, [32]);
    assert_eq!(block.all.engine.gpu_memory_utilization, [0.92]);
    assert_eq!(block.all.engine.block_size, [16]);
    assert_eq!(block.all.engine.max_model_len, [8192]);
    assert_eq!(block.all.precisions[1].weights, NumberFormat::Fp8);
    assert_eq!(block.all.kv_caches, [NumberFormat::Bf16]);
    assert_eq!(block.all.replicas, None);
    let bounds: Vec<&str> = sweep.sla.bounds.iter().map(|bound| bound.key).collect();
    assert_eq!(bounds, ["ttft_p95_ms", "tpot_p95_ms"]);
    assert_eq!(sweep.pareto.y.name, "throughput_per_gpu");
    assert_eq!((sweep.workload.loads(), sweep.workload.load(1)), (2, 8.0));
}

#[test]
fn the_hash_follows_the_meaning_not_the_text() {
    let hash = valid().sweep_hash();
    let respelt = VALID
        .replace("{ pow2 = [1, 8] }", "[ 1,2, 4, 8 ]")
        .replace("gpus  = 16", "gpus = 16 # two nodes")
        .replace("seed  = 7\n", "\nseed = 7\n")
        .replace("\"demo\"", "\"other\"");
    assert_eq!(resolve_text(&respelt).expect("valid").sweep_hash(), hash);
    for (from, to) in
        [("seed  = 7", "seed = 8"), ("[4, 8]", "[4, 9]"), ("0.92", "0.93"), ("= 50", "= 51"), ("h800", "a100-80gb-sxm")]
    {
        assert_ne!(resolve_text(&VALID.replace(from, to)).expect("valid").sweep_hash(), hash, "{from} -> {to}");
    }
}

#[test]
fn traffic_keeps_its_hash_when_the_load_axis_grows() {
    let hash = valid().traffic_hash();
    assert_eq!(resolve_text(&VALID.replace("[4, 8]", "[4, 8, 16]")).expect("valid").traffic_hash(), hash);
    assert_ne!(resolve_text(&VALID.replace("= 860", "= 861")).expect("valid").traffic_hash(), hash);
}

#[test]
fn all_mistakes_are_shown_at_once_with_place_and_remedy() {
    let text = VALID
        .replace("dense-70b", "dense-70")
        .replace("name  =", "nmae  =")
        .replace("\"h800\"", "\"h80\"")
        .replace("power_of_two", "power_of_too")
        .replace("p95 = 1750", "p95 = 850")
        .replace("[4, 8]", "[4, 4]")
        .replace("0.92", "1.5");
    insta::assert_snapshot!(problems(&text), @r#"
    error: unknown key `nmae`
     --> sweeps/demo.toml:3:1
      |
    3 | nmae  = "demo"
      | ^^^^
      |
      = help: did you mean `name`?

    error: unknown model `dense-70`
     --> sweeps/demo.toml:5:9
      |
    5 | model = "dense-70"
      |         ^^^^^^^^^^
      |
      = help: did you mean `dense-70b`?

    error: no lognormal law has mean 860 and p95 850: p95 must lie above the mean and not above 3326
      --> sweeps/demo.toml:10:12
       |
    10 | input    = { lognormal = { mean = 860, p95 = 850, max = 4096 } }
       |            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

    error: `rate` means the same twice: `4`
      --> sweeps/demo.toml:12:37
       |
    12 | arrival  = { poisson = { rate = [4, 4] } }
       |                                     ^
       |
       = help: each value of an axis makes its own candidates; remove one of the two

    error: `gpu_memory_utilization` must be above 0 and at most 1
      --> sweeps/demo.toml:20:26
       |
    20 | gpu_memory_utilization = 1.5
       |                          ^^^

    error: unknown router `power_of_too`
      --> sweeps/demo.toml:23:10
       |
    23 | router = "power_of_too"
       |          ^^^^^^^^^^^^^^
       |
       = help: did you mean `power_of_two`?

    error: unknown GPU `h80`
      --> sweeps/demo.toml:24:28
       |
    24 | all = { gpu = ["h100-sxm", "h80"], pp = [1, 2], tp = { pow2 = [1, 8] }, max_num_seqs = 32, precision = ["bf16", "fp8"] }
       |                            ^^^^^
       |
       = help: did you mean `h800`?
    "#);
}

#[test]
fn an_empty_file_says_what_a_sweep_needs() {
    insta::assert_snapshot!(problems(""), @r"
    error: the section `[sweep]` is missing
     --> sweeps/demo.toml:1:1
      |
    1 |
      | ^
      |
      = help: add `[sweep]` with `model` and `gpus`

    error: the section `[workload]` is missing
     --> sweeps/demo.toml:1:1
      |
    1 |
      | ^
      |
      = help: add `[workload]` with `requests` and `arrival`

    error: the sweep has no deployments
     --> sweeps/demo.toml:1:1
      |
    1 |
      | ^
      |
      = help: add a `[[colocation]]` section
    ");
}

#[test]
fn missing_keys_name_the_section_that_lacks_them() {
    let text = "[sweep]\nmodel = \"dense-70b\"\n[workload]\nwarmup = 3\n[[colocation]]\nrouter = \"round_robin\"\n[[colocation]]\nall = { tp = 4 }\n";
    insta::assert_snapshot!(problems(text), @r#"
    error: `gpus` is missing
     --> sweeps/demo.toml:1:1
      |
    1 | [sweep]
      | ^^^^^^^
      |
      = help: say how many GPUs a deployment may use

    error: `arrival` is missing
     --> sweeps/demo.toml:3:1
      |
    3 | [workload]
      | ^^^^^^^^^^
      |
      = help: e.g. `arrival = { poisson = { rate = 8 } }`

    error: `requests` is missing
     --> sweeps/demo.toml:3:1
      |
    3 | [workload]
      | ^^^^^^^^^^
      |
      = help: e.g. `requests = 512`

    error: `input` is missing
     --> sweeps/demo.toml:3:1
      |
    3 | [workload]
      | ^^^^^^^^^^
      |
      = help: e.g. `input = { fixed = 512 }`

    error: `output` is missing
     --> sweeps/demo.toml:3:1
      |
    3 | [workload]
      | ^^^^^^^^^^
      |
      = help: e.g. `output = { fixed = 512 }`

    error: `all` is missing
     --> sweeps/demo.toml:5:1
      |
    5 | [[colocation]]
      | ^^^^^^^^^^^^^^
      |
      = help: add `all = { gpu = ..., tp = ... }`

    error: `gpu` is missing
     --> sweeps/demo.toml:8:7
      |
    8 | all = { tp = 4 }
      |       ^^^^^^^^^^
      |
      = help: name a GPU type, e.g. `gpu = "h100-sxm"`
    "#);
}

#[test]
fn disaggregation_is_known_but_not_supported_yet() {
    let text = format!("{VALID}\n[[pdd]]\nprefill = {{ gpu = \"h100-sxm\" }}\n");
    insta::assert_snapshot!(problems(&text), @r"
    error: `pdd` (prefill-decode disaggregation) is not supported yet
      --> sweeps/demo.toml:26:1
       |
    26 | [[pdd]]
       | ^^^^^^^
       |
       = help: only `[[colocation]]` deployments can be explored; remove this section
    ");
}

#[test]
fn a_bound_without_its_unit_points_at_the_key() {
    insta::assert_snapshot!(problems(&VALID.replace("ttft_p95_ms", "ttft_p95")), @r"
    error: unknown key `ttft_p95`
      --> sweeps/demo.toml:16:1
       |
    16 | ttft_p95 = 1000
       | ^^^^^^^^
       |
       = help: did you mean `ttft_p95_ms`?
    ");
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |from: &str, to: &str, expected: &str| {
        let message = problems(&VALID.replace(from, to));
        assert!(message.contains(expected), "{to}: {message}");
    };
    refused("gpus  = 16", "gpus = 0", "`gpus` must be between 1 and");
    refused("gpus  = 16", "gpus = [8, 16]\nat_most = true", "is one number");
    refused("requests = 512", "requests = 0", "`requests` must be between 1 and");
    refused("requests = 512", "requests = 5\nwarmup = 5", "none is measured");
    refused("fixed = 512", "fixed = 0", "zero tokens");
    refused("fixed = 512", "uniform = { min = 5, max = 4 }", "`min` 5 is above `max` 4");
    refused("fixed = 512", "empirical = { values = [3], weights = [1, 2] }", "1 values have 2 weights");
    refused("fixed = 512", "empirical = { file = \"x.csv\" }", "`file` and `column`");
    refused("rate = [4, 8]", "rate = -1", "must be a positive number");
    refused("poisson = { rate = [4, 8] }", "gamma = { rate = 1, burstiness = 0 }", "`burstiness`");
    refused("poisson = { rate = [4, 8] }", "closed = { clients = 0 }", "must be between 1 and");
    refused("= 50", "= 0", "positive number of milliseconds");
    refused("max_num_seqs = 32", "ep = 2", "no experts");
    refused("max_num_seqs = 32", "max_model_len = 9000", "8192 tokens the model supports");
    refused("max_num_seqs = 32", "block_size = 24", "power of two");
    refused("max_num_seqs = 32", "engine = \"vllm-0.16\"", "unknown engine `vllm-0.16`");
    refused("[\"bf16\", \"fp8\"]", "[\"checkpoint\", \"bf16\"]", "means the same twice");
    refused("name  = \"demo\"", "name = \"../demo\"", "cannot name a results folder");
}

#[test]
fn a_trace_replaces_laws_of_arrival_and_length() {
    let traced = VALID
        .replace(
            "arrival  = { poisson = { rate = [4, 8] } }",
            "arrival = { trace = { file = \"ten.csv\", scale = [1, 2] } }",
        )
        .replace("requests = 512\n", "");
    let message = problems(&traced);
    assert!(message.contains("`input` has no meaning") && message.contains("`output` has no meaning"), "{message}");
    let lines: Vec<&str> =
        traced.lines().filter(|line| !line.starts_with("input") && !line.starts_with("output")).collect();
    let sweep = resolve_text(&lines.join("\n")).expect("valid");
    assert_eq!((sweep.workload.requests, sweep.workload.loads()), (10, 2));
    let too_many = lines.join("\n").replace("[workload]", "[workload]\nrequests = 11");
    assert!(problems(&too_many).contains("has 10 requests, the workload asks for 11"));
}

#[test]
fn with_trace_takes_the_first_requests_of_the_sweep() {
    let sweep = resolve_text(&VALID.replace("requests = 512", "requests = 4")).expect("valid");
    let traced = sweep.with_trace(Path::new("ten.csv"), &Fake).expect("a valid trace");
    let Traffic::Replay { trace, scales } = &traced.workload.traffic else { panic!("not a replay") };
    assert_eq!((trace.rows.len(), scales.as_slice(), traced.workload.requests), (4, [1.0].as_slice(), 4));
    assert_ne!(traced.sweep_hash(), sweep.sweep_hash());
    let whole = valid().with_trace(Path::new("ten.csv"), &Fake).expect("a valid trace");
    assert_eq!(whole.workload.requests, 10, "the sweep asks for 512");
    assert!(sweep.with_trace(Path::new("none.csv"), &Fake).is_err());
}

#[test]
fn every_arrival_law_can_be_written() {
    let arrival = |law: &str| {
        let sweep = resolve_text(&VALID.replace("poisson = { rate = [4, 8] }", law)).expect("valid");
        match sweep.workload.traffic {
            Traffic::Synthetic { arrival, .. } => arrival,
            Traffic::Replay { .. } => panic!("not a law"),
        }
    };
    assert_eq!(arrival("constant = { rate = 2 }"), Arrival::Constant { rates: vec![2.0] });
    assert_eq!(arrival("gamma = { rate = 2, burstiness = 0.5 }"), Arrival::Gamma { rates: vec![2.0], burstiness: 0.5 });
    assert_eq!(arrival("closed = { clients = { pow2 = [1, 4] } }"), Arrival::Closed { clients: vec![1, 2, 4] });
    assert_eq!(arrival("batch = {}"), Arrival::Batch);
}

#[test]
fn an_unreadable_file_is_a_problem_not_a_panic() {
    let message = Sweep::from_file(Path::new("no/such/sweep.toml"), &Fake).expect_err("no such file").to_string();
    assert!(message.contains("cannot read the sweep file `no/such/sweep.toml`"), "{message}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// A file with any stretch replaced by anything gives a sweep or problems, each of which can be rendered.
    #[test]
    fn damaged_files_never_panic(start in 0..VALID.len(), length in 0usize..40, patch in "[\\PC\n]{0,12}") {
        let end = (start + length).min(VALID.len());
        let _ = resolve_text(&format!("{}{patch}{}", &VALID[..start], &VALID[end..]));
    }

    /// The same for values alone, which reach the checks of meaning more often.
    #[test]
    fn odd_numbers_never_panic(
        key in proptest::sample::select(vec!["16", "512", "860", "1750", "4096", "[4, 8]", "0.92", "[1, 2]", "32", "50"]),
        value in proptest::sample::select(vec![
            "0", "-1", "1e300", "-1e300", "inf", "-inf", "nan", "4294967295", "4294967296", "9223372036854775807", "\"\"", "[]", "{}",
            "{ from = -inf, to = inf, step = 1 }", "{ from = nan, to = 1, step = 1 }", "{ pow2 = [1, 2147483648] }",
            "{ from = 0, to = 1, step = 1e-300 }", "[[1]]", "1979-05-27", "true",
        ]),
    ) {
        let _ = resolve_text(&VALID.replace(key, value));
    }
}

#[test]
fn sessions_and_system_prompts_are_read_and_lengthen_requests() {
    let text = VALID
        .replace("[workload]", "[workload]\nsystem_prompt = { count = 3, tokens = 100 }\nsessions = { turns = 2 }");
    let (plain, sweep) = (valid(), resolve_text(&text).expect("valid"));
    assert_eq!(sweep.workload.longest_request(), 2 * plain.workload.longest_request() + 100);
    let wrong = VALID.replace(
        "[workload]",
        "[workload]\nsystem_prompt = { count = 0, tokens = 1 }\nsessions = { turns = 0, think_s = -1 }",
    );
    let problems = resolve_text(&wrong).expect_err("wrong");
    assert_eq!(problems.matches("error: ").count(), 3, "{problems}");
}
