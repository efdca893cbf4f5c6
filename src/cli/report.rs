//! Tables and figures that several verbs print.

use std::io::{self, Write};
use std::path::Path;

use crate::explore::{Exclusion, Plan};
use crate::pareto::{Axes, Bound, Limit, Selection, feasible};
use crate::plots::{Captions, FIGURE_COLUMNS, FrontFiles, draw, format_number, front_figure};
use crate::results::Table;
use crate::results::schema::deployment_label;
use crate::space::{Candidate, Pool, deployment_commands};
use crate::spec::Sweep;
use crate::spec::{Arrival, Budget, Traffic};
use crate::units::format_count;

use super::exit::Failure;
use super::workspace::Workspace;

/// Columns of the table of deployments, besides the axes of the front.
const COLUMNS: [&str; 5] = ["ttft_p95_ms", "tpot_p95_ms", "output_throughput", "usd_per_hour", "tokens_per_usd"];

/// How many GPUs a sweep may spend, e.g. `16` or `at most 16`.
pub(super) fn budget(budget: &Budget) -> String {
    let counts: Vec<String> = budget.gpus.iter().map(u32::to_string).collect();
    let prefix = if budget.at_most { "at most " } else { "" };
    format!("{prefix}{}", counts.join(", "))
}

/// What a run would simulate, and what is left out and why.
pub(super) fn plan(plan: &Plan, out: &mut dyn Write) -> io::Result<()> {
    let count = |text: &str, number: u64| format!("{:>12}  {text}", format_count(number));
    writeln!(out, "{}", count("combinations", plan.points))?;
    exclusions(out, "not a deployment", &plan.excluded)?;
    exclusions(out, "out of memory", &plan.pruned_by_reason())?;
    writeln!(out, "{}", count("to simulate", plan.feasible.len() as u64))
}

fn exclusions(out: &mut dyn Write, what: &str, exclusions: &[Exclusion]) -> io::Result<()> {
    for Exclusion { reason, count, example } in exclusions {
        writeln!(out, "{:>12}  {what}: {reason}, e.g. {example}", format_count(*count))?;
    }
    Ok(())
}

/// The rows of a run that matter for the answer, with front and knee.
pub(super) struct Answer {
    table: Table,
    axes: Axes,
    bounds: Vec<Bound>,
    pub(super) selection: Selection,
}

impl Answer {
    /// Reads a run and filters it.
    pub(super) fn read(run_folder: &Path, axes: Axes, bounds: Vec<Bound>) -> Result<Self, Failure> {
        let mut names: Vec<&str> = COLUMNS.to_vec();
        names.extend(FIGURE_COLUMNS);
        names.extend(["parallelism", &*axes.x.name, &*axes.y.name]);
        names.extend(bounds.iter().map(|bound| bound.column.as_str()));
        names.sort_unstable();
        names.dedup();
        let table = Table::load(run_folder, &names).map_err(Failure::results)?;
        let selection = Selection::new(&table, &axes, &bounds)?;
        Ok(Self { table, axes, bounds, selection })
    }

    fn candidate(&self, workspace: &Workspace, row: usize) -> Option<Candidate> {
        let index = self.table.numbers("index").ok()?[row];
        workspace.space.candidate(index as u64).ok()
    }

    /// Feasible rows by the vertical axis of the front, best first; of deployments that differ in load and engine limits
    /// only, the best.
    fn best(&self, workspace: &Workspace, count: usize) -> Vec<(usize, Candidate)> {
        let mut rows: Vec<usize> =
            (0..self.selection.points.len()).filter(|&row| self.selection.feasible[row]).collect();
        let sign = self.axes.directions()[1].sign();
        let value = |row: usize| sign * self.selection.points[row][1];
        rows.sort_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
        let mut best: Vec<(usize, Candidate)> = Vec::new();
        for row in rows {
            if best.len() == count {
                break;
            }
            let Some(candidate) = self.candidate(workspace, row) else { continue };
            if best.iter().all(|(_, known)| !same_placement(known, &candidate)) {
                best.push((row, candidate));
            }
        }
        best
    }

    /// The table of the best deployments, each with its command; or what kept every one from the SLA.
    pub(super) fn write_best(&self, workspace: &Workspace, count: usize, out: &mut dyn Write) -> Result<(), Failure> {
        let feasible = feasible(&self.table, &self.bounds)?.iter().filter(|&&feasible| feasible).count();
        let total = self.selection.points.len();
        let sla: Vec<String> = self.bounds.iter().map(Bound::to_string).collect();
        let sla = if sla.is_empty() { "no SLA".to_owned() } else { sla.join(", ") };
        writeln!(
            out,
            "{} of {} simulated candidates meet the SLA ({sla}); {} are on the front of {} against {}.",
            format_count(feasible as u64),
            format_count(total as u64),
            self.selection.front.len(),
            self.axes.y.name,
            self.axes.x.name,
        )?;
        if feasible == 0 {
            writeln!(out, "None does. Closest values reached, each by some candidate:")?;
            for bound in &self.bounds {
                let values = self.table.numbers(&bound.column)?;
                let values = values.into_iter().filter(|value| !value.is_nan());
                let closest = match bound.limit {
                    Limit::AtMost(_) => values.min_by(f64::total_cmp),
                    Limit::AtLeast(_) => values.max_by(f64::total_cmp),
                };
                writeln!(out, "  {bound}: {}", closest.map_or_else(|| "no value".to_owned(), format_number))?;
            }
            return Ok(());
        }
        if self.selection.front.is_empty() {
            writeln!(
                out,
                "None of them has both values of the front, so there is none; choose other axes with `pareto`."
            )?;
            return Ok(());
        }
        self.write_table(workspace, count, out)
    }

