//! The report in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::units::format_count;

use super::aims::AIMS;
use super::answer::Answer;
use super::case::{Metric, Statistic};
use super::summary::{Comparison, Errors, Group, MetricErrors, comparisons, groups, metric_errors};

/// Figures of the report, by file name.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    /// Simulated against measured.
    pub agreement: &'a str,
    /// Distributions of errors.
    pub errors: &'a str,
}

/// Groups with at most so many answered cases are listed case by case.
const MOST_LISTED_CASES: usize = 40;
/// Worst values shown per group and metric.
const WORST: usize = 5;
/// Reasons shown per group.
const MOST_REASONS: usize = 12;

/// The whole report; `notes` is its hand-written last part.
#[must_use]
pub fn markdown(answers: &[Answer], figures: Figures<'_>, notes: &str) -> String {
    let groups = groups(answers);
    let mut text = String::from(INTRODUCTION);
    let _ = writeln!(
        text,
        "![Simulated against measured]({})\n\n![Distributions of errors]({})\n",
        figures.agreement, figures.errors
    );
    text.push_str("## Aims\n\n");
    text.push_str(&aims(&groups));
    text.push_str("\n## Coverage\n\n");
    text.push_str(&coverage(&groups));
    for group in &groups {
        text.push('\n');
        text.push_str(&group_section(group));
    }
    if !notes.trim().is_empty() {
        let _ = write!(text, "\n{}\n", notes.trim_end());
    }
    text
}

const INTRODUCTION: &str = "\
# Serving accuracy

Written by `servescape validate`: measured serving runs, simulated again with the same deployment, the same requests where
they were recorded and the same protocol otherwise. Nothing is fitted per case or per model. Errors are
simulated / measured - 1; *median* and *mean* are over absolute errors, *bias* is the median of the signed ones (below
zero: simulated too fast). *Measured time* is the share of simulated engine time whose kernels were measured on that GPU
type (the rest is transferred from another one or a roofline). A case that cannot be simulated is listed with its reason and counts as not answered.

";

