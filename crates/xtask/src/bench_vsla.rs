//! `bench vsla` compares convolution with SciPy, near and away from the threshold between its two algorithms, and a ragged batch
//! with PyTorch.

use crate::bench::{BenchOptions, BenchResult, Suite, median, processor, seconds};
use std::fmt::Write as _;

pub(crate) const SUITE: Suite = Suite { name: "vsla", peers: &["scipy", "torch_padded", "torch_nested"], page, check };

/// The minimum speed of a convolution relative to SciPy.
const MIN_SCIPY_RATIO: f64 = 0.9;
/// The minimum fraction of the ideal speedup (padded work over real work) that a ragged batch must reach.
const MIN_RAGGED_RATIO: f64 = 0.7;
/// The maximum ratio of the time of the chosen algorithm to the time of the other one. It allows for noise on a shared machine
/// and for the region where both take the same time.
const MAX_PATH_SLOWDOWN: f64 = 1.35;

/// Returns the seconds of the direct and the FFT algorithm, medians over the rounds.
fn paths(r: &BenchResult) -> Option<(f64, f64)> {
    let of = |key: &str| {
        let all: Vec<f64> = r.answers.iter().filter_map(|a| a[key].as_f64()).collect();
        (!all.is_empty()).then(|| median(&all))
    };
    Some((of("direct_s")?, of("fft_s")?))
}

/// Returns the median over the rounds of the time of the chosen algorithm divided by the time of the other one.
fn chosen_path_ratio(r: &BenchResult) -> Option<f64> {
    let rounds: Vec<f64> = r
        .answers
        .iter()
        .filter_map(|a| {
            let (direct, fft) = (a["direct_s"].as_f64()?, a["fft_s"].as_f64()?);
            Some(if a["path"] == "fft" { fft / direct } else { direct / fft })
        })
        .collect();
    (!rounds.is_empty()).then(|| median(&rounds))
}

/// Returns the padded work divided by the real work.
fn padding_ratio(r: &BenchResult) -> Option<f64> {
    let a = r.answers.first()?;
    Some(a["padded_flop"].as_f64()? / a["real_flop"].as_f64()?)
}

/// Returns the largest difference between our results and a peer's.
fn difference(r: &BenchResult, peer: &str) -> Option<f64> {
    let ours = r.answers.first()?["sample"].as_array()?;
    let theirs = r.peer_answers.get(peer)?["sample"].as_array()?;
    if ours.len() != theirs.len() {
        return None;
    }
    let pairs = ours.iter().zip(theirs);
    pairs.map(|(a, b)| Some((a.as_f64()? - b.as_f64()?).abs())).try_fold(0.0, |m, d| Some(f64::max(m, d?)))
}

