//! A lock that allows one run at a time in a folder.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

/// An exclusive lock on a folder, until it is dropped or the process ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

/// The file that is locked. It is never removed: otherwise two runs could lock two files of the same name.
const LOCK_FILE_NAME: &str = ".lock";

impl DirLock {
    /// Locks a folder, which must exist.
    pub fn acquire(folder: &Path) -> Result<DirLock> {
        let path = folder.join(LOCK_FILE_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| Error::file(&path, e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = (&mut file).take(20).read_to_string(&mut owner);
                let owner = match owner.trim() {
                    "" => String::new(),
                    id => format!(" (process {id})"),
                };
                return Err(Error::file(
                    folder,
                    format!("another run{owner} is writing to this folder: wait for it, or choose another `--out`"),
                ));
            }
            // Some file systems don't support locks; then two runs can't be told apart.
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(Error::file(&path, e)),
        }
        // The process ID is only for people; a full disk can't store it.
        let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(DirLock { _file: file })
    }

    /// Locks a folder if it has a lock file; a folder without one is not a run's and needs no lock.
    pub fn acquire_if_run(folder: &Path) -> Result<Option<DirLock>> {
        match folder.join(LOCK_FILE_NAME).is_file() {
            true => DirLock::acquire(folder).map(Some),
            false => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_the_lock_goes() {
        let folder = std::env::temp_dir().join(format!("tensorloom-lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        assert!(DirLock::acquire_if_run(&folder).expect("no run").is_none());
        for _ in 0..3 {
            let lock = DirLock::acquire(&folder).expect("free");
            for taken in [DirLock::acquire(&folder), DirLock::acquire_if_run(&folder).map(|lock| lock.expect("a run"))]
            {
                let error = taken.expect_err("taken").to_string();
                assert!(error.contains(&std::process::id().to_string()) && error.contains("--out"), "{error}");
            }
            drop(lock);
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
