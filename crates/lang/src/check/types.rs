//! The tensor types of the checker.

use crate::dims::{Dim, Symbol};
use std::fmt;

/// A shape: optional unnamed leading dimensions, then named ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The symbol of the leading dimensions written `*`.
    pub variadic: Option<Symbol>,
    /// The dimensions after it.
    pub dims: Vec<Dim>,
}

impl Shape {
    /// A shape without leading `*`.
    pub fn fixed(dims: Vec<Dim>) -> Shape {
        Shape { variadic: None, dims }
    }

    /// The number of elements; leading dimensions are one unknown factor.
    pub fn elements(&self) -> Dim {
        let lead = self.variadic.clone().map_or(Dim::constant(1), Dim::symbol);
        self.dims.iter().fold(lead, |product, dim| product * dim.clone())
    }

    /// The index of an axis that may count from the end; `None` if there is no such axis.
    pub fn axis(&self, axis: i64) -> Option<usize> {
        let rank = self.dims.len() as i64;
        // With an unknown number of leading dimensions, only indices from the end are known.
        let place = if axis < 0 { rank + axis } else { axis };
        let certain = self.variadic.is_none() || axis < 0;
        (certain && (0..rank).contains(&place)).then_some(place as usize)
    }

    /// Whether two shapes agree for all sizes, provided that the divisions in them are exact.
    pub fn equal(&self, other: &Shape) -> bool {
        self.variadic == other.variadic
            && self.dims.len() == other.dims.len()
            && self.dims.iter().zip(&other.dims).all(|(a, b)| a.equal(b).is_some())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> =
            self.variadic.iter().map(|_| "*".to_string()).chain(self.dims.iter().map(Dim::to_string)).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

/// A tensor's type; unknown parts are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TensorType {
    /// Its shape.
    pub shape: Option<Shape>,
    /// Its element type.
    pub dtype: Option<String>,
}

impl TensorType {
    /// A tensor of a known shape.
    pub fn of(shape: Shape) -> TensorType {
        TensorType { shape: Some(shape), dtype: None }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{shape}")?,
            None => f.write_str("[?]")?,
        }
        match &self.dtype {
            Some(dtype) => write!(f, " {dtype}"),
            None => Ok(()),
        }
    }
}

/// Whether a dtype is an integer type.
pub(super) fn is_integer(dtype: &str) -> bool {
    dtype.starts_with("int")
}

/// Bits of a float dtype, to compare widths.
pub(super) fn float_bits(dtype: &str) -> Option<u32> {
    Some(match dtype {
        "fp32" => 32,
        "bf16" | "fp16" => 16,
        "fp8_e4m3" | "fp8_e5m2" => 8,
        "fp4_e2m1" => 4,
        _ => return None,
    })
}

/// The dtype of a result of several operands (§7.4.4): the widest float; `None` if it is unknown, or if there is no float.
pub(super) fn promoted<'a>(dtypes: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    // Low-precision operands are dequantized to the dtype of the others, or to the model's dtype.
    let few = |dtype: &str| float_bits(dtype).is_some_and(|bits| bits < 16);
    let floats: Vec<Option<&str>> =
        dtypes.filter(|dtype| !dtype.is_some_and(|dtype| is_integer(dtype) || few(dtype))).collect();
    let first = floats.first().copied()?;
    match floats.iter().all(|dtype| *dtype == first) {
        true => first.map(str::to_string),
        // fp32 is the widest type, and the only one that represents both 16-bit formats.
        false if floats.contains(&Some("fp32")) || !floats.contains(&None) => Some("fp32".to_string()),
        false => None,
    }
}
