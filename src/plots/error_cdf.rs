//! Distributions of prediction errors: small panels of curves, two in a row, with published points beside them.

use std::path::Path;

use super::axis::Scale;
use super::chart::{write_png, write_svg};
use super::layout::{Legend, LegendEntry, Panel, Symbol, draw_ring, draw_titles};
use super::panels::{Panels, draw_panel_titles};
use super::scene::{Colour, Frame, Scene};
use super::theme::{FIGURE_SIZE, INK, category};
use crate::diag::Diagnostic;

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorCurve {
    /// Position in [`ErrorFigure::series`].
    pub series: usize,
    /// Errors in per cent at equally spaced shares of the rows, from the smallest to the largest.
    pub quantiles: Vec<f64>,
}

/// A published percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorMark {
    /// Position in [`ErrorFigure::references`].
    pub reference: usize,
    /// Error, in per cent.
    pub error: f64,
    /// Share of rows with at most this error, in per cent.
    pub share: f64,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorPanel {
    /// What was judged.
    pub title: String,
    /// Its curves.
    pub curves: Vec<ErrorCurve>,
    /// Published points to compare with.
    pub marks: Vec<ErrorMark>,
}

/// What the figure shows.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorFigure {
    /// Heading.
    pub title: String,
    /// What is compared, in one line.
    pub subtitle: String,
    /// What the shares count, in the plural.
    pub counted: String,
    /// Names of the curves; the position chooses the colour.
    pub series: Vec<String>,
    /// Names of the published results, and the curve that each belongs to, if it is one.
    pub references: Vec<(String, Option<usize>)>,
    /// Panels, row by row.
    pub panels: Vec<ErrorPanel>,
    /// Small print.
    pub footnote: String,
}

/// Errors covered by the horizontal axis, in per cent; smaller and larger ones lie on its ends.
const ERRORS: (f64, f64) = (0.1, 100.0);
/// Close enough for twofolds and fivefolds between the powers of ten.
const TICK_SPACING: f64 = 40.0;
const CURVE_WIDTH: f64 = 2.0;

/// Writes the figure as SVG and PNG next to each other: `path` with either extension.
///
/// # Errors
/// If a file cannot be written.
pub fn draw_errors(figure: &ErrorFigure, path: &Path) -> Result<(), Diagnostic> {
    let scene = scene(figure);
    write_svg(&scene, &path.with_extension("svg"))?;
    write_png(&scene, &path.with_extension("png"))
}

fn scene(figure: &ErrorFigure) -> Scene {
    let legend = Legend::new(legend_entries(figure), FIGURE_SIZE.0);
    let panels = Panels::new(&legend);
    let mut scene = Scene::new(panels.figure_size(figure.panels.len()));
    draw_titles(&mut scene, &figure.title, &figure.subtitle, &figure.footnote);
    legend.draw(&mut scene);
    for (number, panel) in figure.panels.iter().enumerate() {
        draw_panel(&mut scene, figure, panel, panels.area(number));
    }
    scene
}

fn colour(series: Option<usize>) -> Colour {
    series.map_or(INK, category)
}

fn legend_entries(figure: &ErrorFigure) -> Vec<LegendEntry> {
    let curves = figure
        .series
        .iter()
        .enumerate()
        .map(|(number, name)| LegendEntry { symbol: Symbol::Line(category(number)), text: name.clone() });
    let references = figure
        .references
        .iter()
        .map(|(name, series)| LegendEntry { symbol: Symbol::Ring(colour(*series)), text: name.clone() });
    curves.chain(references).collect()
}

fn draw_panel(scene: &mut Scene, figure: &ErrorFigure, panel: &ErrorPanel, area: Frame) {
    let axes = Panel::at(area, Scale::fixed(ERRORS.0, ERRORS.1, true), Scale::fixed(0.0, 100.0, false));
    axes.draw_grid(scene, TICK_SPACING);
    let share = format!("Share of {} (%)", figure.counted);
    draw_panel_titles(scene, area, &panel.title, "Relative error, absolute (%)", &share);
    let place = |error: f64, share: f64| axes.position(error.clamp(ERRORS.0, ERRORS.1), share);
    for curve in &panel.curves {
        let step = 100.0 / (curve.quantiles.len().max(2) - 1) as f64;
        let points = curve.quantiles.iter().enumerate().map(|(rank, error)| place(*error, rank as f64 * step));
        scene.line(points.collect(), CURVE_WIDTH, category(curve.series));
    }
    for mark in &panel.marks {
        let series = figure.references.get(mark.reference).and_then(|(_, series)| *series);
        draw_ring(scene, place(mark.error, mark.share), colour(series));
    }
}

#[cfg(test)]
mod tests {
    use super::super::panels::TOP;
    use super::super::scene::Shape;
    use super::*;

    fn figure() -> ErrorFigure {
        let panel = ErrorPanel {
            title: "h100-sxm".to_owned(),
            curves: vec![ErrorCurve { series: 0, quantiles: vec![0.0, 1.0, 10.0] }],
            marks: vec![ErrorMark { reference: 0, error: 1.0, share: 50.0 }],
        };
        ErrorFigure {
            title: "Errors".to_owned(),
            subtitle: String::new(),
            counted: "shapes".to_owned(),
            series: vec!["linear".to_owned()],
            references: vec![("published".to_owned(), Some(0))],
            panels: vec![panel.clone(), panel.clone(), panel],
            footnote: String::new(),
        }
    }

    #[test]
    fn curves_and_marks_share_their_axes_and_stay_inside() {
        let scene = scene(&figure());
        let curves: Vec<&Vec<[f64; 2]>> = scene
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Line { points, .. } if points.len() == 3 => Some(points),
                _ => None,
            })
            .collect();
        let rings: Vec<[f64; 2]> = scene
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Disc { centre, .. } if centre[1] > TOP => Some(*centre),
                _ => None,
            })
            .collect();
        // Each ring is three discs.
        assert_eq!((curves.len(), rings.len()), (3, 9));
        for (curve, ring) in curves.iter().zip(rings.iter().step_by(3)) {
            // The curve passes 1 % at half of the rows, which is what the mark says; errors grow by a decade to its end.
            assert_eq!(curve[1], *ring);
            assert!((curve[2][0] - 2.0 * curve[1][0] + curve[0][0]).abs() < 1e-9, "{curve:?}");
        }
        let outside = |[x, y]: [f64; 2]| x < 0.0 || y < 0.0 || x > scene.size.0 || y > scene.size.1;
        assert!(!curves.iter().any(|curve| curve.iter().any(|point| outside(*point))));
        assert!(curves[2][0][1] > curves[0][0][1] && curves[2][0][0] == curves[0][0][0], "the third starts a row");
    }
}
