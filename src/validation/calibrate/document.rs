//! The fitted profile as a file: the text of the given one, comments and all, with other values.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use crate::catalog::EngineProfile;
use crate::diag::{Diagnostic, Diagnostics, Source, from_toml};

use super::report::{medians, number, three_digits};
use super::{CONSTANTS, Calibration};

/// Width of the lines of `source`.
const LINE: usize = 118;
/// Names of fitted runs in `source`.
const MOST_NAMES: usize = 12;

/// What is edited; the rest of the file stays as it is.
#[derive(Deserialize)]
struct Editable {
    host: BTreeMap<String, Spanned<toml::Value>>,
}

/// The text of `source`, an engine profile, with the fitted constants, and with how each was fitted in the `source` of its
/// `[host]` table.
///
/// # Errors
/// `source` is no engine profile.
pub fn document(source: &Arc<Source>, calibration: &Calibration) -> Result<String, Diagnostics> {
    let file: Editable = toml::from_str(&source.text).map_err(|error| from_toml(&error, source))?;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for constant in CONSTANTS {
        let entry = file.host.get(constant.name);
        let entry = entry.ok_or_else(|| Diagnostic::new(format!("`{}` has no `{}`", source.name, constant.name)))?;
        if constant.get(&calibration.host) != constant.get(&calibration.start) {
            edits.push((entry.span(), format!("{:?}", three_digits(constant.get(&calibration.host)))));
        }
    }
    if let Some(entry) = file.host.get("source") {
        let before = entry.get_ref().as_str().unwrap_or_default();
        edits.push((entry.span(), multi_line(&format!("{}\n{}", before.trim(), provenance(calibration)))));
    }
    edits.sort_unstable_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = source.text.clone();
    for (span, value) in edits {
        text.replace_range(span, &value);
    }
    EngineProfile::parse(&Arc::new(Source { name: source.name.clone(), text: text.clone() }))?;
    Ok(text)
}

/// A multi-line basic string.
fn multi_line(text: &str) -> String {
    format!("\"\"\"\n{}\n\"\"\"", text.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\""))
}

/// How the constants were fitted.
fn provenance(calibration: &Calibration) -> String {
    let runs: Vec<&str> = calibration.runs.iter().filter(|run| run.fitted).map(|run| run.name.as_str()).collect();
    let mut names = runs[..runs.len().min(MOST_NAMES)].join(", ");
    if runs.len() > MOST_NAMES {
        let _ = write!(names, " and {} more", runs.len() - MOST_NAMES);
    }
    let mut lines = vec![format!(
        "Fitted by `servescape calibrate` from {} as it was before, on {} runs: {names}.",
        calibration.profile,
        runs.len()
    )];
    for (fitted, which) in [(true, "left-out"), (false, "held-out")] {
        let chosen = calibration.runs.iter().filter(|run| run.fitted == fitted);
        if let Some(medians) = medians(chosen.flat_map(|run| &run.values)) {
            let which = if fitted && calibration.folds == 0 { "fitted" } else { which };
            lines.push(format!(
                "Median absolute error of the {} {which} values: {:.1} % before, {:.1} % after.",
                medians.values, medians.before, medians.after
            ));
        }
    }
    for (constant, result) in CONSTANTS.iter().zip(&calibration.constants) {
        let start = number(constant.get(&calibration.start));
        let value = number(constant.get(&calibration.host));
        let (from, to) = (number(result.interval.from_us), number(result.interval.to_us));
        lines.push(match (result.fitted, result.interval.runs) {
            (true, count) => format!(
                "{}: {value} us fitted, {from} to {to} fits as well, start {start}; moves {count} runs.",
                constant.name
            ),
            (false, 0) => format!("{}: kept at {start} us; none of the runs depends on it.", constant.name),
            (false, _) => format!(
                "{}: not determined, {from} to {to} us fits as well; {value} is the nearest to the start, {start}.",
                constant.name
            ),
        });
    }
    lines.iter().map(|line| wrapped(line)).collect::<Vec<_>>().join("\n")
}

/// Breaks a line between words.
fn wrapped(line: &str) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in line.split(' ') {
        if column > 0 && column + 1 + word.len() > LINE {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text
}
