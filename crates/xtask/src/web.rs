//! `cargo xtask web` builds the JavaScript package and the web pages; `cargo xtask test web` runs their tests.

#[path = "../../web/surface.rs"]
mod surface;

use crate::{run, run_with};
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";
/// The target with WASI, for the models package, which reads files.
const WASI_TARGET: &str = "wasm32-wasip1";

/// Builds everything into `target/web`: `package` (the npm package) and `site` (static pages).
pub(crate) fn build(root: &Path, release: bool) -> Result<PathBuf, String> {
    let tools = WebToolchain::new(root)?;
    let mut words = vec!["-p", "tensorloom-web"];
    if release {
        words.extend(["--profile", "web"]);
    }
    tools.build(&words)?;
    let built = tools.target.join(TARGET).join(if release { "web" } else { "debug" }).join("tensorloom_web.wasm");
    let out = target(root).join("web");
    let package = out.join("package");
    folder(&package)?;
    copy(&built, &package.join("tensorloom.wasm"))?;
    for name in ["index.js", "forms.js", "gpu.js", "statics.js", "package.json"] {
        copy(&root.join("crates/web/js").join(name), &package.join(name))?;
    }
    copy(&root.join("crates/web/README.md"), &package.join("README.md"))?;
    write(&package.join("index.d.ts"), &types(root)?)?;
    let site = out.join("site");
    copy_all(&root.join("web/site"), &site)?;
    copy_all(&package, &site.join("tensorloom"))?;
    println!("{} and {}", package.display(), site.display());
    Ok(out)
}

/// Builds the WebAssembly program for models into `target/web/site/models`. Only pages that use models load it.
pub(crate) fn models(root: &Path) -> Result<PathBuf, String> {
    let there = sysroot()?.join("lib/rustlib").join(WASI_TARGET).is_dir();
    if !there && run("rustup", &["target", "add", WASI_TARGET]).is_err() {
        return Err(format!(
            "there is no standard library for {WASI_TARGET} here; `rustup target add {WASI_TARGET}` gets it"
        ));
    }
    run("cargo", &["build", "--target", WASI_TARGET, "--profile", "web", "-p", "tensorloom-web"])?;
    let to = target(root).join("web/site/models");
    folder(&to)?;
    copy(&target(root).join(WASI_TARGET).join("web/tensorloom_web.wasm"), &to.join("models.wasm"))?;
    for name in ["models.js", "files.js"] {
        copy(&root.join("crates/web/js").join(name), &to.join(name))?;
    }
    println!("{}", to.display());
    Ok(to)
}

/// Tests the models package under node, and the chat page.
pub(crate) fn test_models(root: &Path) -> Result<(), String> {
    let to = models(root)?;
    run("node", &["crates/web/tests/models.mjs", &to.to_string_lossy()])
}

/// Returns the TypeScript types of the package: the hand-written part and the functions of `docs/functions.json`.
pub(crate) fn types(root: &Path) -> Result<String, String> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
    let all = surface::functions(&read("docs/functions.json")?);
    let mut text = read("crates/web/js/index.d.ts")?;
    for (module, _) in MODULES {
        text = text.replace(&format!("  // functions of {module}\n"), &surface::types(&all, module));
    }
    Ok(text)
}

/// Modules of the function list and their names in JavaScript.
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

/// Runs the backend test suite under node, the tests of the package and, if a browser is installed, the tests of the pages.
pub(crate) fn test(root: &Path) -> Result<(), String> {
    let out = build(root, false)?;
    let tools = WebToolchain::new(root)?;
    tools.build(&["-p", "tensorloom-cpu", "--example", "wasm_suite"])?;
    let suite = tools.target.join(TARGET).join("debug/examples/wasm_suite.wasm");
    let graphs = std::env::var("TENSORLOOM_GRAPHS").unwrap_or_else(|_| "150".into());
    run("node", &["crates/cpu/node/suite.mjs", &suite.to_string_lossy(), &graphs, "1", "3"])?;
    let env = [("TENSORLOOM_PACKAGE", out.join("package").to_string_lossy().into_owned())];
    let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    run_with("node", &["--test", "crates/web/tests/"], &env)?;
    test_types(root, &out)?;
    let site = out.join("site").to_string_lossy().into_owned();
    run("node", &["crates/web/tests/pages/pages.mjs", &site])?;
    tools.build(&["-p", "tensorloom-gpu", "--no-default-features", "--example", "page"])?;
    let suite = tools.target.join(TARGET).join("debug/examples/page.wasm");
    let sample = std::env::var("TENSORLOOM_GRAPHS").unwrap_or_else(|_| "40".into());
    run("node", &["crates/web/tests/pages/webgpu.mjs", &site, &suite.to_string_lossy(), &sample, "9"])
}

