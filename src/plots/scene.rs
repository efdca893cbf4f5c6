//! A drawing as plain data, in logical pixels with the origin at the top left.

/// An opaque or translucent colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Colour {
    /// Red, green and blue.
    pub rgb: [u8; 3],
    /// Opacity, 0 to 1.
    pub alpha: f64,
}

impl Colour {
    /// An opaque colour.
    #[must_use]
    pub const fn new(red: u8, green: u8, blue: u8) -> Self {
        Self { rgb: [red, green, blue], alpha: 1.0 }
    }

    /// The same colour with another opacity.
    #[must_use]
    pub const fn alpha(self, alpha: f64) -> Self {
        Self { rgb: self.rgb, alpha }
    }
}

/// A position.
pub type Position = [f64; 2];

/// An axis-parallel rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Left edge.
    pub left: f64,
    /// Top edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Bottom edge.
    pub bottom: f64,
}

impl Frame {
    /// Width.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.right - self.left
    }

    /// Height.
    #[must_use]
    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// Whether the position lies inside or on the edge.
    #[must_use]
    pub fn contains(&self, [x, y]: Position) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    /// Whether `inner` lies wholly inside.
    #[must_use]
    pub fn encloses(&self, inner: &Self) -> bool {
        self.contains([inner.left, inner.top]) && self.contains([inner.right, inner.bottom])
    }

    /// The position inside that is nearest to this one.
    #[must_use]
    pub fn nearest(&self, [x, y]: Position) -> Position {
        [x.clamp(self.left, self.right), y.clamp(self.top, self.bottom)]
    }

    /// Whether the two overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    /// This frame with `margin` more on every side.
    #[must_use]
    pub fn grown(&self, margin: f64) -> Self {
        Self {
            left: self.left - margin,
            top: self.top - margin,
            right: self.right + margin,
            bottom: self.bottom + margin,
        }
    }
}

/// Where a text's anchor lies, horizontally; vertically it is the middle of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text starts here.
    Start,
    /// The text is centred here.
    Middle,
    /// The text ends here.
    End,
}

/// One element.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A polyline.
    Line {
        /// Corners.
        points: Vec<Position>,
        /// Stroke width.
        width: f64,
        /// Colour.
        colour: Colour,
    },
    /// A filled circle.
    Disc {
        /// Centre.
        centre: Position,
        /// Radius.
        radius: f64,
        /// Colour.
        colour: Colour,
    },
    /// A filled rectangle.
    Box {
        /// Extent.
        frame: Frame,
        /// Colour.
        colour: Colour,
    },
    /// One line of text.
    Text {
        /// What it says.
        text: String,
        /// Anchor.
        position: Position,
        /// Horizontal meaning of the anchor.
        anchor: Anchor,
        /// Em size.
        size: f64,
        /// Bold or regular.
        bold: bool,
        /// Read from bottom to top.
        upward: bool,
        /// Colour.
        colour: Colour,
    },
}

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// Width and height.
    pub size: (f64, f64),
    /// Elements, bottom to top.
    pub shapes: Vec<Shape>,
}

impl Scene {
    /// An empty drawing.
    #[must_use]
    pub fn new(size: (f64, f64)) -> Self {
        Self { size, shapes: Vec::new() }
    }

    /// Adds a polyline.
    pub fn line(&mut self, points: Vec<Position>, width: f64, colour: Colour) {
        self.shapes.push(Shape::Line { points, width, colour });
    }

    /// Adds a dashed straight line.
    pub fn dashes(&mut self, from: Position, to: Position, width: f64, colour: Colour) {
        const DASH: f64 = 5.0;
        const PERIOD: f64 = 9.0;
        let length = libm::hypot(to[0] - from[0], to[1] - from[1]);
        let at = |distance: f64| {
            let share = (distance / length).min(1.0);
            [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])]
        };
        for dash in 0..(length / PERIOD).ceil() as usize {
            let start = dash as f64 * PERIOD;
            self.line(vec![at(start), at(start + DASH)], width, colour);
        }
    }

    /// Adds a filled circle.
    pub fn disc(&mut self, centre: Position, radius: f64, colour: Colour) {
        self.shapes.push(Shape::Disc { centre, radius, colour });
    }

    /// Adds a filled rectangle.
    pub fn fill(&mut self, frame: Frame, colour: Colour) {
        self.shapes.push(Shape::Box { frame, colour });
    }

    /// Adds a regular text.
    pub fn text(&mut self, text: &str, position: Position, anchor: Anchor, size: f64, colour: Colour) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, position, anchor, size, bold: false, upward: false, colour });
    }

    /// Adds a bold text.
    pub fn bold(&mut self, text: &str, position: Position, anchor: Anchor, size: f64, colour: Colour) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, position, anchor, size, bold: true, upward: false, colour });
    }

    /// Adds a regular text that reads from bottom to top.
    pub fn upward(&mut self, text: &str, position: Position, anchor: Anchor, size: f64, colour: Colour) {
        let text = text.to_owned();
        self.shapes.push(Shape::Text { text, position, anchor, size, bold: false, upward: true, colour });
    }
}
