//! Formatting of tensors as text in NumPy's layout: aligned columns, few digits, long axes summarized.

use super::{Tensor, TensorKind};
use crate::context;
use crate::error::Result;
use crate::storage_base::BaseBinding;
use ir::{DType, DTypeKind, Literal, Loc};
use std::fmt::{self, Write};
use std::sync::atomic::Ordering;

/// Tensors with more elements than this are summarized.
const SUMMARIZE_THRESHOLD: usize = 1000;
/// The number of elements shown at each end of a summarized axis.
const EDGE_ITEMS: usize = 3;
/// The maximum number of characters per line.
const LINE_WIDTH: usize = 75;
/// The maximum number of digits after the decimal point.
const PRECISION: usize = 8;

const PREFIX: &str = "tensor(";

impl Tensor {
    /// Computes the tensor and prints it to the standard output; an invalid tensor prints its error.
    ///
    /// ```ignore
    /// tensor(&[1.0, 2.5], &[2]).show(); // tensor([1. , 2.5], dtype=f32)
    /// ```
    #[track_caller]
    pub fn show(&self) {
        match self.text_at(&Loc::caller()) {
            Ok(text) => println!("{text}"),
            Err(e) => println!("tensor(invalid: {e})"),
        }
    }

    /// Computes the tensor and returns the text that [`Tensor::show`] prints.
    #[track_caller]
    pub fn to_text(&self) -> Result<String> {
        self.text_at(&Loc::caller())
    }

    fn text_at(&self, at: &Loc) -> Result<String> {
        self.check_at(at)?;
        let cut = self.numel() > SUMMARIZE_THRESHOLD;
        // Only the elements that are shown are read.
        let mut part = self.clone();
        if cut {
            for (axis, &n) in self.shape().iter().enumerate().filter(|(_, n)| **n > 2 * EDGE_ITEMS) {
                let axis = axis as isize;
                let ends = [part.narrow(axis, 0, EDGE_ITEMS), part.narrow(axis, n - EDGE_ITEMS, EDGE_ITEMS)];
                part = Tensor::concat(&[&ends[0], &ends[1]], axis);
            }
        }
        let data = part.read_to_literal("show", at)?;
        self.0.seen.store(true, Ordering::Relaxed);
        let mut text = String::from(PREFIX);
        text.push_str(&format_body(&data, self.shape(), cut));
        if cut || self.numel() == 0 {
            write!(text, ", shape={:?}", self.shape()).expect("text grows");
        }
        write!(text, ", dtype={})", self.dtype()).expect("text grows");
        Ok(text)
    }

    /// Whether the elements were read before, so that reading them again would not execute anything.
    fn is_ready(&self) -> bool {
        let TensorKind::Lazy(lazy) = &self.0.kind else { return false };
        if !self.0.seen.load(Ordering::Relaxed) {
            return false;
        }
        let shared = &lazy.engine.shared;
        if context::trace().is_some() || shared.exec.state().is_some() || self.0.disposed.load(Ordering::Relaxed) {
            return false;
        }
        let state = shared.state();
        if state.poisoned.is_some() {
            return false;
        }
        let Some(base) = state.bases.get(lazy.base) else { return false };
        match &base.binding {
            BaseBinding::Ssa(value) => value.value().is_some(),
            BaseBinding::PendingLoc { loc, .. } | BaseBinding::Loc(loc) => {
                state.locs.get(*loc).is_some_and(|l| l.storage.is_some() && l.pending == 0)
            }
        }
    }
}

/// Shows the data if it was read before and hasn't changed since; else the type and identity. Nothing is computed (§1.3).
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready()
            && let Ok(text) = self.text_at(&Loc::Unknown)
        {
            return f.write_str(&text);
        }
        match &self.0.kind {
            TensorKind::Lazy(l) => write!(f, "Tensor({}, id {}, base {}", self.0.ty, self.0.id, l.base)?,
            TensorKind::Traced(t) => write!(f, "Tensor({}, cell {} of trace {}", self.0.ty, t.cell, t.trace.id())?,
            TensorKind::Invalid(i) => return write!(f, "Tensor(invalid: {})", i.error),
        }
        if self.0.view().is_some() {
            f.write_str(", view")?;
        }
        if self.0.disposed.load(Ordering::Relaxed) {
            f.write_str(", disposed")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The brackets and elements of a tensor of the given shape; if `cut`, `data` contains only the ends of long axes.
fn format_body(data: &Literal, shape: &[usize], cut: bool) -> String {
    if shape.contains(&0) {
        return "[]".into();
    }
    let words = format_elements(data);
    if shape.is_empty() {
        return words[0].trim().to_string();
    }
    let layout = TextLayout { words: &words, shape, kept: &data.ty().shape, cut };
    layout.axis(0, 0, &" ".repeat(PREFIX.len() + 1), LINE_WIDTH - 1)
}

struct TextLayout<'a> {
    words: &'a [String],
    shape: &'a [usize],
    /// The shape of the elements that are present.
    kept: &'a [usize],
    cut: bool,
}

