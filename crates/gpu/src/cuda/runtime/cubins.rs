//! The disk cache of compiled kernels.
//!
//! A source with several kernels is compiled to one cubin, stored in a file under the hash of all its inputs; for each of its
//! kernels a small file names the cubin. Files contain the source text, so a hash collision is a cache miss and
//! not a wrong kernel; and a checksum, so a damaged file is a miss too. Files are written under a temporary name and then
//! renamed. When the folder is too large, its oldest files are deleted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum bytes of the folder: the kernels of a training step take some hundred kilobytes.
const MOST: u64 = 256 << 20;

const MAGIC: &[u8; 16] = b"tensorloom cuda1";

/// The cache.
pub(crate) struct CubinCache {
    /// The folder; none if caching is disabled.
    folder: Option<PathBuf>,
    /// The common part of every key: architecture, compiler, options.
    environment: String,
}

impl CubinCache {
    pub(crate) fn new(folder: Option<PathBuf>, world: String) -> CubinCache {
        let usable = |f: &PathBuf| fs::create_dir_all(f).is_ok();
        let folder = folder.filter(usable);
        if let Some(f) = &folder {
            evict_oldest(f, MOST);
        }
        CubinCache { folder, environment: world }
    }

    /// The cache folder: `TENSORLOOM_CACHE`, else `XDG_CACHE_HOME`, else `~/.cache`. An empty
    /// `TENSORLOOM_CACHE` disables the cache.
    pub(crate) fn folder() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let root = match set("TENSORLOOM_CACHE") {
            Some(f) if f.as_os_str().is_empty() => return None,
            Some(f) => return Some(f.join("cuda")),
            None => set("XDG_CACHE_HOME").filter(|f| f.is_absolute()),
        };
        root.or_else(|| set("HOME").map(|h| h.join(".cache"))).map(|r| r.join("tensorloom/cuda"))
    }

    /// The cubin that contains a kernel, and the kernel's name in it.
    pub(crate) fn kernel(&self, text: &str) -> Option<(String, String)> {
        let found = self.read(&self.key("kernel", text), text)?;
        let (cubin, entry) = std::str::from_utf8(&found).ok()?.split_once('\n')?;
        Some((cubin.to_string(), entry.to_string()))
    }

    /// Reads a cubin by name.
    pub(crate) fn cubin(&self, name: &str) -> Option<Vec<u8>> {
        self.read(name, "cubin")
    }

    /// Stores a cubin and the index of its kernels (source and name). Write errors are ignored.
    pub(crate) fn store(&self, source: &str, cubin: &[u8], kernels: &[(&str, &str)]) -> String {
        let name = self.key("source", source);
        if self.write(&name, "cubin", cubin) {
            for (text, entry) in kernels {
                self.write(&self.key("kernel", text), text, format!("{name}\n{entry}").as_bytes());
            }
        }
        name
    }

    fn key(&self, kind: &str, text: &str) -> String {
        let mut all = Vec::with_capacity(text.len() + self.environment.len() + 16);
        for part in [kind, &self.environment, text] {
            all.extend_from_slice(part.as_bytes());
            all.push(0);
        }
        format!("{:016x}{:016x}.{kind}", fnv(&all, 0xcbf2_9ce4_8422_2325), fnv(&all, 0x6c62_272e_07bb_0142))
    }

    fn read(&self, name: &str, text: &str) -> Option<Vec<u8>> {
        let all = fs::read(self.folder.as_ref()?.join(name)).ok()?;
        let rest = all.strip_prefix(MAGIC)?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != fnv(rest, 1) {
            return None;
        }
        let rest = section(rest, self.environment.as_bytes())?;
        section(rest, text.as_bytes()).map(<[u8]>::to_vec)
    }

    fn write(&self, name: &str, text: &str, bytes: &[u8]) -> bool {
        let Some(folder) = &self.folder else { return false };
        let mut rest = Vec::with_capacity(bytes.len() + text.len() + self.environment.len() + 16);
        for part in [self.environment.as_bytes(), text.as_bytes()] {
            rest.extend_from_slice(&(part.len() as u64).to_le_bytes());
            rest.extend_from_slice(part);
        }
        rest.extend_from_slice(bytes);
        let mut all = MAGIC.to_vec();
        all.extend_from_slice(&fnv(&rest, 1).to_le_bytes());
        all.extend_from_slice(&rest);
        write_atomically(folder, name, &all)
    }
}

