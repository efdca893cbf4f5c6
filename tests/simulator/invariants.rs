//! Properties that hold for every configuration and stream.

use proptest::prelude::*;
use servescape::catalog::HostOverhead;
use servescape::fidelity::StepCost;
use servescape::scheduler::SCHEDULERS;
use servescape::scheduler::router::ROUTERS;
use servescape::sim::{Advance, Arena, FrontEnd, Observer};
use servescape::space::Parallelism;
use servescape::units::Ticks;
use servescape::workload::{Prefix, Request, RequestStream, Turn};

use crate::support::{Setup, compiled_cost, no_host, single_gpu};

/// When each request completed.
#[derive(Default)]
struct Completions(Vec<(u32, Ticks)>);

impl Completions {
    fn sorted(mut self) -> Vec<(u32, Ticks)> {
        self.0.sort_unstable();
        self.0
    }
}

impl Observer for Completions {
    fn completed(&mut self, request: u32, at: Ticks) {
        self.0.push((request, at));
    }
}

prop_compose! {
    /// Up to sixty requests of a few hundred tokens, open or closed loop.
    pub(crate) fn streams()(
        requests in prop::collection::vec((0u64..400_000, 1u32..400, 1u32..200), 1..60),
        clients in prop::option::of(1u32..12),
        warmup in 0usize..3,
    ) -> RequestStream {
        let mut arrival = 0;
        let requests = requests
            .into_iter()
            .map(|(gap_ns, prompt_tokens, output_tokens)| {
                arrival += gap_ns * 1024;
                let arrival = if clients.is_some() { Ticks::ZERO } else { Ticks(arrival) };
                Request { arrival, prompt_tokens, output_tokens }
            })
            .collect();
        let stream = match clients {
            Some(clients) => RequestStream::closed(requests, clients),
            None => RequestStream::open(requests),
        };
        stream.with_warmup(warmup)
    }
}

prop_compose! {
    /// The same, where prompts begin like earlier requests and some requests are later turns.
    pub(crate) fn shared_streams()(
        stream in streams(),
        draws in prop::collection::vec((any::<u32>(), any::<u32>(), 0u8..4, 0u64..200), 60),
    ) -> RequestStream {
        let requests = stream.requests.clone();
        let mut last_turn: Vec<bool> = vec![true; requests.len()];
        let (mut prefixes, mut turns) = (vec![None], vec![None]);
        for index in 1..requests.len() {
            let (source, tokens, kind, think_us) = draws[index];
            let source = source as usize % index;
            let most = requests[index].prompt_tokens.min(requests[source].tokens());
            // Often all that is possible: prompt and answer, or the whole prompt.
            let tokens = if kind == 0 { tokens % (most + 1) } else { most };
            prefixes.push((kind < 3).then_some(Prefix { source: source as u32, tokens }));
            let follows = kind == 1 && std::mem::replace(&mut last_turn[source], false);
            turns.push(follows.then_some(Turn { follows: source as u32, think: Ticks(think_us * 1_024_000) }));
        }
        stream.with_prefixes(prefixes).unwrap().with_turns(turns).unwrap()
    }
}

/// Dense engines on one to four stages, or experts that tie `ranks` data-parallel ranks together.
fn costs(ranks: u32) -> impl Strategy<Value = StepCost> {
    let hosts = (any::<bool>(), any::<bool>(), 0u32..3).prop_map(|(asynchronous, graph, step)| {
        let host = HostOverhead {
            step_us: 40.0 * f64::from(step),
            per_sequence_us: 0.7,
            asynchronous,
            exposed_us: 3.0,
            ..no_host()
        };
        (HostOverhead { eager_layer_launch_us: 30.0, compiled_layer_launch_us: 12.0, ..host }, graph)
    });
    (hosts, prop_oneof![3 => Just(1u32), 1 => Just(2u32), 1 => Just(4u32)], any::<bool>()).prop_map(
        move |((host, graph), pp, experts)| {
            let dp_attention = if experts { ranks } else { 1 };
            compiled_cost(Parallelism { pp, dp_attention, ep_ffn: dp_attention, ..single_gpu() }, host, graph)
        },
    )
}

