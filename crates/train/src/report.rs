//! The report of a run: one HTML file without links, drawn in the browser from the data embedded in it.

use crate::html_page::html_page;
use crate::log::LogEntry;
use crate::observer::format_with_commas;
use compiler::Timing;
use serde_json::{Value as Json, json};

/// The properties of a run that stay constant.
#[derive(Clone, Debug)]
pub struct RunMetadata {
    /// Name of the model.
    pub model: String,
    /// Number of parameters.
    pub parameters: usize,
    /// Number of trainable parameters.
    pub trainable_parameters: usize,
    /// The device.
    pub backend: String,
    /// Size of the training set.
    pub train_count: usize,
    /// Size of the validation set.
    pub valid_count: usize,
    /// The unit of both sizes.
    pub count_unit: &'static str,
    /// The unit of the speed.
    pub speed_unit: &'static str,
    /// The name of the learning rate setting.
    pub learning_rate_name: &'static str,
    /// Memory that a step needs, in bytes.
    pub planned_bytes: usize,
    /// Settings by name.
    pub settings: Vec<(String, String)>,
}

/// Maximum number of kernels that are listed individually.
const MAX_LISTED_KERNELS: usize = 14;
/// Maximum number of points of a curve; longer logs are subsampled.
const MAX_CURVE_POINTS: usize = 1500;

/// Renders the page.
pub fn render_html(facts: &RunMetadata, steps: usize, log: &[LogEntry], timings: &[Timing], seconds: f64) -> String {
    html_page("Training report", include_str!("pages/report.html"), &report_json(facts, steps, log, timings, seconds))
}

/// Renders the live report: the page, and the data that it polls.
pub fn render_live(
    facts: &RunMetadata,
    steps: usize,
    log: &[LogEntry],
    timings: &[Timing],
    seconds: f64,
    over: bool,
) -> (String, String) {
    let mut data = report_json(facts, steps, log, timings, seconds);
    data["live"] = true.into();
    data["over"] = over.into();
    (html_page("Training report", include_str!("pages/report.html"), &data), data.to_string())
}

fn report_json(facts: &RunMetadata, steps: usize, log: &[LogEntry], timings: &[Timing], seconds: f64) -> Json {
    let (mut train, mut valid, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    let (mut speeds, mut memory, mut losses) = (Vec::new(), 0, Vec::new());
    let (mut names, mut gradients, mut weights): (Vec<String>, Vec<Json>, Vec<Json>) = Default::default();
    for entry in log {
        match entry {
            LogEntry::Train { step, loss, norm, rate, speed, memory: now, .. } => {
                train.push(json!([step, loss, norm, rate, speed, *now as f64 / 1e6]));
                speeds.push(*speed);
                losses.push(*loss);
                memory = memory.max(*now);
            }
            LogEntry::Valid { step, loss } => valid.push((*step, *loss)),
            LogEntry::Sample { step, text } => samples.push(json!([step, text])),
            LogEntry::Layers { step, norms } => {
                if names.is_empty() {
                    names = norms.iter().map(|(name, ..)| name.clone()).collect();
                }
                gradients.push(json!([step, norms.iter().map(|(_, g, _)| *g).collect::<Vec<_>>()]));
                weights.push(json!([step, norms.iter().map(|(_, _, w)| *w).collect::<Vec<_>>()]));
            }
        }
    }
    let step = log.iter().map(LogEntry::step).max().unwrap_or(0);
    let every = train.len().div_ceil(MAX_CURVE_POINTS).max(1);
    let train: Vec<Json> = train.into_iter().step_by(every).collect();
    // With many layers fewer points are drawn.
    let every = (gradients.len() * names.len().max(1)).div_ceil(20 * MAX_CURVE_POINTS).max(1);
    let thin = |rows: Vec<Json>| rows.into_iter().step_by(every).collect::<Vec<_>>();
    let layers = json!({ "names": names, "gradients": thin(gradients), "weights": thin(weights) });
    speeds.sort_by(f64::total_cmp);
    let speed = speeds.get(speeds.len() / 2).copied().unwrap_or(0.0);
    let recent = &losses[losses.len().saturating_sub(10)..];
    let loss = recent.iter().sum::<f64>() / recent.len().max(1) as f64;
    let first = valid.first().map_or(String::new(), |(_, loss)| format!("{loss:.2} at the first step"));
    let tiles = json!([
        ["validation loss", valid.last().map_or("–".into(), |(_, loss)| format!("{loss:.3}")), first],
        ["training loss", format!("{loss:.3}"), "mean of the last log lines"],
        ["throughput", format_with_commas(speed as usize), format!("{} a second", facts.speed_unit)],
        [
            "memory",
            format!("{:.0} MB", memory as f64 / 1e6),
            format!("{:.0} MB planned per step", facts.planned_bytes as f64 / 1e6)
        ],
        [
            "time",
            format_duration(seconds),
            format!("{} of {} steps", format_with_commas(step), format_with_commas(steps))
        ],
    ]);
    let trained = match facts.trainable_parameters == facts.parameters {
        true => String::new(),
        false => format!(" ({} trained)", format_with_commas(facts.trainable_parameters)),
    };
    json!({
        "unit": facts.speed_unit,
        "title": format!("{} in training", facts.model),
        "about": format!(
            "{} parameters{trained} · {} training {}, {} for validation · {}",
            format_with_commas(facts.parameters), format_with_commas(facts.train_count), facts.count_unit, format_with_commas(facts.valid_count),
            facts.backend
        ),
        "tiles": tiles,
        "train": train,
        "valid": valid,
        "samples": samples,
        "layers": layers,
        "kernels": kernels_json(timings),
        "settings": facts.settings,
    })
}

fn kernels_json(timings: &[Timing]) -> Vec<Json> {
    let total: f64 = timings.iter().map(|t| t.time.as_secs_f64()).sum();
    let row =
        |label: &str, calls: usize, seconds: f64| json!([label, calls, seconds * 1e3, seconds / total.max(1e-12)]);
    let mut rows: Vec<Json> =
        timings.iter().take(MAX_LISTED_KERNELS).map(|t| row(&t.label, t.calls, t.time.as_secs_f64())).collect();
    let rest = &timings[timings.len().min(MAX_LISTED_KERNELS)..];
    if !rest.is_empty() {
        let (calls, seconds) = rest.iter().fold((0, 0.0), |(n, s), t| (n + t.calls, s + t.time.as_secs_f64()));
        rows.push(row(&format!("{} others", rest.len()), calls, seconds));
    }
    rows
}

/// Formats a duration as hours, minutes, seconds.
pub fn format_duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}
