//! `loom completions` and `loom man`: what a shell and `man` want to know.

use crate::Outcome;
use crate::command::{Usage, definition};
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

pub(crate) fn completions(args: &Completions) -> Result<Outcome, Usage> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "loom", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(Outcome::Clean)
}

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
