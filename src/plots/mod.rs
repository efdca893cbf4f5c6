//! Figures. They are drawn from plain data into a [`scene::Scene`], which [`chart`] turns into SVG and PNG: the only
//! file that knows the plotting library.

pub mod axis;
pub mod chart;
pub mod error_cdf;
pub mod from_table;
pub mod front;
mod labels;
mod layout;
pub mod scene;
pub mod theme;

pub use axis::{AxisSpec, format_number};
pub use error_cdf::{ErrorCurve, ErrorFigure, ErrorMark, ErrorPanel, draw_errors};
pub use from_table::{Captions, FIGURE_COLUMNS, front_figure};
pub use front::{FrontFigure, FrontFiles, FrontMember, FrontPoint, draw};
