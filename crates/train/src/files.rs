//! File access: this crate reads and writes all files through this module.
//!
//! A file is written atomically: under a temporary name, synced to disk, then renamed. Only regular files are read, and only up
//! to a size limit, so that a pipe or a device gives an error and does not block forever.
//! A [`FileSystemLayer`] sits between this module and the system: tests let every single operation fail.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Maximum size in bytes of a text file (configuration, module, graph).
pub const MAX_TEXT_BYTES: u64 = 1 << 30;
/// Maximum size in bytes of a configuration file.
pub const MAX_CONFIG_BYTES: u64 = 64 << 20;

/// An operation that changes the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileOperation {
    /// A folder is created.
    CreateDir,
    /// A file is created.
    Create,
    /// Bytes are written.
    Write,
    /// A file is synced to disk.
    Sync,
    /// A file is renamed to its final name.
    Rename,
    /// A folder is synced to disk.
    SyncDir,
    /// A file is removed.
    Remove,
}

/// Called before every operation; an error that it returns is handled as one of the system.
pub trait FileSystemLayer {
    /// Whether the operation may happen.
    fn before(&self, operation: FileOperation, path: &Path) -> io::Result<()>;
}

thread_local! {
    static LAYER: RefCell<Option<Rc<dyn FileSystemLayer>>> = const { RefCell::new(None) };
}

/// Runs a function with a layer under all file operations of this thread.
pub fn with_layer<R>(layer: Rc<dyn FileSystemLayer>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Rc<dyn FileSystemLayer>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LAYER.set(self.0.take());
        }
    }
    let _restore = Restore(LAYER.replace(Some(layer)));
    f()
}

fn before(operation: FileOperation, path: &Path) -> io::Result<()> {
    // The layer is taken out for the call, so that it may use files itself.
    match LAYER.with_borrow(Clone::clone) {
        None => Ok(()),
        Some(layer) => layer.before(operation, path),
    }
}

/// A file that is being written; it exists under its final name only after [`AtomicFile::commit`].
pub struct AtomicFile {
    path: PathBuf,
    partial: PathBuf,
    file: Option<File>,
}

impl AtomicFile {
    /// Creates a temporary file. If the final name exists already, it must be a regular file.
    pub fn create(path: &Path) -> Result<AtomicFile> {
        if let Ok(found) = std::fs::metadata(path)
            && !found.is_file()
        {
            return Err(Error::file(
                path,
                format!("{}: not a file name: give the name of the file to write", file_kind(&found)),
            ));
        }
        let mut name = path.file_name().ok_or_else(|| Error::file(path, "not the name of a file"))?.to_os_string();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = before(FileOperation::Create, path).and_then(|()| File::create(&partial));
        let file = file.map_err(|e| Error::file(path, e))?;
        Ok(AtomicFile { path: path.to_path_buf(), partial, file: Some(file) })
    }

    /// The file's final name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(|e| Error::file(&self.path, e))
    }

    /// Syncs the file to disk.
    pub fn sync(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        before(FileOperation::Sync, &self.path).and_then(|()| file.sync_all()).map_err(|e| Error::file(&self.path, e))
    }

    /// The path of the temporary file.
    pub fn temp_path(&self) -> &Path {
        &self.partial
    }

    /// Syncs the file to disk, renames it to its final name and syncs its folder.
    pub fn commit(self) -> Result<()> {
        self.commit_if(|_| Ok(()))
    }

    /// Like `commit`, if the check of the written file succeeds.
    pub fn commit_if(mut self, good: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.sync()?;
        good(&self.partial)?;
        before(FileOperation::Rename, &self.path)
            .and_then(|()| std::fs::rename(&self.partial, &self.path))
            .map_err(|e| Error::file(&self.path, e))?;
        self.file = None;
        sync_dir(&self.path).map_err(|e| Error::file(&self.path, e))
    }

    fn discard(&self) {
        if before(FileOperation::Remove, &self.partial).is_ok() {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.discard();
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("the file is finished")) };
        if let Err(fault) = before(FileOperation::Write, &self.path) {
            // A disk that runs full writes the bytes that still fit.
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(fault);
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Syncs a folder, so that a new name survives a crash. Some systems can't open folders.
fn sync_dir(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    before(FileOperation::SyncDir, path)?;
    match folder.sync_all() {
        // Some file systems can't sync a folder, and return these errors.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

/// Writes a file atomically.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_bytes(bytes)?;
    file.commit()
}

/// Copies a file atomically.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut source = open(from)?;
    let mut file = AtomicFile::create(to)?;
    io::copy(&mut source, &mut file).map_err(|e| Error::file(to, e))?;
    file.commit()
}

/// Creates a folder and its parents.
pub fn create_dir_all(path: &Path) -> Result<()> {
    before(FileOperation::CreateDir, path)
        .and_then(|()| std::fs::create_dir_all(path))
        .map_err(|e| Error::file(path, e))
}

/// Removes a file.
pub fn remove(path: &Path) -> io::Result<()> {
    before(FileOperation::Remove, path).and_then(|()| std::fs::remove_file(path))
}

/// Appends bytes to a file.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    before(FileOperation::Write, path)?;
    std::fs::OpenOptions::new().append(true).open(path)?.write_all(bytes)
}

