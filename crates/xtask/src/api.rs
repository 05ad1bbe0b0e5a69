//! `api` lists the public items of the library crates, one line per item, as rustdoc shows them.
//!
//! The lists are stored in `docs/api`. A line that is removed or changed may break users. The check reports such lines; after an
//! intended change, `--write` updates the lists, so that the change appears in review.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The libraries and their names in the lists.
const CRATES: [(&str, &str); 2] = [("tensorloom", "tensorloom"), ("tensorloom_vsla", "vsla")];

/// Compares the lists with the documentation that `cargo doc` generates, or writes them.
pub(crate) fn api(root: &Path, write: bool) -> Result<(), String> {
    crate::run("cargo", &["doc", "--workspace", "--no-deps", "--features", crate::FEATURES])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = root.join("docs/api");
    let mut wrong = Vec::new();
    for (library, name) in CRATES {
        let mut found = BTreeSet::new();
        items(&target.join("doc").join(library), name, &mut found)?;
        let file = folder.join(format!("{name}.txt"));
        if write {
            fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            let text: String = found.iter().map(|l| format!("{l}\n")).collect();
            fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
            println!("{}: {} items", file.display(), found.len());
            continue;
        }
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let known: BTreeSet<String> = text.lines().map(str::to_string).collect();
        wrong.extend(known.difference(&found).map(|l| format!("- {l}")));
        wrong.extend(found.difference(&known).map(|l| format!("+ {l}")));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let many = wrong.len();
    wrong.truncate(40);
    Err(format!(
        "{}\n{many} lines differ from docs/api. What goes away (-) breaks who uses it: say so in CHANGELOG.md; then \
         `cargo xtask api --write`.",
        wrong.join("\n")
    ))
}

/// Returns the items of a folder of rustdoc pages and its subfolders.
fn items(folder: &Path, path: &str, into: &mut BTreeSet<String>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            items(&entry.path(), &format!("{path}::{name}"), into)?;
        } else if let Some((kind, item)) = name.strip_suffix(".html").and_then(|n| n.split_once('.')) {
            let page = fs::read_to_string(entry.path()).map_err(|e| format!("{name}: {e}"))?;
            lines(&page, &format!("{kind} {path}::{item}"), into);
        }
    }
    Ok(())
}

/// Adds what a page declares: the item, its methods, and the traits that it implements.
fn lines(page: &str, name: &str, into: &mut BTreeSet<String>) {
    // The page of a moved item only redirects to another page.
    let Some(declared) = text_between(page, "<pre class=\"rust item-decl\"><code>", "</code></pre>") else { return };
    into.insert(format!("{name}: {}", strip_html(declared)));
    // Implementors of a trait are listed on the pages of the types. Auto traits and blanket implementations are not listed.
    let ends = ["synthetic-implementations", "blanket-implementations", "implementors", "foreign-impls"];
    let end = ends.iter().filter_map(|id| page.find(&format!("<h2 id=\"{id}\""))).min().unwrap_or(page.len());
    let traits = page.find("<h2 id=\"trait-implementations\"").unwrap_or(end).min(end);
    for (part, heading) in [(&page[..traits], "h4"), (&page[traits..end], "h3")] {
        let (open, close) = (format!("<{heading} class=\"code-header\">"), format!("</{heading}>"));
        for piece in part.split(&open).skip(1) {
            if let Some(text) = piece.split(&close).next() {
                into.insert(format!("{name}: {}", strip_html(text)));
            }
        }
    }
}

fn text_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let from = text.find(open)? + open.len();
    let to = text[from..].find(close)? + from;
    Some(&text[from..to])
}

/// Returns the text without tags, entities and line breaks.
fn strip_html(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        // The `<summary>` elements that fold long declarations are skipped.
        rest =
            rest[at..].strip_prefix("<summary").map_or(&rest[at..], |s| s.split_once("</summary>").map_or("", |x| x.1));
        rest = match rest.strip_prefix('<') {
            Some(tag) => tag.split_once('>').map_or("", |x| x.1),
            None => rest,
        };
    }
    text.push_str(rest);
    for (entity, c) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
    {
        text = text.replace(entity, c);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_lines() {
        let page = "<pre class=\"rust item-decl\"><code>pub struct A&lt;T&gt;(<span>/* private */</span>);</code></pre>\
                    <h2 id=\"implementations\"></h2><h4 class=\"code-header\">pub fn <a href=\"x\">get</a>(&amp;self)\n -&gt; T</h4>\
                    <h2 id=\"trait-implementations\"></h2><h3 class=\"code-header\">impl Clone for A</h3>\
                    <h4 class=\"code-header\">fn clone</h4><h2 id=\"blanket-implementations\"></h2><h3 class=\"code-header\">no</h3>";
        let mut found = BTreeSet::new();
        lines(page, "struct a::A", &mut found);
        let expected = ["impl Clone for A", "pub fn get(&self) -> T", "pub struct A<T>(/* private */);"];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected.map(|l| format!("struct a::A: {l}")));
    }
}
