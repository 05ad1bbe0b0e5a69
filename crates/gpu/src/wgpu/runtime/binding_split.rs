//! Splits memory that exceeds the binding size limit into several bindings; the shader selects the part of each word.

use crate::wgpu::{Binding, ShaderSource};
use std::collections::BTreeSet;

/// Rewrites a shader whose binding i is bound in `parts[i]` consecutive parts, each of `words` words except the last.
pub(super) fn split(text: ShaderSource, parts: &[usize], words: usize) -> ShaderSource {
    if parts.iter().all(|n| *n <= 1) {
        return text;
    }
    // The first binding of each binding's parts.
    let mut first = Vec::with_capacity(parts.len());
    let mut count = 0;
    for n in parts {
        first.push(count);
        count += n.max(&1);
    }
    let mut bindings = Vec::with_capacity(count);
    for (b, n) in text.bindings.iter().zip(parts) {
        bindings.extend(std::iter::repeat_n(*b, *n.max(&1)));
    }
    let mut source = String::new();
    for line in text.source.lines() {
        match declared(line) {
            Some((i, words_of)) if i < parts.len() => {
                for k in first[i]..first[i] + parts[i].max(1) {
                    source += &declaration(k, bindings[k], words_of);
                }
            }
            _ => {
                source += line;
                source.push('\n');
            }
        }
    }
    // From the last to the first, so that a new name is never mistaken for an old one.
    let mut helpers = BTreeSet::new();
    for i in (0..parts.len()).rev() {
        source = accesses(&source, i, first[i], parts[i].max(1), &mut helpers);
    }
    for h in helpers {
        source += &h.text(words);
    }
    ShaderSource { source, bindings, ..text }
}

fn declaration(k: usize, b: Binding, words: &str) -> String {
    let access = if b.writable { "read_write" } else { "read" };
    format!("@group(0) @binding({k}) var<storage, {access}> g{k}: array<{words}>;\n")
}

/// The index of the binding that a line declares, and its word type.
fn declared(line: &str) -> Option<(usize, &str)> {
    let rest = line.strip_prefix("@group(0) @binding(")?;
    let (number, rest) = rest.split_once(')')?;
    let words = rest.split_once(": array<")?.1.strip_suffix(">;")?;
    Some((number.parse().ok()?, words))
}

/// A function that accesses a word in any part.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct WordHelper {
    first: usize,
    parts: usize,
    how: AccessMethod,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum AccessMethod {
    Read,
    Write,
    /// An atomic function, which returns the old value.
    Atomic(String),
}

impl WordHelper {
    fn name(&self) -> String {
        match &self.how {
            AccessMethod::Read => format!("part_read{}", self.first),
            AccessMethod::Write => format!("part_write{}", self.first),
            AccessMethod::Atomic(f) => format!("part_{f}{}", self.first),
        }
    }

    fn text(&self, words: usize) -> String {
        let loads = self.how == AccessMethod::Atomic("atomicLoad".into());
        let gives =
            matches!(&self.how, AccessMethod::Atomic(f) if f != "atomicStore") || self.how == AccessMethod::Read;
        let takes = if self.how == AccessMethod::Read || loads { "" } else { ", x: u32" };
        let one = |k: usize| {
            let at = match k {
                0 => format!("g{}[at]", self.first),
                _ => format!("g{}[at - {}u]", self.first + k, k * words),
            };
            match &self.how {
                AccessMethod::Read => format!("return {at};"),
                AccessMethod::Write => format!("{at} = x; return;"),
                AccessMethod::Atomic(f) if loads => format!("return {f}(&{at});"),
                AccessMethod::Atomic(f) if gives => format!("return {f}(&{at}, x);"),
                AccessMethod::Atomic(f) => format!("{f}(&{at}, x); return;"),
            }
        };
        let result = if gives { " -> u32" } else { "" };
        let mut t = format!("fn {}(at: u32{takes}){result} {{\n", self.name());
        for k in 0..self.parts - 1 {
            t += &format!("    if (at < {}u) {{ {} }}\n", (k + 1) * words, one(k));
        }
        t + &format!("    {}\n}}\n", one(self.parts - 1))
    }
}

