//! What all figures with two axes share: titles, axes, SLA limits and the legend.

use super::axis::{AxisSpec, Scale, format_number};
use super::chart::text_width;
use super::scene::{Anchor, Colour, Frame, Position, Scene};
use super::theme::{AXIS, GRID, INFEASIBLE, INK, NOTE_SIZE, PAPER, SMALL_SIZE, SOFT_INK, TEXT_SIZE, TITLE_SIZE};
use crate::results::Direction;

/// Distance of text from the figure's border.
pub(super) const BORDER: f64 = 22.0;
/// Room above the panel: title, subtitle and one row of legend.
const TOP: f64 = 98.0;
/// Room below it: tick labels, axis title and footnote.
const BOTTOM: f64 = 76.0;
const RIGHT: f64 = 24.0;
/// Centre line of the legend's first row.
const LEGEND_Y: f64 = 80.0;
/// Distance between its rows, and between a symbol and its text.
const LEGEND_ROW: f64 = 18.0;
const SYMBOL_GAP: f64 = 6.0;
/// Distance from the panel to the tick labels.
const TICK_GAP: f64 = 8.0;
/// Logical pixels between two ticks, about.
const X_TICK_SPACING: f64 = 95.0;
const Y_TICK_SPACING: f64 = 62.0;

/// The rectangle between the axes, with its scales.
pub(super) struct Panel {
    pub(super) area: Frame,
    x: Scale,
    y: Scale,
}

impl Panel {
    /// A panel for these scales, below the legend; its left margin fits the vertical axis's tick labels.
    pub(super) fn new(x: Scale, y: Scale, (width, height): (f64, f64), legend: &Legend) -> Self {
        let top = TOP + legend.extra_height();
        let mut panel = Self { area: Frame { left: 0.0, top, right: width - RIGHT, bottom: height - BOTTOM }, x, y };
        let widest =
            panel.y_ticks().iter().map(|tick| text_width(&format_number(*tick), SMALL_SIZE, false)).fold(0.0, f64::max);
        panel.area.left = BORDER + TEXT_SIZE + 10.0 + widest + TICK_GAP;
        panel
    }

    /// A panel for these scales in a given place.
    pub(super) fn at(area: Frame, x: Scale, y: Scale) -> Self {
        Self { area, x, y }
    }

    fn x_ticks(&self, spacing: f64) -> Vec<f64> {
        self.x.ticks((self.area.width() / spacing) as usize)
    }

    fn y_ticks(&self) -> Vec<f64> {
        self.y.ticks((self.area.height() / Y_TICK_SPACING) as usize)
    }

    /// Where a pair of values lies on the page.
    pub(super) fn position(&self, x: f64, y: f64) -> Position {
        [self.area.left + self.x.share(x) * self.area.width(), self.area.bottom - self.y.share(y) * self.area.height()]
    }

    /// Whether a pair of values lies within both axes.
    pub(super) fn contains(&self, x: f64, y: f64) -> bool {
        self.x.contains(x) && self.y.contains(y)
    }

    /// The direction on the page in which both quantities get better.
    pub(super) fn outward(&self, x: &AxisSpec, y: &AxisSpec) -> [f64; 2] {
        let sign = |axis: &AxisSpec| if axis.better == Direction::Maximise { 1.0 } else { -1.0 };
        [sign(x), -sign(y)]
    }

    /// Grid, ticks, axis lines and titles.
    pub(super) fn draw_axes(&self, scene: &mut Scene, x: &AxisSpec, y: &AxisSpec) {
        self.draw_grid(scene, X_TICK_SPACING);
        let Frame { left, top, bottom, .. } = self.area;
        let x_title = [left + self.area.width() / 2.0, bottom + TICK_GAP + SMALL_SIZE + 16.0];
        draw_axis_title(scene, x, x_title, false);
        draw_axis_title(scene, y, [BORDER + TEXT_SIZE / 2.0 - 4.0, top + self.area.height() / 2.0], true);
    }

