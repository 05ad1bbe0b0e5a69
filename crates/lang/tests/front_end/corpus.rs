//! The test files, and comparison of syntax trees.

use std::path::{Path, PathBuf};
use tensorloom_lang::FileId;

/// Every `.module` file under `tests/modules`, in order.
pub(crate) fn module_files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/modules");
    let mut files: Vec<_> = ["syntax", "check"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// The separator of the texts in `kept.txt`.
pub(crate) const CASE: &str = "#@ case\n";

/// The path of the texts that fuzzing has saved.
pub(crate) fn kept_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept.txt")
}

/// Texts that fuzzing has saved.
pub(crate) fn kept() -> Vec<String> {
    let all = std::fs::read_to_string(kept_path()).unwrap();
    all.split(CASE).skip(1).map(String::from).collect()
}

/// The tree's debug output without its spans, which print as `@3..7`.
pub(crate) fn tree_without_spans(text: &str) -> String {
    let tree = format!("{:#?}", tensorloom_lang::parser::parse(FileId::default(), text).file);
    let is_span = |line: &str| {
        let line = line.trim().trim_end_matches(',');
        let line = line.strip_prefix("span: ").unwrap_or(line);
        line.strip_prefix('@').is_some_and(|rest| rest.contains(".."))
    };
    tree.lines().filter(|line| !is_span(line)).collect::<Vec<_>>().join("\n")
}

/// The words of the comments, sorted.
pub(crate) fn comments(text: &str) -> Vec<String> {
    let parsed = tensorloom_lang::parser::parse(FileId::default(), text);
    let mut comments: Vec<String> = parsed
        .comments
        .iter()
        .map(|c| text[c.span.start as usize + 1..c.span.end as usize].trim().to_string())
        .collect();
    comments.sort();
    comments
}

/// Formats a text, and checks that tree and comments are unchanged and that formatting is idempotent.
pub(crate) fn check_formatting(name: &str, text: &str) {
    let Ok(once) = tensorloom_lang::fmt::format(text) else { return };
    let twice = tensorloom_lang::fmt::format(&once)
        .unwrap_or_else(|d| panic!("{name}: broken: {d:#?}\n--- from\n{text}\n--- to\n{once}"));
    assert!(once == twice, "{name}: not settled\n--- from\n{text}\n--- once\n{once}\n--- twice\n{twice}");
    let (before, after) = (tree_without_spans(text), tree_without_spans(&once));
    let changed = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    assert!(before == after, "{name}: the tree changed: {changed:?}\n--- from\n{text}\n--- to\n{once}");
    assert_eq!(comments(text), comments(&once), "{name}: comments changed\n--- from\n{text}\n--- to\n{once}");
}
