//! Random damage to good files: nothing panics, hangs, or formats to something else.
//!
//! The budget is a fixed number of mutations, so a run is the same everywhere.

use crate::corpus::{check_formatting, module_files};
use lang::FileId;
use lang::resolve::{MemoryLoader, Program};

/// SplitMix64: enough randomness for damage, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

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

#[test]
fn damaged_files_never_panic_and_format_consistently() {
    let corpus: Vec<String> = module_files().iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let rounds = std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2500);
    let mut random = Random(1);
    for round in 0..rounds {
        let text = mutate(&corpus[round % corpus.len()], &mut random);
        let parsed = lang::parser::parse(FileId::default(), &text);
        for d in &parsed.diagnostics {
            assert!(d.primary.span.end as usize <= text.len(), "span past the end:\n{text}");
        }
        check_formatting("damaged", &text);
    }
}

#[test]
fn damaged_files_never_panic_the_checker() {
    let corpus: Vec<(String, String)> = module_files()
        .iter()
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    let rounds = std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(800);
    let mut random = Random(2);
    for round in 0..rounds {
        let (damaged, _) = &corpus[round % corpus.len()];
        let loader = corpus.iter().fold(MemoryLoader::new(), |loader, (name, text)| {
            let text = if name == damaged { mutate(text, &mut random) } else { text.clone() };
            loader.with(name, "local", &text)
        });
        let program = Program::load(damaged, &loader);
        let report = lang::check::check(&program);
        for found in program.diagnostics.iter().chain(&report.diagnostics) {
            lang::diagnostic::render(&program.sources, found, lang::diagnostic::Style::Ansi);
        }
    }
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
        let parsed = lang::parser::parse(FileId::default(), &text);
        assert!(!parsed.diagnostics.is_empty());
    }
}

/// The best of ten attempts: other programs may run beside.
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
            let parsed = lang::parser::parse(FileId::default(), &text);
            assert!(parsed.file.items.len() > 100);
            start.elapsed()
        })
        .min();
    assert!(best.is_some_and(|best| best.as_millis() < 100), "{best:?}");
}
