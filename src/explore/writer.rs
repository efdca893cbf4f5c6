//! The one writer: restores the order of blocks, cuts parts, keeps the manifest.

use std::collections::BTreeMap;
use std::path::Path;

use crossbeam::channel::Receiver;

use crate::diag::Diagnostic;
use crate::results::part::write_part;
use crate::results::{Manifest, OwnedRow};

use super::gate::Gate;
use super::reporter::{Progress, Reporter};

/// Rows of one block, by its position among the blocks of this session.
pub(crate) struct Block {
    pub(crate) position: usize,
    pub(crate) rows: Vec<OwnedRow>,
}

/// Writes the missing parts of a run from blocks that arrive in any order.
pub(crate) struct Writer<'a> {
    pub(crate) run_folder: &'a Path,
    pub(crate) manifest: &'a mut Manifest,
    pub(crate) reporter: &'a mut dyn Reporter,
    pub(crate) gate: &'a Gate,
    pub(crate) progress: Progress,
}

impl Writer<'_> {
    /// Consumes blocks until every sender is gone. Whatever is complete by then is on disk and in the manifest.
    ///
    /// # Errors
    /// The first failure to write; the gate is then closed, and parts already written stay.
    pub(crate) fn consume(&mut self, parts: &[u64], blocks: &Receiver<Block>) -> Result<(), Diagnostic> {
        let result = self.write_parts(parts, blocks);
        if result.is_err() {
            self.gate.close();
            // Workers must not block on a channel that nobody reads.
            while blocks.recv().is_ok() {}
        }
        self.reporter.finished(self.progress);
        result
    }

    fn write_parts(&mut self, parts: &[u64], blocks: &Receiver<Block>) -> Result<(), Diagnostic> {
        self.reporter.started(self.progress);
        let mut early: BTreeMap<usize, Vec<OwnedRow>> = BTreeMap::new();
        let mut next = 0;
        let mut parts = parts.iter().copied();
        let mut part = parts.next();
        let mut pending: Vec<OwnedRow> = Vec::new();
        for block in blocks {
            early.insert(block.position, block.rows);
            while let Some(rows) = early.remove(&next) {
                next += 1;
                self.gate.advance();
                self.progress.done += rows.len() as u64;
                self.progress.sla_met += rows.iter().filter(|row| row.sla_met).count() as u64;
                self.reporter.rows(self.progress, &rows);
                pending.extend(rows);
                let Some(number) = part else { continue };
                let range = self.manifest.part_range(number);
                if pending.len() as u64 == range.end - range.start {
                    self.manifest.record(write_part(self.run_folder, number, &pending)?);
                    self.manifest.store(self.run_folder)?;
                    pending.clear();
                    part = parts.next();
                }
            }
        }
        Ok(())
    }
}
