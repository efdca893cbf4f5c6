//! Where step times come from, and how far they may be off: which predictor sources and which operator families a step
//! consists of, compiled beside [`super::StepCost`] at a few sizes, and weighted by the steps of a simulation.
//!
//! Errors of one family are taken as fully correlated over layers, shapes and steps (a kernel that is 10 % slower than
//! predicted is so everywhere), those of different families as independent. A family's error thus adds up linearly, and
//! families add up by squares. Host time is split like the kernels of its step.

use crate::catalog::Layer;

use super::family::Family;
use super::grid::OctaveKnots;
use super::layer_operators::Sharding;
use super::operator::Operator;
use super::step_cost::{StepLimits, distinct};
use super::step_mix::{MeanStep, StepMix};
use super::{Estimate, EstimateSource};

const SOURCES: usize = EstimateSource::ALL.len();
/// Operator families.
const FAMILIES: usize = Family::ALL.len();
/// Sizes at which the composition of a step is known: zero and the powers of two.
type Knots = OctaveKnots<0>;

/// What became of a simulation's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeProvenance {
    /// Share of engine time by source, in the order of [`EstimateSource::ALL`]; the sum is one.
    pub shares: [f64; SOURCES],
    /// Relative standard deviation of the mean time per output token, from the errors of the operator predictors.
    pub tpot_uncertainty: f64,
    /// The same for the steps that process prompts: the service time within TTFT. Queueing amplifies it.
    pub ttft_uncertainty: f64,
}

impl TimeProvenance {
    /// Share of engine time whose estimates come from `source`.
    #[must_use]
    pub fn share(&self, source: EstimateSource) -> f64 {
        self.shares[position(source)]
    }
}

fn position(source: EstimateSource) -> usize {
    source as usize
}

/// Time of some operators by source, and the standard deviation of each family's time, in nanoseconds or as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Composition {
    source: [f64; SOURCES],
    deviation: [f64; FAMILIES],
}

impl Composition {
    fn add(&mut self, other: &Self, count: f64) {
        for (sum, term) in self.source.iter_mut().zip(&other.source) {
            *sum += count * term;
        }
        for (sum, term) in self.deviation.iter_mut().zip(&other.deviation) {
            *sum += count * term;
        }
    }

    fn add_estimate(&mut self, family: Family, estimate: Estimate) {
        self.source[position(estimate.source)] += estimate.time_ns;
        self.deviation[family as usize] += estimate.time_ns * estimate.uncertainty;
    }

    fn total(&self) -> f64 {
        self.source.iter().sum()
    }

    /// Standard deviation of the whole relative to it; not a number if there is no time.
    fn relative_deviation(&self) -> f64 {
        let squares: f64 = self.deviation.iter().map(|deviation| deviation * deviation).sum();
        libm::sqrt(squares) / self.total()
    }
}

/// Compositions at the knots of one size; linear in between, as times nearly are.
#[derive(Clone, Debug, Default, PartialEq)]
struct Line(Vec<Composition>);

impl Line {
    /// Knots up to `max`; size zero costs nothing.
    fn compile(max: u32, of_size: impl Fn(u32) -> Composition) -> Self {
        let at = |size: u64| if size == 0 { Composition::default() } else { of_size(size as u32) };
        Self(Knots::up_to(u64::from(max.max(1))).into_iter().map(at).collect())
    }

    fn at(&self, size: f64) -> Composition {
        let mut sum = Composition::default();
        for (knot, weight) in neighbours(size, self.0.len()) {
            sum.add(&self.0[knot], weight);
        }
        sum
    }

    fn add(&mut self, other: &Self, count: f64) {
        self.0.resize(other.0.len(), Composition::default());
        for (sum, term) in self.0.iter_mut().zip(&other.0) {
            sum.add(term, count);
        }
    }
}

/// The two of `knots` knots around a size, with their weights; the last one beyond them.
fn neighbours(size: f64, knots: usize) -> [(usize, f64); 2] {
    let below = Knots::index(size as u64);
    if below + 1 >= knots {
        return [(knots - 1, 1.0), (knots - 1, 0.0)];
    }
    let (low, high) = (Knots::value(below) as f64, Knots::value(below + 1) as f64);
    let above = (size - low) / (high - low);
    [(below, 1.0 - above), (below + 1, above)]
}

