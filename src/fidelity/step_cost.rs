//! Duration of an engine step: compiled once per hardware key, looked up for every batch.

use crate::catalog::{GraphCapture, HostOverhead, Layer};
use crate::memory::stage_layers;
use crate::units::Ticks;

use super::grid::{DecodeGrid, PrefillGrid, TokenGrid};
use super::layer_operators::Sharding;
use super::operator::Operator;

/// The batch of one engine in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchShape {
    /// Sequences that decode one token each.
    pub decode_sequences: u32,
    /// Tokens they attend to in all, the new ones included.
    pub decode_context_tokens: u64,
    /// Prompt chunks: new tokens, and tokens already cached before them.
    pub chunks: Vec<(u32, u32)>,
    /// Chunks that end their prompt and so are sampled from.
    pub finishing_chunks: u32,
}

impl BatchShape {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.decode_sequences = 0;
        self.decode_context_tokens = 0;
        self.chunks.clear();
        self.finishing_chunks = 0;
    }

    /// Tokens computed in the step.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.decode_sequences + self.chunks.iter().map(|&(tokens, _)| tokens).sum::<u32>()
    }

    /// Sequences that take part in the step.
    #[must_use]
    pub fn sequences(&self) -> u32 {
        self.decode_sequences + self.chunks.len() as u32
    }

    /// Rows of logits.
    #[must_use]
    pub fn sampled(&self) -> u32 {
        self.decode_sequences + self.finishing_chunks
    }
}

/// Durations of consecutive steps of the same batch: `first`, `first + growth`, `first + 2 growth`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Ticks of the first step.
    pub first: u64,
    /// Ticks that each further step takes longer.
    pub growth: u64,
    /// Number of steps for which the line holds; at least one.
    pub steps: u64,
}

impl StepLine {
    /// A line that never bends.
    const fn constant(ticks: u64) -> Self {
        Self { first: ticks, growth: 0, steps: u64::MAX }
    }

    /// Total ticks of the first `steps` steps.
    #[must_use]
    pub fn total(&self, steps: u64) -> Ticks {
        Ticks(steps * self.first + self.growth * (steps * steps.saturating_sub(1) / 2))
    }

    /// Adds a constant to every step.
    fn plus(self, ticks: u64) -> Self {
        Self { first: self.first + ticks, ..self }
    }

    /// The larger of the two lines, for as long as the larger one at the start stays so.
    fn max(self, other: Self) -> Self {
        let (upper, lower) =
            if (other.first, other.growth) > (self.first, self.growth) { (other, self) } else { (self, other) };
        let until_crossing = if lower.growth > upper.growth {
            (upper.first - lower.first) / (lower.growth - upper.growth) + 1
        } else {
            u64::MAX
        };
        Self { steps: self.steps.min(other.steps).min(until_crossing), ..upper }
    }
}

/// Costs of one pipeline stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StageCost {
    layers: LayerCost,
    /// Final norm, LM head and sampling, by sampled rows; only in the last stage.
    head: Option<TokenGrid>,
    layer_count: usize,
    /// Host time to launch the stage's kernels one by one, in ticks.
    launch: u64,
}

/// Costs of one layer, or of all layers of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LayerCost {
    /// Operators that depend on the tokens of one attention rank.
    rank_tokens: TokenGrid,
    /// Operators that depend on the tokens of the lock-step group.
    shared_tokens: TokenGrid,
    decode: DecodeGrid,
    prefill: PrefillGrid,
}

impl LayerCost {
    fn add_scaled(&mut self, other: &Self, count: u64) {
        self.rank_tokens.add_scaled(&other.rank_tokens, count);
        self.shared_tokens.add_scaled(&other.shared_tokens, count);
        self.decode.add_scaled(&other.decode, count);
        self.prefill.add_scaled(&other.prefill, count);
    }
}

/// Engine step durations of one replica type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCost {
    stages: Vec<StageCost>,
    /// Which stages equal the one before.
    repeated: Vec<bool>,
    /// Hand-over of the activations from each stage to the next.
    transfers: Vec<TokenGrid>,
    host: HostTicks,
    /// Batches replay captured graphs where they are small enough.
    graph: bool,
    /// Which; those of vLLM V1 by default.
    captured: Option<GraphCapture>,
}

/// Host time of one engine step, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HostTicks {
    step: u64,
    per_sequence: u64,
    exposed: u64,
    asynchronous: bool,
}

/// How the host delays one step of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDelay {
    /// From the scheduling call to the start of the first stage.
    pub before_start: Ticks,
    /// How long the host cannot schedule another batch.
    pub occupied: Ticks,
}

