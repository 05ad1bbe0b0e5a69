//! The command line: its definition, parsing and error messages.

use crate::{
    bench, chat, check, classify, compile, doctor, graph, import, launch, perplexity, plan, report, run, serve, shell,
    trace_profiler, train, verify,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::error::Error as _;

/// An error of usage or input: one line with the problem and the remedy.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

const EXAMPLES: &str = "\
Examples:
  loom                                                 train a small Llama on synthetic stories
  loom train --model llama --data texts/ --out mine    train on your own files
  loom train --resume --out mine                       resume from the newest checkpoint
  loom generate mine --prompt \"Once upon a time\"       generate text
  loom serve mine --port 8080                          serve an OpenAI-compatible API

Run `loom COMMAND --help` for the options of a command.
LOOM_DEBUG=1 to 5 prints each program that is compiled: see docs/debugging.md.";

const TRAIN: &str = "\
Examples:
  loom train --data texts/ --out mine                                       train a small Llama on your own text
  loom train --model llama --set d_model=512,n_layers=8 --data texts/       choose a model and its sizes
  loom train --model gpt2-dir --data chats.jsonl --lora rank=8 --out tuned  fine-tune a HuggingFace model with LoRA
  loom train --resume --out mine                                            resume from the newest checkpoint";

const LAUNCH: &str = "\
Examples:
  loom launch -n 4 loom train --mesh dp=4 --data texts/ --out mine
  loom launch -n 2 loom generate mine --mesh tp=2 --prompt Once";

const PLAN: &str = "\
Examples:
  loom plan --model llama --set d_model=4096,n_layers=32 --devices 256xH200
  loom plan --model llama --devices 8xH100 --mesh dp=4,tp=2";

const GENERATE: &str = "\
Examples:
  loom generate mine --prompt \"Once upon a time\" --max-new-tokens 100
  loom generate mine --prompt Once --temperature 0.7 --top-p 0.9
  loom generate mine --prompts prompts.jsonl --out answers.jsonl --max-batch 32
  loom generate mine --prompt Once --draft-model small --num-speculative-tokens 4";

const CHAT: &str = "\
Examples:
  loom chat mine
  loom chat mine --system-prompt \"Answer in one sentence.\" --max-new-tokens 200";

#[cfg(feature = "serve")]
const SERVE: &str = "\
Examples:
  loom serve mine --port 8080
  loom serve mine mine-lora --max-batch 32 --max-seq-len 4096
  loom serve mine --host 0.0.0.0 --api-key-env LOOM_API_KEY";

const LOGITS: &str = "\
Examples:
  loom logits mine --token-ids 1,5,7 --out logits.safetensors
  loom logits mine --token-ids 1,5,7 --labels -100,5,7 --out gradients.safetensors";

const QUANTIZE: &str = "\
Examples:
  loom quantize mine --format q4 --out mine-q4
  loom quantize mine --format q8 --out mine.gguf
  loom quantize mine --format q4 --calibration-data texts/ --out mine-q4";

const EXPORT: &str = "\
Examples:
  loom export mine --out copy
  loom export mine --onnx model.onnx --batch-size 1 --seq-len 128";

const COMPILE: &str = "\
Examples:
  loom compile llama --emit graph --set n_layers=1
  loom compile llama --emit program --seq-len 128
  loom compile mine --emit c-library --out story";

/// Train, run and serve models of the .module language, HuggingFace directories and GGUF files.
#[derive(Parser)]
#[command(name = "loom", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Loom {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The commands, each with its options.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train a model; without options, a small Llama on synthetic stories
    #[command(after_help = TRAIN)]
    Train(train::Train),
    /// Run a command as several ranks (processes) on this machine
    #[command(after_help = LAUNCH)]
    Launch(launch::Launch),
    /// Ends the ranks of a launcher that is gone
    #[command(hide = true)]
    LaunchGuard,
    /// Estimate time and memory of training on a cluster and rank device meshes
    #[command(after_help = PLAN)]
    Plan(plan::Plan),
    /// Generate text from a prompt
    #[command(after_help = GENERATE)]
    Generate(run::Generate),
    /// Chat with a model in the terminal
    #[command(after_help = CHAT)]
    Chat(chat::Chat),
    /// Serve models over HTTP with an OpenAI-compatible API
    #[cfg_attr(not(feature = "serve"), command(hide = true))]
    #[cfg_attr(feature = "serve", command(after_help = SERVE))]
    Serve(serve::Serve),
    /// Write a model's logits, and with labels its loss and gradients
    #[command(name = "logits", alias = "eval")]
    #[command(after_help = LOGITS)]
    Eval(run::Eval),
    /// Classify text with a trained classifier
    Classify(classify::Classify),
    /// Convert an ONNX model to a graph and its parameters
    Import(import::Import),
    /// Export a model as a HuggingFace directory or an ONNX model
    #[command(after_help = EXPORT)]
    Export(run::Export),
    /// Quantize a model to a directory or a GGUF file
    #[command(after_help = QUANTIZE)]
    Quantize(run::Quantize),
    /// Compare the perplexity of a model in several dtypes and quantization formats
    Perplexity(perplexity::Perplexity),
    /// Merge an adapter into its base model
    Merge(run::Merge),
    /// Verify the checksums of a run's checkpoints, training data and model
    Verify(verify::Verify),
    /// Check .module files for errors
    Check(check::Check),
    /// Format .module files in place
    Fmt(check::Fmt),
    /// Show a model's sizes, planned memory and steps, and time its `@profile` regions
    Explain(compile::Explain),
    /// Compile a model and print its graph, schedule, schema, metadata or program
    #[command(after_help = COMPILE)]
    Compile(compile::Compile),
    /// Check hand-written gradients against automatic differentiation and finite differences
    VerifyBackward(compile::VerifyBackward),
    /// Transform, compile and run a graph in text form, or an ONNX model
    Run(graph::RunArgs),
    /// Compare training runs in an HTML report
    Report(report::Report),
    /// Run a command and write a Perfetto trace and a table of its time
    Profile(trace_profiler::ProfileArgs),
    /// Measure matrix multiplication, training and generation speed on this machine
    Bench(bench::Bench),
    /// Show what this machine supports: CPU features, memory and GPUs
    Doctor(doctor::Doctor),
    /// Print shell completions
    #[cfg_attr(not(feature = "completions"), command(hide = true))]
    Completions(shell::Completions),
    /// Print the manual page of loom or of a command
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

/// Returns the error for a command that is not in this build, with the way to build it.
pub(crate) fn not_built(what: &str, feature: &str) -> UsageError {
    UsageError(format!(
        "this loom was built without `{what}`; build it with `--features {feature}`, or with `--features full`"
    ))
}

/// Returns the definition of the command line. The last value of a repeated option wins, and values may begin with a dash:
/// `--labels -100,5`.
pub(crate) fn command_line() -> clap::Command {
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

/// A parsed command, or a text to print instead.
pub(crate) enum ParsedCommand {
    Command(Command),
    /// The help or the version.
    Text(String),
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(words: &[String]) -> Result<ParsedCommand, UsageError> {
    // Without arguments, the command is `train`.
    let default = ["train".to_string()];
    let words = if words.is_empty() { &default[..] } else { words };
    // `loom help train` is the same as `loom train --help`.
    let turned: Vec<String>;
    let words = match words {
        [help, rest @ ..] if help == "help" => {
            turned = rest.iter().cloned().chain(["--help".to_string()]).collect();
            &turned[..]
        }
        words => words,
    };
    let all = std::iter::once("loom").chain(words.iter().map(String::as_str));
    let found = command_line().try_get_matches_from(all).and_then(|matches| Loom::from_arg_matches(&matches));
    match found {
        Ok(Loom { command: Some(command) }) => Ok(ParsedCommand::Command(command)),
        Ok(Loom { command: None }) => Err(UsageError("no command given: `loom --help` lists the commands".into())),
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(ParsedCommand::Text(e.render().to_string()))
        }
        Err(e) => Err(UsageError(explain(&e, words))),
    }
}

/// Describes an error in the arguments in one line.
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
    let help = format!("`loom{command} --help` lists the options");
    // Removes the value placeholder from the name of an option.
    let bare = |shown: &str| shown.split([' ', '=']).next().unwrap_or(shown).to_string();
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let close = text(ContextKind::SuggestedArg);
            let close = close.map(|close| format!("did you mean `{}`?", current(words, &bare(&close))));
            let what = if argument.starts_with('-') { "unknown option" } else { "unexpected argument" };
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
                    format!("invalid value `{name} {value}`: use {} or {last}", first.join(", "))
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

/// Returns the current name of an option that may be given by an earlier name.
fn current(words: &[String], option: &str) -> String {
    let definition = command_line();
    let command = words.first().and_then(|word| definition.find_subcommand(word));
    let old = option.trim_start_matches('-');
    let found = command.and_then(|command| {
        command.get_arguments().find(|arg| arg.get_all_aliases().is_some_and(|all| all.contains(&old)))
    });
    found.and_then(clap::Arg::get_long).map_or_else(|| option.to_string(), |long| format!("--{long}"))
}

/// Parses a positive integer.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be a positive integer".to_string())
}

/// Parses a number of sequences, or of tokens per sequence.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    positive(text)?;
    let most = i32::MAX as usize;
    text.parse().ok().filter(|n| *n <= most).ok_or_else(|| format!("must be a positive integer up to {most}"))
}

