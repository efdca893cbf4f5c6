//! The constants that calibration may change.

use crate::catalog::HostOverhead;

/// A free constant of an engine's host, in microseconds.
pub struct Constant {
    /// Key in the `[host]` table of an engine profile.
    pub name: &'static str,
    /// Smallest and largest value that is tried; the search runs over its logarithm.
    pub bounds_us: (f64, f64),
    get: fn(&HostOverhead) -> f64,
    set: fn(&mut HostOverhead, f64),
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Constant {
    /// Its value, in microseconds.
    #[must_use]
    pub fn get(&self, host: &HostOverhead) -> f64 {
        (self.get)(host)
    }

    /// Sets its value, in microseconds.
    pub fn set(&self, host: &mut HostOverhead, value_us: f64) {
        (self.set)(host, value_us);
    }
}

macro_rules! constant {
    ($field:ident, $least_us:expr, $most_us:expr) => {
        Constant {
            name: stringify!($field),
            bounds_us: ($least_us, $most_us),
            get: |host| host.$field,
            set: |host, value_us| host.$field = value_us,
        }
    };
}

/// Every free constant. Bounds leave out what no Python or C++ host has been seen to need: a step of the fastest engines
/// takes some 0.1 ms, one of the slowest tens of milliseconds. Where two constants explain the runs equally well, the
/// later one is kept.
pub const CONSTANTS: &[Constant] = &[
    constant!(exposed_us, 10.0, 50_000.0),
    constant!(step_us, 50.0, 100_000.0),
    constant!(per_sequence_us, 0.5, 1_000.0),
    constant!(eager_layer_launch_us, 5.0, 5_000.0),
    constant!(compiled_layer_launch_us, 1.0, 2_000.0),
    constant!(request_us, 50.0, 200_000.0),
    constant!(serial_request_us, 20.0, 20_000.0),
    constant!(serial_prompt_token_us, 0.02, 20.0),
    constant!(response_us, 20.0, 100_000.0),
];
