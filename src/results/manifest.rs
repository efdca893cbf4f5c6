//! `manifest.json`: what was run, which parts are finished, and their hashes. The only file of a run folder that may
//! depend on the host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::durable::{failure, replace_bytes};
use super::part::{FileRecord, PARTS_FOLDER, PartRecord, format_hash};
use super::schema::SCHEMA_VERSION;
use crate::diag::{Diagnostic, Diagnostics};

/// Name of the manifest in a run folder.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Name of the file that a process holds while it writes into a run folder.
pub const LOCK_FILE: &str = "run.lock";

/// Name of the copy of the sweep file in a run folder.
pub const SWEEP_FILE: &str = "sweep.toml";

/// Whether more parts are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Parts are missing: the run goes on or was interrupted.
    Running,
    /// Every part of this run or shard is there.
    Finished,
}

/// Which share of the parts a run computes: those with `number % of == index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// This shard, from 0.
    pub index: u64,
    /// Number of shards.
    pub of: u64,
}

impl Shard {
    /// A run that is not split.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

/// One uninterrupted stretch of work on a run: facts of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Worker threads.
    pub threads: u64,
    /// Wall time, in seconds.
    pub wall_seconds: f64,
    /// Candidates simulated.
    pub simulated: u64,
}

/// Exclusive access to a run folder; released when dropped, or by the system when the process dies.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// Takes the folder, creating it if need be.
    ///
    /// # Errors
    /// Another process writes into it, or what the file system reports.
    pub fn acquire(run_folder: &Path) -> Result<Self, Diagnostic> {
        fs::create_dir_all(run_folder).map_err(|error| failure("create", run_folder, &error))?;
        let path = run_folder.join(LOCK_FILE);
        let file = File::create(&path).map_err(|error| failure("create", &path, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(fs::TryLockError::WouldBlock) => {
                Err(Diagnostic::new(format!("another process is writing into `{}`", run_folder.display()))
                    .help("wait for it, or choose another folder with --out"))
            }
            Err(fs::TryLockError::Error(error)) => Err(failure("lock", &path, &error)),
        }
    }
}

/// Everything known of a run besides its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of columns and layout.
    pub schema_version: u32,
    /// Name of the sweep.
    pub sweep: String,
    /// Content hash of the resolved sweep, in hexadecimal: what a resumed run must match.
    pub sweep_xxh3: String,
    /// Path of the sweep file from the run folder; relative paths in the sweep refer to its folder.
    pub sweep_path: String,
    /// Trace that replaced the sweep's arrivals and lengths, as a path from the run folder.
    pub trace: Option<String>,
    /// Whether parts are missing.
    pub status: RunStatus,
    /// Candidates of the whole index space.
    pub candidates: u64,
    /// Candidates that are simulated, over all shards. Parts are cut at row counts of this list.
    pub simulated: u64,
    /// Rows of every part but the last.
    pub rows_per_part: u64,
    /// Share of the parts that this folder holds.
    pub shard: Shard,
    /// Finished parts, by number.
    pub parts: Vec<PartRecord>,
    /// The table of pruned candidates.
    pub pruned: Option<FileRecord>,
    /// The parts merged into one file.
    pub merged: Option<FileRecord>,
    /// Stretches of work, oldest first.
    pub sessions: Vec<Session>,
}

