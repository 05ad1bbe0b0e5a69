//! `install-c PREFIX`: the C library, its header and its pkg-config file, where a C compiler finds them.

use std::fs;
use std::path::{Path, PathBuf};

/// Builds the library and copies everything below the prefix.
pub(crate) fn install(root: &Path, prefix: &str) -> Result<(), String> {
    let prefix = std::path::absolute(prefix).map_err(|e| format!("{prefix}: {e}"))?;
    crate::run("cargo", &["build", "--release", "-p", "tensorloom-vsla-capi"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let from = root.join("crates/vsla-capi");
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    for folder in [&lib.join("pkgconfig"), &include] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut copied = 0;
    for name in ["libtensorloom_vsla.so", "libtensorloom_vsla.dylib", "tensorloom_vsla.dll", "libtensorloom_vsla.a"] {
        let built = target.join("release").join(name);
        if built.exists() {
            copy(&built, &lib.join(name))?;
            copied += 1;
        }
    }
    if copied == 0 {
        return Err(format!("no library in {}", target.join("release").display()));
    }
    copy(&from.join("include/tensorloom_vsla.h"), &include.join("tensorloom_vsla.h"))?;
    let template = from.join("tensorloom_vsla.pc.in");
    let text = fs::read_to_string(&template).map_err(|e| format!("{}: {e}", template.display()))?;
    let to = lib.join("pkgconfig/tensorloom_vsla.pc");
    fs::write(&to, configured(&text, &prefix)).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("{}", to.display());
    Ok(())
}

fn configured(template: &str, prefix: &Path) -> String {
    template.replace("@prefix@", &prefix.to_string_lossy()).replace("@version@", env!("CARGO_PKG_VERSION"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A library that is in use is replaced, not written into.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("{}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_template_is_filled_in() {
        let template = include_str!("../../vsla-capi/tensorloom_vsla.pc.in");
        let text = super::configured(template, std::path::Path::new("/opt/loom"));
        assert!(text.starts_with("prefix=/opt/loom\n") && !text.contains('@'), "{text}");
    }
}
