//! The cost model of one GPU: which source answers for which operator.
//!
//! Order of preference: fitted predictors of this GPU; those of the nearest measured GPU, scaled by the ratio of the
//! two rooflines of the operator; the roofline alone. Every answer says which one it was.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};

use super::card::{CARD_FILE, Card};
use super::fitted::FittedProfile;
use super::operator::{CollectiveKind, Operator};
use super::roofline::roofline_ns;
use super::{Estimate, EstimateSource};
use crate::catalog::{Gpu, ScaleUp};
use crate::diag::Diagnostic;

/// Folder of fitted profiles, below the root: `GPU/ENGINE/card.toml`.
pub const FITTED_FOLDER: &str = "profiles/fitted";
/// Data-sheet numbers that differ by less than this share are of the same processor (rounding, boost clocks).
const SAME_PROCESSOR_TOLERANCE: f64 = 0.02;

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
    /// Kernels on the profile's GPU take the same time here.
    same_processor: bool,
    /// Collectives on the profile's GPU take the same time here.
    same_links: bool,
}

impl CostModel {
    /// Chooses among the profiles under `root`/profiles/fitted for this GPU; without any, the roofline. Where several
    /// engine versions were fitted, the last by name is used.
    ///
    /// # Errors
    /// A profile that exists but cannot be read.
    pub fn load(root: &Path, gpu: &Gpu) -> Result<Self, Diagnostic> {
        let mut candidates = Vec::new();
        for folder in profile_folders(&root.join(FITTED_FOLDER)) {
            let card = Card::load(&folder.join(CARD_FILE))?;
            candidates.push((distance(&card.gpu.to_gpu(), gpu), Reverse(folder)));
        }
        candidates.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        let profile = match candidates.first() {
            Some((_, Reverse(folder))) => Some(FittedProfile::load(folder)?),
            None => None,
        };
        Ok(Self::new(gpu, profile))
    }

    /// A cost model from a given profile, or from the roofline.
    #[must_use]
    pub fn new(gpu: &Gpu, profile: Option<FittedProfile>) -> Self {
        let measured = profile.as_ref().map(|profile| &profile.gpu);
        let same_processor = measured.is_some_and(|measured| same_processor(measured, gpu));
        let same_links = measured.is_some_and(|measured| same_links(measured, gpu));
        Self { gpu: gpu.clone(), profile, same_processor, same_links }
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
        let roofline = || Estimate { time_ns: roofline_ns(operator, &self.gpu), source: EstimateSource::Roofline };
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
        let Some((time_ns, inside)) = profile.predict(operator) else { return roofline() };
        if same {
            let source = if inside { EstimateSource::Measured } else { EstimateSource::Extrapolated };
            return Estimate { time_ns, source };
        }
        let ratio = roofline_ns(operator, &self.gpu) / roofline_ns(operator, &profile.gpu);
        Estimate { time_ns: time_ns * ratio, source: EstimateSource::Transferred }
    }
}

impl Predictor for CostModel {
    fn predict(&self, operator: &Operator) -> Estimate {
        Self::predict(self, operator)
    }
}

/// Folders GPU/ENGINE with a card, sorted; none if the folder does not exist.
#[must_use]
pub fn profile_folders(fitted: &Path) -> Vec<PathBuf> {
    let children = |folder: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths
    };
    children(fitted).iter().flat_map(|gpu| children(gpu)).filter(|folder| folder.join(CARD_FILE).is_file()).collect()
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
    use crate::fidelity::import::{Measurement, Measurements};
    use crate::fidelity::train::{Fitted, train};
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
        for operator in [Operator::Streaming { bytes: 1e6, kernels: 1 }, all_reduce(1e6, 16), all_reduce(1e6, 1)] {
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
    fn loads_the_nearest_profile_and_reports_damage() {
        let root = tempfile::tempdir().unwrap();
        let gpu = test_gpus::h100_sxm();
        let empty = CostModel::load(root.path(), &gpu).unwrap();
        assert_eq!(empty.predict(&gemm(8, 512, 512)).source, EstimateSource::Roofline);

        let folder = root.path().join(FITTED_FOLDER).join("h100-sxm/made-up-1");
        fs::create_dir_all(&folder).unwrap();
        let Fitted { card, families } = fitted();
        fs::write(folder.join(CARD_FILE), card.to_toml().unwrap()).unwrap();
        for (entry, family) in card.families.iter().zip(&families) {
            fs::write(folder.join(&entry.file), family.to_bytes().unwrap()).unwrap();
        }
        let loaded = CostModel::load(root.path(), &gpu).unwrap();
        assert_eq!(loaded.profile(), Some(&FittedProfile::new(card, families)));
        assert_eq!(loaded.predict(&gemm(8, 512, 512)).source, EstimateSource::Measured);

        let path = folder.join("gemm.forest");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = CostModel::load(root.path(), &gpu).unwrap_err();
        assert!(error.message.contains("gemm.forest") && error.message.contains("checksum"), "{}", error.message);
        fs::write(&path, &bytes[..middle]).unwrap();
        assert!(CostModel::load(root.path(), &gpu).is_err());
    }
}
