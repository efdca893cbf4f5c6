//! The less loaded of two random engines (Mitzenmacher, IEEE TPDS 12, 2001).

use crate::rng::Stream;

use super::{Router, RouterView};

/// Two different engines drawn at random; the one with fewer unfinished requests, the first on a tie.
pub(super) struct PowerOfTwo;

impl Router for PowerOfTwo {
    fn name(&self) -> &'static str {
        "power_of_two"
    }

    fn summary(&self) -> &'static str {
        "the less loaded of two random engines"
    }

    fn route(&self, view: RouterView<'_>) -> usize {
        let engines = view.outstanding.len() as u64;
        if engines == 1 {
            return 0;
        }
        let mut stream = Stream::new(view.seed, "router", view.sequence);
        let first = stream.below(engines);
        let second = (first + 1 + stream.below(engines - 1)) % engines;
        let (first, second) = (first as usize, second as usize);
        if view.outstanding[second] < view.outstanding[first] { second } else { first }
    }
}
