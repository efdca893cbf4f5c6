//! Where a command prints.

use std::io::Write;

/// Results and messages are kept apart: the first can be piped, the second is for a person.
pub struct Output<'a> {
    /// Standard output.
    pub results: &'a mut dyn Write,
    /// Standard error.
    pub messages: &'a mut dyn Write,
    /// Messages may be coloured.
    pub colour: bool,
    /// Messages go to a terminal, where a progress bar makes sense.
    pub terminal: bool,
}
