//! Small models, costs and streams for the tests.

use std::fmt::{self, Write as _};

use servescape::catalog::{
    Attention, ExpectedOutput, ExpertExchange, Ffn, HostOverhead, Layer, Model, Precision, Quantized, SchedulingRules,
};
use servescape::fidelity::{Operator, Sharding, StepCost, StepLimits};
use servescape::scheduler::router::{Router, router};
use servescape::scheduler::{Scheduler, scheduler};
use servescape::sim::{Advance, Arena, Deployment, FrontEnd, Observer, Outcome, RequestBounds, StepRecord, simulate};
use servescape::space::{EngineLimits, Parallelism};
use servescape::units::Ticks;
use servescape::workload::{Request, RequestStream};

/// One millisecond.
pub(crate) const MS: Ticks = Ticks(1_000_000 * 1024);

pub(crate) fn ms(milliseconds: u64) -> Ticks {
    Ticks(milliseconds * MS.0)
}

pub(crate) fn limits() -> EngineLimits {
    EngineLimits {
        scheduler: "vllm-v1",
        max_num_seqs: 64,
        max_num_batched_tokens: 256,
        max_model_len: 4096,
        block_size: 16,
        gpu_memory_utilization: 0.9,
        cuda_graph: true,
        chunked_prefill: true,
        prefix_caching: false,
    }
}

/// SGLang's expectation of output.
fn rules() -> SchedulingRules {
    let expected_output = ExpectedOutput {
        initial_share: 0.7,
        least_share: 0.098,
        decay_steps: 600,
        longest_tokens: 4096,
        steps_after_preemption: 20,
    };
    SchedulingRules { expected_output, ..SchedulingRules::default() }
}

/// A deployment of one replica with plenty of KV blocks.
pub(crate) struct Setup {
    pub(crate) replicas: u32,
    pub(crate) ranks: u32,
    pub(crate) cost: StepCost,
    pub(crate) kv_blocks: u64,
    pub(crate) limits: EngineLimits,
    pub(crate) rules: SchedulingRules,
    pub(crate) scheduler: &'static dyn Scheduler,
    pub(crate) router: &'static dyn Router,
    pub(crate) front_end: FrontEnd,
    pub(crate) bounds: RequestBounds,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("replicas", &self.replicas)
            .field("ranks", &self.ranks)
            .field("stages", &self.cost.stages())
            .field("kv_blocks", &self.kv_blocks)
            .field("limits", &self.limits)
            .field("rules", &self.rules)
            .field("scheduler", &self.scheduler.name())
            .field("router", &self.router.name())
            .finish_non_exhaustive()
    }
}

impl Setup {
    pub(crate) fn new(cost: StepCost) -> Self {
        Self {
            replicas: 1,
            ranks: 1,
            cost,
            kv_blocks: 100_000,
            limits: limits(),
            rules: rules(),
            scheduler: scheduler("vllm-v1").unwrap(),
            router: router("round_robin").unwrap(),
            front_end: FrontEnd::default(),
            bounds: RequestBounds::NONE,
        }
    }

    pub(crate) fn run(&self, stream: &RequestStream) -> Outcome {
        self.observe(stream, Advance::FastForward, &mut ())
    }

    pub(crate) fn observe(&self, stream: &RequestStream, advance: Advance, observer: &mut impl Observer) -> Outcome {
        self.observe_in(&mut Arena::default(), stream, advance, observer)
    }

    pub(crate) fn observe_in(
        &self,
        arena: &mut Arena,
        stream: &RequestStream,
        advance: Advance,
        observer: &mut impl Observer,
    ) -> Outcome {
        let deployment = Deployment {
            replicas: self.replicas,
            ranks: self.ranks,
            cost: &self.cost,
            kv_blocks: self.kv_blocks,
            limits: &self.limits,
            rules: self.rules,
            scheduler: self.scheduler,
            router: self.router,
            front_end: self.front_end,
            seed: 7,
        };
        simulate(arena, &deployment, stream, &self.bounds, advance, observer)
    }
}

