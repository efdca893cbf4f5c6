//! A decode cohort: the sequences of one pipeline lane that produce one token each per iteration.
//!
//! Nothing is touched per sequence and iteration. The cohort counts iterations; a member's context, its next KV block and
//! its end follow from the iteration at which it joined. That makes an iteration O(1) and k iterations closed form.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::request::RequestState;

/// Members of one lane that decode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cohort {
    iteration: u64,
    sequences: u32,
    /// Members that are measured, i.e. no warm-up.
    measured: u32,
    /// Cached tokens of all members.
    cached_tokens: u64,
    /// Members by the residue of the iteration at which they need a new block.
    residues: Vec<u32>,
    /// (iteration at which the last token is out, member); entries of members that left early are stale.
    endings: BinaryHeap<Reverse<(u64, u32)>>,
}

/// KV blocks that iterations allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockGrowth {
    /// Blocks allocated in all.
    pub(crate) blocks: u64,
    /// Sum over the iterations of the blocks allocated since the start.
    pub(crate) cumulative: u64,
}

impl Cohort {
    pub(crate) fn reset(&mut self, block_size: u32) {
        self.iteration = 0;
        self.sequences = 0;
        self.measured = 0;
        self.cached_tokens = 0;
        self.residues.clear();
        self.residues.resize(block_size as usize, 0);
        self.endings.clear();
    }

    pub(crate) fn sequences(&self) -> u32 {
        self.sequences
    }

    pub(crate) fn measured(&self) -> u32 {
        self.measured
    }

    /// Tokens that the members attend to in the next iteration, the new tokens included.
    pub(crate) fn attended_tokens(&self) -> u64 {
        self.cached_tokens + u64::from(self.sequences)
    }

    /// Adds a member with `cached` tokens of context that will produce `remaining` tokens.
    pub(crate) fn join(&mut self, index: u32, request: &mut RequestState, cached: u32, remaining: u32) {
        request.joined = self.iteration;
        request.cached_at_join = cached;
        self.sequences += 1;
        self.measured += u32::from(request.measured);
        self.cached_tokens += u64::from(cached);
        let residue = self.residue(request);
        self.residues[residue] += 1;
        self.endings.push(Reverse((self.iteration + u64::from(remaining), index)));
    }

    /// Removes a member; its entry among the endings stays and turns stale.
    fn remove(&mut self, request: &RequestState) {
        self.sequences -= 1;
        self.measured -= u32::from(request.measured);
        self.cached_tokens -= u64::from(self.cached(request));
        let residue = self.residue(request);
        self.residues[residue] -= 1;
    }

    /// Removes a member before its end.
    pub(crate) fn leave(&mut self, index: u32, request: &RequestState) {
        self.remove(request);
        self.endings.retain(|Reverse((_, member))| *member != index);
    }

    /// Removes and returns a member whose last token is out, the lowest index first.
    pub(crate) fn pop_ended(&mut self, requests: &[RequestState]) -> Option<u32> {
        let &Reverse((end, index)) = self.endings.peek()?;
        if end > self.iteration {
            return None;
        }
        self.endings.pop();
        self.remove(&requests[index as usize]);
        Some(index)
    }

    /// Iterations until the next member ends.
    pub(crate) fn iterations_to_next_end(&self) -> u64 {
        self.endings.peek().map_or(u64::MAX, |Reverse((end, _))| end - self.iteration)
    }

    pub(crate) fn advance(&mut self, iterations: u64) {
        self.iteration += iterations;
        self.cached_tokens += iterations * u64::from(self.sequences);
    }

    /// Cached tokens of a member now.
    pub(crate) fn cached(&self, request: &RequestState) -> u32 {
        request.cached_at_join + self.produced(request)
    }

    /// Tokens a member has produced in this cohort.
    pub(crate) fn produced(&self, request: &RequestState) -> u32 {
        (self.iteration - request.joined) as u32
    }

    /// Whether a member needs a new block in the next iteration.
    pub(crate) fn needs_block(&self, request: &RequestState) -> bool {
        self.residue(request) == self.residue_at(0)
    }

    /// Blocks that the next iteration needs.
    pub(crate) fn blocks_of_next_iteration(&self) -> u32 {
        self.residues[self.residue_at(0)]
    }

