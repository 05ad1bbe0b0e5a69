//! The page about a run: one file without links to anything, drawn in the browser from the numbers inside it.

use crate::log::Entry;
use crate::observer::thousands;
use crate::page::page;
use compiler::Timing;
use serde_json::{Value as Json, json};

/// What stays the same through a run.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What is trained.
    pub model: String,
    /// Its elements.
    pub parameters: usize,
    /// Those that are trained.
    pub trained: usize,
    /// The device.
    pub backend: String,
    /// What there is to train on, and what is held out of it.
    pub train: usize,
    /// What is held out.
    pub valid: usize,
    /// What both count.
    pub unit: &'static str,
    /// What speed counts.
    pub speed: &'static str,
    /// How the learning rate is called where it is set.
    pub rate: &'static str,
    /// Bytes that a step works on.
    pub planned: usize,
    /// Settings by their names.
    pub settings: Vec<(String, String)>,
}

/// Kernels that are listed one by one.
const LISTED: usize = 14;
/// Points of a curve; longer logs are thinned.
const POINTS: usize = 1500;

/// The page.
pub fn html(facts: &Facts, steps: usize, log: &[Entry], timings: &[Timing], seconds: f64) -> String {
    page("Training report", include_str!("pages/report.html"), &data(facts, steps, log, timings, seconds))
}

/// The same as it is served while the run goes on: the page, and the numbers that it asks for again.
pub fn live(
    facts: &Facts,
    steps: usize,
    log: &[Entry],
    timings: &[Timing],
    seconds: f64,
    over: bool,
) -> (String, String) {
    let mut data = data(facts, steps, log, timings, seconds);
    data["live"] = true.into();
    data["over"] = over.into();
    (page("Training report", include_str!("pages/report.html"), &data), data.to_string())
}

fn data(facts: &Facts, steps: usize, log: &[Entry], timings: &[Timing], seconds: f64) -> Json {
    let (mut train, mut valid, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let (mut speeds, mut memory, mut losses) = (Vec::new(), 0, Vec::new());
    let (mut names, mut gradients, mut weights): (Vec<String>, Vec<Json>, Vec<Json>) = Default::default();
    for entry in log {
        match entry {
            Entry::Train { step, loss, norm, rate, speed, memory: now, .. } => {
                train.push(json!([step, loss, norm, rate, speed, *now as f64 / 1e6]));
                speeds.push(*speed);
                losses.push(*loss);
                memory = memory.max(*now);
            }
            Entry::Valid { step, loss } => valid.push((*step, *loss)),
            Entry::Sample { step, text } => samples.push(json!([step, text])),
            Entry::Layers { step, norms } => {
                if names.is_empty() {
                    names = norms.iter().map(|(name, ..)| name.clone()).collect();
                }
                gradients.push(json!([step, norms.iter().map(|(_, g, _)| *g).collect::<Vec<_>>()]));
                weights.push(json!([step, norms.iter().map(|(_, _, w)| *w).collect::<Vec<_>>()]));
            }
        }
    }
    let step = log.iter().map(Entry::step).max().unwrap_or(0);
    let every = train.len().div_ceil(POINTS).max(1);
    let train: Vec<Json> = train.into_iter().step_by(every).collect();
    // Many lines take many points.
    let every = (gradients.len() * names.len().max(1)).div_ceil(20 * POINTS).max(1);
    let thin = |rows: Vec<Json>| rows.into_iter().step_by(every).collect::<Vec<_>>();
    let layers = json!({ "names": names, "gradients": thin(gradients), "weights": thin(weights) });
    speeds.sort_by(f64::total_cmp);
    let speed = speeds.get(speeds.len() / 2).copied().unwrap_or(0.0);
    let recent = &losses[losses.len().saturating_sub(10)..];
    let loss = recent.iter().sum::<f64>() / recent.len().max(1) as f64;
    let first = valid.first().map_or(String::new(), |(_, loss)| format!("{loss:.2} at the start"));
    let tiles = json!([
        ["held-out loss", valid.last().map_or("–".into(), |(_, loss)| format!("{loss:.3}")), first],
        ["training loss", format!("{loss:.3}"), "mean of the last lines"],
        ["throughput", thousands(speed as usize), format!("{} a second", facts.speed)],
        [
            "memory",
            format!("{:.0} MB", memory as f64 / 1e6),
            format!("{:.0} MB planned for a step", facts.planned as f64 / 1e6)
        ],
        ["time", duration(seconds), format!("{} of {} steps", thousands(step), thousands(steps))],
    ]);
    let trained = match facts.trained == facts.parameters {
        true => String::new(),
        false => format!(" ({} trained)", thousands(facts.trained)),
    };
    json!({
        "unit": facts.speed,
        "title": format!("{} in training", facts.model),
        "about": format!(
            "{} parameters{trained} · {} {} to train on, {} held out · {}",
            thousands(facts.parameters), thousands(facts.train), facts.unit, thousands(facts.valid),
            facts.backend
        ),
        "tiles": tiles,
        "train": train,
        "valid": valid,
        "samples": samples,
        "layers": layers,
        "kernels": kernels(timings),
        "settings": facts.settings,
    })
}

fn kernels(timings: &[Timing]) -> Vec<Json> {
    let total: f64 = timings.iter().map(|t| t.time.as_secs_f64()).sum();
    let row =
        |label: &str, calls: usize, seconds: f64| json!([label, calls, seconds * 1e3, seconds / total.max(1e-12)]);
    let mut rows: Vec<Json> =
        timings.iter().take(LISTED).map(|t| row(&t.label, t.calls, t.time.as_secs_f64())).collect();
    let rest = &timings[timings.len().min(LISTED)..];
    if !rest.is_empty() {
        let (calls, seconds) = rest.iter().fold((0, 0.0), |(n, s), t| (n + t.calls, s + t.time.as_secs_f64()));
        rows.push(row(&format!("{} others", rest.len()), calls, seconds));
    }
    rows
}

/// Hours, minutes, seconds.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}
