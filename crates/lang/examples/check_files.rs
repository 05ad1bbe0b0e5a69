//! Draws what is wrong with the files named on the command line; with `--format`, prints them formatted instead.
//!
//! `cargo run -p tensorloom-lang --example check_files -- FILE.module ...`

use lang::diagnostic::{Style, render_all, sort_and_dedup};
use lang::resolve::{Loaded, Loader, Program};

/// Files on disk, by path without extension.
struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str, _major: Option<u32>) -> Option<Loaded> {
        let name = format!("{path}.module");
        let text = std::fs::read_to_string(&name).ok()?;
        Some(Loaded { name, text, version: "local".to_string() })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<String> =
            entries.filter_map(|entry| Some(entry.path().to_str()?.strip_suffix(".module")?.to_string())).collect();
        paths.sort();
        paths
    }

    fn lock(&self) -> Option<String> {
        std::fs::read_to_string("module.lock").ok()
    }
}

fn main() {
    let (flags, paths): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    for path in paths {
        if flags.iter().any(|flag| flag == "--format") {
            let text = std::fs::read_to_string(&path).expect("the file can be read");
            match lang::fmt::format(&text) {
                Ok(tidy) => print!("{tidy}"),
                Err(_) => eprintln!("{path} has mistakes"),
            }
            continue;
        }
        let program = Program::load(path.trim_end_matches(".module"), &Disk);
        let mut findings = program.diagnostics.clone();
        findings.extend(lang::check::check(&program).diagnostics);
        sort_and_dedup(&mut findings);
        println!("{}", render_all(&program.sources, &findings, Style::Plain));
    }
}
