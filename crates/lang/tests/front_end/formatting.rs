//! Every file parses, and formatting preserves its contents.

use crate::corpus::{check_formatting, module_files};

#[test]
fn files_parse_without_findings() {
    for path in module_files() {
        let mut sources = tensorloom_lang::Sources::new();
        let id = sources.add(path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let parsed = tensorloom_lang::parser::parse(id, sources.file(id).text());
        let drawn = tensorloom_lang::diagnostic::render_all(
            &sources,
            &parsed.diagnostics,
            tensorloom_lang::diagnostic::ColorStyle::Plain,
        );
        assert!(drawn.is_empty(), "{drawn}");
    }
}

#[test]
fn formatting_keeps_tree_and_comments_and_settles() {
    for path in module_files() {
        check_formatting(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap());
    }
}

#[test]
fn windows_line_ends_change_nothing() {
    for path in module_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(tensorloom_lang::fmt::format(&text.replace('\n', "\r\n")), tensorloom_lang::fmt::format(&text));
    }
}
