//! `loom completions` and `loom man`: what a shell and `man` want to know.

#[cfg(not(all(feature = "completions", feature = "man")))]
use crate::command::{NotBuilt, not_built};
use crate::{Outcome, command::Usage};
#[cfg(any(feature = "completions", feature = "man"))]
use crate::{command::definition, output::out};

/// Options of `loom completions`.
#[cfg(feature = "completions")]
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell: `loom completions bash > ~/.local/share/bash-completion/completions/loom`
    shell: clap_complete::Shell,
}

#[cfg(not(feature = "completions"))]
pub(crate) type Completions = NotBuilt;

/// Options of `loom man`.
#[cfg(feature = "man")]
#[derive(clap::Args)]
pub(crate) struct Man {
    /// A command; without one, loom itself: `loom man > loom.1`
    command: Option<String>,
}

#[cfg(not(feature = "man"))]
pub(crate) type Man = NotBuilt;

#[cfg(feature = "completions")]
pub(crate) fn completions(args: &Completions) -> Result<Outcome, Usage> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "loom", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(Outcome::Clean)
}

#[cfg(not(feature = "completions"))]
pub(crate) fn completions(_: &Completions) -> Result<Outcome, Usage> {
    Err(not_built("loom completions", "completions"))
}

#[cfg(feature = "man")]
pub(crate) fn man(args: &Man) -> Result<Outcome, Usage> {
    let mut all = definition();
    all.build();
    let page = match &args.command {
        None => all,
        Some(name) => match all.find_subcommand(name) {
            Some(command) => command.clone(),
            None => return Err(Usage(format!("no command `{name}`: `loom --help` lists the commands"))),
        },
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(|e| Usage(e.to_string()))?;
    out!("{}", String::from_utf8_lossy(&text));
    Ok(Outcome::Clean)
}

#[cfg(not(feature = "man"))]
pub(crate) fn man(_: &Man) -> Result<Outcome, Usage> {
    Err(not_built("loom man", "man"))
}
