//! The one table of result columns. Arrow schema, writer, reader, documentation and plot axes derive from it: to add a
//! column, add one line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use super::column::{Column, Direction, Group, Kind, Value};
use super::derived;
use crate::catalog::NumberFormat;
use crate::diag::{Diagnostic, nearest};
use crate::fidelity::EstimateSource::{Extrapolated, Interpolated, Measured, Roofline, Transferred};
use crate::sim::Outcome;
use crate::space::{Pool, Role};

/// Version of the column table and of the run folder's layout. Raised when a column is added or changes its meaning, so
/// that a run does not get parts of two kinds.
pub const SCHEMA_VERSION: u32 = 3;

/// Roles that have their own block of configuration columns.
const ROLES: &[Role] = &[Role::Colocated];

const UP: Direction = Direction::Maximise;
const DOWN: Direction = Direction::Minimise;

/// Columns of the whole candidate and of the row's fate.
#[rustfmt::skip]
const SYSTEM: &[Column] = &[
    Column::identity("index", Kind::U64, "position in the index space of the sweep", |row| Value::U64(row.candidate.index)),
    Column::identity("id", Kind::Text, "content hash of the candidate, 16 hexadecimal digits", |row| Value::Text(Cow::Owned(row.candidate.id.to_string()))),
    Column::text("architecture", "placement of prefill and decode", |row| Some(Cow::Borrowed(row.candidate.architecture.name()))),
    Column::text("deployment", "short label of replicas, parallelism and batch limit", |row| Some(Cow::Owned(deployment_label(&row.candidate.pools)))),
    Column::text("gpu", "GPU types of all pools", |row| Some(joined(&row.candidate.pools, |pool| Cow::Borrowed(pool.gpu.name.as_str())))),
    Column::text("parallelism", "parallelism of all pools", |row| Some(joined(&row.candidate.pools, |pool| Cow::Owned(pool.parallelism.label())))),
    Column::row("gpus", Kind::U64, "GPUs of the whole system", |row| Value::U64(u64::from(row.candidate.gpus()))),
    Column::row("usd_per_hour", Kind::F64, "list price of the whole system", |row| Value::F64(row.candidate.usd_per_hour())).unit("USD/h").better(DOWN),
    Column::row("load", Kind::F64, "load as the sweep states it: requests/s, or concurrent clients", |row| Value::F64(row.candidate.load)),
    Column::text("router", "router policy", |row| Some(Cow::Borrowed(row.candidate.router))),
    Column::text("status", "how the simulation ended: completed, partial or panicked", |row| Some(Cow::Borrowed(row.status.name()))),
    Column::text("error", "what went wrong, if anything", |row| row.error.map(Cow::Borrowed)),
    Column::row("kv_blocks", Kind::U64, "KV blocks of one engine", |row| Value::U64(row.kv_blocks)),
    Column::row("sla_met", Kind::Bool, "the outcome meets every bound of the sweep's SLA", |row| Value::Bool(row.sla_met)),
];

