//! Typed access to the keys of one `config.json`, collecting every problem instead of stopping at the first.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::diag::{Diagnostic, Source};

/// No size in a published configuration comes near; guards products against overflow.
const MAX_COUNT: u32 = 1 << 26;

/// Reader over one JSON object. Getters never fail: they note the problem and return a harmless value.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    source: &'a Arc<Source>,
    missing: Vec<&'static str>,
    problems: Vec<Diagnostic>,
}

impl<'a> Fields<'a> {
    /// A reader over `object`, which was parsed from `source`.
    pub(super) fn new(object: &'a Map<String, Value>, source: &'a Arc<Source>) -> Self {
        Self { object, source, missing: Vec::new(), problems: Vec::new() }
    }

    /// A required count of at least one; 1 after a problem.
    pub(super) fn count(&mut self, key: &'static str) -> u32 {
        self.count_up_to(key, MAX_COUNT)
    }

    /// A required count between one and `most`; 1 after a problem.
    pub(super) fn count_up_to(&mut self, key: &'static str, most: u32) -> u32 {
        if self.value(key).is_none() {
            self.missing.push(key);
            return 1;
        }
        let count = self.optional(key).unwrap_or(1);
        if !(1..=most).contains(&count) {
            self.problem(key, format!("`{key}` is {count}, but must lie between 1 and {most}"));
            return 1;
        }
        count
    }

    /// A number that may be absent or null.
    pub(super) fn optional(&mut self, key: &'static str) -> Option<u32> {
        let value = self.value(key)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            self.wrong_type(key, "a whole number", value);
            return Some(1);
        }
        number
    }

    /// A truth value that may be absent.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        match self.value(key) {
            None => default,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong_type(key, "true or false", other);
                default
            }
        }
    }

    /// A text that may be absent.
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        match self.value(key)? {
            Value::String(text) => Some(text),
            other => {
                self.wrong_type(key, "a string", other);
                None
            }
        }
    }

    /// A list that may be absent; empty after a problem.
    pub(super) fn list(&mut self, key: &'static str) -> &'a [Value] {
        match self.value(key) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.wrong_type(key, "a list", other);
                &[]
            }
        }
    }

    /// A nested object that may be absent.
    pub(super) fn object(&mut self, key: &'static str) -> Option<&'a Map<String, Value>> {
        match self.value(key)? {
            Value::Object(object) => Some(object),
            other => {
                self.wrong_type(key, "an object", other);
                None
            }
        }
    }

    /// Notes a problem at `key`.
    pub(super) fn problem(&mut self, key: &str, message: String) {
        let diagnostic = Diagnostic::new(message).at(self.source, span_of(key, &self.source.text));
        self.problems.push(diagnostic);
    }

    /// Notes a problem with a remedy at `key`.
    pub(super) fn problem_with_help(&mut self, key: &str, message: String, help: String) {
        self.problem(key, message);
        if let Some(last) = self.problems.last_mut() {
            last.help = Some(help);
        }
    }

    /// All problems; missing keys come first, in one diagnostic.
    pub(super) fn into_problems(self, architecture: &str) -> Vec<Diagnostic> {
        let mut all = Vec::new();
        if !self.missing.is_empty() {
            let keys: Vec<String> = self.missing.iter().map(|key| format!("`{key}`")).collect();
            all.push(
                Diagnostic::new(format!("missing {} in the configuration of a `{architecture}`", keys.join(", ")))
                    .at(self.source, span_of("architectures", &self.source.text))
                    .help("take the complete `config.json` from the model's Hugging Face repository"),
            );
        }
        all.extend(self.problems);
        all
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn wrong_type(&mut self, key: &str, expected: &str, found: &Value) {
        self.problem(key, format!("`{key}` must be {expected}, found `{found}`"));
    }
}

/// Where `key` is first written in the text; the start of the text if it is not.
pub(super) fn span_of(key: &str, text: &str) -> std::ops::Range<usize> {
    let quoted = format!("\"{key}\"");
    text.find(&quoted).map_or(0..0, |start| start..start + quoted.len())
}
