//! The table of ops in `docs/ir.md`: names and attributes from the samples, semantics from the doc comments of the ops' types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tensorloom_testing::coverage::each_node;
use tensorloom_testing::samples;

/// The markers around the table.
pub(crate) const BEGIN: &str = "<!-- ops: written by `UPDATE=1 cargo test --test docs` -->";
pub(crate) const END: &str = "<!-- end of ops -->";

/// An op's names and attributes, in the order of the samples.
#[derive(Default)]
struct Seen {
    names: Vec<String>,
    attrs: Vec<String>,
}

/// The comment above a line that starts with `head`: the declaration of a type, or its name in a macro.
fn comment(source: &str, head: &str) -> Option<String> {
    let mut doc: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if !line.starts_with("#[") {
            let rest = line.strip_prefix(head).filter(|r| !r.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
            if rest.is_some() && !doc.is_empty() {
                return Some(
                    doc.join(" ").replace("  ", " ").replace("[`", "`").replace("`]", "`").replace('|', "\\|"),
                );
            }
            doc.clear();
        }
    }
    None
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() { sources(&path, all) } else { all.push(path) }
    }
}

/// One line for each op of the list, in order.
pub(crate) fn table() -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ir/src");
    let read = |p: &Path| std::fs::read_to_string(p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
    let mut files = vec![src.join("scalar.rs")];
    sources(&src.join("ops"), &mut files);
    files.sort();
    let texts: Vec<String> = files.iter().map(|p| read(p)).collect();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for row in samples::all_samples() {
        each_node(&row.graph, &mut |node| {
            let shown = format!("{:?}", node.op);
            let kind = shown.split('(').next().unwrap_or_default().to_string();
            let found = seen.entry(kind).or_default();
            let mut add = |list: fn(&mut Seen) -> &mut Vec<String>, word: &str| {
                if !list(found).iter().any(|w| w == word) {
                    list(found).push(word.to_string());
                }
            };
            add(|s| &mut s.names, node.op.name());
            node.op.attrs().iter().for_each(|(a, _)| add(|s| &mut s.attrs, a));
        });
    }
    let list = read(&src.join("ops/mod.rs"));
    let list = list.split("\nops! {").nth(1).and_then(|l| l.split("\n}").next()).expect("the list");
    let mut out = String::from("| op | attributes | meaning |\n| --- | --- | --- |\n");
    for line in list.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (kind, ty) = line.trim_end_matches("),").split_once('(').expect("a variant with its type");
        let name = ty.rsplit("::").next().expect("a name");
        let op = seen.get(kind).unwrap_or_else(|| panic!("{kind} has no rows"));
        let mut heads = [format!("pub struct {name}"), format!("pub enum {name}"), name.to_string()].into_iter();
        let meaning = heads.find_map(|head| texts.iter().find_map(|t| comment(t, &head)));
        let meaning = meaning.unwrap_or_else(|| panic!("{name} has no comment"));
        let code = |words: &[String]| if words.is_empty() { String::new() } else { format!("`{}`", words.join(" ")) };
        out += &format!("| {} | {} | {meaning} |\n", code(&op.names), code(&op.attrs));
    }
    out
}