    /// Grid, ticks and the horizontal axis line; horizontal ticks about `x_spacing` apart.
    pub(super) fn draw_grid(&self, scene: &mut Scene, x_spacing: f64) {
        let Frame { left, top, right, bottom } = self.area;
        for tick in self.x_ticks(x_spacing) {
            let at = left + self.x.share(tick) * self.area.width();
            scene.line(vec![[at, top], [at, bottom]], 0.75, GRID);
            scene.line(vec![[at, bottom], [at, bottom + 4.0]], 1.0, AXIS);
            let place = [at, bottom + TICK_GAP + SMALL_SIZE / 2.0];
            scene.text(&format_number(tick), place, Anchor::Middle, SMALL_SIZE, SOFT_INK);
        }
        for tick in self.y_ticks() {
            let at = bottom - self.y.share(tick) * self.area.height();
            scene.line(vec![[left, at], [right, at]], 0.75, GRID);
            scene.text(&format_number(tick), [left - TICK_GAP, at], Anchor::End, SMALL_SIZE, SOFT_INK);
        }
        scene.line(vec![[left, bottom], [right, bottom]], 1.0, AXIS);
    }

    /// The SLA's limits as dashed lines with the excluded side in grey.
    pub(super) fn draw_bounds(&self, scene: &mut Scene, x: &AxisSpec, y: &AxisSpec) {
        let Frame { left, top, right, bottom } = self.area;
        let veil = INFEASIBLE.alpha(0.16);
        if let Some(bound) = x.bound {
            let [at, _] = self.position(bound, 0.0);
            let up = x.better == Direction::Maximise;
            scene.fill(if up { Frame { right: at, ..self.area } } else { Frame { left: at, ..self.area } }, veil);
            scene.dashes([at, top], [at, bottom], 1.25, SOFT_INK);
        }
        if let Some(bound) = y.bound {
            let [_, at] = self.position(0.0, bound);
            let up = y.better == Direction::Maximise;
            scene.fill(if up { Frame { top: at, ..self.area } } else { Frame { bottom: at, ..self.area } }, veil);
            scene.dashes([left, at], [right, at], 1.25, SOFT_INK);
        }
        for (text, frame) in self.bound_texts(x, y) {
            let middle = [frame.left, (frame.top + frame.bottom) / 2.0];
            scene.text(&text, middle, Anchor::Start, NOTE_SIZE, SOFT_INK);
        }
    }

    /// The texts at the SLA's limits and where they stand: on the excluded side, inside the panel.
    pub(super) fn bound_texts(&self, x: &AxisSpec, y: &AxisSpec) -> Vec<(String, Frame)> {
        const GAP: f64 = 5.0;
        let mut texts = Vec::new();
        let mut add = |axis: &AxisSpec, place: &dyn Fn(f64, bool, f64) -> Position| {
            let Some(bound) = axis.bound else { return };
            let up = axis.better == Direction::Maximise;
            let text = format!("SLA {} {}", if up { "≥" } else { "≤" }, format_number(bound));
            let width = text_width(&text, NOTE_SIZE, false);
            let [left, top] = place(bound, up, width);
            let left = left.min(self.area.right - width - GAP).max(self.area.left + GAP);
            let top = top.min(self.area.bottom - NOTE_SIZE).max(self.area.top);
            texts.push((text, Frame { left, right: left + width, top, bottom: top + NOTE_SIZE }));
        };
        add(x, &|bound, up, width| {
            let [at, _] = self.position(bound, 0.0);
            [if up { at - GAP - width } else { at + GAP }, self.area.top + GAP]
        });
        add(y, &|bound, up, width| {
            let [_, at] = self.position(0.0, bound);
            [self.area.right - width - GAP, if up { at + GAP } else { at - GAP - NOTE_SIZE }]
        });
        texts
    }
}

/// An axis title, followed in grey by the way in which the quantity gets better.
fn draw_axis_title(scene: &mut Scene, axis: &AxisSpec, centre: Position, upward: bool) {
    let better = match axis.better {
        Direction::Maximise => "higher is better",
        Direction::Minimise => "lower is better",
    };
    let gap = 12.0;
    let (title_width, better_width) = (text_width(&axis.title, TEXT_SIZE, false), text_width(better, NOTE_SIZE, false));
    let total = title_width + gap + better_width;
    let (along, across) = (total / 2.0, total / 2.0 - better_width);
    if upward {
        scene.upward(&axis.title, [centre[0], centre[1] + along], Anchor::Start, TEXT_SIZE, INK);
        scene.upward(better, [centre[0], centre[1] - across], Anchor::Start, NOTE_SIZE, SOFT_INK);
    } else {
        scene.text(&axis.title, [centre[0] - along, centre[1]], Anchor::Start, TEXT_SIZE, INK);
        scene.text(better, [centre[0] + across, centre[1]], Anchor::Start, NOTE_SIZE, SOFT_INK);
    }
}

