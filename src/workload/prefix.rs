//! Common starts of prompts whose content is known: as token ids, or as hashes of blocks of tokens.

use std::collections::BTreeMap;

use crate::spec::Prefix;

/// Root of the tree of prefixes.
const ROOT: u32 = 0;

/// Finds, for one prompt after the other, the earlier one with the longest common start.
#[derive(Clone, Debug, Default)]
pub struct PrefixIndex {
    /// (node, next id) to the node of the longer prefix; nodes count from one in order of creation.
    children: BTreeMap<(u32, u64), u32>,
    /// By node, the prompt that created it.
    creators: Vec<u32>,
    /// By prompt, its length in tokens.
    lengths: Vec<u32>,
}

impl PrefixIndex {
    /// Adds the next prompt: `prompt_tokens` tokens whose content is `ids`, one id for every `tokens_per_id` tokens (the last
    /// one may stand for fewer). Returns what it has in common with an earlier prompt.
    ///
    /// Prompts must be added in the order of the stream. The ids may stand for the first part of the prompt only.
    pub fn add(
        &mut self,
        prompt_tokens: u32,
        ids: impl IntoIterator<Item = u64>,
        tokens_per_id: u32,
    ) -> Option<Prefix> {
        let prompt = self.lengths.len() as u32;
        self.lengths.push(prompt_tokens);
        let (mut node, mut common) = (ROOT, None);
        for (depth, id) in (1u32..).zip(ids) {
            let created = self.creators.len() as u32 + 1;
            node = *self.children.entry((node, id)).or_insert(created);
            if node == created {
                self.creators.push(prompt);
            } else if let Some(&creator) = self.creators.get(node as usize - 1).filter(|creator| **creator < prompt) {
                common = Some((creator, depth));
            }
        }
        let (source, depth) = common?;
        let tokens = depth.saturating_mul(tokens_per_id).min(prompt_tokens).min(self.lengths[source as usize]);
        Some(Prefix { source, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_common_start_is_found() {
        let mut index = PrefixIndex::default();
        let mut add = |tokens, ids: &[u64]| index.add(tokens, ids.iter().copied(), 512).map(|p| (p.source, p.tokens));
        assert_eq!(add(1400, &[1, 2, 3]), None);
        assert_eq!(add(2000, &[1, 2, 7, 8]), Some((0, 1024)));
        assert_eq!(add(1536, &[1, 2, 7]), Some((1, 1536)));
        assert_eq!(add(600, &[9, 2]), None);
        // The last block of the first prompt is a part of one.
        assert_eq!(add(1500, &[1, 2, 3]), Some((0, 1400)));
        assert_eq!(add(10, &[]), None);
    }
}
