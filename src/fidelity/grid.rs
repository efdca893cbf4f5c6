//! Integer look-up grids over token counts, batch sizes and context lengths.
//!
//! The simulator reads ticks and never asks a predictor. Knots sit where a shift finds them, so that a look-up
//! costs a few loads and no search.

/// Token counts up to this one have a knot each: CUDA-graph sizes, GEMM tiles and the steps of forests make jumps that
/// interpolation would smear.
pub const DENSE_TOKENS: u32 = 2048;
/// Tokens of one segment above [`DENSE_TOKENS`]. It has four knots: multiples of four and all others lie on curves of
/// their own, because fp8 kernels copy inputs that are not aligned (up to 25 % of a step).
const SEGMENT_TOKENS: u32 = 8;
/// Tokens of a segment after its start that have knots, for counts that are no multiple of four and for those that are.
const SEGMENT_KNOTS: [[u32; 2]; 2] = [[1, 7], [4, 8]];
/// Knots of one kind in a block of 64 tokens, half the tile of a GEMM: evaluated where a chord does not do.
const BLOCK_KNOTS: usize = 16;
/// A chord does if it misses the knot in its middle by at most 1 / 2^9 of its value.
const TOLERANCE_BITS: u32 = 9;

/// Knots that divide each octave into `2^BITS` equal parts; all integers below `2^BITS` are knots.
#[derive(Clone, Copy, Debug)]
pub struct OctaveKnots<const BITS: u32>;

impl<const BITS: u32> OctaveKnots<BITS> {
    /// Number of the last knot at or below `x`.
    #[must_use]
    pub fn index(x: u64) -> usize {
        if x < 1 << BITS {
            return x as usize;
        }
        let octave = x.ilog2() - BITS;
        ((octave as usize) << BITS) + (x >> octave) as usize
    }

    /// Value of a knot.
    #[must_use]
    pub fn value(index: usize) -> u64 {
        if index < 1 << BITS {
            return index as u64;
        }
        let octave = (index >> BITS) - 1;
        (((index & ((1 << BITS) - 1)) + (1 << BITS)) as u64) << octave
    }

    /// Binary logarithm of the distance from a knot to the next.
    #[must_use]
    pub fn span_bits(index: usize) -> u32 {
        ((index >> BITS) as u32).saturating_sub(1)
    }

    /// All knots from zero to the first one at or above `max`.
    #[must_use]
    pub fn up_to(max: u64) -> Vec<u64> {
        (0..).map(Self::value).take_while(|&knot| knot < max).chain([Self::value(Self::ceiling(max))]).collect()
    }

    fn ceiling(x: u64) -> usize {
        let below = Self::index(x);
        below + usize::from(Self::value(below) < x)
    }
}

/// Ticks as a function of a token count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenGrid {
    /// Zero and every count up to the first segment.
    dense: Vec<u64>,
    /// Knots of all segments, two in each, by [`SEGMENT_KNOTS`].
    coarse: [Vec<u64>; 2],
}

impl TokenGrid {
    /// Evaluates `ticks_of(tokens)` for token counts up to `max_tokens`: all of them up to [`DENSE_TOKENS`], above as
    /// many as its bends ask for. Zero tokens cost nothing.
    pub fn compile(max_tokens: u32, mut ticks_of: impl FnMut(u32) -> u64) -> Self {
        // Graphs pad batches to multiples of 16.
        let base = max_tokens.max(1).next_multiple_of(16).min(DENSE_TOKENS);
        let dense = std::iter::once(0).chain((1..=base).map(&mut ticks_of)).collect();
        let segments = max_tokens.saturating_sub(base).div_ceil(SEGMENT_TOKENS).max(1);
        let coarse = SEGMENT_KNOTS.map(|knots| {
            let position = |(segment, knot)| base + segment * SEGMENT_TOKENS + knot;
            let tokens: Vec<u32> = (0..segments).flat_map(|s| knots.map(|knot| (s, knot))).map(position).collect();
            tokens.chunks(BLOCK_KNOTS).flat_map(|block| block_ticks(block, &mut ticks_of)).collect()
        });
        Self { dense, coarse }
    }

