//! Tables of comma-separated values with a header line. Fields may be quoted; quotes and line breaks inside a field do
//! not occur in the published measurements.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::diag::Diagnostic;

/// A table.
pub(super) struct Csv {
    path: PathBuf,
    text: String,
    columns: BTreeMap<String, usize>,
}

/// One line of a table.
pub(super) struct Record<'a> {
    table: &'a Csv,
    fields: Vec<&'a str>,
}

impl Csv {
    /// Reads a table that must have these columns.
    pub(super) fn load(path: &Path, required: &[&str]) -> Result<Self, Diagnostic> {
        let fail = |reason: String| Diagnostic::new(format!("cannot read the table `{}`: {reason}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        let header = split(text.lines().next().unwrap_or_default());
        let columns = header.iter().enumerate().map(|(index, name)| ((*name).to_owned(), index)).collect();
        let table = Self { path: path.to_owned(), columns, text };
        match required.iter().find(|name| !table.has(name)) {
            Some(missing) => Err(fail(format!("there is no column `{missing}`"))),
            None => Ok(table),
        }
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Where the table was read from.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the operators in columns `time_stats.NAME.median`.
    pub(super) fn timed_operators(&self) -> Vec<String> {
        let name = |column: &String| Some(column.strip_prefix("time_stats.")?.strip_suffix(".median")?.to_owned());
        self.columns.keys().filter_map(name).collect()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let lines = self.text.lines().skip(1).filter(|line| !line.is_empty());
        lines.map(|line| Record { table: self, fields: split(line) })
    }
}

impl<'a> Record<'a> {
    /// The field of a column, if the column exists and the field is not empty.
    pub(super) fn text(&self, column: &str) -> Option<&'a str> {
        self.fields.get(*self.table.columns.get(column)?).copied().filter(|field| !field.is_empty())
    }

    pub(super) fn is_true(&self, column: &str) -> bool {
        self.text(column).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A number, or why there is none.
    pub(super) fn number(&self, column: &str) -> Result<f64, String> {
        let value = self.text(column).and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite());
        value.ok_or_else(|| format!("`{column}` is not a number"))
    }

    /// A whole number, which some tables write as `64.0`, or why there is none.
    pub(super) fn count(&self, column: &str) -> Result<u32, String> {
        let value = self.number(column)?;
        if value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0 {
            Ok(value as u32)
        } else {
            Err(format!("`{column}` is not a count"))
        }
    }

    /// A whole number above zero, or why there is none.
    pub(super) fn positive(&self, column: &str) -> Result<u32, String> {
        match self.count(column)? {
            0 => Err(format!("`{column}` is zero")),
            count => Ok(count),
        }
    }

    /// A list like `[128, 64]`; empty if the column or the field is missing.
    pub(super) fn list(&self, column: &str) -> Result<Vec<u32>, String> {
        let Some(text) = self.text(column) else { return Ok(Vec::new()) };
        let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let items = inner.unwrap_or(text).split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| item.parse().map_err(|_| format!("`{column}` is not a list of counts"))).collect()
    }

    /// The fields of some columns as `name value` pairs; columns that are missing are passed over.
    pub(super) fn describe(&self, columns: &[&str]) -> String {
        let part = |column: &&str| self.text(column).map(|text| format!("{column} {text}"));
        columns.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    }
}

/// Fields of one line, quotes around fields removed.
fn split(line: &str) -> Vec<&str> {
    let (mut fields, mut start, mut quoted) = (Vec::new(), 0, false);
    for (position, byte) in line.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                fields.push(line[start..position].trim_matches('"'));
                start = position + 1;
            }
            _ => {}
        }
    }
    fields.push(line[start..].trim_matches('"'));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_lists_are_one_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        fs::write(&path, "n,seq_lens,time_stats.x.median\n64.0,\"[1, 2]\",0.5\n-1,,\n").unwrap();
        let table = Csv::load(&path, &["n"]).unwrap();
        let records: Vec<Record<'_>> = table.records().collect();
        assert_eq!(records[0].count("n"), Ok(64));
        assert_eq!(records[0].list("seq_lens"), Ok(vec![1, 2]));
        assert_eq!(records[1].list("seq_lens"), Ok(vec![]));
        assert!(records[1].count("n").unwrap_err().contains("not a count"));
        assert!(records[1].number("time_stats.x.median").is_err());
        assert_eq!(table.timed_operators(), ["x"]);
        assert!(Csv::load(&path, &["m"]).err().unwrap().message.contains("no column `m`"));
    }
}
