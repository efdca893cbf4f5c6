//! What every registered policy must do; a new entry is tested by being listed.

use std::collections::BTreeSet;

use servescape::scheduler::router::ROUTERS;
use servescape::scheduler::{SCHEDULERS, scheduler};
use servescape::units::Ticks;
use servescape::workload::{Request, RequestStream};

use crate::support::{Setup, compiled_cost, faster_cost, no_host, single_gpu};

/// Requests every `gap_us` microseconds.
fn steady(gap_us: u64) -> RequestStream {
    let requests = (0..300u32)
        .map(|i| Request {
            arrival: Ticks(u64::from(i) * gap_us * 1_024_000),
            prompt_tokens: 50 + (i * 37) % 300,
            output_tokens: 1 + (i * 53) % 120,
        })
        .collect();
    RequestStream::open(requests)
}

#[test]
fn names_are_unique_and_documented() {
    let names: Vec<(&str, &str)> = SCHEDULERS
        .iter()
        .map(|s| (s.name(), s.summary()))
        .chain(ROUTERS.iter().map(|r| (r.name(), r.summary())))
        .collect();
    let distinct: BTreeSet<&str> = names.iter().map(|(name, _)| *name).collect();
    assert_eq!(distinct.len(), names.len());
    assert!(names.iter().all(|(name, summary)| !name.is_empty() && summary.len() > 15));
    assert!(scheduler("no such policy").is_none());
}

#[test]
fn every_pair_of_policies_is_deterministic_and_completes_everything() {
    let cost = compiled_cost(single_gpu(), no_host(), true);
    for &scheduler in SCHEDULERS {
        for &router in ROUTERS {
            let mut setup = Setup::new(cost.clone());
            (setup.replicas, setup.scheduler, setup.router) = (3, scheduler, router);
            let outcome = setup.run(&steady(400));
            assert_eq!(outcome.completed, 300, "{} with {}", scheduler.name(), router.name());
            assert_eq!(outcome, setup.run(&steady(400)), "{} with {}", scheduler.name(), router.name());
        }
    }
}

#[test]
fn less_load_never_makes_waiting_longer() {
    let cost = compiled_cost(single_gpu(), no_host(), true);
    for &scheduler in SCHEDULERS {
        let mut setup = Setup::new(cost.clone());
        setup.scheduler = scheduler;
        let waits: Vec<f64> =
            [100, 1_000, 10_000, 100_000].map(|gap_us| setup.run(&steady(gap_us)).ttft.mean_ms).into();
        assert!(waits.windows(2).all(|pair| pair[1] <= pair[0] * 1.001), "{}: {waits:?}", scheduler.name());
    }
}

#[test]
fn a_faster_gpu_never_makes_a_percentile_worse() {
    let slow = compiled_cost(single_gpu(), no_host(), true);
    let fast = faster_cost();
    for &scheduler in SCHEDULERS {
        let run = |cost: &servescape::fidelity::StepCost| {
            let mut setup = Setup::new(cost.clone());
            setup.scheduler = scheduler;
            setup.run(&steady(900))
        };
        let (slow, fast) = (run(&slow), run(&fast));
        for (slow_ms, fast_ms) in [
            (slow.ttft.p50_ms, fast.ttft.p50_ms),
            (slow.ttft.p99_ms, fast.ttft.p99_ms),
            (slow.tpot.p95_ms, fast.tpot.p95_ms),
            (slow.e2e.p95_ms, fast.e2e.p95_ms),
        ] {
            // Step boundaries move against arrivals, so a little slack is left.
            assert!(fast_ms <= slow_ms * 1.02, "{}: {fast_ms} ms against {slow_ms} ms", scheduler.name());
        }
    }
}