/// Compositions at the knots of two sizes: one line of the first for each knot of the second.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plane(Vec<Line>);

impl Plane {
    fn compile(max: [u32; 2], of_sizes: impl Fn(u32, u32) -> Composition) -> Self {
        let line = |second: u64| Line::compile(max[0], |first| of_sizes(first, second as u32));
        Self(Knots::up_to(u64::from(max[1].max(1))).into_iter().map(line).collect())
    }

    fn at(&self, first: f64, second: f64) -> Composition {
        let mut sum = Composition::default();
        for (knot, weight) in neighbours(second, self.0.len()) {
            sum.add(&self.0[knot].at(first), weight);
        }
        sum
    }

    fn add(&mut self, other: &Self, count: f64) {
        self.0.resize(other.0.len(), Line::default());
        for (sum, term) in self.0.iter_mut().zip(&other.0) {
            sum.add(term, count);
        }
    }
}

/// Composition of the steps of one replica type, over all layers and stages.
#[derive(Clone, Debug, PartialEq)]
pub struct CostProvenance {
    /// By tokens of one attention rank: layers without attention and experts, embedding, hand-over between stages.
    rank_tokens: Line,
    /// By tokens of the lock-step group.
    shared_tokens: Line,
    /// By sampled rows.
    head: Line,
    /// By sequences and mean context.
    decode: Plane,
    /// Of one chunk, by its tokens and those cached before it.
    prefill: Plane,
}

impl CostProvenance {
    /// Estimates every operator of every layer at the knots.
    pub fn compile(sharding: &Sharding<'_>, limits: StepLimits, estimate: &dyn Fn(&Operator) -> Estimate) -> Self {
        let compose = |operators: &[Operator]| {
            let mut sum = Composition::default();
            for operator in operators {
                sum.add_estimate(Family::of(operator), estimate(operator));
            }
            sum
        };
        let StepLimits { max_num_seqs, max_num_batched_tokens, .. } = limits;
        let layers = &sharding.model.layers;
        let mut provenance = Self {
            rank_tokens: Line::compile(max_num_batched_tokens, |tokens| compose(&sharding.embedding_operators(tokens))),
            shared_tokens: Line::default(),
            head: Line::compile(max_num_seqs, |rows| compose(&sharding.head_operators(rows))),
            decode: Plane::default(),
            prefill: Plane::default(),
        };
        for stage in 1..sharding.parallelism.pp {
            let transfer = |tokens| compose(&sharding.stage_transfer(stage - 1, tokens));
            provenance.rank_tokens.add(&Line::compile(max_num_batched_tokens, transfer), 1.0);
        }
        for layer in distinct(layers) {
            let count = layers.iter().filter(|other| **other == layer).count();
            provenance.add_layers(sharding, limits, layer, count as f64, &compose);
        }
        provenance
    }

    fn add_layers(
        &mut self,
        sharding: &Sharding<'_>,
        limits: StepLimits,
        layer: Layer,
        count: f64,
        compose: &dyn Fn(&[Operator]) -> Composition,
    ) {
        let StepLimits { max_num_seqs, max_num_batched_tokens, max_model_len } = limits;
        let rank = |tokens| compose(&sharding.rank_operators(layer, tokens));
        self.rank_tokens.add(&Line::compile(max_num_batched_tokens, rank), count);
        let shared = |tokens| compose(&sharding.shared_operators(layer, tokens));
        let group_tokens = max_num_batched_tokens * sharding.parallelism.dp_attention;
        self.shared_tokens.add(&Line::compile(group_tokens, shared), count);
        let heads = sharding.heads(layer);
        let decode =
            |batch, context: u32| compose(&[Operator::decode_attention(batch, f64::from(context.max(1)), heads)]);
        self.decode.add(&Plane::compile([max_num_seqs, max_model_len], decode), count);
        let heads = sharding.prefill_heads(layer);
        let prefill = |chunk_tokens, context_tokens| {
            compose(&[Operator::PrefillAttention { batch: 1, chunk_tokens, context_tokens, heads }])
        };
        let max_chunk = max_num_batched_tokens.min(max_model_len);
        self.prefill.add(&Plane::compile([max_chunk, max_model_len], prefill), count);
    }

