//! Collects what is wrong with the meaning of a sweep, so that one pass reports everything.

use std::ops::Range;
use std::sync::Arc;

use super::axis::{Axis, AxisValue};
use super::located::Located;
use crate::diag::{Diagnostic, Diagnostics, Source, suggestion};

/// The problems found so far.
pub(super) struct Problems {
    source: Arc<Source>,
    found: Vec<Diagnostic>,
    /// Keys were already taken out for wrong names or types: what is missing may be their fault.
    incomplete: bool,
}

impl Problems {
    /// Starts from the problems of keys and types.
    pub(super) fn new(source: &Arc<Source>, found: Vec<Diagnostic>) -> Self {
        Self { source: Arc::clone(source), incomplete: !found.is_empty(), found }
    }

    /// Adds a problem with the value at `span`.
    pub(super) fn add(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.found.push(Diagnostic::new(message).at(&self.source, span.clone()));
    }

    /// Adds a problem with its remedy.
    pub(super) fn add_with_help(&mut self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.found.push(Diagnostic::new(message).at(&self.source, span.clone()).help(help));
    }

    /// Adds "KEY is missing in PLACE" unless an earlier problem may be the reason.
    pub(super) fn missing(&mut self, span: Option<&Range<usize>>, what: &str, help: &str) {
        if self.incomplete {
            return;
        }
        let diagnostic = Diagnostic::new(what).help(help);
        // Without a section to point at, the start of the file is where to add one.
        self.found.push(diagnostic.at(&self.source, span.cloned().unwrap_or(0..0)));
    }

    /// Adds a name that none of the valid ones equals.
    pub(super) fn unknown(&mut self, span: &Range<usize>, kind: &str, name: &str, valid: &[&str]) {
        let mut diagnostic = Diagnostic::new(format!("unknown {kind} `{name}`")).at(&self.source, span.clone());
        diagnostic.help = suggestion(name, valid);
        self.found.push(diagnostic);
    }

    /// Adds problems found elsewhere; those without a place get that of the name that led there.
    pub(super) fn adopt(&mut self, span: &Range<usize>, others: Diagnostics) {
        for mut diagnostic in others.0 {
            if diagnostic.location.is_none() {
                diagnostic = diagnostic.at(&self.source, span.clone());
            }
            self.found.push(diagnostic);
        }
    }

    /// The value of a result, its message becoming a problem.
    pub(super) fn ok<T>(&mut self, span: &Range<usize>, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.add(span, message)).ok()
    }

    /// The values of an axis after a check of each; a value that occurs twice is a problem.
    pub(super) fn values<T: AxisValue>(
        &mut self,
        key: &str,
        axis: &Axis<T>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Vec<T> {
        self.map(key, axis, |problems, Located { value, span }| {
            problems.ok(span, check(value).map_err(|message| format!("`{key}` {message}")))?;
            Some(value.clone())
        })
    }

    /// The meanings of the values of an axis; one that occurs twice is a problem.
    pub(super) fn map<T: AxisValue, U: PartialEq>(
        &mut self,
        key: &str,
        axis: &Axis<T>,
        meaning: impl Fn(&mut Self, &Located<T>) -> Option<U>,
    ) -> Vec<U> {
        let mut values: Vec<U> = Vec::with_capacity(axis.values.len());
        for written in &axis.values {
            let Some(value) = meaning(self, written) else { continue };
            if values.contains(&value) {
                self.add_with_help(
                    &written.span,
                    format!("`{key}` means the same twice: `{}`", plain(&written.value)),
                    "each value of an axis makes its own candidates; remove one of the two",
                );
            } else {
                values.push(value);
            }
        }
        values
    }

    /// Ends the pass: all problems in the order of the file, or none.
    pub(super) fn finish(mut self) -> Result<(), Diagnostics> {
        self.found.sort_by_key(|diagnostic| diagnostic.location.as_ref().map(|location| location.span.start));
        if self.found.is_empty() { Ok(()) } else { Err(Diagnostics(self.found)) }
    }
}

/// A value as a reader would write it, without the quotes of a string.
fn plain(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").trim_matches('"').trim_end_matches(".0").to_lowercase()
}