fn check(rows: &[BenchResult]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for r in rows {
        if let Some(c) = chosen_path_ratio(r).filter(|c| *c > MAX_PATH_SLOWDOWN) {
            wrong.push(format!("{}: the chosen path takes {c:.2} times the other's time", r.case));
        }
        if let Some(x) = r.ratio_to("scipy").filter(|x| *x < MIN_SCIPY_RATIO) {
            wrong.push(format!("{}: {x:.2} of SciPy's speed, {MIN_SCIPY_RATIO} is asked", r.case));
        }
        let Some(promise) = padding_ratio(r) else { continue };
        if let Some(x) = r.ratio_to("torch_padded").filter(|x| *x < MIN_RAGGED_RATIO * promise) {
            wrong.push(format!(
                "{}: {x:.2} times the padded speed, {:.2} is asked",
                r.case,
                MIN_RAGGED_RATIO * promise
            ));
        }
        if let Some(x) = r.ratio_to("torch_nested").filter(|x| *x <= 1.0) {
            wrong.push(format!("{}: {x:.2} times the speed of nested tensors", r.case));
        }
        for peer in r.peer_answers.keys() {
            match difference(r, peer) {
                Some(d) if d <= 1e-4 => {}
                other => wrong.push(format!("{}: differs from {peer} by {other:?}", r.case)),
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn page(rows: &[BenchResult], o: &BenchOptions) -> String {
    let mut text = format!(
        "# Benchmarks of variable shapes\n\nWritten by `cargo xtask bench vsla --peers`: {}, median of {} rounds of {} \
         timings; our program and the peers take turns, case by case. A ratio is a peer's time over ours: above 1, ours is \
         faster. The command fails where a bar is missed: {MIN_SCIPY_RATIO} of SciPy's speed, {MIN_RAGGED_RATIO} of what leaving out padding \
         promises, and a chosen path that takes over {MAX_PATH_SLOWDOWN} times the other's time.\n\n## Convolution\n\nOurs sums in f64 for \
         f32 too; SciPy's `fftconvolve` transforms f32 in f32.\n\n\
         | lengths | dtype | ours | path | SciPy | ratio |\n| --- | --- | --- | --- | --- | --- |\n",
        processor(),
        o.rounds,
        o.reps
    );
    for r in rows.iter().filter(|r| r.case.starts_with("conv_")) {
        let (dtype, lengths) = r.case["conv_".len()..].split_once('_').unwrap_or_default();
        let peer = r.peers.get("scipy").map_or("–".to_string(), |s| seconds(median(s)));
        let ratio = r.ratio_to("scipy").map_or("–".to_string(), |x| format!("{x:.2}"));
        let path = r.answers[0]["path"].as_str().unwrap_or("–");
        let ours = seconds(median(&r.ours));
        let _ = writeln!(text, "| {} | {dtype} | {ours} | {path} | {peer} | {ratio} |", lengths.replace('x', " × "));
    }
    text.push_str(
        "\n## The threshold between the paths\n\nBoth paths in f64, in the same run. *loses* is the chosen path's time over \
         the better one's.\n\n| lengths | direct | FFT | chosen | loses |\n| --- | --- | --- | --- | --- |\n",
    );
    for r in rows.iter().filter(|r| r.case.contains("_f64_")) {
        let (Some((direct, fft)), Some(c)) = (paths(r), chosen_path_ratio(r)) else { continue };
        let lengths = r.case.rsplit('_').next().unwrap_or_default().replace('x', " × ");
        let path = r.answers[0]["path"].as_str().unwrap_or("–");
        let _ = writeln!(text, "| {lengths} | {} | {} | {path} | {:.2} |", seconds(direct), seconds(fft), c.max(1.0));
    }
    rows.iter().for_each(|r| text.push_str(&ragged(r).unwrap_or_default()));
    text
}

fn ragged(r: &BenchResult) -> Option<String> {
    let (a, promise) = (&r.answers[0], padding_ratio(r)?);
    let far = r.peer_answers.keys().filter_map(|p| difference(r, p)).fold(0.0, f64::max);
    let mut text = format!(
        "\n## A ragged batch\n\n64 sequences of 1 to 512 tokens from a long-tailed distribution (`bench/ragged.json`, {} \
         tokens in all) through four encoder layers of width 256, 4 heads, 1024 hidden. Padding multiplies the work by \
         {promise:.2}; the bar is {:.2} times the padded speed. PyTorch runs the fastest of the ways to write it that \
         `bench/peers.py` knows. Results differ by at most {far:.1e}.\n\n\
         | | GFLOP | time | GFLOP/s | ours is faster |\n| --- | --- | --- | --- | --- |\n",
        a["tokens"],
        MIN_RAGGED_RATIO * promise,
    );
    let mut line = |who: &str, s: f64, work: &str, ratio: Option<f64>| {
        let work = a[work].as_f64().unwrap_or(0.0) / 1e9;
        let ratio = ratio.map_or("–".to_string(), |x| format!("{x:.2} times"));
        let _ = writeln!(text, "| {who} | {work:.1} | {} | {:.0} | {ratio} |", seconds(s), work / s);
    };
    line("ours, packed", median(&r.ours), "real_flop", None);
    let peers = [
        ("torch_padded", "PyTorch, padded and masked", "padded_flop"),
        ("torch_nested", "PyTorch, nested tensors", "real_flop"),
    ];
    for (peer, who, work) in peers {
        if let Some(s) = r.peers.get(peer) {
            line(who, median(s), work, r.ratio_to(peer));
        }
    }
    Some(text)
}
