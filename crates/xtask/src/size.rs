//! `size` measures the build time of a release build of `loom` and the size of the binary, and compares them with the last values
//! in `docs/bench/build.md`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The page of recorded values, and the maximum growth of the binary relative to the last of them.
const PAGE: &str = "docs/bench/build.md";
const MAX_GROWTH: f64 = 0.03;

/// One release build.
#[derive(Clone, Debug, PartialEq)]
struct Build {
    name: String,
    /// User and system time of the build's processes.
    core_seconds: f64,
    wall_seconds: Option<f64>,
    /// Size of the binary, in units of 10^6 bytes.
    megabytes: f64,
}

/// Builds in an empty target directory and prints the comparison. Fails if the binary has grown by more than 3 %.
pub(crate) fn size(root: &Path) -> Result<(), String> {
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(|e| format!("{PAGE}: {e}"))?;
    let last = recorded(&page).pop().ok_or_else(|| format!("{PAGE} has no row of values"))?;
    let now = build(root)?;
    print!("{}", table(&last, &now));
    verdict(&last, &now)
}

/// Runs one release build in an empty target directory.
fn build(root: &Path) -> Result<Build, String> {
    let target = root.join("target/size");
    let remove = || match std::fs::remove_dir_all(&target) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", target.display())),
        _ => Ok(()),
    };
    remove()?;
    println!("$ cargo build --release --target-dir target/size");
    // The shell builtin `times` prints the user and system time of the shell, then of all processes that it has waited for.
    let script = "cargo build --release --target-dir target/size && times";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(root).stderr(Stdio::inherit());
    let start = Instant::now();
    let out = command.output().map_err(|e| format!("`sh` can't be run: {e}"))?;
    let wall = start.elapsed().as_secs_f64();
    if !out.status.success() {
        return Err(format!("`{script}` ended with {}", out.status));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let core_seconds =
        children(&text).ok_or_else(|| format!("`times` printed {text:?}, and not two lines of two times"))?;
    let program = target.join("release").join(format!("loom{}", std::env::consts::EXE_SUFFIX));
    let bytes = std::fs::metadata(&program).map_err(|e| format!("{}: {e}", program.display()))?.len();
    remove()?;
    Ok(Build { name: "now".into(), core_seconds, wall_seconds: Some(wall), megabytes: bytes as f64 / 1e6 })
}

/// Returns the seconds in the second line of the output of `times`, such as `1m2.5s 0m3.25s`.
fn children(times: &str) -> Option<f64> {
    let seconds = |time: &str| {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        Some(60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?)
    };
    let mut both = times.lines().nth(1)?.split_whitespace();
    Some(seconds(both.next()?)? + seconds(both.next()?)?)
}

/// Returns the rows of the page's table: name, core-seconds, wall seconds (`–` if unknown), megabytes.
fn recorded(page: &str) -> Vec<Build> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
        let [name, core, wall, size] = cells[..] else { return None };
        let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
        Some(Build {
            name: name.into(),
            core_seconds: number(core)?,
            wall_seconds: number(wall),
            megabytes: number(size)?,
        })
    };
    page.lines().filter_map(row).collect()
}

/// Returns both builds as rows of the page's table, so that the second row can be appended to the page, and the change.
fn table(last: &Build, now: &Build) -> String {
    let row = |b: &Build| {
        let wall = b.wall_seconds.map_or("–".into(), |s| format!("{s:.0}"));
        format!("| {} | {:.0} | {wall} | {:.1} |\n", b.name, b.core_seconds, b.megabytes)
    };
    let change = |now: f64, last: f64| format!("{:+.1} %", 100.0 * (now / last - 1.0));
    let wall = last.wall_seconds.zip(now.wall_seconds).map_or("–".into(), |(last, now)| change(now, last));
    let core = change(now.core_seconds, last.core_seconds);
    let size = change(now.megabytes, last.megabytes);
    let head = "| build | core-seconds | wall seconds | size of loom, MB |\n| --- | --- | --- | --- |\n";
    format!("{head}{}{}| change | {core} | {wall} | {size} |\n", row(last), row(now))
}

/// Returns an error if the binary has grown too much. Time depends on the machine, so an increase in time gives only a warning.
fn verdict(last: &Build, now: &Build) -> Result<(), String> {
    if now.core_seconds > last.core_seconds * (1.0 + MAX_GROWTH) {
        let (more, than) = (now.core_seconds, last.core_seconds);
        println!("warning: the build took {more:.0} core-seconds, `{}` took {than:.0}; machines differ", last.name);
    }
    match now.megabytes > last.megabytes * (1.0 + MAX_GROWTH) {
        true => Err(format!(
            "loom has {:.1} MB, more than 3 % above the {:.1} MB of `{}`: find what grew, or append the row to {PAGE} if it is worth it",
            now.megabytes, last.megabytes, last.name
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, core_seconds: f64, wall_seconds: Option<f64>, megabytes: f64) -> Build {
        Build { name: name.into(), core_seconds, wall_seconds, megabytes }
    }

    #[test]
    fn times_of_children_are_read() {
        assert_eq!(children("0m0.002s 0m0.001s\n8m52.500s 0m20.25s\n"), Some(552.75));
        assert_eq!(children("0m0.00s 0m0.00s\n"), None);
        assert_eq!(children("a\n1m2 3\n"), None);
    }

    #[test]
    fn the_last_row_is_compared_with() {
        let page = "# Title\n\n| build | core-seconds | wall seconds | size |\n| --- | --- | --- | --- |\n\
                    | before | 1,552 | – | 195 |\n| after | 300.5 | 160 | 50 |\n";
        let rows = recorded(page);
        assert_eq!(rows, [of("before", 1552.0, None, 195.0), of("after", 300.5, Some(160.0), 50.0)]);
        // A printed row can be appended to the page.
        assert_eq!(recorded(&table(&rows[0], &rows[1]))[1], of("after", 300.0, Some(160.0), 50.0));
    }

    #[test]
    fn only_a_larger_program_fails() {
        let last = of("last", 500.0, None, 100.0);
        assert!(verdict(&last, &of("now", 900.0, Some(1.0), 102.9)).is_ok());
        assert!(verdict(&last, &of("now", 100.0, Some(1.0), 103.1)).is_err());
        assert!(table(&last, &of("now", 750.0, Some(1.0), 50.0)).contains("| change | +50.0 % | – | -50.0 % |"));
    }

    #[test]
    fn the_page_has_values() {
        let page = std::fs::read_to_string(crate::root().join(PAGE)).expect("the page is in the repository");
        assert!(!recorded(&page).is_empty());
    }
}
