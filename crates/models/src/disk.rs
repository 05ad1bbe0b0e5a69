//! Files of the language on disk, behind the standard library.

use crate::error::{Error, Result};
use lang::library::WithLibrary;
use lang::resolve::{Loaded, Loader, Program};
use std::path::Path;

/// Files on disk, by path without extension.
struct Disk;

impl Loader for Disk {
    fn read(&self, path: &str, _major: Option<u32>) -> Option<Loaded> {
        let name = format!("{path}.module");
        let text = std::fs::read_to_string(&name).ok()?;
        Some(Loaded { name, text, version: "local".to_string() })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<String> =
            entries.filter_map(|entry| Some(entry.path().to_str()?.strip_suffix(".module")?.to_string())).collect();
        paths.sort();
        paths
    }

    fn lock(&self) -> Option<String> {
        std::fs::read_to_string("module.lock").ok()
    }
}

/// Loads a file, or a file of the library by its path or a model's name: `std/models/llama`, `llama`.
pub fn load_program(name: &str) -> Result<Program> {
    let path = name.strip_suffix(".module").unwrap_or(name);
    let file = format!("{path}.module");
    let path = if Path::new(&file).is_file() || path.starts_with("std/") {
        path.to_string()
    } else {
        let model = format!("std/models/{path}");
        match lang::library::models().find(|known| *known == model) {
            Some(_) => model,
            None => return Err(unreadable(&file)),
        }
    };
    Ok(Program::load(&path, &WithLibrary(Disk)))
}

fn unreadable(file: &str) -> Error {
    match std::fs::read_to_string(file) {
        Ok(_) => Error::file(Path::new(file), "expected a .module file"),
        Err(error) => Error::file(
            Path::new(file),
            format!("{error}; give a .module file or a model of the library, such as llama"),
        ),
    }
}
