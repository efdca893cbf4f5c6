//! What resolving a sweep needs from the rest of the world.

use std::path::Path;
use std::sync::Arc;

use super::traffic::Trace;
use crate::catalog::{Gpu, Model};
use crate::diag::Diagnostics;

/// Names and files that a sweep refers to. Errors need no place: the resolver adds that of the name.
pub trait Lookup {
    /// The model of this catalogue name or path to a config.json.
    ///
    /// # Errors
    /// Unknown name, unreadable or unsupported configuration.
    fn model(&self, name: &str) -> Result<Arc<Model>, Diagnostics>;

    /// The GPU type of this catalogue name.
    ///
    /// # Errors
    /// Unknown name.
    fn gpu(&self, name: &str) -> Result<Arc<Gpu>, Diagnostics>;

    /// Names of the engine profiles.
    fn engines(&self) -> Vec<String>;

    /// The scheduler policy of this engine profile.
    ///
    /// # Errors
    /// Unreadable profile, or one that names an unknown policy.
    fn scheduler_of(&self, engine: &str) -> Result<&'static str, Diagnostics>;

    /// Names of the scheduler policies.
    fn schedulers(&self) -> Vec<&'static str>;

    /// Names of the router policies.
    fn routers(&self) -> Vec<&'static str>;

    /// The trace in this file.
    ///
    /// # Errors
    /// Unreadable file or malformed rows.
    fn trace(&self, path: &Path) -> Result<Arc<Trace>, Diagnostics>;

    /// The lengths in one column of a CSV file with a header.
    ///
    /// # Errors
    /// Unreadable file, unknown column or malformed rows.
    fn lengths(&self, path: &Path, column: &str) -> Result<Vec<u32>, Diagnostics>;
}
