//! `loom completions` and `loom man` print shell completions and manual pages.

#[cfg(not(all(feature = "completions", feature = "man")))]
use crate::command::{NotBuilt, not_built};
use crate::{ExitStatus, command::UsageError};
#[cfg(any(feature = "completions", feature = "man"))]
use crate::{command::command_line, output::out};

/// Options of `loom completions`.
#[cfg(feature = "completions")]
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// Shell: `loom completions bash > ~/.local/share/bash-completion/completions/loom`
    shell: clap_complete::Shell,
}

#[cfg(not(feature = "completions"))]
pub(crate) type Completions = NotBuilt;

/// Options of `loom man`.
#[cfg(feature = "man")]
#[derive(clap::Args)]
pub(crate) struct Man {
    /// A command; default: loom itself: `loom man > loom.1`
    command: Option<String>,
}

#[cfg(not(feature = "man"))]
pub(crate) type Man = NotBuilt;

#[cfg(feature = "completions")]
pub(crate) fn completions(args: &Completions) -> Result<ExitStatus, UsageError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command_line(), "loom", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(ExitStatus::Success)
}

#[cfg(not(feature = "completions"))]
pub(crate) fn completions(_: &Completions) -> Result<ExitStatus, UsageError> {
    Err(not_built("loom completions", "completions"))
}

#[cfg(feature = "man")]
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

#[cfg(not(feature = "man"))]
pub(crate) fn man(_: &Man) -> Result<ExitStatus, UsageError> {
    Err(not_built("loom man", "man"))
}
