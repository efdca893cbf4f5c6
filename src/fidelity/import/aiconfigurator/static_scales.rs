//! Products with static scales from those with dynamic ones. TensorRT-LLM's fp8 products were timed with the conversion of
//! their inputs by two kernels, one that finds the scale and one that applies it. Its checkpoints come with the scales
//! (NVIDIA ModelOpt), and the norm, activation or attention before the product writes its output in fp8. The package times
//! both kernels on their own, for the same inputs.

use std::collections::BTreeMap;

use super::Measurement;
use super::tables::{Fields, Table, fixed};
use crate::catalog::NumberFormat;
use crate::fidelity::operator::Operator;

/// Tables of the two kernels. A row reads as a product without columns: it depends on the input alone.
pub(super) const CONVERSIONS: &[Table] = &[
    Table { family: "quantize", file: "computescale_perf.parquet", text: TEXT, numbers: NUMBERS, convert },
    Table { family: "quantize", file: "scale_matrix_perf.parquet", text: TEXT, numbers: NUMBERS, convert },
];

const TEXT: &[&str] = &["quant_dtype"];
const NUMBERS: &[&str] = &["m", "k"];

fn convert(fields: &Fields<'_>) -> Result<Vec<Operator>, String> {
    let [tokens, k] = fixed(&fields.numbers)?;
    if fields.text[0] != "fp8" {
        return Err(format!("conversions to `{}`: only those to fp8 are subtracted", fields.text[0]));
    }
    let format = NumberFormat::Fp8;
    Ok(vec![Operator::Gemm { tokens, n: 0, k, weights: format, activations: format }])
}

/// Tokens and inner dimension of a product in fp8.
fn input(operator: &Operator) -> Option<(u32, u32)> {
    match *operator {
        Operator::Gemm { tokens, k, weights: NumberFormat::Fp8, activations: NumberFormat::Fp8, .. } => {
            Some((tokens, k))
        }
        _ => None,
    }
}

/// Subtracts the time of both conversions from every fp8 product, and returns those products that have no conversion of
/// their input or would take no time without it; nothing changes if there are no conversions at all.
pub(super) fn subtract(rows: &mut Vec<Measurement>, conversions: &[Vec<Measurement>]) -> Vec<Measurement> {
    if conversions.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let tables: Vec<BTreeMap<(u32, u32), f64>> = conversions
        .iter()
        .map(|table| table.iter().filter_map(|row| Some((input(&row.operator)?, row.latency_ns))).collect())
        .collect();
    let mut without = Vec::new();
    rows.retain_mut(|row| {
        let Some(input) = input(&row.operator) else { return true };
        let conversion: Option<f64> = tables.iter().map(|table| table.get(&input)).sum();
        let Some(time) = conversion.filter(|time| *time < row.latency_ns) else {
            without.push(*row);
            return false;
        };
        row.latency_ns -= time;
        true
    });
    without
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(tokens: u32, n: u32, format: NumberFormat, latency_ns: f64) -> Measurement {
        let operator = Operator::Gemm { tokens, n, k: 1024, weights: format, activations: format };
        Measurement { operator, latency_ns }
    }

    #[test]
    fn both_conversions_are_subtracted_from_fp8_products_alone() {
        let conversions = [8000.0, 1500.0].map(|time| vec![product(16, 0, NumberFormat::Fp8, time)]);
        let mut rows = vec![
            product(16, 512, NumberFormat::Fp8, 14_000.0),
            product(16, 512, NumberFormat::Bf16, 7000.0),
            product(17, 512, NumberFormat::Fp8, 14_000.0),
            product(16, 256, NumberFormat::Fp8, 9000.0),
        ];
        let before = rows.clone();
        assert_eq!(subtract(&mut rows, &conversions), before[2..]);
        assert_eq!(rows, [product(16, 512, NumberFormat::Fp8, 4500.0), before[1]]);
    }

    #[test]
    fn without_tables_of_conversions_nothing_changes() {
        let mut rows = vec![product(16, 512, NumberFormat::Fp8, 14_000.0)];
        assert!(subtract(&mut rows, &[Vec::new(), Vec::new()]).is_empty());
        assert_eq!(rows, [product(16, 512, NumberFormat::Fp8, 14_000.0)]);
    }
}
