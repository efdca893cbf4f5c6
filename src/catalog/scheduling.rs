//! How an engine version schedules and which batches it captures as CUDA graphs: data per version, not code.

use serde::Deserialize;

/// Settings of a scheduler policy. Read from `profiles/engines/NAME.toml`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulingRules {
    /// Most tokens of one prompt in one step; zero: as many as fit (`long_prefill_token_threshold` of vLLM).
    pub long_prefill_token_threshold: u32,
    /// A prompt is admitted only when the blocks of all of it are free, not just those of its first chunk
    /// (`scheduler_reserve_full_isl` of vLLM).
    pub reserve_full_prompt: bool,
    /// What an engine that admits by expected output expects.
    pub expected_output: ExpectedOutput,
}

/// The share of its remaining output that each running request is expected to need before memory gets free (SGLang's
/// `new_token_ratio`). It falls with every decode step, and rises when the expectation was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedOutput {
    /// Share of an engine that was idle.
    pub initial_share: f64,
    /// Where it stops falling.
    pub least_share: f64,
    /// Decode steps in which it falls from one to the other.
    pub decay_steps: u32,
    /// Output of one request counts up to this length, in tokens.
    pub longest_tokens: u32,
    /// After a preemption the share is what was generated so far, and so many steps more, of all that may come.
    pub steps_after_preemption: u32,
}

impl ExpectedOutput {
    /// The share after `steps` decode steps from `start`.
    #[must_use]
    pub fn share(&self, start: f64, steps: u64) -> f64 {
        let fall = (self.initial_share - self.least_share) / f64::from(self.decay_steps.max(1));
        (start - fall * steps as f64).max(self.least_share)
    }
}

/// Which batches replay a captured CUDA graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphCapture {
    /// Captured batch sizes in tokens, ascending; never empty.
    pub sizes: Vec<u32>,
    /// Captured up to so many tokens for each sequence of `max_num_seqs`; zero: no such bound.
    pub tokens_per_sequence: u32,
    /// Only batches without prompts replay graphs; otherwise prompts are replayed too, piece by piece around attention.
    pub decode_only: bool,
}

impl GraphCapture {
    /// The graph that a batch of `tokens` replays, by its size; `None` if the batch is too large.
    #[must_use]
    pub fn size_of(&self, tokens: u32, max_num_seqs: u32) -> Option<u32> {
        let most = match self.tokens_per_sequence {
            0 => u32::MAX,
            factor => max_num_seqs.saturating_mul(factor),
        };
        let size = self.sizes.get(self.sizes.partition_point(|size| *size < tokens))?;
        (tokens <= most).then_some(*size)
    }
}

/// How ranks of data-parallel attention bring their tokens to the experts and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertExchange {
    /// Every rank broadcasts its hidden states and router scores in turn; an all-reduce combines (vLLM's `naive`).
    Broadcasts,
    /// All-gathers of hidden states and router scores; a reduce-scatter combines (vLLM's `allgather_reducescatter`).
    #[default]
    AllGatherReduceScatter,
    /// Tokens travel to the ranks of their experts only, and back (DeepEP and its like).
    AllToAll,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_padded_to_the_next_graph() {
        let graphs = GraphCapture { sizes: vec![1, 2, 4, 8, 16], tokens_per_sequence: 2, decode_only: false };
        assert_eq!(
            [1, 3, 9, 16, 17].map(|tokens| graphs.size_of(tokens, 64)),
            [Some(1), Some(4), Some(16), Some(16), None]
        );
        assert_eq!([8, 9].map(|tokens| graphs.size_of(tokens, 4)), [Some(8), None]);
    }

    #[test]
    fn the_expected_share_falls_to_its_minimum() {
        let expected = ExpectedOutput { initial_share: 0.7, least_share: 0.1, decay_steps: 600, ..Default::default() };
        assert!((expected.share(0.7, 300) - 0.4).abs() < 1e-12);
        assert_eq!(expected.share(1.0, 10_000), 0.1);
    }
}
