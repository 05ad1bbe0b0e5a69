//! A Python for tests of bindings.

use std::process::Command;

/// A Python that has NumPy: the one that `PYTHON` names, the caller's, or the system's. Where tests must not be skipped (`CI` is
/// set) there has to be one.
pub fn with_numpy() -> Option<String> {
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