impl TextLayout<'_> {
    /// Formats the part of axis `axis` that begins at element `first`.
    fn axis(&self, axis: usize, first: usize, indent: &str, width: usize) -> String {
        if axis == self.shape.len() {
            return self.words[first].clone();
        }
        let stride: usize = self.kept[axis + 1..].iter().product();
        let dots = self.cut && self.shape[axis] > 2 * EDGE_ITEMS;
        let n = self.kept[axis];
        let deeper = format!("{indent} ");
        let part = |i: usize| self.axis(axis + 1, first + i * stride, &deeper, width - 1);
        let left = self.shape.len() - axis;
        let mut all = String::new();
        if left == 1 {
            // The elements of the last axis are wrapped into lines.
            let most = width - 1;
            let mut line = indent.to_string();
            let mut add = |line: &mut String, word: &str| {
                if line.len() + word.len() > most && line.len() > indent.len() {
                    all.push_str(line.trim_end());
                    all.push('\n');
                    *line = indent.to_string();
                }
                line.push_str(word);
            };
            for i in 0..n {
                if dots && i == EDGE_ITEMS {
                    add(&mut line, "...");
                    line.push_str(", ");
                }
                add(&mut line, &part(i));
                if i + 1 < n {
                    line.push_str(", ");
                }
            }
            all.push_str(&line);
        } else {
            let between = format!(",{}", "\n".repeat(left - 1));
            for i in 0..n {
                if dots && i == EDGE_ITEMS {
                    all.push_str(&format!("{indent}...{between}"));
                }
                all.push_str(indent);
                all.push_str(&part(i));
                if i + 1 < n {
                    all.push_str(&between);
                }
            }
        }
        format!("[{}]", &all[indent.len()..])
    }
}

/// Formats every element, padded to a common width.
fn format_elements(data: &Literal) -> Vec<String> {
    let dtype = data.ty().dtype;
    let n = data.ty().numel();
    let plain: Vec<String> = match dtype.kind() {
        DTypeKind::Float => return floats(dtype, &(0..n).map(|i| data.get(i).to_f64()).collect::<Vec<_>>()),
        DTypeKind::Bool => data.to_vec::<bool>().iter().map(bool::to_string).collect(),
        DTypeKind::Signed => data.to_vec::<i64>().iter().map(i64::to_string).collect(),
        DTypeKind::Unsigned => data.to_vec::<u64>().iter().map(u64::to_string).collect(),
    };
    let width = plain.iter().map(String::len).max().unwrap_or(0);
    plain.iter().map(|w| format!("{w:>width$}")).collect()
}

/// The fewest significant digits that identify a number in its dtype, and the exponent.
fn shortest(dtype: DType, x: f64) -> (String, i32) {
    let text = match dtype {
        DType::F64 => format!("{:e}", x.abs()),
        DType::F32 => format!("{:e}", (x as f32).abs()),
        _ => {
            let same = |digits: &usize| {
                let text = format!("{:.*e}", *digits, x.abs());
                let back = text.parse::<f64>().map(|y| ir::Scalar::from_f64(dtype, y).to_f64());
                back == Ok(x.abs())
            };
            let digits = (0..17).find(same).unwrap_or(17);
            format!("{:.*e}", digits, x.abs())
        }
    };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: String = digits.chars().filter(|c| *c != '.').collect();
    (digits, exponent.parse().unwrap_or(0))
}

