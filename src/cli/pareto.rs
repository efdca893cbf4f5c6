//! `servescape pareto`: the front of a run under any SLA and any two axes, without simulating again.

use std::path::PathBuf;

use clap::Args;

use crate::catalog::Catalog;
use crate::diag::{Diagnostic, Diagnostics};
use crate::pareto::{Axes, Bound};
use crate::results::schema;

use super::exit::{Exit, Failure};
use super::outputs::Output;
use super::report::Answer;
use super::workspace::Workspace;

/// Arguments of `servescape pareto`.
#[derive(Args, Debug)]
pub struct ParetoArgs {
    /// Run folder
    pub run: PathBuf,
    /// Horizontal axis: a column of the results
    #[arg(long)]
    pub x: Option<String>,
    /// Vertical axis: a column of the results
    #[arg(long)]
    pub y: Option<String>,
    /// Folder for front.svg, front.png and front.csv (default: `plots` in the run folder)
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// The SLA, instead of the sweep's.
    #[command(flatten)]
    pub sla: SlaArgs,
}

/// An SLA on the command line.
#[derive(Args, Debug)]
pub struct SlaArgs {
    /// Bound that replaces the sweep's SLA, e.g. `ttft_p95_ms<=500` or `gen_speed_p95>=30`; may be repeated
    #[arg(long, value_name = "BOUND")]
    pub sla: Vec<String>,
}

impl SlaArgs {
    /// The bounds given, or the sweep's if there are none.
    pub(super) fn bounds(&self, workspace: &Workspace) -> Result<Vec<Bound>, Diagnostics> {
        if self.sla.is_empty() {
            return Ok(workspace.bounds());
        }
        self.sla.iter().map(|text| parse_bound(text).map_err(Diagnostics::from)).collect()
    }
}

fn parse_bound(text: &str) -> Result<Bound, Diagnostic> {
    let bound = |(column, value): (&str, &str), make: fn(&str, f64) -> Bound| {
        let value = value.trim().parse::<f64>().ok().filter(|value| value.is_finite())?;
        Some(make(column.trim(), value))
    };
    let parsed = text
        .split_once("<=")
        .and_then(|parts| bound(parts, |column, value| Bound::at_most(column, value)))
        .or_else(|| {
            text.split_once(">=").and_then(|parts| bound(parts, |column, value| Bound::at_least(column, value)))
        })
        .ok_or_else(|| {
            Diagnostic::new(format!("`{text}` is not a bound"))
                .help("write a column, `<=` or `>=`, and a number, e.g. `ttft_p95_ms<=500`")
        })?;
    schema::column(&parsed.column)?;
    Ok(parsed)
}

pub(super) fn run(args: &ParetoArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    let (workspace, _) = Workspace::of_run(&args.run, catalog)?;
    let x = args.x.as_deref().unwrap_or(&workspace.sweep.pareto.x.name);
    let y = args.y.as_deref().unwrap_or(&workspace.sweep.pareto.y.name);
    let axes = Axes::new(x, y)?;
    let answer = Answer::read(&args.run, axes, args.sla.bounds(&workspace)?)?;
    let folder = args.out.clone().unwrap_or_else(|| args.run.join("plots"));
    let command = format!("servescape pareto {}", args.run.display());
    let files = answer.draw(&workspace, &folder, &command)?;
    answer.write_best(&workspace, 5, output.results)?;
    writeln!(output.messages, "\n{}, {}, {}", files.svg.display(), files.png.display(), files.csv.display())?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_on_the_command_line() {
        assert_eq!(parse_bound("ttft_p95_ms<=500").unwrap(), Bound::at_most("ttft_p95_ms", 500.0));
        assert_eq!(parse_bound("gen_speed_p95 >= 30.5").unwrap(), Bound::at_least("gen_speed_p95", 30.5));
        for wrong in ["ttft_p95_ms", "ttft_p95_ms<=", "ttft_p95_ms<=nan", "ttft_p95<=5", "<=5"] {
            assert!(parse_bound(wrong).is_err(), "{wrong}");
        }
    }
}
