//! Gives the shared library its SONAME.

#[path = "src/soname.rs"]
mod soname;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/soname.rs");
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let number = soname::number(&var("CARGO_PKG_VERSION_MAJOR"), &var("CARGO_PKG_VERSION_MINOR"));
    // The interface of variable shapes alone is a library with a name of its own.
    let library = match std::env::var_os("CARGO_FEATURE_RUNTIME") {
        Some(_) => "tensorloom_c",
        None => "tensorloom_vsla",
    };
    if let Some(argument) = soname::argument(&var("CARGO_CFG_TARGET_OS"), library, &number) {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
