//! Writing parts and the table of pruned candidates.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use parquet::errors::ParquetError;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::column::{Column, Kind, Value};
use super::durable::{failure, replace_bytes};
use super::encode::{Field, encode};
use super::row::{OwnedRow, PrunedRow};
use super::schema::{candidate_columns, columns};
use crate::diag::Diagnostic;

/// Folder of the parts in a run folder.
pub const PARTS_FOLDER: &str = "parts";

/// Name of the table of pruned candidates in a run folder.
pub const PRUNED_FILE: &str = "pruned.parquet";

/// A file of a run folder, as the manifest remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Path relative to the run folder, with forward slashes.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// xxh3-128 of its bytes, 32 hexadecimal digits.
    pub xxh3: String,
}

/// One part, as the manifest remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRecord {
    /// Position among the parts of the whole sweep, over all shards.
    pub number: u64,
    /// Index of the first row's candidate.
    pub first_index: u64,
    /// The file.
    pub content: FileRecord,
}

/// Writes part `number` of a run: `rows`, in index order, to `parts/part-NNNNNN.parquet` under the run folder. When it
/// returns, the part is on disk under its final name.
///
/// # Errors
/// If there are no rows or the file system fails: the diagnostic names path, cause and remedy.
pub fn write_part(run_folder: &Path, number: u64, rows: &[OwnedRow]) -> Result<PartRecord, Diagnostic> {
    let first = rows.first().ok_or_else(|| Diagnostic::new(format!("part {number} has no rows")))?;
    let parts = run_folder.join(PARTS_FOLDER);
    fs::create_dir_all(&parts).map_err(|error| failure("create", &parts, &error))?;
    let columns = columns();
    let fields: Vec<Field> = columns.iter().map(Field::of).collect();
    let file = format!("{PARTS_FOLDER}/part-{number:06}.parquet");
    let cell = |field: usize, row: usize| columns[field].value(&rows[row].as_row());
    let content = write_file(run_folder, file, rows.len(), encode(&fields, rows.len(), cell))?;
    Ok(PartRecord { number, first_index: first.candidate.index, content })
}

/// Writes `pruned.parquet`: the candidates' configuration, the reason and its numbers.
///
/// # Errors
/// If the file system fails: the diagnostic names path, cause and remedy.
pub fn write_pruned(run_folder: &Path, rows: &[PrunedRow]) -> Result<FileRecord, Diagnostic> {
    let columns: Vec<&Column> = candidate_columns().collect();
    let own: [(&str, Kind); 4] =
        [("reason", Kind::Text), ("needed_bytes", Kind::U64), ("available_bytes", Kind::U64), ("detail", Kind::Text)];
    let mut fields: Vec<Field> = columns.iter().map(|column| Field::of(column)).collect();
    fields.extend(own.map(|(name, kind)| Field { name: name.into(), kind, dictionary: true }));
    let cell = |field: usize, row: usize| {
        let row = &rows[row];
        match field.checked_sub(columns.len()) {
            None => columns[field].value(&row.as_row()),
            Some(0) => Value::Text(Cow::Borrowed(row.reason)),
            Some(1) => row.needed_bytes.map_or(Value::Null, Value::U64),
            Some(2) => row.available_bytes.map_or(Value::Null, Value::U64),
            Some(_) => Value::Text(Cow::Borrowed(&row.detail)),
        }
    };
    write_file(run_folder, PRUNED_FILE.into(), rows.len(), encode(&fields, rows.len(), cell))
}

fn write_file(
    run_folder: &Path,
    file: String,
    rows: usize,
    encoded: Result<Vec<u8>, ParquetError>,
) -> Result<FileRecord, Diagnostic> {
    let path = run_folder.join(&file);
    let bytes = encoded.map_err(|error| Diagnostic::new(format!("cannot encode `{}`: {error}", path.display())))?;
    replace_bytes(&path, &bytes)?;
    Ok(FileRecord { file, rows: rows as u64, xxh3: format_hash(xxh3_128(&bytes)) })
}

/// A hash as it stands in the manifest.
pub(super) fn format_hash(hash: u128) -> String {
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use arrow_array::types::UInt64Type;
    use arrow_array::{Array, cast::AsArray};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::super::fixture;
    use super::*;

    #[test]
    fn equal_rows_give_equal_bytes_and_hash() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rows = fixture::rows(0..500);
        let record = write_part(first.path(), 3, &rows).unwrap();
        assert_eq!(record, write_part(second.path(), 3, &rows).unwrap());
        assert_eq!(record.content.file, "parts/part-000003.parquet");
        assert_eq!((record.first_index, record.content.rows), (0, 500));
        let read = |folder: &tempfile::TempDir| fs::read(folder.path().join(&record.content.file)).unwrap();
        assert_eq!(read(&first), read(&second));
        let other = write_part(second.path(), 3, &fixture::rows(1..501)).unwrap();
        assert_ne!(record.content.xxh3, other.content.xxh3);
    }

    #[test]
    fn pruned_candidates_keep_reason_and_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let pruned = |index, needed_bytes| PrunedRow {
            candidate: std::sync::Arc::new(fixture::candidate(index)),
            reason: "weights",
            needed_bytes,
            available_bytes: needed_bytes.map(|bytes| bytes / 2),
            detail: format!("candidate {index}"),
        };
        let rows = [pruned(3, Some(1 << 40)), pruned(8, None)];
        let record = write_pruned(folder.path(), &rows).unwrap();
        assert_eq!((record.file.as_str(), record.rows), (PRUNED_FILE, 2));
        let file = fs::File::open(folder.path().join(PRUNED_FILE)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        let batch = reader.map(Result::unwrap).next().unwrap();
        let column = |name: &str| batch.column_by_name(name).unwrap();
        assert_eq!(column("index").as_primitive::<UInt64Type>().values(), &[3, 8]);
        assert_eq!(column("available_bytes").as_primitive::<UInt64Type>().value(0), 1 << 39);
        assert!(column("needed_bytes").is_null(1) && batch.column_by_name("ttft_p95_ms").is_none());
        assert_eq!(column("detail").as_string::<i32>().value(1), "candidate 8");
        // A sweep that prunes nothing still has the file.
        assert_eq!(write_pruned(folder.path(), &[]).unwrap().rows, 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_diagnostic() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("occupied");
        fs::write(&file, "").unwrap();
        let error = write_part(&file, 0, &fixture::rows(0..3)).unwrap_err();
        assert!(error.message.starts_with("cannot create `"), "{}", error.message);
        assert!(error.help.is_some());
    }

    #[test]
    fn no_rows_is_an_error_not_a_panic() {
        assert!(write_part(Path::new("unused"), 7, &[]).is_err());
    }
}
