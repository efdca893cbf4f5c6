//! SGLang's scheduler (`python/sglang/srt/managers/scheduler.py`, `schedule_policy.py`): prompts first, and admission by
//! the memory that running requests are expected to need.

use super::{Engine, Horizon, Reservation, Scheduler};

/// A step works on prompts, if there are any that fit, or else lets all sequences decode; the two are not mixed
/// (`enable_mixed_chunk` is off by default). The token budget is `chunked_prefill_size`.
pub(super) struct Sglang;

impl Scheduler for Sglang {
    fn name(&self) -> &'static str {
        "sglang"
    }

    fn summary(&self) -> &'static str {
        "prompts before decoding, never both in one step, admitted by expected output"
    }

    fn schedule(&self, engine: &mut dyn Engine) -> Horizon {
        let budget = engine.token_budget();
        if engine.continue_prompts() == 0 {
            while engine.admit(Reservation::ExpectedOutput) {}
        }
        if engine.token_budget() == budget {
            engine.decode();
        }
        // What is expected of the running requests shrinks with every step, so a request that waits for memory may fit.
        if engine.waiting() > 0 && !engine.is_full() { Horizon::OneStep } else { Horizon::UntilChange }
    }
}
