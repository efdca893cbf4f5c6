//! The main figure: every candidate as a faint point, the front of those that meet the SLA as a bold line, and its best
//! members by name.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::axis::{AxisSpec, Scale, format_number};
use super::chart::{text_width, write_png, write_svg};
use super::labels::{Label, Surroundings, place};
use super::layout::{Legend, LegendEntry, Panel, Symbol, draw_titles};
use super::scene::{Anchor, Frame, Position, Scene};
use super::theme::{CATEGORIES, FIGURE_SIZE, INFEASIBLE, INK, NOTE_SIZE, OTHER, PAPER, SMALL_SIZE, SOFT_INK, category};
use crate::diag::Diagnostic;
use crate::results::{Direction, replace_bytes};
use crate::units::format_count;

/// One candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontPoint {
    /// Index of the candidate in the sweep.
    pub index: u64,
    /// Value on the horizontal axis; not drawn if it is not finite.
    pub x: f64,
    /// Value on the vertical axis; not drawn if it is not finite.
    pub y: f64,
    /// Position in [`FrontFigure::categories`].
    pub category: usize,
    /// It meets the SLA.
    pub feasible: bool,
}

/// One member of the front.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontMember {
    /// Position in [`FrontFigure::points`].
    pub point: usize,
    /// Short description of the deployment, e.g. `8 × tp2 fp8, 256 seqs`.
    pub label: String,
}

/// What the figure shows.
#[derive(Clone, Debug, PartialEq)]
pub struct FrontFigure {
    /// Heading.
    pub title: String,
    /// Model, GPUs and SLA in one line.
    pub subtitle: String,
    /// Horizontal axis.
    pub x: AxisSpec,
    /// Vertical axis.
    pub y: AxisSpec,
    /// All candidates with an outcome.
    pub points: Vec<FrontPoint>,
    /// Names of the categories that colour the points.
    pub categories: Vec<String>,
    /// The front, ordered along the horizontal axis (either way).
    pub front: Vec<FrontMember>,
    /// Position in `front` of the member to recommend, labelled first.
    pub knee: Option<usize>,
    /// Small print, e.g. the command that makes the figure again.
    pub footnote: String,
}

/// Files of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontFiles {
    /// Vector graphics.
    pub svg: PathBuf,
    /// Pixels.
    pub png: PathBuf,
    /// The data drawn.
    pub csv: PathBuf,
}

/// Radius of a candidate's point.
const POINT_RADIUS: f64 = 2.2;
/// Opacity of candidates that meet the SLA and of those that do not.
const FEASIBLE_ALPHA: f64 = 0.45;
const INFEASIBLE_ALPHA: f64 = 0.28;
/// Radii of the markers of front members: without a label, with one, and the knee; width of their rims.
const PLAIN_RADIUS: f64 = 3.4;
const NAMED_RADIUS: f64 = 5.0;
const KNEE_RADIUS: f64 = 7.0;
const MARKER_RIM: f64 = 1.4;
const FRONT_WIDTH: f64 = 2.0;
/// Points in the same square of this side, of the same category, are drawn once: they could not be told apart, and a
/// figure of half a million candidates stays small.
const THINNING_CELL: f64 = 1.5;
/// The axes cover all feasible points, and infeasible ones up to this multiple of them.
const INFEASIBLE_REACH: f64 = 1.25;
/// The knee, the two ends and a few members between them get a label.
const MOST_LABELS: usize = 5;

/// Writes `front.svg`, `front.png` and `front.csv` into `folder`.
///
/// # Errors
/// If a file cannot be written, or a member of the front is not among the points.
pub fn draw(figure: &FrontFigure, folder: &Path) -> Result<FrontFiles, Diagnostic> {
    let path = |extension: &str| folder.join("front").with_extension(extension);
    let files = FrontFiles { svg: path("svg"), png: path("png"), csv: path("csv") };
    let plane = Plane::new(figure)?;
    let scene = plane.scene();
    replace_bytes(&files.csv, plane.csv().as_bytes())?;
    write_svg(&scene, &files.svg)?;
    write_png(&scene, &files.png)?;
    Ok(files)
}

/// The figure with its panel and the points that are drawn.
struct Plane<'a> {
    figure: &'a FrontFigure,
    legend: Legend,
    panel: Panel,
    /// Positions in the figure's points, thinned, infeasible ones first.
    drawn: Vec<usize>,
    /// Points that lie outside the axes.
    outside: usize,
}

