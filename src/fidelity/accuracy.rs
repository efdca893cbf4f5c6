//! How far to trust a fit: it is repeated without some rows and judged on them. Shapes are held out whole, so that no
//! repeat or neighbour of a judged row is in the fit.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::card::{ALL_GROUPS, ALL_SPLITS, ErrorEntry, ErrorKind, ErrorStatistics, WorstShape};
use super::family::{Family, Split};
use super::operator::{Experts, Operator};
use super::roofline::benchmark_ns;
use super::train::{Row, fit_family};
use crate::catalog::{Gpu, NumberFormat};
use crate::diag::Diagnostic;
use crate::network::CollectiveKind;
use crate::rng::Stream;

/// Split name of rows drawn at random.
pub const RANDOM_ROWS: &str = "one row in ten";

/// One in so many keys without an order (matrix shapes, head counts) is held out, by a hash of the key.
const HELD_OUT_ONE_IN: u64 = 7;
/// Of keys with an order (tokens, batch, bytes) every fourth is held out, counted so that both ends stay in the fit.
const HELD_OUT_STRIDE: usize = 4;
/// The largest of so many equal parts of the ordered keys is held out to measure extrapolation.
const EXTRAPOLATED_ONE_IN: usize = 4;
/// One in so many rows is held out at random.
const RANDOM_ONE_IN: u64 = 10;
/// Badly predicted shapes listed per family.
const WORST_SHAPES: usize = 3;

/// One way to divide the rows of a family.
struct Trial {
    kind: ErrorKind,
    held_out: &'static str,
    /// Per row, whether it is judged rather than fitted.
    judged: Vec<bool>,
}

/// A row that was left out, and what the fit said of it.
struct Verdict {
    operator: Operator,
    group: String,
    measured_ns: f64,
    predicted_ns: f64,
}

impl Verdict {
    /// Relative error with its sign, in per cent.
    fn error(&self) -> f64 {
        (self.predicted_ns / self.measured_ns - 1.0) * 100.0
    }
}

/// Errors of a family on every split, per group and over all groups, and its worst held-out shapes.
pub(super) fn judge(family: Family, rows: &[Row], gpu: &Gpu) -> Result<(Vec<ErrorEntry>, Vec<WorstShape>), Diagnostic> {
    let trials = trials(family, rows);
    let verdicts: Vec<Vec<Verdict>> =
        trials.par_iter().map(|trial| trial.run(family, rows, gpu)).collect::<Result<_, _>>()?;
    let mut entries = Vec::new();
    for (trial, verdicts) in trials.iter().zip(&verdicts) {
        entries.extend(summarise(family, trial.kind, trial.held_out, verdicts.iter()));
    }
    for kind in [ErrorKind::HeldOut, ErrorKind::Extrapolation] {
        let of_kind = trials.iter().zip(&verdicts).filter(|(trial, _)| trial.kind == kind);
        entries.extend(summarise(family, kind, ALL_SPLITS, of_kind.flat_map(|(_, verdicts)| verdicts)));
    }
    Ok((entries, worst_shapes(family, &trials, &verdicts)))
}

/// The trials that hold out at least one row and leave one to fit.
fn trials(family: Family, rows: &[Row]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for split in family.splits() {
        let keys: BTreeSet<[u32; 5]> = rows.iter().map(|row| (split.key)(&row.operator)).collect();
        let mut add = |kind, held_keys: BTreeSet<[u32; 5]>| {
            let judged = rows.iter().map(|row| held_keys.contains(&(split.key)(&row.operator))).collect();
            trials.push(Trial { kind, held_out: split.name, judged });
        };
        add(ErrorKind::HeldOut, held_out_keys(split, &keys));
        if split.ordered {
            let fitted = keys.len() - keys.len() / EXTRAPOLATED_ONE_IN;
            add(ErrorKind::Extrapolation, keys.iter().skip(fitted).copied().collect());
        }
    }
    let judged = rows.iter().map(|row| is_random(&row.operator)).collect();
    trials.push(Trial { kind: ErrorKind::RandomRows, held_out: RANDOM_ROWS, judged });
    trials.retain(|trial| trial.judged.contains(&true) && trial.judged.contains(&false));
    trials
}

/// The keys that a held-out split leaves out of the fit.
fn held_out_keys(split: &Split, keys: &BTreeSet<[u32; 5]>) -> BTreeSet<[u32; 5]> {
    let is_held = |(position, key): &(usize, &[u32; 5])| {
        if split.ordered {
            position % HELD_OUT_STRIDE == HELD_OUT_STRIDE / 2 && position + 1 < keys.len()
        } else {
            let seed = |hash: u64, part: &u32| hash.wrapping_mul(1_000_003).wrapping_add(u64::from(*part));
            Stream::new(0, split.name, key.iter().fold(0, seed)).below(HELD_OUT_ONE_IN) == 0
        }
    };
    keys.iter().enumerate().filter(is_held).map(|(_, key)| *key).collect()
}

