//! Checks that `docs/ir.md` and `docs/add-an-op.md` are up to date.

#[path = "docs/op_table.rs"]
mod op_table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tensorloom_testing::coverage::op_name;
use tensorloom_testing::samples;

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ir.md");
    std::fs::read_to_string(path).expect("docs/ir.md is in the repository")
}

#[test]
fn its_graphs_parse_and_round_trip() {
    let page = page();
    let blocks: Vec<&str> = page.split("```ir\n").skip(1).filter_map(|b| b.split("```").next()).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        let graph = ir::text::parse(block).unwrap_or_else(|e| panic!("{e}\n{block}"));
        tensorloom_testing::check::check_text_roundtrip(&graph).unwrap();
    }
}

/// The page's table of ops must match the sources and the samples; `UPDATE=1 cargo test --test docs` rewrites it.
#[test]
fn its_table_of_ops_is_up_to_date() {
    let (page, table) = (page(), op_table::table());
    let (start, end) = (page.find(op_table::BEGIN).expect("it begins"), page.find(op_table::END).expect("it ends"));
    let new = format!("{}{}\n{table}{}", &page[..start], op_table::BEGIN, &page[end..]);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join("docs/ir.md"), &new).expect("docs/ir.md can be written");
        return;
    }
    let differs = new.lines().zip(page.lines()).find(|(a, b)| a != b);
    assert!(new == page, "docs/ir.md is old, write it anew with UPDATE=1: {differs:?}");
}

#[test]
fn it_names_every_op_and_composite() {
    let page = page();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut names: BTreeSet<String> = ir::composites::COMPOSITES.iter().map(|f| f.name.to_string()).collect();
    for node in samples::all_samples().iter().flat_map(|r| r.graph.nodes()) {
        let name = op_name(&node.op);
        if !name.starts_with("sample_") {
            names.insert(name);
        }
        names.insert(node.op.name().to_string());
        for (attr, _) in node.op.attrs() {
            names.insert(attr.to_string());
        }
    }
    let missing: Vec<&String> = names.iter().filter(|n| !words.contains(n.as_str())).collect();
    assert!(missing.is_empty(), "docs/ir.md does not mention {missing:?}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Lines without indentation and comments, which the page may omit or add.
fn bare(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

/// The code blocks of a page, with the text before each.
fn pieces(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let fences = page.match_indices("```rust\n").chain(page.match_indices("```python\n"));
    fences.map(|(at, fence)| page.split_at(at + fence.len()))
}

/// The example of `docs/add-an-op.md` exists in the sources: every code block occurs in the file that is named before it.
#[test]
fn the_op_of_the_example_is_where_the_page_puts_it() {
    let page = text("docs/add-an-op.md");
    let mut checked = 0;
    for (before, after) in pieces(&page) {
        let code = after.split("```").next().expect("it ends");
        let intro = before.trim_end().trim_end_matches("```rust").trim_end_matches("```python").trim_end();
        let paragraph = intro.rsplit("\n\n").next().expect("there is one");
        let path = paragraph.split('`').rfind(|word| word.contains('/')).expect("a file is named before each piece");
        let source = text(path);
        let (wanted, found) = (bare(code), bare(&source));
        let there = found.windows(wanted.len()).any(|lines| lines == wanted);
        assert!(there && !wanted.is_empty(), "{path} has not what docs/add-an-op.md shows of it:\n{code}");
        checked += 1;
    }
    assert!(checked >= 7, "{checked} pieces");
}

/// Every source that mentions the example's op is listed on the page.
#[test]
fn no_place_of_the_example_is_kept_secret() {
    let page = text("docs/add-an-op.md");
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            match path.is_dir() {
                true if entry.file_name() != "target" => folders.push(path),
                true => {}
                false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
                false => {}
            }
        }
    }
    let mut spoken = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).expect("readable");
        let mut words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // Split in two, so that this file does not mention it.
        let table = file.ends_with("table_np.rs") && source.contains(concat!("\"fl", "ip\""));
        if !words.any(|word| word == concat!("Fl", "ip")) && !table {
            continue;
        }
        spoken += 1;
        let path = file.strip_prefix(root()).expect("inside").display().to_string();
        assert!(page.contains(&path), "{path} speaks of the op, and docs/add-an-op.md says nothing of it");
    }
    assert!(spoken > 10, "{spoken} files");
    let places =
        page.lines().filter(|line| line.starts_with("| ") && line[2..].starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(places.count(), 5, "places of the first table");
}