impl<'a> Plane<'a> {
    fn new(figure: &'a FrontFigure) -> Result<Self, Diagnostic> {
        let known = |member: &FrontMember| {
            figure.points.get(member.point).is_some_and(|point| point.x.is_finite() && point.y.is_finite())
        };
        if let Some(member) = figure.front.iter().find(|member| !known(member)) {
            return Err(Diagnostic::new(format!("`{}` is on the front but has no finite point", member.label)));
        }
        let legend = Legend::new(legend_entries(figure), FIGURE_SIZE.0);
        let x = scale_of(figure, &figure.x, |point| point.x);
        let y = scale_of(figure, &figure.y, |point| point.y);
        let panel = Panel::new(x, y, FIGURE_SIZE, &legend);
        let mut plane = Self { figure, legend, panel, drawn: Vec::new(), outside: 0 };
        plane.thin();
        Ok(plane)
    }

    fn position(&self, point: usize) -> Position {
        let FrontPoint { x, y, .. } = self.figure.points[point];
        self.panel.position(x, y)
    }

    /// Chooses the points to draw: one per cell, category and verdict.
    fn thin(&mut self) {
        let cell = |[x, y]: Position| ((x / THINNING_CELL) as u32, (y / THINNING_CELL) as u32);
        let mut keyed = Vec::new();
        for (at, point) in self.figure.points.iter().enumerate() {
            if !point.x.is_finite() || !point.y.is_finite() {
                continue;
            }
            if self.panel.contains(point.x, point.y) {
                let category = if point.feasible { point.category.min(CATEGORIES.len()) } else { 0 };
                keyed.push((point.feasible, cell(self.position(at)), category, at));
            } else {
                self.outside += 1;
            }
        }
        keyed.sort_unstable();
        keyed.dedup_by_key(|(feasible, cell, category, _)| (*feasible, *cell, *category));
        // Drawn in sweep order rather than by place, so that no category lies on top of the others.
        keyed.sort_unstable_by_key(|(feasible, _, _, at)| (*feasible, *at));
        self.drawn = keyed.into_iter().map(|(.., at)| at).collect();
    }

    fn scene(&self) -> Scene {
        let figure = self.figure;
        let mut scene = Scene::new(FIGURE_SIZE);
        draw_titles(&mut scene, &figure.title, &figure.subtitle, &self.footnote());
        self.panel.draw_axes(&mut scene, &figure.x, &figure.y);
        for point in &self.drawn {
            let FrontPoint { category: number, feasible, .. } = figure.points[*point];
            let colour =
                if feasible { category(number).alpha(FEASIBLE_ALPHA) } else { INFEASIBLE.alpha(INFEASIBLE_ALPHA) };
            scene.disc(self.position(*point), POINT_RADIUS, colour);
        }
        self.panel.draw_bounds(&mut scene, &figure.x, &figure.y);
        self.draw_front(&mut scene);
        self.draw_labels(&mut scene);
        self.legend.draw(&mut scene);
        scene
    }

    /// The corners of the staircase below (in the sense of both axes) the front: between two neighbours, what both reach.
    fn staircase(&self) -> Vec<Position> {
        let figure = self.figure;
        let worse = |direction: Direction, a: f64, b: f64| match direction {
            Direction::Maximise => a.min(b),
            Direction::Minimise => a.max(b),
        };
        let points: Vec<&FrontPoint> = figure.front.iter().map(|member| &figure.points[member.point]).collect();
        let mut corners = Vec::new();
        for (at, point) in points.iter().enumerate() {
            if let Some(previous) = at.checked_sub(1).map(|before| points[before]) {
                let x = worse(figure.x.better, previous.x, point.x);
                let y = worse(figure.y.better, previous.y, point.y);
                corners.push(self.panel.position(x, y));
            }
            corners.push(self.panel.position(point.x, point.y));
        }
        corners
    }

    fn draw_front(&self, scene: &mut Scene) {
        let corners = self.staircase();
        if corners.len() > 1 {
            // A pale rim keeps the line apart from the points under it.
            scene.line(corners.clone(), FRONT_WIDTH + 2.5, PAPER.alpha(0.8));
            scene.line(corners, FRONT_WIDTH, INK);
        }
        let named = self.named_members();
        let plain = (0..self.figure.front.len()).filter(|member| !named.contains(member));
        for (number, radius) in
            plain.map(|member| (member, PLAIN_RADIUS)).chain(named.iter().map(|member| (*member, self.radius(*member))))
        {
            let point = self.figure.front[number].point;
            let centre = self.position(point);
            scene.disc(centre, radius + 1.0, PAPER);
            scene.disc(centre, radius, INK);
            scene.disc(centre, radius - MARKER_RIM, category(self.figure.points[point].category));
        }
    }

