//! Figures. They are drawn from plain data into a [`scene::Scene`], which [`chart`] turns into SVG and PNG: the only
//! file that knows the plotting library.

pub mod agreement;
pub mod axis;
pub mod chart;
pub mod error_cdf;
pub mod from_table;
pub mod front;
mod labels;
mod layout;
mod panels;
pub mod scene;
pub mod theme;

pub use agreement::{AgreementFigure, AgreementPanel, AgreementPoint, draw_agreement};
pub use axis::{AxisSpec, format_number};
pub use error_cdf::{ErrorCurve, ErrorFigure, ErrorMark, ErrorPanel, draw_errors};
pub use from_table::{Captions, FIGURE_COLUMNS, front_figure};
pub use front::{FrontFigure, FrontFiles, FrontMember, FrontPoint, draw};
