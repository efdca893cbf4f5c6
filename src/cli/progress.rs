//! Progress of a run: a bar on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::explore::{Progress, Reporter};
use crate::results::OwnedRow;
use crate::units::format_count;

/// A bar with rate and remaining time on standard error.
pub(super) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let template = "{wide_bar} {human_pos}/{human_len} · {per_sec} · {eta} left · {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl Reporter for Bar {
    fn started(&mut self, progress: Progress) {
        self.bar.set_length(progress.total);
    }

    fn rows(&mut self, progress: Progress, _rows: &[OwnedRow]) {
        self.bar.set_message(format!("{} meet the SLA", format_count(progress.sla_met)));
        self.bar.set_position(progress.done);
    }

    fn finished(&mut self, _progress: Progress) {
        self.bar.finish_and_clear();
    }
}

/// A line every ten seconds.
pub(super) struct Lines<W> {
    writer: W,
    started: Instant,
    last: Instant,
}

/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

impl<W: std::io::Write> Lines<W> {
    #[expect(clippy::disallowed_methods, reason = "progress is told in wall time")]
    pub(super) fn new(writer: W) -> Self {
        let now = Instant::now();
        Self { writer, started: now, last: now }
    }
}

impl<W: std::io::Write + Send> Reporter for Lines<W> {
    fn rows(&mut self, progress: Progress, _rows: &[OwnedRow]) {
        if self.last.elapsed() < INTERVAL {
            return;
        }
        self.last += INTERVAL;
        let elapsed = self.started.elapsed().as_secs_f64();
        let rate = progress.done as f64 / elapsed;
        let left = (progress.total - progress.done) as f64 / rate;
        // A closed error stream must not end the run.
        let _ = writeln!(
            self.writer,
            "{} of {} candidates, {rate:.0} per second, {left:.0} s left, {} meet the SLA",
            format_count(progress.done),
            format_count(progress.total),
            format_count(progress.sla_met)
        );
    }
}
