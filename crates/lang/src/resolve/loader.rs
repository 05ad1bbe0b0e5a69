//! Loads source files: from disk, an embedded library, or memory.

use std::collections::BTreeMap;

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// Its name for messages, usually the path on disk.
    pub name: String,
    /// The text.
    pub text: String,
    /// Its version in the format of `module.lock`, such as `v1.2.3` or `local@abc123f`.
    pub version: String,
}

/// Finds files by path; paths use `/` and have no extension: `std/modules/linear`.
pub trait Loader {
    /// Loads the file at a path: with the given major version, or else the latest stable one.
    fn read(&self, path: &str, major: Option<u32>) -> Option<LoadedFile>;

    /// The paths of the files directly in a folder, in order.
    fn list(&self, folder: &str) -> Vec<String>;

    /// The text of `module.lock`, if there is one.
    fn lock(&self) -> Option<String>;

    /// Why an existing file cannot be read.
    fn read_error(&self, path: &str, major: Option<u32>) -> Option<String> {
        let _ = (path, major);
        None
    }
}

/// Files in memory, with versions.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    files: BTreeMap<String, Vec<LoadedFile>>,
    lock: Option<String>,
}

impl MemoryLoader {
    /// Creates an empty loader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file under a path without extension; later versions of the same path must be added later.
    pub fn with(mut self, path: &str, version: &str, text: &str) -> Self {
        let loaded =
            LoadedFile { name: format!("{path}.module"), text: text.to_string(), version: version.to_string() };
        self.files.entry(path.to_string()).or_default().push(loaded);
        self
    }

    /// Sets the text of `module.lock`.
    pub fn with_lock(mut self, text: &str) -> Self {
        self.lock = Some(text.to_string());
        self
    }
}

impl Loader for MemoryLoader {
    fn read(&self, path: &str, major: Option<u32>) -> Option<LoadedFile> {
        let versions = self.files.get(path)?;
        match major {
            None => versions.last().cloned(),
            Some(major) => versions.iter().rev().find(|file| major_of(&file.version) == Some(major)).cloned(),
        }
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let inside = |path: &&String| {
            path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')).is_some_and(|rest| !rest.contains('/'))
        };
        self.files.keys().filter(inside).cloned().collect()
    }

    fn lock(&self) -> Option<String> {
        self.lock.clone()
    }
}

/// The major number of `v1.2.3`.
fn major_of(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}
