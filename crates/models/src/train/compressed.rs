//! Files of texts that are compressed: gzip and Zstandard, unpacked as they are read.

use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use train::files;

/// Endings that say how a file is packed.
pub(super) const PACKED: &[&str] = &["gz", "zst"];

/// A file's bytes, unpacked.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = files::open(path)?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("gz") => Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, file)))),
        Some("zst") => {
            let from = BufReader::with_capacity(1 << 16, file);
            Ok(Box::new(Frames { path: path.to_path_buf(), frame: Frame::Between(from) }))
        }
        _ => Ok(Box::new(file)),
    }
}

/// A path without the ending that says how it is packed.
pub(super) fn unpacked(path: &Path) -> PathBuf {
    let packed = path.extension().and_then(|e| e.to_str()).is_some_and(|e| PACKED.contains(&e));
    if packed { path.with_extension("") } else { path.to_path_buf() }
}

/// Frames of a Zstandard file, one behind the other.
struct Frames<R: BufRead> {
    path: PathBuf,
    frame: Frame<R>,
}

enum Frame<R: BufRead> {
    Between(R),
    In(Box<StreamingDecoder<R, FrameDecoder>>),
    Over,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            self.frame = match std::mem::replace(&mut self.frame, Frame::Over) {
                Frame::Over => return Ok(0),
                Frame::Between(mut from) => match from.fill_buf()?.is_empty() {
                    true => return Ok(0),
                    false => {
                        let decoder = StreamingDecoder::new(from).map_err(|e| {
                            let what = Error::file(&self.path, format!("not a Zstandard file: {e}"));
                            std::io::Error::other(what.to_string())
                        })?;
                        Frame::In(Box::new(decoder))
                    }
                },
                Frame::In(mut decoder) => match decoder.read(to)? {
                    0 if !to.is_empty() => Frame::Between(decoder.into_inner()),
                    n => {
                        self.frame = Frame::In(decoder);
                        return Ok(n);
                    }
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// What others packed, in several members and frames, comes out whole; what is broken is an error.
    #[test]
    fn packed_files_are_read_as_plain_ones() {
        let folder = std::env::temp_dir().join(format!("tensorloom-packed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let text: String = (0..20_000).map(|i| format!("line {} of many\n", i % 977)).collect();
        let mut gzip = Vec::new();
        for half in [&text[..text.len() / 2], &text[text.len() / 2..]] {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(half.as_bytes()).expect("packed");
            gzip.extend(encoder.finish().expect("packed"));
        }
        let frame = |text: &str| {
            ruzstd::encoding::compress_to_vec(text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)
        };
        let zstd = [frame(&text[..text.len() / 2]), frame(&text[text.len() / 2..])].concat();
        for (name, bytes) in [("a.jsonl.gz", &gzip), ("a.jsonl.zst", &zstd)] {
            let path = folder.join(name);
            std::fs::write(&path, bytes).expect("written");
            let mut found = String::new();
            open(&path).expect("opens").read_to_string(&mut found).expect("read");
            assert!(found == text, "{name}");
            assert_eq!(unpacked(&path).extension().and_then(|e| e.to_str()), Some("jsonl"));
            // Cut off, and no such file at all.
            std::fs::write(&path, &bytes[..bytes.len() - 9]).expect("written");
            assert!(open(&path).expect("opens").read_to_string(&mut found).is_err(), "{name}");
            std::fs::write(&path, "plain text").expect("written");
            assert!(
                open(&path)
                    .and_then(|mut file| file.read_to_string(&mut found).map_err(|e| Error::file(&path, e)))
                    .is_err(),
                "{name}"
            );
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}