/// Requests given as (arrival in ms, prompt tokens, output tokens).
pub(crate) fn stream(requests: &[(u64, u32, u32)]) -> RequestStream {
    let requests = requests
        .iter()
        .map(|&(arrival, prompt_tokens, output_tokens)| Request { arrival: ms(arrival), prompt_tokens, output_tokens })
        .collect();
    RequestStream::open(requests)
}

/// A two-layer toy model.
pub(crate) fn model() -> Model {
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
        layers: vec![Layer { window: None, ffn: Ffn::Dense { intermediate_size: 1024 } }; 8],
        checkpoint: Precision::BF16,
        quantized: Quantized::Linears,
    }
}

/// Step costs with the shape of real ones: launch floors, work linear in tokens, attention that grows with context.
pub(crate) fn compiled_cost(parallelism: Parallelism, host: HostOverhead, graph: bool) -> StepCost {
    cost_at_speed(1.0, parallelism, host, graph)
}

/// The same on a GPU that is a third faster.
pub(crate) fn faster_cost() -> StepCost {
    cost_at_speed(4.0 / 3.0, single_gpu(), no_host(), true)
}

fn cost_at_speed(speed: f64, parallelism: Parallelism, host: HostOverhead, graph: bool) -> StepCost {
    let mut model = model();
    if parallelism.dp_attention > 1 {
        let ffn = Ffn::MixtureOfExperts {
            experts: 12,
            top_k: 2,
            expert_intermediate_size: 256,
            shared_intermediate_size: 256,
            expert_bias: false,
        };
        model.layers.fill(Layer { window: None, ffn });
    }
    let sharding = Sharding {
        model: &model,
        parallelism,
        precision: Precision::BF16,
        graph,
        gpus_per_node: 8,
        expert_exchange: ExpertExchange::default(),
    };
    let limits = StepLimits { max_num_seqs: 256, max_num_batched_tokens: 2048, max_model_len: 8192 };
    let time_ns = |operator: &Operator| match *operator {
        Operator::Gemm { tokens, .. } => 4_000.0 + 37.3 * f64::from(tokens),
        Operator::GroupedGemm { tokens, .. } => 9_000.0 + 21.1 * f64::from(tokens),
        Operator::PrefillAttention { chunk_tokens, context_tokens, .. } => {
            2_000.0 + 0.9 * f64::from(chunk_tokens) * (f64::from(context_tokens) + f64::from(chunk_tokens) / 2.0)
        }
        Operator::DecodeAttention { batch, context_tokens, .. } => 3_000.0 + 1.7 * f64::from(batch) * context_tokens,
        _ => 1_500.0,
    };
    StepCost::compile(&sharding, limits, &host, &|operator| time_ns(operator) / speed)
}

pub(crate) fn single_gpu() -> Parallelism {
    Parallelism { pp: 1, tp_attention: 1, dp_attention: 1, tp_ffn: 1, ep_ffn: 1 }
}

pub(crate) fn no_host() -> HostOverhead {
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

/// Writes one line for each run of steps and each completion; times in milliseconds.
#[derive(Default)]
pub(crate) struct Transcript {
    pub(crate) text: String,
    replica: usize,
}

impl Observer for Transcript {
    fn replica(&mut self, replica: usize) {
        self.replica = replica;
    }

    fn steps(&mut self, record: &StepRecord<'_>) {
        let (start, end) = (record.start.as_ms(), record.end.as_ms());
        write!(self.text, "{start:>5} ..{end:>5}  replica {} lane {}", self.replica, record.lane).unwrap();
        for batch in record.batches {
            write!(self.text, "  decode {}", batch.decode_sequences).unwrap();
            for (tokens, context) in &batch.chunks {
                write!(self.text, " prompt {tokens}@{context}").unwrap();
            }
        }
        writeln!(self.text, "  x{}", record.steps).unwrap();
    }

    fn completed(&mut self, request: u32, at: Ticks) {
        writeln!(self.text, "{:>13}  request {request} completed", at.as_ms()).unwrap();
    }
}
