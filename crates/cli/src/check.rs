//! `loom check` and `loom fmt`.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::output::outln;
use crate::run::{load_program, usage_error};
use lang::Diagnostic;
use lang::diagnostic::{ColorStyle, render_all, sort_and_dedup, to_json};
use lang::resolve::ModuleProgram;
use models::files;
use std::io::IsTerminal;
use std::path::Path;

/// Options of `loom check`.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// .module files, or models of the library
    files: Vec<String>,
    /// Print diagnostics as JSON
    #[arg(long)]
    json: bool,
    /// Write the resolved versions of imports to module.lock
    #[arg(long)]
    lock: bool,
}

/// Options of `loom fmt`.
#[derive(clap::Args)]
pub(crate) struct Fmt {
    /// .module files
    files: Vec<String>,
    /// Do not change files; list those that are not formatted
    #[arg(long)]
    check: bool,
}

/// Returns all diagnostics of a program.
pub(crate) fn findings(program: &ModuleProgram) -> Vec<Diagnostic> {
    let mut findings = program.diagnostics.clone();
    findings.extend(lang::check::check(program).diagnostics);
    sort_and_dedup(&mut findings);
    findings
}

/// Prints diagnostics, with colours if the output is a terminal.
pub(crate) fn draw(program: &ModuleProgram, findings: &[Diagnostic]) {
    let style = if std::io::stderr().is_terminal() { ColorStyle::Ansi } else { ColorStyle::Plain };
    crate::output::say(format_args!("{}", render_all(&program.sources, findings, style)));
}

pub(crate) fn check(args: &Check) -> Result<ExitStatus, UsageError> {
    if args.files.is_empty() {
        return Err(UsageError("no file given: loom check FILE.module ..".into()));
    }
    let mut outcome = ExitStatus::Success;
    let mut json = Vec::new();
    for file in &args.files {
        let program = load_program(file)?;
        let findings = findings(&program);
        // A new lock file resolves the diagnostics about the old one.
        let counts = |found: &Diagnostic| found.is_error() && !(args.lock && found.code == lang::Code::L004);
        let findings: Vec<Diagnostic> =
            findings.into_iter().filter(|found| counts(found) || !found.is_error()).collect();
        if findings.iter().any(Diagnostic::is_error) {
            outcome = ExitStatus::FindingsReported;
        } else if args.lock {
            models::write_lock(file, &program).map_err(usage_error)?;
        }
        if args.json {
            let text = to_json(&program.sources, &findings);
            let list = text.trim().trim_start_matches('[').trim_end_matches(']').trim();
            json.extend((!list.is_empty()).then(|| list.to_string()));
        } else {
            draw(&program, &findings);
        }
    }
    if args.json {
        outln!("[{}]", json.join(",\n"));
    }
    Ok(outcome)
}

pub(crate) fn fmt(args: &Fmt) -> Result<ExitStatus, UsageError> {
    if args.files.is_empty() {
        return Err(UsageError("no file given: loom fmt FILE.module ..".into()));
    }
    let mut outcome = ExitStatus::Success;
    for file in &args.files {
        let path = Path::new(file);
        let text = files::read_text(path, files::MAX_TEXT_BYTES).map_err(usage_error)?;
        match lang::fmt::format(&text) {
            Ok(tidy) if tidy == text => {}
            Ok(_) if args.check => {
                outln!("{file}: not formatted");
                outcome = ExitStatus::FindingsReported;
            }
            Ok(tidy) => files::write(path, tidy.as_bytes()).map_err(usage_error)?,
            Err(findings) => {
                let program = load_program(file)?;
                draw(&program, &findings);
                outcome = ExitStatus::FindingsReported;
            }
        }
    }
    Ok(outcome)
}
