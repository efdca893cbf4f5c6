//! Turns diagnostics into text with the source line they point at.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use super::{Diagnostic, Diagnostics, Location};

/// Renders every diagnostic as a frame with file, line, column and help, separated by empty lines; ends with a line
/// break. Prints nothing. Whether the terminal wants colour is the caller's decision.
#[must_use]
pub fn render(diagnostics: &Diagnostics, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut text = String::new();
    for (position, diagnostic) in diagnostics.0.iter().enumerate() {
        if position > 0 {
            text.push('\n');
        }
        text.push_str(&renderer.render(&[group(diagnostic)]));
        text.push('\n');
    }
    text
}

fn group(diagnostic: &Diagnostic) -> Group<'_> {
    let mut group = Group::with_title(Level::ERROR.primary_title(diagnostic.message.as_str()));
    if let Some(location) = &diagnostic.location {
        group = group.element(
            Snippet::source(location.source.text.as_str())
                .path(location.source.name.as_str())
                .annotation(AnnotationKind::Primary.span(first_line(location))),
        );
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    group
}

/// The part of a span on its first line: a span over a whole table would fill the screen.
fn first_line(location: &Location) -> std::ops::Range<usize> {
    let text = &location.source.text;
    let start = location.span.start.min(text.len());
    let end = location.span.end.clamp(start, text.len());
    let line_end = text.get(start..end).and_then(|spanned| spanned.find('\n')).map_or(end, |offset| start + offset);
    start..line_end
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Source;
    use super::*;

    fn source() -> Arc<Source> {
        Arc::new(Source { name: "sweeps/demo.toml".into(), text: "[sweep]\nname = \"a\"\nsed = 7\n".into() })
    }

    #[test]
    fn a_located_problem_shows_its_line_and_the_help() {
        let diagnostic = Diagnostic::new("unknown key `sed`").at(&source(), 19..22).help("did you mean `seed`?");
        insta::assert_snapshot!(render(&diagnostic.into(), false), @r"
        error: unknown key `sed`
         --> sweeps/demo.toml:3:1
          |
        3 | sed = 7
          | ^^^
          |
          = help: did you mean `seed`?
        ");
    }

    #[test]
    fn problems_are_separated_and_long_spans_cut_to_one_line() {
        let whole = Diagnostic::new("`model` is missing").at(&source(), 0..27);
        let placeless = Diagnostic::new("no candidates").help("widen an axis");
        insta::assert_snapshot!(render(&Diagnostics(vec![whole, placeless]), false), @r"
        error: `model` is missing
         --> sweeps/demo.toml:1:1
          |
        1 | [sweep]
          | ^^^^^^^

        error: no candidates
         |
         = help: widen an axis
        ");
    }

    #[test]
    fn colour_is_only_used_when_asked_for() {
        let diagnostics = Diagnostics::from(Diagnostic::new("no candidates").at(&source(), 0..7));
        assert!(!render(&diagnostics, false).contains('\u{1b}'));
        assert!(render(&diagnostics, true).contains('\u{1b}'));
    }

    #[test]
    fn a_span_beyond_the_text_does_not_panic() {
        let diagnostics = Diagnostics::from(Diagnostic::new("truncated").at(&source(), 500..900));
        assert!(render(&diagnostics, false).contains("truncated"));
    }
}
