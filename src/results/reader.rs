//! Reading the rows of a run into plain column vectors.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use arrow_array::types::{Float32Type, Float64Type, UInt64Type};
use arrow_array::{Array, RecordBatch, cast::AsArray};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::column::{Column, Kind};
use super::durable::failure;
use super::manifest::{Manifest, verify};
use super::part::FileRecord;
use super::schema::{self, column};
use crate::diag::{Diagnostic, Diagnostics};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 16_384;

/// Text cells: each row refers to one of the distinct values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextColumn {
    /// Distinct values, in order of first appearance.
    pub values: Vec<String>,
    /// Per row, the position in `values`; `None` for a null.
    pub codes: Vec<Option<u32>>,
    positions: BTreeMap<String, u32>,
}

impl TextColumn {
    /// The text of a row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&str> {
        self.codes[row].map(|code| self.values[code as usize].as_str())
    }

    fn push(&mut self, text: Option<&str>) {
        let code = text.map(|text| match self.positions.get(text) {
            Some(code) => *code,
            None => {
                let code = self.values.len() as u32;
                self.values.push(text.to_owned());
                self.positions.insert(text.to_owned(), code);
                code
            }
        });
        self.codes.push(code);
    }
}

/// The cells of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Unsigned integers.
    U64(Vec<Option<u64>>),
    /// Real numbers of either width; a null is NaN, which no column holds otherwise.
    Real(Vec<f64>),
    /// Text.
    Text(TextColumn),
    /// Booleans.
    Bool(Vec<Option<bool>>),
}

impl Cells {
    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::U64 => Self::U64(Vec::new()),
            Kind::F64 | Kind::F32 => Self::Real(Vec::new()),
            Kind::Text => Self::Text(TextColumn::default()),
            Kind::Bool => Self::Bool(Vec::new()),
        }
    }

    /// Appends an Arrow array; `None` if it is of another type.
    fn append(&mut self, array: &dyn Array) -> Option<()> {
        match self {
            Self::U64(cells) => cells.extend(array.as_primitive_opt::<UInt64Type>()?.iter()),
            Self::Real(cells) => match array.as_primitive_opt::<Float32Type>() {
                Some(array) => cells.extend(array.iter().map(|cell| cell.map_or(f64::NAN, f64::from))),
                None => {
                    let array = array.as_primitive_opt::<Float64Type>()?;
                    cells.extend(array.iter().map(|cell| cell.unwrap_or(f64::NAN)));
                }
            },
            Self::Text(cells) => array.as_string_opt::<i32>()?.iter().for_each(|cell| cells.push(cell)),
            Self::Bool(cells) => cells.extend(array.as_boolean_opt()?.iter()),
        }
        Some(())
    }
}

/// Some columns of all rows of a run, in index order.
#[derive(Clone, Debug)]
pub struct Table {
    rows: usize,
    columns: Vec<(&'static Column, Cells)>,
}

impl Table {
    /// Reads the named columns of every finished part of a run (all columns if none is named), or of its merged file.
    /// Every file is checked against its hash first. An unfinished run gives the rows there are.
    ///
    /// # Errors
    /// All unknown column names; a missing or broken manifest; every missing or damaged file.
    pub fn load(run_folder: &Path, names: &[&str]) -> Result<Self, Diagnostics> {
        let columns = selected_columns(names)?;
        let manifest = Manifest::load(run_folder)?;
        let files: Vec<&FileRecord> = match &manifest.merged {
            Some(merged) => vec![merged],
            None => manifest.parts.iter().map(|part| &part.content).collect(),
        };
        let damages: Vec<Diagnostic> = files.iter().filter_map(|file| verify(run_folder, file).err()).collect();
        if !damages.is_empty() {
            return Err(Diagnostics(damages));
        }
        let empty = columns.into_iter().map(|column| (column, Cells::empty(column.kind))).collect();
        let mut table = Self { rows: 0, columns: empty };
        for file in files {
            table.append_file(&run_folder.join(&file.file), file.rows)?;
        }
        Ok(table)
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns that were read, with their cells, in the order in which they were named.
    #[must_use]
    pub fn columns(&self) -> &[(&'static Column, Cells)] {
        &self.columns
    }

    /// The cells of a column.
    ///
    /// # Errors
    /// If the column does not exist or was not read.
    pub fn cells(&self, name: &str) -> Result<&Cells, Diagnostic> {
        match self.columns.iter().find(|(column, _)| column.name == name) {
            Some((_, cells)) => Ok(cells),
            None => {
                column(name)?;
                Err(Diagnostic::new(format!("column `{name}` was not read from the run")))
            }
        }
    }

    /// A numeric or boolean column as real numbers; nulls are NaN.
    ///
    /// # Errors
    /// If the column does not exist, was not read, or holds text.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, Diagnostic> {
        Ok(match self.cells(name)? {
            Cells::Real(cells) => cells.clone(),
            Cells::U64(cells) => cells.iter().map(|cell| cell.map_or(f64::NAN, |value| value as f64)).collect(),
            Cells::Bool(cells) => {
                cells.iter().map(|cell| cell.map_or(f64::NAN, |value| f64::from(u8::from(value)))).collect()
            }
            Cells::Text(_) => return Err(Diagnostic::new(format!("column `{name}` holds text, not numbers"))),
        })
    }

    /// A text column.
    ///
    /// # Errors
    /// If the column does not exist, was not read, or holds no text.
    pub fn text(&self, name: &str) -> Result<&TextColumn, Diagnostic> {
        match self.cells(name)? {
            Cells::Text(cells) => Ok(cells),
            _ => Err(Diagnostic::new(format!("column `{name}` holds no text"))),
        }
    }

    fn append_file(&mut self, path: &Path, expected_rows: u64) -> Result<(), Diagnostic> {
        let broken = |cause: String| {
            Diagnostic::new(format!("cannot read `{}`: {cause}", path.display()))
                .help("it was written by another version of the program: run the sweep again")
        };
        let file = File::open(path).map_err(|error| failure("read", path, &error))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| broken(error.to_string()))?;
        let names = self.columns.iter().map(|(column, _)| column.name.as_ref());
        let mask = ProjectionMask::columns(builder.parquet_schema(), names);
        let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build();
        let before = self.rows;
        for batch in reader.map_err(|error| broken(error.to_string()))? {
            self.append_batch(&batch.map_err(|error| broken(error.to_string()))?).map_err(broken)?;
        }
        let rows = (self.rows - before) as u64;
        if rows == expected_rows {
            Ok(())
        } else {
            Err(broken(format!("it has {rows} rows, the manifest says {expected_rows}")))
        }
    }