/// Ranges that the grids cover without extrapolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepLimits {
    /// Sequences in one batch.
    pub max_num_seqs: u32,
    /// Tokens in one batch.
    pub max_num_batched_tokens: u32,
    /// Tokens in one sequence.
    pub max_model_len: u32,
}

/// Largest default CUDA graph capture size of vLLM V1, in tokens (`max_cudagraph_capture_size` in its `CompilationConfig`).
pub const MAX_GRAPH_TOKENS: u32 = 512;

/// Largest batch, in tokens, that replays a graph: vLLM V1 captures up to twice `max_num_seqs`, at most
/// [`MAX_GRAPH_TOKENS`].
#[must_use]
pub fn graph_limit(max_num_seqs: u32) -> u32 {
    max_num_seqs.saturating_mul(2).min(MAX_GRAPH_TOKENS)
}

/// Predicts operators and rounds to ticks.
struct Compiler<'a> {
    sharding: &'a Sharding<'a>,
    limits: StepLimits,
    time_ns: &'a dyn Fn(&Operator) -> f64,
}

impl Compiler<'_> {
    fn ticks(&self, operators: &[Operator]) -> u64 {
        Ticks::from_ns(operators.iter().map(self.time_ns).sum()).0
    }

    fn layer(&self, layer: Layer) -> LayerCost {
        let (sharding, limits) = (self.sharding, self.limits);
        let (decode_heads, prefill_heads) = (sharding.heads(layer), sharding.prefill_heads(layer));
        // Every rank of a lock-step group can bring a full batch.
        let group_tokens = limits.max_num_batched_tokens * sharding.parallelism.dp_attention;
        LayerCost {
            rank_tokens: TokenGrid::compile(limits.max_num_batched_tokens, |tokens| {
                self.ticks(&sharding.rank_operators(layer, tokens))
            }),
            shared_tokens: TokenGrid::compile(group_tokens, |tokens| {
                self.ticks(&sharding.shared_operators(layer, tokens))
            }),
            decode: DecodeGrid::compile(limits.max_num_seqs, limits.max_model_len, |batch, context| {
                let context_tokens = f64::from(context);
                self.ticks(&[Operator::decode_attention(batch, context_tokens, decode_heads)])
            }),
            prefill: PrefillGrid::compile(
                limits.max_num_batched_tokens.min(limits.max_model_len),
                limits.max_model_len,
                |chunk_tokens, context_tokens| {
                    self.ticks(&[Operator::PrefillAttention {
                        batch: 1,
                        chunk_tokens,
                        context_tokens,
                        heads: prefill_heads,
                    }])
                },
            ),
        }
    }

    fn embedding(&self) -> TokenGrid {
        TokenGrid::compile(self.limits.max_num_batched_tokens, |tokens| {
            self.ticks(&self.sharding.embedding_operators(tokens))
        })
    }

    fn head(&self) -> TokenGrid {
        // Decoding sequences and ending prompts: at most one row per running sequence.
        TokenGrid::compile(self.limits.max_num_seqs, |rows| self.ticks(&self.sharding.head_operators(rows)))
    }

    fn transfer(&self, stage: u32) -> TokenGrid {
        TokenGrid::compile(self.limits.max_num_batched_tokens, |tokens| {
            self.ticks(&self.sharding.stage_transfer(stage, tokens))
        })
    }
}

impl StepCost {
    /// Evaluates every operator of every stage at the knots of the grids.
    ///
    /// `time_ns` predicts the duration of one operator, in nanoseconds.
    pub fn compile(
        sharding: &Sharding<'_>,
        limits: StepLimits,
        host: &HostOverhead,
        time_ns: &dyn Fn(&Operator) -> f64,
    ) -> Self {
        let compiler = Compiler { sharding, limits, time_ns };
        let layers = &sharding.model.layers;
        let pp = sharding.parallelism.pp;
        let kinds: Vec<(Layer, LayerCost)> =
            distinct(layers).into_iter().map(|layer| (layer, compiler.layer(layer))).collect();
        let mut stages: Vec<StageCost> = (0..pp)
            .map(|stage| {
                let range = stage_layers(layers.len() as u32, pp, stage);
                let mut stage = StageCost { layer_count: range.len(), ..StageCost::default() };
                for (kind, cost) in &kinds {
                    let count = layers[range.clone()].iter().filter(|layer| *layer == kind).count();
                    stage.layers.add_scaled(cost, count as u64);
                }
                stage
            })
            .collect();
        stages[0].layers.rank_tokens.add_scaled(&compiler.embedding(), 1);
        stages[pp as usize - 1].head = Some(compiler.head());
        let cost = Self {
            repeated: repeated(&stages),
            stages,
            transfers: (1..pp).map(|stage| compiler.transfer(stage - 1)).collect(),
            host: HostTicks::default(),
            graph: sharding.graph,
            captured: None,
        };
        cost.with_host(host)
    }

