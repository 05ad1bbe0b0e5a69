//! The command line: what may be said, and what is wrong with what was.

use crate::{
    bench, chat, check, classify, compile, doctor, graph, import, launch, perplexity, plan, profiling, report, run,
    serve, shell, train, verify,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::error::Error as _;

/// Wrong use or bad input: one line that says what, and what to do instead.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

const EXAMPLES: &str = "\
Examples:
  loom                                                train the default model on stories, and see it write
  loom train --model llama --data texts/ --out mine   train on files of your own
  loom train --resume --out mine                      go on where it stopped
  loom generate mine --prompt \"Once upon a time\"      let it write
  loom serve mine --port 8080                         answer over HTTP, as OpenAI's interface does

`loom COMMAND --help` says more about each.";

/// Models as text, from a page to a running program.
#[derive(Parser)]
#[command(name = "loom", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Loom {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands, each with its options.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train a model; without options, the default on stories
    Train(train::Train),
    /// Run a command as several ranks on this machine
    Launch(launch::Launch),
    /// Ends the ranks of a launcher that is gone
    #[command(hide = true)]
    LaunchGuard,
    /// What training would take on many devices, and which mesh is best
    Plan(plan::Plan),
    /// Continue a prompt with a trained model
    Generate(run::Generate),
    /// Talk with a trained model
    Chat(chat::Chat),
    /// Serve models over HTTP, as OpenAI's interface does
    #[cfg_attr(not(feature = "serve"), command(hide = true))]
    Serve(serve::Serve),
    /// Logits, loss and gradients of a trained model
    Eval(run::Eval),
    /// Which class a text belongs to, by a model that was trained for that
    Classify(classify::Classify),
    /// Read an ONNX model and write it as a graph with its parameters
    Import(import::Import),
    /// Read a HuggingFace directory and write it back, or as an ONNX model
    Export(run::Export),
    /// Store a model's matrices in few bits, as a directory or a GGUF file
    Quantize(run::Quantize),
    /// What a model loses in few bits: its perplexity in several formats
    Perplexity(perplexity::Perplexity),
    /// Merge an adapter into its model
    Merge(run::Merge),
    /// Look at every byte of a run's checkpoints, ids and model
    Verify(verify::Verify),
    /// Find every mistake in .module files
    Check(check::Check),
    /// Format .module files in place
    Fmt(check::Fmt),
    /// Sizes, planned memory and steps of a model, and how long what `@profile` marks takes
    Explain(compile::Explain),
    /// A model as graph, schedule, schema, configuration, metadata or program
    Compile(compile::Compile),
    /// Compare written gradients with derived ones and finite differences
    VerifyBackward(compile::VerifyBackward),
    /// Transform, compile and run a graph in its text form, or an ONNX model
    Run(graph::Run),
    /// Compare runs on one page
    Report(report::Report),
    /// Any command, with a trace for Perfetto and a table of where its time went
    Profile(profiling::Profile),
    /// How fast this machine multiplies, trains and generates
    Bench(bench::Bench),
    /// What this machine can do
    Doctor(doctor::Doctor),
    /// Completions of commands and options for a shell
    #[cfg_attr(not(feature = "completions"), command(hide = true))]
    Completions(shell::Completions),
    /// The manual page of loom, or of one of its commands
    #[cfg_attr(not(feature = "man"), command(hide = true))]
    Man(shell::Man),
}

/// The words of a command that this program was built without.
#[cfg(not(all(feature = "serve", feature = "completions", feature = "man")))]
#[derive(clap::Args)]
pub(crate) struct NotBuilt {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _words: Vec<String>,
}

/// What is missing from this program, and how to build a program that has it.
#[cfg(not(all(feature = "serve", feature = "completions", feature = "man", feature = "disassembler")))]
pub(crate) fn not_built(what: &str, feature: &str) -> Usage {
    Usage(format!(
        "this loom was built without `{what}`; build it with `--features {feature}`, or with `--features full`"
    ))
}

/// The whole command line. The last value of an option counts, and values may begin with a dash: `--labels -100,5`.
pub(crate) fn definition() -> clap::Command {
    Loom::command().mut_subcommands(|command| {
        command.mut_args(|arg| {
            let (id, once) = (arg.get_id().clone(), !matches!(arg.get_action(), clap::ArgAction::Append));
            let named = !arg.is_positional();
            let values = arg.get_action().takes_values();
            let arg = if named && once { arg.overrides_with(id) } else { arg };
            if named && values { arg.allow_hyphen_values(true) } else { arg }
        })
    })
}

/// What was asked for, or what to show instead.
pub(crate) enum Asked {
    Command(Command),
    /// Help, or the version.
    Text(String),
}

