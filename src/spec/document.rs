//! Reads a sweep file into its raw form and reports every wrong key and type, not only the first.

use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use super::raw::RawSweep;
use crate::diag::{Diagnostic, Diagnostics, Source, from_toml};

/// Most problems of keys and types that one pass reports.
const MOST_PROBLEMS: usize = 50;

/// What could be read, and what was wrong with the rest.
pub(super) struct Document {
    /// The keys that are valid.
    pub raw: RawSweep,
    /// Unknown keys and wrong types; the keys concerned are absent from `raw`.
    pub problems: Vec<Diagnostic>,
}

/// Reads the text of a sweep file.
///
/// serde stops at its first error, so the entry at fault is taken out and the rest read again.
///
/// # Errors
/// All syntax errors, if there are any: nothing else can be said about such a text.
pub(super) fn read(source: &Arc<Source>) -> Result<Document, Diagnostics> {
    let (table, syntax_errors) = DeTable::parse_recoverable(&source.text);
    if !syntax_errors.is_empty() {
        return Err(Diagnostics(syntax_errors.iter().map(|error| from_toml(error, source)).collect()));
    }
    let mut table = table;
    let mut problems = Vec::new();
    let mut removed: Vec<Range<usize>> = Vec::new();
    loop {
        let error = match RawSweep::deserialize(toml::Deserializer::from(table.clone())) {
            Ok(raw) => return Ok(Document { raw, problems }),
            Err(error) => error,
        };
        let span = error.span();
        // A table that lost a key to an earlier problem may now miss it: that is our doing.
        let own_doing = span.as_ref().is_some_and(|span| removed.iter().any(|inner| within(inner, span)));
        if !own_doing {
            problems.push(from_toml(&error, source));
        }
        let pruned = span.as_ref().is_some_and(|span| prune(table.get_mut(), span));
        if !pruned || problems.len() >= MOST_PROBLEMS {
            return Ok(Document { raw: RawSweep::default(), problems });
        }
        removed.extend(span);
    }
}

fn within(inner: &Range<usize>, outer: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Removes the innermost entry whose key or value holds the span, and any table that this empties.
fn prune(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let found = table.iter_mut().find_map(|(key, value)| {
        if prune_inside(value.get_mut(), span) {
            return Some(is_empty(value.get_ref()).then(|| key.clone()));
        }
        (within(span, &key.span()) || within(span, &value.span())).then(|| Some(key.clone()))
    });
    if let Some(Some(key)) = &found {
        table.remove(key);
    }
    found.is_some()
}

fn prune_inside(value: &mut DeValue<'_>, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => prune(table, span),
        DeValue::Array(elements) => elements.iter_mut().any(|element| prune_inside(element.get_mut(), span)),
        _ => false,
    }
}

fn is_empty(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Table(table) if table.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let source = Arc::new(Source { name: "demo.toml".into(), text: text.into() });
        match read(&source) {
            Ok(document) => document.problems.into_iter().map(|problem| problem.message).collect(),
            Err(syntax) => syntax.0.into_iter().map(|problem| problem.message).collect(),
        }
    }

    #[test]
    fn every_wrong_key_and_type_is_reported_in_one_pass() {
        let found = problems(
            "[sweep]\nnmae = \"a\"\nseed = \"x\"\n[workload]\ninput = { fixd = 3 }\noutput = { lognormal = { mean = 1, p95 = 2 } }\n\
             [[colocation]]\nall = { gpu = \"h100\", tp = [1, \"two\"], bogus = 1 }\n[sla]\nttft_p95 = 3\n",
        );
        insta::assert_snapshot!(found.join("\n"), @r#"
        unknown key `bogus`
        invalid type: string "two", expected a non-negative integer
        unknown key `ttft_p95`
        unknown key `nmae`
        invalid type: string "x", expected a non-negative integer
        unknown name `fixd`
        `max` is missing
        "#);
    }

    #[test]
    fn a_key_taken_out_is_not_reported_as_missing() {
        let text = "[workload]\ninput = { lognormal = { mean = \"long\", p95 = 2, max = 3 } }\narrival = { poisson = { rate = [] } }\n";
        insta::assert_snapshot!(problems(text).join("\n"), @r#"
        an axis needs at least one value, this list is empty
        invalid type: string "long", expected a number
        "#);
    }

    #[test]
    fn two_laws_for_one_length_are_one_too_many() {
        let text = "[workload]\ninput = { fixed = 3, uniform = { min = 1, max = 2 } }\n";
        insta::assert_snapshot!(problems(text).join("\n"), @"exactly one key is allowed in this table");
    }

    #[test]
    fn all_syntax_errors_are_reported_together() {
        assert!(problems("[sweep\nname = \n[workload]\nx = = 3\n").len() >= 2);
    }

    #[test]
    fn any_text_is_read_without_panicking() {
        for text in [
            "",
            "=",
            "[",
            "[[",
            "sweep = 3",
            "colocation = 3",
            "colocation = [3]",
            "[pdd]\nx=1",
            "pdd = 3",
            "\u{0}",
            "é = 1",
        ] {
            let _ = problems(text);
        }
    }
}
