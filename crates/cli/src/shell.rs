//! `loom completions` and `loom man`: what a shell and `man` want to know.

use crate::ExitStatus;
use crate::command::{UsageError, command_line};
use crate::output::out;

/// Options of `loom completions`.
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Shell: `loom completions bash > ~/.local/share/bash-completion/completions/loom`
    shell: clap_complete::Shell,
}

/// Options of `loom man`.
#[derive(clap::Args)]
pub(crate) struct Man {
    /// A command; default: loom itself: `loom man > loom.1`
    command: Option<String>,
}

pub(crate) fn completions(args: &Completions) -> Result<ExitStatus, UsageError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command_line(), "loom", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(ExitStatus::Success)
}

pub(crate) fn man(args: &Man) -> Result<ExitStatus, UsageError> {
    let mut all = command_line();
    all.build();
    let page = match &args.command {
        None => all,
        Some(name) => match all.find_subcommand(name) {
            Some(command) => command.clone(),
            None => return Err(UsageError(format!("no command `{name}`: `loom --help` lists the commands"))),
        },
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(|e| UsageError(e.to_string()))?;
    out!("{}", String::from_utf8_lossy(&text));
    Ok(ExitStatus::Success)
}
