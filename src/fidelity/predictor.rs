//! The cost model of one GPU: which source answers for which operator.
//!
//! Order of preference: fitted predictors of this GPU; those of the nearest measured GPU, scaled by the ratio of the
//! two rooflines of the operator; the roofline alone. Every answer says which one it was.

use std::fs;
use std::path::{Path, PathBuf};

use super::card::{CARD_FILE, Card, ErrorKind};
use super::family::Family;
use super::fitted::FittedProfile;
use super::latent::{self, Growth};
use super::operator::{CollectiveKind, Operator};
use super::roofline::{benchmark_ns, roofline_ns};
use super::table::Coverage;
use super::{Estimate, EstimateSource};
use crate::catalog::{DEFAULT_ENGINE, Gpu, ScaleUp};
use crate::diag::Diagnostic;

/// Folder of fitted profiles, below the root: `GPU/ENGINE/card.toml`.
pub const FITTED_FOLDER: &str = "profiles/fitted";
/// Share of the way from the time at the mean context to that at the longest one which a decode batch of unequal lengths
/// takes. Median over batch sizes 2 to 256 of the measurements with one length in 2 to 16 four times the others, on RTX
/// PRO 6000 (casys-kaist/LLMServingSim, MIT): split kernels spread long sequences over idle multiprocessors.
const UNEQUAL_LENGTHS: f64 = 0.05;
/// Data-sheet numbers that differ by less than this share are of the same processor (rounding, boost clocks).
const SAME_PROCESSOR_TOLERANCE: f64 = 0.02;

/// Uncertainty of a measured shape: two measurements of the same kernels on the same GPU differ by 3 % in the median (the
/// H200 tables of vLLM 0.18 and 0.19).
const MEASURED_UNCERTAINTY: f64 = 0.03;
/// Uncertainty of transferred estimates per family, within an architecture and between architectures: the p90 of the errors
/// in `profiles/checks` as that of a normal distribution. Within: H200 from H100. Between: the mean of B200 from H100, L40S
/// from A100 and RTX PRO 6000 from L40S.
pub const TRANSFER_UNCERTAINTIES: &[(Family, [f64; 2])] = &[
    (Family::Gemm, [0.12, 0.45]),
    (Family::PrefillAttention, [0.10, ROOFLINE_UNCERTAINTY]),
    (Family::DecodeAttention, [0.05, ROOFLINE_UNCERTAINTY]),
    (Family::GroupedGemm, [0.15, 0.47]),
    (Family::Collective, [0.14, 0.45]),
    (Family::LatentPrefill, [0.10, 0.40]),
    (Family::LatentDecode, [0.10, 0.25]),
    (Family::BatchedGemm, [0.12, 0.45]),
];
/// Uncertainty of a roofline estimate: the p90 of attention in `profiles/checks`, 45 to 100 %, as that of a normal
/// distribution, between prefill and decode.
pub const ROOFLINE_UNCERTAINTY: f64 = 0.40;

/// Prices operators.
pub trait Predictor: Send + Sync {
    /// Duration of one operator. Deterministic; positive and finite for every operator of positive size.
    fn predict(&self, operator: &Operator) -> Estimate;
}

/// The cost model of one GPU type.
#[derive(Clone, Debug)]
pub struct CostModel {
    gpu: Gpu,
    profile: Option<FittedProfile>,
    /// Profiles of the same GPU and engine at other versions, the closest first: they answer for formats that were not
    /// measured with this one.
    other_versions: Vec<FittedProfile>,
    /// Kernels on the profile's GPU take the same time here.
    same_processor: bool,
    /// The profile's GPU is of the same architecture.
    same_architecture: bool,
    /// Collectives on the profile's GPU take the same time here.
    same_links: bool,
    /// Per family, the uncertainty between measurements and beyond them.
    uncertainties: [[f64; 2]; Family::ALL.len()],
}