impl Manifest {
    /// The manifest of a run that has just begun.
    #[must_use]
    pub fn new(sweep: &str, sweep_xxh3: &str, candidates: u64, simulated: u64, rows_per_part: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            sweep: sweep.to_owned(),
            sweep_xxh3: sweep_xxh3.to_owned(),
            sweep_path: String::new(),
            trace: None,
            status: RunStatus::Running,
            candidates,
            simulated,
            rows_per_part: rows_per_part.max(1),
            shard: Shard::WHOLE,
            parts: Vec::new(),
            pruned: None,
            merged: None,
            sessions: Vec::new(),
        }
    }

    /// Whether the folder holds a run.
    #[must_use]
    pub fn exists(run_folder: &Path) -> bool {
        run_folder.join(MANIFEST_FILE).exists()
    }

    /// Makes the folder ready for a new run: creates it, and removes the manifest and the part files of an old run.
    ///
    /// # Errors
    /// A folder that holds something else under the names of a run, or what the file system reports.
    pub fn clear(run_folder: &Path) -> Result<(), Diagnostic> {
        let parts = run_folder.join(PARTS_FOLDER);
        if !Self::exists(run_folder) && (parts.exists() || run_folder.join(SWEEP_FILE).exists()) {
            return Err(Diagnostic::new(format!("`{}` holds files that no run wrote", run_folder.display()))
                .help("choose another folder with --out"));
        }
        fs::create_dir_all(run_folder).map_err(|error| failure("create", run_folder, &error))?;
        let entries = fs::read_dir(&parts).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_part = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with("part-") && (name.ends_with(".parquet") || name.ends_with(".parquet.tmp"))
        };
        for path in entries.filter(is_part).chain([run_folder.join(MANIFEST_FILE)]) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failure("remove", &path, &error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the manifest of a run folder.
    ///
    /// # Errors
    /// If it is missing, unreadable, not a manifest, or of another schema version.
    pub fn load(run_folder: &Path) -> Result<Self, Diagnostic> {
        let path = run_folder.join(MANIFEST_FILE);
        let text = fs::read_to_string(&path)
            .map_err(|error| failure("read", &path, &error).help("a run folder is made by `run`; check the path"))?;
        let manifest: Self = serde_json::from_str(&text).map_err(|error| {
            Diagnostic::new(format!("`{}` is not a manifest: {error}", path.display()))
                .help("restore the file from a backup, or run the sweep into a new folder")
        })?;
        if manifest.schema_version != SCHEMA_VERSION {
            return Err(Diagnostic::new(format!(
                "`{}` has schema version {}, this program reads version {SCHEMA_VERSION}",
                path.display(),
                manifest.schema_version
            ))
            .help("read it with the release that wrote it, or run the sweep again"));
        }
        if !manifest.is_consistent() {
            return Err(Diagnostic::new(format!("`{}` contradicts itself", path.display()))
                .help("it was edited by hand or damaged: restore it, or run the sweep into a new folder"));
        }
        Ok(manifest)
    }

    /// Whether the numbers can come from a run: parts in order, within the run, and stored under its folder.
    fn is_consistent(&self) -> bool {
        let in_folder = |file: &FileRecord| {
            Path::new(&file.file).components().all(|component| matches!(component, Component::Normal(_)))
        };
        self.rows_per_part > 0
            && self.simulated <= self.candidates
            && self.shard.index < self.shard.of
            && self.parts.is_sorted_by(|a, b| a.number < b.number)
            && self.parts.iter().all(|part| part.number < self.part_count() && in_folder(&part.content))
            && self.pruned.iter().chain(&self.merged).all(in_folder)
    }

    /// Writes the manifest; a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// What the file system reports, with path and remedy.
    pub fn store(&self, run_folder: &Path) -> Result<(), Diagnostic> {
        let path = run_folder.join(MANIFEST_FILE);
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|error| Diagnostic::new(format!("cannot encode `{}`: {error}", path.display())))?;
        text.push('\n');
        replace_bytes(&path, text.as_bytes())
    }

    /// Adds a finished part, or replaces the one of the same number; invalidates a merged file.
    pub fn record(&mut self, part: PartRecord) {
        match self.parts.binary_search_by_key(&part.number, |known| known.number) {
            Ok(position) => self.parts[position] = part,
            Err(position) => self.parts.insert(position, part),
        }
        self.merged = None;
        if self.missing_parts().is_empty() {
            self.status = RunStatus::Finished;
        }
    }

    /// Parts of the whole sweep, over all shards.
    #[must_use]
    pub fn part_count(&self) -> u64 {
        self.simulated.div_ceil(self.rows_per_part)
    }

    /// Positions in the list of simulated candidates that part `number` holds.
    #[must_use]
    pub fn part_range(&self, number: u64) -> std::ops::Range<u64> {
        let start = number.saturating_mul(self.rows_per_part).min(self.simulated);
        start..start.saturating_add(self.rows_per_part).min(self.simulated)
    }

    /// Numbers of the parts that this folder should hold and does not.
    #[must_use]
    pub fn missing_parts(&self) -> Vec<u64> {
        (0..self.part_count())
            .filter(|number| number % self.shard.of == self.shard.index)
            .filter(|number| self.parts.binary_search_by_key(number, |part| part.number).is_err())
            .collect()
    }

    /// Forgets the files that are missing or damaged, so that a resumed run makes them again; returns one diagnostic
    /// for each.
    pub fn drop_damaged_parts(&mut self, run_folder: &Path) -> Vec<Diagnostic> {
        let mut damages = Vec::new();
        self.parts.retain(|part| match verify(run_folder, &part.content) {
            Ok(()) => true,
            Err(damage) => {
                damages.push(damage);
                false
            }
        });
        if !damages.is_empty() {
            self.status = RunStatus::Running;
        }
        // Copies and tables that can be made again without simulating.
        for derived in [&mut self.merged, &mut self.pruned] {
            if let Some(damage) = derived.as_ref().and_then(|file| verify(run_folder, file).err()) {
                damages.push(damage);
                *derived = None;
            }
        }
        damages
    }

    /// Checks every file that the manifest lists against its hash.
    ///
    /// # Errors
    /// One diagnostic for each file that is missing or damaged.
    pub fn verify(&self, run_folder: &Path) -> Result<(), Diagnostics> {
        let files = self.parts.iter().map(|part| &part.content).chain(&self.pruned).chain(&self.merged);
        let damages: Vec<Diagnostic> = files.filter_map(|file| verify(run_folder, file).err()).collect();
        if damages.is_empty() { Ok(()) } else { Err(Diagnostics(damages)) }
    }
}

