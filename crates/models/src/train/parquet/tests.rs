//! Files written by pyarrow (`golden/parquet.py`), and corrupted ones.

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/parquet")
}

fn expected() -> Vec<Json> {
    let text = std::fs::read_to_string(folder().join("expected.jsonl")).expect("golden data");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn all(path: &Path, wanted: &[&str]) -> Result<Vec<Json>> {
    let file = Parquet::open(path)?;
    let mut rows = Vec::new();
    for group in 0..file.groups() {
        rows.extend(file.rows(group, wanted)?);
    }
    Ok(rows)
}

fn files_of() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).expect("golden data").flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = entries.filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect();
    paths.sort();
    paths
}

/// All compression formats and encodings give the same rows.
#[test]
fn rows_are_those_that_were_written() {
    let expected = expected();
    assert!(files_of().len() >= 8);
    for path in files_of() {
        let rows = all(&path, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rows.len(), expected.len(), "{}", path.display());
        for (n, (row, want)) in rows.iter().zip(&expected).enumerate() {
            assert_eq!(row, want, "{} row {n}", path.display());
        }
        let texts = all(&path, &["text"]).expect("read");
        assert!(texts.iter().zip(&expected).all(|(row, want)| row["text"] == want["text"] && row.get("id").is_none()));
    }
}

/// Changed bytes and truncated files give an error or other rows, never a panic or endless work.
#[test]
fn damaged_files_are_errors() {
    let seconds = std::env::var("PARQUET_FUZZ_SECONDS").ok().and_then(|s| s.parse::<u64>().ok());
    let path = std::env::temp_dir().join(format!("tensorloom-parquet-{}.parquet", std::process::id()));
    let mut random = crate::SplitMix64::new(7, 1);
    let started = std::time::Instant::now();
    let mut refused = 0;
    for from in files_of() {
        let good = std::fs::read(&from).expect("golden data");
        for n in 0.. {
            let more = seconds.map_or(n < 12, |s| started.elapsed().as_secs() < s && n < 4000);
            if !more {
                break;
            }
            let mut bytes = good.clone();
            for _ in 0..=random.below(3) {
                let at = match random.below(2) {
                    // The footer is at the end.
                    0 => bytes.len() - 1 - random.below(bytes.len().min(1500)),
                    _ => random.below(bytes.len()),
                };
                bytes[at] = random.below(256) as u8;
            }
            if random.below(4) == 0 {
                bytes.truncate(random.below(good.len()));
            }
            std::fs::write(&path, &bytes).expect("written");
            refused += usize::from(all(&path, &[]).is_err());
        }
    }
    assert!(refused > 0);
    let _ = std::fs::remove_file(&path);
}
