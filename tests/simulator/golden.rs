//! Small scenarios worked out by hand. Every step lasts one millisecond.

use servescape::catalog::HostOverhead;
use servescape::fidelity::StepCost;
use servescape::scheduler::router::router;
use servescape::scheduler::scheduler;
use servescape::sim::{Advance, Arena, FrontEnd, RequestBounds};
use servescape::space::Parallelism;
use servescape::units::Ticks;
use servescape::workload::{Prefix, RequestStream, Turn};

use crate::support::{MS, Setup, Transcript, compiled_cost, ms, no_host, single_gpu, stream};

fn transcript(setup: &Setup, stream: &RequestStream) -> String {
    let mut transcript = Transcript::default();
    setup.observe(stream, Advance::FastForward, &mut transcript);
    transcript.text
}

fn one_ms_steps() -> Setup {
    Setup::new(StepCost::constant(MS.0))
}

#[test]
fn one_request_takes_one_prompt_step_and_a_decode_step_for_each_further_token() {
    let outcome = one_ms_steps().run(&stream(&[(5, 100, 4)]));
    assert_eq!((outcome.completed, outcome.iterations), (1, 4));
    assert_eq!((outcome.ttft.p50_ms, outcome.tpot.p50_ms, outcome.e2e.p50_ms), (1.0, 1.0, 4.0));
    assert_eq!(outcome.makespan_s, 0.004);
    assert_eq!(outcome.processed_tokens, 100 + 3);
}

