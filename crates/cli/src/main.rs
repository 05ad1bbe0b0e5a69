//! The `loom` command trains models, runs HuggingFace directories and checks `.module` files. Without arguments it trains the
//! default model.
//!
//! Exit codes: 0 success, 1 errors found in a `.module` file or damage found in a run, 2 wrong usage or bad input (one line, with
//! the remedy), 101 a bug in loom, 130 interrupted by a signal.

mod bench;
mod c_library;
mod chat;
mod check;
mod classify;
mod command;
mod compile;
mod crash;
mod device;
mod doctor;
mod gpus;
mod graph;
mod graph_json;
mod import;
mod launch;
mod npy;
mod onnx_export;
mod output;
mod perplexity;
mod plan;
mod profile;
mod progress;
mod ranks;
mod report;
mod run;
mod schedule;
#[cfg_attr(not(feature = "serve"), path = "serve_not_built.rs")]
mod serve;
mod shell;
mod trace_profiler;
mod train;
mod verify;

use command::{Command, ParsedCommand, UsageError};
use output::{errln, out};
use std::process::ExitCode;

/// The version of this program and its libraries.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExitStatus {
    Success,
    /// Errors were found in the checked files.
    FindingsReported,
    /// The run was interrupted by a signal, and its state is saved.
    Interrupted,
}

fn main() -> ExitCode {
    silence_gpu_drivers();
    crash::install_panic_hook();
    #[cfg(all(target_arch = "x86_64", feature = "disassembler"))]
    compiler::debug::set_disassembler(graph::disassembly);
    // With a handler for `SIGXFSZ`, exceeding the shell's file size limit is an error like a full disk instead of the end of the
    // process.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)),
    );
    let outcome = argument_strings().and_then(|words| command::parse(&words)).and_then(dispatch);
    output::flush();
    match outcome {
        Ok(ExitStatus::Success) => ExitCode::SUCCESS,
        Ok(ExitStatus::FindingsReported) => ExitCode::from(1),
        Ok(ExitStatus::Interrupted) => ExitCode::from(130),
        Err(UsageError(message)) => {
            errln!("loom: {message}");
            ExitCode::from(2)
        }
    }
}

/// Returns the command-line arguments, all of which must be valid UTF-8.
fn argument_strings() -> Result<Vec<String>, UsageError> {
    let words = std::env::args_os().skip(1).enumerate();
    words
        .map(|(i, word)| {
            let shown = word.to_string_lossy().into_owned();
            word.into_string()
                .map_err(|_| UsageError(format!("argument {} of the command line is not UTF-8: {shown}", i + 1)))
        })
        .collect()
}

fn dispatch(asked: ParsedCommand) -> Result<ExitStatus, UsageError> {
    let command = match asked {
        ParsedCommand::Command(command) => command,
        ParsedCommand::Text(text) => {
            out!("{text}");
            return Ok(ExitStatus::Success);
        }
    };
    match &command {
        Command::Train(args) => train::train(args),
        Command::Launch(args) => launch::launch(args),
        Command::LaunchGuard => Ok(launch::watch_launcher()),
        Command::Plan(args) => plan::plan(args),
        Command::Generate(args) => run::generate(args),
        Command::Chat(args) => chat::chat(args),
        Command::Serve(args) => serve::serve(args),
        Command::Eval(args) => run::eval(args),
        Command::Classify(args) => classify::classify(args),
        Command::Import(args) => import::import(args),
        Command::Export(args) => run::export(args),
        Command::Quantize(args) => run::quantize(args),
        Command::Perplexity(args) => perplexity::perplexity(args),
        Command::Merge(args) => run::merge(args),
        Command::Verify(args) => verify::verify(args),
        Command::Check(args) => check::check(args),
        Command::Fmt(args) => check::fmt(args),
        Command::Explain(args) => compile::explain(args),
        Command::Compile(args) => compile::compile(args),
        Command::VerifyBackward(args) => compile::verify_backward(args),
        Command::Run(args) => graph::run(args),
        Command::Report(args) => report::report(args),
        Command::Profile(args) => trace_profiler::profile(args),
        Command::Bench(args) => bench::bench(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Completions(args) => shell::completions(args),
        Command::Man(args) => shell::man(args),
    }
}

/// Mesa's device selection layer needs a display and prints warnings if there is none. It is disabled, since loom selects the GPU
/// itself.
fn silence_gpu_drivers() {
    #[cfg(feature = "wgpu")]
    if std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: no other thread exists yet.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