/// Columns of each role's pool, prefixed by the role's letter.
#[rustfmt::skip]
const POOL: &[Column] = &[
    Column::pool("gpu", Kind::Text, "GPU type", |pool| Value::Text(Cow::Borrowed(pool.gpu.name.as_str()))),
    Column::pool("replicas", Kind::U64, "replicas", |pool| integer(pool.replicas)),
    Column::pool("pp", Kind::U64, "pipeline stages", |pool| integer(pool.parallelism.pp)),
    Column::pool("tp_attention", Kind::U64, "tensor parallelism of attention", |pool| integer(pool.parallelism.tp_attention)),
    Column::pool("dp_attention", Kind::U64, "data parallelism of attention", |pool| integer(pool.parallelism.dp_attention)),
    Column::pool("tp_ffn", Kind::U64, "tensor parallelism of the FFN", |pool| integer(pool.parallelism.tp_ffn)),
    Column::pool("ep_ffn", Kind::U64, "expert parallelism", |pool| integer(pool.parallelism.ep_ffn)),
    Column::pool("weights", Kind::Text, "number format of the weights", |pool| Value::Text(Cow::Borrowed(pool.precision.weights.name()))),
    Column::pool("activations", Kind::Text, "number format of the activations", |pool| Value::Text(Cow::Borrowed(pool.precision.activations.name()))),
    Column::pool("kv_cache", Kind::Text, "number format of the KV cache", |pool| Value::Text(Cow::Borrowed(pool.precision.kv_cache.name()))),
    Column::pool("engine", Kind::Text, "engine profile", |pool| Value::Text(Cow::Borrowed(&pool.engine_profile))),
    Column::pool("scheduler", Kind::Text, "scheduler policy", |pool| Value::Text(Cow::Borrowed(pool.engine.scheduler))),
    Column::pool("max_num_seqs", Kind::U64, "most running sequences of one engine", |pool| integer(pool.engine.max_num_seqs)),
    Column::pool("max_num_batched_tokens", Kind::U64, "most tokens in one iteration of one engine", |pool| integer(pool.engine.max_num_batched_tokens)).unit("tokens"),
    Column::pool("max_model_len", Kind::U64, "longest request, prompt and output together", |pool| integer(pool.engine.max_model_len)).unit("tokens"),
    Column::pool("block_size", Kind::U64, "tokens in one KV block", |pool| integer(pool.engine.block_size)).unit("tokens"),
    Column::pool("gpu_memory_utilization", Kind::F64, "share of GPU memory that the engine may use", |pool| Value::F64(pool.engine.gpu_memory_utilization)),
    Column::pool("cuda_graph", Kind::Bool, "decode replays captured CUDA graphs", |pool| Value::Bool(pool.engine.cuda_graph)),
    Column::pool("chunked_prefill", Kind::Bool, "a long prompt may be split over iterations", |pool| Value::Bool(pool.engine.chunked_prefill)),
    Column::pool("prefix_caching", Kind::Bool, "KV blocks of earlier requests are found again", |pool| Value::Bool(pool.engine.prefix_caching)),
];

