//! Counts of what a space holds.

use super::excluded::Excluded;
use super::index::Space;
use crate::diag::Diagnostic;
use crate::units::format_count;

/// How many combinations break one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// [`Excluded::reason`] of the rule.
    pub reason: &'static str,
    /// Combinations that break it first.
    pub combinations: u64,
    /// The first of them, with its numbers.
    pub example: Excluded,
}

impl Space {
    /// The rules that combinations break, most frequent first, then by name. Looks at every combination.
    #[must_use]
    pub fn broken_rules(&self) -> Vec<RuleCount> {
        let mut counts: Vec<RuleCount> = Vec::new();
        for excluded in (0..self.len()).filter_map(|index| self.candidate(index).err()) {
            let reason = excluded.reason();
            match counts.iter_mut().find(|count| count.reason == reason) {
                Some(count) => count.combinations += 1,
                None => counts.push(RuleCount { reason, combinations: 1, example: excluded }),
            }
        }
        counts.sort_by_key(|count| (std::cmp::Reverse(count.combinations), count.reason));
        counts
    }

    /// Checks that at least one combination is a deployment, before memory is looked at.
    ///
    /// # Errors
    /// What stands in the way of all of them, with an example of each rule.
    pub fn require_a_deployment(&self) -> Result<(), Diagnostic> {
        if (0..self.len()).any(|index| self.candidate(index).is_ok()) {
            return Ok(());
        }
        let rules: Vec<String> = self
            .broken_rules()
            .iter()
            .map(|rule| format!("{} of them, for example: {}", format_count(rule.combinations), rule.example))
            .collect();
        let message = format!("none of the {} combinations of this sweep is a deployment", format_count(self.len()));
        Err(Diagnostic::new(message).help(rules.join("\n")))
    }
}
