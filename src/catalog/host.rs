//! Host-side costs of a serving engine: data per engine version, not code.

/// Host overheads of one engine version. Read from `profiles/engines/NAME.toml`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostOverhead {
    /// Scheduling, input preparation and output handling of one engine step, in microseconds.
    pub step_us: f64,
    /// Further time per sequence in the step, in microseconds.
    pub per_sequence_us: f64,
    /// Asynchronous scheduling: that work is done while the GPU runs the step before, and shows only where it takes
    /// longer. Otherwise the two add up.
    pub asynchronous: bool,
    /// What stays between two steps even with asynchronous scheduling (launch of the step, sampling), in microseconds.
    pub exposed_us: f64,
    /// Host time to launch the kernels of one layer in eager mode, in microseconds; the GPU cannot run faster.
    pub eager_layer_launch_us: f64,
    /// The same for compiled code in batches too large for a CUDA graph, in microseconds.
    pub compiled_layer_launch_us: f64,
    /// From the client's request to the engine's queue, as far as requests do not wait for each other: HTTP, process
    /// hops; in microseconds.
    pub request_us: f64,
    /// What the server does for one request at a time: parsing, bookkeeping; in microseconds per request.
    pub serial_request_us: f64,
    /// The same per token of the prompt: tokenisation; in microseconds.
    pub serial_prompt_token_us: f64,
    /// From the end of a step to the token at the client: detokenisation, streaming; in microseconds.
    pub response_us: f64,
}
