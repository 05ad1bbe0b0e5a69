//! Loads files of the language from disk, in addition to the standard library.

use crate::error::{Error, Result};
use lang::library::LibraryLoader;
use lang::resolve::{LoadedFile, Loader, ModuleProgram};
use std::path::{Path, PathBuf};
use train::files;

/// Finds files on disk, by path without extension (§4.7.1): beside the program's own file, in its parent folders up to the one
/// with `module.lock`, in the current directory, then in the folders of `LOOM_PATH`.
struct DiskLoader {
    folder: PathBuf,
}

impl DiskLoader {
    /// The root folders of the search, in order.
    fn roots(&self) -> Vec<PathBuf> {
        let mut roots = vec![self.folder.clone()];
        let above: Vec<&Path> = self.folder.ancestors().skip(1).collect();
        if let Some(root) = above.iter().position(|folder| folder.join("module.lock").is_file()) {
            roots.extend(above[..=root].iter().map(|folder| folder.to_path_buf()));
        }
        roots.push(PathBuf::new());
        let given = std::env::var_os("LOOM_PATH");
        roots.extend(given.iter().flat_map(std::env::split_paths).filter(|folder| !folder.as_os_str().is_empty()));
        roots
    }

    /// A version of a file is a separate file, `gates.v2.module`; without a version, the plain file is read.
    fn file(&self, path: &str, major: Option<u32>) -> Option<PathBuf> {
        let name = match major {
            None => format!("{path}.module"),
            Some(major) => format!("{path}.v{major}.module"),
        };
        self.roots().into_iter().map(|root| root.join(&name)).find(|file| file.is_file())
    }
}

impl Loader for DiskLoader {
    fn read(&self, path: &str, major: Option<u32>) -> Option<LoadedFile> {
        let file = self.file(path, major)?;
        let text = files::read_text(&file, files::MAX_TEXT_BYTES).ok()?;
        let version = match major {
            None => format!("local@{:08x}", fnv1a(&text)),
            Some(major) => format!("v{major}.0.0"),
        };
        Some(LoadedFile { name: file.display().to_string(), text, version })
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let Some(from) = self.roots().into_iter().map(|root| root.join(folder)).find(|from| from.is_dir()) else {
            return Vec::new();
        };
        let entries = std::fs::read_dir(from).into_iter().flatten().flatten();
        let mut paths: Vec<String> = entries
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".module")?.to_string()))
            .map(|name| if folder.is_empty() { name } else { format!("{folder}/{name}") })
            .collect();
        paths.sort();
        paths
    }

    fn lock(&self) -> Option<String> {
        files::read_text(&self.folder.join("module.lock"), files::MAX_TEXT_BYTES).ok()
    }

    fn read_error(&self, path: &str, major: Option<u32>) -> Option<String> {
        let file = self.file(path, major)?;
        match files::read_text(&file, files::MAX_TEXT_BYTES) {
            Ok(_) => None,
            Err(train::Error::File(error)) => Some(format!("{}: {}", file.display(), error.reason)),
            Err(other) => Some(other.to_string()),
        }
    }
}

/// FNV-1a: sufficient to detect that a file has changed.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Loads a file, or a library file by its path or a model's name: `std/models/llama`, `llama`.
pub fn load_program(name: &str) -> Result<ModuleProgram> {
    let path = name.strip_suffix(".module").unwrap_or(name);
    let file = PathBuf::from(format!("{path}.module"));
    if file.is_file() {
        // An unreadable file is reported as such, not as a missing import.
        files::read_text(&file, files::MAX_TEXT_BYTES)?;
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or(path);
        return Ok(ModuleProgram::load(stem, &LibraryLoader(DiskLoader { folder })));
    }
    let model = format!("std/models/{path}");
    let known = lang::library::files().find(|known| *known == path || *known == model);
    match known {
        Some(known) => Ok(ModuleProgram::load(known, &LibraryLoader(DiskLoader { folder: PathBuf::new() }))),
        None => Err(unreadable(&file)),
    }
}

/// Writes a lock file with the resolved versions of a file's imports beside the file.
pub fn write_lock(name: &str, program: &ModuleProgram) -> Result<PathBuf> {
    let path = Path::new(name).parent().unwrap_or(Path::new("")).join("module.lock");
    let mut lock = program.lock.clone();
    // The file itself is not one of its imports.
    if let Some(own) = program.files.first() {
        lock.modules.remove(&own.path.replace('/', "."));
    }
    files::write(&path, lock.to_string().as_bytes())?;
    Ok(path)
}

fn unreadable(file: &Path) -> Error {
    match files::open(file) {
        Ok(_) => Error::file(file, "expected a .module file"),
        Err(train::Error::File(error)) => {
            Error::file(file, format!("{}; give a .module file or a model of the library, such as llama", error.reason))
        }
        Err(other) => other.into(),
    }
}
