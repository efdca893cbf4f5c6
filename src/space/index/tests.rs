use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::spec::fake::Fake;

const HEAD: &str = r#"
[sweep]
model = "MODEL"
gpus = GPUS
[workload]
requests = 10
input = { fixed = 100 }
output = { fixed = 10 }
arrival = { poisson = { rate = RATES } }
"#;

fn space(model: &str, gpus: &str, rates: &str, blocks: &[String]) -> Space {
    let mut text = HEAD.replace("MODEL", model).replace("GPUS", gpus).replace("RATES", rates);
    for all in blocks {
        text.push_str(&format!("[[colocation]]\nall = {{ {all} }}\n"));
    }
    match Sweep::from_text("demo.toml", text, &Fake) {
        Ok(sweep) => Space::new(&sweep),
        Err(problems) => panic!("{problems}"),
    }
}

fn valid(space: &Space) -> Vec<Candidate> {
    (0..space.len()).filter_map(|index| space.candidate(index).ok()).collect()
}

fn ids(space: &Space) -> BTreeSet<CandidateId> {
    valid(space).iter().map(|candidate| candidate.id).collect()
}

#[test]
fn the_load_changes_fastest_and_hardware_slowest() {
    let block = "gpu = [\"h100-sxm\", \"h800\"], tp = [4, 8], max_num_seqs = [32, 64]".to_owned();
    let space = space("dense-70b", "8", "[1, 2]", &[block]);
    assert_eq!(space.len(), 16);
    let order: Vec<(String, u32, u32, f64)> = valid(&space)
        .iter()
        .map(|candidate| {
            let pool = &candidate.pools[0];
            (pool.gpu.name.clone(), pool.parallelism.tp_attention, pool.engine.max_num_seqs, candidate.load)
        })
        .collect();
    assert_eq!(order[0], ("h100-sxm".into(), 4, 32, 1.0));
    assert_eq!(order[1], ("h100-sxm".into(), 4, 32, 2.0));
    assert_eq!(order[2], ("h100-sxm".into(), 4, 64, 1.0));
    assert_eq!(order[4], ("h100-sxm".into(), 8, 32, 1.0));
    assert_eq!(order[8], ("h800".into(), 4, 32, 1.0));
}

