//! `loom train` reads settings from the defaults, a file and the command line, runs the training, and prints the result.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::device;
use crate::output::errln;
use crate::progress::TerminalObserver;
use crate::ranks;
use crate::run::usage_error;
use clap::{Arg, ArgAction, ArgMatches};
use compiler::Backend;
use models::files;
use models::train::{
    OLD_NAMES, SETTING_DESCRIPTIONS, StepProgress, TrainObserver, TrainSettings, current_name, run_on_ranks,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of `loom train`: every setting of a run by its name, and where settings come from.
pub(crate) struct Train {
    config: Option<String>,
    resume: bool,
    profile: bool,
    /// The settings given on the command line, in the order of their names.
    given: Vec<(&'static str, String)>,
}

/// Returns the heading of the help under which a setting is listed.
fn help_heading(name: &str) -> &'static str {
    match name {
        "model" | "module" | "set" | "lora" | "ia3" | "dtype" | "recipe" | "objective" | "teacher" => "Model",
        "data" | "synthetic-bytes" | "tokenizer" | "vocab-size" => "Data",
        "device" | "threads" | "mesh" | "virtual-stages" => "Machine",
        "out" | "checkpoint-every" | "save-total-limit" | "eval-every" | "eval-batches" | "sample-every"
        | "log-every" | "prompt" | "dashboard" | "tensorboard" => "Files and reports",
        _ => "Steps",
    }
}

/// The options have the names and descriptions of the training settings.
impl clap::Args for Train {
    fn augment_args(command: clap::Command) -> clap::Command {
        let named = SETTING_DESCRIPTIONS.iter().map(|(name, _, about)| {
            let value = if *name == "set" { "NAME=VALUE,.." } else { "VALUE" };
            let arg = Arg::new(*name).long(*name).value_name(value).help(*about).help_heading(help_heading(name));
            let arg = arg.action(if *name == "set" { ArgAction::Append } else { ArgAction::Set });
            let old = OLD_NAMES.iter().filter(|(_, new)| new == name).map(|(old, _)| *old);
            let arg = arg.aliases(old);
            // The option may be given as `--dashboard` or `--dashboard=PORT`.
            match *name {
                "dashboard" => {
                    arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("PORT")
                }
                _ => arg,
            }
        });
        let config =
            Arg::new("config").long("config").value_name("FILE").help("Read settings from a TOML file: steps = 500");
        let resume = Arg::new("resume").long("resume").action(ArgAction::SetTrue);
        let profile = Arg::new("profile").long("profile").action(ArgAction::SetTrue).help_heading("Files and reports");
        let profile = profile.help("Profile one step: write a table and a trace for Perfetto");
        let resume = resume.help("Resume from the newest checkpoint in --out");
        command.arg(config).arg(resume).arg(profile).args(named)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Train::augment_args(command)
    }
}

impl clap::FromArgMatches for Train {
    fn from_arg_matches(found: &ArgMatches) -> Result<Train, clap::Error> {
        let value = |name: &'static str| {
            let all: Vec<&str> = found.get_many::<String>(name).into_iter().flatten().map(String::as_str).collect();
            (!all.is_empty()).then(|| (name, all.join(",")))
        };
        Ok(Train {
            config: found.get_one::<String>("config").cloned(),
            resume: found.get_flag("resume"),
            profile: found.get_flag("profile"),
            given: SETTING_DESCRIPTIONS.iter().filter_map(|(name, ..)| value(name)).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Train::from_arg_matches(found)?;
        Ok(())
    }
}

/// The settings of `loom train` without arguments.
const DEFAULT_CONFIG: &str = include_str!("default.toml");

pub(crate) fn train(args: &Train) -> Result<ExitStatus, UsageError> {
    let mut settings = TrainSettings::default();
    let mut given = Vec::new();
    let value = |name: &str| args.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str());
    match &args.config {
        Some(path) => {
            let text = files::read_text(Path::new(path), files::MAX_CONFIG_BYTES)
                .map_err(|e| UsageError(format!("{e}; give a TOML file with settings such as `steps = 500`")))?;
            read_file(&mut settings, path, &text, &mut given)?;
        }
        // The sizes of the default configuration don't apply to another model or other data.
        None if value("model").is_some() => {}
        None => read_file(&mut settings, "the default", DEFAULT_CONFIG, &mut Vec::new())?,
    }
    for (name, value) in &args.given {
        settings.set(name, value).map_err(usage_error)?;
        given.push((*name).to_string());
    }
    settings.profile = args.profile;
    if args.resume && settings.out.as_os_str().is_empty() {
        return Err(UsageError("`--resume` needs the output folder of the run: loom train --resume --out DIR".into()));
    }
    if settings.mesh.is_empty() && std::path::Path::new(&settings.model).extension().is_some_and(|e| e == "module") {
        settings.mesh = ranks::topology(&settings.model)?;
    }
    let comm = ranks::join_ranks(&settings.mesh)?;
    if settings.out.as_os_str().is_empty() {
        if comm.is_some() {
            return Err(UsageError("several ranks need a common output folder: give it with `--out`".into()));
        }
        settings.out = new_run_dir()?;
    }
    let count = (settings.threads > 0).then_some(settings.threads);
    let name = if settings.device.is_empty() { "auto" } else { &settings.device };
    let backend: Arc<dyn Backend> = match &comm {
        None => device::open_for_training(name, count)?,
        Some(comm) => ranks::open(name, count, comm)?,
    };
    let follows = comm.as_ref().is_some_and(|comm| comm.rank() != 0);
    let mut watch = TerminalObserver::new();
    // Only rank 0 prints; every rank handles the signal to stop.
    let mut quiet = NonMainRankObserver(&watch);
    let finished = match follows {
        true => run_on_ranks(&settings, args.resume, &given, &*backend, &mut quiet, comm.clone()),
        false => run_on_ranks(&settings, args.resume, &given, &*backend, &mut watch, comm.clone()),
    };
    watch.end();
    if let (Some(comm), Err(e)) = (&comm, &finished) {
        comm.abort(&e.to_string());
    }
    if follows {
        return match finished {
            Ok(finished) if finished.complete => Ok(ExitStatus::Success),
            Ok(_) | Err(models::Error::Stopped) => Ok(ExitStatus::Interrupted),
            Err(e) => Err(usage_error(e)),
        };
    }
    let finished = match finished {
        Err(models::Error::Stopped) => {
            errln!("loom: {}", models::Error::Stopped);
            return Ok(ExitStatus::Interrupted);
        }
        other => other.map_err(usage_error)?,
    };
    watch.print_result(&settings, &finished);
    Ok(if finished.complete { ExitStatus::Success } else { ExitStatus::Interrupted })
}

/// The observer of ranks other than 0: prints nothing, and stops when requested.
struct NonMainRankObserver<'a>(&'a TerminalObserver);

