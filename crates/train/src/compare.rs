//! An HTML page that compares runs: their curves in one chart, and the settings that differ.

use crate::error::{Error, Result};
use crate::files;
use crate::html_page::html_page;
use crate::log::LogEntry;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of points of a curve.
const MAX_CURVE_POINTS: usize = 800;

/// Writes a page that compares the runs in these folders. `current` gives the current name and value of a setting, which an older run may
/// have written differently.
pub fn compare(runs: &[PathBuf], out: &Path, current: &dyn Fn(&str, &str) -> (String, String)) -> Result<()> {
    let mut all = Vec::new();
    for folder in runs {
        all.push(LoggedRun::read(folder, current)?);
    }
    files::write(out, html_page("Runs compared", include_str!("pages/compare.html"), &page_data(&all)).as_bytes())
}

struct LoggedRun {
    name: String,
    settings: BTreeMap<String, String>,
    entries: Vec<LogEntry>,
}

impl LoggedRun {
    fn read(folder: &Path, current: &dyn Fn(&str, &str) -> (String, String)) -> Result<LoggedRun> {
        let (log, settings) = (folder.join("log.jsonl"), folder.join("run.toml"));
        if !log.is_file() {
            return Err(Error::file(folder, "no log.jsonl found: give folders written by `loom train`"));
        }
        let text = files::read_text(&log, files::MAX_TEXT_BYTES)?;
        let entries: Vec<LogEntry> =
            text.lines().filter_map(|line| LogEntry::from_json(&serde_json::from_str(line).ok()?)).collect();
        let text = files::read_text(&settings, files::MAX_CONFIG_BYTES).unwrap_or_default();
        // The format of a run's settings file: `name = value # about`.
        let pairs = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once(" = ")?;
            let value = rest.rsplit_once(" # ").map_or(rest, |(value, _)| value).trim();
            Some(current(name.trim(), value.trim_matches('"')))
        });
        Ok(LoggedRun { name: folder.display().to_string(), settings: pairs.collect(), entries })
    }
}

fn page_data(runs: &[LoggedRun]) -> Json {
    let thin = |points: Vec<Json>| -> Vec<Json> {
        let every = points.len().div_ceil(MAX_CURVE_POINTS).max(1);
        points.into_iter().step_by(every).collect()
    };
    let shown: Vec<Json> = runs
        .iter()
        .map(|run| {
            let (mut train, mut valid, mut speeds, mut memory) = (Vec::new(), Vec::new(), Vec::new(), 0);
            for entry in &run.entries {
                match entry {
                    LogEntry::Train { step, loss, norm, speed, memory: now, .. } => {
                        train.push(json!([step, loss, norm, speed]));
                        speeds.push(*speed);
                        memory = memory.max(*now);
                    }
                    LogEntry::Valid { step, loss } => valid.push(json!([step, loss])),
                    _ => {}
                }
            }
            speeds.sort_by(f64::total_cmp);
            let best = run
                .entries
                .iter()
                .filter_map(|e| if let LogEntry::Valid { loss, .. } = e { Some(*loss) } else { None });
            json!({
                "name": run.name,
                "steps": run.entries.iter().map(LogEntry::step).max().unwrap_or(0),
                "last": train.last().map(|row| row[1].clone()),
                "best": best.filter(|loss| loss.is_finite()).min_by(f32::total_cmp),
                "speed": speeds.get(speeds.len() / 2),
                "memory": memory as f64 / 1e6,
                "train": thin(train),
                "valid": valid,
            })
        })
        .collect();
    let mut names: Vec<&String> = runs.iter().flat_map(|run| run.settings.keys()).collect();
    names.sort();
    names.dedup();
    let value = |run: &LoggedRun, name: &str| run.settings.get(name).cloned().unwrap_or_default();
    let differ =
        names.iter().filter(|name| **name != "out" && runs.iter().any(|run| value(run, name) != value(&runs[0], name)));
    let differ: Vec<Json> =
        differ.map(|name| json!([name, runs.iter().map(|run| value(run, name)).collect::<Vec<_>>()])).collect();
    json!({ "runs": shown, "differ": differ })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_put_side_by_side() {
        let folder = std::env::temp_dir().join(format!("tensorloom-compare-{}", std::process::id()));
        for (name, rate, losses) in [("a", "0.001", [3.0, 2.0]), ("b", "0.01", [3.0, 2.5])] {
            let old = if name == "a" { "batch" } else { "micro-batch-size" };
            std::fs::create_dir_all(folder.join(name)).expect("made");
            let lines = losses.iter().enumerate().map(|(i, loss)| {
                format!("{{\"step\":{},\"loss\":{loss},\"last\":1,\"norm\":1,\"rate\":1,\"tokens_per_s\":10,\"memory\":5}}\n{{\"step\":{},\"valid\":{loss}}}\n", i + 1, i + 1)
            });
            std::fs::write(folder.join(name).join("log.jsonl"), lines.collect::<String>()).expect("written");
            let text = format!(
                "lr = {rate}      # learning rate\nsteps = 2 # steps\n{old} = 4 # sequences\nprompt = \"a < b\" # text\n"
            );
            std::fs::write(folder.join(name).join("run.toml"), text).expect("written");
        }
        let current = |name: &str, value: &str| {
            let name = if name == "batch" { "micro-batch-size" } else { name };
            (name.to_string(), value.to_string())
        };
        let runs = [folder.join("a"), folder.join("b")];
        let read: Vec<LoggedRun> = runs.iter().map(|run| LoggedRun::read(run, &current).expect("read")).collect();
        let found = page_data(&read);
        assert_eq!(found["differ"], json!([["lr", ["0.001", "0.01"]]]));
        assert_eq!(found["runs"][1]["best"], json!(2.5));
        assert_eq!(found["runs"][0]["train"].as_array().map(Vec::len), Some(2));
        let page = folder.join("page.html");
        compare(&runs, &page, &current).expect("written");
        assert!(std::fs::read_to_string(&page).expect("there").contains("0.001"));
        assert!(compare(&[folder.join("none")], &page, &current).is_err());
        let _ = std::fs::remove_dir_all(&folder);
    }
}
