//! The package's tests, by Python: the library that cargo built, beside the package's files.

use std::path::{Path, PathBuf};
use std::process::Command;

fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    let places = ["lib_tensorloom.so", "lib_tensorloom.dylib", "_tensorloom.dll"]
        .iter()
        .flat_map(|n| [deps.join(n), deps.parent().unwrap().join(n)])
        .filter(|p| p.exists());
    places.max_by_key(|p| p.metadata().unwrap().modified().unwrap()).expect("the library is beside the test")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for f in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|f| f.file_name() != "__pycache__") {
        match f.file_type().unwrap().is_dir() {
            true => copy(&f.path(), &to.join(f.file_name())),
            false => drop(std::fs::copy(f.path(), to.join(f.file_name())).unwrap()),
        }
    }
}

/// A folder with the package as a wheel would install it.
fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("tensorloom-python-{}", std::process::id()));
    let to = folder.join("tensorloom");
    copy(&root.join("python/tensorloom"), &to);
    std::fs::copy(library(), to.join("_tensorloom.abi3.so")).unwrap();
    folder
}

#[test]
fn the_package_gives_what_numpy_and_jax_give() {
    let Some(program) = testing::python::python_with_numpy() else { return };
    let folder = installed();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut python = Command::new(program);
    python.env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&tests);
    let out = python.args(["-m", "unittest", "discover", "-s"]).arg(&tests).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(out.status.success(), "{text}");
    let ran = text.lines().find_map(|l| l.strip_prefix("Ran ")?.split(' ').next()?.parse::<usize>().ok());
    assert!(ran.is_some_and(|n| n >= 50), "{text}");
}
