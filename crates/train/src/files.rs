//! The disk: every file that this crate reads or writes passes through here.
//!
//! A file is written whole or not at all: under another name, brought to disk, then renamed. Only plain files are read, and
//! no more of them than a limit, so that pipes and devices are a line of text instead of a wait without end.
//! A [`Layer`] stands between this module and the system: tests let every single operation fail.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The longest text file (configuration, module, graph) that is read, in bytes.
pub const TEXT: u64 = 1 << 30;
/// The longest configuration.
pub const CONFIG: u64 = 64 << 20;

/// Something that changes the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A folder is made.
    Folder,
    /// A file is created.
    Create,
    /// Bytes are written.
    Write,
    /// A file's bytes are brought to disk.
    Sync,
    /// A file gets its name.
    Rename,
    /// A folder's names are brought to disk.
    SyncFolder,
    /// A file is removed.
    Remove,
}

/// Asked before every operation; an error of its own is taken for one of the system.
pub trait Layer {
    /// Whether the operation may happen.
    fn before(&self, operation: Operation, path: &Path) -> io::Result<()>;
}

thread_local! {
    static LAYER: RefCell<Option<Rc<dyn Layer>>> = const { RefCell::new(None) };
}

/// Runs something with a layer under all that this thread writes.
pub fn with_layer<R>(layer: Rc<dyn Layer>, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Rc<dyn Layer>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LAYER.set(self.0.take());
        }
    }
    let _restore = Restore(LAYER.replace(Some(layer)));
    f()
}

fn before(operation: Operation, path: &Path) -> io::Result<()> {
    // Taken out for the call, so that a layer may itself use files.
    match LAYER.with_borrow(Clone::clone) {
        None => Ok(()),
        Some(layer) => layer.before(operation, path),
    }
}

/// A file that is being written, and is there under its name only after [`NewFile::finish`].
pub struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: Option<File>,
}

impl NewFile {
    /// Begins a file. What stands under its name already must be a plain file.
    pub fn create(path: &Path) -> Result<NewFile> {
        if let Ok(found) = std::fs::metadata(path)
            && !found.is_file()
        {
            return Err(Error::file(path, format!("{}: give the name of a file to write", kind_of(&found))));
        }
        let mut name = path.file_name().ok_or_else(|| Error::file(path, "not the name of a file"))?.to_os_string();
        name.push(".partial");
        let partial = path.with_file_name(name);
        let file = before(Operation::Create, path).and_then(|()| File::create(&partial));
        let file = file.map_err(|e| Error::file(path, e))?;
        Ok(NewFile { path: path.to_path_buf(), partial, file: Some(file) })
    }

    /// The file's name, once it is finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_all(bytes).map_err(|e| Error::file(&self.path, e))
    }

    /// Brings the bytes to disk.
    pub fn sync(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        before(Operation::Sync, &self.path).and_then(|()| file.sync_all()).map_err(|e| Error::file(&self.path, e))
    }

    /// Where the bytes are until the file has its name.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// Brings the bytes to disk, then gives the file its name and has that written too.
    pub fn finish(self) -> Result<()> {
        self.finish_if(|_| Ok(()))
    }

    /// The same, if a look at the bytes that were written finds them good.
    pub fn finish_if(mut self, good: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.sync()?;
        good(&self.partial)?;
        before(Operation::Rename, &self.path)
            .and_then(|()| std::fs::rename(&self.partial, &self.path))
            .map_err(|e| Error::file(&self.path, e))?;
        self.file = None;
        sync_folder(&self.path).map_err(|e| Error::file(&self.path, e))
    }

    fn abandon(&self) {
        if before(Operation::Remove, &self.partial).is_ok() {
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            self.abandon();
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("the file is finished")) };
        if let Err(fault) = before(Operation::Write, &self.path) {
            // A disk that runs full takes what still fits.
            file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(fault);
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Folders can't be opened everywhere; where they can, a new name must survive a crash too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    before(Operation::SyncFolder, path)?;
    match folder.sync_all() {
        // Some file systems can't sync a folder, and say so.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        result => result,
    }
}

