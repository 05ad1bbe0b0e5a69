//! Tables of rotary embeddings: plain, linear, dynamic NTK, YaRN, LongRoPE and Llama 3 (§6.4.2).
//!
//! Frequencies and angles are rounded to f32 at the same places as in HuggingFace, so that long positions agree.

use super::call::constant_arguments;
use super::frame::ModuleFrame;
use super::{Result, fail};
use crate::ast::{Expr, ExprKind};
use crate::consteval::ConstValue as Const;
use crate::diagnostic::Code;
use ir::Literal;
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// The parameters of a table; its rows are computed for the needed number of positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RopeTable {
    /// Number of rotated features.
    pub(super) dim: usize,
    theta: f64,
    scaling: RopeScaling,
}

/// How frequencies are scaled for sequences longer than in training.
#[derive(Clone, Debug, PartialEq)]
enum RopeScaling {
    None,
    Linear { factor: f64 },
    Dynamic { factor: f64, original: f64 },
    Yarn { factor: f64, low: f64, high: f64, attention: f64 },
    Long { original: f64, short: Vec<f64>, long: Vec<f64>, attention: f64 },
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
    "mscale",
    "mscale_all_dim",
    "truncate",
    "short_factor",
    "long_factor",
];

/// HuggingFace's names of arguments. `None` means that a separate argument exists besides the scaling.
const FIELDS: &[(&str, Option<&str>)] = &[
    ("rope_type", Some("scaling")),
    ("type", Some("scaling")),
    ("original_max_position_embeddings", Some("original_max_seq")),
    ("rope_theta", None),
    ("partial_rotary_factor", None),
];

impl RopeTable {
    /// A table without scaling.
    pub(super) fn unscaled(dim: usize, theta: f64) -> RopeTable {
        RopeTable { dim, theta, scaling: RopeScaling::None }
    }

