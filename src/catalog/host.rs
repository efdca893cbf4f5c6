//! Host-side costs of a serving engine: data per engine version, not code.

/// Host overheads of one engine version. Read from `profiles/engines/NAME.toml`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostOverhead {
    /// Scheduling, input preparation and output handling of one engine step, in microseconds.
    pub step_us: f64,
    /// Further time per sequence in the step, in microseconds.
    pub per_sequence_us: f64,
    /// The host prepares the next step while the GPU works on this one; otherwise the two add up.
    pub asynchronous: bool,
    /// Host time to launch the kernels of one layer in eager mode, in microseconds; the GPU cannot run faster.
    pub eager_layer_launch_us: f64,
    /// From the client's request to the engine's queue: HTTP, tokenisation, process hops; in microseconds.
    pub request_us: f64,
    /// From the end of a step to the token at the client: detokenisation, streaming; in microseconds.
    pub response_us: f64,
}
