//! The requests a simulation receives.

use crate::units::Ticks;

/// One request. Its place in [`RequestStream::requests`] is its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Arrival. In a closed loop this is zero: the request is issued when a client becomes free.
    pub arrival: Ticks,
    /// Prompt length, at least one token.
    pub prompt_tokens: u32,
    /// Output length, at least one token.
    pub output_tokens: u32,
}

/// A stream shared by every candidate with the same (workload, seed, load): common random numbers make comparisons
/// several times tighter than independent draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestStream {
    /// Requests by arrival; in a closed loop, in the order in which clients issue them.
    pub requests: Vec<Request>,
    /// Number of clients of a closed loop, each issuing its next request when its last one completes; `None` for an
    /// open loop.
    pub clients: Option<u32>,
    /// The first so many requests load the system but are not measured.
    pub warmup: usize,
}
