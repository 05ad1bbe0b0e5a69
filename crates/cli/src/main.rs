//! The `loom` command: train models, run HuggingFace directories, look at `.module` files. Without words it trains the
//! default.
//!
//! Exit codes: 0 clean, 1 mistakes found in a file of the language or damage in a run, 2 wrong use or bad input (one line,
//! with the remedy), 101 a mistake in loom itself, 130 stopped by a signal.

mod args;
mod bench;
mod check;
mod compile;
mod crash;
mod doctor;
mod graph;
mod graph_json;
mod output;
mod profile;
mod progress;
mod run;
mod schedule;
mod train;
mod verify;

use args::{Args, Usage};
use output::{errln, outln};
use std::process::ExitCode;

/// Of this program and its library.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A command: its name, its options, what it does, and one line about it.
struct Command {
    name: &'static str,
    options: &'static [args::Flag],
    run: fn(&Args) -> Result<Outcome, Usage>,
    about: &'static str,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Clean,
    /// Mistakes were found.
    Mistakes,
    /// A signal asked to stop, and what there was is saved.
    Stopped,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "train",
        options: train::TRAIN,
        run: train::train,
        about: "loom train [--model NAME|FILE.module|DIR] [--data PATH] [--config run.toml] [--out DIR] [--steps N] [--batch N] [--seq N] [--lr X] [--dtype f32|bf16] [--grad-accum N] [--checkpoint-every N] [--resume] [--seed N] [--threads N] [--lora rank=8,alpha=16,targets=q,v] [--ia3 targets=k,v,down,feedforward=down] [--device cpu] ..",
    },
    Command {
        name: "check",
        options: check::CHECK,
        run: check::check,
        about: "loom check FILE.. [--json] [--lock]: every mistake in .module files; with --lock, writes module.lock",
    },
    Command {
        name: "fmt",
        options: check::FMT,
        run: check::fmt,
        about: "loom fmt FILE.. [--check]: format .module files in place",
    },
    Command {
        name: "explain",
        options: compile::EXPLAIN,
        run: compile::explain,
        about: "loom explain FILE [--model NAME] [--set name=value].. [--batch 1] [--seq 16] [--time]: sizes, planned memory, and how long what `@profile` marks takes",
    },
    Command {
        name: "compile",
        options: compile::COMPILE,
        run: compile::compile,
        about: "loom compile FILE --emit graph|schedule|schema|config|metadata|program [--model NAME] [--set name=value].. [--json]",
    },
    Command {
        name: "verify-backward",
        options: compile::VERIFY,
        run: compile::verify_backward,
        about: "loom verify-backward FILE [--model NAME] [--set name=value].. [--epsilon X] [--tolerance X]: written gradients against derived ones and finite differences",
    },
    Command {
        name: "run",
        options: graph::RUN,
        run: graph::run,
        about: "loom run FILE.ir --in inputs.safetensors --out outputs.safetensors [--transform jvp|vjp|vmap:AXIS] \
                [--device interp|cpu] [--threads N] [--bench N] [--emit graph|explain|program|loops|asm]: a graph in its text form",
    },
    Command {
        name: "eval",
        options: run::EVAL,
        run: run::eval,
        about: "loom eval DIR --ids 1,5,7 [--ids ..] [--labels 1,5,7 ..] --out out.safetensors [--dtype f32|bf16] [--probes]",
    },
    Command {
        name: "generate",
        options: run::GENERATE,
        run: run::generate,
        about: "loom generate DIR --prompt TEXT | --ids 1,5,7 [--max-new 32] [--greedy] [--temperature 0.8] [--top-k 40] [--top-p 0.95] [--seed 1] [--json] [--dtype f32|bf16]",
    },
    Command {
        name: "export",
        options: run::EXPORT,
        run: run::export,
        about: "loom export DIR --out DIR: read a HuggingFace directory and write it back",
    },
    Command {
        name: "merge",
        options: run::MERGE,
        run: run::merge,
        about: "loom merge ADAPTER --out DIR [--base DIR]: an adapter merged into its model",
    },
    Command {
        name: "bench",
        options: bench::BENCH,
        run: bench::bench,
        about: "loom bench [--threads N]: how fast this machine multiplies, trains and generates",
    },
    Command {
        name: "verify",
        options: &[],
        run: verify::verify,
        about: "loom verify RUN: look at every byte of a run's checkpoints, ids and model",
    },
    Command { name: "doctor", options: &[], run: doctor::doctor, about: "loom doctor: what this machine can do" },
];

fn main() -> ExitCode {
    crash::install();
    let outcome = words().and_then(|words| dispatch(&words));
    output::flush();
    match outcome {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Mistakes) => ExitCode::from(1),
        Ok(Outcome::Stopped) => ExitCode::from(130),
        Err(Usage(message)) => {
            errln!("loom: {message}");
            ExitCode::from(2)
        }
    }
}

/// The words of the command line, all of which must be text.
fn words() -> Result<Vec<String>, Usage> {
    let words = std::env::args_os().skip(1).enumerate();
    words
        .map(|(i, word)| {
            let shown = word.to_string_lossy().into_owned();
            word.into_string().map_err(|_| Usage(format!("word {} of the command line is not UTF-8: {shown}", i + 1)))
        })
        .collect()
}

fn dispatch(words: &[String]) -> Result<Outcome, Usage> {
    // Nothing asked: train the default.
    let default = ["train".to_string()];
    let words = if words.is_empty() { &default[..] } else { words };
    let name = &words[0];
    if matches!(name.as_str(), "--version" | "-V") {
        outln!("loom {VERSION}");
        return Ok(Outcome::Clean);
    }
    if matches!(name.as_str(), "--help" | "-h" | "help") {
        help();
        return Ok(Outcome::Clean);
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        let close = lang::suggest::closest(name, COMMANDS.iter().map(|command| command.name));
        let remedy = close.map_or("`loom --help` lists the commands".into(), |c| format!("did you mean `{c}`?"));
        return Err(Usage(format!("no command `{name}`: {remedy}")));
    };
    if words[1..].iter().any(|word| word == "--help" || word == "-h") {
        outln!("{}", command.about);
        if command.name == "train" {
            for (name, _, about) in models::train::NAMES {
                outln!("  --{name:<18} {about}");
            }
            outln!("  --{:<18} settings from a file: steps = 500", "config");
            outln!("  --{:<18} go on from the newest checkpoint in --out", "resume");
        }
        return Ok(Outcome::Clean);
    }
    let args = Args::parse(&words[1..], command.options, command.about)?;
    (command.run)(&args)
}

fn help() {
    outln!("loom: models as text, from a page to a running program\n");
    for command in COMMANDS {
        outln!("  {}", command.about);
    }
}
