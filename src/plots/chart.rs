//! Scenes to SVG and PNG. The only file that imports the plotting library.

use std::fmt::Display;
use std::path::Path;
use std::sync::LazyLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBAColor, ShapeStyle, TextStyle, register_font,
};

use super::scene::{Anchor, Colour, Position, Scene, Shape};
use super::theme::PAPER;
use crate::diag::Diagnostic;
use crate::results::replace_bytes;

/// Family of all text: an SVG viewer takes the first one it has; the bitmap backend looks up the whole string, under which
/// the embedded font is registered. Verdana has the widths of DejaVu Sans.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
const REGULAR: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans.subset.ttf");
const BOLD: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans-Bold.subset.ttf");

/// Device pixels per logical pixel while drawing. The library has integer coordinates, so this is also the precision of
/// positions in SVG (a quarter of a pixel).
const SCALE: usize = 4;
/// Device pixels that become one pixel of a PNG in each direction: smooths edges beyond what the library does. A PNG thus
/// has two pixels for each logical one.
const OVERSAMPLING: usize = 2;

/// How a backend turns a font size and a position into glyphs; the two backends differ.
#[derive(Clone, Copy)]
struct TextMetrics {
    /// Font size to ask for, per em.
    size_per_em: f64,
    /// Vertical anchor to ask for.
    anchor: VPos,
    /// Where the baseline comes to lie below the position, in em.
    baseline: f64,
}

/// The SVG backend divides sizes by 1.24 and puts the baseline half the x-height (0.55 em) below a centred position.
const SVG_TEXT: TextMetrics = TextMetrics { size_per_em: 1.24, anchor: VPos::Center, baseline: 0.27 };
/// The bitmap backend takes the line height (1.164 em for DejaVu Sans) as size and puts the baseline half of it down.
const BITMAP_TEXT: TextMetrics = TextMetrics { size_per_em: 1.164, anchor: VPos::Top, baseline: 0.582 };
/// Half the height of capitals and digits, in em: texts are centred on them.
const HALF_CAPITAL: f64 = 0.365;

static FONT_REGISTERED: LazyLock<bool> = LazyLock::new(|| {
    register_font(FAMILY, FontStyle::Normal, REGULAR).is_ok() && register_font(FAMILY, FontStyle::Bold, BOLD).is_ok()
});

/// Width of a text in logical pixels.
#[must_use]
pub fn text_width(text: &str, size: f64, bold: bool) -> f64 {
    // Measured large, since the library rounds to whole pixels.
    let scale = 16.0;
    let width = font(size * BITMAP_TEXT.size_per_em * scale, bold).box_size(text).map_or(0, |(width, _)| width);
    f64::from(width) / scale
}

fn font(size: f64, bold: bool) -> FontDesc<'static> {
    LazyLock::force(&FONT_REGISTERED);
    FontDesc::new(FontFamily::Name(FAMILY), size, if bold { FontStyle::Bold } else { FontStyle::Normal })
}

/// The scene as an SVG document.
///
/// # Errors
/// If the plotting library fails.
pub fn render_svg(scene: &Scene) -> Result<String, Diagnostic> {
    let (width, height) = device_size(scene);
    let mut text = String::new();
    {
        let mut backend = SVGBackend::with_string(&mut text, (width as u32, height as u32));
        paint(&mut backend, scene, SVG_TEXT)?;
        backend.present().map_err(|error| drawing_failure(&error))?;
    }
    // The view box keeps the device coordinates; the picture has its logical size.
    let device = format!("width=\"{width}\" height=\"{height}\"");
    let logical = format!("width=\"{}\" height=\"{}\"", scene.size.0, scene.size.1);
    Ok(text.replacen(&device, &logical, 1))
}

/// Writes the scene as SVG.
///
/// # Errors
/// If the file cannot be written.
pub fn write_svg(scene: &Scene, path: &Path) -> Result<(), Diagnostic> {
    replace_bytes(path, render_svg(scene)?.as_bytes())
}

/// Writes the scene as PNG with two pixels per logical pixel.
///
/// # Errors
/// If the file cannot be written.
pub fn write_png(scene: &Scene, path: &Path) -> Result<(), Diagnostic> {
    let (width, height) = device_size(scene);
    let mut pixels = vec![0xFF; width * height * 3];
    {
        let mut backend = BitMapBackend::with_buffer(&mut pixels, (width as u32, height as u32));
        paint(&mut backend, scene, BITMAP_TEXT)?;
        backend.present().map_err(|error| drawing_failure(&error))?;
    }
    let (small_width, small_height) = (width / OVERSAMPLING, height / OVERSAMPLING);
    let small = downsample(&pixels, width, small_width, small_height);
    let size = (small_width as u32, small_height as u32);
    let write = || {
        let mut backend = BitMapBackend::new(path, size);
        backend.blit_bitmap((0, 0), size, &small)?;
        backend.present()
    };
    write().map_err(|error| {
        Diagnostic::new(format!("cannot write `{}`: {error}", path.display()))
            .help("the folder must exist, be writable and have some free space")
    })
}

fn drawing_failure(error: &dyn Display) -> Diagnostic {
    Diagnostic::new(format!("cannot draw the figure: {error}"))
}

fn device_size(scene: &Scene) -> (usize, usize) {
    let even = |length: f64| (length * SCALE as f64) as usize / OVERSAMPLING * OVERSAMPLING;
    (even(scene.size.0), even(scene.size.1))
}

