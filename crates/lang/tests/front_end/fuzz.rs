//! Random mutations of valid files, and files generated from the grammar: nothing panics, hangs, or changes by formatting.
//!
//! The number of rounds is fixed, so runs are reproducible. `fuzz_for_a_while` runs for a given
//! time and saves inputs that give a new diagnostic:
//!
//! `FUZZ_SECONDS=600 cargo test --release -p tensorloom-lang --test front_end -- --ignored --nocapture fuzz_for_a_while`

use crate::corpus::{CASE, check_formatting, kept, kept_path, module_files};
use crate::grammar;
use crate::random::Random;
use ir::{DType, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tensorloom_lang::FileId;
use tensorloom_lang::diagnostic::{ColorStyle, Diagnostic, render};
use tensorloom_lang::library::LibraryLoader;
use tensorloom_lang::lower::{LowerOptions, lower};
use tensorloom_lang::resolve::{MemoryLoader, ModuleProgram, ModuleView};

const SCRAPS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "->",
    "->\n",
    ":",
    ",",
    "@",
    "\n",
    "\n  ",
    "\n\t",
    "  ",
    "\"",
    "\"\"\"",
    "#",
    "'",
    "if ",
    "else:",
    "else",
    "module ",
    "graph:",
    "save: [",
    "×",
    "é",
    "\u{0}",
    "1e",
    "9999999999999999999",
    "...",
    "*",
    "x[",
    "not ",
    "and",
    "=",
    "==",
    "{i}",
    "recompute:",
    "forward:",
    "\r\n",
    "!",
    "?",
    "|",
    "=>",
    "constraint:",
    "- (",
];

fn mutate(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(chars.len() + 1);
        let length = random.below(12).min(chars.len() - at);
        match random.below(5) {
            0 => drop(chars.drain(at..at + length)),
            1 => drop(chars.splice(at..at, SCRAPS[random.below(SCRAPS.len())].chars())),
            2 => {
                let piece = chars[at..at + length].to_vec();
                let to = random.below(chars.len());
                drop(chars.splice(to..to, piece));
            }
            3 => chars.truncate(at),
            _ => {
                let end = (at + 200).min(chars.len());
                let piece = chars[at..end].to_vec();
                drop(chars.splice(at..at, piece));
            }
        }
    }
    chars.into_iter().collect()
}

fn rounds(default: usize) -> usize {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn texts(paths: &[std::path::PathBuf]) -> Vec<String> {
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// The valid files by name, for imports.
fn neighbours() -> &'static MemoryLoader {
    static FILES: OnceLock<MemoryLoader> = OnceLock::new();
    FILES.get_or_init(|| {
        module_files().iter().fold(MemoryLoader::new(), |loader, path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            loader.with(name, "local", &std::fs::read_to_string(path).unwrap())
        })
    })
}

/// Parses and formats a text.
fn front(text: &str) -> Vec<Diagnostic> {
    let parsed = tensorloom_lang::parser::parse(FileId::default(), text);
    for d in &parsed.diagnostics {
        assert!(d.primary.span.end as usize <= text.len(), "span past the end:\n{text}");
    }
    check_formatting("fuzzed", text);
    parsed.diagnostics
}

/// Checks a text, renders its diagnostics, and lowers it if it has no errors. Returns the diagnostics without the names in them.
fn meaning(text: &str) -> BTreeSet<String> {
    let loader = LibraryLoader(neighbours().clone().with("main", "local", text));
    let program = ModuleProgram::load("main", &loader);
    let report = tensorloom_lang::check::check(&program);
    let mut kinds = BTreeSet::new();
    let mut clean = true;
    for found in program.diagnostics.iter().chain(&report.diagnostics) {
        render(&program.sources, found, ColorStyle::Ansi);
        kinds.insert(kind(found));
        clean &= !found.is_error();
    }
    if !clean {
        return kinds;
    }
    let names: Vec<String> = report.modules.iter().map(|module| module.name.clone()).collect();
    for item in names.iter().filter_map(|name| program.export(0, name)) {
        let count = ModuleView::new(&program, item).map_or(0, |view| view.forward.inputs.len());
        let options = LowerOptions { probes: true, asserts: true, ..LowerOptions::default() };
        for shape in [&[4, 4][..], &[2, 3, 4]] {
            let inputs = vec![Type::new(DType::F32, shape); count];
            match lower(&program, item, &BTreeMap::new(), &inputs, &options) {
                Ok(lowered) => ir::verify::verify(&lowered.graph).unwrap_or_else(|e| panic!("{e}:\n{text}")),
                Err(found) => {
                    render(&program.sources, &found, ColorStyle::Plain);
                    kinds.insert(format!("lowering {}", kind(&found)));
                }
            }
        }
    }
    kinds
}

/// The code and the message of a diagnostic; quoted parts and constraint messages, which come from the file, are removed.
fn kind(found: &Diagnostic) -> String {
    if found.code == tensorloom_lang::Code::E027 {
        return found.code.to_string();
    }
    let words = found.message.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let words: String = words.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    format!("{} {}", found.code, words)
}

#[test]
fn damaged_files_never_panic_and_format_consistently() {
    let corpus = texts(&module_files());
    let mut random = Random(1);
    for round in 0..rounds(2500) {
        front(&mutate(&corpus[round % corpus.len()], &mut random));
    }
}

