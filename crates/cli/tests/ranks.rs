//! `loom launch` and `loom train --mesh` as processes: losses of one process, a killed rank, resuming.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tensorloom-ranks-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// A run of a tiny model.
fn train(out: &Path, steps: usize, more: &[&str]) -> Vec<String> {
    let text = "train --model llama --set d_model=16,n_layers=1,heads=2,kv_heads=2,d_ff=32,max_seq=16 --stories 20000 \
                --vocab 300 --batch 4 --seq 16 --eval-batches 1 --log-every 1 --checkpoint-every 4 --sample-every 100000 --threads 1";
    let mut words: Vec<String> = text.split_whitespace().map(str::to_string).collect();
    words.extend(["--out".into(), out.display().to_string(), "--steps".into(), steps.to_string()]);
    words.extend(more.iter().map(|w| w.to_string()));
    words
}

fn loom(words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loom")).args(words).output().unwrap()
}

fn launch(n: usize, words: &[String]) -> Output {
    let head = ["launch".to_string(), "-n".to_string(), n.to_string(), "loom".to_string()];
    loom(&[&head[..], words].concat())
}

/// The losses of a run's log.
fn losses(out: &Path) -> Vec<f64> {
    let text = std::fs::read_to_string(out.join("log.jsonl")).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|json| json.get("last").or(json.get("eval_loss")).and_then(|l| l.as_f64())).collect()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn ranks_that_are_processes_train_like_one() {
    let (one, two) = (temporary("one"), temporary("two"));
    succeeded(&loom(&train(&one, 6, &[])));
    succeeded(&launch(2, &train(&two, 6, &["--mesh", "fsdp=2"])));
    let (one_losses, two_losses) = (losses(&one), losses(&two));
    assert!(one_losses.len() >= 7, "{one_losses:?}");
    for (a, b) in one_losses.iter().zip(&two_losses) {
        assert!((a - b).abs() < 1e-5 * a.abs().max(1.0), "{one_losses:?}\n{two_losses:?}");
    }
    // One HuggingFace directory at the end, as from one process.
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert_eq!(one.join(file).exists(), two.join(file).exists(), "{file}");
    }
    for path in [one, two] {
        let _ = std::fs::remove_dir_all(path);
    }
}

