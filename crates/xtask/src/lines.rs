//! Counts the lines of Rust per crate, source and tests separately, in the working tree and in a revision.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Line counts of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LineCounts {
    source: i64,
    tests: i64,
}

/// Prints a table that compares the working tree with `revision`, or with the last tag if there is one.
pub(crate) fn lines(root: &Path, revision: Option<&str>) -> Result<(), String> {
    let last_tag = || git(root, &["describe", "--tags", "--abbrev=0"]).ok().map(|tag| tag.trim().to_string());
    let revision = revision.map(str::to_string).or_else(last_tag);
    let now = count(&working_tree(root)?);
    let before = revision.as_deref().map(|revision| Ok(count(&tree_of(root, revision)?))).transpose();
    print!("{}", table(&now, before.as_ref().map_err(String::clone)?.as_ref(), revision.as_deref().unwrap_or("")));
    Ok(())
}

/// Returns the Rust files below `crates`, by path.
type Files = BTreeMap<String, String>;

fn working_tree(root: &Path) -> Result<Files, String> {
    let list = git(root, &["ls-files", "--cached", "--others", "--exclude-standard", "--", "crates/*.rs"])?;
    // A file that was removed but is still in the index is skipped.
    let read = |path: &str| Some((path.to_string(), std::fs::read_to_string(root.join(path)).ok()?));
    Ok(list.lines().filter_map(read).collect())
}

fn tree_of(root: &Path, revision: &str) -> Result<Files, String> {
    let list = git(root, &["ls-tree", "-r", "--name-only", revision, "--", "crates"])?;
    let paths: Vec<&str> = list.lines().filter(|path| path.ends_with(".rs")).collect();
    let failed = |e: std::io::Error| format!("git cat-file: {e}");
    let mut command = Command::new("git");
    command.args(["cat-file", "--batch"]).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let names: String = paths.iter().map(|path| format!("{revision}:{path}\n")).collect();
    let mut to = child.stdin.take().ok_or("git cat-file has no input")?;
    let writer = std::thread::spawn(move || to.write_all(names.as_bytes()));
    let mut all = Vec::new();
    child.stdout.take().ok_or("git cat-file has no output")?.read_to_end(&mut all).map_err(failed)?;
    writer.join().map_err(|_| "git cat-file was not written to")?.map_err(failed)?;
    child.wait().map_err(failed)?;
    let (mut files, mut rest) = (Files::new(), &all[..]);
    for path in paths {
        // The output of git is a header `<object> blob <size>`, the contents and a newline.
        let end = rest.iter().position(|b| *b == b'\n').ok_or_else(|| format!("git gave no {path}"))?;
        let header = String::from_utf8_lossy(&rest[..end]);
        let size = header.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
        let size = size.filter(|size| end + 1 + size < rest.len()).ok_or_else(|| format!("git gave no {path}"))?;
        files.insert(path.to_string(), String::from_utf8_lossy(&rest[end + 1..end + 1 + size]).into_owned());
        rest = &rest[end + 2 + size..];
    }
    Ok(files)
}

fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let out = Command::new("git").args(args).current_dir(root).output().map_err(|e| format!("git: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim())),
    }
}

fn count(files: &Files) -> BTreeMap<String, LineCounts> {
    let mut test_files = BTreeSet::new();
    let mut parts = BTreeMap::new();
    for (path, text) in files {
        let (lines, modules) = split_tests(text);
        // Submodules of `a.rs` are in the folder `a`; submodules of `mod.rs`, `lib.rs` and `main.rs` are in the same folder.
        let stem = path.trim_end_matches(".rs");
        let folder = ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
        test_files.extend(modules.iter().map(|module| format!("{folder}/{module}.rs")));
        parts.insert(path, lines);
    }
    let mut crates: BTreeMap<String, LineCounts> = BTreeMap::new();
    for (path, lines) in parts {
        let name = path.split('/').nth(1).unwrap_or_default();
        let own = crates.entry(name.to_string()).or_default();
        if path.contains("/tests/") || path.contains("/benches/") || test_files.contains(path) {
            own.tests += lines.source + lines.tests;
        } else {
            own.source += lines.source;
            own.tests += lines.tests;
        }
    }
    crates
}

