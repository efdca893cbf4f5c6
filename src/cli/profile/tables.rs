//! Markdown tables of cards and checks.

use std::fmt::Write as _;

use crate::fidelity::card::{Card, ErrorStatistics, WorstShape};
use crate::fidelity::transfer::TransferCheck;
use crate::units::format_count;

/// A Markdown table; columns from `left` on hold numbers and are aligned to the right.
pub(super) fn table(headings: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|", headings.join(" | "));
    for column in 0..headings.len() {
        text.push_str(if column < left { "---|" } else { "---:|" });
    }
    text.push('\n');
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// A count with thousands separated.
pub(super) fn count(value: usize) -> String {
    format_count(value as u64)
}

/// Rows, p50, p90, p95, worst and bias, as cells.
pub(super) fn statistics_of(errors: &ErrorStatistics) -> Vec<String> {
    let percent = [errors.p50, errors.p90, errors.p95].map(|value| format!("{value:.2}"));
    let mut cells = vec![count(errors.rows)];
    cells.extend(percent);
    cells.extend([format!("{:.1}", errors.worst), format!("{:+.1}", errors.bias)]);
    cells
}

/// What was fitted.
pub(super) fn ranges(card: &Card) -> String {
    let rows = card.families.iter().map(|entry| {
        let [rows, nodes, cells] = [entry.rows, entry.nodes, entry.cells].map(count);
        vec![entry.name.clone(), entry.ranges.clone(), rows, nodes, cells]
    });
    table(&["family", "ranges", "rows", "forest nodes", "table cells"], 2, rows)
}

/// Errors of every family, kind, split and group.
pub(super) fn errors(card: &Card) -> String {
    let rows = card.errors.iter().map(|entry| {
        let names = [&entry.family, &entry.group, entry.kind.name(), &entry.held_out].map(str::to_owned);
        names.into_iter().chain(statistics_of(&entry.statistics)).collect()
    });
    let headings = ["family", "group", "kind", "held out", "rows", "p50 %", "p90 %", "p95 %", "worst %", "bias %"];
    table(&headings, 4, rows)
}

/// Badly predicted shapes.
pub(super) fn worst_shapes<'a>(shapes: impl IntoIterator<Item = &'a WorstShape>) -> String {
    let rows = shapes.into_iter().map(|worst| {
        vec![
            worst.family.clone(),
            worst.held_out.clone(),
            worst.group.clone(),
            worst.shape.clone(),
            microseconds(worst.measured_us),
            microseconds(worst.predicted_us),
            format!("{:+.1}", worst.error),
        ]
    });
    table(&["family", "held out", "group", "shape", "measured us", "predicted us", "error %"], 4, rows)
}

/// Three significant digits.
pub(super) fn microseconds(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format_count(libm::round(value) as u64) }
}

/// Errors of a check per family, group and range of sizes, with those of the roofline beside them.
pub(super) fn check(check: &TransferCheck) -> String {
    let rows = check.errors.iter().map(|entry| {
        let mut cells = [&entry.family, &entry.group, &entry.range].map(Clone::clone).to_vec();
        cells.extend(statistics_of(&entry.statistics));
        cells.push(count(entry.roofline_rows));
        cells.extend([entry.roofline.p50, entry.roofline.p95].map(|value| format!("{value:.1}")));
        cells
    });
    let headings = [
        "family",
        "group",
        "sizes",
        "rows",
        "p50 %",
        "p90 %",
        "p95 %",
        "worst %",
        "bias %",
        "rows by roofline",
        "roofline p50 %",
        "roofline p95 %",
    ];
    table(&headings, 3, rows)
}