/// Averages squares of device pixels.
fn downsample(pixels: &[u8], width: usize, small_width: usize, small_height: usize) -> Vec<u8> {
    let mut small = Vec::with_capacity(small_width * small_height * 3);
    let mut sums = vec![0u16; small_width * 3];
    for rows in pixels.chunks_exact(width * 3 * OVERSAMPLING).take(small_height) {
        sums.fill(0);
        for row in rows.chunks_exact(width * 3) {
            for (sum, square) in sums.chunks_exact_mut(3).zip(row.chunks_exact(3 * OVERSAMPLING)) {
                for pixel in square.chunks_exact(3) {
                    sum[0] += u16::from(pixel[0]);
                    sum[1] += u16::from(pixel[1]);
                    sum[2] += u16::from(pixel[2]);
                }
            }
        }
        small.extend(sums.iter().map(|sum| (sum / (OVERSAMPLING * OVERSAMPLING) as u16) as u8));
    }
    small
}

fn paint<B: DrawingBackend>(backend: &mut B, scene: &Scene, metrics: TextMetrics) -> Result<(), Diagnostic> {
    let (width, height) = device_size(scene);
    let paper = backend.draw_rect((0, 0), (width as i32, height as i32), &style(PAPER, 0.0), true);
    paper.map_err(|error| drawing_failure(&error))?;
    for shape in &scene.shapes {
        let painted = match shape {
            Shape::Line { points, width, colour } => {
                backend.draw_path(points.iter().map(|point| device(*point)), &style(*colour, *width))
            }
            Shape::Disc { centre, radius, colour } => {
                let radius = libm::round(radius * SCALE as f64) as u32;
                backend.draw_circle(device(*centre), radius, &style(*colour, 0.0), true)
            }
            Shape::Box { frame, colour } => {
                let corners = (device([frame.left, frame.top]), device([frame.right, frame.bottom]));
                backend.draw_rect(corners.0, corners.1, &style(*colour, 0.0), true)
            }
            Shape::Text { text, position: [x, y], anchor, size, bold, upward, colour } => {
                let style = text_style(*size, *bold, *upward, *anchor, *colour, metrics);
                // A text's own "down" is to the right once it reads upward.
                let drop = (HALF_CAPITAL - metrics.baseline) * size;
                backend.draw_text(text, &style, device(if *upward { [x + drop, *y] } else { [*x, y + drop] }))
            }
        };
        painted.map_err(|error| drawing_failure(&error))?;
    }
    Ok(())
}

fn text_style(
    size: f64,
    bold: bool,
    upward: bool,
    anchor: Anchor,
    colour: Colour,
    metrics: TextMetrics,
) -> TextStyle<'static> {
    let transform = if upward { FontTransform::Rotate270 } else { FontTransform::None };
    let horizontal = match anchor {
        Anchor::Start => HPos::Left,
        Anchor::Middle => HPos::Center,
        Anchor::End => HPos::Right,
    };
    let font = font(size * SCALE as f64 * metrics.size_per_em, bold).transform(transform);
    TextStyle { font, color: rgba(colour).to_backend_color(), pos: Pos::new(horizontal, metrics.anchor) }
}

fn device([x, y]: Position) -> (i32, i32) {
    let scale = SCALE as f64;
    (libm::round(x * scale) as i32, libm::round(y * scale) as i32)
}

fn rgba(colour: Colour) -> RGBAColor {
    let [red, green, blue] = colour.rgb;
    RGBAColor(red, green, blue, colour.alpha)
}

fn style(colour: Colour, width: f64) -> ShapeStyle {
    let stroke_width = libm::round(width * SCALE as f64) as u32;
    ShapeStyle { color: rgba(colour), filled: true, stroke_width }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let mut scene = Scene::new((40.0, 20.0));
        scene.disc([10.0, 10.0], 5.0, Colour::new(0, 0, 0));
        scene.text("≤ 10 µs × 2", [20.0, 10.0], Anchor::Start, 6.0, Colour::new(200, 0, 0));
        scene
    }

    #[test]
    fn svg_has_logical_size_and_real_text() {
        let svg = render_svg(&scene()).unwrap();
        assert!(svg.starts_with("<svg width=\"40\" height=\"20\" viewBox=\"0 0 160 80\""), "{svg}");
        assert!(svg.contains("≤ 10 µs × 2") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn png_is_written_without_fonts_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("figure.png");
        write_png(&scene(), &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
        // Width and height of the header chunk.
        assert_eq!((bytes[19], bytes[23]), (80, 40));
        let error = write_png(&scene(), &folder.path().join("absent/figure.png")).unwrap_err();
        assert!(error.message.contains("absent/figure.png"), "{}", error.message);
    }

    #[test]
    fn squares_are_averaged_per_channel() {
        let pixels = [[0, 10, 20, 40, 10, 20, 1, 1, 1, 1, 1, 1], [0, 10, 20, 40, 10, 60, 1, 1, 1, 1, 1, 5]];
        assert_eq!(downsample(pixels.as_flattened(), 4, 2, 1), [20, 10, 30, 1, 1, 2]);
    }

    #[test]
    fn bold_is_wider_and_width_scales() {
        let width = text_width("throughput", 12.0, false);
        assert!((50.0..90.0).contains(&width), "{width}");
        assert!(text_width("throughput", 12.0, true) > width);
        assert!((text_width("throughput", 24.0, false) / width - 2.0).abs() < 0.02);
    }
}
