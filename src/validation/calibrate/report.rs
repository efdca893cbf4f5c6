//! A calibration as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::units::format_count;

use super::super::summary::median;
use super::identify::WIDEST;
use super::{CONSTANTS, Calibration, RunErrors, ValueError};

/// Runs that are listed one by one, the fitted ones first.
const MOST_LISTED: usize = 40;

/// Tables of the constants, of the errors by run and of their medians.
#[must_use]
pub fn markdown(calibration: &Calibration) -> String {
    let mut text = constants_table(calibration);
    text.push('\n');
    text.push_str(&runs_table(calibration));
    text.push('\n');
    text.push_str(&medians_table(calibration));
    text
}

/// What the runs leave open, one sentence per constant.
#[must_use]
pub fn warnings(calibration: &Calibration) -> Vec<String> {
    let open = CONSTANTS.iter().zip(&calibration.constants).filter(|(_, result)| !result.fitted);
    let warning = |(constant, result): (&super::Constant, &super::FittedConstant)| {
        let start = number(constant.get(&calibration.start));
        let name = constant.name;
        if result.interval.runs == 0 {
            return format!("the runs do not identify `{name}`: none of them depends on it; it stays at {start} us");
        }
        let (from, to) = (number(result.interval.from_us), number(result.interval.to_us));
        let left = match constant.get(&calibration.host) {
            value if value == constant.get(&calibration.start) => format!("stays at {start} us"),
            value => format!("is set to {} us, the nearest to its start of {start} us", number(value)),
        };
        format!("the runs do not identify `{name}`: anything from {from} to {to} us fits as well; it {left}")
    };
    open.map(warning).collect()
}

fn constants_table(calibration: &Calibration) -> String {
    let mut text = "| constant | start (us) | fitted (us) | fits as well (us) | runs that it moves |\n\
                    |---|--:|--:|--:|--:|\n"
        .to_owned();
    for (constant, result) in CONSTANTS.iter().zip(&calibration.constants) {
        let start = number(constant.get(&calibration.start));
        let changed = constant.get(&calibration.host) != constant.get(&calibration.start);
        let fitted = if result.fitted || changed { number(constant.get(&calibration.host)) } else { "kept".to_owned() };
        let interval = result.interval;
        let range = if interval.runs == 0 {
            "anything".to_owned()
        } else {
            format!("{} to {}", number(interval.from_us), number(interval.to_us))
        };
        let _ = writeln!(text, "| {} | {start} | {fitted} | {range} | {} |", constant.name, interval.runs);
    }
    let _ = writeln!(
        text,
        "\n*Fits as well*: the other constants follow, and the loss rises by less than its standard error over the runs. A \
         constant for which that is more than a factor of {WIDEST} is kept at its start, or at the nearest value that does."
    );
    text
}

fn runs_table(calibration: &Calibration) -> String {
    let mut text = how_left_out(calibration);
    text.push_str("\n| run | use | value | error before | error after |\n|---|---|---|--:|--:|\n");
    for run in calibration.runs.iter().take(MOST_LISTED) {
        for value in &run.values {
            let (before, after) = (percent(value.before), percent(value.after));
            let label = format!("{} {}", value.metric.name(), value.statistic.name());
            let _ = writeln!(text, "| {} | {} | {label} | {before:+.1} % | {after:+.1} % |", run.name, use_of(run));
        }
    }
    if let Some(more) = calibration.runs.len().checked_sub(MOST_LISTED).filter(|more| *more > 0) {
        let _ = writeln!(text, "\n{} more runs are not listed.", format_count(more as u64));
    }
    text
}

fn how_left_out(calibration: &Calibration) -> String {
    let fitted = calibration.runs.iter().filter(|run| run.fitted).count();
    match calibration.folds {
        0 => "There is one run to fit: its error after the fit is that of the fit itself.\n".to_owned(),
        folds if folds == fitted => "Errors after the fit are those of a fit without that run.\n".to_owned(),
        folds => format!("Errors after the fit are those of a fit without that run and others, in {folds} groups.\n"),
    }
}

fn use_of(run: &RunErrors) -> &'static str {
    if run.fitted { "fitted" } else { "held out" }
}

/// Median absolute errors, in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Medians {
    pub(super) values: usize,
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Over the values of the fitted runs or of those held out; `None` if there is none.
pub(super) fn medians<'a>(values: impl Iterator<Item = &'a ValueError> + Clone) -> Option<Medians> {
    let of = |error: &dyn Fn(&ValueError) -> f64| {
        let mut errors: Vec<f64> = values.clone().map(|value| percent(error(value)).abs()).collect();
        errors.sort_unstable_by(f64::total_cmp);
        median(&errors)
    };
    Some(Medians {
        values: values.clone().count(),
        before: of(&|value| value.before)?,
        after: of(&|value| value.after)?,
    })
}

fn medians_table(calibration: &Calibration) -> String {
    let mut text = "| median absolute error | use | values | before | after |\n|---|---|--:|--:|--:|\n".to_owned();
    for fitted in [true, false] {
        let runs = || calibration.runs.iter().filter(move |run| run.fitted == fitted);
        let label = if fitted { "fitted" } else { "held out" };
        let mut kinds: BTreeMap<_, Vec<&ValueError>> = BTreeMap::new();
        for value in runs().flat_map(|run| &run.values) {
            kinds.entry((value.metric, value.statistic)).or_default().push(value);
        }
        let rows = kinds
            .iter()
            .map(|((metric, statistic), values)| {
                (format!("{} {}", metric.name(), statistic.name()), medians(values.iter().copied()))
            })
            .chain([("all".to_owned(), medians(runs().flat_map(|run| &run.values)))]);
        for (name, medians) in rows {
            let Some(Medians { values, before, after }) = medians else { continue };
            let count = format_count(values as u64);
            let _ = writeln!(text, "| {name} | {label} | {count} | {before:.1} % | {after:.1} % |");
        }
    }
    text
}

/// Signed error in per cent of a logarithmic one.
fn percent(error: f64) -> f64 {
    100.0 * libm::expm1(error)
}

/// Three significant digits, with commas in thousands.
pub(super) fn number(value: f64) -> String {
    let rounded = three_digits(value);
    if rounded.abs() >= 100.0 { format_count(rounded as u64) } else { format!("{rounded}") }
}

/// Rounds to three significant digits, the precision to which any of the constants is known.
pub(super) fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([1234.6, 45.678, 0.123_456, 0.0].map(number), ["1,230", "45.7", "0.123", "0"]);
    }
}
