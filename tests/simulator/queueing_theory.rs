//! Analytical oracles: with constant step times and single-token answers an engine is a textbook server.

use servescape::fidelity::StepCost;
use servescape::rng::Stream;
use servescape::scheduler::router::router;
use servescape::units::Ticks;
use servescape::workload::{Request, RequestStream};

use crate::support::{MS, Setup};

/// Poisson arrivals of single-token requests at a rate that loads `servers` servers of one millisecond to `load`.
fn poisson(requests: usize, servers: u32, load: f64) -> RequestStream {
    let mut gaps = Stream::new(3, "oracle", u64::from(servers));
    let mut now = 0.0;
    let requests = (0..requests)
        .map(|_| {
            now += gaps.exponential() * 1e6 / (load * f64::from(servers));
            Request { arrival: Ticks::from_ns(now), prompt_tokens: 1, output_tokens: 1 }
        })
        .collect();
    RequestStream::open(requests)
}

/// An engine that serves one request at a time, one millisecond each.
fn server() -> Setup {
    let mut setup = Setup::new(StepCost::constant(MS.0));
    setup.limits.max_num_seqs = 1;
    setup
}

#[test]
fn one_engine_waits_like_m_d_1() {
    for load in [0.3, 0.6, 0.8] {
        let outcome = server().run(&poisson(200_000, 1, load));
        // Pollaczek-Khinchine: W = rho S / (2 (1 - rho)).
        let expected_ms = load / (2.0 * (1.0 - load));
        let measured_ms = outcome.queueing.mean_ms;
        assert!(
            (measured_ms / expected_ms - 1.0).abs() < 0.04,
            "load {load}: {measured_ms} ms, theory {expected_ms} ms"
        );
        assert!((outcome.busy_share - load).abs() < 0.01);
    }
}

#[test]
fn round_robin_over_c_engines_follows_lindleys_recursion() {
    let (engines, load) = (4, 0.8);
    let mut setup = server();
    setup.replicas = engines;
    let stream = poisson(50_000, engines, load);
    // W(n + 1) = max(0, W(n) + S - A(n)) for every fourth request.
    let mut total_ms = 0.0;
    for engine in 0..engines as usize {
        let mut free_at = Ticks::ZERO;
        for request in stream.requests.iter().skip(engine).step_by(engines as usize) {
            let start = free_at.max(request.arrival);
            total_ms += (start - request.arrival).as_ms();
            free_at = start + MS;
        }
    }
    let expected_ms = total_ms / stream.requests.len() as f64;
    let measured_ms = setup.run(&stream).queueing.mean_ms;
    assert!((measured_ms / expected_ms - 1.0).abs() < 1e-9, "{measured_ms} ms, recursion {expected_ms} ms");
}

#[test]
fn least_outstanding_approaches_m_d_c() {
    // M/D/c by Cosmetatos' approximation (error below 2 % here):
    // W = W(M/M/c)/2 * (1 + (1 - rho)(c - 1)(sqrt(4 + 5c) - 2) / (16 rho c)). Joining the shortest of c queues waits a
    // little longer than one common queue, because a request cannot change its queue.
    let (servers, load) = (4u32, 0.8);
    let c = f64::from(servers);
    let offered = load * c;
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..servers {
        term *= offered / f64::from(k);
        sum += term;
    }
    let last = term * offered / c / (1.0 - load);
    let waits = last / (sum + last);
    let mmc_ms = waits / (c * (1.0 - load));
    let correction = 1.0 + (1.0 - load) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * load * c);
    let theory_ms = mmc_ms / 2.0 * correction;
    let mut setup = server();
    setup.replicas = servers;
    setup.router = router("least_outstanding").unwrap();
    let measured_ms = setup.run(&poisson(200_000, servers, load)).queueing.mean_ms;
    assert!(measured_ms > 0.97 * theory_ms && measured_ms < 1.6 * theory_ms, "{measured_ms} ms, theory {theory_ms} ms");
}

#[test]
fn littles_law_holds() {
    let load = 0.7;
    let stream = poisson(100_000, 1, load);
    let outcome = server().run(&stream);
    // L = lambda W with L from an independent count: integrate the number in the system over time.
    let (mut events, service) = (Vec::new(), 1.0);
    let mut free_at: f64 = 0.0;
    for request in &stream.requests {
        let arrival = request.arrival.as_ms();
        free_at = free_at.max(arrival) + service;
        events.push((arrival, 1.0));
        events.push((free_at, -1.0));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut area, mut inside, mut last) = (0.0, 0.0, events[0].0);
    for (time, change) in events {
        area += inside * (time - last);
        inside += change;
        last = time;
    }
    let span_ms = outcome.makespan_s * 1e3;
    let lambda_w = outcome.completed as f64 / span_ms * outcome.e2e.mean_ms;
    assert!((area / span_ms / lambda_w - 1.0).abs() < 1e-6, "L {} lambda W {lambda_w}", area / span_ms);
}

#[test]
fn latency_without_load_is_the_sum_of_the_steps() {
    let mut setup = Setup::new(StepCost::constant(MS.0));
    setup.limits.max_num_batched_tokens = 128;
    let spaced =
        (0..50).map(|i| Request { arrival: Ticks(i * 1000 * MS.0), prompt_tokens: 500, output_tokens: 20 }).collect();
    let outcome = setup.run(&RequestStream::open(spaced));
    // 500 tokens in chunks of 128 take four steps; nineteen decode steps follow.
    assert_eq!((outcome.ttft.p99_ms, outcome.e2e.p99_ms), (4.0, 23.0));
}

#[test]
fn throughput_at_saturation_is_the_batch_limit_over_the_step_time() {
    let mut setup = Setup::new(StepCost::constant(MS.0));
    setup.limits.max_num_seqs = 32;
    let requests = vec![Request { arrival: Ticks::ZERO, prompt_tokens: 1, output_tokens: 100 }; 32 * 40];
    let outcome = setup.run(&RequestStream::open(requests));
    // 32 sequences give 32 tokens a millisecond; a generation of sequences takes 100 steps.
    assert_eq!(outcome.makespan_s, 40.0 * 0.1);
    assert_eq!(outcome.output_tokens as f64 / outcome.makespan_s, 32_000.0);
}

#[test]
fn throughput_does_not_depend_on_the_warm_up() {
    let mut setup = Setup::new(StepCost::constant(MS.0));
    setup.limits.max_num_seqs = 32;
    // Everything at once: the measured requests wait behind the warm-up.
    let requests = vec![Request { arrival: Ticks::ZERO, prompt_tokens: 1, output_tokens: 100 }; 32 * 40];
    for warmup in [0, 320, 640, 1152] {
        let outcome = setup.run(&RequestStream::open(requests.clone()).with_warmup(warmup));
        assert_eq!(outcome.output_tokens as f64 / outcome.makespan_s, 32_000.0, "warm-up {warmup}");
        assert_eq!(outcome.measured, 1280 - warmup as u64);
    }
}