/// Writes a file, whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path)?;
    file.add(bytes)?;
    file.finish()
}

/// Copies a file, whole or not at all.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut source = open(from)?;
    let mut file = NewFile::create(to)?;
    io::copy(&mut source, &mut file).map_err(|e| Error::file(to, e))?;
    file.finish()
}

/// Makes a folder and those around it.
pub fn make_folder(path: &Path) -> Result<()> {
    before(Operation::Folder, path).and_then(|()| std::fs::create_dir_all(path)).map_err(|e| Error::file(path, e))
}

/// Removes a file.
pub fn remove(path: &Path) -> io::Result<()> {
    before(Operation::Remove, path).and_then(|()| std::fs::remove_file(path))
}

/// Adds bytes to the end of a file.
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    before(Operation::Write, path)?;
    std::fs::OpenOptions::new().append(true).open(path)?.write_all(bytes)
}

/// Opens a plain file to read.
pub fn open(path: &Path) -> Result<File> {
    let fault = |e: io::Error| Error::file(path, e);
    let found = std::fs::metadata(path).map_err(fault)?;
    if !found.is_file() {
        return Err(Error::file(path, format!("{}, not a plain file", kind_of(&found))));
    }
    File::open(path).map_err(fault)
}

fn kind_of(found: &std::fs::Metadata) -> &'static str {
    match found.is_dir() {
        true => "a folder",
        false => "a pipe or a device",
    }
}

/// All bytes of a plain file that has at most `limit`.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata().map_err(|e| Error::file(path, e))?.len();
    if length > limit {
        return Err(too_long(path, length, limit));
    }
    let mut bytes = room(path, length)?;
    // It may have grown since.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::file(path, e))?;
    match bytes.len() as u64 > limit {
        true => Err(too_long(path, bytes.len() as u64, limit)),
        false => Ok(bytes),
    }
}

/// The text of a plain file that has at most `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::file(path, format!("stream did not contain valid UTF-8: byte {at} is no text"))
    })
}

/// An empty list with room for bytes whose number a file gave.
pub fn room(path: &Path, bytes: u64) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    let fits = usize::try_from(bytes).is_ok_and(|bytes| list.try_reserve_exact(bytes).is_ok());
    match fits {
        true => Ok(list),
        false => Err(Error::file(path, format!("{bytes} bytes don't fit into memory"))),
    }
}

fn too_long(path: &Path, length: u64, limit: u64) -> Error {
    Error::file(path, format!("{length} bytes: at most {limit} are read of such a file"))
}

/// Reads exactly these bytes from a place of a file, whatever others do to it meanwhile.
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
        io::ErrorKind::UnexpectedEof => Error::file(path, "became shorter while it was being read: put it back"),
        _ => Error::file(path, e),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failing::Failing;

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
                let layer = Failing::new(at, for_good);
                let result = with_layer(layer.clone(), || write(&path, b"new"));
                let found = std::fs::read(&path).expect("there");
                assert!(found == b"old and long" || found == b"new", "{found:?}");
                if layer.seen() <= at {
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
        assert!(error(read_text(&path, TEXT)).contains("byte 4"));
        assert!(error(read_text(&path, 4)).contains("at most 4"));
        assert!(error(read_text(&folder, TEXT)).contains("a folder"));
        assert!(error(read_text(&folder.join("none"), TEXT)).contains("No such file"));
        if cfg!(unix) {
            assert!(error(read_text(Path::new("/dev/zero"), TEXT)).contains("device"));
            assert!(write(Path::new("/dev/null"), b"x").is_err());
        }
        assert!(write(&folder, b"x").is_err());
        let _ = std::fs::remove_dir_all(&folder);
    }
}
