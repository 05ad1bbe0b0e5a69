//! `loom verify` checks every file of a run's folder.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::output::outln;
use models::train::{TokenDataset, checkpoint};
use models::{Checkpoint, Tokenizer};
use std::path::Path;

/// Options of `loom verify`.
#[derive(clap::Args)]
pub(crate) struct Verify {
    /// The output folder of a run
    run: String,
}

pub(crate) fn verify(args: &Verify) -> Result<ExitStatus, UsageError> {
    let word = &args.run;
    let folder = Path::new(word);
    let checkpoints = checkpoint::list_checkpoints(&folder.join("checkpoints"));
    if checkpoints.is_empty() {
        return Err(UsageError(format!("{word}: no checkpoints found; give the output folder of a run")));
    }
    let mut outcome = ExitStatus::Success;
    let mut line = |name: &str, found: Result<String, String>| match found {
        Ok(about) => outln!("ok       {name}: {about}"),
        Err(fault) => {
            outcome = ExitStatus::FindingsReported;
            outln!("damaged  {name}: {fault}");
        }
    };
    let mut usable = None;
    for path in &checkpoints {
        let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
        line(
            &name,
            match checkpoint::verify(path) {
                Ok(saved) => {
                    usable = Some(saved.step);
                    Ok(format!("step {}", saved.step))
                }
                Err(fault) => Err(fault.error().to_string()),
            },
        );
    }
    if folder.join("data/tokens.json").exists() {
        let found = TokenDataset::verify(&folder.join("data"));
        let found = found.map(|(train, valid)| format!("{train} training tokens, {valid} validation tokens"));
        line("data/tokens.bin", found.map_err(|e| e.to_string()));
    }
    if folder.join("tokenizer.json").exists() {
        let found = Tokenizer::read(&folder.join("tokenizer.json"));
        line("tokenizer.json", found.map(|found| format!("{} ids", found.size())).map_err(|e| e.to_string()));
    }
    for name in ["model.safetensors", "adapter_model.safetensors"] {
        let path = folder.join(name);
        if path.exists() {
            let found = Checkpoint::open_file(&path).and_then(|file| file.verify());
            line(name, found.map(|count| format!("{count} tensors")).map_err(|e| e.to_string()));
        }
    }
    match usable {
        Some(step) => outln!("`loom train --resume --out {word}` resumes from step {step}"),
        None => outln!("no checkpoint is usable: the run cannot be resumed"),
    }
    Ok(outcome)
}