    /// Composition of a step, in nanoseconds.
    fn of_step(&self, step: &MeanStep) -> Composition {
        // A rank without tokens waits for one that has some.
        let mut sum = self.rank_tokens.at(step.tokens().max(1.0));
        sum.add(&self.shared_tokens.at((step.ranks * step.tokens()).max(1.0)), 1.0);
        sum.add(&self.head.at(step.sampled), 1.0);
        sum.add(&self.decode.at(step.decode_sequences, step.decode_context_tokens), 1.0);
        sum.add(&self.prefill.at(step.chunk_tokens, step.chunk_context_tokens), step.chunks);
        sum
    }

    /// Sources and uncertainties of a simulation's time. Each step counts by its time; for TPOT by that of each of its
    /// decoding sequences, for TTFT by that of each of its chunks, as every one of them waits for the whole step. What
    /// the simulation had no step for is not a number.
    #[must_use]
    pub fn weigh(&self, mix: &StepMix) -> TimeProvenance {
        let [mut all, mut decoding, mut prompts] = [Composition::default(); 3];
        for step in mix.steps() {
            let composition = self.of_step(&step);
            let per_ns = step.ticks as f64 / composition.total();
            all.add(&composition, per_ns);
            decoding.add(&composition, per_ns * step.decode_sequences);
            prompts.add(&composition, per_ns * step.chunks);
        }
        let total = all.total();
        TimeProvenance {
            shares: all.source.map(|time| time / total),
            tpot_uncertainty: decoding.relative_deviation(),
            ttft_uncertainty: prompts.relative_deviation(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Attention, ExpertExchange, Ffn, HostOverhead, Model, Precision, Quantized};
    use crate::fidelity::{BatchShape, CostModel, StepCost, StepLine};
    use crate::network::test_gpus;
    use crate::space::Parallelism;
    use crate::units::{TICKS_PER_NS, Ticks};

    fn model() -> Model {
        Model {
            name: "toy".into(),
            repository: None,
            hidden_size: 512,
            vocab_size: 1000,
            tied_embeddings: false,
            max_position_embeddings: 8192,
            attention: Attention::Grouped {
                heads: 8,
                kv_heads: 4,
                head_dim: 64,
                qkv_bias: false,
                qk_norm: false,
                sinks: false,
            },
            layers: vec![Layer { window: None, ffn: Ffn::Dense { intermediate_size: 1024 } }; 3],
            checkpoint: Precision::BF16,
            quantized: Quantized::Linears,
        }
    }

    fn compile(estimate: &dyn Fn(&Operator) -> Estimate) -> CostProvenance {
        let model = model();
        let parallelism = Parallelism { pp: 1, tp_attention: 1, dp_attention: 1, tp_ffn: 1, ep_ffn: 1 };
        let sharding = Sharding {
            model: &model,
            parallelism,
            precision: Precision::BF16,
            graph: true,
            gpus_per_node: 8,
            expert_exchange: ExpertExchange::default(),
        };
        let limits = StepLimits { max_num_seqs: 64, max_num_batched_tokens: 512, max_model_len: 2048 };
        CostProvenance::compile(&sharding, limits, estimate)
    }

    fn mix(steps: &[(BatchShape, u64)]) -> StepMix {
        let mut mix = StepMix::default();
        mix.reset(1);
        for (batch, ticks) in steps {
            let line = StepLine { first: *ticks, growth: 0, steps: u64::MAX };
            mix.add(std::slice::from_ref(batch), line, 1);
        }
        mix
    }

    fn decode(sequences: u32, context_tokens: u64) -> BatchShape {
        BatchShape { decode_sequences: sequences, decode_context_tokens: context_tokens, ..BatchShape::default() }
    }

    fn prompt(tokens: u32) -> BatchShape {
        BatchShape { chunks: vec![(tokens, 0)], finishing_chunks: 1, ..BatchShape::default() }
    }

    /// Products take 2 us and are measured to 10 %, decode attention takes 12 us and is transferred to 20 %, prefill
    /// attention takes 90 us and is a roofline to 30 %; the rest is free.
    fn two_families(operator: &Operator) -> Estimate {
        match operator {
            Operator::Gemm { .. } => Estimate { time_ns: 2000.0, source: EstimateSource::Measured, uncertainty: 0.1 },
            Operator::DecodeAttention { .. } => {
                Estimate { time_ns: 12_000.0, source: EstimateSource::Transferred, uncertainty: 0.2 }
            }
            Operator::PrefillAttention { .. } => {
                Estimate { time_ns: 90_000.0, source: EstimateSource::Roofline, uncertainty: 0.3 }
            }
            _ => Estimate { time_ns: 0.0, source: EstimateSource::Roofline, uncertainty: 9.0 },
        }
    }

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} instead of {expected}");
    }