/// Title, subtitle and footnote, each shortened to the figure's width.
pub(super) fn draw_titles(scene: &mut Scene, title: &str, subtitle: &str, footnote: &str) {
    let (width, height) = scene.size;
    let room = width - 2.0 * BORDER;
    scene.bold(&shortened(title, TITLE_SIZE, true, room), [BORDER, 28.0], Anchor::Start, TITLE_SIZE, INK);
    scene.text(&shortened(subtitle, SMALL_SIZE, false, room), [BORDER, 52.0], Anchor::Start, SMALL_SIZE, SOFT_INK);
    let footnote = shortened(footnote, NOTE_SIZE, false, room);
    scene.text(&footnote, [BORDER, height - 15.0], Anchor::Start, NOTE_SIZE, SOFT_INK);
}

/// The text, or as much of it as fits, with an ellipsis.
fn shortened(text: &str, size: f64, bold: bool, room: f64) -> String {
    if text_width(text, size, bold) <= room {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    loop {
        kept.pop();
        let candidate = format!("{}…", kept.iter().collect::<String>().trim_end());
        if kept.is_empty() || text_width(&candidate, size, bold) <= room {
            return candidate;
        }
    }
}

/// Radius of a ring, and width of its line.
const RING_RADIUS: f64 = 5.0;
const RING_WIDTH: f64 = 2.0;

/// A ring with a pale rim that keeps it apart from what lies under it.
pub(super) fn draw_ring(scene: &mut Scene, centre: Position, colour: Colour) {
    scene.disc(centre, RING_RADIUS + 1.0, PAPER);
    scene.disc(centre, RING_RADIUS, colour);
    scene.disc(centre, RING_RADIUS - RING_WIDTH, PAPER);
}

/// What stands before a legend text.
pub(super) enum Symbol {
    /// A point.
    Dot(Colour),
    /// A line with a marker.
    Front(Colour),
    /// A line.
    Line(Colour),
    /// A circle.
    Ring(Colour),
}

impl Symbol {
    fn width(&self) -> f64 {
        match self {
            Self::Dot(_) => 8.0,
            Self::Ring(_) => 2.0 * RING_RADIUS,
            Self::Front(_) | Self::Line(_) => 24.0,
        }
    }
}

/// One entry of the legend.
pub(super) struct LegendEntry {
    pub(super) symbol: Symbol,
    pub(super) text: String,
}

/// The legend above the panel, broken into rows.
pub(super) struct Legend {
    /// Each entry with the row it stands in and its left edge.
    places: Vec<(LegendEntry, usize, f64)>,
}

impl Legend {
    /// Arranges the entries in as many rows as a figure of this width needs.
    pub(super) fn new(entries: Vec<LegendEntry>, width: f64) -> Self {
        const GAP: f64 = 20.0;
        const LONGEST: f64 = 220.0;
        let (mut row, mut x) = (0, BORDER);
        let mut places = Vec::new();
        for mut entry in entries {
            entry.text = shortened(&entry.text, SMALL_SIZE, false, LONGEST);
            let wide = entry.symbol.width() + SYMBOL_GAP + text_width(&entry.text, SMALL_SIZE, false);
            if x + wide > width - RIGHT && x > BORDER {
                (row, x) = (row + 1, BORDER);
            }
            places.push((entry, row, x));
            x += wide + GAP;
        }
        Self { places }
    }

    /// Height of the rows beyond the first.
    pub(super) fn extra_height(&self) -> f64 {
        self.places.last().map_or(0.0, |(_, row, _)| *row as f64 * LEGEND_ROW)
    }

    pub(super) fn draw(&self, scene: &mut Scene) {
        for (entry, row, x) in &self.places {
            let y = LEGEND_Y + *row as f64 * LEGEND_ROW;
            let width = entry.symbol.width();
            match entry.symbol {
                Symbol::Dot(colour) => scene.disc([x + width / 2.0, y], width / 2.0, colour),
                Symbol::Front(colour) => {
                    scene.line(vec![[*x, y], [x + width, y]], 2.0, colour);
                    scene.disc([x + width / 2.0, y], 4.5, colour);
                }
                Symbol::Line(colour) => scene.line(vec![[*x, y], [x + width, y]], 2.0, colour),
                Symbol::Ring(colour) => draw_ring(scene, [x + width / 2.0, y], colour),
            }
            scene.text(&entry.text, [x + width + SYMBOL_GAP, y], Anchor::Start, SMALL_SIZE, INK);
        }
    }
}