/// Writes the copy of the sweep file.
///
/// # Errors
/// What the file system reports, with path and remedy.
pub fn store_sweep(run_folder: &Path, text: &str) -> Result<(), Diagnostic> {
    replace_bytes(&run_folder.join(SWEEP_FILE), text.as_bytes())
}

/// Checks one file of a run folder against its hash: Parquet has no page checksums, so a flipped bit would otherwise
/// be read as data.
///
/// # Errors
/// If the file is missing, unreadable, truncated or changed.
pub fn verify(run_folder: &Path, record: &FileRecord) -> Result<(), Diagnostic> {
    let path = run_folder.join(&record.file);
    let remedy = "`run --resume` on this folder computes it again";
    let hash = hash_file(&path).map_err(|error| failure("read", &path, &error).help(remedy))?;
    if format_hash(hash) == record.xxh3 {
        return Ok(());
    }
    Err(Diagnostic::new(format!("`{}` is damaged: its content does not match the manifest", path.display()))
        .help(remedy))
}

/// xxh3-128 of a file.
pub(super) fn hash_file(path: &Path) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hasher.digest128());
        }
        hasher.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::super::part::write_part;
    use super::*;

    fn run_of_three_parts(folder: &Path) -> Manifest {
        let mut manifest = Manifest::new("smoke", "00ff", 30, 25, 10);
        for number in [2, 0, 1] {
            let rows = fixture::rows(manifest.part_range(number));
            manifest.record(write_part(folder, number, &rows).unwrap());
        }
        manifest.store(folder).unwrap();
        manifest
    }

    #[test]
    fn round_trip_and_order() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = run_of_three_parts(folder.path());
        assert_eq!(manifest, Manifest::load(folder.path()).unwrap());
        assert_eq!(manifest.parts.iter().map(|part| part.content.rows).collect::<Vec<_>>(), [10, 10, 5]);
        assert_eq!(manifest.status, RunStatus::Finished);
        manifest.verify(folder.path()).unwrap();
    }

    #[test]
    fn a_shard_misses_only_its_own_parts() {
        let mut manifest = Manifest::new("smoke", "00ff", 100, 95, 10);
        assert_eq!(manifest.missing_parts().len(), 10);
        manifest.shard = Shard { index: 1, of: 4 };
        assert_eq!(manifest.missing_parts(), [1, 5, 9]);
        assert_eq!(manifest.part_range(9), 90..95);
    }

    #[test]
    fn truncation_and_a_flipped_bit_are_found_and_recomputed() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = run_of_three_parts(folder.path());
        let path = |number: usize| folder.path().join(&manifest.parts[number].content.file);
        let mut bytes = fs::read(path(0)).unwrap();
        bytes.pop();
        fs::write(path(0), &bytes).unwrap();
        let mut bytes = fs::read(path(1)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path(1), &bytes).unwrap();
        let damages = manifest.verify(folder.path()).unwrap_err();
        assert_eq!(damages.0.len(), 2);
        assert!(damages.0[1].message.contains("part-000001.parquet"), "{damages}");
        assert!(damages.0[1].help.as_deref().unwrap().contains("--resume"));
        assert_eq!(manifest.drop_damaged_parts(folder.path()).len(), 2);
        assert_eq!(manifest.missing_parts(), [0, 1]);
        assert_eq!(manifest.status, RunStatus::Running);
    }

    #[test]
    fn broken_manifests_are_diagnostics() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Manifest::load(folder.path()).unwrap_err().message.contains("cannot read"));
        fs::write(folder.path().join(MANIFEST_FILE), "{ \"schema_version\": ").unwrap();
        assert!(Manifest::load(folder.path()).unwrap_err().message.contains("is not a manifest"));
        let mut manifest = run_of_three_parts(folder.path());
        manifest.schema_version = 99;
        manifest.store(folder.path()).unwrap();
        assert!(Manifest::load(folder.path()).unwrap_err().message.contains("schema version 99"));
        let edits: [fn(&mut Manifest); 4] = [
            |manifest| manifest.rows_per_part = 0,
            |manifest| manifest.shard.of = 0,
            |manifest| manifest.parts.swap(0, 1),
            |manifest| manifest.parts[0].content.file = "../elsewhere.parquet".into(),
        ];
        for edit in edits {
            let mut manifest = run_of_three_parts(folder.path());
            edit(&mut manifest);
            manifest.store(folder.path()).unwrap();
            assert!(Manifest::load(folder.path()).unwrap_err().message.contains("contradicts itself"));
        }
    }
}
