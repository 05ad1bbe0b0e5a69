//! Writes to the standard streams, and handles closed pipes and full disks.
//!
//! If the reader closes the pipe (`loom compile .. | head`), the command ends without a message. A full disk behind standard
//! output is an error. Errors on standard error are ignored.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Prints to standard output.
macro_rules! out {
    ($($part:tt)*) => { $crate::output::print(format_args!($($part)*)) };
}

/// Prints a line to standard output.
macro_rules! outln {
    () => { $crate::output::print(format_args!("\n")) };
    ($($part:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($part)*))) };
}

/// Prints a line to standard error.
macro_rules! errln {
    ($($part:tt)*) => { $crate::output::say(format_args!("{}\n", format_args!($($part)*))) };
}

pub(crate) use {errln, out, outln};

/// Prints to standard output. If that fails, ends the process.
pub(crate) fn print(text: Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    exit_on_error(stdout.write_fmt(text));
}

/// Prints to standard error and ignores errors.
pub(crate) fn say(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Flushes standard output.
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
