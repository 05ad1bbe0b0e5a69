//! C programs against the header and the library: they build without warnings, run, and are clean under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the libraries are: beside the test, or one folder up.
fn library(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let places = [deps.join(name), deps.parent().unwrap().join(name)];
    let newest = places.iter().filter(|p| p.exists()).max_by_key(|p| p.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("{name} is not in {}", deps.display())).clone()
}

fn run(what: &str, command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{what}: {e}"));
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{what}: {}\n{text}", out.status);
    text
}

/// A folder with the shared library under its SONAME, as an installation has it.
fn installed(lib: &Path) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("vsla-lib-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["libtensorloom_c.so", &soname()] {
        let to = folder.join(name);
        if !to.exists() {
            // Several tests do this at once; any of them may win.
            let _ = std::os::unix::fs::symlink(lib, &to);
        }
    }
    folder
}

fn soname() -> String {
    let number = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    };
    format!("libtensorloom_c.so.{number}")
}

/// Compiles a C file, linked to the static or the shared library.
fn build(source: &str, shared: bool) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let exe = std::env::temp_dir().join(format!("vsla-{name}-{shared}-{}", std::process::id()));
    let lib = library(if shared { "libtensorloom_c.so" } else { "libtensorloom_c.a" });
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"]).arg(root().join("include"));
    cc.arg(root().join(source)).arg(&lib).args(["-lm", "-lpthread", "-ldl", "-o"]).arg(&exe);
    cc.arg(format!("-Wl,-rpath,{}", installed(&lib).display()));
    run("cc", &mut cc);
    exe
}

fn under_valgrind(exe: &Path) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not here; the program ran without it");
        return;
    }
    let mut v = Command::new("valgrind");
    v.args([
        "-q",
        "--error-exitcode=9",
        "--leak-check=full",
        "--show-leak-kinds=definite",
        "--errors-for-leak-kinds=definite",
    ]);
    run("valgrind", v.arg(exe));
}

#[test]
fn the_header_is_valid_c99_and_cpp() {
    let header = root().join("include/tensorloom_vsla.h");
    for (compiler, args) in [("cc", ["-std=c99", "-xc"]), ("c++", ["-std=c++11", "-xc++"])] {
        let mut c = Command::new(compiler);
        c.args(args).args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-function", "-fsyntax-only"]);
        run(compiler, c.arg(&header));
    }
}

#[test]
fn the_header_is_the_one_that_cbindgen_makes() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    // In the order of the modules; the interface of compiled models has a header of its own.
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("src/vsla")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "rs") && !file.ends_with("mod.rs"));
    files.sort();
    let builder = cbindgen::Builder::new().with_config(config);
    let made = files.iter().fold(builder, |builder, file| builder.with_src(file)).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let path = root().join("include/tensorloom_vsla.h");
    if std::env::var_os("VSLA_WRITE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), kept, "VSLA_WRITE_HEADER=1 makes this test write the header");
}

/// Every exported function is in the header, and the header promises none that isn't exported.
#[test]
fn the_header_and_the_library_name_the_same_functions() {
    let header = std::fs::read_to_string(root().join("include/tensorloom_vsla.h")).unwrap();
    let mut exported = Vec::new();
    for entry in std::fs::read_dir(root().join("src/vsla")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = part.split("fn ").nth(1).unwrap().split('(').next().unwrap().to_string();
            exported.push(name);
        }
    }
    assert!(exported.len() > 35, "{exported:?}");
    for name in &exported {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
    let symbols = run("nm", Command::new("nm").arg("-D").arg("--defined-only").arg(library("libtensorloom_c.so")));
    for name in &exported {
        assert!(symbols.lines().any(|l| l.ends_with(&format!(" {name}"))), "{name} is not exported");
    }
}

#[test]
fn s12_a_c_program_trains_a_model() {
    for shared in [true, false] {
        let exe = build("examples/train.c", shared);
        let text = run("train", &mut Command::new(&exe));
        assert!(text.contains("filter found within") && text.contains("0 handles left"), "{text}");
        if shared {
            under_valgrind(&exe);
        }
        std::fs::remove_file(exe).unwrap();
    }
}

fn check(source: &str) {
    let exe = build(source, true);
    let text = run(source, &mut Command::new(&exe));
    assert_eq!(text.trim(), "0 failures");
    under_valgrind(&exe);
    std::fs::remove_file(exe).unwrap();
}

#[test]
fn s13_misuse_raises_every_code_and_nothing_else() {
    check("tests/misuse.c");
}

#[test]
fn s11_runs_in_the_callers_memory_on_streams_and_through_the_callers_functions() {
    check("tests/runs.c");
}

#[test]
fn files_windows_and_lists_of_values() {
    check("tests/files.c");
}

#[test]
fn the_header_has_the_version_of_the_library() {
    let text = std::fs::read_to_string(root().join("include/tensorloom_vsla.h")).unwrap();
    let define = |name: &str| {
        let start = format!("#define {name} ");
        let line = text.lines().find(|l| l.starts_with(&start)).unwrap_or_else(|| panic!("no {name}"));
        line[start.len()..].trim_matches('"').to_string()
    };
    assert_eq!(define("VSLA_VERSION"), env!("CARGO_PKG_VERSION"));
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|p| define(&format!("VSLA_VERSION_{p}")));
    assert_eq!(parts.join("."), env!("CARGO_PKG_VERSION"));
    let lib = std::fs::read(library("libtensorloom_c.so")).unwrap();
    let name = soname();
    assert!(lib.windows(name.len()).any(|w| w == name.as_bytes()), "the library doesn't know its SONAME {name}");
}

/// The wrapper for NumPy, by its own tests.
#[test]
fn the_numpy_wrapper_gives_what_numpy_gives() {
    let Some(program) = testing::python::python_with_numpy() else { return };
    let bindings = root().join("../../bindings/python");
    let mut python = Command::new(program);
    python.env("PYTHONPATH", &bindings).env("TENSORLOOM_VSLA", library("libtensorloom_c.so"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    let text = run("python3", python.args(["-m", "unittest", "discover", "-s"]).arg(bindings.join("tests")));
    assert!(text.contains("Ran 10 tests"), "{text}");
}
