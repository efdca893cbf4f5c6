//! Merging: the parts of a run into one file, and the shards of a sweep into one run.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::durable::{failure, replace, replace_bytes};
use super::encode::created_by;
use super::manifest::{Manifest, SWEEP_FILE, Shard, hash_file};
use super::part::{FileRecord, PARTS_FOLDER, format_hash};
use crate::diag::{Diagnostic, Diagnostics};

/// Name of the merged table in a run folder.
pub const MERGED_FILE: &str = "results.parquet";

/// Merges the parts of a run into `results.parquet` by copying compressed column chunks, and records it in the
/// manifest. The parts stay. Memory does not grow with the number of parts.
///
/// # Errors
/// If a part is missing or damaged, or the file system fails.
pub fn merge_parts(run_folder: &Path) -> Result<FileRecord, Diagnostics> {
    let mut manifest = Manifest::load(run_folder)?;
    let missing = manifest.missing_parts();
    if manifest.parts.is_empty() && missing.is_empty() {
        let message = format!("`{}` has no rows to merge", run_folder.display());
        return Err(Diagnostic::new(message).help("every candidate was pruned; `pruned.parquet` says why").into());
    }
    if !missing.is_empty() {
        let message = format!("`{}` lacks {} of its parts", run_folder.display(), missing.len());
        return Err(Diagnostic::new(message).help("`run --resume` on this folder computes them").into());
    }
    manifest.merged = None;
    manifest.verify(run_folder)?;
    let path = run_folder.join(MERGED_FILE);
    replace(&path, |output| concatenate(run_folder, &manifest, output, &path))?;
    let hash = hash_file(&path).map_err(|error| failure("read", &path, &error))?;
    let rows = manifest.parts.iter().map(|part| part.content.rows).sum();
    let record = FileRecord { file: MERGED_FILE.into(), rows, xxh3: format_hash(hash) };
    manifest.merged = Some(record.clone());
    manifest.store(run_folder)?;
    Ok(record)
}

/// Copies every column chunk of every part to `output`, whose final name is `path`.
fn concatenate(run_folder: &Path, manifest: &Manifest, output: &mut File, path: &Path) -> Result<(), Diagnostic> {
    let mut writer: Option<SerializedFileWriter<&mut File>> = None;
    let mut output = Some(output);
    for part in &manifest.parts {
        let part_path = run_folder.join(&part.content.file);
        let input = File::open(&part_path).map_err(|error| failure("read", &part_path, &error))?;
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&input)
            .map_err(|error| parquet_failure("read", &part_path, &error))?;
        if let Some(output) = output.take() {
            let opened = open_writer(output, &metadata);
            writer = Some(opened.map_err(|error| parquet_failure("write", path, &error))?);
        }
        if let Some(writer) = &mut writer {
            copy_row_groups(&input, &metadata, writer).map_err(|error| parquet_failure("write", path, &error))?;
        }
    }
    match writer {
        Some(writer) => writer.close().map(drop).map_err(|error| parquet_failure("write", path, &error)),
        None => Ok(()),
    }
}

/// A writer with the schema and the key-value metadata (which hold the Arrow schema) of the first part.
fn open_writer<'a>(
    output: &'a mut File,
    first: &ParquetMetaData,
) -> Result<SerializedFileWriter<&'a mut File>, ParquetError> {
    let file = first.file_metadata();
    let properties = WriterProperties::builder()
        .set_created_by(created_by())
        .set_offset_index_disabled(true)
        .set_key_value_metadata(file.key_value_metadata().cloned())
        .build();
    SerializedFileWriter::new(output, file.schema_descr().root_schema_ptr(), Arc::new(properties))
}

