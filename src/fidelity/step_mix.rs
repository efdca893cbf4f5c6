//! Which steps a simulation spent its time on: a small histogram by size of batch and length of context.
//!
//! The simulator only adds integers to it; [`super::provenance`] later asks what steps of these sizes consist of.

use super::grid::OctaveKnots;
use super::step_cost::{BatchShape, StepLine};

/// Octaves of tokens and of contexts: zero, then one cell for each power of two.
type Octaves = OctaveKnots<0>;
/// Steps of 2^18 tokens and more share the last row.
const TOKEN_OCTAVES: usize = 20;
/// Contexts of 2^22 tokens and more share the last column.
const CONTEXT_OCTAVES: usize = 24;

/// Sums over the steps of one cell and over the ranks of a lock-step group. One cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// Engine time.
    ticks: u64,
    steps: u64,
    decode_sequences: u64,
    /// Tokens that the decoding sequences attend to.
    decode_context_tokens: u64,
    chunks: u64,
    chunk_tokens: u64,
    /// Tokens cached before the chunks.
    chunk_context_tokens: u64,
    finishing_chunks: u64,
}

impl Cell {
    /// One step of these batches, with no time yet.
    fn of(batches: &[BatchShape]) -> Self {
        let mut cell = Self { steps: 1, ..Self::default() };
        for batch in batches {
            cell.decode_sequences += u64::from(batch.decode_sequences);
            cell.decode_context_tokens += batch.decode_context_tokens;
            cell.chunks += batch.chunks.len() as u64;
            cell.finishing_chunks += u64::from(batch.finishing_chunks);
            for &(tokens, context) in &batch.chunks {
                cell.chunk_tokens += u64::from(tokens);
                cell.chunk_context_tokens += u64::from(context);
            }
        }
        cell
    }

    fn mean(&self, ranks: u64) -> MeanStep {
        let rank_steps = (self.steps * ranks) as f64;
        let each = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        MeanStep {
            ticks: self.ticks,
            ranks: ranks as f64,
            decode_sequences: self.decode_sequences as f64 / rank_steps,
            decode_context_tokens: each(self.decode_context_tokens, self.decode_sequences),
            chunks: self.chunks as f64 / rank_steps,
            chunk_tokens: each(self.chunk_tokens, self.chunks),
            chunk_context_tokens: each(self.chunk_context_tokens, self.chunks),
            sampled: (self.decode_sequences + self.finishing_chunks) as f64 / rank_steps,
        }
    }
}

/// The mean step of one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanStep {
    /// Engine time of all steps of the cell.
    pub ticks: u64,
    /// Ranks in lock-step.
    pub ranks: f64,
    /// Decoding sequences of one rank.
    pub decode_sequences: f64,
    /// Tokens that one of them attends to.
    pub decode_context_tokens: f64,
    /// Prompt chunks of one rank.
    pub chunks: f64,
    /// New tokens of one chunk.
    pub chunk_tokens: f64,
    /// Tokens cached before a chunk.
    pub chunk_context_tokens: f64,
    /// Rows of logits of one rank.
    pub sampled: f64,
}

impl MeanStep {
    /// Tokens that one rank computes in the step.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.decode_sequences + self.chunks * self.chunk_tokens
    }
}

/// Histogram of engine time over steps: by octave of the tokens computed, by octave of the mean context (of the decoding
/// sequences, or before the chunks where there are any), and by whether there are chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepMix {
    cells: Vec<Cell>,
    ranks: u64,
}

impl StepMix {
    /// Empties the histogram for replicas of this many ranks in lock-step.
    pub fn reset(&mut self, ranks: usize) {
        self.cells.clear();
        self.cells.resize(2 * TOKEN_OCTAVES * CONTEXT_OCTAVES, Cell::default());
        self.ranks = ranks as u64;
    }