impl CostModel {
    /// Chooses among the profiles under `root`/profiles/fitted for this GPU and engine (e.g. `vllm-0.19`): the most
    /// similar GPU, then the closest version of the engine, the older one if two are equally close. An engine without a
    /// profile of its own gets one of the default engine. Without any profile the roofline answers.
    ///
    /// # Errors
    /// A profile that exists but cannot be read.
    pub fn load(root: &Path, gpu: &Gpu, engine: &str) -> Result<Self, Diagnostic> {
        let fitted = root.join(FITTED_FOLDER);
        // Cards list every error and take a while to read: those of other GPUs only where there is none of this one.
        let own = engine_folders(&fitted.join(&gpu.name));
        let mut candidates = Vec::new();
        for folder in if own.is_empty() { profile_folders(&fitted) } else { own } {
            let card = Card::load(&folder.join(CARD_FILE))?;
            let version = version_distance(&card.engine, engine);
            let other = version_distance(&card.engine, DEFAULT_ENGINE) == OTHER_ENGINE;
            candidates.push((distance(&card.gpu.to_gpu(), gpu), version, (other, folder)));
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| (a.1, &a.2).cmp(&(b.1, &b.2))));
        let mut candidates = candidates.into_iter();
        let Some((nearest, version, (_, folder))) = candidates.next() else { return Ok(Self::new(gpu, None)) };
        let alike = |other: &(f64, u32, (bool, PathBuf))| {
            other.0 <= nearest && version < OTHER_ENGINE && other.1 < OTHER_ENGINE
        };
        let other_versions = candidates.take_while(alike).map(|(_, _, (_, folder))| FittedProfile::load(&folder));
        let other_versions = other_versions.collect::<Result<_, _>>()?;
        Ok(Self { other_versions, ..Self::new(gpu, Some(FittedProfile::load(&folder)?)) })
    }

    /// A cost model from a given profile, or from the roofline.
    #[must_use]
    pub fn new(gpu: &Gpu, profile: Option<FittedProfile>) -> Self {
        let measured = profile.as_ref().map(|profile| &profile.gpu);
        let same_processor = measured.is_some_and(|measured| same_processor(measured, gpu));
        let same_links = measured.is_some_and(|measured| same_links(measured, gpu));
        let uncertainties = Family::ALL.map(|family| {
            let errors = |kind| profile.as_ref().and_then(|profile| profile.card.uncertainty(family.name(), kind));
            let between = errors(ErrorKind::HeldOut).unwrap_or(ROOFLINE_UNCERTAINTY);
            [between, errors(ErrorKind::Extrapolation).unwrap_or(between).max(between)]
        });
        let same_architecture =
            measured.is_some_and(|measured| measured.sm_version.abs_diff(gpu.sm_version) <= SAME_ARCHITECTURE);
        Self {
            gpu: gpu.clone(),
            other_versions: Vec::new(),
            same_processor,
            same_architecture,
            same_links,
            uncertainties,
            profile,
        }
    }

    /// Uncertainty of a fitted estimate by the card's errors of the operator's family.
    fn fitted_uncertainty(&self, operator: &Operator, kind: ErrorKind) -> f64 {
        let position = Family::of(operator) as usize;
        self.uncertainties[position][usize::from(kind == ErrorKind::Extrapolation)]
    }

    fn transfer_uncertainty(&self, operator: &Operator) -> f64 {
        let known = TRANSFER_UNCERTAINTIES.iter().find(|(family, _)| *family == Family::of(operator));
        known.map_or(ROOFLINE_UNCERTAINTY, |(_, between)| between[usize::from(!self.same_architecture)])
    }

    /// The GPU that is priced.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The fitted profile that answers, if there is one: of this GPU or of its nearest measured relative.
    #[must_use]
    pub fn profile(&self) -> Option<&FittedProfile> {
        self.profile.as_ref()
    }

    /// Duration of one operator and where it comes from.
    #[must_use]
    pub fn predict(&self, operator: &Operator) -> Estimate {
        if let Some(growth) = latent::growth(operator) {
            return self.predict_growth(operator, &growth);
        }
        let mut estimate = self.benchmark(operator);
        estimate.time_ns = estimate.time_ns.max(cold_cache_ns(operator, &self.gpu));
        match *operator {
            Operator::DecodeAttention { batch, context_tokens, longest_tokens, heads }
                if longest_tokens > context_tokens =>
            {
                let longest =
                    Operator::DecodeAttention { batch, context_tokens: longest_tokens, longest_tokens, heads };
                let further_ns = self.benchmark(&longest).time_ns - estimate.time_ns;
                Estimate { time_ns: estimate.time_ns + UNEQUAL_LENGTHS * further_ns.max(0.0), ..estimate }
            }
            _ => estimate,
        }
    }

    /// Attention of a latent block: its growth with the length, never less than the roofline.
    fn predict_growth(&self, operator: &Operator, growth: &Growth) -> Estimate {
        let bound_ns = roofline_ns(operator, &self.gpu);
        let (block, shortest) = (self.benchmark(&growth.block), self.benchmark(&growth.shortest));
        if block.source == EstimateSource::Roofline {
            return Estimate { time_ns: bound_ns, ..block };
        }
        let grown_ns = (block.time_ns - shortest.time_ns).max(0.0) * growth.share;
        Estimate { time_ns: roofline_ns(&growth.floor, &self.gpu) + grown_ns, ..block }
    }

    /// Duration of one operator as a benchmark measures it, again and again on the same data, and where it comes from: what
    /// tables of measurements are compared with.
    #[must_use]
    pub fn benchmark(&self, operator: &Operator) -> Estimate {
        let roofline = || Estimate {
            time_ns: roofline_ns(operator, &self.gpu),
            source: EstimateSource::Roofline,
            uncertainty: ROOFLINE_UNCERTAINTY,
        };
        let Some(profile) = &self.profile else { return roofline() };
        let same = match *operator {
            Operator::Collective { gpus, kind, .. } => {
                // One GPU exchanges nothing; across nodes nothing was measured.
                let transferable = same_link_kind(&profile.gpu, &self.gpu);
                if gpus <= 1 || gpus > self.gpu.gpus_per_node.min(profile.gpu.gpus_per_node) || !transferable {
                    return roofline();
                }
                self.same_links || kind == CollectiveKind::SendRecv
            }
            _ => self.same_processor,
        };
        if !same && !self.same_architecture && is_attention(operator) {
            return roofline();
        }
        // Residuals of a profile belong to the data sheet that it was fitted with.
        let gpu = if same { &profile.gpu } else { &self.gpu };
        let version = std::iter::once(profile)
            .chain(&self.other_versions)
            .find(|version| version.measures_formats_of(operator, gpu))
            .unwrap_or(profile);
        let Some((time_ns, coverage)) = version.predict(operator, gpu) else { return roofline() };
        let (source, uncertainty) = match (same, coverage) {
            (false, _) => (EstimateSource::Transferred, self.transfer_uncertainty(operator)),
            (true, Coverage::Measured) => (EstimateSource::Measured, MEASURED_UNCERTAINTY),
            (true, Coverage::Between) => {
                (EstimateSource::Interpolated, self.fitted_uncertainty(operator, ErrorKind::HeldOut))
            }
            (true, Coverage::Beyond) => {
                (EstimateSource::Extrapolated, self.fitted_uncertainty(operator, ErrorKind::Extrapolation))
            }
        };
        Estimate { time_ns, source, uncertainty }
    }
}

