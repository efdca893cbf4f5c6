//! Arrivals, lengths and traces: everything that makes a request stream.

pub mod stream;

pub use stream::{Request, RequestStream};
