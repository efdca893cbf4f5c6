//! Where the tables of one GPU system lie: in a folder, or in the wheel of the package `aiconfigurator-core`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use zip::ZipArchive;

use crate::diag::{Diagnostic, nearest};

/// Folder of the systems, in a checkout and in a wheel; an empty one is the data folder itself.
const ROOTS: &[&str] = &[
    "",
    "systems/data",
    "data",
    "aiconfigurator_core/systems/data",
    "src/aiconfigurator_core/systems/data",
    "src/aiconfigurator/systems/data",
];

/// The tables of one system.
pub(super) enum Source {
    /// A folder.
    Folder(PathBuf),
    /// Files of a wheel, by their path below the system's folder.
    Wheel {
        /// The wheel.
        archive: Box<ZipArchive<File>>,
        /// Paths of its files.
        files: Vec<String>,
        /// The system's folder in the archive, with the closing slash.
        prefix: String,
    },
}

impl Source {
    /// Opens `SYSTEM`, `CHECKOUT/SYSTEM` or `WHEEL.whl/SYSTEM`.
    pub(super) fn open(path: &Path) -> Result<Self, Diagnostic> {
        if path.join("gemm").is_dir() || path.join("comm").is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        if is_wheel(path) {
            return Self::open_wheel(path, "");
        }
        if path.is_dir() {
            return Err(unknown_system("", &systems_of_folder(path), path));
        }
        let (Some(parent), Some(system)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
            return Err(unknown_system("", &BTreeSet::new(), path));
        };
        if is_wheel(parent) {
            return Self::open_wheel(parent, system);
        }
        let folders = ROOTS.iter().map(|root| parent.join(root).join(system));
        match folders.into_iter().find(|folder| folder.is_dir()) {
            Some(folder) => Ok(Self::Folder(folder)),
            None => Err(unknown_system(system, &systems_of_folder(parent), parent)),
        }
    }

    fn open_wheel(path: &Path, system: &str) -> Result<Self, Diagnostic> {
        let fail = |reason: String| Diagnostic::new(format!("cannot read the wheel `{}`: {reason}", path.display()));
        let file = File::open(path).map_err(|error| fail(error.to_string()))?;
        let archive = ZipArchive::new(file).map_err(|error| fail(error.to_string()))?;
        let data = "aiconfigurator_core/systems/data/";
        let files: Result<Vec<String>, _> = archive.file_names().map(|name| name.map(String::from)).collect();
        let files = files.map_err(|error| fail(error.to_string()))?;
        let system_of = |file: &String| Some(file.strip_prefix(data)?.split_once('/')?.0.to_owned());
        let systems: BTreeSet<String> = files.iter().filter_map(system_of).collect();
        if !systems.contains(system) {
            return Err(unknown_system(system, &systems, path));
        }
        Ok(Self::Wheel { archive: Box::new(archive), files, prefix: format!("{data}{system}/") })
    }

    /// Names in a folder of the system, sorted; none if there is no such folder.
    pub(super) fn names(&self, folder: &str) -> BTreeSet<String> {
        match self {
            Self::Folder(root) => names_in(&root.join(folder)),
            Self::Wheel { files, prefix, .. } => {
                let folder = if folder.is_empty() { prefix.clone() } else { format!("{prefix}{folder}/") };
                let name = |path: &String| Some(path.strip_prefix(&folder)?.split('/').next()?.to_owned());
                files.iter().filter_map(name).filter(|name| !name.is_empty()).collect()
            }
        }
    }

    /// The bytes of a file, by its path below the system's folder.
    pub(super) fn read(&mut self, file: &str) -> Result<Bytes, Diagnostic> {
        let fail = |reason: String| Diagnostic::new(format!("cannot read the table `{file}`: {reason}"));
        match self {
            Self::Folder(root) => fs::read(root.join(file)).map(Bytes::from).map_err(|error| fail(error.to_string())),
            Self::Wheel { archive, prefix, .. } => {
                let mut member =
                    archive.by_name(&format!("{prefix}{file}")).map_err(|error| fail(error.to_string()))?;
                let mut bytes = Vec::new();
                member.read_to_end(&mut bytes).map_err(|error| fail(error.to_string()))?;
                Ok(Bytes::from(bytes))
            }
        }
    }
}

fn is_wheel(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "whl") && path.is_file()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Systems below the data folder of a checkout.
fn systems_of_folder(folder: &Path) -> BTreeSet<String> {
    let data = ROOTS.iter().map(|root| folder.join(root));
    data.flat_map(|data| {
        names_in(&data)
            .into_iter()
            .filter(move |name| data.join(name).join("gemm").is_dir() || data.join(name).join("comm").is_dir())
    })
    .collect()
}

fn unknown_system(system: &str, systems: &BTreeSet<String>, place: &Path) -> Diagnostic {
    let place = place.display();
    let unknown = match system {
        "" => Diagnostic::new(format!("`{place}` is not the folder of one GPU system")),
        name => Diagnostic::new(format!("there is no GPU system `{name}` in `{place}`")),
    };
    let names: Vec<&str> = systems.iter().map(String::as_str).collect();
    match nearest(system, names.iter().copied()) {
        Some(close) => unknown.help(format!("did you mean `{close}`?")),
        None if names.is_empty() => unknown.help("give the folder that has the folders `gemm`, `attention` and `comm`"),
        None => unknown.help(format!("append one of {} to the path", names.join(", "))),
    }
}
