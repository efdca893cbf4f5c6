//! A random forest in our own flat form: small on disk, read without a machine-learning library.
//!
//! On disk (little endian) a node takes one byte for its feature or the leaf mark, then two: the index of a threshold
//! in the feature's list, or the leaf's value in steps of `LEAF_STEP`. Nodes are in pre-order, so children need no
//! pointers. In memory, the left child follows its parent and the right child is an index.

use super::bytes::{Corrupt, Reader, put_f32, put_u16, put_u32};
use super::shape::MAX_FEATURES;

/// Step of the leaf values, in units of ln(time): 0.0001, range +-3.2.
const LEAF_STEP: f64 = 1e-4;
/// Mark of a leaf in place of a feature.
const LEAF: u8 = 0xFF;
/// Deepest tree that is read; a bound on the work that a damaged file can cause.
const MAX_DEPTH: usize = 64;

/// One node of a tree in pre-order, as a fitting library produces it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Node {
    /// Goes to the next node if `features[feature] <= threshold`, else to the end of that subtree.
    Split {
        /// Index of the feature.
        feature: u8,
        /// Threshold.
        threshold: f32,
    },
    /// The tree's answer.
    Leaf(f64),
}

/// A node in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Flat {
    /// Threshold of a split, value of a leaf.
    value: f32,
    /// Index of the right child; unused in a leaf.
    right: u32,
    /// Feature of a split, or [`LEAF`].
    feature: u8,
}

/// The mean of a few regression trees, with the box of the features it was fitted on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forest {
    nodes: Vec<Flat>,
    roots: Vec<u32>,
    bounds: Vec<(f32, f32)>,
}

impl Forest {
    /// Packs trees given in pre-order; values are rounded to what the file can hold.
    ///
    /// # Errors
    /// A sentence if a tree is not a complete pre-order or is deeper than the file format allows.
    pub fn new(trees: &[Vec<Node>], bounds: Vec<(f32, f32)>) -> Result<Self, Corrupt> {
        let mut forest = Self { bounds, ..Self::default() };
        for tree in trees {
            forest.roots.push(forest.nodes.len() as u32);
            let mut nodes = tree.iter().copied();
            forest.link(&mut || nodes.next().ok_or(Corrupt("a tree ends inside a branch")), 0)?;
        }
        Ok(forest)
    }

