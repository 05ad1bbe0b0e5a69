//! The name that programs find a shared library by: with the part of its version that must agree, so that several can be installed.
//! The build script uses it.

/// Before 1.0 every minor version may break what was linked with another.
pub(crate) fn number(major: &str, minor: &str) -> String {
    if major == "0" { format!("0.{minor}") } else { major.to_string() }
}

/// The argument for the linker; `library` is without `lib` and ending.
pub(crate) fn argument(system: &str, library: &str, number: &str) -> Option<String> {
    match system {
        "linux" | "android" | "freebsd" => Some(format!("-Wl,-soname,lib{library}.so.{number}")),
        "macos" => Some(format!("-Wl,-install_name,@rpath/lib{library}.{number}.dylib")),
        _ => None,
    }
}

#[test]
fn the_name_has_what_must_agree() {
    assert_eq!(argument("linux", "x", &number("0", "3")).as_deref(), Some("-Wl,-soname,libx.so.0.3"));
    assert_eq!(argument("macos", "x", &number("2", "3")).as_deref(), Some("-Wl,-install_name,@rpath/libx.2.dylib"));
    assert_eq!(argument("windows", "x", "1"), None);
}
