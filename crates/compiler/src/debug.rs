//! Printing every program that is compiled: `LOOM_DEBUG`, or [`set_level`], and where the text goes.
//!
//! `compile` and the backends add sections to a [`Report`], which is written at once when it is dropped. See docs/debugging.md.

use crate::{Explanation, Program};
use ir::Graph;
use rustc_hash::FxHashSet;
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, OnceLock};

/// The level that prints everything.
pub const MAX_LEVEL: u8 = 5;
/// `LOOM_DEBUG` was not read yet.
const UNREAD: u8 = u8::MAX;

static LEVEL: AtomicU8 = AtomicU8::new(UNREAD);
static PROGRAMS: AtomicU32 = AtomicU32::new(0);
static OUTPUT: Mutex<Option<Output>> = Mutex::new(None);
static DISASSEMBLER: OnceLock<fn(&[u8]) -> String> = OnceLock::new();

type Output = Arc<dyn Fn(&str) + Send + Sync>;

/// How much is printed of each program, from 0 to [`MAX_LEVEL`]. The first call reads `LOOM_DEBUG`.
#[inline]
pub fn level() -> u8 {
    match LEVEL.load(Relaxed) {
        UNREAD => read_variable(),
        level => level,
    }
}

/// Sets how much is printed of each program that is compiled from now on, in place of `LOOM_DEBUG`. Each level prints what the levels below
/// it print:
///
/// | level | printed |
/// | --- | --- |
/// | 0 | nothing |
/// | 1 | the graph |
/// | 2 | the graph after each pass that changed it |
/// | 3 | the fusion groups, steps and buffers |
/// | 4 | the loops of each kernel |
/// | 5 | the code of each kernel |
pub fn set_level(level: u8) {
    LEVEL.store(level.min(MAX_LEVEL), Relaxed);
}

/// Sets the level as `LOOM_DEBUG` with this text would: a text that is not a level prints a warning and means 0.
pub fn set_level_from(text: &str) {
    let (level, warning) = parse(text);
    set_level(level);
    warning.iter().for_each(|w| write(w));
}

/// Sets where the text goes: by default to standard error. `f` is called once for each text, from any thread.
pub fn set_output(f: impl Fn(&str) + Send + Sync + 'static) {
    *OUTPUT.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(f));
}

/// Sets the function that prints machine code of this process's instruction set. Without one, machine code is printed in hexadecimal.
pub fn set_disassembler(f: fn(&[u8]) -> String) {
    let _ = DISASSEMBLER.set(f);
}

/// Writes a text if the level is at least this one.
pub fn say(from: u8, text: impl FnOnce() -> String) {
    if level() >= from {
        write(&text());
    }
}

#[cold]
fn read_variable() -> u8 {
    static READ: Once = Once::new();
    let mut warning = None;
    READ.call_once(|| {
        let (level, wrong) = parse(&std::env::var_os("LOOM_DEBUG").unwrap_or_default().to_string_lossy());
        // A level that another thread has set meanwhile stays.
        let _ = LEVEL.compare_exchange(UNREAD, level, Relaxed, Relaxed);
        warning = wrong;
    });
    warning.iter().for_each(|w| write(w));
    level()
}

/// The level of a text, and a warning if it is not one.
fn parse(text: &str) -> (u8, Option<String>) {
    match text.trim().parse() {
        Ok(level @ 0..=MAX_LEVEL) => (level, None),
        _ if text.trim().is_empty() => (0, None),
        _ => (0, Some(format!("warning: LOOM_DEBUG={text} is not a level from 0 to 5; nothing is printed"))),
    }
}

fn write(text: &str) {
    let (text, output) = (text.trim_end(), OUTPUT.lock().unwrap_or_else(|e| e.into_inner()).clone());
    match output {
        Some(f) => f(text),
        // One call, so that texts of several threads and processes do not mix. There is nowhere to report a failure.
        None => drop(std::io::stderr().lock().write_all(format!("{text}\n").as_bytes())),
    }
}

