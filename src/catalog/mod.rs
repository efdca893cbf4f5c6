//! Models, GPUs and engine constants, read from `models/` and `profiles/`.

pub mod config_json;
pub mod engine;
pub mod gpu;
pub mod host;
pub mod model;
pub mod parameters;
pub mod precision;
pub mod scheduling;
#[cfg(test)]
mod tests;
mod toml_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diag::{Diagnostic, Diagnostics, Source, nearest};

pub use engine::{EngineMemory, EngineProfile};
pub use gpu::{Gpu, ScaleUp};
pub use host::HostOverhead;
pub use model::{Attention, Ffn, Layer, Model, Quantized};
pub use parameters::{LayerParameters, Projection, Split};
pub use precision::{NumberFormat, Precision};
pub use scheduling::{ExpectedOutput, ExpertExchange, GraphCapture, SchedulingRules};

/// Environment variable that names the catalogue's folder.
pub const CATALOG_VARIABLE: &str = "SERVESCAPE_CATALOG";

/// Engine profile used where a sweep names none.
pub const DEFAULT_ENGINE: &str = "vllm-0.15";

/// The folder that holds `models/` and `profiles/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    root: PathBuf,
}

impl Catalog {
    /// The catalogue in `root`. Nothing is read yet.
    ///
    /// # Errors
    /// `root` does not hold both `models/` and `profiles/`.
    pub fn open(root: &Path) -> Result<Self, Diagnostic> {
        if is_catalog(root) {
            return Ok(Self { root: root.to_owned() });
        }
        Err(Diagnostic::new(format!("no catalog in `{}`", root.display()))
            .help("a catalog is a folder with `models/` and `profiles/` inside, such as a clone of the repository"))
    }

    /// The first of: `explicit`, the folder that `SERVESCAPE_CATALOG` names, the nearest catalogue at or above the
    /// current directory, the nearest one above the running executable.
    ///
    /// # Errors
    /// The named folder is no catalogue, or there is none to be found.
    pub fn locate(explicit: Option<&Path>) -> Result<Self, Diagnostic> {
        if let Some(root) = explicit {
            return Self::open(root);
        }
        if let Some(root) = std::env::var_os(CATALOG_VARIABLE) {
            return Self::open(Path::new(&root))
                .map_err(|error| Diagnostic { message: format!("{CATALOG_VARIABLE}: {}", error.message), ..error });
        }
        let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
        let found = starts.iter().flatten().find_map(|start| start.ancestors().find(|folder| is_catalog(folder)));
        found.map(|root| Self { root: root.to_owned() }).ok_or_else(|| {
            Diagnostic::new(
                "no catalog: neither the current directory nor any folder above holds `models/` and `profiles/`",
            )
            .help(format!("run inside a clone of the repository, or set {CATALOG_VARIABLE} to it"))
        })
    }

    /// The catalogue's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Names of the models, sorted.
    #[must_use]
    pub fn model_names(&self) -> Vec<String> {
        names(&self.root.join("models"), "json")
    }

    /// Names of the GPUs, sorted.
    #[must_use]
    pub fn gpu_names(&self) -> Vec<String> {
        names(&self.root.join("profiles/gpus"), "toml")
    }

    /// Names of the engine profiles, sorted.
    #[must_use]
    pub fn engine_names(&self) -> Vec<String> {
        names(&self.root.join("profiles/engines"), "toml")
    }

    /// A model of the catalogue, or the one that a path to a `config.json`, or to a folder with one, describes. A name
    /// with a separator or ending in `.json` is a path.
    ///
    /// # Errors
    /// Unknown name, unreadable file, or any problem in the configuration.
    pub fn model(&self, name_or_path: &str) -> Result<Model, Diagnostics> {
        let has_extension = Path::new(name_or_path).extension().is_some_and(|extension| extension == "json");
        if has_extension || name_or_path.contains(['/', '\\']) {
            let mut path = PathBuf::from(name_or_path);
            if path.is_dir() {
                path.push("config.json");
            }
            return config_json::parse(&model_name(&path), &toml_file::read_source(&path)?);
        }
        let source = self.entry("model", &self.root.join("models"), name_or_path, "json")?;
        config_json::parse(name_or_path, &source)
    }

    /// A GPU of the catalogue.
    ///
    /// # Errors
    /// Unknown name, or any problem in its file.
    pub fn gpu(&self, name: &str) -> Result<Gpu, Diagnostics> {
        gpu::parse(name, &self.entry("GPU", &self.root.join("profiles/gpus"), name, "toml")?)
    }

    /// An engine profile of the catalogue.
    ///
    /// # Errors
    /// Unknown name, or any problem in its file.
    pub fn engine(&self, name: &str) -> Result<EngineProfile, Diagnostics> {
        engine::parse(name, &self.engine_source(name)?)
    }

    /// The text of an engine profile: that of the catalogue, or the file of a path that ends in `.toml`.
    ///
    /// # Errors
    /// Unknown name, or an unreadable file.
    pub fn engine_source(&self, name_or_path: &str) -> Result<Arc<Source>, Diagnostic> {
        let path = Path::new(name_or_path);
        if path.extension().is_some_and(|extension| extension == "toml") {
            return toml_file::read_source(path);
        }
        self.entry("engine", &self.root.join("profiles/engines"), name_or_path, "toml")
    }

    /// The text of entry `name` in `folder`; an unknown name is answered with the nearest and the list of all.
    fn entry(&self, kind: &str, folder: &Path, name: &str, extension: &str) -> Result<Arc<Source>, Diagnostic> {
        let known = names(folder, extension);
        if known.iter().any(|entry| entry == name) {
            return toml_file::read_source(&folder.join(format!("{name}.{extension}")));
        }
        let guess = nearest(name, known.iter().map(String::as_str));
        let guess = guess.map_or(String::new(), |entry| format!("did you mean `{entry}`? "));
        let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Diagnostic::new(format!("unknown {kind} `{name}`"))
            .help(format!("{guess}known in `{}`: {list}", folder.display())))
    }
}

fn is_catalog(folder: &Path) -> bool {
    folder.join("models").is_dir() && folder.join("profiles").is_dir()
}

/// File stems with `extension` in `folder`, sorted; none if it cannot be read.
fn names(folder: &Path, extension: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(extension)?.strip_suffix('.').map(str::to_owned))
        .collect();
    names.sort_unstable();
    names
}

/// The file stem; for a plain `config.json` the folder's name.
fn model_name(path: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let stem = text(path.file_stem()).unwrap_or_default();
    if stem != "config" {
        return stem;
    }
    text(path.parent().and_then(Path::file_name)).unwrap_or(stem)
}
