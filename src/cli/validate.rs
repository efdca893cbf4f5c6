//! `servescape validate`: measured serving runs against their simulation.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;

use crate::catalog::Catalog;
use crate::diag::Diagnostic;
use crate::plots::{
    AgreementFigure, AgreementPanel, AgreementPoint, ErrorCurve, ErrorFigure, ErrorPanel, draw_agreement, draw_errors,
};
use crate::units::format_count;
use crate::validation::output::write_cases;
use crate::validation::report::{Figures, aims, markdown};
use crate::validation::summary::{Comparison, comparisons, groups};
use crate::validation::{Answer, Metric, Statistic, answer, check_formats, read};

use super::exit::{Exit, Failure};
use super::outputs::Output;

/// Arguments of `servescape validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Files or folders with measured runs; the formats are recognised
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<PathBuf>,
    /// Folder for cases.csv, cases.parquet, report.md and the figures
    #[arg(long)]
    pub out: PathBuf,
    /// Read only this format; may be repeated
    #[arg(long, value_name = "FORMAT")]
    pub only: Vec<String>,
    /// Also write the report here, figures beside it; its last part is read from `NAME-notes.md`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Points of a curve of errors.
const QUANTILES: usize = 101;

pub(super) fn run(args: &ValidateArgs, catalog: &Catalog, output: &mut Output<'_>) -> Result<Exit, Failure> {
    check_formats(&args.only)?;
    let cases = read(&args.sources, &args.only)?;
    let total = cases.len();
    writeln!(output.messages, "{} cases", format_count(total as u64))?;
    let finished = AtomicUsize::new(0);
    let answers = answer(cases, catalog, &|| {
        finished.fetch_add(1, Ordering::Relaxed);
    })?;
    write_folder(&answers, args).map_err(Failure::results)?;
    let groups = groups(&answers);
    for group in &groups {
        let (answered, cases) = (group.answered() as u64, group.answers.len() as u64);
        writeln!(output.results, "{}: {} of {} answered", group.name, format_count(answered), format_count(cases))?;
    }
    writeln!(output.results, "\n{}", aims(&groups))?;
    writeln!(output.messages, "report in {}", args.out.join("report.md").display())?;
    Ok(Exit::Success)
}

fn write_folder(answers: &[Answer], args: &ValidateArgs) -> Result<(), Diagnostic> {
    create_folder(&args.out)?;
    write_cases(answers, &args.out)?;
    write_report(answers, &args.out.join("report.md"), "")?;
    if let Some(report) = &args.report {
        create_folder(report.parent().unwrap_or(Path::new(".")))?;
        let stem = report.file_stem().unwrap_or_default().to_string_lossy();
        write_report(answers, report, &format!("{stem}-"))?;
    }
    Ok(())
}

/// Writes the report and its figures, whose names begin with `prefix`.
fn write_report(answers: &[Answer], path: &Path, prefix: &str) -> Result<(), Diagnostic> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let notes = path.with_file_name(format!("{stem}-notes.md"));
    let notes = if notes.is_file() {
        fs::read_to_string(&notes)
            .map_err(|error| Diagnostic::new(format!("cannot read `{}`: {error}", notes.display())))?
    } else {
        String::new()
    };
    let (agreement, errors) = (format!("{prefix}agreement.png"), format!("{prefix}errors.png"));
    let text = markdown(answers, Figures { agreement: &agreement, errors: &errors }, &notes);
    fs::write(path, text).map_err(|error| Diagnostic::new(format!("cannot write `{}`: {error}", path.display())))?;
    let shown = Shown::new(answers);
    draw_agreement(&shown.agreement(), &path.with_file_name(agreement))?;
    draw_errors(&shown.errors(), &path.with_file_name(errors))
}

fn create_folder(path: &Path) -> Result<(), Diagnostic> {
    fs::create_dir_all(path)
        .map_err(|error| Diagnostic::new(format!("cannot create the folder `{}`: {error}", path.display())))
}

