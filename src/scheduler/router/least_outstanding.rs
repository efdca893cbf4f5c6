//! The engine with the fewest unfinished requests.

use super::{Router, RouterView};

/// Fewest unfinished requests; ties go to the next engine in turn, or low indices would carry more than their share.
pub(super) struct LeastOutstanding;

impl Router for LeastOutstanding {
    fn name(&self) -> &'static str {
        "least_outstanding"
    }

    fn summary(&self) -> &'static str {
        "fewest unfinished requests"
    }

    fn route(&self, view: RouterView<'_>) -> usize {
        let engines = view.outstanding.len();
        let first = (view.sequence % engines as u64) as usize;
        let mut best = first;
        for offset in 1..engines {
            let engine = (first + offset) % engines;
            if view.outstanding[engine] < view.outstanding[best] {
                best = engine;
            }
        }
        best
    }
}