    /// Blocks that the `iterations` iterations after the next one need.
    pub(crate) fn growth_after_next(&self, iterations: u64) -> BlockGrowth {
        let block_size = self.residues.len() as u64;
        let mut growth = BlockGrowth::default();
        for offset in 1..=iterations.min(block_size) {
            let members = u64::from(self.residues[self.residue_at(offset)]);
            // This residue comes up at `offset`, `offset + block_size`, ... up to `iterations`.
            let times = (iterations - offset) / block_size + 1;
            growth.blocks += members * times;
            // A block allocated at iteration i counts in i, i + 1, ..., `iterations`.
            let first = iterations - offset + 1;
            growth.cumulative += members * (times * first - block_size * (times * (times - 1) / 2));
        }
        growth
    }

    /// The most iterations, the next one included, that `free` blocks allow; the next one has its blocks already.
    pub(crate) fn iterations_within(&self, free: u64, wanted: u64) -> u64 {
        if self.sequences == 0 {
            return wanted;
        }
        // Bounding from above by one block per member and cycle settles the common case.
        let cycles = wanted.min(1 << 32) / self.residues.len() as u64 + 1;
        if cycles * u64::from(self.sequences) <= free {
            return wanted;
        }
        let (mut low, mut high) = (1, wanted);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.growth_after_next(middle - 1).blocks <= free { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// A member needs a block at the iterations congruent to this residue: those at which its cached tokens fill whole
    /// blocks.
    fn residue(&self, request: &RequestState) -> usize {
        let block_size = self.residues.len() as u64;
        ((request.joined + block_size - u64::from(request.cached_at_join) % block_size) % block_size) as usize
    }

    fn residue_at(&self, offset: u64) -> usize {
        ((self.iteration + offset) % self.residues.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Ticks;
    use crate::workload::Request;

    fn request() -> RequestState {
        RequestState::new(&Request { arrival: Ticks::ZERO, prompt_tokens: 1, output_tokens: 1 }, None, 16, true)
    }

    #[test]
    fn a_member_needs_a_block_when_its_blocks_are_full() {
        let mut cohort = Cohort::default();
        cohort.reset(4);
        let mut member = request();
        cohort.join(0, &mut member, 6, 100);
        let mut needed = Vec::new();
        for _ in 0..8 {
            needed.push(cohort.needs_block(&member));
            cohort.advance(1);
        }
        // Cached 6, 7, 8: the ninth token opens the third block.
        assert_eq!(needed, [false, false, true, false, false, false, true, false]);
        assert_eq!(cohort.cached(&member), 14);
    }

    #[test]
    fn members_end_in_order_and_leavers_do_not_end() {
        let mut cohort = Cohort::default();
        cohort.reset(16);
        let mut members = [request(), request(), request()];
        for (index, remaining) in [(0, 5), (1, 3), (2, 3)] {
            cohort.join(index, &mut members[index as usize], 10, remaining);
        }
        assert_eq!(cohort.iterations_to_next_end(), 3);
        cohort.leave(1, &members[1]);
        cohort.advance(3);
        assert_eq!(cohort.pop_ended(&members), Some(2));
        assert_eq!(cohort.pop_ended(&members), None);
        assert_eq!((cohort.sequences(), cohort.attended_tokens()), (1, 14));
    }

    proptest! {
        #[test]
        fn block_growth_equals_stepping(
            block_size in 1u32..20,
            contexts in prop::collection::vec(1u32..200, 1..12),
            start in 0u64..40,
            iterations in 0u64..100,
            free in 0u64..60,
        ) {
            let mut cohort = Cohort::default();
            cohort.reset(block_size);
            cohort.advance(start);
            let mut members = vec![request(); contexts.len()];
            for (index, (member, &cached)) in members.iter_mut().zip(&contexts).enumerate() {
                cohort.join(index as u32, member, cached, 1000);
            }
            let expected = cohort.growth_after_next(iterations);
            let most = cohort.iterations_within(free, iterations + 1);
            let (mut blocks, mut cumulative, mut affordable) = (0, 0, 1);
            for step in 1..=iterations {
                cohort.advance(1);
                blocks += u64::from(cohort.blocks_of_next_iteration());
                prop_assert_eq!(
                    cohort.blocks_of_next_iteration() as usize,
                    members.iter().filter(|member| cohort.cached(member).is_multiple_of(block_size)).count()
                );
                cumulative += blocks;
                if blocks <= free {
                    affordable = step + 1;
                }
            }
            prop_assert_eq!(expected, BlockGrowth { blocks, cumulative });
            prop_assert_eq!(most, affordable);
        }
    }
}