    /// Ticks for `tokens`; beyond the last knot, along the last segment.
    #[must_use]
    pub fn ticks(&self, tokens: u32) -> u64 {
        let base = self.dense.len() as u32 - 1;
        if tokens <= base {
            return self.dense[tokens as usize];
        }
        let kind = usize::from(tokens.is_multiple_of(4));
        let (coarse, [first, second]) = (&self.coarse[kind], SEGMENT_KNOTS[kind]);
        let above = tokens - base;
        let segment = ((above - 1) / SEGMENT_TOKENS).min(coarse.len() as u32 / 2 - 1);
        let offset = i64::from(above) - i64::from(segment * SEGMENT_TOKENS + first);
        let knot = 2 * segment as usize;
        chord([coarse[knot], coarse[knot + 1]], offset, i64::from(second - first))
    }

    /// Adds `count` copies of another grid with the same knots; an empty grid takes over the knots.
    pub fn add_scaled(&mut self, other: &Self, count: u64) {
        add_scaled(&mut self.dense, &other.dense, count);
        for (sum, terms) in self.coarse.iter_mut().zip(&other.coarse) {
            add_scaled(sum, terms, count);
        }
    }
}

/// Ticks at each of these token counts, evaluated or close to a chord between evaluated ones.
fn block_ticks(tokens: &[u32], ticks_of: &mut impl FnMut(u32) -> u64) -> Vec<u64> {
    let last = tokens.len() - 1;
    let mut ticks = vec![0; tokens.len()];
    (ticks[0], ticks[last]) = (ticks_of(tokens[0]), ticks_of(tokens[last]));
    // Stretches between two evaluated knots.
    let mut open = vec![(0, last)];
    while let Some((low, high)) = open.pop() {
        if high - low < 2 {
            continue;
        }
        let middle = low.midpoint(high);
        let on_chord = |ticks: &[u64], low: usize, high: usize, knot: usize| {
            let distance = |knot: usize| i64::from(tokens[knot] - tokens[low]);
            chord([ticks[low], ticks[high]], distance(knot), distance(high))
        };
        let expected = on_chord(&ticks, low, high, middle);
        ticks[middle] = ticks_of(tokens[middle]);
        if ticks[middle].abs_diff(expected) > ticks[middle] >> TOLERANCE_BITS {
            open.extend([(low, middle), (middle, high)]);
            continue;
        }
        for (low, high) in [(low, middle), (middle, high)] {
            for knot in low + 1..high {
                ticks[knot] = on_chord(&ticks, low, high, knot);
            }
        }
    }
    ticks
}

/// A stretch of decode iterations whose duration grows linearly with the total context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeSegment {
    /// Ticks at the current total context.
    pub ticks: u64,
    /// Further ticks for each token that the total context grows.
    pub ticks_per_token: u64,
    /// The segment holds while the total context stays below this many tokens.
    pub end_context_tokens: u64,
}

/// Ticks of decode attention as a function of batch size and total context: linear in the total context between knots
/// of the mean context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodeGrid {
    /// Context knots in a row.
    width: usize,
    /// `rows x width` ticks; row = batch knot, column = mean-context knot.
    ticks: Vec<u64>,
}

/// Batch knots: eight per octave.
type BatchKnots = OctaveKnots<3>;
/// Mean-context knots: four per octave.
type ContextKnots = OctaveKnots<2>;

impl DecodeGrid {
    /// Evaluates `ticks_of(batch, mean context)` at every knot up to the given limits.
    pub fn compile(max_batch: u32, max_context: u32, mut ticks_of: impl FnMut(u32, u32) -> u64) -> Self {
        let batches = BatchKnots::up_to(u64::from(max_batch) + 1);
        // One context knot beyond the limit closes the last segment.
        let mut contexts = ContextKnots::up_to(u64::from(max_context) + 1);
        contexts.push(ContextKnots::value(contexts.len()));
        let mut ticks = Vec::with_capacity(batches.len() * contexts.len());
        for &batch in &batches {
            // Attention time never falls with context; a fitted predictor may dip by its noise.
            let mut floor = 0;
            for &context in &contexts {
                floor = if batch == 0 { 0 } else { floor.max(ticks_of(batch as u32, context.max(1) as u32)) };
                ticks.push(floor);
            }
        }
        Self { width: contexts.len(), ticks }
    }

