//! Draws what is wrong with the files named on the command line; with `--format`, prints them formatted instead.

use lang::diagnostic::{Style, render_all};

fn main() {
    let (flags, paths): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let mut sources = lang::Sources::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("the file can be read");
        let id = sources.add(path, text);
        let text = sources.file(id).text();
        if flags.iter().any(|flag| flag == "--format") {
            match lang::fmt::format(text) {
                Ok(tidy) => print!("{tidy}"),
                Err(_) => eprintln!("{} has mistakes", sources.file(id).name()),
            }
            continue;
        }
        let parsed = lang::parser::parse(id, text);
        print!("{}", render_all(&sources, &parsed.diagnostics, Style::Plain));
    }
}
