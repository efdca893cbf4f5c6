//! The prefix cache of one engine: which full KV blocks it can find again, as vLLM V1 keeps them
//! (`vllm/v1/core/block_pool.py`, `kv_cache_manager.py`).
//!
//! A request's tokens are a path in the tree of prefixes; each request owns the blocks of its path after those that it
//! shares with its source. Blocks in use are counted by reference. A block without references is idle: it stays findable,
//! in order of its last use, until its memory is needed. A request gives back its last block first, and whoever uses a
//! block uses all before it, so the idle block that goes first never has a findable one behind it: what is cached of the
//! blocks a request owns is always their beginning, and one number says how long that is.
//!
//! Two simplifications: memory that holds nothing findable is taken before any idle block is evicted, and two requests
//! that compute the same block share it (vLLM keeps both copies).

use std::ops::Range;

use super::request::{NONE, RequestState};

/// The blocks that one request owns.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// First of its entries in `blocks`; `NONE` until one of them is cached.
    base: u32,
    /// How many are cached: the first so many.
    cached: u32,
}

/// One block of content.
#[derive(Clone, Copy, Debug)]
struct Block {
    segment: u32,
    /// Running requests that use it.
    references: u32,
    /// Neighbours among the idle blocks.
    previous: u32,
    next: u32,
}

/// What an engine remembers of earlier requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixCache {
    enabled: bool,
    block_size: u32,
    /// By request.
    segments: Vec<Segment>,
    blocks: Vec<Block>,
    /// Idle blocks, the least recently used first.
    head: u32,
    tail: u32,
    idle: u64,
}

/// Windows of the first `end` blocks of a request's path, the deepest first: the owner, and the blocks of the path that
/// are its own.
fn windows(requests: &[RequestState], index: u32, end: u32) -> impl Iterator<Item = (u32, Range<u32>)> {
    let (mut index, mut end) = (index, end);
    std::iter::from_fn(move || {
        while end > 0 {
            let request = &requests[index as usize];
            let (owner, window) = (index, request.own_from.min(end)..end);
            (index, end) = (request.source, window.start);
            if !window.is_empty() {
                return Some((owner, window));
            }
        }
        None
    })
}