/// Compiles a TypeScript program against the types of the package, if `tsc` is installed.
fn test_types(root: &Path, out: &Path) -> Result<(), String> {
    if !Command::new("tsc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        println!("no tsc here: the package's types were not compiled against");
        return Ok(());
    }
    let types = out.join("types");
    let installed = types.join("node_modules/tensorloom");
    folder(&installed)?;
    for name in ["index.d.ts", "package.json"] {
        copy(&out.join("package").join(name), &installed.join(name))?;
    }
    copy(&root.join("crates/web/tests/types/main.mts"), &types.join("main.mts"))?;
    let lib = "es2022,dom,esnext.disposable";
    run_in(
        &types,
        "tsc",
        &["--noEmit", "--strict", "--target", "es2022", "--lib", lib, "--module", "nodenext", "main.mts"],
    )
}

/// The Rust toolchain that compiles for WebAssembly in the browser.
struct WebToolchain {
    env: Vec<(&'static str, String)>,
    args: &'static [&'static str],
    /// The cargo target directory.
    target: PathBuf,
}

impl WebToolchain {
    /// Finds or installs a standard library for the target: from rustup, or from Debian's sources if rustup can't install it.
    /// `WEB_RUST=debian` forces Debian's.
    fn new(root: &Path) -> Result<WebToolchain, String> {
        let own = target(root);
        let debian = std::env::var("WEB_RUST").is_ok_and(|w| w == "debian");
        let sysroot = sysroot()?;
        let there = sysroot.join("lib/rustlib").join(TARGET).is_dir();
        if !debian && (there || run("rustup", &["target", "add", TARGET]).is_ok()) {
            return Ok(WebToolchain { env: Vec::new(), args: &[], target: own });
        }
        WebToolchain::debian(&own.join("web"), &sysroot)
    }

    /// Unpacks Debian's WebAssembly compiler and its sources into a folder. Cargo builds the standard library with it. The linker
    /// is the one of rustup's compiler.
    fn debian(folder_: &Path, sysroot: &Path) -> Result<WebToolchain, String> {
        let (packages, rust) = (folder_.join("packages"), folder_.join("rust"));
        let compiler = rust.join("usr/bin/rustc");
        if !compiler.is_file() {
            folder(&packages)?;
            run("apt-get", &["update", "-qq"])?;
            run_in(&packages, "apt-get", &[&["download"], DEBIAN].concat())?;
            let all = std::fs::read_dir(&packages).map_err(|e| format!("{}: {e}", packages.display()))?;
            for package in all.flatten() {
                run("dpkg", &["-x", &package.path().to_string_lossy(), &rust.to_string_lossy()])?;
            }
        }
        // The shared libraries of the compiler are not in the system's search path.
        let script = folder_.join("rustc");
        let lib = rust.join("usr/lib");
        let text = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH={0}/x86_64-linux-gnu:{0} exec {1} \"$@\"\n",
            lib.display(),
            compiler.display()
        );
        write(&script, &text)?;
        run("chmod", &["+x", &script.to_string_lossy()])?;
        let linker = sysroot.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
        // Each compiler has its own target directory, because two compilers in one directory would invalidate each other's
        // artifacts.
        let target = folder_.join("build");
        let env = vec![
            ("RUSTC", script.to_string_lossy().into_owned()),
            ("RUSTC_BOOTSTRAP", "1".to_string()),
            ("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker.to_string_lossy().into_owned()),
            ("CARGO_TARGET_DIR", target.to_string_lossy().into_owned()),
        ];
        Ok(WebToolchain { env, args: &["-Zbuild-std=std,panic_abort"], target })
    }

    /// Runs `cargo build` for the target.
    fn build(&self, words: &[&str]) -> Result<(), String> {
        let words = [&["build", "--target", TARGET], self.args, words].concat();
        let env: Vec<(&str, &str)> = self.env.iter().map(|(k, v)| (*k, v.as_str())).collect();
        run_with("cargo", &words, &env)
    }
}

/// The Debian packages with the compiler, its libraries and the sources of the standard library.
const DEBIAN: &[&str] = &["rustc-web", "libstd-rust-web-1.96", "libstd-rust-web-dev", "libllvm22", "rust-web-src"];

fn run_in(folder: &Path, program: &str, args: &[&str]) -> Result<(), String> {
    println!("$ {program} {}", args.join(" "));
    match Command::new(program).args(args).current_dir(folder).status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("`{program} {}` ended with {s}", args.join(" "))),
        Err(e) => Err(format!("`{program}` can't be run: {e}")),
    }
}

fn sysroot() -> Result<PathBuf, String> {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| format!("rustc: {e}"))?;
    Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()))
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