/// Columns of the outcome, null in a row without one.
#[rustfmt::skip]
const METRICS: &[Column] = &[
    Column::count("submitted", "requests that entered the system, warm-up included", |o| o.submitted),
    Column::count("completed", "requests that completed, warm-up included", |o| o.completed),
    Column::count("measured", "measured requests", |o| o.measured),
    Column::measure("makespan_s", "first arrival to last completion, warm-up included", |o| o.makespan_s).unit("s").better(DOWN),
    Column::count("prompt_tokens", "prompt tokens of the completed requests, warm-up included", |o| o.prompt_tokens).unit("tokens"),
    Column::count("output_tokens", "output tokens of the completed requests, warm-up included", |o| o.output_tokens).unit("tokens"),
    Column::count("met_sla", "measured requests that met every per-request SLA bound", |o| o.met_sla).better(UP),
    Column::latency("ttft_mean_ms", "mean time to first token", |o| o.ttft.mean_ms),
    Column::latency("ttft_p50_ms", "median time to first token", |o| o.ttft.p50_ms),
    Column::latency("ttft_p90_ms", "p90 time to first token", |o| o.ttft.p90_ms),
    Column::latency("ttft_p95_ms", "p95 time to first token", |o| o.ttft.p95_ms),
    Column::latency("ttft_p99_ms", "p99 time to first token", |o| o.ttft.p99_ms),
    Column::latency("tpot_mean_ms", "mean time per output token", |o| o.tpot.mean_ms),
    Column::latency("tpot_p50_ms", "median time per output token", |o| o.tpot.p50_ms),
    Column::latency("tpot_p90_ms", "p90 time per output token", |o| o.tpot.p90_ms),
    Column::latency("tpot_p95_ms", "p95 time per output token", |o| o.tpot.p95_ms),
    Column::latency("tpot_p99_ms", "p99 time per output token", |o| o.tpot.p99_ms),
    Column::latency("itl_mean_ms", "mean gap between tokens", |o| o.itl.mean_ms),
    Column::latency("itl_p50_ms", "median gap between tokens", |o| o.itl.p50_ms),
    Column::latency("itl_p90_ms", "p90 gap between tokens", |o| o.itl.p90_ms),
    Column::latency("itl_p95_ms", "p95 gap between tokens", |o| o.itl.p95_ms),
    Column::latency("itl_p99_ms", "p99 gap between tokens", |o| o.itl.p99_ms),
    Column::latency("e2e_mean_ms", "mean arrival to last token", |o| o.e2e.mean_ms),
    Column::latency("e2e_p50_ms", "median arrival to last token", |o| o.e2e.p50_ms),
    Column::latency("e2e_p90_ms", "p90 arrival to last token", |o| o.e2e.p90_ms),
    Column::latency("e2e_p95_ms", "p95 arrival to last token", |o| o.e2e.p95_ms),
    Column::latency("e2e_p99_ms", "p99 arrival to last token", |o| o.e2e.p99_ms),
    Column::latency("queueing_mean_ms", "mean wait for the first iteration", |o| o.queueing.mean_ms),
    Column::latency("queueing_p50_ms", "median wait for the first iteration", |o| o.queueing.p50_ms),
    Column::latency("queueing_p90_ms", "p90 wait for the first iteration", |o| o.queueing.p90_ms),
    Column::latency("queueing_p95_ms", "p95 wait for the first iteration", |o| o.queueing.p95_ms),
    Column::latency("queueing_p99_ms", "p99 wait for the first iteration", |o| o.queueing.p99_ms),
    Column::count("iterations", "engine iterations over all engines", |o| o.iterations),
    Column::count("processed_tokens", "tokens processed, recomputed ones included", |o| o.processed_tokens).unit("tokens"),
    Column::ratio("mean_decode_batch", "mean decoding sequences per iteration that has any", |o| o.mean_decode_batch),
    Column::ratio("kv_peak_share", "highest share of KV blocks in use in any engine", |o| o.kv_peak_share),
    Column::ratio("kv_mean_share", "mean share of KV blocks in use over the iterations of all engines", |o| o.kv_mean_share),
    Column::count("preemptions", "preemptions by recompute", |o| o.preemptions).better(DOWN),
    Column::ratio("prefix_hit_ratio", "share of the prompt tokens found in a prefix cache at first admission", prefix_hit_ratio).better(UP),
    Column::ratio("busy_share", "share of the time in which a replica's first stage works, warm-up included", |o| o.busy_share),
    Column::count("peak_waiting", "most requests waiting at one moment in one engine", |o| o.peak_waiting).better(DOWN),
    Column::derived("request_throughput", "completed requests per second of makespan", derived::request_throughput).unit("requests/s").better(UP),
    Column::derived("output_throughput", "output tokens per second of makespan", derived::output_throughput).unit("tokens/s").better(UP),
    Column::derived("total_throughput", "prompt and output tokens per second of makespan", derived::total_throughput).unit("tokens/s").better(UP),
    Column::derived("throughput_per_gpu", "output throughput per GPU", derived::throughput_per_gpu).unit("tokens/s/GPU").better(UP),
    Column::derived("tokens_per_usd", "output tokens per USD at list prices", derived::output_tokens_per_usd).unit("tokens/USD").better(UP),
    Column::derived("gen_speed_mean", "generation speed at the mean TPOT", |_, o| derived::gen_speed(o.tpot.mean_ms)).unit("tokens/s/user").better(UP),
    Column::derived("gen_speed_p50", "generation speed at the median TPOT", |_, o| derived::gen_speed(o.tpot.p50_ms)).unit("tokens/s/user").better(UP),
    Column::derived("gen_speed_p95", "generation speed at the p95 TPOT", |_, o| derived::gen_speed(o.tpot.p95_ms)).unit("tokens/s/user").better(UP),
    Column::derived("goodput", "requests per second that met every SLA bound", derived::goodput).unit("requests/s").better(UP),
    Column::derived("sla_attainment", "share of the measured requests that met every SLA bound", derived::sla_attainment).better(UP),
    Column::derived("energy_j", "energy of all GPUs over the makespan, upper estimate", derived::energy_joules).unit("J").better(DOWN),
    Column::provenance("time_measured", "share of engine time from fitted predictors within their measurements", |p| p.share(Measured)).better(UP),
    Column::provenance("time_interpolated", "share of engine time from fitted predictors between measured shapes", |p| p.share(Interpolated)),
    Column::provenance("time_extrapolated", "share of engine time from fitted predictors beyond their measurements", |p| p.share(Extrapolated)).better(DOWN),
    Column::provenance("time_transferred", "share of engine time scaled from a measured GPU by the ratio of rooflines", |p| p.share(Transferred)).better(DOWN),
    Column::provenance("time_roofline", "share of engine time from rooflines with default efficiencies", |p| p.share(Roofline)).better(DOWN),
    Column::provenance("tpot_uncertainty", "relative standard deviation of the mean TPOT by the errors of the operator predictors", |p| p.tpot_uncertainty).better(DOWN),
    Column::provenance("ttft_uncertainty", "the same of the service time within TTFT; queueing amplifies it", |p| p.ttft_uncertainty).better(DOWN),
];