/// Chosen by a hash, so that the same shape falls on the same side in every profile.
fn is_random(operator: &Operator) -> bool {
    let hash = xxh3_64(format!("{operator:?}").as_bytes());
    Stream::new(0, RANDOM_ROWS, hash).below(RANDOM_ONE_IN) == 0
}

impl Trial {
    /// Fits without the judged rows, and predicts those. Rows unlike any fitted one are not judged: their time would
    /// come from the roofline.
    fn run(&self, family: Family, rows: &[Row], gpu: &Gpu) -> Result<Vec<Verdict>, Diagnostic> {
        let side = |judged: bool| rows.iter().zip(&self.judged).filter(move |(_, side)| **side == judged);
        let kept: Vec<Row> = side(false).map(|(row, _)| *row).collect();
        let fitted = fit_family(family, &kept)?;
        let verdict = |row: &Row| {
            let (residual, _) = fitted.residual(&row.shape)?;
            Some(Verdict {
                operator: row.operator,
                group: reported_group(&row.operator),
                measured_ns: row.latency_ns,
                predicted_ns: benchmark_ns(&row.operator, gpu) * libm::exp(residual),
            })
        };
        Ok(side(true).filter_map(|(row, _)| verdict(row)).collect())
    }
}

/// One entry per reported group, and one over all of them.
fn summarise<'a>(
    family: Family,
    kind: ErrorKind,
    held_out: &str,
    verdicts: impl Iterator<Item = &'a Verdict>,
) -> Vec<ErrorEntry> {
    let mut groups: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut all = Vec::new();
    for verdict in verdicts {
        groups.entry(&verdict.group).or_default().push(verdict.error());
        all.push(verdict.error());
    }
    let entry = |(group, errors): (&str, Vec<f64>)| {
        let (family, group, held_out) = (family.name().to_owned(), group.to_owned(), held_out.to_owned());
        Some(ErrorEntry { family, group, kind, held_out, statistics: ErrorStatistics::of(errors)? })
    };
    groups.into_iter().chain([(ALL_GROUPS, all)]).filter_map(entry).collect()
}

/// The worst row of each held-out split and group; of those, the worst few.
fn worst_shapes(family: Family, trials: &[Trial], verdicts: &[Vec<Verdict>]) -> Vec<WorstShape> {
    let mut worst: BTreeMap<(&str, &str), &Verdict> = BTreeMap::new();
    for (trial, verdicts) in trials.iter().zip(verdicts).filter(|(trial, _)| trial.kind == ErrorKind::HeldOut) {
        for verdict in verdicts {
            let known = worst.entry((trial.held_out, &verdict.group)).or_insert(verdict);
            if verdict.error().abs() > known.error().abs() {
                *known = verdict;
            }
        }
    }
    let mut worst: Vec<_> = worst.into_iter().collect();
    worst.sort_by(|(_, a), (_, b)| b.error().abs().total_cmp(&a.error().abs()));
    let rounded = |value: f64| libm::round(value * 100.0) / 100.0;
    let shape = |((held_out, group), verdict): ((&str, &str), &Verdict)| WorstShape {
        family: family.name().to_owned(),
        group: group.to_owned(),
        held_out: held_out.to_owned(),
        shape: shape_text(&verdict.operator),
        measured_us: rounded(verdict.measured_ns / 1e3),
        predicted_us: rounded(verdict.predicted_ns / 1e3),
        error: rounded(verdict.error()),
    };
    worst.into_iter().take(WORST_SHAPES).map(shape).collect()
}

/// The group that an operator's error is reported under.
#[must_use]
pub fn reported_group(operator: &Operator) -> String {
    let formats = |weights: NumberFormat, activations: NumberFormat| {
        if weights == activations {
            weights.name().to_owned()
        } else {
            format!("{} weights, {} inputs", weights.name(), activations.name())
        }
    };
    match *operator {
        Operator::Gemm { weights, activations, .. } => formats(weights, activations),
        Operator::GroupedGemm { experts, load, .. } => {
            let skew = if load.exponent > 0.0 { ", skewed" } else { "" };
            format!("{}{skew}", formats(experts.weights, experts.activations))
        }
        Operator::LatentPrefill { block, .. } | Operator::LatentDecode { block, .. } => {
            format!("{} weights, {} cache", block.weights.name(), block.kv_cache.name())
        }
        Operator::BatchedGemm { .. } => NumberFormat::Bf16.name().to_owned(),
        Operator::PrefillAttention { heads, .. } | Operator::DecodeAttention { heads, .. } => {
            let window = if heads.window.is_some() { ", window" } else { "" };
            format!("{} cache{window}", heads.kv_cache.name())
        }
        Operator::Collective { kind: CollectiveKind::AllReduce, graph, .. } => {
            format!("all_reduce, {}", if graph { "graph" } else { "eager" })
        }
        Operator::Collective { kind, .. } => kind.name().to_owned(),
        Operator::Streaming { kind, .. } => kind.name().to_owned(),
    }
}

