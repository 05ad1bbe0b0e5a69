//! Gives the shared library its SONAME: programs find the version that they were linked with, however many are installed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let (major, minor) = (var("CARGO_PKG_VERSION_MAJOR"), var("CARGO_PKG_VERSION_MINOR"));
    let number = if major == "0" { format!("0.{minor}") } else { major };
    match var("CARGO_CFG_TARGET_OS").as_str() {
        "linux" | "android" | "freebsd" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtensorloom_c.so.{number}");
        }
        "macos" => {
            let name = format!("@rpath/libtensorloom_c.{number}.dylib");
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,{name}");
        }
        _ => {}
    }
}
