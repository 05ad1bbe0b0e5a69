//! `include_module!("my.module")` compiles a file of the model language to Rust when the crate that includes it is compiled.
//!
//! The file is parsed and checked at compile time. Each diagnostic becomes a rustc error whose text gives the position in the
//! `.module` file (stable Rust can't point into another file) and the rendered diagnostic. The generated code names
//! `::tensorloom`, so a crate that uses the macro depends on `tensorloom` with the feature `include`.

mod codegen;

use lang::diagnostic::{ColorStyle, render};
use lang::library::LibraryLoader;
use lang::resolve::{LoadedFile, Loader, ModuleProgram};
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
        return compile_errors(&[r#"expected the path of a file: include_module!("src/net.module")"#.to_string()]);
    };
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
    expand(&root.join(path)).unwrap_or_else(|found| compile_errors(&found))
}

/// Returns a `compile_error!` for each diagnostic.
fn compile_errors(found: &[String]) -> TokenStream {
    let text: String = found.iter().map(|words| format!("::core::compile_error!({words:?});")).collect();
    text.parse().unwrap_or_default()
}

/// Loads modules from the folder of the included file, and records which files were read.
struct ModuleDirLoader {
    root: PathBuf,
    read: RefCell<Vec<(String, PathBuf, String)>>,
}

impl Loader for ModuleDirLoader {
    fn read(&self, path: &str, _: Option<u32>) -> Option<LoadedFile> {
        let file = self.root.join(format!("{path}.module"));
        let text = std::fs::read_to_string(&file).ok()?;
        let mut read = self.read.borrow_mut();
        if !read.iter().any(|(known, ..)| known == path) {
            read.push((path.to_string(), file.clone(), text.clone()));
        }
        Some(LoadedFile { name: file.display().to_string(), text, version: "local".to_string() })
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
        return Err(vec![format!("{}: no such file; the path must end with .module", path.display())]);
    }
    let root = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let loader = LibraryLoader(ModuleDirLoader { root, read: RefCell::new(Vec::new()) });
    let program = ModuleProgram::load(&stem, &loader);
    let mut found = program.diagnostics.clone();
    found.extend(lang::check::check(&program).diagnostics);
    found.retain(lang::Diagnostic::is_error);
    if !found.is_empty() {
        let words = found.iter().map(|finding| {
            let file = program.sources.file(finding.primary.span.file);
            let place = file.line_column(finding.primary.span.start);
            let drawn = render(&program.sources, finding, ColorStyle::Plain);
            format!("{}:{}:{}: {}\n{drawn}", file.name(), place.line, place.column, finding.message)
        });
        return Err(words.collect());
    }
    let read = loader.0.read.borrow();
    let text = codegen::program(&program, &stem, &read);
    text.parse().map_err(|e| vec![format!("{}: cannot be written as Rust: {e:?}", path.display())])
}