fn rank(rank: usize, address: &str, words: &[String]) -> Child {
    let mut c = Command::new(env!("CARGO_BIN_EXE_loom"));
    c.args(words).env("LOOM_RANK", rank.to_string()).env("LOOM_WORLD_SIZE", "2").env("LOOM_ADDRESS", address);
    c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Either of two ranks is killed at some moment, again and again (`TENSORLOOM_KILLS=10` looks longer); the other ends soon and
/// names it, and what was resumed ends with the bits of a run that nobody disturbed.
#[test]
fn a_killed_rank_is_named_and_the_run_resumes_with_the_same_bits() {
    let kills: usize = std::env::var("TENSORLOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (straight, broken) = (temporary("straight"), temporary("broken"));
    let steps = 150 * (kills + 1);
    succeeded(&launch(2, &train(&straight, steps, &["--mesh", "dp=2"])));
    let mut seed = std::process::id() as u64;
    for kill in 0..kills {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let more: &[&str] = if kill > 0 { &["--mesh", "dp=2", "--resume"] } else { &["--mesh", "dp=2"] };
        let words = train(&broken, steps, more);
        let mut ranks = [rank(0, &address, &words), rank(1, &address, &words)];
        // A few steps further than it was, and then some.
        let count = || if broken.join("log.jsonl").exists() { losses(&broken).len() } else { 0 };
        let (before, until) = (count(), Instant::now() + Duration::from_secs(120));
        while count() < before + 6 {
            assert!(Instant::now() < until, "nothing happens");
            std::thread::sleep(Duration::from_millis(2));
        }
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis((seed >> 40) % 40));
        let dead = kill % 2;
        ranks[dead].kill().unwrap();
        ranks[dead].wait().unwrap();
        let killed = Instant::now();
        let [first, second] = ranks;
        let mut other = if dead == 0 { second } else { first };
        while other.try_wait().unwrap().is_none() {
            assert!(killed.elapsed() < Duration::from_secs(10), "the other rank hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = String::from_utf8_lossy(&other.wait_with_output().unwrap().stderr).to_string();
        assert!(said.contains(&format!("lost the connection to rank {dead}")), "{said}");
    }
    succeeded(&launch(2, &train(&broken, steps, &["--mesh", "dp=2", "--resume"])));
    let model = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
    assert!(model(&straight) == model(&broken), "resuming changes bits");
    for path in [straight, broken] {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[test]
fn a_mesh_without_its_ranks_is_an_error_with_the_command_to_give() {
    let out = temporary("none");
    let output = loom(&train(&out, 1, &["--mesh", "dp=2,tp=2"]));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && said.contains("loom launch -n 4 loom"), "{said}");
    let output = launch(3, &train(&out, 1, &["--mesh", "dp=2"]));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && said.contains("has 2 ranks, but 3 were started"), "{said}");
    let output = loom(&train(&out, 1, &["--mesh", "dp"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("as in `dp=2,tp=4`"));
}

/// Ranks compute on the CPU, or each on a GPU of CUDA's; what is not there is said with its remedy, and by all.
#[test]
fn devices_that_ranks_can_not_have_are_refused() {
    let out = temporary("devices");
    for (device, word) in [("wgpu", "`cpu`, `cuda`"), ("abacus", "`cpu`, `cuda`"), ("cuda:x", "as in cuda:0")] {
        let output = launch(2, &train(&out, 1, &["--mesh", "dp=2", "--device", device]));
        let said = String::from_utf8_lossy(&output.stderr).to_string();
        assert!(!output.status.success() && said.contains(word), "{device}: {said}");
    }
    let output = launch(2, &train(&out, 1, &["--mesh", "dp=2", "--device", "cuda:777"]));
    let said = String::from_utf8_lossy(&output.stderr).to_string();
    assert!(!output.status.success() && (said.contains("no CUDA driver") || said.contains("cuda:777")), "{said}");
    let _ = std::fs::remove_dir_all(out);
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).to_string()
}

/// A run of two ranks goes on with one, a pipeline and then two that share each matrix; what comes of it writes the same alone and shared.
#[test]
fn a_run_goes_on_with_other_ranks_and_generates_on_them() {
    let (straight, elastic) = (temporary("alone"), temporary("elastic"));
    let words = |out: &Path, steps: usize, more: &[&str]| {
        let mut words = train(out, steps, &[&["--gradient-accumulation-steps", "2"], more].concat());
        words.iter_mut().for_each(|w| *w = w.replace("n_layers=1", "n_layers=2"));
        words
    };
    for (part, (ranks, mesh)) in [(2, "fsdp=2"), (1, ""), (2, "pp=2"), (2, "tp=2")].into_iter().enumerate() {
        let (steps, again) = (4 * (part + 1), if part > 0 { &["--resume"][..] } else { &[] });
        succeeded(&loom(&words(&straight, steps, again)));
        match ranks {
            1 => succeeded(&loom(&words(&elastic, steps, again))),
            n => succeeded(&launch(n, &words(&elastic, steps, &[again, &["--mesh", mesh]].concat()))),
        }
    }
    let (want, got) = (losses(&straight), losses(&elastic));
    let last = |all: &[f64]| all.iter().rev().take(4).copied().collect::<Vec<_>>();
    for (a, b) in last(&want).iter().zip(last(&got)) {
        assert!((a - b).abs() < 1e-3 * a.abs().max(1.0), "{want:?}\n{got:?}");
    }
    let asked = |more: &str| -> Vec<String> {
        let text = format!("generate {} --ids 5,6,7 --max-new 8 --threads 1 --json {more}", elastic.display());
        text.split_whitespace().map(str::to_string).collect()
    };
    let (alone, shared) = (loom(&asked("")), launch(2, &asked("--mesh tp=2")));
    succeeded(&alone);
    succeeded(&shared);
    assert_eq!(said(&alone), said(&shared));
    for path in [straight, elastic] {
        let _ = std::fs::remove_dir_all(path);
    }
}

#[test]
fn a_plan_names_meshes_and_why() {
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let sizes = "plan --model llama --set d_model=1024,n_layers=8,heads=16,kv_heads=8,d_ff=4096,vocab_size=32000 --seq 2048 --batch 64";
    let output = loom(&words(&format!("{sizes} --devices 16xH200 --mesh dp=2,tp=8")));
    succeeded(&output);
    let text = said(&output);
    assert!(
        text.contains("| dp=2,tp=8 | 1 | 1 |") && text.contains("within a node") && text.contains("between nodes"),
        "{text}"
    );
    let even = sizes.replace("vocab_size=32000", "vocab_size=256");
    let output = loom(&words(&format!("{even} --devices 8xH200 --mesh pp=8 --grad-accum 8")));
    succeeded(&output);
    // Seven of fifteen parts of the time are the bubble's.
    let waiting = said(&output)
        .lines()
        .find(|l| l.starts_with("| pp=8"))
        .and_then(|l| l.split('|').nth(5)?.trim().strip_suffix('%')?.parse::<f64>().ok());
    assert!(waiting.is_some_and(|w| (35.0..60.0).contains(&w)), "{}", said(&output));
    // Ranks of this machine, measured.
    let small =
        "plan --model llama --set d_model=32,n_layers=2,heads=4,kv_heads=2,d_ff=48,vocab_size=64 --seq 16 --dtype f32";
    let output = loom(&words(&format!("{small} --batch 4 --devices 2xhere --mesh dp=2")));
    succeeded(&output);
    let row: Vec<f64> = said(&output)
        .lines()
        .find(|l| l.starts_with("| dp=2"))
        .map(|l| l.split('|').filter_map(|cell| cell.trim().parse().ok()).collect())
        .unwrap_or_default();
    assert!(row.len() == 6 && row[0] > 0.0 && (row[1] + row[2] + row[3] - row[0]).abs() < 0.02, "{}", said(&output));
    for (more, wrong) in [
        ("--devices 8xTPU", "256xH200"),
        ("--devices 8xH200 --mesh dp=4", "make the two equal"),
        ("--devices 2xhere", "--mesh dp=2"),
    ] {
        let output = loom(&words(&format!("{sizes} {more}")));
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn collectives_that_are_put_in_are_shown() {
    let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let sizes = "compile llama --set d_model=16 --set n_layers=1 --set heads=2 --set kv_heads=2 --set d_ff=32 --set vocab_size=32 --batch 2 --emit graph";
    let whole = said(&loom(&words(sizes)));
    assert!(!whole.contains("psum"), "{whole}");
    let output = loom(&words(&format!("{sizes} --mesh dp=2,tp=2")));
    succeeded(&output);
    let text = said(&output);
    // After attention and after the feed-forward, over tp alone.
    assert_eq!(text.matches("psum").count(), 2, "{text}");
    assert!(text.contains("\"tp\"") && !text.contains("all_gather"), "{text}");
}

/// Processes with this text in their command line.
#[cfg(unix)]
fn alive(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = std::process::id().to_string();
    let numbers = all.filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && *name != own);
    numbers
        .filter(|id| {
            std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
        })
        .collect()
}

/// However a launcher is ended, nothing that it started is left: ranks, what they start, and those that ignore signals.
#[cfg(target_os = "linux")]
#[test]
fn no_rank_outlives_its_launcher() {
    for (k, signal) in ["INT", "TERM", "HUP", "QUIT", "KILL"].into_iter().enumerate() {
        for (j, trap) in ["", "trap '' INT TERM HUP QUIT; "].into_iter().enumerate() {
            let mark = format!("{}9{k}{j}", std::process::id());
            let shell = format!("{trap}echo ready; sleep {mark}; true");
            let mut launcher = Command::new(env!("CARGO_BIN_EXE_loom"))
                .args(["launch", "-n", "2", "--shutdown-timeout", "1", "sh", "-c", &shell])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut out = std::io::BufReader::new(launcher.stdout.take().unwrap());
            for _ in 0..2 {
                let mut line = String::new();
                std::io::BufRead::read_line(&mut out, &mut line).unwrap();
                assert_eq!(line, "ready\n");
            }
            let until = Instant::now() + Duration::from_secs(5);
            while alive(&mark).len() < 5 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            let id = launcher.id().to_string();
            assert!(Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status().unwrap().success());
            let (ended, until) = (launcher.wait().unwrap(), Instant::now() + Duration::from_secs(5));
            while !alive(&mark).is_empty() {
                assert!(Instant::now() < until, "{signal}: {:?} are left", alive(&mark));
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(ended.code(), if signal == "KILL" { None } else { Some(130) }, "{signal}");
        }
    }
}
