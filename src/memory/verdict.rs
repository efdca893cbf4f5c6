//! Whether a deployment can start, with the numbers that decide.

use std::fmt;

use super::MemoryPlan;
use crate::units::{format_count, format_gib};

/// The answer of the memory model. All numbers are bytes on one GPU, or KV blocks of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The deployment starts and can hold its longest request.
    Fits,
    /// The weights alone exceed the budget.
    NoRoomForWeights {
        /// Weights on one GPU.
        weights_bytes: u64,
        /// Share of GPU memory that the engine may use.
        budget_bytes: u64,
    },
    /// The weights fit, but not one KV block beside them.
    NoBlocks {
        /// Weights on one GPU.
        weights_bytes: u64,
        /// Activation peak, buffers and everything else that is subtracted.
        other_bytes: u64,
        /// Share of GPU memory that the engine may use.
        budget_bytes: u64,
        /// One KV block.
        block_bytes: u64,
    },
    /// The CUDA context and graphs do not fit beside the engine's budget: out of memory at start-up.
    NoHeadroom {
        /// Memory that the engine does not count.
        uncounted_bytes: u64,
        /// Memory outside the engine's budget.
        headroom_bytes: u64,
    },
    /// A request of `max_model_len` tokens needs more blocks than there are.
    RequestTooLong {
        /// Blocks that the longest request needs.
        needs_blocks: u64,
        /// Blocks that requests can use.
        has_blocks: u64,
    },
}

/// Blocks that requests can use: vLLM's block pool keeps one of those it reports as a placeholder.
#[must_use]
pub fn usable_blocks(kv_blocks: u64) -> u64 {
    kv_blocks.saturating_sub(1)
}

impl Verdict {
    /// Every [`reason`](Self::reason), in the order in which the conditions are tested.
    pub const REASONS: [&'static str; 5] =
        ["fits", "no_room_for_weights", "no_kv_blocks", "no_headroom", "request_too_long"];

    /// Whether the deployment can be simulated.
    #[must_use]
    pub fn fits(self) -> bool {
        self == Self::Fits
    }

    /// A stable name for counting and for result files.
    #[must_use]
    pub fn reason(self) -> &'static str {
        let position = match self {
            Self::Fits => 0,
            Self::NoRoomForWeights { .. } => 1,
            Self::NoBlocks { .. } => 2,
            Self::NoHeadroom { .. } => 3,
            Self::RequestTooLong { .. } => 4,
        };
        Self::REASONS[position]
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Fits => write!(f, "fits"),
            Self::NoRoomForWeights { weights_bytes, budget_bytes } => write!(
                f,
                "weights need {} per GPU, more than the {} that the engine may use",
                format_gib(weights_bytes),
                format_gib(budget_bytes)
            ),
            Self::NoBlocks { weights_bytes, other_bytes, budget_bytes, block_bytes } => write!(
                f,
                "weights ({}) and activations, buffers and the rest ({}) leave no KV block of {} KiB within {}",
                format_gib(weights_bytes),
                format_gib(other_bytes),
                format_count(block_bytes / 1024),
                format_gib(budget_bytes)
            ),
            Self::NoHeadroom { uncounted_bytes, headroom_bytes } => write!(
                f,
                "the CUDA context and graphs need {}, but `gpu_memory_utilization` leaves only {} free",
                format_gib(uncounted_bytes),
                format_gib(headroom_bytes)
            ),
            Self::RequestTooLong { needs_blocks, has_blocks } => write!(
                f,
                "one request of `max_model_len` tokens needs {} KV blocks, but there are {}",
                format_count(needs_blocks),
                format_count(has_blocks)
            ),
        }
    }
}

pub(super) fn judge(plan: &MemoryPlan) -> Verdict {
    let weights_bytes = plan.weights.total();
    let budget_bytes = plan.budget_bytes;
    if weights_bytes > budget_bytes {
        return Verdict::NoRoomForWeights { weights_bytes, budget_bytes };
    }
    if plan.kv_blocks == 0 {
        let other_bytes = plan.occupied_bytes() - weights_bytes;
        return Verdict::NoBlocks { weights_bytes, other_bytes, budget_bytes, block_bytes: plan.kv_block_bytes };
    }
    let headroom_bytes = plan.gpu_bytes.saturating_sub(budget_bytes);
    if plan.uncounted_bytes() > headroom_bytes {
        return Verdict::NoHeadroom { uncounted_bytes: plan.uncounted_bytes(), headroom_bytes };
    }
    let (needs_blocks, has_blocks) = (plan.blocks_per_longest_request, usable_blocks(plan.kv_blocks));
    if needs_blocks > has_blocks {
        return Verdict::RequestTooLong { needs_blocks, has_blocks };
    }
    Verdict::Fits
}
