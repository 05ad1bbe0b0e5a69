//! The report of a run in a real browser: charts drawn, nothing on the console, no network needed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A browser that can run without a screen.
fn browser() -> Option<String> {
    let named = std::env::var("CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map(String::from);
    let works = |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    named.into_iter().chain(known).find(works)
}

/// What the browser makes of a page, and what it writes on its console.
fn open(browser: &str, page: &Path, folder: &Path, extra: &[&str]) -> (String, String) {
    visit(browser, &format!("file://{}", page.display()), folder, extra)
}

fn visit(browser: &str, address: &str, folder: &Path, extra: &[&str]) -> (String, String) {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        // Nothing but this machine can be reached: names resolve to nowhere.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .args(["--enable-logging=stderr", "--window-size=1120,2400", "--virtual-time-budget=4000"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(extra)
        .arg(address)
        .output()
        .expect("the browser runs");
    let console = String::from_utf8_lossy(&output.stderr);
    let console = console.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>().join("\n");
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

#[test]
fn the_report_opens_in_a_browser() {
    let Some(browser) = browser() else {
        assert!(std::env::var_os("CI").is_none(), "no browser here: install chromium");
        println!("skipped: no chromium on this machine");
        return;
    };
    let folder = std::env::temp_dir().join(format!("tensorloom-report-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let run = folder.join("run");
    let sizes = "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true";
    let output = Command::new(env!("CARGO_BIN_EXE_loom"))
        .args([
            "train",
            "--steps",
            "60",
            "--synthetic-bytes",
            "60000",
            "--vocab-size",
            "300",
            "--micro-batch-size",
            "4",
            "--seq-len",
            "32",
        ])
        .args(["--eval-every", "20", "--sample-every", "20", "--set", sizes, "--out"])
        .arg(&run)
        // Text that would end a script early, were it not written with care.
        .args(["--prompt", "</script><b>Once"])
        .output()
        .expect("loom runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = run.join("index.html");
    let text = std::fs::read_to_string(&page).expect("a report");
    let names = text.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(text.matches("http://").count() + text.matches("https://").count(), names, "links to elsewhere");

    let (page_text, console) = open(&browser, &page, &folder, &["--dump-dom"]);
    assert_eq!(console, "", "the console must stay empty");
    assert!(page_text.contains("data-drawn=\"yes\""), "the script ran to its end");
    assert!(page_text.matches("<path d=\"M").count() >= 15, "seven lines are drawn, and two for each layer");
    assert!(page_text.matches("<circle").count() >= 4, "a dot for each validation");
    assert!(page_text.matches("class=\"sample\"").count() >= 3);
    assert!(page_text.contains("matmul f32") && page_text.contains("validation loss"));
    assert!(!page_text.contains("NaN") && !page_text.contains(">undefined<"));

    // The console is really heard.
    let broken = folder.join("broken.html");
    std::fs::write(&broken, "<script>nowhere()</script>").expect("written");
    let (_, console) = open(&browser, &broken, &folder, &["--dump-dom"]);
    assert!(console.contains("nowhere"), "an error on the console is seen: {console}");

    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report.png");
    let _ = std::fs::remove_file(&picture);
    open(&browser, &page, &folder, &[&format!("--screenshot={}", picture.display())]);
    let bytes = std::fs::read(&picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 20_000, "{} bytes", bytes.len());
    println!("picture kept: {}", picture.display());
    let _ = std::fs::remove_dir_all(&folder);
}

const SIZES: &str = "d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,max_seq=64,tied=true";

/// The report while a run goes on: numbers come in, and the run ends as it would have.
#[test]
fn a_run_is_watched_while_it_goes_on() {
    let Some(browser) = browser() else {
        println!("skipped: no chromium on this machine");
        return;
    };
    let folder = std::env::temp_dir().join(format!("tensorloom-live-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut child = Command::new(env!("CARGO_BIN_EXE_loom"))
        .args([
            "train",
            "--dashboard",
            "--steps",
            "1000000",
            "--synthetic-bytes",
            "60000",
            "--vocab-size",
            "300",
            "--micro-batch-size",
            "4",
        ])
        .args(["--seq-len", "32", "--log-every", "2", "--set", SIZES, "--tensorboard", "true", "--out"])
        .arg(folder.join("run"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("loom runs");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let at = line.find("http://127.0.0.1:")?;
        Some(line[at..].trim().to_string())
    });
    let address = address.expect("an address");
    // A step's line has been written: there is something to see.
    let _ = lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("step "));
    let (page, console) = visit(&browser, &address, &folder, &["--dump-dom"]);
    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("live.png");
    visit(&browser, &address, &folder, &[&format!("--screenshot={}", picture.display())]);
    let (lost, _) = visit(&browser, &format!("{address}nothing"), &folder, &["--dump-dom"]);
    // Asked to stop, it saves; the pipe is read to its end, so that it can.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    lines.map_while(Result::ok).for_each(drop);
    let status = child.wait().expect("ends");
    assert_eq!(status.code(), Some(130), "stopped and saved");
    assert_eq!(console, "", "the console must stay empty");
    assert!(page.contains("data-drawn=\"yes\"") && page.contains("data-updates="), "numbers came anew: {page}");
    assert!(page.contains("<span>live</span>") && page.matches("<path d=\"M").count() >= 15);
    assert!(lost.contains("/data.json"), "{lost}");
    let events = std::fs::read_dir(folder.join("run")).expect("a folder").flatten();
    let events = events.filter(|entry| entry.file_name().to_string_lossy().starts_with("events.out.tfevents."));
    assert!(events.map(|entry| entry.metadata().map_or(0, |m| m.len())).sum::<u64>() > 200);
    println!("picture kept: {}", picture.display());
    let _ = std::fs::remove_dir_all(&folder);
}

/// Runs side by side, and where a command's time goes.
#[test]
fn runs_are_compared_and_commands_profiled() {
    let folder = std::env::temp_dir().join(format!("tensorloom-compared-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let loom = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_loom")).args(words).current_dir(&folder).output();
        let output = output.expect("loom runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let train = |out: &str, rate: &str, before: &[&str]| {
        let words = [
            "train",
            "--steps",
            "12",
            "--synthetic-bytes",
            "60000",
            "--vocab-size",
            "300",
            "--micro-batch-size",
            "4",
            "--seq-len",
            "32",
        ];
        let rest = ["--log-every", "3", "--set", SIZES, "--lr", rate, "--out", out];
        loom(&[before, &words, &rest].concat())
    };
    train("a", "0.001", &[]);
    let table = train("b", "0.01", &["profile", "--trace", "trace.json"]);
    assert!(table.contains("running programs") && table.contains("matmul f32"), "{table}");
    let text = std::fs::read_to_string(folder.join("trace.json")).expect("a trace");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let whole = events.iter().find(|e| e["name"] == "command").and_then(|e| e["dur"].as_f64()).expect("the command");
    for event in events.iter().filter(|e| e["ph"] == "X") {
        let (at, length) = (event["ts"].as_f64().expect("a time"), event["dur"].as_f64().expect("a time"));
        assert!(at >= 0.0 && length >= 0.0 && at + length <= whole * 1.01 + 1e4, "{event}");
    }
    assert!(events.iter().filter(|e| e["tid"] == 2).count() > 200, "steps of programs");
    loom(&["report", "a", "b", "--out", "both.html"]);
    let page = folder.join("both.html");
    let Some(browser) = browser() else { return };
    let (shown, console) = open(&browser, &page, &folder, &["--dump-dom"]);
    assert_eq!(console, "", "the console must stay empty");
    assert!(shown.contains("data-drawn=\"yes\"") && shown.matches("<path d=\"M").count() >= 8, "{shown}");
    assert!(shown.contains("0.001") && shown.contains("0.01") && !shown.contains("NaN"));
    let picture = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compare.png");
    open(&browser, &page, &folder, &[&format!("--screenshot={}", picture.display())]);
    println!("picture kept: {}", picture.display());
    let _ = std::fs::remove_dir_all(&folder);
}