fn prefix_hit_ratio(outcome: &Outcome) -> f64 {
    outcome.prefix_hit_tokens as f64 / outcome.prompt_tokens.max(1) as f64
}

fn integer(value: u32) -> Value<'static> {
    Value::U64(u64::from(value))
}

/// The pools' texts with ` + ` between them, each only once.
fn joined<'a>(pools: &'a [Pool], text: fn(&'a Pool) -> Cow<'a, str>) -> Cow<'a, str> {
    let mut distinct: Vec<Cow<'a, str>> = Vec::new();
    for pool in pools {
        let text = text(pool);
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    if distinct.len() == 1 { distinct.swap_remove(0) } else { Cow::Owned(distinct.join(" + ")) }
}

/// Short label of a deployment, e.g. `8 × tp2 fp8, 256 seqs`; pools are separated by ` + `.
#[must_use]
pub fn deployment_label(pools: &[Pool]) -> String {
    let mut label = String::new();
    for pool in pools {
        let separator = if label.is_empty() { "" } else { " + " };
        let (replicas, parallelism) = (pool.replicas, pool.parallelism.label());
        let mut formats = pool.precision.weights.name().to_owned();
        if pool.precision.kv_cache != NumberFormat::Bf16 {
            let _ = write!(formats, " kv-{}", pool.precision.kv_cache.name());
        }
        // Writing to a string cannot fail.
        let _ = write!(label, "{separator}{replicas} × {parallelism} {formats}, {} seqs", pool.engine.max_num_seqs);
    }
    label
}

static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let pools = ROLES.iter().flat_map(|role| POOL.iter().map(|column| column.for_role(*role)));
    SYSTEM.iter().cloned().chain(pools).chain(METRICS.iter().cloned()).collect()
});

static BY_NAME: LazyLock<BTreeMap<&'static str, &'static Column>> =
    LazyLock::new(|| columns().iter().map(|column| (column.name.as_ref(), column)).collect());

/// Every column, in file order.
#[must_use]
pub fn columns() -> &'static [Column] {
    &COLUMNS
}

/// The column of this name.
///
/// # Errors
/// If there is none; the diagnostic suggests the nearest name.
pub fn column(name: &str) -> Result<&'static Column, Diagnostic> {
    BY_NAME.get(name).copied().ok_or_else(|| unknown_column(name))
}

