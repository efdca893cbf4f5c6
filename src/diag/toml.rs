//! Problems reported by the TOML reader, in our words and with the nearest valid name.

use std::sync::Arc;

use super::{Diagnostic, Source, nearest};

/// Converts an error of the TOML reader into a diagnostic with its place; for an unknown key or word the help names
/// the nearest valid one, or all of them.
#[must_use]
pub fn from_toml(error: &toml::de::Error, source: &Arc<Source>) -> Diagnostic {
    let mut diagnostic = describe(error.message());
    if let Some(span) = error.span() {
        diagnostic = diagnostic.at(source, span);
    }
    diagnostic
}

/// serde words both cases as "unknown field `x`, expected one of `a`, `b`".
fn describe(message: &str) -> Diagnostic {
    let (kind, rest) = if let Some(rest) = message.strip_prefix("unknown field ") {
        ("key", rest)
    } else if let Some(rest) = message.strip_prefix("unknown variant ") {
        ("name", rest)
    } else {
        return Diagnostic::new(plain_words(message));
    };
    let names = backticked(rest);
    let Some((wrong, valid)) = names.split_first() else {
        return Diagnostic::new(message);
    };
    let diagnostic = Diagnostic::new(format!("unknown {kind} `{wrong}`"));
    match suggestion(wrong, valid) {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// The reader's message on one line, with our words for Rust's types.
fn plain_words(message: &str) -> String {
    let types = [
        ("expected u32", "expected a non-negative integer"),
        ("expected u64", "expected a non-negative integer"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("wanted exactly 1 element, more than 1 element", "exactly one key is allowed in this table"),
        ("wanted exactly 1 element, found 0 elements", "exactly one key is needed in this table"),
    ];
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{} is missing", key.trim_end());
    }
    let line = message.trim_end().replace('\n', ", ");
    types.iter().fold(line, |line, (reader, ours)| line.replace(reader, ours))
}

/// The help for a wrong name: the nearest valid name if one is near, all of them otherwise; `None` if there are none.
#[must_use]
pub fn suggestion(wrong: &str, valid: &[&str]) -> Option<String> {
    if let Some(name) = nearest(wrong, valid.iter().copied()) {
        return Some(format!("did you mean `{name}`?"));
    }
    let listed: Vec<String> = valid.iter().map(|name| format!("`{name}`")).collect();
    (!listed.is_empty()).then(|| format!("valid here: {}", listed.join(", ")))
}

/// All names in backticks, in order.
fn backticked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::{Diagnostics, render};
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        #[serde(rename = "rate")]
        _rate: Option<u32>,
        #[serde(rename = "kind")]
        _kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Poisson,
        Constant,
    }

    fn rendered(text: &str) -> String {
        let source = Arc::new(Source { name: "demo.toml".into(), text: text.into() });
        let error = toml::from_str::<Document>(text).expect_err("the document is wrong");
        render(&Diagnostics::from(from_toml(&error, &source)), false)
    }

    #[test]
    fn an_unknown_key_names_the_nearest_key() {
        insta::assert_snapshot!(rendered("raet = 1\n"), @r"
        error: unknown key `raet`
         --> demo.toml:1:1
          |
        1 | raet = 1
          | ^^^^
          |
          = help: did you mean `rate`?
        ");
    }

    #[test]
    fn an_unknown_word_far_from_all_lists_them() {
        insta::assert_snapshot!(rendered("kind = \"zzzzzzzz\"\n"), @r#"
        error: unknown name `zzzzzzzz`
         --> demo.toml:1:8
          |
        1 | kind = "zzzzzzzz"
          |        ^^^^^^^^^^
          |
          = help: valid here: `poisson`, `constant`
        "#);
        let _ = (Kind::Poisson, Kind::Constant);
    }

    #[test]
    fn a_wrong_type_and_a_syntax_error_keep_their_place() {
        insta::assert_snapshot!(rendered("rate = \"fast\"\n"), @r#"
        error: invalid type: string "fast", expected a non-negative integer
         --> demo.toml:1:8
          |
        1 | rate = "fast"
          |        ^^^^^^
        "#);
        assert!(rendered("rate = = 3\n").contains("demo.toml:1:8"));
    }
}