    /// Adds `count` copies of another grid with the same knots; an empty grid takes over the knots.
    pub fn add_scaled(&mut self, other: &Self, count: u64) {
        self.width = other.width;
        add_scaled(&mut self.ticks, &other.ticks, count);
    }

    /// The segment that holds for `batch` sequences with `total_context` tokens attended to in all.
    ///
    /// Zero sequences cost nothing, for ever.
    #[must_use]
    pub fn segment(&self, batch: u32, total_context: u64) -> DecodeSegment {
        if batch == 0 {
            return DecodeSegment { ticks: 0, ticks_per_token: 0, end_context_tokens: u64::MAX };
        }
        let batch = u64::from(batch);
        let column = ContextKnots::index(total_context / batch).min(self.width - 2);
        let (low, high) = (ContextKnots::value(column), ContextKnots::value(column + 1));
        let (start, end) = (self.at_batch(batch, column), self.at_batch(batch, column + 1));
        let span = (high - low) * batch;
        let ticks_per_token = (end.saturating_sub(start) + span / 2) / span;
        let last = column == self.width - 2;
        DecodeSegment {
            ticks: start + ticks_per_token * (total_context - low * batch),
            ticks_per_token,
            end_context_tokens: if last { u64::MAX } else { high * batch },
        }
    }

    /// Ticks of a column at any batch size, between the two nearest batch knots.
    fn at_batch(&self, batch: u64, column: usize) -> u64 {
        let rows = self.ticks.len() / self.width;
        let row = BatchKnots::index(batch).min(rows - 2);
        let at = |row: usize| self.ticks[row * self.width + column];
        interpolate(at(row), at(row + 1), batch - BatchKnots::value(row), BatchKnots::span_bits(row))
    }
}

/// Ticks of prefill attention of one chunk on top of a context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefillGrid {
    width: usize,
    ticks: Vec<u64>,
}

/// Chunk knots: eight per octave, because work grows with the square of the chunk.
type ChunkKnots = OctaveKnots<3>;

impl PrefillGrid {
    /// Evaluates `ticks_of(chunk, context)` at every knot up to the given limits.
    pub fn compile(max_chunk: u32, max_context: u32, mut ticks_of: impl FnMut(u32, u32) -> u64) -> Self {
        let chunks = ChunkKnots::up_to(u64::from(max_chunk) + 1);
        let contexts = ContextKnots::up_to(u64::from(max_context) + 1);
        let mut ticks = Vec::with_capacity(chunks.len() * contexts.len());
        for &chunk in &chunks {
            for &context in &contexts {
                ticks.push(if chunk == 0 { 0 } else { ticks_of(chunk as u32, context as u32) });
            }
        }
        Self { width: contexts.len(), ticks }
    }

    /// Adds `count` copies of another grid with the same knots; an empty grid takes over the knots.
    pub fn add_scaled(&mut self, other: &Self, count: u64) {
        self.width = other.width;
        add_scaled(&mut self.ticks, &other.ticks, count);
    }

    /// Ticks for a chunk of new tokens on top of `context` cached ones; beyond the knots, along the last segments.
    #[must_use]
    pub fn ticks(&self, chunk: u32, context: u32) -> u64 {
        if chunk == 0 {
            return 0;
        }
        let (chunk, context) = (u64::from(chunk), u64::from(context));
        let rows = self.ticks.len() / self.width;
        let row = ChunkKnots::index(chunk).min(rows - 2);
        let column = ContextKnots::index(context).min(self.width - 2);
        let across = |row: usize| {
            let at = row * self.width + column;
            let offset = context - ContextKnots::value(column);
            interpolate(self.ticks[at], self.ticks[at + 1], offset, ContextKnots::span_bits(column))
        };
        interpolate(across(row), across(row + 1), chunk - ChunkKnots::value(row), ChunkKnots::span_bits(row))
    }
}

fn add_scaled(sum: &mut Vec<u64>, terms: &[u64], count: u64) {
    sum.resize(terms.len(), 0);
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += count * term;
    }
}

/// `start + (end - start) * offset / 2^span_bits`, rounded down; also where `end` is below `start` or `offset` beyond
/// the span, but never negative.
///
/// All knots are powers of two apart, so that no look-up divides. A change of 2^43 ticks (two hours) times an offset of
/// 2^20 still fits 63 bits.
fn interpolate(start: u64, end: u64, offset: u64, span_bits: u32) -> u64 {
    let change = (end as i64 - start as i64) * offset as i64;
    (start as i64 + (change >> span_bits)).max(0) as u64
}

