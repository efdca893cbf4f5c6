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
fn profile_folders(fitted: &Path) -> Vec<PathBuf> {
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
