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

/// A folder with the package as a wheel would install it.
fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("tensorloom-python-{}", std::process::id()));
    let to = folder.join("tensorloom");
    std::fs::create_dir_all(&to).unwrap();
    for f in std::fs::read_dir(root.join("python/tensorloom")).unwrap() {
        let f = f.unwrap();
        if f.file_type().unwrap().is_file() {
            std::fs::copy(f.path(), to.join(f.file_name())).unwrap();
        }
    }
    std::fs::copy(library(), to.join("_tensorloom.abi3.so")).unwrap();
    folder
}

/// A Python that has NumPy: the caller's, or the system's.
fn python() -> Option<String> {
    let given = std::env::var("PYTHON").ok();
    let names = given.into_iter().chain(["python3", "/usr/bin/python3"].map(String::from));
    names.into_iter().find(|p| {
        let out = Command::new(p).args(["-c", "import numpy"]).output();
        out.is_ok_and(|o| o.status.success())
    })
}

#[test]
fn the_package_gives_what_numpy_and_jax_give() {
    let Some(program) = python() else {
        assert!(std::env::var_os("CI").is_none(), "a Python with NumPy is needed; on Debian it is python3-numpy");
        eprintln!("no Python with NumPy is here; the package was not tested");
        return;
    };
    let folder = installed();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut python = Command::new(program);
    python.env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&tests);
    let out = python.args(["-m", "unittest", "discover", "-s"]).arg(&tests).output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(out.status.success(), "{text}");
    let ran = text.lines().find_map(|l| l.strip_prefix("Ran ")?.split(' ').next()?.parse::<usize>().ok());
    assert!(ran.is_some_and(|n| n >= 18), "{text}");
}
