//! Checks that the compiler doesn't make: dependencies between crates, and file names.

use std::fs;
use std::path::Path;

/// The workspace crates that each crate may depend on. `ARCHITECTURE.md` gives the reasons.
const CRATE_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("ir", &[]),
    ("transform", &["ir"]),
    ("compiler", &["ir"]),
    ("cpu", &["ir", "compiler"]),
    ("gpu", &["ir", "compiler"]),
    ("device", &["compiler", "cpu", "gpu"]),
    ("train", &["ir", "transform", "compiler"]),
    ("dist", &["ir", "compiler"]),
    ("engine", &["ir", "transform", "compiler"]),
    (
        "tensorloom",
        &[
            "ir",
            "transform",
            "compiler",
            "cpu",
            "device",
            "engine",
            "macros",
            "train",
            "lang",
            "models",
            "onnx",
            "vsla",
            "dist",
        ],
    ),
    ("macros", &["lang"]),
    ("python", &["tensorloom", "compiler", "cpu", "models", "c"]),
    ("vsla", &["ir", "transform", "compiler", "cpu"]),
    ("c", &["ir", "compiler", "cpu", "vsla"]),
    ("lang", &["ir", "transform", "compiler", "train"]),
    ("models", &["ir", "transform", "compiler", "cpu", "dist", "train", "lang"]),
    ("onnx", &["ir"]),
    ("cli", &["ir", "transform", "compiler", "cpu", "gpu", "device", "dist", "lang", "models", "onnx", "c"]),
    ("testing", &["ir", "transform", "compiler"]),
    ("bench", &["ir", "transform", "compiler", "cpu", "engine", "tensorloom", "lang", "models", "vsla"]),
    ("web", &["ir", "compiler", "cpu", "gpu", "tensorloom", "models"]),
    ("xtask", &[]),
];

/// File names that don't describe the contents.
const FORBIDDEN_FILE_NAMES: &[&str] = &["utils", "util", "helpers", "misc", "common"];

/// Runs all checks and reports every violation.
pub(crate) fn tidy(root: &Path) -> Result<(), String> {
    let mut wrong = Vec::new();
    let crates = root.join("crates");
    let mut folders: Vec<_> = fs::read_dir(&crates).map_err(|e| e.to_string())?.filter_map(Result::ok).collect();
    folders.sort_by_key(|f| f.file_name());
    for folder in folders {
        let name = folder.file_name().to_string_lossy().to_string();
        if let Ok(manifest) = fs::read_to_string(folder.path().join("Cargo.toml")) {
            check_edges(&name, &manifest, &mut wrong);
        }
        check_names(&folder.path().join("src"), &mut wrong);
    }
    if wrong.is_empty() {
        println!("tidy");
        return Ok(());
    }
    Err(wrong.join("\n"))
}

fn check_edges(name: &str, manifest: &str, wrong: &mut Vec<String>) {
    let Some((_, allowed)) = CRATE_DEPENDENCIES.iter().find(|(n, _)| *n == name) else {
        wrong.push(format!("crates/{name} is not in the list of crates in xtask's tidy.rs and ARCHITECTURE.md"));
        return;
    };
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
        }
        // Tests may depend on any crate.
        if section.contains("dev-dependencies") || !section.contains("dependencies") {
            continue;
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if CRATE_DEPENDENCIES.iter().any(|(n, _)| *n == key) && !allowed.contains(&key) {
            wrong.push(format!("crates/{name} must not use crates/{key}"));
        }
    }
}

fn check_names(folder: &Path, wrong: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if FORBIDDEN_FILE_NAMES.contains(&&*stem) {
            wrong.push(format!("{}: the name does not say what is inside", path.display()));
        }
        if path.is_dir() {
            check_names(&path, wrong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_that_must_not_be_is_found() {
        let check = |name: &str, manifest: &str| {
            let mut wrong = Vec::new();
            check_edges(name, manifest, &mut wrong);
            wrong.len()
        };
        assert_eq!(check("ir", "[dependencies]\ncompiler.workspace = true\n"), 1);
        assert_eq!(check("ir", "[dev-dependencies]\ncompiler.workspace = true\n"), 0);
        assert_eq!(check("cpu", "[dependencies]\nir.workspace = true\ncompiler.workspace = true\n"), 0);
        assert_eq!(check("nobody", ""), 1);
    }
}
