//! The functions of the prelude: a kernel includes those that it needs.

use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::OnceLock;

static PRELUDE: &str = include_str!("prelude.wgsl");

/// A function: its source, and the indices of the functions that it calls.
struct Function {
    text: &'static str,
    calls: Vec<usize>,
}

struct Library {
    functions: Vec<Function>,
    names: FxHashMap<&'static str, usize>,
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let mut functions = Vec::new();
        let mut names = FxHashMap::default();
        for text in PRELUDE.split("\n\n").filter_map(|part| part.find("fn ").map(|at| &part[at..])) {
            let name = text[3..].split('(').next().unwrap_or_default();
            names.insert(name, functions.len());
            functions.push(Function { text, calls: Vec::new() });
        }
        for f in &mut functions {
            f.calls = words(f.text).filter_map(|w| names.get(w).copied()).collect();
        }
        Library { functions, names }
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// The functions that a source calls, directly or indirectly, in the order of the prelude.
pub(super) fn needed(text: &str) -> String {
    let all = library();
    let mut seen = FxHashSet::default();
    let mut open: Vec<usize> = words(text).filter_map(|w| all.names.get(w).copied()).collect();
    while let Some(f) = open.pop() {
        if seen.insert(f) {
            open.extend(&all.functions[f].calls);
        }
    }
    let mut out = String::new();
    for (i, f) in all.functions.iter().enumerate() {
        if seen.contains(&i) {
            out.push_str(f.text);
            out.push_str("\n\n");
        }
    }
    out
}
