//! Tables of comma-separated values, plain or gzipped, and JSON files of measured runs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;

use crate::diag::Diagnostic;

/// More than any deployment has; products of two such numbers do not overflow.
pub(super) const MOST_GPUS: u32 = 1 << 15;

/// Text of a file; decompressed if its name ends in `.gz`.
pub(super) fn read_text(path: &Path) -> Result<String, Diagnostic> {
    let fail = |error: std::io::Error| Diagnostic::new(format!("cannot read `{}`: {error}", path.display()));
    if path.extension().is_none_or(|extension| extension != "gz") {
        return fs::read_to_string(path).map_err(fail);
    }
    let mut text = String::new();
    GzDecoder::new(fs::File::open(path).map_err(fail)?).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

/// Reads a JSON file. Published metadata has more fields than matter here, so unknown ones are passed over.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, Diagnostic> {
    parse_json(&read_text(path)?, path)
}

/// Reads JSON text; `path` is named where it is wrong.
pub(super) fn parse_json<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, Diagnostic> {
    serde_json::from_str(text).map_err(|error| Diagnostic::new(format!("cannot read `{}`: {error}", path.display())))
}

/// A table with a header.
pub(super) struct Table {
    path: PathBuf,
    columns: BTreeMap<String, usize>,
    rows: Vec<Vec<String>>,
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    table: &'a Table,
    /// From 0.
    row: usize,
}

impl Table {
    /// Reads a table that must have these columns.
    pub(super) fn read(path: &Path, required: &[&str]) -> Result<Self, Diagnostic> {
        let text = read_text(path)?;
        let mut lines = text.lines();
        let header = fields(lines.next().unwrap_or_default());
        let columns = header.into_iter().enumerate().map(|(position, name)| (name, position)).collect();
        let rows = lines.filter(|line| !line.trim().is_empty()).map(fields).collect();
        let table = Self { path: path.to_owned(), columns, rows };
        match required.iter().find(|name| !table.columns.contains_key(**name)) {
            Some(missing) => Err(Diagnostic::new(format!("`{}` has no column `{missing}`", path.display()))),
            None => Ok(table),
        }
    }

    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.rows.len()).map(|row| Record { table: self, row })
    }
}

impl<'a> Record<'a> {
    /// The field of a column; `None` if it is empty or there is no such column.
    pub(super) fn text(self, column: &str) -> Option<&'a str> {
        let field = self.table.rows[self.row].get(*self.table.columns.get(column)?)?;
        Some(field.as_str()).filter(|field| !field.is_empty())
    }

    /// The field of a column that must not be empty.
    pub(super) fn required(self, column: &str) -> Result<&'a str, Diagnostic> {
        self.text(column).ok_or_else(|| self.problem(column, "is empty"))
    }

    /// A finite number.
    pub(super) fn number(self, column: &str) -> Result<f64, Diagnostic> {
        let value = self.required(column)?.parse::<f64>().ok().filter(|value| value.is_finite());
        value.ok_or_else(|| self.problem(column, "is not a number"))
    }

    /// A positive whole number, also when written as `64.0`.
    pub(super) fn count(self, column: &str) -> Result<u32, Diagnostic> {
        match self.number(column)? {
            value if value >= 1.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0 => Ok(value as u32),
            _ => Err(self.problem(column, "is not a count")),
        }
    }

    /// A positive whole number; `None` if the field is empty or zero.
    pub(super) fn optional_count(self, column: &str) -> Result<Option<u32>, Diagnostic> {
        match self.text(column) {
            None => Ok(None),
            Some(_) if self.number(column)? == 0.0 => Ok(None),
            Some(_) => self.count(column).map(Some),
        }
    }

    /// A number of GPUs or of groups of them; `None` if the field is empty or zero.
    pub(super) fn group_size(self, column: &str) -> Result<Option<u32>, Diagnostic> {
        match self.optional_count(column)? {
            Some(size) if size > MOST_GPUS => Err(self.problem(column, "is no number of GPUs")),
            size => Ok(size),
        }
    }

    fn problem(self, column: &str, what: &str) -> Diagnostic {
        // The header is line 1.
        Diagnostic::new(format!("`{}`, row {}: `{column}` {what}", self.table.path.display(), self.row + 2))
    }
}

/// Fields of one line; quotes around a field keep its commas.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for letter in line.trim_end().chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => {
                if let Some(field) = fields.last_mut() {
                    field.push(letter);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn gzipped_tables_read_like_plain_ones() {
        let folder = tempfile::tempdir().unwrap();
        let text = "n,name\n64.0,\"a, b\"\n0,\nx,y\n";
        let (plain, packed) = (folder.path().join("t.csv"), folder.path().join("t.csv.gz"));
        fs::write(&plain, text).unwrap();
        let mut encoder = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        for path in [plain, packed] {
            let table = Table::read(&path, &["n"]).unwrap();
            let records: Vec<Record<'_>> = table.records().collect();
            assert_eq!((records[0].count("n").unwrap(), records[0].text("name")), (64, Some("a, b")));
            assert_eq!((records[1].optional_count("n").unwrap(), records[1].text("name")), (None, None));
            assert_eq!(records[0].group_size("n").unwrap(), Some(64));
            let error = records[2].number("n").unwrap_err();
            assert!(error.message.ends_with("row 4: `n` is not a number"), "{}", error.message);
            assert!(Table::read(&path, &["m"]).err().unwrap().message.contains("no column `m`"));
        }
    }
}