    /// Parses the table of a `constants:` entry.
    pub(super) fn of(expr: &Expr, frame: &ModuleFrame) -> Result<RopeTable> {
        let unknown =
            || fail(Code::E014, expr.span, "unknown table", "use precompute_rope_freqs or precompute_yarn_freqs");
        let ExprKind::Call(callee, args) = &expr.peel().kind else {
            return unknown();
        };
        let mut values = match callee.as_name() {
            Some("precompute_rope_freqs") => constant_arguments(args, ARGUMENTS, frame)?,
            Some("precompute_yarn_freqs") => {
                let names = ["max_seq", "dim", "factor", "theta"];
                let mut values = constant_arguments(args, &names, frame)?;
                values.insert("scaling".to_string(), Const::Identifier("yarn".to_string()));
                values
            }
            _ => return unknown(),
        };
        if let Some(Const::List(fields)) = values.get("scaling").cloned() {
            values.remove("scaling");
            if let Err(name) = expand_fields(&fields, &mut values) {
                let label = format!("known are {}", ARGUMENTS.join(", "));
                return fail(Code::E003, expr.span, format!("unknown setting `{name}` of rotary embeddings"), label);
            }
        }
        let number = |name: &str, default: f64| number(&values, name).unwrap_or(default);
        let dim = number("dim", 0.0).floor();
        if !(dim >= 2.0 && dim % 2.0 == 0.0) {
            return fail(Code::E003, expr.span, "rotary embeddings need an even dimension", format!("this is {dim}"));
        }
        let theta = number("theta", 10000.0);
        let max_seq = number("max_seq", 2048.0);
        let original = match number("original_max_seq", 0.0) {
            0.0 => max_seq,
            given => given,
        };
        let factor = number("factor", 1.0);
        let stretch = number("factor", max_seq / original);
        let attention = |default: f64| match number("attention_factor", 0.0) {
            0.0 => default,
            given => given,
        };
        let scaling = match values.get("scaling") {
            None | Some(Const::None) => RopeScaling::None,
            Some(Const::Str(word) | Const::Identifier(word)) => match word.as_str() {
                "default" | "none" => RopeScaling::None,
                "linear" => RopeScaling::Linear { factor },
                "dynamic" => RopeScaling::Dynamic { factor, original },
                "yarn" => {
                    let place = |turns: f64| dim * (original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
                    let (mut low, mut high) = (place(number("beta_fast", 32.0)), place(number("beta_slow", 1.0)));
                    if values.get("truncate") != Some(&Const::bool(false)) {
                        (low, high) = (low.floor(), high.ceil());
                    }
                    (low, high) = (low.max(0.0), high.min(dim - 1.0));
                    let warmth = |scale: f64| if stretch <= 1.0 { 1.0 } else { 0.1 * scale * stretch.ln() + 1.0 };
                    let (all, one) = (number("mscale_all_dim", 0.0), number("mscale", 0.0));
                    let usual = if all != 0.0 && one != 0.0 { warmth(one) / warmth(all) } else { warmth(1.0) };
                    let high = if low == high { high + 0.001 } else { high };
                    RopeScaling::Yarn { factor: stretch, low, high, attention: attention(usual) }
                }
                "longrope" | "su" => {
                    let list = |name: &str| numbers(&values, name).filter(|list| 2 * list.len() == dim as usize);
                    let (Some(short), Some(long)) = (list("short_factor"), list("long_factor")) else {
                        let label = format!("needs short_factor and long_factor of {} numbers each", dim / 2.0);
                        return fail(Code::E003, expr.span, "RoPE scaling without its factors", label);
                    };
                    let usual = if stretch <= 1.0 { 1.0 } else { (1.0 + stretch.ln() / original.ln()).sqrt() };
                    RopeScaling::Long { original, short, long, attention: attention(usual) }
                }
                "llama3" => RopeScaling::Llama3 {
                    factor,
                    original,
                    low: number("low_freq_factor", 1.0),
                    high: number("high_freq_factor", 4.0),
                },
                other => {
                    let label = "known are default, linear, dynamic, yarn, longrope and llama3";
                    return fail(Code::E003, expr.span, format!("unknown RoPE scaling `{other}`"), label);
                }
            },
            Some(other) => {
                return fail(Code::E003, expr.span, "the scaling must be a name", format!("this is {other}"));
            }
        };
        Ok(RopeTable { dim: dim as usize, theta, scaling })
    }

    /// The frequencies for a sequence of this length.
    fn frequencies(&self, length: usize) -> Vec<f32> {
        let half = self.dim / 2;
        let dim = self.dim as f64;
        let plain = |theta: f64, i: usize| 1.0 / theta.powf(2.0 * i as f64 / dim);
        let all = |f: &dyn Fn(usize) -> f64| (0..half).map(|i| f(i) as f32).collect();
        match &self.scaling {
            RopeScaling::None => all(&|i| plain(self.theta, i)),
            RopeScaling::Linear { factor } => all(&|i| plain(self.theta, i) / factor),
            RopeScaling::Dynamic { factor, original } => {
                let stretch = factor * (length as f64).max(*original) / original - (factor - 1.0);
                let theta = self.theta * stretch.powf(dim / (dim - 2.0));
                all(&|i| plain(theta, i))
            }
            RopeScaling::Yarn { factor, low, high, .. } => all(&|i| {
                let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                plain(self.theta, i) * (ramp / factor + 1.0 - ramp)
            }),
            RopeScaling::Long { original, short, long, .. } => {
                let factors = if length as f64 > *original { long } else { short };
                all(&|i| plain(self.theta, i) / factors[i])
            }
            RopeScaling::Llama3 { factor, original, low, high } => all(&|i| {
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

    /// Whether frequencies depend on the sequence length.
    fn depends_on_length(&self) -> bool {
        matches!(self.scaling, RopeScaling::Dynamic { .. } | RopeScaling::Long { .. })
    }

    /// Cosines and sines of the first `rows` positions, `[rows, dim/2]` each. The first `together` positions are computed for
    /// that length; each later one for the length that the sequence has then.
    pub(super) fn rows(&self, rows: usize, together: usize) -> (Literal, Literal) {
        let first = self.frequencies(together);
        let scale = match self.scaling {
            RopeScaling::Yarn { attention, .. } | RopeScaling::Long { attention, .. } => attention,
            _ => 1.0,
        };
        let mut angles: Vec<f32> = Vec::with_capacity(rows * first.len());
        for row in 0..rows {
            match row >= together && self.depends_on_length() {
                true => angles.extend(self.frequencies(row + 1).iter().map(|w| row as f32 * w)),
                false => angles.extend(first.iter().map(|w| row as f32 * w)),
            }
        }
        let table = |f: fn(f64) -> f64| {
            let values: Vec<f32> = angles.iter().map(|angle| (f(f64::from(*angle)) * scale) as f32).collect();
            Literal::new(&[rows, self.dim / 2], &values)
        };
        (table(f64::cos), table(f64::sin))
    }
}

/// Adds name-value pairs to the arguments; returns an unknown name.
fn expand_fields(fields: &[Const], values: &mut BTreeMap<String, Const>) -> std::result::Result<(), String> {
    for field in fields {
        let Const::List(pair) = field else { return Err(field.to_string()) };
        let [Const::Str(name), value] = &pair[..] else { return Err(field.to_string()) };
        let argument = match FIELDS.iter().find(|(known, _)| known == name) {
            Some((_, Some(argument))) => argument,
            Some((_, None)) => continue,
            None if ARGUMENTS.contains(&name.as_str()) => name.as_str(),
            None => return Err(name.clone()),
        };
        values.insert(argument.to_string(), value.clone());
    }
    Ok(())
}

fn number(values: &BTreeMap<String, Const>, name: &str) -> Option<f64> {
    as_number(values.get(name)?)
}

fn as_number(value: &Const) -> Option<f64> {
    match value {
        Const::Float(value) => *value,
        other => other.as_int().map(|n| n as f64),
    }
}

fn numbers(values: &BTreeMap<String, Const>, name: &str) -> Option<Vec<f64>> {
    match values.get(name)? {
        Const::List(list) => list.iter().map(as_number).collect(),
        _ => None,
    }
}