/// If the folder exceeds its limit, deletes the oldest files until half of the limit remains. It runs when the folder is
/// opened, so the folder may exceed the limit while a process runs.
fn evict_oldest(folder: &Path, most: u64) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let ours = |p: &Path| p.extension().is_some_and(|e| e == "source" || e == "kernel" || e == "part");
    let mut files: Vec<(std::time::SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter(|f| ours(&f.path()))
        .filter_map(|f| f.metadata().ok().and_then(|m| Some((m.modified().ok()?, m.len(), f.path()))))
        .collect();
    let mut all: u64 = files.iter().map(|f| f.1).sum();
    if all <= most {
        return;
    }
    files.sort();
    for (_, bytes, path) in files {
        if all <= most / 2 {
            break;
        }
        if fs::remove_file(&path).is_ok() {
            all -= bytes;
        }
    }
}

/// The bytes after a section, which must equal `want`.
fn section<'a>(bytes: &'a [u8], want: &[u8]) -> Option<&'a [u8]> {
    let (n, rest) = bytes.split_first_chunk::<8>()?;
    let n = usize::try_from(u64::from_le_bytes(*n)).ok()?;
    let (text, rest) = rest.split_at_checked(n)?;
    (text == want).then_some(rest)
}

/// Writes a file atomically.
fn write_atomically(folder: &Path, name: &str, bytes: &[u8]) -> bool {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let unique = format!(".{}.{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let part = folder.join(format!("{name}{unique}"));
    let done = fs::write(&part, bytes).is_ok() && fs::rename(&part, folder.join(name)).is_ok();
    if !done {
        let _ = fs::remove_file(&part);
    }
    done
}

/// FNV-1a with a custom initial value, processing 8-byte words where possible.
pub(crate) fn fnv(bytes: &[u8], start: u64) -> u64 {
    let mut h = start ^ bytes.len() as u64;
    let mut step = |x: u64| {
        h = (h ^ x).wrapping_mul(0x0000_0100_0000_01b3);
        h ^= h >> 29;
    };
    let mut words = bytes.chunks_exact(8);
    words.by_ref().for_each(|w| step(u64::from_le_bytes(w.try_into().unwrap_or_default())));
    words.remainder().iter().for_each(|b| step(*b as u64));
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tensorloom-cubins-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    #[test]
    fn kernels_are_found_again_in_their_cubin_and_not_in_another_world() {
        let folder = temporary("again");
        let here = CubinCache::new(Some(folder.clone()), "sm_90a 13.0".into());
        assert_eq!(here.kernel("a"), None);
        let name = here.store("prelude a b", b"code", &[("a", "k0"), ("b", "k1")]);
        assert_eq!(here.kernel("a"), Some((name.clone(), "k0".into())));
        assert_eq!(here.kernel("b"), Some((name.clone(), "k1".into())));
        assert_eq!(here.cubin(&name).as_deref(), Some(&b"code"[..]));
        let other = CubinCache::new(Some(folder.clone()), "sm_90a 13.1".into());
        assert_eq!((other.kernel("a"), other.cubin(&name)), (None, None));
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "no parts are left behind: {left:?}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn damaged_files_are_misses() {
        let folder = temporary("damaged");
        let cubins = CubinCache::new(Some(folder.clone()), "w".into());
        let name = cubins.store("source", &[7; 1000], &[("text", "k")]);
        let file = folder.join(&name);
        let whole = fs::read(&file).unwrap();
        for cut in [0, 1, 15, 16, 20, 24, 40, whole.len() - 1] {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(cubins.cubin(&name), None, "{cut} bytes");
        }
        for at in [0, 17, 25, 33, whole.len() - 1] {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            fs::write(&file, &bad).unwrap();
            assert_eq!(cubins.cubin(&name), None, "byte {at} changed");
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(cubins.cubin(&name), Some(vec![7; 1000]));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_grows_too_large_loses_its_oldest() {
        let folder = temporary("bound");
        let cubins = CubinCache::new(Some(folder.clone()), "w".into());
        let names: Vec<String> = (0..8)
            .map(|i| {
                let name = cubins.store(&format!("source {i}"), &[i; 1000], &[]);
                let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + i as u64);
                let file = fs::File::options().write(true).open(folder.join(&name)).unwrap();
                file.set_modified(old).unwrap();
                name
            })
            .collect();
        fs::write(folder.join("not ours"), [0; 100_000]).unwrap();
        evict_oldest(&folder, 100_000);
        assert!(names.iter().all(|n| cubins.cubin(n).is_some()), "there was room for all");
        evict_oldest(&folder, 8000);
        let left: Vec<bool> = names.iter().map(|n| cubins.cubin(n).is_some()).collect();
        assert_eq!(left, [false, false, false, false, false, true, true, true]);
        assert!(folder.join("not ours").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_keeps_nothing() {
        let file = temporary("file");
        fs::write(&file, b"").unwrap();
        let cubins = CubinCache::new(Some(file.join("below")), "w".into());
        let name = cubins.store("s", b"c", &[("t", "k")]);
        assert_eq!((cubins.cubin(&name), cubins.kernel("t")), (None, None));
        fs::remove_file(file).unwrap();
    }
}
