//! TensorRT-LLM's in-flight batching (`cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp`, `microBatchScheduler.cpp`): a
//! capacity policy decides who may run, and generation comes before contexts within `max_num_tokens`.

use super::{Engine, Horizon, Reservation, Scheduler};

/// `GUARANTEED_NO_EVICT`, the default: a request starts when the blocks of its whole prompt and output are free besides
/// those that all running requests may still take, so none is ever paused.
pub(super) struct GuaranteedNoEvict;

/// `MAX_UTILIZATION`: a request starts when the blocks of its prompt are free; when blocks run out, the last started one
/// is paused and recomputed later.
pub(super) struct MaxUtilization;

fn schedule(engine: &mut dyn Engine, reservation: Reservation) -> Horizon {
    let paused = engine.decode() + engine.continue_prompts();
    if paused == 0 {
        while engine.admit(reservation) {}
    }
    Horizon::UntilChange
}

impl Scheduler for GuaranteedNoEvict {
    fn name(&self) -> &'static str {
        "trtllm-guaranteed-no-evict"
    }

    fn summary(&self) -> &'static str {
        "generation first, then contexts whose whole output has room, so that none is paused"
    }

    fn schedule(&self, engine: &mut dyn Engine) -> Horizon {
        schedule(engine, Reservation::WholeOutput)
    }
}

impl Scheduler for MaxUtilization {
    fn name(&self) -> &'static str {
        "trtllm-max-utilization"
    }

    fn summary(&self) -> &'static str {
        "generation first, then contexts whose prompt has room, pausing the last when memory runs out"
    }

    fn schedule(&self, engine: &mut dyn Engine) -> Horizon {
        schedule(engine, Reservation::Prompt)
    }
}