/// Reads the words behind the program's name.
pub(crate) fn parse(words: &[String]) -> Result<Asked, Usage> {
    // Nothing asked: train the default.
    let default = ["train".to_string()];
    let words = if words.is_empty() { &default[..] } else { words };
    // `loom help train`, as others have it.
    let turned: Vec<String>;
    let words = match words {
        [help, rest @ ..] if help == "help" => {
            turned = rest.iter().cloned().chain(["--help".to_string()]).collect();
            &turned[..]
        }
        words => words,
    };
    let all = std::iter::once("loom").chain(words.iter().map(String::as_str));
    let found = definition().try_get_matches_from(all).and_then(|matches| Loom::from_arg_matches(&matches));
    match found {
        Ok(Loom { command: Some(command) }) => Ok(Asked::Command(command)),
        Ok(Loom { command: None }) => Err(Usage("no command given: `loom --help` lists them".into())),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Asked::Text(e.render().to_string()))
        }
        Err(e) => Err(Usage(explain(&e, words))),
    }
}

/// One line about what is wrong with the words.
fn explain(error: &clap::Error, words: &[String]) -> String {
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(list)) => list.first().cloned(),
        _ => None,
    };
    let list = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::Strings(list)) => list.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    };
    let command = words.first().filter(|word| !word.starts_with('-')).map_or(String::new(), |word| format!(" {word}"));
    let help = format!("`loom{command} --help` lists what there is");
    // An option without the name of its value.
    let bare = |shown: &str| shown.split([' ', '=']).next().unwrap_or(shown).to_string();
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let close = text(ContextKind::SuggestedArg).map(|close| format!("did you mean `{}`?", bare(&close)));
            let what = if argument.starts_with('-') { "unknown option" } else { "unexpected" };
            format!("{what} `{}`: {}", bare(&argument), close.unwrap_or(help))
        }
        ErrorKind::InvalidSubcommand => {
            let close = list(ContextKind::SuggestedSubcommand).pop().map(|close| format!("did you mean `{close}`?"));
            let name = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!("no command `{name}`: {}", close.unwrap_or_else(|| "`loom --help` lists the commands".into()))
        }
        ErrorKind::MissingRequiredArgument => {
            let missing: Vec<String> =
                list(ContextKind::InvalidArg).iter().map(|arg| format!("`{}`", bare(arg))).collect();
            format!("{} is missing: {help}", missing.join(" and "))
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (name, value) = (bare(&argument), text(ContextKind::InvalidValue).unwrap_or_default());
            let valid = list(ContextKind::ValidValue);
            match (error.source(), &valid[..]) {
                (Some(why), _) => format!("`{name}` {why}, got `{value}`"),
                (None, [first @ .., last]) if !first.is_empty() => {
                    format!("`{name} {value}` is not known: {} or {last}", first.join(", "))
                }
                _ => format!("`{name}` needs a value: {help}"),
            }
        }
        ErrorKind::TooManyValues => format!("`{}` takes no value: {help}", bare(&argument)),
        _ => {
            let shown = error.to_string();
            let first = shown.lines().next().unwrap_or_default();
            format!("{}: {help}", first.strip_prefix("error: ").unwrap_or(first))
        }
    }
}

/// A positive number.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "needs a positive number".to_string())
}

/// A number of sequences, or of ids in one.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    positive(text)?;
    let most = i32::MAX as usize;
    text.parse().ok().filter(|n| *n <= most).ok_or_else(|| format!("needs a positive number up to {most}"))
}

/// A number above 0.
pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    x.ok_or_else(|| "needs a number above 0".to_string())
}

/// A name that is not empty.
pub(crate) fn name(text: &str) -> Result<String, String> {
    match text.is_empty() {
        false => Ok(text.to_string()),
        true => Err("needs a name".to_string()),
    }
}

/// A list of ids.
#[derive(Clone, Debug)]
pub(crate) struct Ids(pub(crate) Vec<i32>);

pub(crate) fn ids(text: &str) -> Result<Ids, String> {
    let ids = text.split(',').map(|id| id.trim().parse::<i32>());
    ids.collect::<Result<_, _>>().map(Ids).map_err(|_| "needs ids such as 1,5,7".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn every_command_has_help_of_one_line_and_of_its_own() {
        let Ok(Asked::Text(all)) = parse(&["--help".to_string()]) else { panic!("no help") };
        for command in definition().get_subcommands().filter(|command| !command.is_hide_set()) {
            let lines = all.lines().filter(|line| line.trim_start().starts_with(&format!("{} ", command.get_name())));
            assert_eq!(lines.count(), 1, "{}: {all}", command.get_name());
            let Ok(Asked::Text(own)) = parse(&[command.get_name().to_string(), "--help".into()]) else {
                panic!("no help")
            };
            assert!(own.contains("Usage:") && own.lines().count() > 3, "{own}");
            assert!(command.get_arguments().all(|arg| arg.get_help().is_some()), "{}", command.get_name());
        }
        assert!(all.contains("Examples:"));
    }
}