/// Parses a number greater than 0.
pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    let x = text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite());
    x.ok_or_else(|| "must be a number greater than 0".to_string())
}

/// Parses a non-empty name.
pub(crate) fn non_empty_name(text: &str) -> Result<String, String> {
    match text.is_empty() {
        false => Ok(text.to_string()),
        true => Err("must not be empty".to_string()),
    }
}

/// A list of token IDs.
#[derive(Clone, Debug)]
pub(crate) struct TokenIds(pub(crate) Vec<i32>);

pub(crate) fn ids(text: &str) -> Result<TokenIds, String> {
    let ids = text.split(',').map(|id| id.trim().parse::<i32>());
    ids.collect::<Result<_, _>>().map(TokenIds).map_err(|_| "must be a list of token IDs such as 1,5,7".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command_line().debug_assert();
    }

    #[test]
    fn earlier_names_are_accepted_and_not_shown() {
        let lines: [&[&str]; 8] = [
            &["eval", "m", "--ids", "1,5", "--out", "o"],
            &["generate", "m", "--ids", "1", "--max-new", "3", "--beams", "2", "--draft", "d", "--guesses", "3"],
            &["generate", "m", "--prompt", "x", "--repetition", "1.1", "--typical", "0.9", "--schema", "s"],
            &["chat", "m", "--max-new", "3", "--context", "64", "--system", "x", "--presence", "1", "--frequency", "1"],
            &[
                "plan",
                "--model",
                "m",
                "--batch",
                "8",
                "--seq",
                "16",
                "--grad-accum",
                "2",
                "--chunks",
                "2",
                "--show",
                "3",
            ],
            &["explain", "m", "--batch", "2", "--seq", "8"],
            &["train", "--batch", "2", "--seq", "8", "--clip", "1", "--keep", "3", "--live", "--objective", "next"],
            &["launch", "-n", "2", "--grace", "1", "loom", "train"],
        ];
        for words in lines {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let found = parse(&words).unwrap_or_else(|e| panic!("{words:?}: {}", e.0));
            assert!(matches!(found, ParsedCommand::Command(_)), "{words:?}");
        }
        for command in command_line().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            let shown: Vec<&str> = help.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
            for arg in command.get_arguments() {
                for old in arg.get_all_aliases().into_iter().flatten() {
                    let option = format!("--{old}");
                    assert!(!shown.contains(&option.as_str()), "{} {option}: {help}", command.get_name());
                }
            }
        }
        let Err(UsageError(error)) = parse(&["generate".into(), "m".into(), "--max-neww".into(), "3".into()]) else {
            panic!("an unknown option")
        };
        assert!(error.contains("did you mean `--max-new-tokens`?"), "{error}");
    }

    #[test]
    fn every_command_has_help_of_one_line_and_of_its_own() {
        let Ok(ParsedCommand::Text(all)) = parse(&["--help".to_string()]) else { panic!("no help") };
        for command in command_line().get_subcommands().filter(|command| !command.is_hide_set()) {
            let lines = all.lines().filter(|line| line.trim_start().starts_with(&format!("{} ", command.get_name())));
            assert_eq!(lines.count(), 1, "{}: {all}", command.get_name());
            let Ok(ParsedCommand::Text(own)) = parse(&[command.get_name().to_string(), "--help".into()]) else {
                panic!("no help")
            };
            assert!(own.contains("Usage:") && own.lines().count() > 3, "{own}");
            assert!(command.get_arguments().all(|arg| arg.get_help().is_some()), "{}", command.get_name());
        }
        assert!(all.contains("Examples:"));
    }
}