impl PrefixCache {
    /// Forgets everything. Without `enabled` nothing is ever found, and nothing costs time.
    pub(crate) fn reset(&mut self, enabled: bool, block_size: u32, requests: usize) {
        (self.enabled, self.block_size) = (enabled, block_size);
        self.segments.clear();
        self.segments.resize(if enabled { requests } else { 0 }, Segment { base: NONE, cached: 0 });
        self.blocks.clear();
        (self.head, self.tail, self.idle) = (NONE, NONE, 0);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// How many of the first `end` blocks of a request's path are cached.
    pub(crate) fn cached(&self, requests: &[RequestState], index: u32, end: u32) -> u32 {
        if !self.enabled {
            return 0;
        }
        let mut found = windows(requests, index, end).map(|(owner, window)| {
            let cached = self.segments[owner as usize].cached;
            if cached > 0 { window.end.min(window.start + cached) } else { 0 }
        });
        found.find(|end| *end > 0).unwrap_or(0)
    }

    /// How many blocks of memory a request takes when it uses the blocks `range` of its path, of which those before
    /// `cached` are cached: the new ones, and the idle ones.
    pub(crate) fn demand(&self, requests: &[RequestState], index: u32, range: Range<u32>, cached: u32) -> u32 {
        let cached = cached.clamp(range.start, range.end);
        let mut demand = range.end - cached;
        for (owner, window) in windows(requests, index, cached) {
            for block in (window.start.max(range.start)..window.end).rev() {
                if self.blocks[self.slot(requests, owner, block)].references > 0 {
                    // Those before it are in use too.
                    return demand;
                }
                demand += 1;
            }
        }
        demand
    }

    /// Lets a request use the blocks `range` of its path, of which those before `cached` are cached; the others become so.
    pub(crate) fn acquire(&mut self, requests: &[RequestState], index: u32, range: Range<u32>, cached: u32) {
        for (owner, window) in windows(requests, index, range.end) {
            for block in window.start.max(range.start)..window.end {
                if block < cached {
                    let slot = self.slot(requests, owner, block);
                    if self.blocks[slot].references == 0 {
                        self.unlink(slot as u32);
                    }
                    self.blocks[slot].references += 1;
                } else {
                    let slot = self.add(requests, owner, block);
                    self.blocks[slot].references = 1;
                }
            }
        }
    }

    /// A request stops using the first `referenced` blocks of its path; those from there to `full` were its alone, hold
    /// what it generated and become findable. Returns how many of the referenced ones nobody uses any more.
    pub(crate) fn release(&mut self, requests: &[RequestState], index: u32, referenced: u32, full: u32) -> u32 {
        let mut freed = 0;
        for (owner, window) in windows(requests, index, full) {
            // From the front, because what is cached is a beginning.
            let cached = self.segments[owner as usize].cached;
            for block in referenced.max(window.start + cached).max(window.start)..window.end {
                self.add(requests, owner, block);
            }
            for block in window.clone().rev() {
                let slot = self.slot(requests, owner, block);
                let was_cached = block < window.start + cached;
                if block < referenced {
                    self.blocks[slot].references -= 1;
                    freed += u32::from(self.blocks[slot].references == 0);
                } else if was_cached && self.blocks[slot].references == 0 {
                    self.unlink(slot as u32);
                }
                if self.blocks[slot].references == 0 {
                    self.push(slot as u32);
                }
            }
        }
        freed
    }

    /// Evicts idle blocks until `free` blocks of memory hold the rest.
    pub(crate) fn fit(&mut self, free: u64) {
        while self.idle > free {
            let slot = self.head;
            self.unlink(slot);
            let segment = &mut self.segments[self.blocks[slot as usize].segment as usize];
            segment.cached -= 1;
            debug_assert_eq!(segment.base + segment.cached, slot, "a block is evicted before one that follows it");
        }
    }

    /// Entry of a block whose owner has entries.
    fn slot(&self, requests: &[RequestState], owner: u32, block: u32) -> usize {
        (self.segments[owner as usize].base + block - requests[owner as usize].own_from) as usize
    }

    /// Makes the owner's first uncached block cached, without references.
    fn add(&mut self, requests: &[RequestState], owner: u32, block: u32) -> usize {
        let segment = &mut self.segments[owner as usize];
        if segment.base == NONE {
            segment.base = self.blocks.len() as u32;
            let request = &requests[owner as usize];
            let own = request.tokens() / self.block_size - request.own_from;
            let block = Block { segment: owner, references: 0, previous: NONE, next: NONE };
            self.blocks.resize(self.blocks.len() + own as usize, block);
        }
        debug_assert_eq!(segment.cached, block - requests[owner as usize].own_from, "a hole in a prefix");
        segment.cached += 1;
        self.slot(requests, owner, block)
    }

    fn push(&mut self, slot: u32) {
        let tail = self.tail;
        match tail {
            NONE => self.head = slot,
            tail => self.blocks[tail as usize].next = slot,
        }
        let block = &mut self.blocks[slot as usize];
        (block.previous, block.next) = (tail, NONE);
        self.tail = slot;
        self.idle += 1;
    }

    fn unlink(&mut self, slot: u32) {
        let Block { previous, next, .. } = self.blocks[slot as usize];
        match previous {
            NONE => self.head = next,
            previous => self.blocks[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.blocks[next as usize].previous = previous,
        }
        self.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::units::Ticks;
    use crate::workload::{Prefix, Request};

    const BLOCK: u32 = 4;

    /// Prompt, output, and source and length of the prefix; lengths in blocks.
    type Row = (u32, u32, Option<(u32, u32)>);

    fn requests(rows: &[Row]) -> Vec<RequestState> {
        let state = |&(prompt, output, prefix): &Row| {
            let request =
                Request { arrival: Ticks::ZERO, prompt_tokens: prompt * BLOCK, output_tokens: output * BLOCK };
            let prefix = prefix.map(|(source, blocks)| Prefix { source, tokens: blocks * BLOCK });
            RequestState::new(&request, prefix, BLOCK, true)
        };
        rows.iter().map(state).collect()
    }

    fn cache(requests: &[RequestState]) -> PrefixCache {
        let mut cache = PrefixCache::default();
        cache.reset(true, BLOCK, requests.len());
        cache
    }

    #[test]
    fn a_later_turn_finds_prompt_and_answer_of_the_turn_before() {
        let requests = requests(&[(3, 2, None), (8, 1, Some((0, 5)))]);
        let mut cache = cache(&requests);
        cache.acquire(&requests, 0, 0..3, 0);
        assert_eq!(cache.cached(&requests, 1, 8), 3);
        // Used by the first: shared for nothing; the rest is new.
        assert_eq!(cache.demand(&requests, 1, 0..8, 3), 5);
        assert_eq!(cache.release(&requests, 0, 3, 5), 3);
        assert_eq!(cache.cached(&requests, 1, 8), 5);
        assert_eq!(cache.demand(&requests, 1, 0..8, 5), 8);
    }

    #[test]
    fn the_least_recently_used_path_goes_first_and_from_its_end() {
        // Two users of one system prompt of two blocks.
        let requests = requests(&[(4, 1, None), (5, 1, Some((0, 2))), (6, 1, Some((0, 2)))]);
        let mut cache = cache(&requests);
        cache.acquire(&requests, 0, 0..4, 0);
        cache.release(&requests, 0, 4, 4);
        cache.acquire(&requests, 1, 0..5, 2);
        cache.release(&requests, 1, 5, 5);
        // Idle: two own blocks of 0, three of 1, two shared.
        cache.fit(6);
        assert_eq!(cache.cached(&requests, 0, 4), 3);
        cache.fit(4);
        assert_eq!((cache.cached(&requests, 0, 4), cache.cached(&requests, 1, 5)), (2, 4));
        cache.fit(1);
        assert_eq!(cache.cached(&requests, 2, 6), 1);
        cache.fit(0);
        assert_eq!(cache.cached(&requests, 2, 6), 0);
    }

    #[test]
    fn blocks_in_use_are_not_evicted() {
        let requests = requests(&[(4, 1, None), (4, 1, Some((0, 3)))]);
        let mut cache = cache(&requests);
        cache.acquire(&requests, 0, 0..4, 0);
        cache.acquire(&requests, 1, 0..4, 3);
        assert_eq!(cache.release(&requests, 0, 4, 4), 1);
        cache.fit(0);
        assert_eq!(cache.cached(&requests, 0, 4), 3);
        assert_eq!(cache.release(&requests, 1, 4, 4), 4);
    }

    /// The same cache, block by block: a block is known by all of the content up to its end.
    #[derive(Default)]
    struct Naive {
        /// Findable blocks without users, the least recently used first.
        idle: Vec<Vec<u32>>,
        /// Blocks in use, once for each user.
        used: Vec<Vec<u32>>,
    }

    impl Naive {
        fn fit(&mut self, free: usize) {
            while self.idle.len() > free {
                self.idle.remove(0);
            }
        }

        fn cached(&self, path: &[u32]) -> usize {
            let known = |end: &usize| self.idle.iter().chain(&self.used).any(|block| block == &path[..*end]);
            (1..=path.len()).take_while(known).count()
        }

        fn acquire(&mut self, path: &[u32]) {
            for end in 1..=path.len() {
                self.idle.retain(|block| block != &path[..end]);
                self.used.push(path[..end].to_vec());
            }
        }

        /// Stops using the whole path, of which the first `referenced` blocks were acquired.
        fn release(&mut self, path: &[u32], referenced: usize) {
            for end in (1..=path.len()).rev() {
                if end <= referenced {
                    let place = self.used.iter().position(|block| block == &path[..end]).expect("in use");
                    self.used.remove(place);
                }
                if !self.used.iter().any(|block| block == &path[..end]) {
                    self.idle.retain(|block| block != &path[..end]);
                    self.idle.push(path[..end].to_vec());
                }
            }
        }

        fn blocks_in_use(&self) -> u32 {
            self.used.iter().collect::<BTreeSet<_>>().len() as u32
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_cache_that_compares_contents(
            rows in prop::collection::vec((1u32..7, 0u32..4, any::<u32>(), any::<u32>()), 2..12),
            actions in prop::collection::vec((any::<u32>(), 0u64..12), 1..60),
        ) {
            let mut built: Vec<Row> = Vec::new();
            // Content of prompt and output of each request, one number a block.
            let mut contents: Vec<Vec<u32>> = Vec::new();
            for (index, &(prompt, output, source, blocks)) in rows.iter().enumerate() {
                let source = source % (index as u32 + 1);
                let most = contents.get(source as usize).map_or(0, |content| (content.len() as u32).min(prompt));
                let shared = blocks % (most + 1);
                let mut content: Vec<u32> = contents.get(source as usize).map_or(Vec::new(), |c| c[..shared as usize].to_vec());
                content.extend((shared..prompt + output).map(|block| index as u32 * 100 + block));
                contents.push(content);
                built.push((prompt, output, (shared > 0).then_some((source, shared))));
            }
            let requests = requests(&built);
            let (mut cache, mut naive) = (cache(&requests), Naive::default());
            let mut running: Vec<bool> = vec![false; built.len()];
            let mut in_use = 0;
            for (action, free) in actions {
                let index = action % built.len() as u32;
                let (prompt, output, _) = built[index as usize];
                let content = &contents[index as usize];
                cache.fit(free);
                naive.fit(free as usize);
                let path = &content[..prompt as usize];
                let found = cache.cached(&requests, index, prompt);
                prop_assert_eq!(found as usize, naive.cached(path));
                if running[index as usize] {
                    in_use -= cache.release(&requests, index, prompt, prompt + output);
                    naive.release(content, prompt as usize);
                } else {
                    in_use += cache.demand(&requests, index, 0..prompt, found);
                    cache.acquire(&requests, index, 0..prompt, found);
                    naive.acquire(path);
                }
                running[index as usize] = !running[index as usize];
                prop_assert_eq!(cache.idle as usize, naive.idle.len());
                prop_assert_eq!(in_use, naive.blocks_in_use());
            }
        }
    }
}
