//! The visual language of all figures: one palette, one font, one scale of sizes.

use super::scene::Colour;

/// Axis titles, front lines and labels.
pub const INK: Colour = Colour::new(0x22, 0x26, 0x2B);
/// Tick labels, subtitles and secondary text.
pub const SOFT_INK: Colour = Colour::new(0x5B, 0x63, 0x6B);
/// Axis lines and ticks.
pub const AXIS: Colour = Colour::new(0x9A, 0xA1, 0xA8);
/// Grid lines.
pub const GRID: Colour = Colour::new(0xEA, 0xEC, 0xEE);
/// Points that miss the SLA.
pub const INFEASIBLE: Colour = Colour::new(0xB4, 0xB9, 0xBE);
/// Background.
pub const PAPER: Colour = Colour::new(0xFF, 0xFF, 0xFF);
/// The category of what has no colour of its own.
pub const OTHER: Colour = Colour::new(0x6B, 0x6B, 0x6B);

/// Categories, in order of use: the palette of Okabe and Ito ("Color universal design", 2008), which stays distinct in all
/// common forms of colour blindness; its black is [`INK`], its yellow is darkened to be seen on white.
pub const CATEGORIES: [Colour; 7] = [
    Colour::new(0x00, 0x72, 0xB2),
    Colour::new(0xE6, 0x9F, 0x00),
    Colour::new(0x00, 0x9E, 0x73),
    Colour::new(0xD5, 0x5E, 0x00),
    Colour::new(0x56, 0xB4, 0xE9),
    Colour::new(0xCC, 0x79, 0xA7),
    Colour::new(0xC4, 0xB4, 0x1A),
];

/// Font sizes in logical pixels (em): title, axis titles and labels, ticks and legend, notes.
pub const TITLE_SIZE: f64 = 17.0;
/// Axis titles and labels of points.
pub const TEXT_SIZE: f64 = 12.0;
/// Tick labels, legend and subtitle.
pub const SMALL_SIZE: f64 = 11.0;
/// Footnotes and the numbers under a label.
pub const NOTE_SIZE: f64 = 10.0;

/// Width and height of a figure, in logical pixels.
pub const FIGURE_SIZE: (f64, f64) = (900.0, 580.0);

/// The colour of a category.
#[must_use]
pub fn category(number: usize) -> Colour {
    CATEGORIES.get(number).copied().unwrap_or(OTHER)
}
