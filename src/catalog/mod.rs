//! Models, GPUs and networks, read from `models/` and `profiles/`.

pub mod gpu;
pub mod model;
pub mod precision;

pub use gpu::{Gpu, ScaleUp};
pub use model::{Attention, Ffn, Layer, Model};
pub use precision::{NumberFormat, Precision};