    /// Adds consecutive steps whose ranks keep these batches; each decoding sequence grows by one token a step. The
    /// result is the same whether a run is added at once or step by step.
    pub fn add(&mut self, batches: &[BatchShape], line: StepLine, steps: u64) {
        let first = Cell::of(batches);
        let row = Octaves::index(first.decode_sequences + first.chunk_tokens).min(TOKEN_OCTAVES - 1);
        if let Some(context) = first.chunk_context_tokens.checked_div(first.chunks) {
            let column = Octaves::index(context).min(CONTEXT_OCTAVES - 1);
            self.add_to((TOKEN_OCTAVES + row) * CONTEXT_OCTAVES + column, &first, line.total(steps).0, steps);
            return;
        }
        let sequences = first.decode_sequences.max(1);
        let mut done = 0;
        while done < steps {
            let mut here = first;
            here.decode_context_tokens += done * sequences;
            let column = Octaves::index(here.decode_context_tokens / sequences).min(CONTEXT_OCTAVES - 1);
            let in_column = match column {
                column if column == CONTEXT_OCTAVES - 1 => steps - done,
                column => {
                    let end = Octaves::value(column + 1) * sequences;
                    (end - here.decode_context_tokens).div_ceil(sequences).min(steps - done)
                }
            };
            let ticks = line.total(done + in_column).0 - line.total(done).0;
            self.add_to(row * CONTEXT_OCTAVES + column, &here, ticks, in_column);
            done += in_column;
        }
    }

    fn add_to(&mut self, cell: usize, step: &Cell, ticks: u64, steps: u64) {
        let cell = &mut self.cells[cell];
        cell.ticks += ticks;
        cell.steps += steps;
        cell.decode_sequences += steps * step.decode_sequences;
        let growth = step.decode_sequences * (steps * (steps - 1) / 2);
        cell.decode_context_tokens += steps * step.decode_context_tokens + growth;
        cell.chunks += steps * step.chunks;
        cell.chunk_tokens += steps * step.chunk_tokens;
        cell.chunk_context_tokens += steps * step.chunk_context_tokens;
        cell.finishing_chunks += steps * step.finishing_chunks;
    }

    /// The mean step of every cell that has any.
    pub fn steps(&self) -> impl Iterator<Item = MeanStep> {
        self.cells.iter().filter(|cell| cell.steps > 0).map(|cell| cell.mean(self.ranks))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(sequences: u32, context_tokens: u64) -> BatchShape {
        BatchShape { decode_sequences: sequences, decode_context_tokens: context_tokens, ..BatchShape::default() }
    }

    fn line(first: u64, growth: u64) -> StepLine {
        StepLine { first, growth, steps: u64::MAX }
    }

    #[test]
    fn steps_by_hand() {
        let mut mix = StepMix::default();
        mix.reset(2);
        let prompt = BatchShape { chunks: vec![(100, 0), (200, 60)], finishing_chunks: 1, ..decode(4, 80) };
        mix.add(&[prompt, decode(2, 40)], line(500, 0), 1);
        // Contexts 30 and 31, then 32 in the next octave.
        mix.add(&[decode(1, 30), decode(1, 30)], line(10, 1), 3);
        let steps: Vec<MeanStep> = mix.steps().collect();
        assert_eq!(steps.iter().map(|step| step.ticks).collect::<Vec<_>>(), [10 + 11, 12, 500]);
        assert_eq!(steps.iter().map(|step| step.decode_context_tokens).collect::<Vec<_>>(), [30.5, 32.0, 20.0]);
        let mixed = steps[2];
        assert_eq!((mixed.decode_sequences, mixed.chunks, mixed.sampled), (3.0, 1.0, 3.5));
        assert_eq!((mixed.chunk_tokens, mixed.chunk_context_tokens, mixed.tokens()), (150.0, 30.0, 153.0));
    }

    proptest! {
        #[test]
        fn a_run_equals_its_steps(
            sequences in 1u32..40,
            context in 0u64..5000,
            first in 1u64..1000,
            growth in 0u64..5,
            steps in 1u64..3000,
        ) {
            let (mut at_once, mut one_by_one) = (StepMix::default(), StepMix::default());
            at_once.reset(1);
            one_by_one.reset(1);
            let total = u64::from(sequences) * context + u64::from(sequences / 2);
            at_once.add(&[decode(sequences, total)], line(first, growth), steps);
            for step in 0..steps {
                let batch = decode(sequences, total + step * u64::from(sequences));
                one_by_one.add(&[batch], line(first + step * growth, 0), 1);
            }
            prop_assert_eq!(at_once, one_by_one);
        }
    }
}
