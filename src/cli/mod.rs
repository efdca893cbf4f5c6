//! (under construction)

pub mod profile;
