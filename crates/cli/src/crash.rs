//! The panic hook: a bug in loom prints one line, writes a report, and exits with code 101.

use std::backtrace::Backtrace;
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::path::PathBuf;

/// The exit code after a panic.
const PANIC_EXIT_CODE: i32 = 101;

/// Installs a hook that ends the process with a report when any thread panics.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        if models::panic_is_caught() {
            return;
        }
        let what = message(info);
        let line = match write_report(info, &what) {
            Ok(path) => format!("loom: internal error: {what}; please report it with the file {}", path.display()),
            Err(_) => format!("loom: internal error: {what}"),
        };
        crate::output::say(format_args!("{line}\n"));
        // Other threads may hold locks, so the process exits without waiting for them.
        std::process::exit(PANIC_EXIT_CODE);
    }));
}

/// Returns the panic message and its position in one line.
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

/// Writes a report with everything that helps to find the bug to a file in the temporary folder, and returns its path.
fn write_report(info: &PanicHookInfo<'_>, what: &str) -> std::io::Result<PathBuf> {
    let mut text = String::new();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let _ = writeln!(text, "loom {} on {} {}", crate::VERSION, std::env::consts::OS, std::env::consts::ARCH);
    let _ = writeln!(text, "arguments: {arguments:?}\n{what}\n\n{info}\n\n{}", Backtrace::force_capture());
    let path = std::env::temp_dir().join(format!("loom-report-{}.txt", std::process::id()));
    std::fs::write(&path, text)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// The test runs its own executable again as a child process, which panics in a thread.
    #[test]
    fn a_panic_is_one_line_a_report_and_code_101() {
        const AGAIN: &str = "LOOM_TEST_OF_PANICS";
        if std::env::var_os(AGAIN).is_some() {
            super::install_panic_hook();
            let _ = std::thread::spawn(|| panic!("out of\nwool {}", 7)).join();
            unreachable!("the process has ended");
        }
        let own = std::env::current_exe().expect("a path");
        let name = "crash::tests::a_panic_is_one_line_a_report_and_code_101";
        let output =
            Command::new(own).args(["--exact", name, "--nocapture"]).env(AGAIN, "1").output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(101), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.starts_with("loom: ") && error.contains("out of wool 7 (") && error.contains("crash.rs"),
            "{error}"
        );
        let path = error.trim_end().rsplit(' ').next().expect("a path");
        let report = std::fs::read_to_string(path).expect("a report");
        for word in ["arguments", "--nocapture", "out of\nwool 7", "a_panic_is_one_line"] {
            assert!(report.contains(word), "{word}: {report}");
        }
        let _ = std::fs::remove_file(path);
    }
}