    fn write_table(&self, workspace: &Workspace, count: usize, out: &mut dyn Write) -> Result<(), Failure> {
        let best = self.best(workspace, count);
        writeln!(out, "\nBest deployments by {}, each with its best load and engine limits:\n", self.axes.y.title())?;
        let mut header = vec!["".to_owned(), "deployment".to_owned(), "load".to_owned()];
        let columns: Vec<&str> = [&*self.axes.y.name, &*self.axes.x.name].into_iter().chain(COLUMNS).collect();
        header.extend(columns.iter().map(|name| (*name).to_owned()));
        let mut rows = vec![header];
        let numbers: Vec<Vec<f64>> = columns.iter().map(|name| self.table.numbers(name)).collect::<Result<_, _>>()?;
        for (rank, (row, candidate)) in best.iter().enumerate() {
            let mut cells = vec![
                (rank + 1).to_string(),
                deployment_label(&candidate.pools),
                load_label(&workspace.sweep, candidate.load),
            ];
            cells.extend(numbers.iter().map(|values| format_number(values[*row])));
            rows.push(cells);
        }
        write_aligned(&rows, out)?;
        writeln!(out, "\nCommands (one per replica, behind a {} router where there are several):\n", best[0].1.router)?;
        for (rank, (_, candidate)) in best.iter().enumerate() {
            for command in deployment_commands(candidate, &workspace.sweep.model) {
                let replicas: u32 = candidate.pools.iter().map(|pool| pool.replicas).sum();
                writeln!(out, "{:>3}. {replicas} x  {command}", rank + 1)?;
            }
        }
        Ok(())
    }

    /// Draws the front, with its data beside it.
    pub(super) fn draw(&self, workspace: &Workspace, folder: &Path, command: &str) -> Result<FrontFiles, Failure> {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::results(crate::results::failure("create", folder, &error)))?;
        let sla: Vec<String> = self.bounds.iter().map(Bound::to_string).collect();
        let captions = Captions {
            title: format!("{} on {}", workspace.sweep.model.name, hardware(&workspace.sweep)),
            subtitle: format!("{} · {}", workload_label(&workspace.sweep), sla.join(", ")),
            footnote: command.to_owned(),
        };
        let figure = front_figure(&self.table, &self.axes, &self.bounds, &self.selection, "parallelism", captions)?;
        draw(&figure, folder).map_err(Failure::results)
    }
}

/// Whether two candidates put the same replicas on the same GPUs.
fn same_placement(a: &Candidate, b: &Candidate) -> bool {
    let placements = |candidate: &Candidate| -> Vec<_> {
        let placement = |pool: &Pool| {
            (pool.gpu.name.clone(), pool.replicas, pool.parallelism, pool.precision, pool.engine_profile.clone())
        };
        candidate.pools.iter().map(placement).collect()
    };
    a.architecture == b.architecture && placements(a) == placements(b)
}

/// The budget with the GPU type, or the number of types.
fn hardware(sweep: &Sweep) -> String {
    let mut names: Vec<&str> =
        sweep.colocation.iter().flat_map(|block| &block.all.gpus).map(|gpu| gpu.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let budget = budget(&sweep.budget);
    match names[..] {
        [name] => format!("{budget} × {name}"),
        _ => format!("{budget} GPUs of {} types", names.len()),
    }
}

/// A load with its unit.
fn load_label(sweep: &Sweep, load: f64) -> String {
    match &sweep.workload.traffic {
        Traffic::Synthetic { arrival: Arrival::Closed { .. }, .. } => format!("{load} clients"),
        Traffic::Synthetic { arrival: Arrival::Batch, .. } => format!("{load} at once"),
        _ => format!("{}/s", format_number(load)),
    }
}

fn workload_label(sweep: &Sweep) -> String {
    let requests = format_count(sweep.workload.requests as u64);
    match &sweep.workload.traffic {
        Traffic::Replay { trace, .. } => format!("{requests} requests of {}", trace.name),
        Traffic::Synthetic { .. } => format!("{requests} requests per candidate"),
    }
}

/// Writes rows of cells in columns, numbers and text alike aligned to the right but for the second column.
fn write_aligned(rows: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let padded = if column == 1 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            line.push_str(if column == 0 { "" } else { "  " });
            line.push_str(&padded);
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