/// The table of aims: what was wanted, what was reached.
#[must_use]
pub fn aims(groups: &[Group<'_>]) -> String {
    let mut table = Markdown::new(&["data", "metric", "aim", "reached", "met", "best peer"]);
    for aim in AIMS {
        let Some(group) = groups.iter().find(|group| group.name == aim.group) else { continue };
        let or = aim.or_difference.map_or(String::new(), |limit| format!(" or {limit} {}", aim.metric.unit()));
        let reached = aim.reached_pct(group).map_or_else(|| "not compared".to_owned(), percent);
        let met = if aim.is_met(group) { "yes" } else { "no" };
        table.row(&[
            group.name,
            &metric_name(aim.metric, aim.statistic),
            &format!("{} <= {} %{or}", aim.over.name(), aim.limit_pct),
            &reached,
            met,
            aim.peer,
        ]);
    }
    table.finish()
}

fn coverage(groups: &[Group<'_>]) -> String {
    let mut table = Markdown::new(&["data", "cases", "answered", "share"]);
    for group in groups {
        let (cases, answered) = (group.answers.len(), group.answered());
        let share = format!("{:.0} %", 100.0 * answered as f64 / cases.max(1) as f64);
        table.row(&[group.name, &format_count(cases as u64), &format_count(answered as u64), &share]);
    }
    table.finish()
}

fn group_section(group: &Group<'_>) -> String {
    let (cases, answered) = (group.answers.len(), group.answered());
    let mut text = format!("## {}\n\n", group.name);
    let _ = writeln!(
        text,
        "{} of {} cases answered{}.\n",
        format_count(answered as u64),
        format_count(cases as u64),
        deployments(group)
    );
    text.push_str(&refusals(group));
    if answered == 0 {
        return text;
    }
    text.push_str(&error_table(&group.metrics));
    text.push_str(&peer_table(&group.metrics));
    text.push_str(&by_deployment(group));
    if answered <= MOST_LISTED_CASES {
        text.push_str(&case_table(group));
    } else {
        text.push_str(&worst_table(group));
    }
    text
}

/// Engine profiles and schedulers that were used, where they are not those of the run's engine.
fn deployments(group: &Group<'_>) -> String {
    let mut used: Vec<String> = group
        .answers
        .iter()
        .filter_map(|answer| answer.simulated.as_ref().ok())
        .map(|one| {
            let stand_in = if one.own_engine { "" } else { ", for want of one of this engine" };
            format!("profile {}, scheduler `{}`{stand_in}", one.profile, one.scheduler)
        })
        .collect();
    used.sort();
    used.dedup();
    if used.is_empty() { String::new() } else { format!(" ({})", used.join("; ")) }
}

fn refusals(group: &Group<'_>) -> String {
    let refusals = group.refusals();
    if refusals.is_empty() {
        return String::new();
    }
    let mut table = Markdown::new(&["not answered", "cases", "for example"]);
    for (reason, count, example) in refusals.iter().take(MOST_REASONS) {
        table.row(&[reason, &format_count(*count as u64), example]);
    }
    let hidden: usize = refusals.iter().skip(MOST_REASONS).map(|(_, count, _)| count).sum();
    if hidden > 0 {
        table.row(&["other reasons", &format_count(hidden as u64), ""]);
    }
    table.finish() + "\n"
}

fn error_table(metrics: &[MetricErrors]) -> String {
    let mut table = Markdown::new(&["metric", "values", "median", "mean", "p90", "worst", "bias"]);
    for one in metrics {
        let Some(errors) = one.errors else { continue };
        table.row(&[
            &metric_name(one.metric, one.statistic),
            &format_count(errors.count as u64),
            &percent(errors.median),
            &percent(errors.mean),
            &percent(errors.p90),
            &percent(errors.worst),
            &signed(errors.bias),
        ]);
    }
    table.finish() + "\n"
}

fn peer_table(metrics: &[MetricErrors]) -> String {
    if metrics.iter().all(|one| one.peers.is_empty()) {
        return String::new();
    }
    let heads = ["metric", "peer", "values", "median", "mean", "bias", "ours on these: values", "median", "mean"];
    let mut table = Markdown::new(&heads);
    for one in metrics {
        for peer in &one.peers {
            let ours = |of: &dyn Fn(Errors) -> String| peer.ours.map_or(String::new(), of);
            table.row(&[
                &metric_name(one.metric, one.statistic),
                &peer.name,
                &format_count(peer.errors.count as u64),
                &percent(peer.errors.median),
                &percent(peer.errors.mean),
                &signed(peer.errors.bias),
                &ours(&|errors| format_count(errors.count as u64)),
                &ours(&|errors| percent(errors.median)),
                &ours(&|errors| percent(errors.mean)),
            ]);
        }
    }
    table.finish() + "\n"
}

/// Errors of the means by model and GPU, with the share of engine time that rests on measured kernels of that GPU.
fn by_deployment(group: &Group<'_>) -> String {
    let mut kinds: BTreeMap<(String, &str), Vec<&Answer>> = BTreeMap::new();
    for answer in &group.answers {
        if let (Ok(run), Ok(_)) = (&answer.case.run, &answer.simulated) {
            let weights = run.formats.weights.map_or(String::new(), |weights| format!(" {}", weights.name()));
            kinds.entry((format!("{}{weights}", run.model), run.gpu.as_str())).or_default().push(answer);
        }
    }
    if kinds.len() < 2 {
        return String::new();
    }
    let shown = [Metric::Ttft, Metric::Tpot, Metric::Itl, Metric::E2e].map(|metric| (metric, Statistic::Mean));
    let shown: Vec<(Metric, Statistic)> =
        shown.into_iter().filter(|(metric, statistic)| group.errors(*metric, *statistic).is_some()).collect();
    let mut heads = ["model", "GPU", "cases", "measured time"].map(str::to_owned).to_vec();
    for (metric, statistic) in &shown {
        heads.push(format!("{}: median", metric_name(*metric, *statistic)));
        heads.push("bias".to_owned());
    }
    let mut table = Markdown::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for ((model, gpu), answers) in &kinds {
        let errors = metric_errors(answers);
        let mut cells = vec![model.clone(), (*gpu).to_owned(), format_count(answers.len() as u64)];
        cells.push(measured_time(answers));
        for key in &shown {
            let found = errors.iter().find(|one| (one.metric, one.statistic) == *key).and_then(|one| one.errors);
            cells.push(found.map_or(String::new(), |errors| percent(errors.median)));
            cells.push(found.map_or(String::new(), |errors| signed(errors.bias)));
        }
        table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.finish() + "\n"
}

/// Mean share of engine time that rests on measurements of the GPU.
fn measured_time(answers: &[&Answer]) -> String {
    let shares: Vec<f64> =
        answers.iter().filter_map(|answer| answer.simulated.as_ref().ok()).map(|one| one.measured_share).collect();
    format!("{:.0} %", 100.0 * shares.iter().sum::<f64>() / shares.len().max(1) as f64)
}

/// Signed errors of every case.
fn case_table(group: &Group<'_>) -> String {
    let metrics: Vec<(Metric, Statistic)> =
        group.metrics.iter().filter(|one| one.errors.is_some()).map(|one| (one.metric, one.statistic)).collect();
    let mut heads = vec!["case".to_owned()];
    heads.extend(metrics.iter().map(|(metric, statistic)| metric_name(*metric, *statistic)));
    let mut table = Markdown::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for answer in group.answers.iter().filter(|answer| answer.simulated.is_ok()) {
        let mut cells = vec![answer.case.id.clone()];
        let rows: Vec<Comparison<'_>> = comparisons(std::slice::from_ref(*answer)).collect();
        for key in &metrics {
            let found = rows.iter().find(|one| (one.measured.metric, one.measured.statistic) == *key);
            cells.push(found.and_then(Comparison::error_pct).map_or(String::new(), signed));
        }
        table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.finish()
}

/// The values with the largest errors.
fn worst_table(group: &Group<'_>) -> String {
    let mut table = Markdown::new(&["worst", "case", "deployment", "measured", "simulated", "error"]);
    for one in group.metrics.iter().filter(|one| one.errors.is_some()) {
        let answers = group.answers.iter().flat_map(|answer| comparisons(std::slice::from_ref(*answer)));
        let mut rows: Vec<(f64, Comparison<'_>)> = answers
            .filter(|row| (row.measured.metric, row.measured.statistic) == (one.metric, one.statistic))
            .filter_map(|row| Some((row.error_pct()?, row)))
            .collect();
        rows.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
        for (error, row) in rows.into_iter().take(WORST) {
            let unit = one.metric.unit();
            let value = |value: f64| format!("{} {unit}", three_digits(value));
            table.row(&[
                &metric_name(one.metric, one.statistic),
                &row.answer.case.id,
                row.answer.simulated.as_ref().map_or("", |simulated| &simulated.parallelism),
                &value(row.measured.value),
                &row.simulated.map_or(String::new(), value),
                &signed(error),
            ]);
        }
    }
    table.finish()
}

fn metric_name(metric: Metric, statistic: Statistic) -> String {
    match statistic {
        Statistic::Total => metric.name().to_owned(),
        statistic => format!("{} {}", metric.name(), statistic.name()),
    }
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

fn signed(value: f64) -> String {
    format!("{value:+.1} %")
}

/// Three significant digits, none after the point from 100 on.
fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A Markdown table in the making.
struct Markdown {
    text: String,
    columns: usize,
}

impl Markdown {
    fn new(heads: &[&str]) -> Self {
        let mut table = Self { text: String::new(), columns: heads.len() };
        table.row(heads);
        table.text.push_str(&format!("|{}\n", "---|".repeat(table.columns)));
        table
    }

    fn row(&mut self, cells: &[&str]) {
        debug_assert_eq!(cells.len(), self.columns, "a cell for every column");
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::answer;
    use super::*;

    #[test]
    fn the_report_counts_names_and_compares() {
        let answers = [
            answer("a", 100.0, Ok(90.0), 150.0),
            answer("b", 100.0, Err("the catalog has no GPU `x`"), 80.0),
            answer("c", 200.0, Ok(230.0), 150.0),
        ];
        let text = markdown(&answers, Figures { agreement: "a.png", errors: "e.png" }, "## Notes\n\nBy hand.\n");
        for part in [
            "![Simulated against measured](a.png)",
            "| g | 3 | 2 | 67 % |",
            "2 of 3 cases answered (profile vllm-0.15, scheduler `vllm_v1`).",
            "| the catalog has no GPU `x` | 1 | b |",
            "| TTFT mean | 2 | 12.5 % | 12.5 % | 15.0 % | 15.0 % | +2.5 % |",
            "| TTFT mean | other | 3 | 25.0 % |",
            "| a | -10.0 % |",
            "## Notes\n\nBy hand.",
        ] {
            assert!(text.contains(part), "`{part}` is not in\n{text}");
        }
    }
}
