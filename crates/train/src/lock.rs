//! One run at a time in a folder.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

/// A folder that is this process's alone, until it is dropped or the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The file that is locked. It stays: removing it would let two runs lock two files of one name.
const NAME: &str = ".lock";

impl Lock {
    /// Takes a folder, which must exist.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join(NAME);
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
                    format!("another run{owner} is writing here: wait for it, or choose another `--out`"),
                ));
            }
            // Some file systems know no locks; then nothing tells two runs apart.
            Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(Error::file(&path, e)),
        }
        // The number is for people; a disk that is full can't take it.
        let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
        Ok(Lock { _file: file })
    }

    /// Takes a folder if a run has ever locked it: what is not a run's needs no lock.
    pub fn of_run(folder: &Path) -> Result<Option<Lock>> {
        match folder.join(NAME).is_file() {
            true => Lock::take(folder).map(Some),
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
        assert!(Lock::of_run(&folder).expect("no run").is_none());
        for _ in 0..3 {
            let lock = Lock::take(&folder).expect("free");
            for taken in [Lock::take(&folder), Lock::of_run(&folder).map(|lock| lock.expect("a run"))] {
                let error = taken.expect_err("taken").to_string();
                assert!(error.contains(&std::process::id().to_string()) && error.contains("--out"), "{error}");
            }
            drop(lock);
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
