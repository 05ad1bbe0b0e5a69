//! Error messages for text that does not follow the grammar.

use tensorloom_lang::diagnostic::{ColorStyle, render_all};

fn findings(text: &str) -> String {
    let mut sources = tensorloom_lang::Sources::new();
    let id = sources.add("a.module", text);
    let parsed = tensorloom_lang::parser::parse(id, sources.file(id).text());
    render_all(&sources, &parsed.diagnostics, ColorStyle::Plain)
}

#[test]
fn a_file_with_five_mistakes_reports_five() {
    let text = "\
import std.
module First(a: int:
  params:
    w: [a, a
  forward:
    in [B, a]
    graph:
      in -> relu( -> y
      y -> relu()

foo Second():
  forward:
    ...
";
    let found = findings(text);
    let lines: Vec<_> = found.lines().filter(|line| line.contains("a.module:")).collect();
    assert_eq!(lines.len(), 7, "{found}");
    for line in [1, 2, 4, 6, 8, 9, 11] {
        assert!(lines.iter().any(|l| l.contains(&format!("a.module:{line}:"))), "line {line}\n{found}");
    }
}
