//! `bench cpu`, `bench vsla` and `bench ops` run our benchmark program and the peers alternately, case by case, and print the
//! table of ratios.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Command-line options.
pub(crate) struct BenchOptions {
    pub(crate) peers: bool,
    pub(crate) only: Vec<String>,
    pub(crate) reps: usize,
    pub(crate) rounds: usize,
    pub(crate) json: Option<PathBuf>,
}

impl BenchOptions {
    /// Parses the command line.
    pub(crate) fn parse(words: &[&str]) -> Result<BenchOptions, String> {
        let mut o = BenchOptions { peers: false, only: Vec::new(), reps: 5, rounds: 3, json: None };
        let mut words = words.iter();
        while let Some(w) = words.next() {
            let mut value = || words.next().ok_or(format!("{w} needs a value"));
            match *w {
                "--peers" => o.peers = true,
                "--only" => o.only = value()?.split(',').map(str::to_string).collect(),
                "--reps" => o.reps = value()?.parse().ok().filter(|n| *n > 0).ok_or("--reps needs a number")?,
                "--rounds" => o.rounds = value()?.parse().ok().filter(|n| *n > 0).ok_or("--rounds needs a number")?,
                "--json" => o.json = Some(value()?.into()),
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(o)
    }
}

/// A set of cases with the peers that they are compared with.
pub(crate) struct Suite {
    /// The name of the suite and of its results page.
    pub(crate) name: &'static str,
    /// Names of the peers in `bench/peers.py`.
    pub(crate) peers: &'static [&'static str],
    /// Formats the results page.
    pub(crate) page: fn(&[BenchResult], &BenchOptions) -> String,
    /// Checks requirements on the results, if there are any.
    pub(crate) check: fn(&[BenchResult]) -> Result<(), String>,
}

/// The suite of compiled programs on the CPU backend.
pub(crate) const CPU: Suite =
    Suite { name: "cpu", peers: &["torch_eager", "torch_compile", "jax"], page, check: |_| Ok(()) };

/// A process that reads case names and answers each with one line of JSON.
pub(crate) struct BenchServer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl BenchServer {
    pub(crate) fn start(command: &mut Command) -> Result<BenchServer, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{command:?} can't be started: {e}"))?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(BenchServer { child, stdin, stdout })
    }

    /// Returns the answer to a case, or `None` if the program does not have the case or has exited.
    fn ask(&mut self, case: &str) -> Option<Value> {
        // The threads of the previous process busy-wait on their cores for up to 0.2 s.
        self.ask_after_delay(250, case)
    }

