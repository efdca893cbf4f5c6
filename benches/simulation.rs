//! Speed of one simulation and of a step-cost look-up. `cargo bench --bench simulation`.

#![allow(missing_docs, reason = "the macros of criterion make undocumented items")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use servescape::catalog::{Catalog, ExpertExchange, HostOverhead, Model, NumberFormat, Precision, SchedulingRules};
use servescape::fidelity::{BatchShape, CostModel, CostProvenance, Sharding, StepCost, StepLimits};
use servescape::scheduler::router::router;
use servescape::scheduler::scheduler;
use servescape::sim::{Advance, Arena, Deployment, FrontEnd, Outcome, RequestBounds, simulate};
use servescape::space::{EngineLimits, Parallelism};
use servescape::units::Ticks;
use servescape::workload::{Request, RequestStream};

const LIMITS: EngineLimits = EngineLimits {
    scheduler: "vllm-v1",
    max_num_seqs: 256,
    max_num_batched_tokens: 8192,
    max_model_len: 16_384,
    block_size: 16,
    gpu_memory_utilization: 0.9,
    cuda_graph: true,
    chunked_prefill: true,
    prefix_caching: false,
};

const STEP_LIMITS: StepLimits = StepLimits { max_num_seqs: 256, max_num_batched_tokens: 8192, max_model_len: 16_384 };
const HOST: HostOverhead = HostOverhead {
    step_us: 0.0,
    per_sequence_us: 0.0,
    asynchronous: true,
    exposed_us: 900.0,
    eager_layer_launch_us: 0.0,
    compiled_layer_launch_us: 0.0,
    request_us: 0.0,
    serial_request_us: 0.0,
    serial_prompt_token_us: 0.0,
    response_us: 0.0,
};

/// Llama-3.3-70B in fp8, and the cost model of H100 SXM.
fn llama_on_h100() -> (Model, CostModel) {
    let catalog = Catalog::locate(None).expect("run in the repository");
    let model = catalog.model("llama-3.3-70b-fp8").expect("a shipped model");
    let gpu = catalog.gpu("h100-sxm").expect("a shipped GPU");
    let costs = CostModel::load(catalog.root(), &gpu, "vllm-0.19").expect("a shipped profile");
    (model, costs)
}

/// Four GPUs a stage, fp8 cache.
fn sharding(model: &Model, pp: u32) -> Sharding<'_> {
    let parallelism = Parallelism { pp, tp_attention: 4, dp_attention: 1, tp_ffn: 4, ep_ffn: 1 };
    let precision = Precision { kv_cache: NumberFormat::Fp8, ..model.checkpoint };
    Sharding {
        model,
        parallelism,
        precision,
        graph: true,
        gpus_per_node: 8,
        expert_exchange: ExpertExchange::default(),
    }
}

fn cost(pp: u32) -> StepCost {
    let (model, costs) = llama_on_h100();
    StepCost::compile(&sharding(&model, pp), STEP_LIMITS, &HOST, &|operator| costs.predict(operator).time_ns)
}

/// Requests of 4000 prompt and 500 output tokens, or lengths around them.
fn stream(requests: u64, per_second: u64, unequal: bool) -> RequestStream {
    let spread = |i: u64, span: u64| if unequal { (i * 7919 % span) as u32 } else { span as u32 / 2 };
    let requests = (0..requests)
        .map(|i| Request {
            arrival: Ticks::from_seconds(i as f64 / per_second as f64),
            prompt_tokens: 3500 + spread(i, 1000),
            output_tokens: 400 + spread(i, 200),
        })
        .collect();
    RequestStream::open(requests)
}

fn run(arena: &mut Arena, cost: &StepCost, stream: &RequestStream, advance: Advance) -> Outcome {
    let deployment = Deployment {
        replicas: 8,
        ranks: 1,
        cost,
        kv_blocks: 20_000,
        limits: &LIMITS,
        rules: SchedulingRules::default(),
        scheduler: scheduler("vllm-v1").expect("registered"),
        router: router("least_outstanding").expect("registered"),
        front_end: FrontEnd::default(),
        seed: 1,
    };
    simulate(arena, &deployment, stream, &RequestBounds::NONE, advance, &mut ())
}

fn simulations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1,000 requests of 4000/500 tokens on 8 replicas");
    let mut arena = Arena::default();
    for (pp, unequal, advance, name) in [
        (1, false, Advance::FastForward, "fast-forward, equal lengths"),
        (1, true, Advance::FastForward, "fast-forward, unequal lengths"),
        (1, true, Advance::Stepwise, "stepwise, unequal lengths"),
        (2, true, Advance::FastForward, "two pipeline stages, unequal lengths"),
    ] {
        let cost = cost(pp);
        let stream = stream(1000, 16, unequal);
        let outcome = run(&mut arena, &cost, &stream, advance);
        group.throughput(Throughput::Elements(outcome.iterations));
        group.bench_function(name, |bencher| bencher.iter(|| run(&mut arena, &cost, black_box(&stream), advance)));
    }
    group.finish();
}

fn look_ups(criterion: &mut Criterion) {
    let cost = cost(1);
    let decode =
        BatchShape { decode_sequences: 93, decode_context_tokens: 93 * 4321, chunks: Vec::new(), finishing_chunks: 0 };
    let mixed = BatchShape { chunks: vec![(2048, 1000)], ..decode.clone() };
    criterion.bench_function("step cost of a decode batch", |bencher| {
        bencher.iter(|| cost.line(std::slice::from_ref(black_box(&decode)), 256));
    });
    criterion.bench_function("step cost of a mixed batch", |bencher| {
        bencher.iter(|| cost.line(std::slice::from_ref(black_box(&mixed)), 256));
    });
}

fn compile(criterion: &mut Criterion) {
    let (model, costs) = llama_on_h100();
    let sharding = sharding(&model, 1);
    let mut group = criterion.benchmark_group("compile");
    group.bench_function("step cost", |bencher| {
        bencher.iter(|| {
            StepCost::compile(black_box(&sharding), STEP_LIMITS, &HOST, &|operator| costs.predict(operator).time_ns)
        });
    });
    group.bench_function("provenance", |bencher| {
        bencher
            .iter(|| CostProvenance::compile(black_box(&sharding), STEP_LIMITS, &|operator| costs.predict(operator)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = simulations, look_ups, compile
}
criterion_main!(benches);
