//! The last resort: a mistake in loom itself is one line, a report to send, and exit code 101.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::path::PathBuf;

/// The exit code after a mistake in loom itself.
const CODE: i32 = 101;

/// From now on a panic of any thread ends the process with a report.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(|info| {
        let what = message(info);
        let line = match write_report(info, &what) {
            Ok(path) => format!("loom: a mistake in loom itself: {what}; please send {}", path.display()),
            Err(_) => format!("loom: a mistake in loom itself: {what}"),
        };
        crate::output::say(format_args!("{line}\n"));
        // Others of its threads may hold locks: nothing that runs at the end of a process is waited for.
        std::process::exit(CODE);
    }));
}

/// What happened and where, in one line.
fn message(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let text = (payload.downcast_ref::<&str>().copied())
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().take(300).collect();
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text,
    }
}

/// A file in the system's folder for such things, with all that helps to find the mistake.
fn write_report(info: &PanicHookInfo<'_>, what: &str) -> std::io::Result<PathBuf> {
    let mut text = String::new();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let _ = writeln!(text, "loom {} on {} {}", crate::VERSION, std::env::consts::OS, std::env::consts::ARCH);
    let _ = writeln!(text, "arguments: {arguments:?}\n{what}\n\n{info}\n\n{}", Backtrace::force_capture());
    let path = std::env::temp_dir().join(format!("loom-report-{}.txt", std::process::id()));
    std::fs::write(&path, text)?;
    Ok(path)
}
