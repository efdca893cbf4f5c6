//! Scheduler policies, one file each, and the registry that names them.
//!
//! A policy decides in which order an engine spends the token budget of one step. It works through [`Engine`], which
//! the simulator implements: every method acts at once and reports what it did, so a policy holds no state and cannot
//! break conservation of tokens or the KV budget.
//!
//! To add a policy, write `NAME.rs` with a unit struct that implements [`Scheduler`], and add it to [`SCHEDULERS`]; the
//! conformance suite in `tests/simulator/conformance.rs` then covers it.

pub mod router;
mod sglang;
mod tensorrt_llm;
mod vllm_v1;

use crate::catalog::SchedulingRules;

/// What must be free for a request to be admitted, besides the blocks of its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// Nothing.
    FirstChunk,
    /// The blocks of its whole prompt.
    Prompt,
    /// Its prompt and output, and what the running requests are expected to generate (a share of what they may).
    ExpectedOutput,
    /// Its prompt and output, and those of all running requests.
    WholeOutput,
}

/// How long the decision of a policy holds while contexts grow and nothing else changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// For as long.
    UntilChange,
    /// For one step: growing contexts alone may change it.
    OneStep,
}

/// What a policy can see of an engine and do with it within one step.
pub trait Engine {
    /// Tokens that still fit into the step.
    fn token_budget(&self) -> u32;

    /// Settings of the engine version.
    fn rules(&self) -> &SchedulingRules;

    /// As many sequences run as may.
    fn is_full(&self) -> bool;

    /// Running sequences of the engine, over all pipeline lanes.
    fn running(&self) -> u32;

    /// Sequences waiting for admission, preempted ones included.
    fn waiting(&self) -> usize;

    /// Lets every sequence of this lane that decodes produce one token. Where a KV block is missing, the last admitted
    /// sequence is preempted until it suffices. Returns the number of preempted sequences.
    fn decode(&mut self) -> u32;

    /// Continues the prompts that earlier steps began, in order of admission, as far as the budget allows. Returns the
    /// number of preempted sequences (the prompt itself, when no block is free for its next chunk).
    fn continue_prompts(&mut self) -> u32;

    /// Takes the head of the waiting queue, with as much of its prompt as the budget allows (all or nothing without
    /// chunked prefill). What the prefix cache has of the prompt is not computed again.
    ///
    /// Fails, and changes nothing, if the queue is empty, `max_num_seqs` are running, the budget is spent, or the blocks
    /// of the chunk or what is to be reserved are not free.
    fn admit(&mut self, reservation: Reservation) -> bool;
}

/// A scheduling policy.
///
/// Contract, checked by the conformance suite: the decision depends on the engine's state alone; a policy that works on
/// prompts leaves decoding out or lets all decode; and one that chose a batch of decodes only, without preempting, and
/// said that this holds [`Horizon::UntilChange`], would choose the same again while nothing changes but growing contexts.
/// The last part is what makes fast-forwarding exact.
pub trait Scheduler: Sync {
    /// Name in sweep files and results.
    fn name(&self) -> &'static str;

    /// One sentence for help texts.
    fn summary(&self) -> &'static str;

    /// Fills one step.
    fn schedule(&self, engine: &mut dyn Engine) -> Horizon;
}

/// Every policy, in the order in which help texts list them.
pub const SCHEDULERS: &[&dyn Scheduler] =
    &[&vllm_v1::VllmV1, &sglang::Sglang, &tensorrt_llm::GuaranteedNoEvict, &tensorrt_llm::MaxUtilization];

/// The policy of this name.
#[must_use]
pub fn scheduler(name: &str) -> Option<&'static dyn Scheduler> {
    SCHEDULERS.iter().copied().find(|scheduler| scheduler.name() == name)
}
