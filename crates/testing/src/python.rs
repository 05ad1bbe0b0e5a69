//! Finds a Python interpreter for tests of bindings.

use std::process::Command;

/// A Python with NumPy: the one in `PYTHON`, in the path, or of the system. If tests must not be skipped (`CI` is
/// set), it must exist.
pub fn python_with_numpy() -> Option<String> {
    let given = std::env::var("PYTHON").ok();
    let mut names = given.into_iter().chain(["python3", "/usr/bin/python3"].map(String::from));
    let found = names.find(|p| {
        let out = Command::new(p).args(["-c", "import numpy"]).output();
        out.is_ok_and(|o| o.status.success())
    });
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "a Python with NumPy is needed; on Debian it is python3-numpy");
        eprintln!("no Python with NumPy is here; what needs it was not tested");
    }
    found
}
