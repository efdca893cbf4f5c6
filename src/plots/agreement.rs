//! Predicted against measured values, with the line of agreement and a band around it.

use std::path::Path;

use super::axis::Scale;
use super::chart::{write_png, write_svg};
use super::layout::{Legend, LegendEntry, Panel, Symbol, draw_titles};
use super::panels::{Panels, draw_panel_titles};
use super::scene::{Frame, Scene};
use super::theme::{AXIS, FIGURE_SIZE, SOFT_INK, category};
use crate::diag::Diagnostic;

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AgreementPoint {
    /// Position in [`AgreementFigure::series`].
    pub series: usize,
    /// Measured; points at or below zero are not shown.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
}

/// One panel.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreementPanel {
    /// What is compared.
    pub title: String,
    /// Its unit.
    pub unit: String,
    /// Values.
    pub points: Vec<AgreementPoint>,
}

/// What the figure shows.
#[derive(Clone, Debug, PartialEq)]
pub struct AgreementFigure {
    /// Heading.
    pub title: String,
    /// What is compared, in one line.
    pub subtitle: String,
    /// Names of the point's colours.
    pub series: Vec<String>,
    /// Panels, row by row.
    pub panels: Vec<AgreementPanel>,
    /// Small print.
    pub footnote: String,
}

/// Half the width of the band around agreement, as a share.
const BAND: f64 = 0.1;
const POINT_RADIUS: f64 = 2.25;
/// Lets dense regions show through.
const POINT_OPACITY: f64 = 0.55;
const TICK_SPACING: f64 = 60.0;
/// Free space beyond the outermost values, as a factor.
const PADDING: f64 = 1.25;

/// Writes the figure as SVG and PNG next to each other: `path` with either extension.
///
/// # Errors
/// If a file cannot be written.
pub fn draw_agreement(figure: &AgreementFigure, path: &Path) -> Result<(), Diagnostic> {
    let scene = scene(figure);
    write_svg(&scene, &path.with_extension("svg"))?;
    write_png(&scene, &path.with_extension("png"))
}

fn scene(figure: &AgreementFigure) -> Scene {
    let entry =
        |(number, name): (usize, &String)| LegendEntry { symbol: Symbol::Dot(category(number)), text: name.clone() };
    let legend = Legend::new(figure.series.iter().enumerate().map(entry).collect(), FIGURE_SIZE.0);
    let panels = Panels::new(&legend);
    let mut scene = Scene::new(panels.figure_size(figure.panels.len()));
    draw_titles(&mut scene, &figure.title, &figure.subtitle, &figure.footnote);
    legend.draw(&mut scene);
    for (number, panel) in figure.panels.iter().enumerate() {
        draw_panel(&mut scene, panel, panels.area(number));
    }
    scene
}

fn draw_panel(scene: &mut Scene, panel: &AgreementPanel, area: Frame) {
    let shown = || panel.points.iter().filter(|point| point.measured > 0.0 && point.predicted > 0.0);
    let (low, high) = shown()
        .flat_map(|point| [point.measured, point.predicted])
        .fold((f64::INFINITY, 0.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)));
    let (low, high) = if low < high { (low / PADDING, high * PADDING) } else { (1.0, 1000.0) };
    // One scale for both axes, so that agreement is the diagonal.
    let axes = Panel::at(area, Scale::fixed(low, high, true), Scale::fixed(low, high, true));
    axes.draw_grid(scene, TICK_SPACING);
    let (x, y) = (format!("Measured ({})", panel.unit), format!("Simulated ({})", panel.unit));
    draw_panel_titles(scene, area, &panel.title, &x, &y);
    for point in shown() {
        let centre = axes.position(point.measured, point.predicted);
        scene.disc(centre, POINT_RADIUS, category(point.series).alpha(POINT_OPACITY));
    }
    scene.line(vec![axes.position(low, low), axes.position(high, high)], 1.25, SOFT_INK);
    let above = 1.0 + BAND;
    let below = 1.0 - BAND;
    scene.dashes(axes.position(low, low * above), axes.position(high / above, high), 1.0, AXIS);
    scene.dashes(axes.position(low / below, low), axes.position(high, high * below), 1.0, AXIS);
}

#[cfg(test)]
mod tests {
    use super::super::scene::Shape;
    use super::*;

    #[test]
    fn agreeing_values_lie_on_the_diagonal_and_impossible_ones_nowhere() {
        let point = |measured, predicted| AgreementPoint { series: 0, measured, predicted };
        let figure = AgreementFigure {
            title: "t".to_owned(),
            subtitle: String::new(),
            series: vec!["runs".to_owned()],
            panels: vec![AgreementPanel {
                title: "TTFT".to_owned(),
                unit: "ms".to_owned(),
                points: vec![point(10.0, 10.0), point(1000.0, 500.0), point(0.0, 3.0)],
            }],
            footnote: String::new(),
        };
        let scene = scene(&figure);
        let diagonal = scene.shapes.iter().find_map(|shape| match shape {
            Shape::Line { points, colour, .. } if *colour == SOFT_INK && points.len() == 2 => Some(points.clone()),
            _ => None,
        });
        let [from, to] = diagonal.unwrap()[..] else { panic!("a straight line") };
        let discs: Vec<[f64; 2]> = scene
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Disc { centre, radius, .. } if *radius == POINT_RADIUS => Some(*centre),
                _ => None,
            })
            .collect();
        assert_eq!(discs.len(), 2);
        let height = |[x, y]: [f64; 2]| (x - from[0]) / (to[0] - from[0]) - (y - from[1]) / (to[1] - from[1]);
        assert!(height(discs[0]).abs() < 1e-9, "on the line");
        assert!(height(discs[1]) > 0.05, "below it");
    }
}
