//! What `docs/ir.md` says holds.

use oracle::coverage::op_name;
use oracle::rows;
use std::collections::BTreeSet;

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
        oracle::check::text(&graph).unwrap();
    }
}

#[test]
fn it_names_every_op_and_composite() {
    let page = page();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut names: BTreeSet<String> = ir::composites::FAMILIES.iter().map(|f| f.name.to_string()).collect();
    for node in rows::all().iter().flat_map(|r| r.graph.nodes()) {
        let name = op_name(&node.op);
        if !name.starts_with("sample_") {
            names.insert(name);
        }
        names.insert(node.op.name().to_string());
        for (attr, _) in node.op.rules().attrs() {
            names.insert(attr.to_string());
        }
    }
    let missing: Vec<&String> = names.iter().filter(|n| !words.contains(n.as_str())).collect();
    assert!(missing.is_empty(), "docs/ir.md does not mention {missing:?}");
}
