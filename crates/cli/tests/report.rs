//! The report of a run in a real browser: charts drawn, nothing on the console, no network needed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A browser that can run without a screen.
fn browser() -> Option<String> {
    let named = std::env::var("CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"].map(String::from);
    let works = |name: &String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    named.into_iter().chain(known).find(works)
}

/// What the browser makes of a page, and what it writes on its console.
fn open(browser: &str, page: &Path, folder: &Path, extra: &[&str]) -> (String, String) {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        // Nothing can be reached: names resolve to nowhere.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .args(["--enable-logging=stderr", "--window-size=1120,2400", "--virtual-time-budget=4000"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(extra)
        .arg(format!("file://{}", page.display()))
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
        .args(["train", "--steps", "60", "--stories", "60000", "--vocab", "300", "--batch", "4", "--seq", "32"])
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
    assert!(page_text.matches("<path d=\"M").count() >= 7, "seven lines are drawn");
    assert!(page_text.matches("<circle").count() >= 4, "a dot for each validation");
    assert!(page_text.matches("class=\"sample\"").count() >= 3);
    assert!(page_text.contains("matmul f32") && page_text.contains("held-out loss"));
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
