//! Small panels, two in a row, below titles and legend.

use super::chart::text_width;
use super::layout::{BORDER, Legend};
use super::scene::{Anchor, Frame, Scene};
use super::theme::{FIGURE_SIZE, INK, SMALL_SIZE, TEXT_SIZE};

/// Panels in a row.
const COLUMNS: usize = 2;
/// Height of a panel's area, and the room for its title above and its axis below.
const PANEL_HEIGHT: f64 = 250.0;
const PANEL_TITLE: f64 = 26.0;
const PANEL_AXIS: f64 = 52.0;
/// From the figure's top to the first panel's title, with one row of legend; from the last axis to the figure's bottom.
pub(super) const TOP: f64 = 96.0;
const BOTTOM: f64 = 34.0;
/// Left of a panel: vertical axis title and tick labels; right of it.
const PANEL_LEFT: f64 = 50.0;
const PANEL_RIGHT: f64 = 16.0;

/// Where the panels of a figure lie.
pub(super) struct Panels {
    top: f64,
    column_width: f64,
}

impl Panels {
    pub(super) fn new(legend: &Legend) -> Self {
        Self { top: TOP + legend.extra_height(), column_width: (FIGURE_SIZE.0 - BORDER) / COLUMNS as f64 }
    }

    /// Size of a figure with `count` panels.
    pub(super) fn figure_size(&self, count: usize) -> (f64, f64) {
        let rows = count.div_ceil(COLUMNS);
        (FIGURE_SIZE.0, self.top + rows as f64 * (PANEL_TITLE + PANEL_HEIGHT + PANEL_AXIS) + BOTTOM)
    }

    /// The area between the axes of a panel, counted from 0 row by row.
    pub(super) fn area(&self, number: usize) -> Frame {
        let left = (number % COLUMNS) as f64 * self.column_width + BORDER / 2.0;
        let row_top = self.top + (number / COLUMNS) as f64 * (PANEL_TITLE + PANEL_HEIGHT + PANEL_AXIS);
        Frame {
            left: left + PANEL_LEFT,
            right: left + self.column_width - PANEL_RIGHT,
            top: row_top + PANEL_TITLE,
            bottom: row_top + PANEL_TITLE + PANEL_HEIGHT,
        }
    }
}

/// Title of a panel and of its axes.
pub(super) fn draw_panel_titles(scene: &mut Scene, area: Frame, title: &str, x: &str, y: &str) {
    scene.bold(title, [area.left, area.top - 12.0], Anchor::Start, TEXT_SIZE, INK);
    let middle = [(area.left + area.right) / 2.0, area.bottom + 34.0];
    scene.text(x, middle, Anchor::Middle, SMALL_SIZE, INK);
    let start = (area.top + area.bottom + text_width(y, SMALL_SIZE, false)) / 2.0;
    scene.upward(y, [area.left - PANEL_LEFT + 10.0, start], Anchor::Start, SMALL_SIZE, INK);
}
