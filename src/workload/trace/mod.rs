//! Recorded request streams. A format is one file and two lines here: `mod NAME;` and its entry in [`FORMATS`].

mod azure;
mod csv;
mod generic_csv;
mod generic_jsonl;
mod jsonl;
mod mooncake;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Source, suggestion};
use crate::spec::{Trace, TraceRow};
use crate::units::{TICKS_PER_NS, Ticks};
use crate::workload::PrefixIndex;

/// A file format of traces.
#[derive(Debug)]
pub struct TraceFormat {
    /// Name in messages and documentation.
    pub name: &'static str,
    /// What the first line looks like.
    pub first_line: &'static str,
    /// The first line is a header, not a row.
    has_header: bool,
    /// Whether a file that starts with this line has this format.
    recognises: fn(&str) -> bool,
    /// Reads one row, given the first line of the file.
    read: fn(&str, Line<'_>) -> Result<Row, Problem>,
}

/// Every format, in the order in which a file is held against them.
pub const FORMATS: &[TraceFormat] = &[azure::FORMAT, mooncake::FORMAT, generic_csv::FORMAT, generic_jsonl::FORMAT];

/// Most problems that are reported of one file: a wrong column is wrong in every row.
const MOST_PROBLEMS: usize = 5;

/// A line without its line break.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    text: &'a str,
    /// Byte position in the file.
    start: usize,
}

impl Line<'_> {
    fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

/// A row as written.
#[derive(Debug)]
struct Row {
    /// Since any fixed moment.
    arrival_ns: i64,
    input: Length,
    output: Length,
    /// Content of the prompt, one number for every so many tokens; empty where the format does not say.
    content: Vec<u64>,
    tokens_per_id: u32,
}

/// A length as written, with its place.
#[derive(Debug)]
struct Length {
    tokens: i64,
    span: Range<usize>,
}

/// What is wrong, and where in the file.
#[derive(Debug)]
struct Problem {
    message: String,
    span: Range<usize>,
}

/// Reads a trace; its format is recognised from the first line.
///
/// # Errors
/// An unreadable or empty file, an unknown format, or the first few malformed rows: no number, a length below one
/// token, an arrival before the previous one.
pub fn read(path: &Path) -> Result<Arc<Trace>, Diagnostics> {
    let source = load(path)?;
    let first = lines(&source.text).next().ok_or_else(|| empty(&source))?;
    let Some(format) = FORMATS.iter().find(|format| (format.recognises)(first.text)) else {
        let known: Vec<String> =
            FORMATS.iter().map(|format| format!("{}: `{}`", format.name, format.first_line)).collect();
        return Err(Diagnostic::new("unknown trace format")
            .at(&source, first.span())
            .help(format!("the first line must look like one of\n{}", known.join("\n")))
            .into());
    };
    let rows = read_rows(&source, format, first)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Arc::new(Trace { name, rows }))
}

/// Reads one column of a CSV file with a header as lengths.
///
/// # Errors
/// An unreadable or empty file, an unknown column, or the first few entries that are not lengths.
pub fn read_lengths(path: &Path, column: &str) -> Result<Vec<u32>, Diagnostics> {
    let source = load(path)?;
    let mut lines = lines(&source.text);
    let header = lines.next().ok_or_else(|| empty(&source))?;
    if csv::position(header.text, column).is_none() {
        let names: Vec<&str> = header.text.split(',').map(str::trim).collect();
        let mut diagnostic = Diagnostic::new(format!("unknown column `{column}`")).at(&source, header.span());
        diagnostic.help = suggestion(column, &names);
        return Err(diagnostic.into());
    }
    let (lengths, problems) = collect(lines.map(|line| tokens(csv::length(header.text, line, column)?)));
    finish(&source, lengths, problems)
}

fn load(path: &Path) -> Result<Arc<Source>, Diagnostics> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Arc::new(Source { name, text })),
        Err(error) => Err(Diagnostic::new(format!("cannot read `{name}`: {error}")).into()),
    }
}

