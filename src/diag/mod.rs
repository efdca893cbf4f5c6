//! Diagnostics: what is wrong, where, and what to do; collected, then rendered in one go.

mod render;
mod toml;

pub use render::render;
pub use toml::{from_toml, suggestion};

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text that diagnostics point into.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Path as the user gave it.
    pub name: String,
    /// Whole content.
    pub text: String,
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The text.
    pub source: Arc<Source>,
    /// Byte range in it.
    pub span: Range<usize>,
}

/// One problem: a lower-case message, where it is, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, naming the thing in backticks; no final full stop.
    pub message: String,
    /// Where.
    pub location: Option<Location>,
    /// What to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A problem without a place in a file.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), location: None, help: None }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, source: &Arc<Source>, span: Range<usize>) -> Self {
        self.location = Some(Location { source: Arc::clone(source), span });
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// All problems found in one pass; never empty when used as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Adds a problem.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.0 {
            writeln!(f, "error: {}", diagnostic.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The candidate closest to a misspelt name, if one is close enough to be a plausible intention.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(name.len()) / 3)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plausible_misspellings_have_a_nearest_name() {
        let names = ["max_num_seqs", "max_model_len", "scheduler"];
        assert_eq!(nearest("max_num_seq", names), Some("max_num_seqs"));
        assert_eq!(nearest("schedluer", names), Some("scheduler"));
        assert_eq!(nearest("gpu", names), None);
    }
}
