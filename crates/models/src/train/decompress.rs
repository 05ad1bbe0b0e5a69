//! Compressed text files: gzip and Zstandard, decompressed while reading.

use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use train::files;

/// File extensions of the compression formats.
pub(super) const COMPRESSED_SUFFIXES: &[&str] = &["gz", "zst"];

/// Opens a file for reading its decompressed bytes.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = files::open(path)?;
    match path.extension().and_then(|e| e.to_str()) {
        Some("gz") => Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, file)))),
        Some("zst") => {
            let from = BufReader::with_capacity(1 << 16, file);
            Ok(Box::new(ZstdFrames { path: path.to_path_buf(), frame: ZstdFrame::Between(from) }))
        }
        _ => Ok(Box::new(file)),
    }
}

/// A path without the extension of the compression format.
pub(super) fn strip_compression_suffix(path: &Path) -> PathBuf {
    let packed = path.extension().and_then(|e| e.to_str()).is_some_and(|e| COMPRESSED_SUFFIXES.contains(&e));
    if packed { path.with_extension("") } else { path.to_path_buf() }
}

/// The consecutive frames of a Zstandard file.
struct ZstdFrames<R: BufRead> {
    path: PathBuf,
    frame: ZstdFrame<R>,
}

enum ZstdFrame<R: BufRead> {
    Between(R),
    In(Box<StreamingDecoder<R, FrameDecoder>>),
    Over,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            self.frame = match std::mem::replace(&mut self.frame, ZstdFrame::Over) {
                ZstdFrame::Over => return Ok(0),
                ZstdFrame::Between(mut from) => match from.fill_buf()?.is_empty() {
                    true => return Ok(0),
                    false => {
                        let decoder = StreamingDecoder::new(from).map_err(|e| {
                            let what = Error::file(&self.path, format!("not a Zstandard file: {e}"));
                            std::io::Error::other(what.to_string())
                        })?;
                        ZstdFrame::In(Box::new(decoder))
                    }
                },
                ZstdFrame::In(mut decoder) => match decoder.read(to)? {
                    0 if !to.is_empty() => ZstdFrame::Between(decoder.into_inner()),
                    n => {
                        self.frame = ZstdFrame::In(decoder);
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

    /// Files compressed by other programs, in several members and frames, are read completely; corrupt ones are errors.
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
            assert_eq!(strip_compression_suffix(&path).extension().and_then(|e| e.to_str()), Some("jsonl"));
            // A truncated file, and a file of another format.
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
