//! The `loom` command: train models, run HuggingFace directories, look at `.module` files. Without words it trains the
//! default.
//!
//! Exit codes: 0 clean, 1 mistakes found in a file of the language or damage in a run, 2 wrong use or bad input (one line,
//! with the remedy), 101 a mistake in loom itself, 130 stopped by a signal.

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

/// Of this program and its library.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExitStatus {
    Success,
    /// Mistakes were found.
    FindingsReported,
    /// A signal asked to stop, and what there was is saved.
    Interrupted,
}

fn main() -> ExitCode {
    silence_gpu_drivers();
    crash::install_panic_hook();
    #[cfg(all(target_arch = "x86_64", feature = "disassembler"))]
    compiler::debug::set_disassembler(graph::disassembly);
    // Writing beyond a limit of the shell is an error like a full disk, not the end of the process.
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

/// The words of the command line, all of which must be text.
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

/// Mesa's layer that chooses among GPUs asks for a display and complains on the terminal where there is none. We choose
/// ourselves.
fn silence_gpu_drivers() {
    #[cfg(feature = "wgpu")]
    if std::env::var_os("NODEVICE_SELECT").is_none() {
        // SAFETY: no other thread exists yet.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