prop_compose! {
    pub(crate) fn setups()(
        (ranks, cost) in (1u32..4).prop_flat_map(|ranks| (Just(ranks), costs(ranks))),
        replicas in 1u32..4,
        kv_blocks in prop_oneof![Just(60u64), Just(150), Just(100_000)],
        max_num_seqs in prop_oneof![Just(1u32), Just(7), Just(64)],
        scheduler in 0..SCHEDULERS.len(),
        router in 0..ROUTERS.len(),
        budget in prop_oneof![Just(64u32), Just(256), Just(2048)],
        latency_us in 0u64..3,
        prefix_caching in any::<bool>(),
        (long_prompt, reserve_full_prompt) in (prop_oneof![Just(0u32), Just(48)], any::<bool>()),
    ) -> Setup {
        let mut setup = Setup::new(cost);
        (setup.replicas, setup.ranks, setup.kv_blocks) = (replicas, ranks, kv_blocks);
        (setup.limits.max_num_seqs, setup.limits.max_num_batched_tokens) = (max_num_seqs, budget);
        setup.limits.chunked_prefill = budget < 400;
        setup.limits.prefix_caching = prefix_caching;
        setup.rules.long_prefill_token_threshold = if setup.limits.chunked_prefill { long_prompt } else { 0 };
        setup.rules.reserve_full_prompt = reserve_full_prompt;
        (setup.scheduler, setup.router) = (SCHEDULERS[scheduler], ROUTERS[router]);
        setup.front_end = FrontEnd {
            serial_request: Ticks(latency_us * 256_000),
            serial_prompt_token: Ticks(latency_us * 100),
            ..FrontEnd::latencies(Ticks(latency_us * 1_024_000), Ticks(latency_us * 512_000))
        };
        setup
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn fast_forward_equals_stepping_to_the_tick(setup in setups(), stream in shared_streams()) {
        let (mut fast, mut stepped) = (Completions::default(), Completions::default());
        let (mut a, mut b) = (Arena::default(), Arena::default());
        let outcomes = [
            setup.observe_in(&mut a, &stream, Advance::FastForward, &mut fast),
            setup.observe_in(&mut b, &stream, Advance::Stepwise, &mut stepped),
        ];
        prop_assert_eq!(outcomes[0], outcomes[1]);
        prop_assert_eq!(fast.sorted(), stepped.sorted());
        prop_assert_eq!(a.step_mix(), b.step_mix());
    }

    #[test]
    fn every_request_completes_and_tokens_are_conserved(setup in setups(), stream in shared_streams()) {
        let outcome = setup.run(&stream);
        let requests = &stream.requests;
        prop_assert_eq!(outcome.submitted, requests.len() as u64);
        prop_assert_eq!(outcome.completed, requests.len() as u64);
        prop_assert_eq!(outcome.output_tokens, requests.iter().map(|r| u64::from(r.output_tokens)).sum::<u64>());
        prop_assert_eq!(outcome.measured as usize, requests.len().saturating_sub(stream.warmup));
        prop_assert!(setup.limits.prefix_caching || outcome.prefix_hit_tokens == 0);
        // Without preemption every prompt token is computed once or found, and every output token but the first by a decode.
        let needed: u64 = requests.iter().map(|r| u64::from(r.prompt_tokens + r.output_tokens - 1)).sum();
        if outcome.preemptions == 0 {
            prop_assert_eq!(outcome.processed_tokens + outcome.prefix_hit_tokens, needed);
        } else {
            prop_assert!(outcome.processed_tokens + outcome.prefix_hit_tokens >= needed);
        }
        prop_assert!(outcome.kv_peak_share <= 1.0);
        prop_assert!(outcome.busy_share <= 1.0 + 1e-9);
    }

    #[test]
    fn a_used_arena_gives_the_same_result_as_a_new_one(a in setups(), b in setups(), stream in shared_streams()) {
        let mut arena = Arena::default();
        a.observe_in(&mut arena, &stream, Advance::FastForward, &mut ());
        let reused = b.observe_in(&mut arena, &stream, Advance::FastForward, &mut ());
        let mut new = Arena::default();
        prop_assert_eq!(reused, b.observe_in(&mut new, &stream, Advance::FastForward, &mut ()));
        prop_assert_eq!(arena.step_mix(), new.step_mix());
    }
}