/// Rewrites accesses to binding `i` as accesses to `first`, or as calls of a function if it is split.
fn accesses(text: &str, i: usize, first: usize, parts: usize, helpers: &mut BTreeSet<WordHelper>) -> String {
    let name = format!("g{i}[");
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&name) {
        let (before, found) = rest.split_at(at);
        let inside = before.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        out += before;
        if inside || parts == 1 {
            out += if inside { &name } else { "" };
            if !inside {
                out += &format!("g{first}[");
            }
            rest = &found[name.len()..];
            continue;
        }
        let (index, after) = matching_bracket(&found[name.len()..]);
        let index = accesses(index, i, first, parts, helpers);
        let mut call = |how: AccessMethod| {
            let helper = WordHelper { first, parts, how };
            let name = helper.name();
            helpers.insert(helper);
            name
        };
        // `atomicXor(&` is before it, and `, value)` or `)` after it.
        let function = out.strip_suffix("(&").and_then(|t| {
            let start = t.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |k| k + 1);
            t[start..].starts_with("atomic").then(|| t[start..].to_string())
        });
        if let Some(f) = function {
            out.truncate(out.len() - f.len() - 2);
            out += &format!("{}({index}", call(AccessMethod::Atomic(f)));
            rest = after;
            continue;
        }
        let assigned = after.trim_start().strip_prefix('=').filter(|t| !t.starts_with('='));
        if let Some((value, behind)) = assigned.and_then(|t| t.split_once(';')) {
            let value = accesses(value.trim(), i, first, parts, helpers);
            let helper = WordHelper { first, parts, how: AccessMethod::Write };
            out += &format!("{}({index}, {value});", helper.name());
            helpers.insert(helper);
            rest = behind;
        } else {
            out += &format!("{}({index})", call(AccessMethod::Read));
            rest = after;
        }
    }
    out + rest
}

/// The text inside an opened bracket, and the text after it.
fn matching_bracket(text: &str) -> (&str, &str) {
    let mut depth = 1;
    for (k, c) in text.char_indices() {
        depth += (c == '[') as i32 - (c == ']') as i32;
        if depth == 0 {
            return (&text[..k], &text[k + 1..]);
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: &[&str], writable: &[bool], parts: &[usize]) -> String {
        let declared: String =
            writable.iter().enumerate().map(|(k, w)| declaration(k, Binding { writable: *w }, "u32")).collect();
        let bindings = writable.iter().map(|w| Binding { writable: *w }).collect();
        let text = ShaderSource { source: declared + &lines.join("\n"), bindings, params: 0, shared: 0 };
        split(text, parts, 64).source
    }

    #[test]
    fn words_are_found_in_their_parts() {
        let t = source(
            &[
                "let x = g0[g1[i] + 1u] == g10[0];",
                "g1[x[0]] = g0[2u];",
                "atomicXor(&g1[e >> 1u], y); z = atomicLoad(&g1[e]);",
            ],
            &[false, true],
            &[2, 3],
        );
        for want in [
            "let x = part_read0(part_read2(i) + 1u) == g10[0];",
            "part_write2(x[0], part_read0(2u));",
            "part_atomicXor2(e >> 1u, y); z = part_atomicLoad2(e);",
            "@group(0) @binding(4) var<storage, read_write> g4: array<u32>;",
            "@group(0) @binding(1) var<storage, read> g1: array<u32>;",
            "    if (at < 128u) { return g3[at - 64u]; }\n    return g4[at - 128u];",
        ] {
            assert!(t.contains(want), "{want} is not in\n{t}");
        }
        // Other bindings are only renumbered.
        let t = source(&["g1[i] = g0[i];"], &[false, true], &[2, 1]);
        assert!(t.contains("g2[i] = part_read0(i);"), "{t}");
    }
}
