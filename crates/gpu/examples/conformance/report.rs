//! The report of a part's process to its supervisor: lines on standard output, details in a file.

use crate::{Arguments, Slice};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// The maximum number of failures with details.
const KEPT: usize = 12;

pub(crate) struct Report {
    file: PathBuf,
    checks: usize,
    failures: usize,
    started: Instant,
}

impl Report {
    pub(crate) fn new(arguments: &Arguments, part: &str, slice: Slice) -> Report {
        let file = arguments.out.join(format!("{part}-{}-{}.part", slice.i, slice.from));
        Report { file, checks: 0, failures: 0, started: Instant::now() }
    }

    /// Reports the next check, so that a hang can be attributed. `number` is the check to continue with afterwards.
    pub(crate) fn at(&mut self, number: u64, name: &str) {
        println!("at {number} {name}");
        let _ = std::io::stdout().flush();
        self.checks += 1;
    }

    /// Runs one check.
    pub(crate) fn check(
        &mut self,
        name: &str,
        f: impl FnOnce() -> Result<(), String>,
        details: impl FnOnce() -> String,
    ) {
        self.at(u64::MAX, name);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        if let Err(e) = caught.unwrap_or_else(|_| Err("it panicked".into())) {
            self.failed(name, &e, details());
        }
    }

    pub(crate) fn failed(&mut self, name: &str, error: &str, details: String) {
        self.failures += 1;
        let first: String = error.lines().next().unwrap_or_default().chars().take(300).collect();
        println!("bad {name}: {first}");
        let _ = std::io::stdout().flush();
        if self.failures > KEPT {
            return;
        }
        let text = format!("==== {name}\n{}\n\n{}\n", cut(error, 8000), cut(&details, 40_000));
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.file);
        let _ = file.and_then(|mut f| f.write_all(text.as_bytes()));
    }

    pub(crate) fn end(&self) {
        println!("done {} {} {:.1}", self.checks, self.failures, self.started.elapsed().as_secs_f64());
        let _ = std::io::stdout().flush();
    }
}

fn cut(text: &str, chars: usize) -> String {
    if text.len() <= chars { text.to_string() } else { text.chars().take(chars).chain("\n[...]".chars()).collect() }
}