#[test]
fn damaged_files_never_panic_the_checker() {
    let corpus = texts(&module_files());
    let mut random = Random(2);
    for round in 0..rounds(800) {
        meaning(&mutate(&corpus[round % corpus.len()], &mut random));
    }
}

#[test]
fn files_of_the_grammar_are_read_and_checked() {
    let mut random = Random(3);
    for _ in 0..rounds(60) {
        let text = grammar::file(&mut random);
        let found = front(&text);
        assert!(found.is_empty(), "{found:#?}\n{text}");
        meaning(&text);
    }
}

/// Inputs that fuzzing has found: errors of every kind, and former failures.
#[test]
fn kept_files_do_no_harm() {
    let kept = kept();
    assert!(kept.len() > 50, "{} texts", kept.len());
    for text in kept {
        front(&text);
        meaning(&text);
    }
}

/// Removes lines as long as the text still gives a diagnostic of this kind.
fn shorten(text: &str, wanted: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let mut size = lines.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < lines.len() {
            let mut fewer = lines.clone();
            fewer.drain(at..(at + size).min(lines.len()));
            if meaning(&(fewer.join("\n") + "\n")).contains(wanted) {
                lines = fewer;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    lines.join("\n") + "\n"
}

#[test]
#[ignore = "runs as long as FUZZ_SECONDS says"]
fn fuzz_for_a_while() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let limit = Duration::from_secs(number("FUZZ_SECONDS", 600));
    let mut random = Random(number("FUZZ_SEED", 1));
    let mut pool = texts(&module_files());
    pool.extend(kept());
    let mut known: BTreeSet<String> = pool.iter().flat_map(|text| meaning(text)).collect();
    let started = Instant::now();
    let (mut runs, mut new) = (0usize, 0usize);
    let mut slowest = (Duration::ZERO, String::new());
    while started.elapsed() < limit {
        let text = match random.below(4) {
            0 => grammar::file(&mut random),
            1 => {
                let text = grammar::file(&mut random);
                mutate(&text, &mut random)
            }
            _ => {
                let at = random.below(pool.len());
                mutate(&pool[at], &mut random)
            }
        };
        let before = Instant::now();
        // Comparing trees is slow: only every fourth file is formatted too.
        let formatted = runs.is_multiple_of(4);
        let kinds = std::panic::catch_unwind(|| {
            if formatted {
                front(&text);
            }
            meaning(&text)
        });
        let kinds = kinds.unwrap_or_else(|fault| {
            println!("{text}");
            std::panic::resume_unwind(fault)
        });
        runs += 1;
        if before.elapsed() > slowest.0 {
            slowest = (before.elapsed(), text.clone());
        }
        for kind in kinds.difference(&known).cloned().collect::<Vec<_>>() {
            let short = shorten(&text, &kind);
            println!("{kind}");
            new += 1;
            let mut file = std::fs::OpenOptions::new().append(true).open(kept_path()).unwrap();
            file.write_all(format!("{CASE}{short}").as_bytes()).unwrap();
            pool.push(short);
        }
        known.extend(kinds);
        assert!(slowest.0 < Duration::from_secs(5), "{:?}:\n{}", slowest.0, slowest.1);
    }
    println!("{runs} files in {:?}, {new} new findings, slowest {:?}", started.elapsed(), slowest.0);
}

#[test]
fn deep_and_long_files_are_bounded() {
    let deep = [
        "(".repeat(50_000),
        "module M():\n  let:\n    a = ".to_string() + &"(".repeat(50_000),
        "module M():\n  let:\n    a = ".to_string() + &"-".repeat(50_000) + "1",
        "module M():\n  let:\n    a = ".to_string() + &"not ".repeat(50_000) + "1",
        "module M():\n  let:\n    a = 1".to_string() + &" + 1".repeat(50_000),
        "module M():\n  let:\n    a = b".to_string() + &".c".repeat(50_000),
        "module M():\n  let:\n    a = 1".to_string() + &" if b else 1".repeat(50_000),
        "module M():\n  params:\n    a: ".to_string() + &"(".repeat(50_000),
        "module M():\n  forward:\n    graph:\n".to_string()
            + &(0..2_000).map(|n| " ".repeat(6 + n) + "if a:\n").collect::<String>(),
        "[".repeat(50_000) + &"]".repeat(50_000),
    ];
    for text in deep {
        let parsed = tensorloom_lang::parser::parse(FileId::default(), &text);
        assert!(!parsed.diagnostics.is_empty());
    }
}

/// The best of ten attempts, since other programs may be running.
#[test]
fn ten_thousand_lines_parse_in_a_tenth_of_a_second() {
    let files = module_files();
    let mut text = String::new();
    while text.lines().count() < 10_000 {
        for path in files.iter().filter(|path| !path.ends_with("lexical.module")) {
            text += &std::fs::read_to_string(path).unwrap();
            text.push('\n');
        }
    }
    let best = (0..10)
        .map(|_| {
            let start = std::time::Instant::now();
            let parsed = tensorloom_lang::parser::parse(FileId::default(), &text);
            assert!(parsed.file.items.len() > 100);
            start.elapsed()
        })
        .min();
    assert!(best.is_some_and(|best| best.as_millis() < 100), "{best:?}");
}
