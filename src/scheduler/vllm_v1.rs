//! vLLM's V1 scheduler (`vllm/v1/core/sched/scheduler.py`): running sequences first, then admission in arrival order,
//! all in one token budget.

use super::{Engine, Horizon, Reservation, Scheduler};

/// Decodes, then the prompts in progress, then new prompts; nothing is admitted in a step that preempted.
///
/// V1 has no admission watermark: a prompt is admitted as soon as the blocks of its first chunk are free, or in versions
/// that reserve the full prompt, those of all of it.
pub(super) struct VllmV1;

impl Scheduler for VllmV1 {
    fn name(&self) -> &'static str {
        "vllm-v1"
    }

    fn summary(&self) -> &'static str {
        "running sequences first, then admission in arrival order within one token budget"
    }

    fn schedule(&self, engine: &mut dyn Engine) -> Horizon {
        let preempted = engine.decode() + engine.continue_prompts();
        if preempted == 0 {
            let full_prompt = engine.rules().reserve_full_prompt;
            let reservation = if full_prompt { Reservation::Prompt } else { Reservation::FirstChunk };
            while engine.admit(reservation) {}
        }
        Horizon::UntilChange
    }
}