impl TrainObserver for NonMainRankObserver<'_> {
    fn on_message(&mut self, _: &str) {}
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, _: &StepProgress) {}
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.0.should_stop()
    }
}

/// Creates and returns the first of `runs/1`, `runs/2`, .. that does not exist. Creating it prevents another run from using it.
fn new_run_dir() -> Result<PathBuf, UsageError> {
    let fault = |path: &Path, e: std::io::Error| {
        UsageError(format!("{}: {e}; give another folder with `--out`", path.display()))
    };
    let runs = Path::new("runs");
    std::fs::create_dir_all(runs).map_err(|e| fault(runs, e))?;
    for n in 1..usize::MAX {
        let path = runs.join(n.to_string());
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fault(&path, e)),
        }
    }
    Err(UsageError("no unused number is left for a folder in `runs`: give a folder with `--out`".into()))
}

/// Reads the settings of a file: `name = value`, with a table for `set`.
fn read_file(settings: &mut TrainSettings, path: &str, text: &str, given: &mut Vec<String>) -> Result<(), UsageError> {
    use toml::de::{DeTable, DeValue};
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        UsageError(format!("{path}: line {line}: {}; settings look like `steps = 500`", e.message()))
    })?;
    let plain = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    };
    for (key, value) in table.get_ref() {
        let name = key.get_ref().replace('_', "-");
        let text = match value.get_ref() {
            DeValue::Table(entries) if name == "set" => {
                let pairs = entries.iter();
                let pairs = pairs.map(|(k, v)| Some(format!("{}={}", k.get_ref(), plain(v.get_ref())?)));
                pairs.collect::<Option<Vec<_>>>().map(|pairs| pairs.join(","))
            }
            other => plain(other),
        };
        let text =
            text.ok_or_else(|| UsageError(format!("{path}: `{name}` must be a number, a string or a boolean")))?;
        settings.set(&name, &text).map_err(|e| UsageError(format!("{path}: {e}")))?;
        given.push(current_name(&name).to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_read() {
        let mut settings = TrainSettings::default();
        read_file(&mut settings, "default", DEFAULT_CONFIG, &mut Vec::new()).unwrap_or_else(|e| panic!("{}", e.0));
        assert_eq!(settings.get("set").split(',').count(), 7);
    }

    #[test]
    fn files_with_earlier_names_are_read() {
        let read = |text: &str| {
            let (mut settings, mut given) = (TrainSettings::default(), Vec::new());
            read_file(&mut settings, "old.toml", text, &mut given).unwrap_or_else(|e| panic!("{}", e.0));
            (settings, given)
        };
        let old = read("batch = 4\nseq = 64\ngrad_accum = 2\nobjective = \"next\"\nclip = 0.5\nkeep = 3\n");
        let new = "micro-batch-size = 4\nseq-len = 64\ngradient_accumulation_steps = 2\nobjective = \"causal-lm\"\n";
        let new = read(&format!("{new}max-grad-norm = 0.5\nsave-total-limit = 3\n"));
        assert_eq!(old.0, new.0);
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(old.1), sorted(new.1));
    }

    #[test]
    fn settings_that_a_run_writes_are_read_back() {
        let mut settings = TrainSettings::default();
        read_file(&mut settings, "default", DEFAULT_CONFIG, &mut Vec::new()).unwrap_or_else(|e| panic!("{}", e.0));
        settings.set("prompt", "He said: \"one\n\ttwo\"").expect("valid");
        let mut again = TrainSettings::default();
        let text = settings.to_toml();
        read_file(&mut again, "run.toml", &text, &mut Vec::new()).unwrap_or_else(|e| panic!("{}\n{text}", e.0));
        assert_eq!(settings, again);
    }
}
