//! A case: an op, a dtype, a shape, parameters, and whether to compute its gradients.

use ir::DType;
use std::fmt;

/// A case, for example `reduce_sum f32 64x128x256 axes=1 bwd`.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) op: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) backward: bool,
}

impl Case {
    pub(crate) fn new(op: &str, dtype: DType, shape: &[usize]) -> Case {
        Case { op: op.into(), dtype, shape: shape.to_vec(), params: vec![], backward: false }
    }

    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Case {
        self.params.push((name.into(), value.to_string()));
        self
    }

    pub(crate) fn backward(mut self) -> Case {
        self.backward = true;
        self
    }

    pub(crate) fn parse(line: &str) -> Result<Case, String> {
        let bad = || format!("{line:?} is no case; --list names them");
        let mut words = line.split_whitespace();
        let op = words.next().ok_or_else(bad)?.to_string();
        let dtype = words.next().and_then(|w| w.parse::<DType>().ok()).ok_or_else(bad)?;
        let numbers: Result<Vec<usize>, _> = words.next().ok_or_else(bad)?.split('x').map(str::parse).collect();
        let mut case = Case { op, dtype, shape: numbers.map_err(|_| bad())?, params: vec![], backward: false };
        for w in words {
            match w.split_once('=') {
                Some((k, v)) => case.params.push((k.into(), v.into())),
                None if w == "bwd" => case.backward = true,
                None => return Err(bad()),
            }
        }
        Ok(case)
    }

    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// Returns a parameter; 1 if it is not given.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.word(name).and_then(|v| v.parse().ok()).unwrap_or(1)
    }

    pub(crate) fn list(&self, name: &str) -> Vec<usize> {
        let words = self.word(name).unwrap_or_default().split(',');
        words.filter_map(|v| v.parse().ok()).collect()
    }

    /// Returns the range of inputs of a dtype; `bench/ops.py` has the same table.
    pub(crate) fn range(&self, d: DType) -> (f64, f64) {
        if !d.is_float() {
            return match self.op.as_str() {
                "take" | "take_along" | "scatter_add" | "scatter_set" | "scatter_max" | "embedding" | "histogram"
                | "cross_entropy" => (0.0, self.number("classes") as f64),
                "shl" | "shr" | "pow" => (1.0, 5.0),
                "div" | "rem" => (1.0, 100.0),
                _ => (0.0, 100.0),
            };
        }
        match self.op.as_str() {
            "log" | "log2" | "log1p" | "sqrt" | "rsqrt" | "lgamma" | "digamma" | "pow" | "reduce_prod" | "cumprod" => {
                (0.5, 1.5)
            }
            "asin" | "acos" | "atanh" | "erf_inv" => (-0.9, 0.9),
            "acosh" => (1.1, 5.0),
            _ => (-2.0, 2.0),
        }
    }

    /// Returns whether its matrices need a dominant diagonal.
    pub(crate) fn is_definite(&self) -> bool {
        matches!(self.op.as_str(), "cholesky" | "triangular_solve" | "lu")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        write!(f, "{} {} {}", self.op, self.dtype, shape.join("x"))?;
        for (k, v) in &self.params {
            write!(f, " {k}={v}")?;
        }
        if self.backward { f.write_str(" bwd") } else { Ok(()) }
    }
}