/// A panel of the figures.
struct PanelSpec {
    title: &'static str,
    /// Unit of the axes, and how many milliseconds it has.
    unit: (&'static str, f64),
    /// The values that it shows.
    keys: &'static [(Metric, Statistic)],
}

const SECONDS: (&str, f64) = ("s", 1000.0);

const PANELS: [PanelSpec; 4] = [
    PanelSpec { title: "TTFT, mean", unit: SECONDS, keys: &[(Metric::Ttft, Statistic::Mean)] },
    PanelSpec {
        title: "TPOT or ITL, mean",
        unit: ("ms", 1.0),
        keys: &[(Metric::Tpot, Statistic::Mean), (Metric::Itl, Statistic::Mean)],
    },
    PanelSpec { title: "E2E, mean", unit: SECONDS, keys: &[(Metric::E2e, Statistic::Mean)] },
    PanelSpec {
        title: "E2E, p95 and p99",
        unit: SECONDS,
        keys: &[(Metric::E2e, Statistic::P95), (Metric::E2e, Statistic::P99)],
    },
];

/// The values of the figures, by series.
struct Shown<'a> {
    series: Vec<String>,
    rows: Vec<(usize, Comparison<'a>)>,
}

impl<'a> Shown<'a> {
    fn new(answers: &'a [Answer]) -> Self {
        let mut shown = Self { series: Vec::new(), rows: Vec::new() };
        for row in comparisons(answers).filter(|row| row.simulated.is_some()) {
            let name = series_name(&row.answer.case.group);
            let position = shown.series.iter().position(|known| *known == name).unwrap_or_else(|| {
                shown.series.push(name);
                shown.series.len() - 1
            });
            shown.rows.push((position, row));
        }
        shown
    }

    /// Rows of a panel.
    fn of(&self, keys: &'a [(Metric, Statistic)]) -> impl Iterator<Item = &(usize, Comparison<'a>)> {
        self.rows.iter().filter(|(_, row)| keys.contains(&(row.measured.metric, row.measured.statistic)))
    }

    fn agreement(&self) -> AgreementFigure {
        let panel = |PanelSpec { title, unit: (unit, ms), keys }: PanelSpec| {
            let point = |(series, row): &(usize, Comparison<'_>)| {
                let (measured, predicted) = (row.measured.value / ms, row.simulated? / ms);
                Some(AgreementPoint { series: *series, measured, predicted })
            };
            let points = self.of(keys).filter_map(point).collect();
            AgreementPanel { title: title.to_owned(), unit: unit.to_owned(), points }
        };
        AgreementFigure {
            title: "Simulated against measured serving runs".to_owned(),
            subtitle: "Solid: agreement. Dashed: 10 % above and below.".to_owned(),
            series: self.series.clone(),
            panels: PANELS.map(panel).to_vec(),
            footnote: FOOTNOTE.to_owned(),
        }
    }

    fn errors(&self) -> ErrorFigure {
        let panel = |PanelSpec { title, keys, .. }: PanelSpec| {
            let curve = |series: usize| {
                let rows = self.of(keys).filter(|(of, _)| *of == series);
                let errors: Vec<f64> = rows.filter_map(|(_, row)| Some(row.error_pct()?.abs())).collect();
                quantiles(errors).map(|quantiles| ErrorCurve { series, quantiles })
            };
            let curves = (0..self.series.len()).filter_map(curve).collect();
            ErrorPanel { title: title.to_owned(), curves, marks: Vec::new() }
        };
        ErrorFigure {
            title: "Errors of simulated serving runs".to_owned(),
            subtitle: "Distribution of |simulated / measured - 1| over the cases of each source; larger errors lie on the edge.".to_owned(),
            counted: "values".to_owned(),
            series: self.series.clone(),
            references: Vec::new(),
            panels: PANELS.map(panel).to_vec(),
            footnote: FOOTNOTE.to_owned(),
        }
    }
}

const FOOTNOTE: &str = "servescape validate";

/// One colour for both parts of a sample, and for all users.
fn series_name(group: &str) -> String {
    match group.split_once(' ') {
        Some((source, engine)) if source.starts_with("sample") => format!("sample, {engine}"),
        Some((source, _)) => source.to_owned(),
        None => group.to_owned(),
    }
}

/// Values at equally spaced shares of the sample; `None` if it is empty.
fn quantiles(mut values: Vec<f64>) -> Option<Vec<f64>> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |step: usize| {
        let position = last as f64 * step as f64 / (QUANTILES - 1) as f64;
        let (low, share) = (position as usize, position.fract());
        values[low] + share * (values[(low + 1).min(last)] - values[low])
    };
    Some((0..QUANTILES).map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_the_sorted_values() {
        let quantiles = quantiles(vec![3.0, 1.0]).unwrap();
        assert_eq!((quantiles[0], quantiles[50], quantiles[100]), (1.0, 2.0, 3.0));
        assert_eq!(super::quantiles(Vec::new()), None);
    }

    #[test]
    fn both_parts_of_a_sample_share_a_colour() {
        assert_eq!(series_name("sample_fit vllm"), series_name("sample_test vllm"));
        assert_ne!(series_name("sample_fit vllm"), series_name("sample_fit sglang"));
        assert_eq!(series_name("users H20"), "users");
        assert_eq!(series_name("sim2real"), "sim2real");
    }
}