impl Predictor for CostModel {
    fn predict(&self, operator: &Operator) -> Estimate {
        Self::predict(self, operator)
    }
}

/// Attention kernels are written anew for each architecture, and share less with the last one than with the roofline:
/// decode on B200 was 42 % off by the efficiencies of H100, 30 % by the default ones; on L40S by A100 46 and 16 % (medians
/// over the tables of `profiles/checks`).
const fn is_attention(operator: &Operator) -> bool {
    matches!(operator, Operator::PrefillAttention { .. } | Operator::DecodeAttention { .. })
}

/// Compute capabilities this close are of one architecture (8.6 and 8.9, 10.0 and 10.3), in tenths.
const SAME_ARCHITECTURE: u32 = 3;

/// Folders GPU/ENGINE with a card, sorted; none if the folder does not exist.
#[must_use]
pub fn profile_folders(fitted: &Path) -> Vec<PathBuf> {
    children(fitted).iter().flat_map(|gpu| engine_folders(gpu)).collect()
}

/// Folders ENGINE with a card below that of one GPU, sorted.
fn engine_folders(gpu: &Path) -> Vec<PathBuf> {
    children(gpu).into_iter().filter(|folder| folder.join(CARD_FILE).is_file()).collect()
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Distance of versions of different engines.
const OTHER_ENGINE: u32 = u32::MAX;

/// How far apart two engines `NAME-MAJOR.MINOR` are: versions of one engine by their number, different engines farther
/// than any two versions.
fn version_distance(a: &str, b: &str) -> u32 {
    let parse = |engine: &str| {
        let (name, version) = engine.rsplit_once('-')?;
        let (major, minor) = version.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((name.to_owned(), major.parse::<u32>().ok()? * 1000 + minor.parse::<u32>().ok()?))
    };
    match (parse(a), parse(b)) {
        (Some((left, a)), Some((right, b))) if left == right => a.abs_diff(b),
        _ => OTHER_ENGINE,
    }
}

/// Least time in nanoseconds of an operator that a benchmark found in the L2, its operands read from memory: in an engine,
/// weights and the caches of all other layers have passed through the L2 since the last step. Zero for the others.
fn cold_cache_ns(operator: &Operator, gpu: &Gpu) -> f64 {
    let cold_ns = roofline_ns(operator, gpu);
    if benchmark_ns(operator, gpu) < cold_ns { cold_ns } else { 0.0 }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME_PROCESSOR_TOLERANCE * a.abs().max(b.abs())
}

/// Same architecture, multiprocessors, arithmetic and memory bandwidth: kernels take the same time.
fn same_processor(a: &Gpu, b: &Gpu) -> bool {
    a.sm_version == b.sm_version
        && a.sm_count == b.sm_count
        && close(a.bf16_flops, b.bf16_flops)
        && close(a.memory_bytes_per_second, b.memory_bytes_per_second)
}

fn same_link_kind(a: &Gpu, b: &Gpu) -> bool {
    matches!(
        (a.scale_up, b.scale_up),
        (ScaleUp::NvLink { .. }, ScaleUp::NvLink { .. }) | (ScaleUp::Pcie { .. }, ScaleUp::Pcie { .. })
    )
}

fn same_links(a: &Gpu, b: &Gpu) -> bool {
    same_link_kind(a, b) && close(a.scale_up.bytes_per_second(), b.scale_up.bytes_per_second())
}

/// How unlike two GPUs are: zero for the same name, then by processor, architecture, and the logarithms of their
/// rates.
fn distance(measured: &Gpu, wanted: &Gpu) -> f64 {
    if measured.name == wanted.name {
        return 0.0;
    }
    let apart = |a: f64, b: f64| libm::log(a / b).abs();
    let generations = f64::from(measured.sm_version.abs_diff(wanted.sm_version)) / 10.0;
    1.0 + 10.0 * generations
        + apart(measured.bf16_flops, wanted.bf16_flops)
        + apart(measured.memory_bytes_per_second, wanted.memory_bytes_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NumberFormat;
    use crate::fidelity::AttentionHeads;
    use crate::fidelity::import::{Measurement, Measurements};
    use crate::fidelity::operator::StreamingKind;
    use crate::fidelity::train::{Fitted, train};
    use crate::fidelity::transfer::{TransferCheck, TransferError};
    use crate::network::test_gpus;

    fn gemm(tokens: u32, n: u32, k: u32) -> Operator {
        let format = NumberFormat::Bf16;
        Operator::Gemm { tokens, n, k, weights: format, activations: format }
    }

    fn all_reduce(bytes: f64, gpus: u32) -> Operator {
        Operator::Collective { kind: CollectiveKind::AllReduce, bytes, gpus, graph: true }
    }

    /// A profile of a made-up H100 whose kernels take 1.5 times the roofline for wide matrices, 1.2 times otherwise.
    fn fitted() -> Fitted {
        let gpu = test_gpus::h100_sxm();
        let mut rows = Vec::new();
        for n in [512, 1024, 2048, 4096] {
            for k in [512, 1024, 2048] {
                for tokens in [1, 8, 64, 512, 4096] {
                    let operator = gemm(tokens, n, k);
                    let factor = if n > 1024 { 1.5 } else { 1.2 };
                    rows.push(Measurement { operator, latency_ns: factor * roofline_ns(&operator, &gpu) });
                }
            }
        }
        for gpus in [2, 4, 8] {
            for exponent in 10..24 {
                let operator = all_reduce(f64::from(1u32 << exponent), gpus);
                rows.push(Measurement { operator, latency_ns: 1.1 * roofline_ns(&operator, &gpu) });
            }
        }
        train(Measurements { rows, ..Measurements::default() }, &gpu, "made-up-1").unwrap()
    }

    fn model(gpu: &Gpu) -> CostModel {
        let Fitted { card, families } = fitted();
        CostModel::new(gpu, Some(FittedProfile::new(card, families)))
    }

    #[test]
    fn measured_shapes_come_back_and_say_so() {
        let gpu = test_gpus::h100_sxm();
        let model = model(&gpu);
        for (operator, factor) in [(gemm(64, 4096, 512), 1.5), (gemm(64, 512, 512), 1.2), (all_reduce(65536.0, 4), 1.1)]
        {
            let estimate = model.predict(&operator);
            let expected = factor * roofline_ns(&operator, &gpu);
            assert!((estimate.time_ns / expected - 1.0).abs() < 0.005, "{operator:?}: {estimate:?}, {expected}");
            assert_eq!(estimate.source, EstimateSource::Measured, "{operator:?}");
        }
    }

    #[test]
    fn beyond_the_measurements_estimates_grow_with_the_roofline() {
        let model = model(&test_gpus::h100_sxm());
        for series in [
            [1 << 13, 1 << 14, 1 << 16, 1 << 18].map(|tokens| gemm(tokens, 4096, 2048)),
            [1 << 13, 1 << 14, 1 << 16, 1 << 18].map(|n| gemm(8192, n, 2048)),
            [1u32 << 24, 1 << 26, 1 << 28, 1 << 30].map(|bytes| all_reduce(f64::from(bytes), 8)),
        ] {
            let estimates = series.map(|operator| model.predict(&operator));
            for (pair, operators) in estimates.windows(2).zip(series.windows(2)) {
                assert_eq!(pair[1].source, EstimateSource::Extrapolated);
                let growth = pair[1].time_ns / pair[0].time_ns;
                let expected = roofline_ns(&operators[1], model.gpu()) / roofline_ns(&operators[0], model.gpu());
                assert!((growth / expected - 1.0).abs() < 0.02, "{:?}: {growth} against {expected}", operators[1]);
            }
        }
    }

    #[test]
    fn unmeasured_operators_fall_back_to_the_roofline() {
        let model = model(&test_gpus::h100_sxm());
        for operator in [
            Operator::Streaming { kind: StreamingKind::Norm, bytes: 1e6, kernels: 1 },
            all_reduce(1e6, 16),
            all_reduce(1e6, 1),
        ] {
            let estimate = model.predict(&operator);
            assert_eq!(estimate.source, EstimateSource::Roofline, "{operator:?}");
            assert_eq!(estimate.time_ns, roofline_ns(&operator, model.gpu()));
        }
    }

    #[test]
    fn the_same_processor_shares_kernels_but_not_links() {
        let (h100, h800) = (model(&test_gpus::h100_sxm()), model(&test_gpus::h800()));
        let operator = gemm(100, 2048, 1024);
        assert_eq!(h800.predict(&operator), h100.predict(&operator));
        let large = all_reduce(8e6, 8);
        assert_eq!(h800.predict(&large).source, EstimateSource::Transferred);
        let ratio = h800.predict(&large).time_ns / h100.predict(&large).time_ns;
        assert!(ratio > 1.8 && ratio < 2.25, "NVLink at 4/9 of the rate gave a factor {ratio}");
    }

    #[test]
    fn another_processor_is_scaled_by_its_roofline() {
        let (h100, h20) = (model(&test_gpus::h100_sxm()), model(&test_gpus::h20()));
        let (compute, memory) = (gemm(4096, 4096, 2048), gemm(1, 4096, 2048));
        let ratio = |operator: &Operator| h20.predict(operator).time_ns / h100.predict(operator).time_ns;
        assert!(ratio(&compute) > 5.0 && ratio(&memory) < 1.0);
        assert_eq!(h20.predict(&compute).source, EstimateSource::Transferred);
        let l40s = model(&test_gpus::l40s());
        assert_eq!(l40s.predict(&all_reduce(1e6, 4)).source, EstimateSource::Roofline, "PCIe cannot borrow NVLink");
    }

    #[test]
    fn versions_are_compared_by_number_and_engines_by_name() {
        assert_eq!(version_distance("vllm-0.19", "vllm-0.15"), 4);
        assert_eq!(version_distance("vllm-0.19.0", "vllm-1.2"), 983);
        assert_eq!(version_distance("vllm-0.19", "sglang-0.19"), OTHER_ENGINE);
        assert_eq!(version_distance("vllm-0.19", "vllm"), OTHER_ENGINE);
    }

    #[test]
    fn a_cache_that_stayed_in_the_l2_is_priced_as_if_read_from_memory() {
        let gpu = test_gpus::h100_sxm();
        let heads = AttentionHeads::grouped(8, 8, 128, NumberFormat::Bf16);
        let decode = |context_tokens| Operator::DecodeAttention {
            batch: 8,
            context_tokens,
            longest_tokens: context_tokens,
            heads,
        };
        // 8 x 1,024 tokens of 4 KiB are 34 MB, measured in a third of the roofline; 8 x 65,536 are 2 GB.
        let (warm, cold) = (decode(1024.0), decode(65_536.0));
        let rows =
            [warm, cold].map(|operator| Measurement { operator, latency_ns: roofline_ns(&operator, &gpu) / 3.0 });
        let measurements = Measurements { rows: rows.to_vec(), ..Measurements::default() };
        let Fitted { card, families } = train(measurements, &gpu, "made-up-1").unwrap();
        let model = CostModel::new(&gpu, Some(FittedProfile::new(card, families)));
        assert_eq!(model.predict(&warm).time_ns, roofline_ns(&warm, &gpu));
        assert!(model.predict(&cold).time_ns < 0.4 * roofline_ns(&cold, &gpu));
    }

    #[test]
    fn unequal_lengths_cost_a_share_of_the_way_to_the_longest() {
        let model = CostModel::new(&test_gpus::h100_sxm(), None);
        let heads = AttentionHeads::grouped(8, 8, 128, NumberFormat::Bf16);
        let time = |context_tokens, longest_tokens| {
            let batch = 64;
            model.predict(&Operator::DecodeAttention { batch, context_tokens, longest_tokens, heads }).time_ns
        };
        let (mean, longest) = (time(4096.0, 4096.0), time(16_384.0, 16_384.0));
        let expected = mean + UNEQUAL_LENGTHS * (longest - mean);
        assert!((time(4096.0, 16_384.0) / expected - 1.0).abs() < 1e-12);
        assert!(expected > 1.1 * mean);
    }

    #[test]
    fn a_short_chunk_takes_over_little_of_the_efficiency_of_prompts() {
        let gpu = test_gpus::h100_sxm();
        let heads = AttentionHeads::grouped(8, 8, 128, NumberFormat::Bf16);
        let prefill =
            |chunk_tokens, context_tokens| Operator::PrefillAttention { batch: 1, chunk_tokens, context_tokens, heads };
        let prompts = (4..15).map(|exponent| prefill(1 << exponent, 0));
        let row = |operator| Measurement { operator, latency_ns: 2.0 * roofline_ns(&operator, &gpu) };
        let rows = prompts.map(row).collect();
        let Fitted { card, families } =
            train(Measurements { rows, ..Measurements::default() }, &gpu, "made-up-1").unwrap();
        let model = CostModel::new(&gpu, Some(FittedProfile::new(card, families)));
        // One tile per head on 132 multiprocessors.
        let chunk = prefill(64, 8192);
        let expected = roofline_ns(&chunk, &gpu) * libm::pow(2.0, 8.0 / 132.0);
        assert!((model.predict(&chunk).time_ns / expected - 1.0).abs() < 0.01, "{expected}");
    }

    #[test]
    fn transfers_are_as_uncertain_as_the_shipped_checks_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/checks");
        let check = TransferCheck::load(&folder.join("h200-from-h100.toml")).unwrap();
        for (family, [within, between]) in TRANSFER_UNCERTAINTIES {
            assert!(within < between, "{family:?}");
            let all =
                |error: &&TransferError| error.family == family.name() && error.group == "all" && error.range == "all";
            if let Some(error) = check.errors.iter().find(all) {
                let seen = error.statistics.p90 / 164.5;
                assert!((within - seen).abs() < 0.015, "{family:?}: {within} against {seen}");
            }
        }
    }

    #[test]
    fn loads_the_nearest_profile_and_reports_damage() {
        let root = tempfile::tempdir().unwrap();
        let gpu = test_gpus::h100_sxm();
        let empty = CostModel::load(root.path(), &gpu, "made-up-1.0").unwrap();
        assert_eq!(empty.predict(&gemm(8, 512, 512)).source, EstimateSource::Roofline);

        let folder = root.path().join(FITTED_FOLDER).join("h100-sxm/made-up-1");
        fs::create_dir_all(&folder).unwrap();
        let Fitted { card, families } = fitted();
        fs::write(folder.join(CARD_FILE), card.to_toml().unwrap()).unwrap();
        for (entry, family) in card.families.iter().zip(&families) {
            fs::write(folder.join(&entry.file), family.to_bytes().unwrap()).unwrap();
        }
        let loaded = CostModel::load(root.path(), &gpu, "made-up-1.0").unwrap();
        assert_eq!(loaded.profile(), Some(&FittedProfile::new(card, families)));
        assert_eq!(loaded.predict(&gemm(8, 512, 512)).source, EstimateSource::Measured);

        let path = folder.join("gemm.forest");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = CostModel::load(root.path(), &gpu, "made-up-1.0").unwrap_err();
        assert!(error.message.contains("gemm.forest") && error.message.contains("checksum"), "{}", error.message);
        fs::write(&path, &bytes[..middle]).unwrap();
        assert!(CostModel::load(root.path(), &gpu, "made-up-1.0").is_err());
    }
}
