//! `include_module!("my.module")`: a file of the language becomes Rust when the crate that names it is compiled.
//!
//! The file is parsed and checked then; each finding is an error of rustc, with the place in the `.module` file in its
//! words (stable Rust can't point into another file) and the whole drawing below. What is written names `::tensorloom`, so the crate
//! that uses it depends on `tensorloom` with the feature `include`.

mod write;

use lang::diagnostic::{Style, render};
use lang::library::WithLibrary;
use lang::resolve::{Loaded, Loader, Program};
use proc_macro::{TokenStream, TokenTree};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

pub(crate) fn include_module(input: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = input.into_iter().collect();
    let path = match &tokens[..] {
        [TokenTree::Literal(literal)] => literal.to_string(),
        _ => String::new(),
    };
    let Some(path) = path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) else {
        return errors(&[r#"expected the path of a file: include_module!("src/net.module")"#.to_string()]);
    };
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    expand(&root.join(path)).unwrap_or_else(|found| errors(&found))
}

/// One `compile_error!` for each.
fn errors(found: &[String]) -> TokenStream {
    let text: String = found.iter().map(|words| format!("::core::compile_error!({words:?});")).collect();
    text.parse().unwrap_or_default()
}

/// Files beside the one that is included; remembers which were read.
struct Folder {
    root: PathBuf,
    read: RefCell<Vec<(String, PathBuf, String)>>,
}

impl Loader for Folder {
    fn read(&self, path: &str, _: Option<u32>) -> Option<Loaded> {
        let file = self.root.join(format!("{path}.module"));
        let text = std::fs::read_to_string(&file).ok()?;
        let mut read = self.read.borrow_mut();
        if !read.iter().any(|(known, ..)| known == path) {
            read.push((path.to_string(), file.clone(), text.clone()));
        }
        Some(Loaded { name: file.display().to_string(), text, version: "local".to_string() })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(folder)).into_iter().flatten().filter_map(Result::ok);
        let stems = entries.filter_map(|entry| {
            let path = entry.path();
            (path.extension()? == "module").then(|| path.file_stem()?.to_str().map(String::from))?
        });
        let mut names: Vec<String> =
            stems.map(|stem| if folder.is_empty() { stem } else { format!("{folder}/{stem}") }).collect();
        names.sort();
        names
    }

    fn lock(&self) -> Option<String> {
        std::fs::read_to_string(self.root.join("module.lock")).ok()
    }
}

fn expand(path: &Path) -> Result<TokenStream, Vec<String>> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_string();
    if !path.is_file() || path.extension().is_none_or(|end| end != "module") {
        return Err(vec![format!("{}: no such file; a path ends with .module", path.display())]);
    }
    let root = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let loader = WithLibrary(Folder { root, read: RefCell::new(Vec::new()) });
    let program = Program::load(&stem, &loader);
    let mut found = program.diagnostics.clone();
    found.extend(lang::check::check(&program).diagnostics);
    found.retain(lang::Diagnostic::is_error);
    if !found.is_empty() {
        let words = found.iter().map(|finding| {
            let file = program.sources.file(finding.primary.span.file);
            let place = file.line_column(finding.primary.span.start);
            let drawn = render(&program.sources, finding, Style::Plain);
            format!("{}:{}:{}: {}\n{drawn}", file.name(), place.line, place.column, finding.message)
        });
        return Err(words.collect());
    }
    let read = loader.0.read.borrow();
    let text = write::program(&program, &stem, &read);
    text.parse().map_err(|e| vec![format!("{}: cannot be written as Rust: {e:?}", path.display())])
}