/// Machine code as text: its instructions if there is a disassembler ([`set_disassembler`]), else its bytes.
pub fn machine_code(bytes: &[u8]) -> String {
    DISASSEMBLER.get().map_or_else(|| hexadecimal(bytes), |f| f(bytes))
}

/// Bytes as text, 32 on a line behind their offset.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (i, line) in bytes.chunks(32).enumerate() {
        let _ = write!(text, "{:6x} ", i * 32);
        for byte in line {
            let _ = write!(text, " {byte:02x}");
        }
        text.push('\n');
    }
    text
}

/// What is printed of one program. It is written when it is dropped, also if compilation fails.
pub struct Report {
    level: u8,
    number: u32,
    heading: String,
    sections: String,
    /// The last graph that was printed, and how many nodes it has.
    graph: (String, usize),
    /// Kernels that were printed.
    printed: FxHashSet<String>,
}

impl Report {
    fn new(level: u8, number: u32, heading: String) -> Report {
        let (sections, printed) = (String::new(), FxHashSet::default());
        Report { level, number, heading, sections, graph: Default::default(), printed }
    }

    /// The report on the compilation of a graph, unless the level is 0.
    pub(crate) fn compilation(graph: &Graph, target: &str) -> Option<Report> {
        let level = level();
        if level == 0 {
            return None;
        }
        let (number, nodes) = (next_number(), graph.nodes().len());
        let mut report = Report::new(level, number, format!("program {number}: {}, {target}", count(nodes, "node")));
        report.graph = (graph.to_string(), nodes);
        report.sections = report.graph.0.clone();
        Some(report)
    }

    /// The report on the code of a program that a backend loads, from level 5 on.
    pub fn code(program: &Program, backend: impl FnOnce() -> String) -> Option<Report> {
        let level = level();
        if level < 5 {
            return None;
        }
        // A program that was saved, or compiled at level 0, has no number.
        let number = if program.number == 0 { next_number() } else { program.number };
        Some(Report::new(level, number, format!("program {number}: code, {}", backend())))
    }

    /// The number of the program.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether the report explains fusion.
    pub(crate) fn explains(&self) -> bool {
        self.level >= 3
    }

    /// Adds the result of a pass, if it changed the graph.
    pub(crate) fn pass(&mut self, name: &str, graph: &Graph) {
        if self.level < 2 {
            return;
        }
        let (text, nodes) = (graph.to_string(), graph.nodes().len());
        if text != self.graph.0 {
            let before = self.graph.1;
            self.section(format_args!("pass {name}: {before} -> {}", count(nodes, "node")), &text);
            self.graph = (text, nodes);
        }
    }

    /// Adds the compiled program.
    pub(crate) fn program(&mut self, program: &Program, explanation: &Explanation) {
        if self.level >= 3 {
            self.section("steps and what is fused into them", &explanation.to_string());
            let (steps, buffers) = (count(program.steps.len(), "step"), count(program.buffers.len(), "buffer"));
            self.section(format_args!("schedule: {steps}, {buffers}"), &program.to_string());
        }
        if self.level >= 4 {
            for step in &program.steps {
                step.kernels(&mut |k| self.kernel("loops of", &k.name, &k.to_string()));
            }
        }
    }

    /// Adds the code of a kernel, once for each name and code.
    pub fn kernel_code(&mut self, name: &str, code: &str) {
        self.kernel("code of", name, code);
    }

    fn kernel(&mut self, what: &str, name: &str, text: &str) {
        if self.printed.insert(format!("{name}\n{text}")) {
            self.section(format_args!("{what} {name}"), text);
        }
    }

    fn section(&mut self, title: impl Display, text: &str) {
        let _ = write!(self.sections, "-- {title}\n{}\n", text.trim_end());
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.sections.is_empty() {
            write(&format!("== {}\n{}", self.heading, self.sections));
        }
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn next_number() -> u32 {
    PROGRAMS.fetch_add(1, Relaxed) + 1
}