    /// Radius of the marker of a member that has a label.
    fn radius(&self, member: usize) -> f64 {
        if self.figure.knee == Some(member) { KNEE_RADIUS } else { NAMED_RADIUS }
    }

    /// Members of the front to name: the ends, the knee, then members spread evenly along the front on the page. Labels are
    /// placed in this order; those of the ends have the least room.
    fn named_members(&self) -> Vec<usize> {
        let front = &self.figure.front;
        let mut named: Vec<usize> = Vec::new();
        let preferred = [0, front.len().saturating_sub(1)].into_iter().chain(self.figure.knee);
        for member in preferred.filter(|member| *member < front.len()) {
            if !named.contains(&member) {
                named.push(member);
            }
        }
        let distance = |a: usize, b: usize| {
            let ([ax, ay], [bx, by]) = (self.position(front[a].point), self.position(front[b].point));
            libm::hypot(ax - bx, ay - by)
        };
        while named.len() < MOST_LABELS.min(front.len()) {
            let clearance =
                |member: usize| named.iter().map(|other| distance(member, *other)).fold(f64::INFINITY, f64::min);
            let farthest = (0..front.len())
                .filter(|member| !named.contains(member))
                .max_by(|a, b| clearance(*a).total_cmp(&clearance(*b)));
            match farthest {
                Some(member) if clearance(member) > 60.0 => named.push(member),
                _ => break,
            }
        }
        named
    }

    /// Name and numbers of a member, each a line.
    fn label_lines(&self, number: usize) -> [String; 2] {
        let member = &self.figure.front[number];
        let point = &self.figure.points[member.point];
        let knee = if self.figure.knee == Some(number) { " (knee)" } else { "" };
        let value = |value: f64, axis: &AxisSpec| format!("{} {}", format_number(value), axis.unit).trim().to_owned();
        [
            format!("{}{knee}", member.label),
            format!("{},  {}", value(point.x, &self.figure.x), value(point.y, &self.figure.y)),
        ]
    }

    fn draw_labels(&self, scene: &mut Scene) {
        const LINE_HEIGHT: f64 = 14.0;
        const MARGIN: f64 = 3.0;
        let members = self.named_members();
        let lines: Vec<[String; 2]> = members.iter().map(|member| self.label_lines(*member)).collect();
        let labels: Vec<Label> = members
            .iter()
            .zip(&lines)
            .map(|(member, [name, numbers])| {
                let width = text_width(name, SMALL_SIZE, true).max(text_width(numbers, NOTE_SIZE, false));
                let size = (width + 2.0 * MARGIN, 2.0 * LINE_HEIGHT + MARGIN);
                let wanted = [Some(0), self.figure.front.len().checked_sub(1), self.figure.knee];
                let point = self.position(self.figure.front[*member].point);
                Label { point, size, optional: !wanted.contains(&Some(*member)) }
            })
            .collect();
        let obstacles = self.obstacles();
        let points: Vec<Position> = self.drawn.iter().map(|point| self.position(*point)).collect();
        let surroundings = Surroundings {
            area: self.panel.area.grown(-2.0),
            obstacles: &obstacles,
            points: &points,
            outward: self.panel.outward(&self.figure.x, &self.figure.y),
        };
        for ((frame, label), [name, numbers]) in place(&labels, &surroundings).into_iter().zip(&labels).zip(&lines) {
            let Some(frame) = frame else { continue };
            draw_leader(scene, label.point, &frame);
            scene.fill(frame, PAPER.alpha(0.78));
            let left = frame.left + MARGIN;
            let first = frame.top + MARGIN / 2.0 + LINE_HEIGHT / 2.0;
            scene.bold(name, [left, first], Anchor::Start, SMALL_SIZE, INK);
            scene.text(numbers, [left, first + LINE_HEIGHT], Anchor::Start, NOTE_SIZE, SOFT_INK);
        }
    }

