//! The `loom` command: look at `.module` files, run HuggingFace directories.
//!
//! Exit codes: 0 clean, 1 mistakes found in a file of the language, 2 wrong use or bad input (one line, with the remedy).

mod args;
mod check;
mod compile;
mod disk;
mod graph;
mod run;

use args::{Args, Usage};
use std::process::ExitCode;

/// A command: its name, its options, what it does, and one line about it.
struct Command {
    name: &'static str,
    options: &'static [args::Flag],
    run: fn(&Args) -> Result<Outcome, Usage>,
    about: &'static str,
}

/// Whether mistakes were found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Clean,
    Mistakes,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "check",
        options: check::CHECK,
        run: check::check,
        about: "loom check FILE.. [--json]: every mistake in .module files",
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
        about: "loom explain FILE [--model NAME] [--set name=value].. [--batch 1] [--seq 16]: sizes and planned memory",
    },
    Command {
        name: "compile",
        options: compile::COMPILE,
        run: compile::compile,
        about: "loom compile FILE --emit graph|schema|program [--model NAME] [--set name=value].. [--json]",
    },
    Command {
        name: "verify-backward",
        options: compile::EXPLAIN,
        run: compile::verify_backward,
        about: "loom verify-backward FILE [--model NAME] [--set name=value]..: written against derived gradients",
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
        about: "loom eval DIR --ids 1,5,7 [--ids ..] [--labels 1,5,7 ..] --out out.safetensors [--dtype f32|bf16]",
    },
    Command {
        name: "generate",
        options: run::GENERATE,
        run: run::generate,
        about: "loom generate DIR --ids 1,5,7 --max-new 32 [--greedy] [--json] [--dtype f32|bf16]",
    },
    Command {
        name: "export",
        options: run::EXPORT,
        run: run::export,
        about: "loom export DIR --out DIR: read a HuggingFace directory and write it back",
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&words) {
        Ok(Outcome::Clean) => ExitCode::SUCCESS,
        Ok(Outcome::Mistakes) => ExitCode::from(1),
        Err(Usage(message)) => {
            eprintln!("loom: {message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(words: &[String]) -> Result<Outcome, Usage> {
    let Some(name) = words.first() else {
        help();
        return Ok(Outcome::Clean);
    };
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
        println!("{}", command.about);
        return Ok(Outcome::Clean);
    }
    let args = Args::parse(&words[1..], command.options, command.about)?;
    (command.run)(&args)
}

fn help() {
    println!("loom: models as text, from a page to a running program\n");
    for command in COMMANDS {
        println!("  {}", command.about);
    }
}