/// The diagnostic for a name that is no column.
fn unknown_column(name: &str) -> Diagnostic {
    let diagnostic = Diagnostic::new(format!("unknown result column `{name}`"));
    match nearest(name, BY_NAME.keys().copied()) {
        Some(similar) => diagnostic.help(format!("did you mean `{similar}`?")),
        None => diagnostic.help("results/README.md lists all columns"),
    }
}

/// The columns as a Markdown table, for `results/README.md`.
#[must_use]
pub fn markdown_table() -> String {
    let mut text = String::from("| column | type | unit | meaning |\n| --- | --- | --- | --- |\n");
    for column in columns() {
        let Column { name, kind, unit, doc, .. } = column;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {} | {unit} | {doc} |", kind.name());
    }
    text
}

/// Columns that are known without simulating: what `pruned.parquet` repeats of a candidate.
pub(super) fn candidate_columns() -> impl Iterator<Item = &'static Column> {
    let fate = ["status", "error", "kv_blocks", "sla_met"];
    columns().iter().filter(move |column| column.group != Group::Metric && !fate.contains(&column.name.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        assert_eq!(BY_NAME.len(), columns().len());
        for column in columns() {
            assert!(!column.doc.is_empty() && !column.doc.ends_with('.'), "{}", column.name);
        }
    }

    #[test]
    fn every_column_of_a_full_row_has_its_declared_kind() {
        let row = fixture::row(3);
        for column in columns().iter().filter(|column| column.name != "error") {
            let value = column.value(&row.as_row());
            let matches = matches!(
                (column.kind, &value),
                (Kind::U64, Value::U64(_))
                    | (Kind::F64, Value::F64(_))
                    | (Kind::F32, Value::F32(_))
                    | (Kind::Text, Value::Text(_))
                    | (Kind::Bool, Value::Bool(_))
            );
            assert!(matches, "{}: {value:?}", column.name);
        }
    }

    #[test]
    fn a_row_without_outcome_has_null_metrics_and_a_configuration() {
        let row = fixture::panicked_row(1);
        for column in columns() {
            let value = column.value(&row.as_row());
            assert_eq!(value == Value::Null, column.group == Group::Metric, "{}: {value:?}", column.name);
        }
    }

    #[test]
    fn derived_metrics_by_hand() {
        // 100 requests, 50,000 output tokens and 200,000 prompt tokens in 20 s on 8 GPUs at 3 USD/h; TPOT p95 25 ms.
        let row = fixture::row(0);
        let value = |name: &str| column(name).unwrap().value(&row.as_row()).number().unwrap();
        assert_eq!(value("request_throughput"), 5.0);
        assert_eq!(value("output_throughput"), 2500.0);
        assert_eq!(value("total_throughput"), 12_500.0);
        assert_eq!(value("throughput_per_gpu"), 312.5);
        assert_eq!(value("tokens_per_usd"), 375_000.0);
        assert_eq!(value("gen_speed_p95"), 40.0);
        assert_eq!(value("goodput"), 4.5);
        assert_eq!(value("sla_attainment"), 0.9);
        // 8 GPUs x 700 W x (0.5 + 0.3 x 0.5) x 20 s.
        assert!((value("energy_j") - 72_800.0).abs() < 1e-6);
    }

    #[test]
    fn a_misspelt_column_gets_a_suggestion() {
        let diagnostic = column("ttft_p59_ms").err().unwrap();
        assert_eq!(diagnostic.message, "unknown result column `ttft_p59_ms`");
        assert!(diagnostic.help.unwrap().contains("`ttft_p5"));
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(deployment_label(&fixture::row(0).candidate.pools), "4 × tp2 bf16, 256 seqs");
    }

    #[test]
    fn the_readme_lists_every_column() {
        let readme = include_str!("../../results/README.md");
        assert!(readme.contains(&markdown_table()), "results/README.md must contain:\n{}", markdown_table());
    }
}