    /// The same kernels behind another host. Evaluates no operator, so constants of the host can be tried by the hundred.
    #[must_use]
    pub fn with_host(mut self, host: &HostOverhead) -> Self {
        let layer_launch_us = if self.graph { host.compiled_layer_launch_us } else { host.eager_layer_launch_us };
        for stage in &mut self.stages {
            stage.launch = Ticks::from_ns(layer_launch_us * 1e3 * stage.layer_count as f64).0;
        }
        self.host = HostTicks {
            step: Ticks::from_ns(host.step_us * 1e3).0,
            per_sequence: Ticks::from_ns(host.per_sequence_us * 1e3).0,
            exposed: Ticks::from_ns(host.exposed_us * 1e3).0,
            asynchronous: host.asynchronous,
        };
        self
    }

    /// The same duration for every step, whatever the batch: turns the engine into a textbook server for tests against
    /// queueing theory.
    #[must_use]
    pub fn constant(ticks: u64) -> Self {
        Self::pipeline(&[ticks])
    }

    /// Stages of constant duration with free hand-over.
    #[must_use]
    pub fn pipeline(stage_ticks: &[u64]) -> Self {
        let zero = || TokenGrid::compile(1, |_| 0);
        let stage = |&ticks: &u64| StageCost {
            layers: LayerCost {
                rank_tokens: zero(),
                shared_tokens: TokenGrid::compile(1, |_| ticks),
                decode: DecodeGrid::compile(1, 1, |_, _| 0),
                prefill: PrefillGrid::compile(1, 1, |_, _| 0),
            },
            head: None,
            layer_count: 0,
            launch: 0,
        };
        let stages: Vec<StageCost> = stage_ticks.iter().map(stage).collect();
        Self {
            repeated: repeated(&stages),
            stages,
            transfers: vec![zero(); stage_ticks.len() - 1],
            host: HostTicks::default(),
            graph: false,
            captured: None,
        }
    }

    /// The same costs, where batches replay these graphs.
    #[must_use]
    pub fn with_graphs(self, captured: GraphCapture) -> Self {
        Self { captured: Some(captured), ..self }
    }

    /// Size of the graph that a step replays; `None` if it runs kernel by kernel.
    fn graph_size(&self, batches: &[BatchShape], max_num_seqs: u32) -> Option<u32> {
        let largest = batches.iter().map(BatchShape::tokens).max().unwrap_or(0);
        match &self.captured {
            _ if !self.graph => None,
            None => (largest <= graph_limit(max_num_seqs)).then(|| padded_tokens(largest)),
            Some(graphs) if graphs.decode_only && batches.iter().any(|batch| !batch.chunks.is_empty()) => None,
            Some(graphs) => graphs.size_of(largest, max_num_seqs),
        }
    }

    /// The engine decides the batch of a step while the step before it runs. Pipelines keep the host one batch behind:
    /// their lanes are what hides it.
    #[must_use]
    pub fn schedules_ahead(&self) -> bool {
        self.host.asynchronous && self.stages.len() == 1
    }