/// Counts the lines of a file, with `#[cfg(test)]` modules counted separately, and returns the test modules that have their own
/// files.
fn split_tests(text: &str) -> (LineCounts, Vec<String>) {
    let (mut lines, mut modules) = (LineCounts::default(), Vec::new());
    // The line that closes the test module that contains the current line.
    let mut end: Option<String> = None;
    let mut all = text.lines().peekable();
    while let Some(line) = all.next() {
        match &end {
            Some(last) => {
                lines.tests += 1;
                if line == last {
                    end = None;
                }
                continue;
            }
            None if line.trim_start() != "#[cfg(test)]" => lines.source += 1,
            None => {
                lines.tests += 1;
                let indent = &line[..line.len() - line.trim_start().len()];
                let next = all.peek().map_or("", |next| next.trim());
                let name = next.split_once("mod ").map_or("", |(_, name)| name);
                if let Some(name) = name.strip_suffix(';') {
                    modules.push(name.to_string());
                } else if name.ends_with('{') {
                    end = Some(format!("{indent}}}"));
                }
            }
        }
    }
    (lines, modules)
}

fn table(now: &BTreeMap<String, LineCounts>, before: Option<&BTreeMap<String, LineCounts>>, revision: &str) -> String {
    let names: BTreeSet<&String> = now.keys().chain(before.into_iter().flat_map(BTreeMap::keys)).collect();
    let of = |all: &BTreeMap<String, LineCounts>, name: &str| all.get(name).copied().unwrap_or_default();
    let mut rows: Vec<(String, LineCounts, LineCounts)> = Vec::new();
    let mut sum = (LineCounts::default(), LineCounts::default());
    for name in names {
        let row = (of(now, name), before.map_or(LineCounts::default(), |before| of(before, name)));
        for (total, lines) in [(&mut sum.0, row.0), (&mut sum.1, row.1)] {
            total.source += lines.source;
            total.tests += lines.tests;
        }
        rows.push((name.clone(), row.0, row.1));
    }
    rows.push(("all".into(), sum.0, sum.1));
    let mut out = format!("{:<12} {:>8} {:>8}", "crate", "source", "tests");
    if before.is_some() {
        out += &format!("   since {revision}: source, tests");
    }
    out.push('\n');
    for (name, now, old) in rows {
        out += &format!("{name:<12} {:>8} {:>8}", now.source, now.tests);
        if before.is_some() {
            out += &format!("   {:>+8} {:>+8}", now.source - old.source, now.tests - old.tests);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_apart() {
        let text = "//! A.\nfn a() {}\n\n#[cfg(test)]\nmod more;\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
        assert_eq!(split_tests(text), (LineCounts { source: 5, tests: 6 }, vec!["more".to_string()]));
        let files: Files = [
            ("crates/a/src/x.rs", text),
            ("crates/a/src/x/more.rs", "1\n2\n"),
            ("crates/a/src/lib.rs", "#[cfg(test)]\npub(crate) mod other;\n"),
            ("crates/a/src/other.rs", "1\n2\n3\n"),
            ("crates/a/src/y/mod.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/y/tests.rs", "1\n"),
            ("crates/a/tests/z.rs", "1\n"),
            ("crates/b/src/lib.rs", "1\n"),
        ]
        .map(|(path, text)| (path.to_string(), text.to_string()))
        .into();
        let found = count(&files);
        // The declaration of a module with its own file counts as a line of source.
        assert_eq!(found["a"], LineCounts { source: 5 + 1 + 1, tests: 6 + 2 + 1 + 3 + 1 + 1 + 1 });
        assert_eq!(found["b"], LineCounts { source: 1, tests: 0 });
        let shown = table(&found, Some(&BTreeMap::new()), "v1");
        assert!(shown.contains("since v1") && shown.lines().last().is_some_and(|last| last.contains("+8")), "{shown}");
    }
}