#[test]
fn a_long_prompt_is_chunked_and_decodes_keep_running_beside_it() {
    let text = transcript(&one_ms_steps(), &stream(&[(0, 10, 6), (1, 600, 2)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0  x1
    1 ..    2  replica 0 lane 0  decode 1 prompt 255@0  x1
    2 ..    3  replica 0 lane 0  decode 1 prompt 255@255  x1
    3 ..    4  replica 0 lane 0  decode 1 prompt 90@510  x1
    4 ..    5  replica 0 lane 0  decode 2  x1
            5  request 1 completed
    5 ..    6  replica 0 lane 0  decode 1  x1
            6  request 0 completed
    ");
}

#[test]
fn without_chunked_prefill_a_prompt_waits_for_a_step_that_holds_it_whole() {
    let mut setup = one_ms_steps();
    setup.limits.chunked_prefill = false;
    let text = transcript(&setup, &stream(&[(0, 200, 3), (0, 100, 2)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 200@0  x1
    1 ..    2  replica 0 lane 0  decode 1 prompt 100@0  x1
    2 ..    3  replica 0 lane 0  decode 2  x1
            3  request 0 completed
            3  request 1 completed
    ");
}

#[test]
fn a_preempted_request_is_recomputed_in_chunks_and_completes() {
    // Four blocks of 16. Both requests need three blocks at 33 tokens; the second, admitted last, gives way when the
    // first opens its third block, and starts again with its prompt and the two tokens it had produced.
    let mut setup = one_ms_steps();
    setup.kv_blocks = 4;
    let text = transcript(&setup, &stream(&[(0, 31, 4), (0, 31, 4)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 31@0 prompt 31@0  x1
    1 ..    2  replica 0 lane 0  decode 2  x1
    2 ..    3  replica 0 lane 0  decode 1  x1
    3 ..    4  replica 0 lane 0  decode 1  x1
            4  request 0 completed
    4 ..    5  replica 0 lane 0  decode 0 prompt 33@0  x1
    5 ..    6  replica 0 lane 0  decode 1  x1
            6  request 1 completed
    ");
    let outcome = setup.run(&stream(&[(0, 31, 4), (0, 31, 4)]));
    assert_eq!((outcome.completed, outcome.preemptions), (2, 1));
    assert_eq!(outcome.kv_peak_share, 1.0);
}

#[test]
fn max_num_seqs_holds_back_admission_until_a_sequence_ends() {
    let mut setup = one_ms_steps();
    setup.limits.max_num_seqs = 2;
    let text = transcript(&setup, &stream(&[(0, 10, 3), (0, 10, 5), (0, 10, 2)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0 prompt 10@0  x1
    1 ..    3  replica 0 lane 0  decode 2  x2
            3  request 0 completed
    3 ..    4  replica 0 lane 0  decode 1 prompt 10@0  x1
    4 ..    5  replica 0 lane 0  decode 2  x1
            5  request 1 completed
            5  request 2 completed
    ");
}

#[test]
fn an_arrival_during_a_run_joins_at_the_next_step_boundary() {
    let text = transcript(&one_ms_steps(), &stream(&[(0, 10, 8), (3, 10, 2)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0  x1
    1 ..    3  replica 0 lane 0  decode 1  x2
    3 ..    4  replica 0 lane 0  decode 1 prompt 10@0  x1
    4 ..    5  replica 0 lane 0  decode 2  x1
            5  request 1 completed
    5 ..    8  replica 0 lane 0  decode 1  x3
            8  request 0 completed
    ");
}

#[test]
fn two_pipeline_lanes_overlap_on_two_stages() {
    let setup = Setup::new(StepCost::pipeline(&[MS.0, MS.0]));
    let text = transcript(&setup, &stream(&[(0, 256, 3), (0, 256, 3)]));
    insta::assert_snapshot!(text, @r"
    0 ..    2  replica 0 lane 0  decode 0 prompt 256@0  x1
    0 ..    3  replica 0 lane 1  decode 0 prompt 256@0  x1
    2 ..    4  replica 0 lane 0  decode 1  x1
    3 ..    5  replica 0 lane 1  decode 1  x1
    4 ..    6  replica 0 lane 0  decode 1  x1
            6  request 0 completed
    5 ..    7  replica 0 lane 1  decode 1  x1
            7  request 1 completed
    ");
}

#[test]
fn host_time_is_paid_once_a_step_whatever_the_number_of_stages() {
    let host = |exposed_us| HostOverhead { exposed_us, ..no_host() };
    for pp in [1, 2, 4] {
        let tpot_ms = |exposed_us| {
            let cost = compiled_cost(Parallelism { pp, ..single_gpu() }, host(exposed_us), true);
            Setup::new(cost).run(&stream(&[(0, 100, 11)])).tpot.mean_ms
        };
        let added_ms = tpot_ms(2000.0) - tpot_ms(0.0);
        assert!((added_ms - 2.0).abs() < 1e-6, "pp {pp}: {added_ms} ms");
    }
}

#[test]
fn gaps_of_warm_up_requests_are_not_measured() {
    let mut setup = one_ms_steps();
    setup.limits.max_num_seqs = 1;
    let mut requests = stream(&[(0, 10, 50), (100, 600, 3)]);
    requests.warmup = 1;
    let outcome = setup.run(&requests);
    // Only the two gaps of the second request count.
    assert_eq!((outcome.itl.mean_ms, outcome.tpot.mean_ms), (1.0, 1.0));
    requests.warmup = 2;
    assert_eq!(setup.run(&requests).itl.mean_ms, 0.0);
}

#[test]
fn ranks_in_lock_step_step_together() {
    let mut setup = one_ms_steps();
    setup.ranks = 2;
    let text = transcript(&setup, &stream(&[(0, 10, 4), (0, 300, 3)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0  decode 0 prompt 256@0  x1
    1 ..    2  replica 0 lane 0  decode 1  decode 0 prompt 44@256  x1
    2 ..    4  replica 0 lane 0  decode 1  decode 1  x2
            4  request 0 completed
            4  request 1 completed
    ");
}

#[test]
fn requests_that_arrive_one_by_one_are_spread_over_the_ranks() {
    let mut setup = one_ms_steps();
    (setup.ranks, setup.router) = (4, router("least_outstanding").unwrap());
    let text = transcript(&setup, &stream(&[(0, 10, 20), (1, 10, 30), (2, 10, 40), (3, 10, 50)]));
    // From the fourth arrival on each rank decodes one sequence.
    assert!(text.contains("decode 1  decode 1  decode 1  decode 1"), "{text}");
}

#[test]
fn closed_loop_clients_issue_the_next_request_when_the_last_completes() {
    let mut requests = stream(&[(0, 10, 3); 4]);
    requests.clients = Some(2);
    let text = transcript(&one_ms_steps(), &requests);
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0 prompt 10@0  x1
    1 ..    3  replica 0 lane 0  decode 2  x2
            3  request 0 completed
            3  request 1 completed
    3 ..    4  replica 0 lane 0  decode 0 prompt 10@0 prompt 10@0  x1
    4 ..    6  replica 0 lane 0  decode 2  x2
            6  request 2 completed
            6  request 3 completed
    ");
    assert_eq!(one_ms_steps().run(&requests).e2e.p99_ms, 3.0);
}

/// Steps of one millisecond whose batches are decided when the step before starts.
fn asynchronous_steps() -> Setup {
    let mut setup = one_ms_steps();
    setup.cost = setup.cost.with_host(&HostOverhead { asynchronous: true, ..no_host() });
    setup
}

#[test]
fn an_asynchronous_engine_sees_an_arrival_one_step_later() {
    // The second request arrives as a step of the first ends: the next step is decided, the one after takes it.
    let requests = stream(&[(0, 10, 8), (2, 10, 2)]);
    assert_eq!(one_ms_steps().run(&requests).ttft.p99_ms, 1.0);
    assert_eq!(asynchronous_steps().run(&requests).ttft.p99_ms, 2.0);
    // An idle engine has decided nothing.
    let requests = stream(&[(0, 10, 2), (5, 10, 2)]);
    assert_eq!(asynchronous_steps().run(&requests).ttft.p99_ms, 1.0);
}

#[test]
fn an_asynchronous_engine_gives_a_place_away_one_step_after_it_is_free() {
    // The first of two places is free at 3 ms, while the second request decodes on.
    let requests = stream(&[(0, 10, 3), (0, 10, 9), (0, 10, 3)]);
    let longest_wait = |mut setup: Setup| {
        setup.limits.max_num_seqs = 2;
        setup.run(&requests).ttft.p99_ms
    };
    assert_eq!(longest_wait(one_ms_steps()), 4.0);
    assert_eq!(longest_wait(asynchronous_steps()), 5.0);
    // With one place nothing else runs, and the engine looks again at once.
    let requests = stream(&[(0, 10, 3), (0, 10, 3)]);
    let mut setup = asynchronous_steps();
    setup.limits.max_num_seqs = 1;
    assert_eq!(setup.run(&requests).ttft.p99_ms, 4.0);
}

#[test]
fn client_latencies_shift_the_first_token_but_not_the_gaps() {
    let mut setup = one_ms_steps();
    setup.front_end = FrontEnd::latencies(ms(3), ms(2));
    let outcome = setup.run(&stream(&[(0, 10, 3)]));
    assert_eq!((outcome.ttft.mean_ms, outcome.tpot.mean_ms, outcome.e2e.mean_ms), (6.0, 1.0, 8.0));
}

#[test]
fn goodput_counts_requests_that_meet_every_bound() {
    let mut setup = one_ms_steps();
    setup.limits.max_num_seqs = 1;
    // The second request waits three milliseconds for the first.
    setup.bounds = RequestBounds { ttft: ms(2), ..RequestBounds::NONE };
    let outcome = setup.run(&stream(&[(0, 10, 3), (0, 10, 3)]));
    assert_eq!((outcome.measured, outcome.met_sla), (2, 1));
    assert_eq!(outcome.queueing.p99_ms, 3.0);
}

#[test]
fn warm_up_requests_load_the_system_but_are_not_measured() {
    let mut requests = stream(&[(0, 10, 3), (0, 20, 5), (0, 20, 5)]);
    requests.warmup = 1;
    let outcome = one_ms_steps().run(&requests);
    assert_eq!((outcome.completed, outcome.measured, outcome.output_tokens), (3, 2, 13));
    // The first request would lower the mean.
    assert_eq!(outcome.e2e.mean_ms, 5.0);
}

fn prefix(source: u32, tokens: u32) -> Option<Prefix> {
    Some(Prefix { source, tokens })
}

#[test]
fn a_prompt_begins_where_the_cache_ends() {
    let mut setup = one_ms_steps();
    setup.limits.prefix_caching = true;
    // Two system-prompt users, then a whole repetition. 70 tokens are four full blocks and a part; of the repeated prompt
    // of 96 tokens the last block is computed again, because a token must be.
    let requests = stream(&[(0, 96, 2), (5, 90, 2), (10, 96, 2)]);
    let requests = requests.with_prefixes(vec![None, prefix(0, 70), prefix(0, 96)]).unwrap();
    let text = transcript(&setup, &requests);
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 96@0  x1
    1 ..    2  replica 0 lane 0  decode 1  x1
            2  request 0 completed
    5 ..    6  replica 0 lane 0  decode 0 prompt 26@64  x1
    6 ..    7  replica 0 lane 0  decode 1  x1
            7  request 1 completed
   10 ..   11  replica 0 lane 0  decode 0 prompt 16@80  x1
   11 ..   12  replica 0 lane 0  decode 1  x1
           12  request 2 completed
    ");
    assert_eq!(setup.run(&requests).prefix_hit_tokens, 64 + 80);
    setup.limits.prefix_caching = false;
    assert_eq!(setup.run(&requests).prefix_hit_tokens, 0);
}

#[test]
fn a_session_goes_on_when_its_turn_has_ended_and_finds_prompt_and_answer() {
    let mut setup = one_ms_steps();
    setup.limits.prefix_caching = true;
    setup.front_end = FrontEnd::latencies(ms(1), ms(2));
    let turn = Some(Turn { follows: 0, think: ms(10) });
    let requests = stream(&[(0, 30, 4), (0, 60, 2)]);
    let requests = requests.with_prefixes(vec![None, prefix(0, 34)]).unwrap().with_turns(vec![None, turn]).unwrap();
    let text = transcript(&setup, &requests);
    // The first turn ends at 5, is read at 7; the second is sent at 17. Of the 33 tokens in the cache two blocks are full.
    insta::assert_snapshot!(text, @r"
    1 ..    2  replica 0 lane 0  decode 0 prompt 30@0  x1
    2 ..    5  replica 0 lane 0  decode 1  x3
            5  request 0 completed
   18 ..   19  replica 0 lane 0  decode 0 prompt 28@32  x1
   19 ..   20  replica 0 lane 0  decode 1  x1
           20  request 1 completed
    ");
    let mut arena = Arena::default();
    setup.observe_in(&mut arena, &requests, Advance::FastForward, &mut ());
    let second = arena.timings().nth(1).unwrap();
    assert_eq!((second.arrival, second.first_token, second.completed), (ms(17), ms(19), ms(20)));
    assert_eq!(second.prefix_hit_tokens, 32);
    // From its own sending.
    assert_eq!(setup.run(&requests).ttft.p99_ms, 4.0);
}

#[test]
fn one_client_holds_one_session_at_a_time() {
    let turn = |follows| Some(Turn { follows, think: Ticks::ZERO });
    let mut requests = stream(&[(0, 10, 1); 4]).with_turns(vec![None, None, turn(0), turn(1)]).unwrap();
    requests.clients = Some(1);
    let text = transcript(&one_ms_steps(), &requests);
    let order: Vec<&str> = text.lines().filter_map(|line| line.split("request ").nth(1)).collect();
    assert_eq!(order, ["0 completed", "2 completed", "1 completed", "3 completed"]);
}

#[test]
fn shared_blocks_count_once_and_make_room() {
    let mut setup = one_ms_steps();
    // Two requests of six blocks each, five of them the same: seven blocks suffice for both at once.
    setup.kv_blocks = 7;
    let requests = stream(&[(0, 90, 3), (0, 90, 3)]).with_prefixes(vec![None, prefix(0, 80)]).unwrap();
    setup.limits.prefix_caching = true;
    let outcome = setup.run(&requests);
    assert_eq!((outcome.e2e.p99_ms, outcome.kv_peak_share, outcome.preemptions), (3.0, 1.0, 0));
    setup.limits.prefix_caching = false;
    assert_eq!(setup.run(&requests).e2e.p99_ms, 6.0);
}

#[test]
fn idle_blocks_give_way_to_running_requests() {
    let mut setup = one_ms_steps();
    (setup.kv_blocks, setup.limits.prefix_caching) = (8, true);
    // The second request needs six of the eight blocks: of the five idle ones of the first (its last is not full) two
    // stay, the first ones.
    let requests = stream(&[(0, 80, 8), (10, 90, 2), (20, 80, 2)]);
    let requests = requests.with_prefixes(vec![None, None, prefix(0, 80)]).unwrap();
    assert_eq!(setup.run(&requests).prefix_hit_tokens, 32);
}

#[test]
fn sglang_works_on_prompts_first_and_never_mixes() {
    let mut setup = one_ms_steps();
    setup.scheduler = scheduler("sglang").unwrap();
    // The second arrival interrupts decoding for three chunks of at most 256 tokens; the third joins the last of them.
    let requests = stream(&[(0, 10, 6), (2, 600, 2), (3, 20, 2)]);
    let text = transcript(&setup, &requests);
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 10@0  x1
    1 ..    2  replica 0 lane 0  decode 1  x1
    2 ..    3  replica 0 lane 0  decode 0 prompt 256@0  x1
    3 ..    4  replica 0 lane 0  decode 0 prompt 256@256  x1
    4 ..    5  replica 0 lane 0  decode 0 prompt 88@512 prompt 20@0  x1
    5 ..    6  replica 0 lane 0  decode 3  x1
            6  request 1 completed
            6  request 2 completed
    6 ..    9  replica 0 lane 0  decode 1  x3
            9  request 0 completed
    ");
    // Six gaps of one millisecond, and one of four: of the first request, over the three prompt steps.
    let outcome = setup.run(&requests);
    assert!((outcome.itl.mean_ms - 10.0 / 7.0).abs() < 1e-9, "{}", outcome.itl.mean_ms);
    assert!((outcome.itl.p99_ms - 4.0).abs() < 0.04);
}

#[test]
fn sglang_admits_when_the_expected_output_has_room() {
    let mut setup = one_ms_steps();
    setup.scheduler = scheduler("sglang").unwrap();
    setup.rules.expected_output.initial_share = 0.5;
    setup.rules.expected_output.least_share = 0.5;
    setup.kv_blocks = 20;
    // 320 tokens. After its prompt of 100 the first holds 112 and is expected to need 50 of its 100 more; the second needs
    // 30 + 100 and a block: 146 of the 158 left. With 13 more tokens of output it waits until there is room.
    let fits = stream(&[(0, 100, 101), (1, 30, 100)]);
    assert_eq!(setup.run(&fits).queueing.p99_ms, 0.0);
    let waits = stream(&[(0, 100, 101), (1, 30, 113)]);
    assert!(setup.run(&waits).queueing.p99_ms > 1.0);
}

#[test]
fn trtllm_guarantees_that_nobody_is_paused_or_uses_all_of_the_memory() {
    let mut setup = one_ms_steps();
    setup.kv_blocks = 4;
    // As in the recomputation of vLLM above: three blocks each at the end, two after the prompt.
    let requests = stream(&[(0, 31, 4), (0, 31, 4)]);
    setup.scheduler = scheduler("trtllm-guaranteed-no-evict").unwrap();
    let guaranteed = setup.run(&requests);
    assert_eq!((guaranteed.preemptions, guaranteed.queueing.p99_ms, guaranteed.e2e.p99_ms), (0, 4.0, 8.0));
    setup.scheduler = scheduler("trtllm-max-utilization").unwrap();
    let packed = setup.run(&requests);
    assert_eq!((packed.preemptions, packed.queueing.p99_ms, packed.e2e.p99_ms), (1, 0.0, 6.0));
}

#[test]
fn a_threshold_on_long_prompts_lets_short_ones_pass() {
    let mut setup = one_ms_steps();
    setup.rules.long_prefill_token_threshold = 100;
    let text = transcript(&setup, &stream(&[(0, 250, 2), (0, 20, 2)]));
    insta::assert_snapshot!(text, @r"
    0 ..    1  replica 0 lane 0  decode 0 prompt 100@0 prompt 20@0  x1
    1 ..    2  replica 0 lane 0  decode 1 prompt 100@100  x1
            2  request 1 completed
    2 ..    3  replica 0 lane 0  decode 0 prompt 50@200  x1
    3 ..    4  replica 0 lane 0  decode 1  x1
            4  request 0 completed
    ");
}

#[test]
fn a_full_prompt_reservation_holds_back_what_would_be_preempted() {
    let mut setup = one_ms_steps();
    setup.kv_blocks = 40;
    // The second prompt's first chunk fits beside the first request, but not all of it.
    let requests = stream(&[(0, 250, 8), (1, 500, 2)]);
    assert!(setup.run(&requests).preemptions > 0);
    setup.rules.reserve_full_prompt = true;
    let reserved = setup.run(&requests);
    assert_eq!((reserved.preemptions, reserved.queueing.p99_ms), (0, 7.0));
}
