//! External data of a model in files beside it.

use crate::tensor::ExternalData;
use bytes::Bytes;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Files in one folder: regular files, reached through links only if these stay in the folder, or lead from a snapshot of a
/// HuggingFace cache to its blobs.
pub struct DirectoryData(pub PathBuf);

impl DirectoryData {
    /// The file at a location, with resolved links.
    fn file(&self, location: &str) -> Result<PathBuf, String> {
        let outside =
            || format!("its data is in `{location}`, which is outside the folder of the model and is not read");
        let relative = Path::new(location);
        if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            return Err(outside());
        }
        let folder = if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 };
        let path = folder.join(relative);
        let fault = |e: std::io::Error| format!("its data is in {}: {e}", path.display());
        let (folder, real) = (folder.canonicalize().map_err(fault)?, path.canonicalize().map_err(fault)?);
        if !real.starts_with(&folder) && !huggingface_blobs(&folder).is_some_and(|blobs| real.starts_with(blobs)) {
            return Err(outside());
        }
        // Opening a pipe would block until someone writes to it.
        if !real.metadata().map_err(fault)?.is_file() {
            return Err(format!("its data is in {}, which is not a regular file", path.display()));
        }
        Ok(real)
    }
}

/// The folder of a HuggingFace cache with a snapshot's files: `models--NAME/blobs`, for a folder below `models--NAME/snapshots`.
fn huggingface_blobs(folder: &Path) -> Option<PathBuf> {
    let snapshots = folder.ancestors().find(|path| path.file_name().is_some_and(|name| name == "snapshots"))?;
    let repository = snapshots.parent()?;
    let named = repository.file_name()?.to_str()?.starts_with("models--");
    named.then(|| repository.join("blobs"))
}

impl ExternalData for DirectoryData {
    fn read(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Bytes, String> {
        let path = self.file(location)?;
        let fault = |e: std::io::Error| format!("its data is in {}: {e}", path.display());
        let mut file = File::open(&path).map_err(fault)?;
        let size = file.metadata().map_err(fault)?.len();
        let length = length.unwrap_or(size.saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(format!(
                "its data is {length} bytes of {} at {offset}, but the file has {size}",
                path.display()
            ));
        }
        file.seek(SeekFrom::Start(offset)).map_err(fault)?;
        let mut bytes = vec![0; usize::try_from(length).map_err(|e| e.to_string())?];
        file.read_exact(&mut bytes).map_err(fault)?;
        Ok(bytes.into())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_pipes_do_not_lead_out_of_the_folder() {
        let root = std::env::temp_dir().join(format!("tensorloom-external-{}", std::process::id()));
        let (model, cache) = (root.join("model"), root.join("models--a--b"));
        let snapshot = cache.join("snapshots/1/onnx");
        for folder in [&model, &snapshot, &cache.join("blobs"), &root.join("snapshots"), &model.join("deep")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(root.join("secret"), "secret").unwrap();
        std::fs::write(model.join("own"), "owned").unwrap();
        std::fs::write(cache.join("blobs/77"), "blobs").unwrap();
        symlink(root.join("secret"), model.join("file")).unwrap();
        symlink(&root, model.join("parent")).unwrap();
        symlink(model.join("own"), model.join("deep/inside")).unwrap();
        symlink("/dev/zero", model.join("device")).unwrap();
        symlink(cache.join("blobs/77"), snapshot.join("weights")).unwrap();
        symlink(root.join("secret"), snapshot.join("stolen")).unwrap();
        symlink("circle", model.join("circle")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(model.join("pipe")).status();
        let read = |folder: &Path, location: &str| DirectoryData(folder.to_path_buf()).read(location, 0, None);
        assert_eq!(read(&model, "own").unwrap(), "owned");
        assert_eq!(read(&model, "./deep/inside").unwrap(), "owned");
        assert_eq!(read(&snapshot, "weights").unwrap(), "blobs");
        let refused = |folder: &Path, location: &str, word: &str| {
            let said = read(folder, location).expect_err(location);
            assert!(said.contains(word), "{location}: {said}");
        };
        for location in ["file", "parent/secret", "device", "../secret", "/etc/passwd", ""] {
            refused(&model, location, if location.is_empty() { "not a regular file" } else { "outside the folder" });
        }
        refused(&snapshot, "stolen", "outside the folder");
        refused(&model, "circle", "circle");
        refused(&model, "none", "none");
        refused(&model, "deep", "not a regular file");
        if made.is_ok_and(|status| status.success()) {
            refused(&model, "pipe", "not a regular file");
        }
        let _ = std::fs::remove_dir_all(&root);
    }
}
