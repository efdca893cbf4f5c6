//! Figures. They are drawn from plain data into a [`scene::Scene`], which [`chart`] turns into SVG and PNG: the only
//! file that knows the plotting library.

pub mod axis;
pub mod chart;
pub mod front;
mod labels;
mod layout;
pub mod scene;
pub mod theme;

pub use axis::{AxisSpec, format_number};
pub use front::{FrontFigure, FrontPoint, draw};
