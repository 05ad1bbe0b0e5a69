//! Progress output of a training run: a progress bar on a terminal, plain lines otherwise.

use crate::output::{errln, outln};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use models::train::{StepProgress, TrainObserver, TrainResult, TrainSettings, format_with_commas};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints messages, updates the progress bar, and handles Ctrl-C.
pub(crate) struct TerminalObserver {
    bar: Option<ProgressBar>,
    stop: Arc<AtomicBool>,
    terminal: bool,
    last_line: usize,
}

impl TerminalObserver {
    pub(crate) fn new() -> TerminalObserver {
        let stop = Arc::new(AtomicBool::new(false));
        let signals = [
            signal_hook::consts::SIGINT,
            signal_hook::consts::SIGTERM,
            #[cfg(unix)]
            signal_hook::consts::SIGHUP,
        ];
        for signal in signals {
            // The first signal asks the run to save and stop; the second one ends the process immediately.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone());
            let _ = signal_hook::flag::register(signal, stop.clone());
        }
        TerminalObserver { bar: None, stop, terminal: std::io::stderr().is_terminal(), last_line: 0 }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => errln!("{text}"),
        }
    }

    /// Stops updating the bar and leaves it on the screen.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.abandon();
        }
    }

    /// Prints the result of the run.
    pub(crate) fn print_result(&self, settings: &TrainSettings, finished: &TrainResult) {
        let out = settings.out.display();
        let loom = std::env::args().next().unwrap_or_else(|| "loom".into());
        outln!("\n{}\n", finished.sample_text);
        if finished.complete {
            outln!("trained {} steps in {:.0} s", format_with_commas(finished.step), finished.seconds);
        } else {
            outln!(
                "stopped and saved at step {} of {}; resume with: {loom} train --resume --out {out}",
                format_with_commas(finished.step),
                format_with_commas(settings.steps)
            );
        }
        if let Some(loss) = finished.valid_loss {
            outln!("validation loss {loss:.4}");
        }
        outln!("written to {out}:");
        for path in &finished.files {
            outln!("  {}", path.strip_prefix(&settings.out).unwrap_or(path).display());
        }
        if matches!(settings.objective, models::train::Objective::Classify { .. }) {
            outln!("report: {out}/index.html; classify text: {loom} classify {out} --text TEXT");
        } else if settings.lora.is_none() && settings.ia3.is_none() {
            outln!("report: {out}/index.html; generate text: {loom} generate {out} --prompt \"{}\"", settings.prompt);
        } else {
            outln!("merge the adapter into its model: {loom} merge {out} --out DIR");
        }
    }
}

impl TrainObserver for TerminalObserver {
    fn on_message(&mut self, text: &str) {
        self.line(text);
    }

    fn on_data_progress(&mut self, done: u64, all: u64) {
        if !self.terminal {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:28.cyan/black.bright} reading {bytes} of {total_bytes}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(done);
    }

    fn on_train_begin(&mut self, done: usize, steps: usize) {
        if let Some(reading) = self.bar.take() {
            reading.finish_and_clear();
        }
        self.last_line = done;
        if !self.terminal {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:28.cyan/black.bright} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_position(done as u64);
        self.bar = Some(bar);
    }

    fn on_step_end(&mut self, p: &StepProgress) {
        let valid = p.valid_loss.map_or(String::new(), |loss| format!(" · val {loss:.3}"));
        let speed = format_with_commas(p.speed as usize);
        let (memory, left) = (p.memory / 1_000_000, p.remaining.as_secs());
        let figures = format!("loss {:.3}{valid} · {speed} tok/s · {memory} MB · eta {left} s", p.loss);
        if let Some(bar) = &self.bar {
            bar.set_position(p.step as u64);
            bar.set_message(figures);
            return;
        }
        // Without a terminal, a line is printed about every fortieth of the run, and for the first and last step.
        let every = (p.steps / 40).max(1);
        if p.log_due && (p.step >= self.last_line + every || p.step == p.steps || p.step == 1) {
            self.last_line = p.step - p.step % every;
            errln!("step {}/{} · {figures}", p.step, p.steps);
        }
    }

    fn on_sample(&mut self, step: usize, text: &str) {
        self.line(&format!("── step {step}: {}", text.replace('\n', " ")));
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