/// The sizes of an operator in a few words; formats and kind are in the group's name.
#[must_use]
pub fn shape_text(operator: &Operator) -> String {
    match *operator {
        Operator::Gemm { tokens, n, k, .. } => format!("{tokens} tokens, n {n}, k {k}"),
        Operator::PrefillAttention { batch, chunk_tokens, context_tokens, heads } => {
            let context = if context_tokens > 0 { format!(" on {context_tokens}") } else { String::new() };
            format!("{batch} x {chunk_tokens} tokens{context}, heads {}/{}", heads.query, heads.kv)
        }
        Operator::DecodeAttention { batch, context_tokens, heads, .. } => {
            format!("batch {batch}, context {context_tokens}, heads {}/{}", heads.query, heads.kv)
        }
        Operator::GroupedGemm { tokens, experts, load } => {
            let Experts { hidden_size, intermediate_size, top_k, count, local, .. } = experts;
            let skew = if load.exponent > 0.0 { format!(", exponent {}", load.exponent) } else { String::new() };
            format!(
                "{tokens} tokens, hidden {hidden_size}, inner {intermediate_size}, top {top_k} of {count}, {local} here{skew}"
            )
        }
        Operator::LatentPrefill { batch, tokens, block } => format!("{batch} x {tokens} tokens, heads {}", block.heads),
        Operator::LatentDecode { batch, context_tokens, block } => {
            format!("batch {batch}, context {context_tokens}, heads {}", block.heads)
        }
        Operator::BatchedGemm { products, tokens, n, k } => {
            format!("{products} products, {tokens} tokens, n {n}, k {k}")
        }
        Operator::Collective { bytes, gpus, .. } => format!("{bytes} bytes, {gpus} GPUs"),
        Operator::Streaming { bytes, kernels, .. } => format!("{bytes} bytes, {kernels} kernels"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::import::{Measurement, Measurements};
    use crate::fidelity::train::train;
    use crate::network::test_gpus;

    fn gemm(tokens: u32, n: u32) -> Operator {
        Operator::Gemm { tokens, n, k: 1024, weights: NumberFormat::Bf16, activations: NumberFormat::Bf16 }
    }

    /// Matrix products at twice the roofline up to 1,024 tokens, at three times beyond.
    fn card() -> crate::fidelity::card::Card {
        let gpu = test_gpus::h100_sxm();
        let mut rows = Vec::new();
        for n in (1..=16).map(|multiple| multiple * 512) {
            for tokens in (0..16).map(|exponent| 1u32 << exponent) {
                let operator = gemm(tokens, n);
                let factor = if tokens <= 1024 { 2.0 } else { 3.0 };
                rows.push(Measurement { operator, latency_ns: factor * benchmark_ns(&operator, &gpu) });
            }
        }
        train(Measurements { rows, ..Measurements::default() }, &gpu, "made-up-1").unwrap().card
    }

    #[test]
    fn each_kind_of_split_is_judged_on_its_rows() {
        let card = card();
        let error = |kind, held_out| card.error("gemm", kind, held_out, ALL_GROUPS).unwrap();
        // Of 16 token counts, numbers 2, 6, 10 and 14 are held out, and the largest four for extrapolation.
        assert_eq!(error(ErrorKind::HeldOut, "token counts").rows, 4 * 16);
        let beyond = error(ErrorKind::Extrapolation, "token counts");
        assert_eq!(beyond.rows, 4 * 16);
        // The fit saw one token count of the slow kind, 2,048, and carries its factor on.
        assert!(beyond.p50 < 5.0, "{beyond:?}");
        assert!(error(ErrorKind::RandomRows, RANDOM_ROWS).rows > 10);
        assert!(error(ErrorKind::HeldOut, "(n, k) pairs").p50 < 1.0);
        let splits = ["token counts", "(n, k) pairs"].map(|split| error(ErrorKind::HeldOut, split).rows);
        assert_eq!(error(ErrorKind::HeldOut, ALL_SPLITS).rows, splits.iter().sum::<usize>());
        assert_eq!(
            card.error("gemm", ErrorKind::HeldOut, "token counts", "bf16"),
            Some(error(ErrorKind::HeldOut, "token counts"))
        );
    }

    #[test]
    fn the_worst_shape_lies_at_the_step() {
        let worst = &card().worst[0];
        assert_eq!((worst.held_out.as_str(), worst.group.as_str()), ("token counts", "bf16"));
        assert!(worst.shape.starts_with("1024 tokens"), "{worst:?}");
        assert!(worst.error > 5.0 && worst.predicted_us > worst.measured_us, "{worst:?}");
    }
}
