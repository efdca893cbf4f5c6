//! Reading one TOML file of the catalogue: errors become diagnostics that point into the file.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::diag::{Diagnostic, Diagnostics, Source};

/// Reads `path` as UTF-8 text.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_source(path: &Path) -> Result<Arc<Source>, Diagnostic> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Arc::new(Source { name, text })),
        Err(error) => Err(Diagnostic::new(format!("cannot read `{name}`: {error}"))),
    }
}

/// Deserialises the file; the error points at the offending key or value.
///
/// # Errors
/// Invalid TOML, unknown or missing keys, wrong types.
pub(super) fn parse<T: DeserializeOwned>(source: &Arc<Source>) -> Result<T, Diagnostics> {
    toml::from_str(&source.text).map_err(|error| {
        let message = error.message().trim_end_matches('.').to_owned();
        Diagnostic::new(message).at(source, error.span().unwrap_or(0..0)).into()
    })
}

/// Where a fact comes from; every group of facts names it.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Provenance(String);

/// Checks values against their bounds and collects what is wrong.
pub(super) struct Checks<'a> {
    source: &'a Arc<Source>,
    problems: Vec<Diagnostic>,
}

impl<'a> Checks<'a> {
    /// Checks of values in `source`.
    pub(super) fn new(source: &'a Arc<Source>) -> Self {
        Self { source, problems: Vec::new() }
    }

    /// A quantity that must be a finite number above zero.
    pub(super) fn positive(&mut self, key: &str, value: &Spanned<f64>) -> f64 {
        if !(value.get_ref().is_finite() && *value.get_ref() > 0.0) {
            self.problem(format!("`{key}` must be a number above zero"), value.span());
        }
        *value.get_ref()
    }

    /// A quantity that must be a finite number and not negative.
    pub(super) fn not_negative(&mut self, key: &str, value: &Spanned<f64>) -> f64 {
        if !(value.get_ref().is_finite() && *value.get_ref() >= 0.0) {
            self.problem(format!("`{key}` must be a number that is not negative"), value.span());
        }
        *value.get_ref()
    }

    /// A count that must be above zero.
    pub(super) fn count<N: Copy + Default + PartialEq>(&mut self, key: &str, value: &Spanned<N>) -> N {
        if *value.get_ref() == N::default() {
            self.problem(format!("`{key}` must be above zero"), value.span());
        }
        *value.get_ref()
    }

    /// Provenance that must say something.
    pub(super) fn sourced(&mut self, table: &str, provenance: &Spanned<Provenance>) {
        if provenance.get_ref().0.trim().is_empty() {
            self.problem(format!("`source` of `{table}` is empty; say where the facts come from"), provenance.span());
        }
    }

    /// Any other problem.
    pub(super) fn problem(&mut self, message: String, span: std::ops::Range<usize>) {
        self.problems.push(Diagnostic::new(message).at(self.source, span));
    }

    /// `value` if nothing was wrong.
    ///
    /// # Errors
    /// Every problem noted.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Diagnostics> {
        if self.problems.is_empty() { Ok(value) } else { Err(Diagnostics(self.problems)) }
    }
}
