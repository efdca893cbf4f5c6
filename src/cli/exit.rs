//! Exit codes: a contract with scripts.

use crate::diag::{Diagnostic, Diagnostics};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Success,
    /// 2: the arguments, the sweep or a file it names is wrong. The message says where.
    Usage,
    /// 3: nothing to simulate: every candidate is excluded or out of memory.
    NothingFeasible,
    /// 4: done, but some candidates failed inside the simulator; their rows say how. This is a bug.
    Incomplete,
    /// 5: results could not be written or read back. What was finished is kept.
    Results,
    /// 130: interrupted by the user. What was finished is kept.
    Interrupted,
}

impl Exit {
    /// The number that the process returns.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Usage => 2,
            Self::NothingFeasible => 3,
            Self::Incomplete => 4,
            Self::Results => 5,
            Self::Interrupted => 130,
        }
    }
}

/// A verb that failed: what to print, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// What went wrong.
    pub problems: Diagnostics,
    /// How the process ends.
    pub exit: Exit,
}

impl Failure {
    /// A problem with the results on disk.
    pub fn results(problems: impl Into<Diagnostics>) -> Self {
        Self { problems: problems.into(), exit: Exit::Results }
    }
}

impl From<Diagnostics> for Failure {
    fn from(problems: Diagnostics) -> Self {
        Self { problems, exit: Exit::Usage }
    }
}

impl From<Diagnostic> for Failure {
    fn from(problem: Diagnostic) -> Self {
        Diagnostics::from(problem).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // The reader of a pipe went away: not a failure.
        let exit = if error.kind() == std::io::ErrorKind::BrokenPipe { Exit::Success } else { Exit::Results };
        Self { problems: Diagnostic::new(format!("cannot write the output: {error}")).into(), exit }
    }
}