/// `start + (end - start) * offset / span`, rounded down and never negative; also outside the span.
fn chord([start, end]: [u64; 2], offset: i64, span: i64) -> u64 {
    (start as i64 + ((end as i64 - start as i64) * offset).div_euclid(span)).max(0) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn octave_knots_by_hand() {
        let knots: Vec<u64> = (0..14).map(OctaveKnots::<2>::value).collect();
        assert_eq!(knots, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]);
        assert_eq!(OctaveKnots::<2>::index(9), 8);
        assert_eq!(OctaveKnots::<2>::index(10), 9);
        assert_eq!(OctaveKnots::<2>::up_to(11), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12]);
    }

    #[test]
    fn a_smooth_curve_needs_few_knots() {
        let mut evaluations = 0;
        TokenGrid::compile(8192, |tokens| {
            evaluations += 1;
            u64::from(tokens) * 1000
        });
        // Every count up to 2,048, then three of each kind for every 64 tokens.
        assert_eq!(evaluations, 2048 + 96 * 2 * 3);
    }

    proptest! {
        #[test]
        fn an_index_is_the_last_knot_at_or_below(x in 0u64..1 << 40) {
            let index = OctaveKnots::<3>::index(x);
            prop_assert!(OctaveKnots::<3>::value(index) <= x);
            prop_assert!(OctaveKnots::<3>::value(index + 1) > x);
            let distance = OctaveKnots::<3>::value(index + 1) - OctaveKnots::<3>::value(index);
            prop_assert_eq!(distance, 1 << OctaveKnots::<3>::span_bits(index));
        }

        #[test]
        fn a_token_grid_reproduces_a_line(tokens in 1u32..20_000) {
            let grid = TokenGrid::compile(8192, |tokens| 1000 + 7 * u64::from(tokens));
            prop_assert_eq!(grid.ticks(tokens), 1000 + 7 * u64::from(tokens));
        }

        #[test]
        fn a_token_grid_follows_jumps_and_unaligned_inputs(tokens in 1u32..8192, jump in 2049u32..8192) {
            let curve = |tokens: u32| {
                let aligned = if tokens.is_multiple_of(4) { 0 } else { 200_000 };
                let after = if tokens > jump { 300_000 } else { 0 };
                1_000_000 + 700 * u64::from(tokens) + aligned + after
            };
            let grid = TokenGrid::compile(8192, curve);
            // The jump is smeared over its own segment only.
            if tokens.abs_diff(jump) > SEGMENT_TOKENS {
                prop_assert!(grid.ticks(tokens).abs_diff(curve(tokens)) <= curve(tokens) / 256);
            }
        }

        #[test]
        fn a_segment_holds_until_its_end(batch in 1u32..300, mean in 1u64..9000, steps in 1u64..500) {
            let curve = |batch: u32, context: u32| 5000 + u64::from(batch) * (900 + 13 * u64::from(context));
            let grid = DecodeGrid::compile(256, 8192, curve);
            let total = u64::from(batch) * mean;
            let segment = grid.segment(batch, total);
            let later = total + steps * u64::from(batch);
            if later < segment.end_context_tokens {
                let expected = segment.ticks + segment.ticks_per_token * (later - total);
                prop_assert_eq!(grid.segment(batch, later).ticks, expected);
            }
            let exact = curve(batch, mean as u32);
            prop_assert!(segment.ticks.abs_diff(exact) <= exact / 500, "{} against {exact}", segment.ticks);
        }

        #[test]
        fn a_prefill_grid_is_close_to_a_quadratic(chunk in 16u32..8192, context in 0u32..32_768) {
            let curve = |chunk: u32, context: u32| u64::from(chunk) * (2 * u64::from(context) + u64::from(chunk));
            let grid = PrefillGrid::compile(8192, 32_768, curve);
            let exact = curve(chunk, context);
            // The chord of x^2 over [a, 9a/8] lies at most (a/8)^2 / 4 above it.
            prop_assert!(grid.ticks(chunk, context).abs_diff(exact) <= exact / 250);
        }
    }
}