fn copy_row_groups(
    input: &File,
    metadata: &ParquetMetaData,
    writer: &mut SerializedFileWriter<&mut File>,
) -> Result<(), ParquetError> {
    for group in metadata.row_groups() {
        let mut copy = writer.next_row_group()?;
        for column in group.columns() {
            let chunk = ColumnCloseResult {
                bytes_written: column.compressed_size() as u64,
                rows_written: group.num_rows() as u64,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            copy.append_column(input, chunk)?;
        }
        copy.close()?;
    }
    Ok(())
}

/// A Parquet failure; where an operating-system error is at its root, that one is told.
fn parquet_failure(action: &str, path: &Path, error: &ParquetError) -> Diagnostic {
    if let ParquetError::External(cause) = error
        && let Some(cause) = cause.downcast_ref::<std::io::Error>()
    {
        return failure(action, path, cause);
    }
    Diagnostic::new(format!("cannot {action} `{}`: {error}", path.display()))
}

/// Joins the run folders of all shards of one sweep into `output`, a run folder as one machine would have written it:
/// parts are copied byte for byte.
///
/// # Errors
/// If the folders belong to different sweeps, a part is missing, doubled or damaged, or the file system fails.
pub fn merge_shards(shards: &[&Path], output: &Path) -> Result<Manifest, Diagnostics> {
    let loaded: Vec<(&Path, Manifest)> =
        shards.iter().map(|folder| Ok((*folder, Manifest::load(folder)?))).collect::<Result<_, Diagnostic>>()?;
    let Some((first_folder, first)) = loaded.first() else {
        return Err(Diagnostic::new("no run folder to merge").help("name one run folder for each shard").into());
    };
    let mut merged = Manifest { shard: Shard::WHOLE, parts: Vec::new(), sessions: Vec::new(), ..first.clone() };
    for (folder, manifest) in &loaded {
        check_same_sweep(first_folder, first, folder, manifest)?;
        manifest.verify(folder)?;
        merged.sessions.extend(manifest.sessions.iter().cloned());
    }
    let parts_folder = output.join(PARTS_FOLDER);
    fs::create_dir_all(&parts_folder).map_err(|error| failure("create", &parts_folder, &error))?;
    for (folder, manifest) in &loaded {
        for part in &manifest.parts {
            copy(folder, output, &part.content.file)?;
            merged.record(part.clone());
        }
    }
    let missing = merged.missing_parts();
    if let Some(number) = missing.first() {
        let message = format!("the shards lack {} parts, the first is part {number}", missing.len());
        return Err(Diagnostic::new(message).help("name the run folders of all shards, each finished").into());
    }
    if let Some(pruned) = &merged.pruned {
        copy(first_folder, output, &pruned.file)?;
    }
    copy(first_folder, output, SWEEP_FILE)?;
    merged.merged = None;
    merged.store(output)?;
    Ok(merged)
}

fn check_same_sweep(first_folder: &Path, first: &Manifest, folder: &Path, other: &Manifest) -> Result<(), Diagnostic> {
    let identity = |manifest: &Manifest| {
        (manifest.sweep_xxh3.clone(), manifest.candidates, manifest.simulated, manifest.rows_per_part)
    };
    if identity(first) == identity(other) && first.pruned == other.pruned {
        return Ok(());
    }
    let message = format!("`{}` and `{}` hold different sweeps", first_folder.display(), folder.display());
    Err(Diagnostic::new(message).help("shards must be run with the same sweep file and the same release"))
}

fn copy(from: &Path, to: &Path, file: &str) -> Result<(), Diagnostic> {
    let source = from.join(file);
    let bytes = fs::read(&source).map_err(|error| failure("read", &source, &error))?;
    replace_bytes(&to.join(file), &bytes)
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::manifest::{RunStatus, store_sweep};
    use super::super::part::write_part;
    use super::super::reader::Table;
    use super::*;

    fn run_shard(folder: &Path, shard: Shard) {
        let mut manifest = Manifest::new("smoke", "00ff", 45, 45, 10);
        manifest.shard = shard;
        for number in manifest.missing_parts() {
            manifest.record(write_part(folder, number, &fixture::rows(manifest.part_range(number))).unwrap());
        }
        store_sweep(folder, "[sweep]\n").unwrap();
        manifest.store(folder).unwrap();
    }

    #[test]
    fn a_merged_file_has_the_rows_of_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        run_shard(folder.path(), Shard::WHOLE);
        let parts = Table::load(folder.path(), &[]).unwrap();
        let record = merge_parts(folder.path()).unwrap();
        assert_eq!(record.rows, 45);
        assert_eq!(Manifest::load(folder.path()).unwrap().merged, Some(record));
        fs::remove_dir_all(folder.path().join(PARTS_FOLDER)).unwrap();
        let merged = Table::load(folder.path(), &[]).unwrap();
        assert_eq!(format!("{:?}", parts.columns()[0].1), format!("{:?}", merged.columns()[0].1));
        assert_eq!(parts.text("deployment").unwrap(), merged.text("deployment").unwrap());
    }

    #[test]
    fn shards_merge_to_the_bytes_of_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["whole", "a", "b", "joined"] {
            fs::create_dir(path(name)).unwrap();
        }
        run_shard(&path("whole"), Shard::WHOLE);
        run_shard(&path("a"), Shard { index: 0, of: 2 });
        run_shard(&path("b"), Shard { index: 1, of: 2 });
        let manifest = merge_shards(&[&path("b"), &path("a")], &path("joined")).unwrap();
        assert_eq!(manifest.status, RunStatus::Finished);
        assert_eq!(manifest, Manifest::load(&path("whole")).unwrap());
        let whole = merge_parts(&path("whole")).unwrap();
        assert_eq!(whole, merge_parts(&path("joined")).unwrap());
    }

    #[test]
    fn an_absent_shard_or_another_sweep_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
        }
        run_shard(&path("a"), Shard { index: 0, of: 2 });
        let error = merge_shards(&[&path("a")], &path("joined")).unwrap_err();
        assert!(error.0[0].message.contains("lack 2 parts"), "{error}");
        run_shard(&path("b"), Shard { index: 1, of: 2 });
        let mut other = Manifest::load(&path("b")).unwrap();
        other.sweep_xxh3 = "1234".into();
        other.store(&path("b")).unwrap();
        let error = merge_shards(&[&path("a"), &path("b")], &path("joined")).unwrap_err();
        assert!(error.0[0].message.contains("different sweeps"), "{error}");
    }
}
