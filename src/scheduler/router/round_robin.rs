//! Engines in turn.

use super::{Router, RouterView};

/// Request n goes to engine n modulo the number of engines.
pub(super) struct RoundRobin;

impl Router for RoundRobin {
    fn name(&self) -> &'static str {
        "round_robin"
    }

    fn summary(&self) -> &'static str {
        "request n goes to engine n modulo their number"
    }

    fn route(&self, view: RouterView<'_>) -> usize {
        (view.sequence % view.outstanding.len() as u64) as usize
    }
}
