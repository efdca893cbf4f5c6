//! Files that are either whole or absent, and failures of the file system told in the user's terms.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::diag::Diagnostic;

/// Suffix of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// Writes a file by way of a temporary one beside it, so that after a crash or a full disk the name holds either the
/// old content or the new one. The content and the folder's entry are on disk when this returns.
///
/// # Errors
/// What the file system reports, with path and remedy.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut File) -> Result<(), Diagnostic>) -> Result<(), Diagnostic> {
    let temporary = temporary_path(path);
    let result = write_synced(&temporary, write)
        .and_then(|()| fs::rename(&temporary, path).map_err(|error| failure("write", path, &error)))
        .and_then(|()| sync_folder(path));
    if result.is_err() {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Writes bytes by way of [`replace`].
///
/// # Errors
/// As for [`replace`].
pub(crate) fn replace_bytes(path: &Path, bytes: &[u8]) -> Result<(), Diagnostic> {
    replace(path, |file| file.write_all(bytes).map_err(|error| failure("write", path, &error)))
}

/// `name.ext.tmp` for `name.ext`.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

fn write_synced(path: &Path, write: impl FnOnce(&mut File) -> Result<(), Diagnostic>) -> Result<(), Diagnostic> {
    let mut file = File::create(path).map_err(|error| failure("create", path, &error))?;
    write(&mut file)?;
    file.sync_all().map_err(|error| failure("write", path, &error))
}

/// Makes a rename durable. Only Unix lets a folder be synced; elsewhere renames are the best there is.
fn sync_folder(path: &Path) -> Result<(), Diagnostic> {
    if !cfg!(unix) {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failure("write", folder, &error))
}

/// The diagnostic for a failed file operation: `action` is a verb such as `read` or `write`.
pub fn failure(action: &str, path: &Path, error: &io::Error) -> Diagnostic {
    let diagnostic = Diagnostic::new(format!("cannot {action} `{}`: {}", path.display(), cause(error)));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            diagnostic.help("free some space and continue with `run --resume`, or choose another folder with `--out`")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            diagnostic.help("choose a folder that you may write to with `--out`, or change its permissions")
        }
        io::ErrorKind::NotFound if action == "read" => diagnostic.help("check the path of the run folder"),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            diagnostic.help("the folder must exist and be a folder; choose another one with `--out`")
        }
        _ => diagnostic,
    }
}

/// The system's words without its error number, starting in lower case.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_replaced_and_no_temporary_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("manifest.json");
        replace_bytes(&path, b"old").unwrap();
        replace_bytes(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failing_writer_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part.parquet");
        replace_bytes(&path, b"old").unwrap();
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = replace(&path, |_| Err(failure("write", &path, &full))).unwrap_err();
        assert!(error.message.contains("part.parquet"), "{}", error.message);
        assert!(error.help.unwrap().contains("--out"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = replace_bytes(&file.join("part.parquet"), b"x").unwrap_err();
        assert!(error.message.starts_with("cannot create `"), "{}", error.message);
        assert!(error.message.ends_with("not a directory"), "{}", error.message);
    }
}