    fn append_batch(&mut self, batch: &RecordBatch) -> Result<(), String> {
        for (column, cells) in &mut self.columns {
            let array =
                batch.column_by_name(&column.name).ok_or_else(|| format!("it has no column `{}`", column.name))?;
            cells.append(array).ok_or_else(|| {
                format!("column `{}` is {}, not {}", column.name, array.data_type(), column.kind.name())
            })?;
        }
        self.rows += batch.num_rows();
        Ok(())
    }
}

/// The columns of these names without repetitions, or all columns if there are none.
fn selected_columns(names: &[&str]) -> Result<Vec<&'static Column>, Diagnostics> {
    if names.is_empty() {
        return Ok(schema::columns().iter().collect());
    }
    let mut columns: Vec<&'static Column> = Vec::new();
    let mut unknown = Vec::new();
    for name in names {
        match column(name) {
            Ok(column) if columns.iter().any(|known| known.name == column.name) => {}
            Ok(column) => columns.push(column),
            Err(diagnostic) => unknown.push(diagnostic),
        }
    }
    if unknown.is_empty() { Ok(columns) } else { Err(Diagnostics(unknown)) }
}

#[cfg(test)]
mod tests {
    use super::super::column::Value;
    use super::super::fixture;
    use super::super::part::write_part;
    use super::*;

    fn run(folder: &Path) -> Manifest {
        let mut manifest = Manifest::new("smoke", "00ff", 25, 25, 10);
        for number in 0..3 {
            manifest.record(write_part(folder, number, &fixture::rows(manifest.part_range(number))).unwrap());
        }
        manifest.store(folder).unwrap();
        manifest
    }

    #[test]
    fn every_cell_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let table = Table::load(folder.path(), &[]).unwrap();
        assert_eq!(table.rows(), 25);
        let rows = fixture::rows(0..25);
        for (column, cells) in table.columns() {
            for (number, row) in rows.iter().enumerate() {
                let expected = column.value(&row.as_row());
                match cells {
                    Cells::U64(cells) => assert_eq!(cells[number].map_or(Value::Null, Value::U64), expected),
                    Cells::Bool(cells) => assert_eq!(cells[number].map_or(Value::Null, Value::Bool), expected),
                    Cells::Real(cells) => {
                        let cell = Some(cells[number]).filter(|cell| !cell.is_nan());
                        assert_eq!(cell, expected.number(), "{}", column.name);
                    }
                    Cells::Text(cells) => {
                        let cell = cells.get(number).map_or(Value::Null, |text| Value::Text(text.into()));
                        assert_eq!(cell, expected, "{}", column.name);
                    }
                }
            }
        }
    }

    #[test]
    fn chosen_columns_in_the_order_of_choice() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path());
        let table = Table::load(folder.path(), &["tpot_p95_ms", "index", "index"]).unwrap();
        let names: Vec<&str> = table.columns().iter().map(|(column, _)| column.name.as_ref()).collect();
        assert_eq!(names, ["tpot_p95_ms", "index"]);
        assert_eq!(table.numbers("tpot_p95_ms").unwrap()[..2], [25.0, 26.0]);
        assert!(table.numbers("tpot_p95_ms").unwrap()[9].is_nan());
        assert!(table.text("index").is_err());
        assert!(table.numbers("gpu").unwrap_err().message.contains("was not read"));
    }

    #[test]
    fn all_unknown_names_are_reported() {
        let error = Table::load(Path::new("unused"), &["ttft", "index", "gpuz"]).unwrap_err();
        assert_eq!(error.0.len(), 2);
    }

    #[test]
    fn a_flipped_bit_is_never_read_as_data() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = run(folder.path());
        let path = folder.path().join(&manifest.parts[1].content.file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        let error = Table::load(folder.path(), &["index"]).unwrap_err();
        assert!(error.0[0].message.contains("part-000001.parquet` is damaged"), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = Table::load(folder.path(), &["index"]).unwrap_err();
        assert!(error.0[0].help.as_deref().unwrap().contains("--resume"), "{error}");
    }
}