    /// Appends the subtree that `next` delivers.
    fn link(&mut self, next: &mut dyn FnMut() -> Result<Node, Corrupt>, depth: usize) -> Result<(), Corrupt> {
        if depth > MAX_DEPTH {
            return Err(Corrupt("a tree is too deep"));
        }
        let index = self.nodes.len();
        match next()? {
            Node::Leaf(value) => {
                let value = (libm::round(value / LEAF_STEP).clamp(-32767.0, 32767.0) * LEAF_STEP) as f32;
                self.nodes.push(Flat { value, right: 0, feature: LEAF });
            }
            Node::Split { feature, threshold } => {
                if usize::from(feature) >= self.bounds.len().min(MAX_FEATURES) {
                    return Err(Corrupt("a tree tests a feature that does not exist"));
                }
                self.nodes.push(Flat { value: threshold, right: 0, feature });
                self.link(next, depth + 1)?;
                self.nodes[index].right = self.nodes.len() as u32;
                self.link(next, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Number of nodes over all trees.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The mean of the trees at `features` clamped to the fitted box, and whether they lie inside it. Zero without
    /// trees.
    #[must_use]
    pub fn predict(&self, features: &[f32; MAX_FEATURES]) -> (f64, bool) {
        let mut clamped = *features;
        let mut inside = true;
        for (value, (low, high)) in clamped.iter_mut().zip(&self.bounds) {
            inside &= *low <= *value && *value <= *high;
            *value = value.clamp(*low, *high);
        }
        if self.roots.is_empty() {
            return (0.0, inside);
        }
        let total: f64 = self.roots.iter().map(|root| f64::from(self.leaf(*root, &clamped))).sum();
        (total / self.roots.len() as f64, inside)
    }

    fn leaf(&self, root: u32, features: &[f32; MAX_FEATURES]) -> f32 {
        let mut index = root as usize;
        loop {
            let node = &self.nodes[index];
            if node.feature == LEAF {
                return node.value;
            }
            let left = features[usize::from(node.feature) % MAX_FEATURES] <= node.value;
            index = if left { index + 1 } else { node.right as usize };
        }
    }

    /// Appends the file form.
    ///
    /// # Errors
    /// A sentence if a feature has more thresholds than the file form can number.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Corrupt> {
        let thresholds = self.thresholds();
        out.push(self.bounds.len() as u8);
        for ((low, high), list) in self.bounds.iter().zip(&thresholds) {
            put_f32(out, *low);
            put_f32(out, *high);
            put_u16(out, u16::try_from(list.len()).map_err(|_| Corrupt("too many thresholds for one feature"))?);
            for threshold in list {
                put_f32(out, *threshold);
            }
        }
        put_u16(out, self.roots.len() as u16);
        put_u32(out, self.nodes.len() as u32);
        for node in &self.nodes {
            out.push(node.feature);
            if node.feature == LEAF {
                let steps = libm::round(f64::from(node.value) / LEAF_STEP) as i16;
                put_u16(out, steps as u16);
            } else {
                let list = &thresholds[usize::from(node.feature)];
                put_u16(out, list.partition_point(|value| *value < node.value) as u16);
            }
        }
        Ok(())
    }

    /// Sorted distinct thresholds of each feature.
    fn thresholds(&self) -> Vec<Vec<f32>> {
        let mut lists = vec![Vec::new(); self.bounds.len()];
        for node in self.nodes.iter().filter(|node| node.feature != LEAF) {
            lists[usize::from(node.feature)].push(node.value);
        }
        for list in &mut lists {
            list.sort_unstable_by(f32::total_cmp);
            list.dedup();
        }
        lists
    }

    /// Reads the file form.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let features = usize::from(reader.u8()?);
        if features > MAX_FEATURES {
            return Err(Corrupt("too many features"));
        }
        let mut forest = Self::default();
        let mut thresholds = Vec::with_capacity(features);
        for _ in 0..features {
            forest.bounds.push((reader.f32()?, reader.f32()?));
            let count = reader.u16()?;
            thresholds.push((0..count).map(|_| reader.f32()).collect::<Result<Vec<f32>, Corrupt>>()?);
        }
        if forest.bounds.iter().any(|(low, high)| low.is_nan() || high.is_nan() || low > high) {
            return Err(Corrupt("the box of a feature is empty"));
        }
        let trees = reader.u16()?;
        let nodes = reader.u32()? as usize;
        for _ in 0..trees {
            forest.roots.push(forest.nodes.len() as u32);
            forest.link(&mut || read_node(reader, &thresholds), 0)?;
        }
        if forest.nodes.len() != nodes {
            return Err(Corrupt("the number of nodes does not match"));
        }
        Ok(forest)
    }
}

fn read_node(reader: &mut Reader<'_>, thresholds: &[Vec<f32>]) -> Result<Node, Corrupt> {
    let feature = reader.u8()?;
    let code = reader.u16()?;
    if feature == LEAF {
        return Ok(Node::Leaf(f64::from(code as i16) * LEAF_STEP));
    }
    let list = thresholds.get(usize::from(feature)).ok_or(Corrupt("a tree tests a feature that does not exist"))?;
    let threshold = *list.get(usize::from(code)).ok_or(Corrupt("a tree uses a threshold that does not exist"))?;
    Ok(Node::Split { feature, threshold })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Forest {
        let split = |feature, threshold| Node::Split { feature, threshold };
        let first = vec![split(0, 1.5), Node::Leaf(-1.0), split(1, 0.25), Node::Leaf(0.5), Node::Leaf(2.0)];
        Forest::new(&[first, vec![Node::Leaf(1.0)]], vec![(0.0, 4.0), (0.0, 1.0)]).unwrap()
    }

    fn at(x: f32, y: f32) -> [f32; MAX_FEATURES] {
        let mut features = [0.0; MAX_FEATURES];
        (features[0], features[1]) = (x, y);
        features
    }

    #[test]
    fn predicts_the_mean_of_its_trees_and_clamps_to_the_box() {
        let forest = example();
        let close = |(value, inside): (f64, bool), expected: (f64, bool)| {
            assert!((value - expected.0).abs() < 1e-6 && inside == expected.1, "{value} {inside} {expected:?}");
        };
        close(forest.predict(&at(1.5, 0.9)), (0.0, true));
        close(forest.predict(&at(2.0, 0.2)), (0.75, true));
        close(forest.predict(&at(2.0, 0.3)), (1.5, true));
        close(forest.predict(&at(9.0, 7.0)), (1.5, false));
    }

    #[test]
    fn survives_the_file_form_and_rejects_every_truncation() {
        let forest = example();
        let mut bytes = Vec::new();
        forest.write(&mut bytes).unwrap();
        assert_eq!(Forest::read(&mut Reader::new(&bytes)).unwrap(), forest);
        for length in 0..bytes.len() {
            assert!(Forest::read(&mut Reader::new(&bytes[..length])).is_err(), "{length} bytes were accepted");
        }
    }

    #[test]
    fn rejects_a_tree_that_ends_inside_a_branch() {
        let open = vec![Node::Split { feature: 0, threshold: 1.0 }, Node::Leaf(0.0)];
        assert!(Forest::new(&[open], vec![(0.0, 1.0)]).is_err());
    }
}