    /// Returns the answer to a case that is requested after a delay of `ms` milliseconds.
    pub(crate) fn ask_after_delay(&mut self, ms: u64, case: &str) -> Option<Value> {
        std::thread::sleep(std::time::Duration::from_millis(ms));
        writeln!(self.stdin, "{case}").ok()?;
        self.stdin.flush().ok()?;
        let mut line = String::new();
        self.stdout.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the cases one after another and prints, for each, the median ratio of the best peer's time to ours.
pub(crate) fn run(root: &Path, suite: &Suite, o: &BenchOptions) -> Result<(), String> {
    crate::run("cargo", &["build", "--release", "-p", "tensorloom-bench"])?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let ours = target.join("release/tensorloom-bench");
    let listed = Command::new(&ours).args(["--suite", suite.name, "--list"]).output().map_err(|e| e.to_string())?;
    let all: Vec<String> = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_string).collect();
    if let Some(bad) = o.only.iter().find(|c| !all.contains(c)) {
        return Err(format!("there is no case {bad:?}; cases are {}", all.join(", ")));
    }
    let cases: Vec<String> = all.into_iter().filter(|c| o.only.is_empty() || o.only.contains(c)).collect();

    let mut peers: Vec<(&str, BenchServer)> = Vec::new();
    if o.peers {
        let python = environment(root, &target)?;
        for &peer in suite.peers {
            peers.push((peer, peer_server(&python, root, peer, o.reps)?));
        }
    }
    let mut rows = Vec::new();
    for case in &cases {
        let mut row = measure(suite, case, &ours, &mut peers, o)?;
        if o.peers && case.starts_with("train_") {
            // Memory is measured in fresh processes.
            let python = environment(root, &target)?;
            for peer in &suite.peers[..2] {
                let mut server = peer_server(&python, root, peer, 1)?;
                row.memory
                    .push(server.ask(case).and_then(|a| a["rss_mib"].as_f64()).ok_or(format!("{peer}: no memory"))?);
            }
        }
        println!("{}", show(&row));
        rows.push(row);
    }
    if let Some(path) = &o.json {
        let text: String = rows.iter().map(|r| format!("{}\n", to_json(r))).collect();
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if o.peers && o.only.is_empty() {
        let path = root.join(format!("docs/bench/{}.md", suite.name));
        std::fs::write(&path, (suite.page)(&rows, o)).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("wrote {}", path.display());
    }
    (suite.check)(&rows)
}

fn peer_server(python: &Path, root: &Path, peer: &str, reps: usize) -> Result<BenchServer, String> {
    BenchServer::start(Command::new(python).arg(root.join("bench/peers.py")).arg(peer).arg(reps.to_string()))
}

/// The measurements of a case.
pub(crate) struct BenchResult {
    pub(crate) case: String,
    /// Our seconds, one value per round.
    pub(crate) ours: Vec<f64>,
    pub(crate) peers: BTreeMap<String, Vec<f64>>,
    /// Our answers, one per round, and the first answer of each peer.
    pub(crate) answers: Vec<Value>,
    pub(crate) peer_answers: BTreeMap<String, Value>,
    /// Memory in MiB of a step in fresh PyTorch processes, eager and compiled.
    pub(crate) memory: Vec<f64>,
}

impl BenchResult {
    /// Returns the median over the rounds of the best peer's time divided by ours.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let rounds: Vec<f64> = (0..self.ours.len())
            .filter_map(|i| {
                let best = self.peers.values().filter_map(|p| p.get(i)).copied().reduce(f64::min)?;
                Some(best / self.ours[i])
            })
            .collect();
        (!rounds.is_empty()).then(|| median(&rounds))
    }

    /// Returns the median over the rounds of one peer's time divided by ours.
    pub(crate) fn ratio_to(&self, peer: &str) -> Option<f64> {
        let rounds: Vec<f64> = self.peers.get(peer)?.iter().zip(&self.ours).map(|(p, o)| p / o).collect();
        (!rounds.is_empty()).then(|| median(&rounds))
    }
}

pub(crate) fn median(x: &[f64]) -> f64 {
    let mut x = x.to_vec();
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

fn measure(
    suite: &Suite,
    case: &str,
    ours: &Path,
    peers: &mut [(&str, BenchServer)],
    o: &BenchOptions,
) -> Result<BenchResult, String> {
    // Each case has its own process, so that memory and first-use times are those of the case alone.
    let mut server =
        BenchServer::start(Command::new(ours).args(["--suite", suite.name, "--reps", &o.reps.to_string()]))?;
    let mut row = BenchResult {
        case: case.into(),
        ours: Vec::new(),
        peers: BTreeMap::new(),
        answers: Vec::new(),
        peer_answers: BTreeMap::new(),
        memory: Vec::new(),
    };
    for _ in 0..o.rounds {
        let answer = server.ask(case).ok_or(format!("our program did not answer {case}"))?;
        let s = answer["s"].as_f64().ok_or(format!("{case}: {answer}"))?;
        row.ours.push(s);
        for (name, peer) in peers.iter_mut().filter(|_| !case.starts_with("compile_")) {
            let answer =
                peer.ask(case).ok_or(format!("{name} stopped at {case}; bench/peers.py says why when run by hand"))?;
            if let Some(s) = answer["s"].as_f64() {
                row.peers.entry(name.to_string()).or_default().push(s);
                row.peer_answers.entry(name.to_string()).or_insert(answer);
            }
        }
        row.answers.push(answer);
    }
    Ok(row)
}

pub(crate) fn to_json(r: &BenchResult) -> Value {
    let peers: BTreeMap<&String, f64> = r.peers.iter().map(|(k, v)| (k, median(v))).collect();
    json!({"case": r.case, "ours_s": median(&r.ours), "peers": peers, "ratio": r.ratio()})
}

pub(crate) fn show(r: &BenchResult) -> String {
    let mut line = format!("{:28} ours {:>10}", r.case, seconds(median(&r.ours)));
    for (name, s) in &r.peers {
        let _ = write!(line, "  {name} {:>10}", seconds(median(s)));
    }
    if let Some(ratio) = r.ratio() {
        let _ = write!(line, "  ratio {ratio:.2}");
    }
    line
}

pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// Returns the name of the processor.
pub(crate) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or(": unknown")
        .trim_start_matches([' ', '\t', ':']);
    let wide = if info.contains("avx512f") { "AVX-512" } else { "AVX2" };
    format!("{model} ({wide}), 2 threads")
}

fn page(rows: &[BenchResult], o: &BenchOptions) -> String {
    let mut text = format!(
        "# CPU benchmarks\n\nWritten by `cargo xtask bench cpu --peers`: {}, median of {} rounds of {} \
         timings; our program and the peers take turns, case by case. A ratio is the best peer's time over ours: above 1, \
         ours is faster.\n\n| case | ours | PyTorch eager | torch.compile | JAX jit | ratio |\n| --- | --- | --- | --- | --- | --- |\n",
        processor(),
        o.rounds,
        o.reps
    );
    let (compiled, timed): (Vec<&BenchResult>, Vec<&BenchResult>) =
        rows.iter().partition(|r| r.case.starts_with("compile_"));
    for r in timed {
        let peer = |name: &str| r.peers.get(name).map_or("–".to_string(), |s| seconds(median(s)));
        let ratio = r.ratio().map_or("–".to_string(), |x| format!("{x:.2}"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {ratio} |",
            r.case,
            seconds(median(&r.ours)),
            peer("torch_eager"),
            peer("torch_compile"),
            peer("jax")
        );
    }
    text.push_str(
        "\nExtra resident memory is the growth of the process's peak by a step beyond its parameters, each in a process of its \
         own.\n\n| case | compile | first step | extra resident memory | PyTorch eager | torch.compile | planned arena |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for r in rows.iter().filter(|r| r.case.starts_with("train_")) {
        let e = |k: &str| r.answers[0][k].as_f64().unwrap_or(0.0);
        let memory = |i: usize| r.memory.get(i).map_or("–".to_string(), |m| format!("{m:.0} MiB"));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} MiB | {} | {} | {} MiB |",
            r.case,
            seconds(e("compile_s")),
            seconds(e("first_s")),
            e("rss_mib"),
            memory(0),
            memory(1),
            e("arena_mib")
        );
    }
    text.push_str(
        "\nCompile time of the small Llama's training step, Graph to loaded machine code with an empty cache, by layers:\n\n\
         | layers | time | nodes of the graph | steps | µs a node |\n| --- | --- | --- | --- | --- |\n",
    );
    for r in compiled {
        let e = |k: &str| r.answers[0][k].as_f64().unwrap_or(0.0);
        let (s, layers) = (median(&r.ours), r.case.trim_start_matches("compile_layers"));
        let each = s * 1e6 / e("nodes").max(1.0);
        let _ = writeln!(text, "| {layers} | {} | {} | {} | {each:.1} |", seconds(s), e("nodes"), e("steps"));
    }
    text
}

/// Returns a private Python environment with the peers installed, created on first use. `LOOM_PYTHON` selects another
/// interpreter.
pub(crate) fn environment(root: &Path, target: &Path) -> Result<PathBuf, String> {
    if let Some(python) = std::env::var_os("LOOM_PYTHON") {
        return Ok(python.into());
    }
    let folder = target.join("bench-peers");
    let python = folder.join("bin/python");
    if !folder.join("ready").exists() {
        println!("making a Python environment with PyTorch and JAX in {} (some gigabytes)", folder.display());
        crate::run("python3", &["-m", "venv", &folder.to_string_lossy()])?;
        let requirements = root.join("bench/requirements.txt");
        crate::run(&python.to_string_lossy(), &["-m", "pip", "install", "-q", "-r", &requirements.to_string_lossy()])?;
        std::fs::write(folder.join("ready"), "").map_err(|e| e.to_string())?;
    }
    Ok(python)
}
