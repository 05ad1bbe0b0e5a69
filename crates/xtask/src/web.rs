//! `cargo xtask web`: the package for JavaScript and the pages; `cargo xtask test web`: their tests.

#[path = "../../web/surface.rs"]
mod surface;

use crate::{run, run_with};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds everything into `target/web`: `package` (what npm gets) and `site` (static pages).
pub(crate) fn build(root: &Path, release: bool) -> Result<PathBuf, String> {
    toolchain()?;
    let mut words = vec!["build", "-p", "tensorloom-web", "--target", TARGET];
    if release {
        words.extend(["--profile", "web"]);
    }
    run("cargo", &words)?;
    let built = target(root).join(TARGET).join(if release { "web" } else { "debug" }).join("web.wasm");
    let out = target(root).join("web");
    let package = out.join("package");
    folder(&package)?;
    copy(&built, &package.join("tensorloom.wasm"))?;
    copy(&root.join("crates/web/js/index.js"), &package.join("index.js"))?;
    copy(&root.join("crates/web/js/package.json"), &package.join("package.json"))?;
    copy(&root.join("crates/web/README.md"), &package.join("README.md"))?;
    write(&package.join("index.d.ts"), &types(root)?)?;
    let site = out.join("site");
    copy_all(&root.join("web/site"), &site)?;
    copy_all(&package, &site.join("tensorloom"))?;
    println!("{} and {}", package.display(), site.display());
    Ok(out)
}

/// The package's types: what is written by hand, and the functions of the list.
pub(crate) fn types(root: &Path) -> Result<String, String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    let all = surface::functions(&read("docs/functions.json")?);
    let mut text = read("crates/web/js/index.d.ts")?;
    for (module, _) in MODULES {
        text = text.replace(&format!("  // functions of {module}\n"), &surface::types(&all, module));
    }
    Ok(text)
}

/// Modules and their names in JavaScript.
const MODULES: &[(&str, &str)] = &[
    ("np", "numpy"),
    ("lax", "lax"),
    ("nn", "nn"),
    ("random", "random"),
    ("linalg", "linalg"),
    ("fft", "fft"),
    ("special", "scipySpecial"),
    ("optim", "optim"),
];

/// The suite for backends under node, the package's own tests, and, where there is a browser, the pages.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    let out = build(root, false)?;
    run("cargo", &["build", "-p", "tensorloom-wasm", "--example", "suite", "--target", TARGET])?;
    let suite = target(root).join(TARGET).join("debug/examples/suite.wasm");
    let graphs = std::env::var("TENSORLOOM_GRAPHS").unwrap_or_else(|_| "150".into());
    run("node", &["crates/wasm/node/suite.mjs", &suite.to_string_lossy(), &graphs, "1", "3"])?;
    let env = [("TENSORLOOM_PACKAGE", out.join("package").to_string_lossy().into_owned())];
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    run_with("node", &["--test", "crates/web/tests/"], &env)?;
    run("node", &["crates/web/tests/pages/pages.mjs", &out.join("site").to_string_lossy()])
}

/// Sees to it that there is a standard library for pages.
fn toolchain() -> Result<(), String> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| format!("rustc: {e}"))?;
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_string();
    if Path::new(&sysroot).join("lib/rustlib").join(TARGET).is_dir() {
        return Ok(());
    }
    run("rustup", &["target", "add", TARGET])
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(|_| ()).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    folder(to)?;
    let entries = std::fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            copy_all(&path, &to.join(name))?;
        } else {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}
