//! Writing to the standard streams, whoever reads them or no longer does.
//!
//! A reader that has had enough (`loom compile .. | head`) ends the command quietly; a full disk behind the standard output
//! is an error. Lines for people on the standard error never end anything.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints to the standard output.
macro_rules! out {
    ($($part:tt)*) => { $crate::output::print(format_args!($($part)*)) };
}

/// Prints a line to the standard output.
macro_rules! outln {
    () => { $crate::output::print(format_args!("\n")) };
    ($($part:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($part)*))) };
}

/// Prints a line to the standard error.
macro_rules! errln {
    ($($part:tt)*) => { $crate::output::say(format_args!("{}\n", format_args!($($part)*))) };
}

pub(crate) use {errln, out, outln};

/// Prints to the standard output, or ends the command.
pub(crate) fn print(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    exit_on_error(stdout.write_fmt(text));
}

/// Prints to the standard error.
pub(crate) fn say(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Brings what was printed to its reader.
pub(crate) fn flush() {
    exit_on_error(std::io::stdout().lock().flush());
}

fn exit_on_error(written: std::io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            say(format_args!("loom: cannot write to standard output: {e}\n"));
            std::process::exit(2);
        }
    }
}