#[test]
fn exclusions_are_counted_by_reason() {
    let block = "gpu = [\"h100-sxm\", \"a100-80gb-sxm\"], tp = [1, 3, 4, 6, 16], \
                 precision = [\"bf16\", \"fp8\"], max_num_seqs = [64, 9000]";
    let space = space("dense-70b", "12", "1", &[block.to_owned()]);
    let mut counts = std::collections::BTreeMap::new();
    for excluded in (0..space.len()).filter_map(|index| space.candidate(index).err()) {
        *counts.entry(excluded.reason()).or_insert(0) += 1;
    }
    let expected = [("heads", 12), ("precision", 10), ("tokens_below_sequences", 6), ("world_over_budget", 6)];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_deployment_in_two_blocks_is_simulated_once() {
    let first = "gpu = \"h100-sxm\", tp = [2, 4]".to_owned();
    let second = "gpu = \"h100-sxm\", tp = [4, 8]".to_owned();
    let space = space("dense-70b", "8", "1", &[first, second]);
    let results: Vec<_> = (0..space.len()).map(|index| space.candidate(index)).collect();
    assert_eq!(results[2].as_ref().err(), Some(&Excluded::Repeated { block: 1 }));
    assert!(results[3].is_ok());
    assert_eq!(ids(&space).len(), 3);
}

#[test]
fn replicas_are_an_axis_below_a_budget() {
    let block = "gpu = \"h100-sxm\", tp = 2, replicas = [1, 2, 4, 8]".to_owned();
    let at_most = space("dense-70b", "8\nat_most = true", "1", std::slice::from_ref(&block));
    let replicas: Vec<u32> = valid(&at_most).iter().map(|candidate| candidate.pools[0].replicas).collect();
    assert_eq!(replicas, [1, 2, 4]);
    let exact = space("dense-70b", "[4, 8]", "1", &[block]);
    let sizes: Vec<u32> = valid(&exact).iter().map(Candidate::gpus).collect();
    assert_eq!(sizes, [4, 8]);
}

#[test]
fn absurd_sizes_are_excluded_without_overflow() {
    let block =
        "gpu = \"h100-sxm\", tp = 4294967295, pp = 4294967295, dp = 4294967295, replicas = 4294967295".to_owned();
    let space = space("dense-70b", "8", "1", &[block]);
    assert!(matches!(space.candidate(0), Err(Excluded::WorldOverBudget { .. })));
}

#[test]
#[should_panic(expected = "below the length")]
fn an_index_beyond_the_end_is_a_bug() {
    let space = space("dense-70b", "8", "1", &["gpu = \"h100-sxm\"".to_owned()]);
    let _ = space.candidate(space.len());
}

/// A non-empty list of distinct values out of the given ones, in any order.
fn axis(values: &'static [u32]) -> impl Strategy<Value = Vec<u32>> {
    proptest::sample::subsequence(values, 1..=values.len()).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Every valid index gives another deployment, and its place in the sweep does not matter to its id.
    #[test]
    fn valid_candidates_are_distinct_and_their_ids_stable(
        model in prop_oneof![Just("dense-70b"), Just("moe-8x7b")],
        pp in axis(&[1, 2, 4]),
        tp in axis(&[1, 2, 3, 8]),
        dp in axis(&[1, 2, 4]),
        seqs in axis(&[16, 64, 4096]),
        tokens in axis(&[512, 8192]),
        rates in axis(&[1, 2, 5]),
    ) {
        let block = |pp: &[u32], tp: &[u32]| {
            let ep = if model == "moe-8x7b" { ", ep = [1, 2, 4, 8]" } else { "" };
            format!(
                "gpu = [\"h100-sxm\", \"h800\"], pp = {pp:?}, tp = {tp:?}, dp = {dp:?}{ep}, max_num_seqs = {seqs:?}, \
                 max_num_batched_tokens = {tokens:?}, precision = [\"bf16\", \"fp8\"]"
            )
        };
        let one = space(model, "16", &format!("{rates:?}"), &[block(&pp, &tp)]);
        let candidates = valid(&one);
        let unique: BTreeSet<CandidateId> = candidates.iter().map(|candidate| candidate.id).collect();
        prop_assert_eq!(unique.len(), candidates.len());
        for candidate in &candidates {
            let split = candidate.pools[0].parallelism;
            prop_assert_eq!(split.tp_attention * split.dp_attention, split.tp_ffn * split.ep_ffn);
            prop_assert_eq!(candidate.gpus(), 16);
            prop_assert_eq!(&one.candidate(candidate.index), &Ok(candidate.clone()));
        }
        let mut reversed_tp = tp.clone();
        reversed_tp.reverse();
        let reordered = space(model, "16", &format!("{rates:?}"), &[block(&pp, &reversed_tp)]);
        prop_assert_eq!(&ids(&reordered), &unique);
        let mut longer_pp = vec![8];
        longer_pp.extend(&pp);
        let mut more_rates = vec![7];
        more_rates.extend(&rates);
        let extended = space(model, "16", &format!("{more_rates:?}"), &[block(&longer_pp, &tp)]);
        prop_assert!(ids(&extended).is_superset(&unique));
    }
}

#[test]
fn the_sweeps_of_the_repository_have_the_promised_size() {
    for (name, least, most) in [("00-smoke", 30, 100), ("10-llama70b-h100", 3_000, 10_000)] {
        let path = format!("{}/sweeps/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let sweep = Sweep::from_file(std::path::Path::new(&path), &Fake).expect("a valid sweep");
        let count = valid(&Space::new(&sweep)).len();
        assert!((least..=most).contains(&count), "{name}: {count} valid candidates");
    }
}
