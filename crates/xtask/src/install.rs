//! `install-c PREFIX` installs the C libraries, their headers, pkg-config files and CMake packages.
//!
//! `DESTDIR` is prepended to every path that is written to, but not to paths inside the installed files, as packagers expect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the part of the version that determines compatibility, which is the number in the library's SONAME.
fn compatible_version() -> &'static str {
    match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => concat!("0.", env!("CARGO_PKG_VERSION_MINOR")),
        major => major,
    }
}

/// A C library: the feature of the crate `c` that it is built with, its name and its headers.
struct CLibrary {
    feature: &'static str,
    name: &'static str,
    headers: &'static [&'static str],
    /// The maximum size in bytes of the stripped shared library for x86-64 Linux.
    most: Option<u64>,
}

/// The name that cargo gives the library, whichever features are enabled.
const BUILT: &str = "tensorloom_c";

const LIBRARIES: [CLibrary; 2] = [
    CLibrary { feature: "vsla", name: "tensorloom_vsla", headers: &["tensorloom_vsla.h"], most: None },
    CLibrary {
        feature: "runtime",
        name: "tensorloom_c",
        headers: &["tensorloom.h", "tensorloom.hpp"],
        most: Some(8_000_000),
    },
];

/// Builds the libraries and copies the files below the prefix.
pub(crate) fn install(root: &Path, prefix: &str) -> Result<(), String> {
    let prefix = std::path::absolute(prefix).map_err(|e| format!("{prefix}: {e}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = target.join("ship");
    let to = staged_path(std::env::var_os("DESTDIR").map(PathBuf::from), &prefix);
    for library in &LIBRARIES {
        // The crate is declared as a Rust library too, and cargo does not apply LTO to such crates.
        let kinds =
            ["--lib", "--crate-type", "cdylib,staticlib", "--no-default-features", "--features", library.feature];
        crate::run("cargo", &[&["rustc", "--profile", "ship", "-p", "tensorloom-c"], &kinds[..]].concat())?;
        place(library, &root.join("crates/c"), &built, &prefix, &to)?;
    }
    Ok(())
}

/// Returns the path to write to: `DESTDIR` and the path below the prefix.
fn staged_path(destdir: Option<PathBuf>, prefix: &Path) -> PathBuf {
    match destdir.filter(|d| !d.as_os_str().is_empty()) {
        Some(d) => d.join(prefix.strip_prefix("/").unwrap_or(prefix)),
        None => prefix.to_path_buf(),
    }
}

fn place(library: &CLibrary, from: &Path, built: &Path, prefix: &Path, to: &Path) -> Result<(), String> {
    let (lib, include, name) = (to.join("lib"), to.join("include"), library.name);
    let cmake = lib.join("cmake").join(name);
    for folder in [&lib.join("pkgconfig"), &cmake, &include] {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut found = None;
    // The file name has the full version. Linkers find it by the plain name, programs by the SONAME.
    let kinds = [
        (".so", format!("lib{name}.so.{VERSION}"), format!("lib{name}.so.{}", compatible_version())),
        (".dylib", format!("lib{name}.{VERSION}.dylib"), format!("lib{name}.{}.dylib", compatible_version())),
    ];
    for (end, file, soname) in kinds {
        let (from, plain) = (built.join(format!("lib{BUILT}{end}")), format!("lib{name}{end}"));
        if from.exists() {
            copy(&from, &lib.join(&file))?;
            let stripped = strip(&lib.join(&file), plain.ends_with(".dylib"));
            check_size(
                &lib.join(&file),
                library.most.filter(|_| stripped && cfg!(all(target_os = "linux", target_arch = "x86_64"))),
            )?;
            link(&file, &lib.join(&soname))?;
            link(&soname, &lib.join(&plain))?;
            found = Some((plain, soname));
        }
    }
    for (start, end) in [("", ".dll"), ("lib", ".a")] {
        let (from, plain) = (built.join(format!("{start}{BUILT}{end}")), format!("{start}{name}{end}"));
        if from.exists() {
            copy(&from, &lib.join(&plain))?;
            found.get_or_insert((plain.clone(), plain));
        }
    }
    let (file, soname) = found.ok_or_else(|| format!("no library in {}", built.display()))?;
    for header in library.headers {
        copy(&from.join("include").join(header), &include.join(header))?;
    }
    let facts = [
        ("@prefix@", prefix.to_string_lossy().into_owned()),
        ("@version@", VERSION.to_string()),
        ("@compatible@", compatible_version().to_string()),
        ("@library@", file),
        ("@soname@", soname),
    ];
    for (template, to) in [
        (format!("{name}.pc.in"), lib.join("pkgconfig").join(format!("{name}.pc"))),
        (format!("{name}Config.cmake.in"), cmake.join(format!("{name}Config.cmake"))),
        (format!("{name}ConfigVersion.cmake.in"), cmake.join(format!("{name}ConfigVersion.cmake"))),
    ] {
        let template = from.join(template);
        let text = fs::read_to_string(&template).map_err(|e| format!("{}: {e}", template.display()))?;
        fs::write(&to, fill_template(&text, &facts)).map_err(|e| format!("{}: {e}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

fn fill_template(template: &str, facts: &[(&str, String)]) -> String {
    facts.iter().fold(template.to_string(), |text, (name, value)| text.replace(name, value))
}

/// Strips debug symbols. If `strip` is missing, the library is only larger.
fn strip(file: &Path, apple: bool) -> bool {
    let args = if apple { "-x" } else { "--strip-unneeded" };
    let done = Command::new("strip").arg(args).arg(file).status().is_ok_and(|s| s.success());
    if !done {
        eprintln!("{} keeps its symbols: `strip` is not here, or failed", file.display());
    }
    done
}

/// Prints the size of a library, and fails if it is larger than its limit.
fn check_size(file: &Path, most: Option<u64>) -> Result<(), String> {
    let bytes = fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len();
    println!("{}: {bytes} bytes", file.display());
    match most.filter(|most| bytes > *most) {
        Some(most) => Err(format!(
            "{} has {bytes} bytes, {most} at most are promised; `nm -S --size-sort -C` of a build with \
             CARGO_PROFILE_SHIP_STRIP=false says what is large",
            file.display()
        )),
        None => Ok(()),
    }
}

fn link(to: &str, at: &Path) -> Result<(), String> {
    let _ = fs::remove_file(at);
    #[cfg(unix)]
    let made = std::os::unix::fs::symlink(to, at);
    #[cfg(not(unix))]
    let made = fs::copy(at.with_file_name(to), at).map(|_| ());
    made.map_err(|e| format!("{}: {e}", at.display()))?;
    println!("{} -> {to}", at.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A library may be in use, so the file is replaced instead of overwritten.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("{}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_installation_has_its_files_and_speaks_of_its_prefix() {
        for library in &LIBRARIES {
            let name = library.name;
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c");
            let folder = std::env::temp_dir().join(format!("{name}-install-{}", std::process::id()));
            let (built, stage) = (folder.join("built"), folder.join("stage"));
            fs::create_dir_all(&built).unwrap();
            fs::write(built.join(format!("lib{BUILT}.so")), b"not really").unwrap();
            fs::write(built.join(format!("lib{BUILT}.a")), b"not really").unwrap();
            let prefix = Path::new("/opt/loom");
            let to = staged_path(Some(stage.clone()), prefix);
            assert_eq!(to, stage.join("opt/loom"));
            assert_eq!(staged_path(None, prefix), prefix);
            place(library, &root, &built, prefix, &to).unwrap();
            let soname = format!("lib{name}.so.{}", compatible_version());
            for file in [format!("lib{name}.so"), soname.clone(), format!("lib{name}.a")] {
                assert!(to.join("lib").join(&file).exists(), "{file}");
            }
            for header in library.headers {
                assert!(to.join("include").join(header).exists(), "{header}");
            }
            let read = |p: String| fs::read_to_string(to.join(p)).unwrap();
            let files = [
                format!("lib/pkgconfig/{name}.pc"),
                format!("lib/cmake/{name}/{name}Config.cmake"),
                format!("lib/cmake/{name}/{name}ConfigVersion.cmake"),
            ]
            .map(read);
            assert!(files[0].starts_with("prefix=/opt/loom\n"), "{}", files[0]);
            assert!(files[1].contains(&format!("IMPORTED_SONAME \"{soname}\"")), "{}", files[1]);
            for text in files {
                assert!(!text.contains('@') && !text.contains("stage"), "{text}");
            }
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