    #[test]
    fn shares_and_uncertainties_by_hand() {
        let provenance = compile(&two_families);
        // Three layers of four products, and the head's: 26 us; attention 36 us.
        let time = provenance.weigh(&mix(&[(decode(8, 800), 5000)]));
        assert_close(time.share(EstimateSource::Measured), 26.0 / 62.0);
        assert_close(time.share(EstimateSource::Transferred), 36.0 / 62.0);
        assert_close(time.tpot_uncertainty, f64::hypot(26.0 * 0.1, 36.0 * 0.2) / 62.0);
        assert!(time.ttft_uncertainty.is_nan(), "no step has a prompt");

        // A prompt: 26 us of products, 270 us of attention, in a step that takes three times as long.
        let both = provenance.weigh(&mix(&[(decode(8, 800), 5000), (prompt(100), 15_000)]));
        assert_close(both.share(EstimateSource::Measured), (26.0 / 62.0 + 3.0 * 26.0 / 296.0) / 4.0);
        assert_close(both.share(EstimateSource::Roofline), 3.0 * 270.0 / 296.0 / 4.0);
        assert_close(both.tpot_uncertainty, time.tpot_uncertainty);
        assert_close(both.ttft_uncertainty, f64::hypot(26.0 * 0.1, 270.0 * 0.3) / 296.0);
    }

    #[test]
    fn decoding_beside_a_prompt_counts_by_its_sequences() {
        let provenance = compile(&two_families);
        let beside = BatchShape { chunks: vec![(100, 0)], ..decode(2, 200) };
        let time = provenance.weigh(&mix(&[(decode(8, 800), 62), (beside, 3 * 332)]));
        // Time of the eight sequences' steps and of the two's, by family: products, decode, prefill. The second step
        // samples two rows, so it has the head's product as well.
        let sum = |first: f64, second: f64| 8.0 * first + 2.0 * 3.0 * second;
        let deviations = [0.1 * sum(26.0, 26.0), 0.2 * sum(36.0, 36.0), 0.3 * sum(0.0, 270.0)];
        let squares: f64 = deviations.iter().map(|deviation| deviation * deviation).sum();
        assert_close(time.tpot_uncertainty, squares.sqrt() / sum(62.0, 332.0));
    }

    #[test]
    fn shares_sum_to_one_for_any_mix() {
        let measured = |operator: &Operator| {
            let source = EstimateSource::ALL[Family::of(operator) as usize % SOURCES];
            Estimate { time_ns: 1234.5, source, uncertainty: 0.07 }
        };
        let provenance = compile(&measured);
        let steps = [(decode(64, 100_000), 17), (prompt(511), 91), (decode(1, 1), 3), (prompt(1), 2)];
        let time = provenance.weigh(&mix(&steps));
        assert_close(time.shares.iter().sum(), 1.0);
        assert!(time.tpot_uncertainty < 0.07 && time.ttft_uncertainty < 0.07, "families are independent: {time:?}");
    }

