//! The `servescape` command: parse, run one verb, map errors to exit codes.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;

use clap::Parser;
use servescape::cli::{Cli, Exit, Output, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let terminal = stderr().is_terminal();
    let mut output =
        Output { results: &mut stdout().lock(), messages: &mut stderr(), colour: terminal && !no_colour, terminal };
    let exit = run(&cli, &mut output);
    // A reader that closed the pipe has what it wanted.
    let flushed = stdout().flush().is_ok();
    ExitCode::from(if flushed || exit != Exit::Success { exit.code() } else { Exit::Success.code() })
}