/// Opens a regular file for reading.
pub fn open(path: &Path) -> Result<File> {
    let fault = |e: io::Error| Error::file(path, e);
    let found = std::fs::metadata(path).map_err(fault)?;
    if !found.is_file() {
        return Err(Error::file(path, format!("{}, not a regular file", file_kind(&found))));
    }
    File::open(path).map_err(fault)
}

fn file_kind(found: &std::fs::Metadata) -> &'static str {
    match found.is_dir() {
        true => "a folder",
        false => "a pipe or a device",
    }
}

/// Reads all bytes of a regular file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
    if length > limit {
        return Err(too_large_error(path, length, limit));
    }
    let mut bytes = checked_with_capacity(path, length)?;
    // The file may have grown since.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::file(path, e))?;
    match bytes.len() as u64 > limit {
        true => Err(too_large_error(path, bytes.len() as u64, limit)),
        false => Ok(bytes),
    }
}

/// Reads the text of a regular file of at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::file(path, format!("stream did not contain valid UTF-8: invalid byte at {at}"))
    })
}

/// Returns an empty vector with capacity for a number of bytes that a file gave.
pub fn checked_with_capacity(path: &Path, bytes: u64) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    let fits = usize::try_from(bytes).is_ok_and(|bytes| list.try_reserve_exact(bytes).is_ok());
    match fits {
        true => Ok(list),
        false => Err(Error::file(path, format!("{bytes} bytes do not fit into memory"))),
    }
}

fn too_large_error(path: &Path, length: u64, limit: u64) -> Error {
    Error::file(path, format!("the file has {length} bytes, but the limit is {limit}"))
}

/// Reads exactly this many bytes at an offset of a file, independent of the file's position.
pub fn read_at(file: &File, path: &Path, place: u64, bytes: &mut [u8]) -> Result<()> {
    #[cfg(unix)]
    let found = std::os::unix::fs::FileExt::read_exact_at(file, bytes, place);
    #[cfg(not(unix))]
    let found = {
        use std::io::{Seek, SeekFrom};
        let mut file = file;
        file.seek(SeekFrom::Start(place)).and_then(|_| file.read_exact(bytes))
    };
    found.map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::file(path, "became shorter while it was being read: restore it"),
        _ => Error::file(path, e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault_injection::FaultInjector;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tensorloom-files-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    #[test]
    fn a_file_is_the_old_or_the_new_one_whatever_fails() {
        let folder = folder("whole");
        let path = folder.join("file");
        for for_good in [false, true] {
            for at in 0.. {
                write(&path, b"old and long").expect("written");
                let layer = FaultInjector::new(at, for_good);
                let result = with_layer(layer.clone(), || write(&path, b"new"));
                let found = std::fs::read(&path).expect("there");
                assert!(found == b"old and long" || found == b"new", "{found:?}");
                if layer.operation_count() <= at {
                    assert!(result.is_ok() && at >= 5, "{at} operations");
                    break;
                }
                assert!(result.expect_err("it failed").to_string().contains("on purpose"));
                if !for_good {
                    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1, "what is left of {at}");
                }
            }
        }
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn only_plain_files_are_read_and_replaced() {
        let folder = folder("plain");
        let path = folder.join("file");
        std::fs::write(&path, b"text\xff").expect("written");
        let error = |result: Result<String>| result.expect_err("refused").to_string();
        assert!(error(read_text(&path, MAX_TEXT_BYTES)).contains("invalid byte at 4"));
        assert!(error(read_text(&path, 4)).contains("limit is 4"));
        assert!(error(read_text(&folder, MAX_TEXT_BYTES)).contains("a folder"));
        assert!(error(read_text(&folder.join("none"), MAX_TEXT_BYTES)).contains("No such file"));
        if cfg!(unix) {
            assert!(error(read_text(Path::new("/dev/zero"), MAX_TEXT_BYTES)).contains("device"));
            assert!(write(Path::new("/dev/null"), b"x").is_err());
        }
        assert!(write(&folder, b"x").is_err());
        let _ = std::fs::remove_dir_all(&folder);
    }
}
