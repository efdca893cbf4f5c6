//! Routed experts: `moe*.csv`.

use std::path::Path;

use super::{Csv, Record, Sample, Timing, format, push_samples};
use crate::catalog::NumberFormat;
use crate::diag::Diagnostic;
use crate::fidelity::expert_load::ExpertLoad;
use crate::fidelity::operator::{Experts, Operator};

const REQUIRED: &[&str] = &[
    "num_tokens",
    "num_experts",
    "num_experts_per_device",
    "router_topk",
    "hidden_dim",
    "expert_hidden_dim",
    TENSOR,
    "total_routed_tokens",
    "tokens_per_expert_avg",
    "expert_utilization",
    "max_load_ratio",
];
const TENSOR: &str = "num_tensor_parallel_workers";
const SHAPE: &[&str] = &[
    "num_tokens",
    "num_experts_per_device",
    "total_routed_tokens",
    "expert_utilization",
    "max_load_ratio",
    "load_distribution",
    "routing_runtime_path",
    "gating_runtime_context",
    "seed",
];

/// Appends the samples of one table.
pub(super) fn read(path: &Path, samples: &mut Vec<Sample>) -> Result<(), Diagnostic> {
    let table = Csv::load(path, REQUIRED)?;
    let names = table.timed_operators();
    for record in table.records() {
        let operator = |name: &str| match name {
            "moe_grouped_gemm" => grouped(&record),
            "moe_gating_linear" => router(&record),
            other => Err(format!("the operator `{other}` has no counterpart")),
        };
        push_samples(&table, &record, &names, [SHAPE, &[TENSOR]], Timing::Launch, operator, samples);
    }
    Ok(())
}

fn router(record: &Record<'_>) -> Result<Operator, String> {
    let (weights, activations) = (NumberFormat::Bf16, NumberFormat::Bf16);
    let (n, k) = (record.positive("num_experts")?, record.positive("hidden_dim")?);
    Ok(Operator::Gemm { tokens: record.positive("num_tokens")?, n, k, weights, activations })
}

/// Loads are measured per row: the mean over the local experts, the share of them that is hit, and the largest load
/// over the mean.
fn grouped(record: &Record<'_>) -> Result<Operator, String> {
    if record.text("use_gated").is_some() && !record.is_true("use_gated") {
        return Err("experts without a gate".to_owned());
    }
    let format = format(record)?;
    let inner = record.positive("expert_hidden_dim")?;
    let experts = Experts {
        hidden_size: record.positive("hidden_dim")?,
        intermediate_size: inner.div_ceil(record.positive(TENSOR)?),
        top_k: record.positive("router_topk")?,
        count: record.positive("num_experts")?,
        local: record.positive("num_experts_per_device")?,
        weights: format,
        activations: format,
    };
    let rows = f64::from(record.count("total_routed_tokens")?);
    if rows == 0.0 {
        return Err("experts without a token".to_owned());
    }
    // Both are whole numbers, written as ratios.
    let hit = (record.number("expert_utilization")? * f64::from(experts.local)).round();
    let largest = (record.number("max_load_ratio")? * record.number("tokens_per_expert_avg")?).round();
    // Tokens of the whole group: some tables give every GPU the rows of its own tokens only, others all of them.
    let share = f64::from(experts.local) * f64::from(experts.top_k) / f64::from(experts.count);
    let tokens = (rows / share).round().max(1.0) as u32;
    if !(hit >= 1.0 && hit <= f64::from(experts.local) && largest >= 1.0 && largest <= rows) {
        return Err("a load of the experts that cannot be".to_owned());
    }
    let load = ExpertLoad::measured(rows, hit, largest, tokens, &experts);
    Ok(Operator::GroupedGemm { tokens, experts, load })
}
