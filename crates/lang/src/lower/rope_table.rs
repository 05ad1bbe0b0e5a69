//! Tables of rotations: plain, linear, dynamic NTK, YaRN and Llama 3 (§6.4.2).
//!
//! Frequencies and angles are rounded to f32 where HuggingFace rounds them, so that long positions agree.

use super::call::constant_arguments;
use super::frame::Frame;
use super::{Result, fail};
use crate::ast::{Expr, ExprKind};
use crate::consteval::Value as Const;
use crate::diagnostic::Code;
use ir::Literal;
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// How rotations are computed; rows are made for as many positions as are needed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RopeTable {
    /// Features that are rotated.
    pub(super) dim: usize,
    theta: f64,
    scaling: Scaling,
}

/// How frequencies are changed for sequences longer than those of training.
#[derive(Clone, Debug, PartialEq)]
enum Scaling {
    None,
    Linear { factor: f64 },
    Dynamic { factor: f64, original: f64 },
    Yarn { factor: f64, original: f64, fast: f64, slow: f64, attention: f64 },
    Llama3 { factor: f64, original: f64, low: f64, high: f64 },
}

const ARGUMENTS: &[&str] = &[
    "max_seq",
    "dim",
    "theta",
    "scaling",
    "factor",
    "original_max_seq",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
];

impl RopeTable {
    /// A plain table.
    pub(super) fn plain(dim: usize, theta: f64) -> RopeTable {
        RopeTable { dim, theta, scaling: Scaling::None }
    }

    /// The table that an entry of `constants:` computes.
    pub(super) fn of(expr: &Expr, frame: &Frame) -> Result<RopeTable> {
        let unknown = || {
            fail(Code::E014, expr.span, "no such table", "precompute_rope_freqs and precompute_yarn_freqs are known")
        };
        let ExprKind::Call(callee, args) = &expr.peel().kind else {
            return unknown();
        };
        let values = match callee.as_name() {
            Some("precompute_rope_freqs") => constant_arguments(args, ARGUMENTS, frame)?,
            Some("precompute_yarn_freqs") => {
                let names = ["max_seq", "dim", "factor", "theta"];
                let mut values = constant_arguments(args, &names, frame)?;
                values.insert("scaling".to_string(), Const::Word("yarn".to_string()));
                values
            }
            _ => return unknown(),
        };
        let number = |name: &str, default: f64| number(&values, name).unwrap_or(default);
        let dim = number("dim", 0.0).floor();
        if !(dim >= 2.0 && dim % 2.0 == 0.0) {
            return fail(Code::E003, expr.span, "rotations need an even dimension", format!("this is {dim}"));
        }
        let theta = number("theta", 10000.0);
        let factor = number("factor", 1.0);
        let original = match number("original_max_seq", 0.0) {
            0.0 => number("max_seq", 2048.0),
            given => given,
        };
        let scaling = match values.get("scaling") {
            None | Some(Const::None) => Scaling::None,
            Some(Const::Str(word) | Const::Word(word)) => match word.as_str() {
                "default" | "none" => Scaling::None,
                "linear" => Scaling::Linear { factor },
                "dynamic" => Scaling::Dynamic { factor, original },
                "yarn" => Scaling::Yarn {
                    factor,
                    original,
                    fast: number("beta_fast", 32.0),
                    slow: number("beta_slow", 1.0),
                    attention: match number("attention_factor", 0.0) {
                        0.0 => 0.1 * factor.ln() + 1.0,
                        given => given,
                    },
                },
                "llama3" => Scaling::Llama3 {
                    factor,
                    original,
                    low: number("low_freq_factor", 1.0),
                    high: number("high_freq_factor", 4.0),
                },
                other => {
                    let label = "known are default, linear, dynamic, yarn and llama3";
                    return fail(Code::E003, expr.span, format!("no scaling of rotations `{other}`"), label);
                }
            },
            Some(other) => return fail(Code::E003, expr.span, "scaling must be a word", format!("this is {other}")),
        };
        Ok(RopeTable { dim: dim as usize, theta, scaling })
    }

    /// Frequencies for a sequence of this length.
    fn frequencies(&self, length: usize) -> Vec<f32> {
        let half = self.dim / 2;
        let dim = self.dim as f64;
        let plain = |theta: f64, i: usize| 1.0 / theta.powf(2.0 * i as f64 / dim);
        let all = |f: &dyn Fn(usize) -> f64| (0..half).map(|i| f(i) as f32).collect();
        match self.scaling {
            Scaling::None => all(&|i| plain(self.theta, i)),
            Scaling::Linear { factor } => all(&|i| plain(self.theta, i) / factor),
            Scaling::Dynamic { factor, original } => {
                let stretch = factor * (length as f64).max(original) / original - (factor - 1.0);
                let theta = self.theta * stretch.powf(dim / (dim - 2.0));
                all(&|i| plain(theta, i))
            }
            Scaling::Yarn { factor, original, fast, slow, .. } => {
                let place = |turns: f64| dim * (original / (turns * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
                let low = place(fast).floor().max(0.0);
                let mut high = place(slow).ceil().min(dim - 1.0);
                if low == high {
                    high += 0.001;
                }
                all(&|i| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    plain(self.theta, i) * (ramp / factor + 1.0 - ramp)
                })
            }
            Scaling::Llama3 { factor, original, low, high } => all(&|i| {
                let f = plain(self.theta, i);
                let wavelength = 2.0 * PI / f;
                if wavelength > original / low {
                    f / factor
                } else if wavelength < original / high {
                    f
                } else {
                    let smooth = (original / wavelength - low) / (high - low);
                    (1.0 - smooth) * f / factor + smooth * f
                }
            }),
        }
    }

    /// Cosines and sines of the first `rows` positions, `[rows, dim/2]` each.
    pub(super) fn rows(&self, rows: usize) -> (Literal, Literal) {
        let frequencies = self.frequencies(rows);
        let scale = match self.scaling {
            Scaling::Yarn { attention, .. } => attention,
            _ => 1.0,
        };
        let table = |f: fn(f64) -> f64| {
            let angles = (0..rows).flat_map(|row| frequencies.iter().map(move |w| row as f32 * w));
            let values: Vec<f32> = angles.map(|angle| (f(f64::from(angle)) * scale) as f32).collect();
            Literal::new(&[rows, self.dim / 2], &values)
        };
        (table(f64::cos), table(f64::sin))
    }
}

fn number(values: &BTreeMap<String, Const>, name: &str) -> Option<f64> {
    match values.get(name)? {
        Const::Float(value) => *value,
        other => other.as_int().map(|n| n as f64),
    }
}