/// The digits before and after the decimal point, with at most [`PRECISION`] after it.
fn positional(dtype: DType, x: f64) -> (String, String) {
    let (digits, exponent) = shortest(dtype, x);
    let behind = (digits.len() as i32 - 1 - exponent).max(0) as usize;
    let text = if behind > PRECISION {
        format!("{:.*}", PRECISION, x.abs())
    } else if exponent >= 0 {
        let mut whole = digits.clone();
        let point = exponent as usize + 1;
        while whole.len() < point {
            whole.push('0');
        }
        format!("{}.{}", &whole[..point], &whole[point..])
    } else {
        format!("0.{}{}", "0".repeat((-exponent - 1) as usize), digits)
    };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let sign = if x.is_sign_negative() { "-" } else { "" };
    (format!("{sign}{whole}"), part.trim_end_matches('0').to_string())
}

/// The digits before and after the decimal point, and the exponent.
fn scientific(dtype: DType, x: f64) -> (String, String, i32) {
    let (mut digits, mut exponent) = shortest(dtype, x);
    if digits.len() > PRECISION + 1 {
        let text = format!("{:.*e}", PRECISION, x.abs());
        let (d, e) = text.split_once('e').unwrap_or((&text, "0"));
        digits = d.chars().filter(|c| *c != '.').collect();
        exponent = e.parse().unwrap_or(0);
    }
    let sign = if x.is_sign_negative() { "-" } else { "" };
    (format!("{sign}{}", &digits[..1]), digits[1..].trim_end_matches('0').to_string(), exponent)
}

fn floats(dtype: DType, data: &[f64]) -> Vec<String> {
    let finite: Vec<f64> = data.iter().copied().filter(|x| x.is_finite()).collect();
    let sizes = || finite.iter().map(|x| x.abs()).filter(|x| *x != 0.0);
    let (most, least) = (sizes().fold(0.0, f64::max), sizes().fold(f64::INFINITY, f64::min));
    let large = 10f64.powi(match dtype {
        DType::F64 => 8,
        DType::F32 => 6,
        DType::F16 => 3,
        _ => 2,
    });
    let powers = most >= large || (most > 0.0 && (least < 1e-4 || most / least > 1000.0));
    let length = |part: &str| part.chars().count();
    // A formatter for finite numbers, and the widths before and after the decimal point.
    let (mut left, right, word): (usize, usize, Box<dyn Fn(f64, usize) -> String>) = if powers {
        let parts: Vec<(String, String, i32)> = finite.iter().map(|x| scientific(dtype, *x)).collect();
        let left = parts.iter().map(|p| length(&p.0)).max().unwrap_or(0);
        let part = parts.iter().map(|p| length(&p.1)).max().unwrap_or(0);
        let power = parts.iter().map(|p| p.2.unsigned_abs().to_string().len().max(2)).max().unwrap_or(2);
        let word = move |x: f64, left: usize| {
            let (mut whole, mut behind, mut e) = scientific(dtype, x);
            if behind.len() < part && x != 0.0 {
                // The column needs more digits than identify this number, so print its exact digits.
                let text = format!("{x:.part$e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (w, b) = digits.split_once('.').unwrap_or((digits, ""));
                (whole, behind, e) = (w.to_string(), b.to_string(), exponent.parse().unwrap_or(0));
            }
            let sign = if e < 0 { '-' } else { '+' };
            format!("{whole:>left$}.{behind:0<part$}e{sign}{:0>power$}", e.unsigned_abs())
        };
        (left, part + power + 2, Box::new(word))
    } else {
        let parts: Vec<(String, String)> = finite.iter().map(|x| positional(dtype, *x)).collect();
        let left = parts.iter().map(|p| length(&p.0)).max().unwrap_or(0);
        let right = parts.iter().map(|p| length(&p.1)).max().unwrap_or(0);
        let word = move |x: f64, left: usize| {
            let (whole, behind) = positional(dtype, x);
            format!("{whole:>left$}.{behind:<right$}")
        };
        (left, right, Box::new(word))
    };
    let names: Vec<&str> = data.iter().map(|x| nonfinite_name(*x)).collect();
    let widest = names.iter().map(|n| n.len()).max().unwrap_or(0);
    left = left.max(widest.saturating_sub(right + 1));
    let all = left + right + 1;
    data.iter().zip(names).map(|(x, n)| if x.is_finite() { word(*x, left) } else { format!("{n:>all$}") }).collect()
}

/// The text of a number that is not finite.
fn nonfinite_name(x: f64) -> &'static str {
    match x {
        x if x.is_nan() => "nan",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "",
    }
}
