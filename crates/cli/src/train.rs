//! `loom train`: settings from the default, a file and the command line; a run; what it wrote.

use crate::Outcome;
use crate::args::{Args, Flag, Usage};
use crate::output::errln;
use crate::progress::Watch;
use crate::run::{threads, usage};
use cpu::Cpu;
use models::files;
use models::train::{Settings, run};
use std::path::{Path, PathBuf};

pub(crate) const TRAIN: &[Flag] = &[
    ("config", true),
    ("resume", false),
    ("model", true),
    ("set", true),
    ("data", true),
    ("stories", true),
    ("tokenizer", true),
    ("vocab", true),
    ("out", true),
    ("steps", true),
    ("batch", true),
    ("seq", true),
    ("grad-accum", true),
    ("lr", true),
    ("min-lr", true),
    ("warmup", true),
    ("weight-decay", true),
    ("clip", true),
    ("beta1", true),
    ("beta2", true),
    ("dtype", true),
    ("checkpoint-every", true),
    ("keep", true),
    ("eval-every", true),
    ("eval-batches", true),
    ("sample-every", true),
    ("log-every", true),
    ("prompt", true),
    ("seed", true),
    ("threads", true),
    ("lora", true),
    ("ia3", true),
    ("device", true),
];

/// The run that needs no words.
const DEFAULT: &str = include_str!("default.toml");

pub(crate) fn train(args: &Args) -> Result<Outcome, Usage> {
    if let Some(word) = args.words.first() {
        return Err(Usage(format!("unexpected `{word}`: `loom train --help` lists the options")));
    }
    let mut settings = Settings::default();
    let mut given = Vec::new();
    match args.value("config") {
        Some(path) => {
            let text = files::read_text(Path::new(path), files::CONFIG)
                .map_err(|e| Usage(format!("{e}; give a file of settings such as `steps = 500`")))?;
            read_file(&mut settings, path, &text, &mut given)?;
        }
        // A model or data of one's own has little to do with the default's sizes.
        None if args.has("model") => {}
        None => read_file(&mut settings, "the default", DEFAULT, &mut Vec::new())?,
    }
    for (name, takes_value) in TRAIN {
        if matches!(*name, "config" | "resume") || !takes_value {
            continue;
        }
        let value = match *name {
            "set" => Some(args.values("set").collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty()),
            _ => args.value(name).map(str::to_string),
        };
        if let Some(value) = value {
            settings.set(name, &value).map_err(usage)?;
            given.push((*name).to_string());
        }
    }
    if args.has("resume") && settings.out.as_os_str().is_empty() {
        return Err(Usage("`--resume` needs the folder of the run: loom train --resume --out DIR".into()));
    }
    if settings.out.as_os_str().is_empty() {
        settings.out = free_folder()?;
    }
    let count = if settings.threads == 0 { threads() } else { settings.threads };
    let backend = Cpu::flushing_denormals(count);
    let mut watch = Watch::new();
    let finished = run(&settings, args.has("resume"), &given, &backend, &mut watch);
    watch.end();
    let finished = match finished {
        Err(models::Error::Stopped) => {
            errln!("loom: {}", models::Error::Stopped);
            return Ok(Outcome::Stopped);
        }
        other => other.map_err(usage)?,
    };
    watch.finished(&settings, &finished);
    Ok(if finished.complete { Outcome::Clean } else { Outcome::Stopped })
}

/// The first of `runs/1`, `runs/2`, .. that was not there yet, made here: no other run takes it too.
fn free_folder() -> Result<PathBuf, Usage> {
    let fault = |path: &Path, e: std::io::Error| Usage(format!("{}: {e}; give a folder with `--out`", path.display()));
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
    Err(Usage("no number is left for a folder in runs: give one with `--out`".into()))
}

/// Settings of a file: `name = value`, with a table for `set`.
fn read_file(settings: &mut Settings, path: &str, text: &str, given: &mut Vec<String>) -> Result<(), Usage> {
    use toml::de::{DeTable, DeValue};
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        Usage(format!("{path}: line {line}: {}; settings look like `steps = 500`", e.message()))
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
        let text = text.ok_or_else(|| Usage(format!("{path}: `{name}` needs a number or a text")))?;
        settings.set(&name, &text).map_err(|e| Usage(format!("{path}: {e}")))?;
        given.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_an_option_and_the_default_is_read() {
        for (name, ..) in models::train::NAMES {
            assert!(TRAIN.iter().any(|(option, takes_value)| option == name && *takes_value), "{name}");
        }
        let mut settings = Settings::default();
        read_file(&mut settings, "default", DEFAULT, &mut Vec::new()).unwrap_or_else(|e| panic!("{}", e.0));
        assert_eq!(settings.get("set").split(',').count(), 7);
    }

    #[test]
    fn settings_that_a_run_writes_are_read_back() {
        let mut settings = Settings::default();
        read_file(&mut settings, "default", DEFAULT, &mut Vec::new()).unwrap_or_else(|e| panic!("{}", e.0));
        settings.set("prompt", "He said: \"one\n\ttwo\"").expect("valid");
        let mut again = Settings::default();
        let text = settings.to_toml();
        read_file(&mut again, "run.toml", &text, &mut Vec::new()).unwrap_or_else(|e| panic!("{}\n{text}", e.0));
        assert_eq!(settings, again);
    }
}