    /// Number of pipeline stages.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.stages.len()
    }

    /// Whether a stage costs the same as the one before it, for every batch.
    #[must_use]
    pub fn is_like_previous(&self, stage: usize) -> bool {
        self.repeated[stage]
    }

    /// Durations of consecutive steps of an engine without pipeline stages, in which the ranks of a lock-step group keep
    /// these batches, host included. Batches with chunks last one step.
    #[must_use]
    pub fn line(&self, batches: &[BatchShape], max_num_seqs: u32) -> StepLine {
        let line = self.stage_line(0, batches, max_num_seqs);
        let host = self.host_ticks(batches);
        let line = if self.host.asynchronous { line.max(StepLine::constant(host)) } else { line.plus(host) };
        line.plus(self.host.exposed)
    }

    /// GPU time of consecutive steps on one stage, at least the time to launch their kernels.
    #[must_use]
    pub fn stage_line(&self, stage: usize, batches: &[BatchShape], max_num_seqs: u32) -> StepLine {
        let stage = &self.stages[stage];
        let graph = self.graph_size(batches, max_num_seqs);
        let slowest = batches
            .iter()
            .map(|batch| self.rank_line(stage, batch, graph))
            .reduce(StepLine::max)
            .unwrap_or(StepLine::constant(0));
        // In a graph every rank is padded to the size of the largest.
        let shared_tokens = match graph {
            Some(size) => batches.len() as u32 * size,
            None => batches.iter().map(BatchShape::tokens).sum(),
        };
        let sampled = batches.iter().map(BatchShape::sampled).max().unwrap_or(0);
        let head = stage.head.as_ref().map_or(0, |head| head.ticks(sampled));
        let line = slowest.plus(stage.layers.shared_tokens.ticks(shared_tokens) + head);
        if graph.is_some() { line } else { line.max(StepLine::constant(stage.launch)) }
    }

    /// What the host adds to one step of a pipeline. It is one resource of the replica, whatever the number of stages.
    #[must_use]
    pub fn host_delay(&self, batches: &[BatchShape]) -> HostDelay {
        let (host, exposed) = (Ticks(self.host_ticks(batches)), Ticks(self.host.exposed));
        let before_start = if self.host.asynchronous { exposed } else { host + exposed };
        HostDelay { before_start, occupied: host }
    }

    /// Time to hand the activations of a batch from a stage to the next.
    #[must_use]
    pub fn transfer(&self, stage: usize, batches: &[BatchShape]) -> Ticks {
        Ticks(self.transfers[stage].ticks(batches.iter().map(BatchShape::tokens).max().unwrap_or(0)))
    }

    fn host_ticks(&self, batches: &[BatchShape]) -> u64 {
        let sequences = batches.iter().map(BatchShape::sequences).max().unwrap_or(0);
        self.host.step + self.host.per_sequence * u64::from(sequences)
    }

    fn rank_line(&self, stage: &StageCost, batch: &BatchShape, graph: Option<u32>) -> StepLine {
        let tokens = graph.unwrap_or_else(|| batch.tokens());
        let mut ticks = stage.layers.rank_tokens.ticks(tokens);
        // All chunks run in one variable-length kernel: its launch floor counts once.
        let floor = stage.layers.prefill.ticks(1, 0);
        for (position, &(chunk, context)) in batch.chunks.iter().enumerate() {
            let chunk_ticks = stage.layers.prefill.ticks(chunk, context);
            ticks += if position == 0 { chunk_ticks } else { chunk_ticks.saturating_sub(floor) };
        }
        let sequences = u64::from(batch.decode_sequences);
        let segment = stage.layers.decode.segment(batch.decode_sequences, batch.decode_context_tokens);
        let steps = if batch.chunks.is_empty() {
            match segment.end_context_tokens {
                u64::MAX => u64::MAX,
                end => (end - batch.decode_context_tokens).div_ceil(sequences),
            }
        } else {
            1
        };
        StepLine { first: ticks + segment.ticks, growth: segment.ticks_per_token * sequences, steps }
    }
}

/// Tokens of the captured CUDA graph that a batch replays: vLLM V1 captures 1, 2, 4, multiples of 8 up to 256 and
/// multiples of 16 above.
#[must_use]
pub fn padded_tokens(tokens: u32) -> u32 {
    match tokens {
        0..=2 => tokens,
        3..=4 => 4,
        5..=256 => tokens.next_multiple_of(8),
        _ => tokens.next_multiple_of(16),
    }
}

fn repeated(stages: &[StageCost]) -> Vec<bool> {
    (0..stages.len()).map(|stage| stage > 0 && stages[stage] == stages[stage - 1]).collect()
}

/// The different layers of a model, in order of first appearance.
pub(super) fn distinct(layers: &[Layer]) -> Vec<Layer> {
    let mut kinds: Vec<Layer> = Vec::new();
    for layer in layers {
        if !kinds.contains(layer) {
            kinds.push(*layer);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn graph_sizes_by_hand() {
        assert_eq!([1, 2, 3, 5, 33, 250, 257, 512].map(padded_tokens), [1, 2, 4, 8, 40, 256, 272, 512]);
    }

    proptest! {
        #[test]
        fn the_larger_line_holds_until_the_crossing(a in 0u64..1000, da in 0u64..20, b in 0u64..1000, db in 0u64..20) {
            let line = |first, growth| StepLine { first, growth, steps: u64::MAX };
            let upper = line(a, da).max(line(b, db));
            for step in 0..upper.steps.min(300) {
                prop_assert_eq!(upper.first + step * upper.growth, (a + step * da).max(b + step * db));
            }
        }
    }
}
