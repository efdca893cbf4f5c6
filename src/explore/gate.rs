//! Keeps workers within a window ahead of the writer.

use std::sync::{Condvar, Mutex, PoisonError};

/// Counts written blocks. Without it one slow candidate would let the reorder buffer grow without bound.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    written: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    blocks: usize,
    closed: bool,
}

impl Gate {
    /// Waits until `block` is less than `window` blocks ahead of the writer. Returns false if the gate was closed.
    pub(crate) fn enter(&self, block: usize, window: usize) -> bool {
        let state = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self
            .changed
            .wait_while(state, |state| !state.closed && block >= state.blocks + window)
            .unwrap_or_else(PoisonError::into_inner);
        !state.closed
    }

    /// The writer has consumed one more block.
    pub(crate) fn advance(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).blocks += 1;
        self.changed.notify_all();
    }

    /// Lets every waiting worker go home: the writer has failed.
    pub(crate) fn close(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }
}
