//! Files of the language on disk, behind the standard library.

use crate::error::{Error, Result};
use crate::files;
use lang::library::WithLibrary;
use lang::resolve::{Loaded, Loader, Program};
use std::path::{Path, PathBuf};

/// Files on disk, by path without extension: beside the program's own file, else from the current directory.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// A version of a file is a file of its own, `gates.v2.module`; without one, the plain file is read.
    fn file(&self, path: &str, major: Option<u32>) -> Option<PathBuf> {
        let name = match major {
            None => format!("{path}.module"),
            Some(major) => format!("{path}.v{major}.module"),
        };
        [self.folder.join(&name), PathBuf::from(&name)].into_iter().find(|file| file.is_file())
    }
}

impl Loader for Disk {
    fn read(&self, path: &str, major: Option<u32>) -> Option<Loaded> {
        let file = self.file(path, major)?;
        let text = files::read_text(&file, files::TEXT).ok()?;
        let version = match major {
            None => format!("local@{:08x}", fingerprint(&text)),
            Some(major) => format!("v{major}.0.0"),
        };
        Some(Loaded { name: file.display().to_string(), text, version })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let beside = self.folder.join(folder);
        let from = if beside.is_dir() { beside } else { PathBuf::from(folder) };
        let entries = std::fs::read_dir(from).into_iter().flatten().flatten();
        let mut paths: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".module")?.to_string()))
            .map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") })
            .collect();
        paths.sort();
        paths
    }

    fn lock(&self) -> Option<String> {
        files::read_text(&self.folder.join("module.lock"), files::TEXT).ok()
    }
}

/// FNV-1a: enough to see that a file has changed.
fn fingerprint(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Loads a file, or a file of the library by its path or a model's name: `std/models/llama`, `llama`.
pub fn load_program(name: &str) -> Result<Program> {
    let path = name.strip_suffix(".module").unwrap_or(name);
    let file = PathBuf::from(format!("{path}.module"));
    if file.is_file() {
        // What can't be read is no missing import: say why.
        files::read_text(&file, files::TEXT)?;
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or(path);
        return Ok(Program::load(stem, &WithLibrary(Disk { folder })));
    }
    let model = format!("std/models/{path}");
    let known = lang::library::files().find(|known| *known == path || *known == model);
    match known {
        Some(known) => Ok(Program::load(known, &WithLibrary(Disk { folder: PathBuf::new() }))),
        None => Err(unreadable(&file)),
    }
}

/// Writes down which versions the imports of a file resolved to, beside the file.
pub fn write_lock(name: &str, program: &Program) -> Result<PathBuf> {
    let path = Path::new(name).parent().unwrap_or(Path::new("")).join("module.lock");
    let mut lock = program.lock.clone();
    // The file itself is no import of its own.
    if let Some(own) = program.files.first() {
        lock.modules.remove(&own.path.replace('/', "."));
    }
    files::write(&path, lock.to_string().as_bytes())?;
    Ok(path)
}

fn unreadable(file: &Path) -> Error {
    match files::open(file) {
        Ok(_) => Error::file(file, "expected a .module file"),
        Err(Error::File { reason, .. }) => {
            Error::file(file, format!("{reason}; give a .module file or a model of the library, such as llama"))
        }
        Err(other) => other,
    }
}