    #[test]
    fn without_measurements_all_time_is_roofline() {
        let gpu = CostModel::new(&test_gpus::l40s(), None);
        let time = compile(&|operator| gpu.predict(operator)).weigh(&mix(&[(decode(9, 5000), 10), (prompt(300), 40)]));
        assert_close(time.share(EstimateSource::Roofline), 1.0);
        assert!(time.ttft_uncertainty > 0.0 && time.ttft_uncertainty <= 0.3, "{time:?}");
    }

    /// Times linear in every size, different for every kind of operator, so that interpolation is exact.
    fn linear(operator: &Operator) -> Estimate {
        let time_ns = match *operator {
            Operator::Gemm { tokens, .. } => 4000.0 + 37.0 * f64::from(tokens),
            Operator::GroupedGemm { tokens, .. } => 9000.0 + 21.0 * f64::from(tokens),
            Operator::PrefillAttention { chunk_tokens, context_tokens, .. } => {
                2000.0 + f64::from(chunk_tokens) * (5.0 + f64::from(context_tokens) / 64.0)
            }
            Operator::DecodeAttention { batch, context_tokens, .. } => 3000.0 + 2.0 * f64::from(batch) * context_tokens,
            Operator::Streaming { bytes, .. } => 1500.0 + bytes / 4096.0,
            Operator::Collective { bytes, .. } => 5500.0 + bytes / 1024.0,
            Operator::BatchedGemm { .. } | Operator::LatentPrefill { .. } | Operator::LatentDecode { .. } => {
                unreachable!("grouped attention has none")
            }
        };
        Estimate { time_ns, source: EstimateSource::Measured, uncertainty: 0.1 }
    }

    #[test]
    fn a_composition_has_the_parts_of_the_step_cost() {
        let mut model = model();
        model.layers[1].ffn = Ffn::MixtureOfExperts {
            experts: 12,
            top_k: 2,
            expert_intermediate_size: 256,
            shared_intermediate_size: 256,
            expert_bias: false,
        };
        let parallelism = Parallelism { pp: 2, tp_attention: 2, dp_attention: 1, tp_ffn: 2, ep_ffn: 1 };
        let sharding = Sharding {
            model: &model,
            parallelism,
            precision: Precision::BF16,
            graph: false,
            gpus_per_node: 8,
            expert_exchange: ExpertExchange::default(),
        };
        let limits = StepLimits { max_num_seqs: 64, max_num_batched_tokens: 1024, max_model_len: 4096 };
        let provenance = CostProvenance::compile(&sharding, limits, &linear);
        let cost = StepCost::compile(&sharding, limits, &no_host(), &|operator| linear(operator).time_ns);
        let mixed = BatchShape { chunks: vec![(300, 700)], finishing_chunks: 1, ..decode(21, 21 * 900) };
        for batch in [decode(5, 5 * 333), prompt(777), mixed] {
            let batches = std::slice::from_ref(&batch);
            let stages: u64 = (0..2).map(|stage| cost.stage_line(stage, batches, 64).first).sum();
            let expected = Ticks(stages) + cost.transfer(0, batches);
            let step = mix(&[(batch, 1)]).steps().next().unwrap();
            let ratio = provenance.of_step(&step).total() / (expected.0 as f64 / TICKS_PER_NS as f64);
            assert!((ratio - 1.0).abs() < 1e-4, "{step:?}: {ratio}");
        }
    }

    fn no_host() -> HostOverhead {
        HostOverhead {
            step_us: 0.0,
            per_sequence_us: 0.0,
            asynchronous: false,
            exposed_us: 0.0,
            eager_layer_launch_us: 0.0,
            compiled_layer_launch_us: 0.0,
            request_us: 0.0,
            serial_request_us: 0.0,
            serial_prompt_token_us: 0.0,
            response_us: 0.0,
        }
    }

    #[test]
    fn a_simulation_without_steps_has_no_provenance() {
        let time = compile(&two_families).weigh(&mix(&[]));
        assert!(time.shares.iter().all(|share| share.is_nan()) && time.tpot_uncertainty.is_nan());
    }
}
