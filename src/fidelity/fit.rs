//! Fits a random forest with smartcore and packs it; the only file that uses that crate.

use serde_json::Value;
use smartcore::ensemble::random_forest_regressor::{RandomForestRegressor, RandomForestRegressorParameters};
use smartcore::linalg::basic::matrix::DenseMatrix;

use super::bytes::Corrupt;
use super::forest::{Forest, Node};
use super::shape::MAX_FEATURES;
use crate::diag::Diagnostic;

/// How large a forest is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForestSettings {
    /// Trees.
    pub trees: usize,
    /// Fewest rows in a leaf.
    pub min_leaf: usize,
}

/// Share of the features that a split may choose from. smartcore's default, the square root of their number, is a
/// classification habit: it hides ln(m) from most splits.
const FEATURE_SHARE: f64 = 0.6;
/// Seed of the bootstrap samples: fits are reproducible.
const SEED: u64 = 0x5e7e;

/// Fits the mean of `targets` over the first `feature_count` features.
///
/// # Errors
/// If there are no rows, or the library fails.
pub fn fit_forest(
    features: &[[f32; MAX_FEATURES]],
    feature_count: usize,
    targets: &[f64],
    settings: ForestSettings,
) -> Result<Forest, Diagnostic> {
    if feature_count == 0 {
        return Ok(Forest::default());
    }
    let fail = |reason: String| Diagnostic::new(format!("cannot fit a forest: {reason}"));
    let rows: Vec<Vec<f64>> =
        features.iter().map(|row| row[..feature_count].iter().map(|value| f64::from(*value)).collect()).collect();
    let matrix = DenseMatrix::from_2d_vec(&rows).map_err(|error| fail(error.to_string()))?;
    let parameters = RandomForestRegressorParameters::default()
        .with_n_trees(settings.trees)
        .with_min_samples_leaf(settings.min_leaf)
        .with_min_samples_split(2 * settings.min_leaf)
        .with_m(libm::ceil(feature_count as f64 * FEATURE_SHARE) as usize)
        .with_seed(SEED);
    let model =
        RandomForestRegressor::fit(&matrix, &targets.to_vec(), parameters).map_err(|error| fail(error.to_string()))?;
    // The library keeps its nodes private; its serialised form is the only way to them.
    let value = serde_json::to_value(&model).map_err(|error| fail(error.to_string()))?;
    let trees = value["forest_regressor"]["trees"].as_array().ok_or_else(|| fail("no trees".to_owned()))?;
    let packed: Vec<Vec<Node>> = trees
        .iter()
        .map(|tree| {
            let nodes = tree["nodes"].as_array()?;
            let mut out = Vec::with_capacity(nodes.len());
            pack(nodes, 0, &mut out)?;
            Some(out)
        })
        .collect::<Option<_>>()
        .ok_or_else(|| fail("the library's tree layout is not the expected one".to_owned()))?;
    Forest::new(&packed, bounds(features, feature_count)).map_err(|Corrupt(reason)| fail(reason.to_owned()))
}

/// Appends a subtree in pre-order; `None` if a field is missing.
fn pack(nodes: &[Value], index: usize, out: &mut Vec<Node>) -> Option<()> {
    let node = nodes.get(index)?;
    let child = |name: &str| node[name].as_u64().map(|child| child as usize);
    match (child("true_child"), child("false_child")) {
        (Some(left), Some(right)) => {
            let threshold = node["split_value"].as_f64()? as f32;
            out.push(Node::Split { feature: u8::try_from(node["split_feature"].as_u64()?).ok()?, threshold });
            pack(nodes, left, out)?;
            pack(nodes, right, out)
        }
        _ => {
            out.push(Node::Leaf(node["output"].as_f64()?));
            Some(())
        }
    }
}

/// Smallest and largest value of each feature.
fn bounds(features: &[[f32; MAX_FEATURES]], count: usize) -> Vec<(f32, f32)> {
    (0..count)
        .map(|feature| {
            features
                .iter()
                .map(|row| row[feature])
                .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> (Vec<[f32; MAX_FEATURES]>, Vec<f64>) {
        (0..400)
            .map(|i| {
                let mut row = [0.0; MAX_FEATURES];
                (row[0], row[1]) = ((i % 20) as f32, (i / 20) as f32);
                (row, if row[0] < 7.0 { 1.0 } else { -0.5 } + 0.01 * f64::from(row[1]))
            })
            .unzip()
    }

    #[test]
    fn learns_a_step_and_is_the_same_every_time() {
        let (features, targets) = rows();
        let settings = ForestSettings { trees: 8, min_leaf: 2 };
        let forest = fit_forest(&features, 2, &targets, settings).unwrap();
        assert_eq!(forest, fit_forest(&features, 2, &targets, settings).unwrap());
        for (row, target) in features.iter().zip(&targets) {
            let (value, inside) = forest.predict(row);
            assert!(inside && (value - target).abs() < 0.1, "{row:?}: {value} against {target}");
        }
    }
}