fn empty(source: &Arc<Source>) -> Diagnostics {
    Diagnostic::new(format!("`{}` has no rows", source.name)).into()
}

/// The lines of a text that are not blank.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    let with_starts = text.split_inclusive('\n').map(move |raw| {
        let line = Line { text: raw.trim_end(), start };
        start += raw.len();
        line
    });
    with_starts.filter(|line| !line.text.is_empty())
}

fn read_rows(source: &Arc<Source>, format: &TraceFormat, first: Line<'_>) -> Result<Vec<TraceRow>, Diagnostics> {
    let mut clock = Clock::default();
    let mut index = PrefixIndex::default();
    let rows = lines(&source.text).skip(usize::from(format.has_header)).map(|line| {
        let row = (format.read)(first.text, line)?;
        let prompt_tokens = tokens(row.input)?;
        Ok(TraceRow {
            arrival: clock.arrival(row.arrival_ns, line.span())?,
            prompt_tokens,
            output_tokens: tokens(row.output)?,
            prefix: index.add(prompt_tokens, row.content, row.tokens_per_id),
        })
    });
    let (rows, problems) = collect(rows);
    finish(source, rows, problems)
}

/// The good rows and the first few problems; reading stops when there are enough of these.
fn collect<T>(rows: impl Iterator<Item = Result<T, Problem>>) -> (Vec<T>, Vec<Problem>) {
    let (mut good, mut problems) = (Vec::new(), Vec::new());
    for row in rows {
        match row {
            Ok(row) => good.push(row),
            Err(problem) => problems.push(problem),
        }
        if problems.len() == MOST_PROBLEMS {
            break;
        }
    }
    (good, problems)
}

fn finish<T>(source: &Arc<Source>, rows: Vec<T>, problems: Vec<Problem>) -> Result<Vec<T>, Diagnostics> {
    if !problems.is_empty() {
        let place = |problem: Problem| Diagnostic::new(problem.message).at(source, problem.span);
        return Err(Diagnostics(problems.into_iter().map(place).collect()));
    }
    if rows.is_empty() { Err(empty(source)) } else { Ok(rows) }
}

fn tokens(length: Length) -> Result<u32, Problem> {
    let Length { tokens, span } = length;
    match u32::try_from(tokens) {
        Ok(0) | Err(_) if tokens <= 0 => {
            Err(Problem { message: format!("a length of {tokens} tokens; every request needs at least one"), span })
        }
        Ok(tokens) => Ok(tokens),
        Err(_) => Err(Problem { message: format!("a length of {tokens} tokens is too long"), span }),
    }
}

/// Turns the times of the file into times since its first row, and sees that they do not run backwards.
#[derive(Default)]
struct Clock {
    first_and_previous: Option<(i64, i64)>,
}

impl Clock {
    fn arrival(&mut self, now: i64, span: Range<usize>) -> Result<Ticks, Problem> {
        let (first, previous) = self.first_and_previous.unwrap_or((now, now));
        if now < previous {
            let early = (previous as f64 - now as f64) / 1e9;
            return Err(Problem {
                message: format!("arrives {early} s before the previous row; sort the trace"),
                span,
            });
        }
        self.first_and_previous = Some((first, now));
        let elapsed = now.checked_sub(first).and_then(|ns| u64::try_from(ns).ok());
        match elapsed.and_then(|ns| ns.checked_mul(TICKS_PER_NS)) {
            Some(ticks) => Ok(Ticks(ticks)),
            None => Err(Problem { message: "arrives more than 200 days after the first row".into(), span }),
        }
    }
}

/// Whole nanoseconds of a time in the given unit.
fn nanoseconds(time: f64, unit_ns: f64, span: Range<usize>) -> Result<i64, Problem> {
    let ns = time * unit_ns;
    // Beyond 2^62 ns (146 years) the time is not one of this century's traces.
    if ns.abs() < (1i64 << 62) as f64 {
        Ok(libm::round(ns) as i64)
    } else {
        Err(Problem { message: format!("`{time}` is not a time"), span })
    }
}

#[cfg(test)]
mod tests;
