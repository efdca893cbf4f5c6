//! Request-level batching, as inference servers did it before continuous batching (the baseline of Orca, OSDI 2022).

use super::{Engine, Scheduler};

/// A batch runs to its end before the next one is admitted. The baseline that continuous batching is compared with.
pub(super) struct StaticBatching;

impl Scheduler for StaticBatching {
    fn name(&self) -> &'static str {
        "static"
    }

    fn summary(&self) -> &'static str {
        "a batch runs to its end before the next is admitted"
    }

    fn schedule(&self, engine: &mut dyn Engine) {
        let idle = engine.running() == 0;
        engine.decode();
        engine.continue_prompt();
        while idle && engine.admit() {}
    }
}