    /// Boxes around the markers, along the line, and around the texts at the SLA's limits.
    fn obstacles(&self) -> Vec<Frame> {
        let around = |[x, y]: Position| Frame { left: x, right: x, top: y, bottom: y };
        let markers =
            self.figure.front.iter().map(|member| around(self.position(member.point)).grown(NAMED_RADIUS + 2.0));
        let corners = self.staircase();
        let pieces = corners.windows(2).map(|ends| {
            let ([ax, ay], [bx, by]) = (ends[0], ends[1]);
            Frame { left: ax.min(bx), right: ax.max(bx), top: ay.min(by), bottom: ay.max(by) }.grown(FRONT_WIDTH)
        });
        let bounds = self.panel.bound_texts(&self.figure.x, &self.figure.y);
        markers.chain(pieces).chain(bounds.into_iter().map(|(_, frame)| frame.grown(3.0))).collect()
    }

    fn footnote(&self) -> String {
        if self.outside == 0 {
            return self.figure.footnote.clone();
        }
        let outside = format!("{} candidates lie outside the axes.", format_count(self.outside as u64));
        if self.figure.footnote.is_empty() { outside } else { format!("{}  ·  {outside}", self.figure.footnote) }
    }

    /// The drawn points, front first, then in sweep order.
    fn csv(&self) -> String {
        let figure = self.figure;
        let mut text = format!("index,{},{},category,meets_sla,on_front,label\n", figure.x.name, figure.y.name);
        let mut row = |at: usize, label: Option<&str>| {
            let FrontPoint { index, x, y, category, feasible } = figure.points[at];
            let category = quoted(figure.categories.get(category).map_or("", String::as_str));
            let (on_front, label) = (label.is_some(), quoted(label.unwrap_or_default()));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{index},{x},{y},{category},{feasible},{on_front},{label}");
        };
        for member in &figure.front {
            row(member.point, Some(&member.label));
        }
        let mut rest = self.drawn.clone();
        rest.sort_unstable();
        for at in rest {
            if figure.front.iter().all(|member| member.point != at) {
                row(at, None);
            }
        }
        text
    }
}

/// The front, the categories that have feasible points, and those that miss the SLA.
fn legend_entries(figure: &FrontFigure) -> Vec<LegendEntry> {
    let shown = |number: usize| figure.points.iter().any(|point| point.feasible && point.category == number);
    let mut entries = vec![LegendEntry {
        symbol: Symbol::Front(INK),
        text: format!("Pareto front ({})", format_count(figure.front.len() as u64)),
    }];
    let named = figure.categories.iter().take(CATEGORIES.len()).enumerate();
    entries.extend(
        named
            .filter(|(number, _)| shown(*number))
            .map(|(number, name)| LegendEntry { symbol: Symbol::Dot(category(number)), text: name.clone() }),
    );
    if (CATEGORIES.len()..figure.categories.len()).any(shown) {
        entries.push(LegendEntry { symbol: Symbol::Dot(OTHER), text: "other".into() });
    }
    let infeasible = figure.points.iter().filter(|point| !point.feasible).count();
    if infeasible > 0 {
        let text = format!("misses the SLA ({})", format_count(infeasible as u64));
        entries.push(LegendEntry { symbol: Symbol::Dot(INFEASIBLE), text });
    }
    entries
}

/// A field of a CSV file, in quotes where it needs them (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A thin line from a point to its label, where they are not adjacent.
fn draw_leader(scene: &mut Scene, [x, y]: Position, frame: &Frame) {
    let end = frame.nearest([x, y]);
    let length = libm::hypot(end[0] - x, end[1] - y);
    if length > KNEE_RADIUS + 7.0 {
        let start = (NAMED_RADIUS + 2.0) / length;
        scene.line(vec![[x + start * (end[0] - x), y + start * (end[1] - y)], end], 0.75, SOFT_INK);
    }
}

/// The scale of one axis: all feasible points and the bound, and infeasible points up to a multiple of those. The front
/// decides whether it is logarithmic.
fn scale_of(figure: &FrontFigure, axis: &AxisSpec, value: fn(&FrontPoint) -> f64) -> Scale {
    let feasible = figure.points.iter().filter(|point| point.feasible).map(value).filter(|value| value.is_finite());
    let limit = feasible.clone().chain(axis.bound).fold(f64::NEG_INFINITY, f64::max) * INFEASIBLE_REACH;
    let reachable = |value: &f64| limit <= 0.0 || limit.is_infinite() || *value <= limit;
    let infeasible = figure.points.iter().filter(|point| !point.feasible).map(value).filter(reachable);
    let front = figure.front.iter().map(|member| value(&figure.points[member.point]));
    Scale::covering(feasible.chain(infeasible).chain(axis.bound), front, axis.better)
}

#[cfg(test)]
mod tests;
