//! Models, GPUs and networks, read from `models/` and `profiles/`.

pub mod gpu;
pub mod host;
pub mod model;
pub mod precision;

pub use gpu::{Gpu, ScaleUp};
pub use host::HostOverhead;
pub use model::{Attention, Ffn, Layer, Model};
pub use precision::{NumberFormat, Precision};
