//! Reading golden lines; `golden/functions/make.py` says what they are.

use tensorloom::{DType, Literal, Tensor, Type, engine, np, tensor};

pub(crate) struct Input {
    dtype: DType,
    shape: Vec<usize>,
    values: Vec<f64>,
    /// What f64 can't hold.
    integers: Vec<i64>,
}

pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Input>,
    params: Vec<(String, String)>,
    pub(crate) outs: Vec<Literal>,
    pub(crate) grads: Vec<Literal>,
}

pub(crate) fn read(file: &str) -> String {
    let path = format!("{}/../../golden/functions/{file}.golden", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn noise(seed: u32, i: u32) -> u32 {
    let mut x = seed.wrapping_mul(7919).wrapping_add(i.wrapping_mul(104_729)).wrapping_add(12345);
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519);
    x ^= x >> 13;
    x = x.wrapping_mul(3_266_489_917);
    x ^= x >> 16;
    x & 255
}

fn number(kind: char, k: u32) -> f64 {
    let x = f64::from(k);
    match kind {
        's' => (2.0 * x - 255.0) / 128.0,
        'p' => (x + 32.0) / 128.0,
        'u' => (2.0 * x + 1.0) / 512.0,
        'i' => f64::from(k % 10) - 3.0,
        'n' => f64::from(k % 8),
        'b' => f64::from(k & 1),
        other => panic!("no kind {other}"),
    }
}

/// The cotangent of the k-th result; zeros where it has none.
pub(crate) fn weights(t: &Tensor, k: usize) -> Tensor {
    if !t.dtype().is_float() {
        return np::zeros_like(t);
    }
    let all: Vec<f64> = (0..t.numel()).map(|i| number('s', noise(100 + k as u32, i as u32))).collect();
    tensor(&all, t.shape()).cast(t.dtype())
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap_or_else(|_| panic!("no dtype {name}"))
}

fn sizes(text: &str) -> Vec<usize> {
    text.split('x').filter(|s| !s.is_empty() && *s != ".").map(|s| s.parse().unwrap()).collect()
}

fn input(text: &str) -> Input {
    let (d, rest) = text.split_once(':').unwrap();
    let dtype = dtype(d);
    if let Some((shape, list)) = rest.split_once('=') {
        let items: Vec<&str> = list.split(',').filter(|s| *s != ".").collect();
        let value = |s: &&str| match *s {
            "True" => 1.0,
            "False" => 0.0,
            s => s.parse::<f64>().unwrap_or_else(|_| panic!("no number {s}")),
        };
        let integers = items.iter().filter_map(|s| s.parse().ok()).collect();
        return Input { dtype, shape: sizes(shape), values: items.iter().map(value).collect(), integers };
    }
    let (shape, seed) = rest[1..].split_once('#').unwrap();
    let (shape, seed) = (sizes(shape), seed.parse().unwrap());
    let kind = rest.chars().next().unwrap();
    let n: usize = shape.iter().product();
    let values = (0..n).map(|i| number(kind, noise(seed, i as u32))).collect();
    Input { dtype, shape, values, integers: Vec::new() }
}

impl Input {
    pub(crate) fn tensor(&self) -> Tensor {
        if self.dtype == DType::I64 && !self.integers.is_empty() {
            return tensor(&self.integers, &self.shape);
        }
        let ty = Type::new(self.dtype, &self.shape);
        let scalar = |i: usize| ir::Scalar::from_f64(self.dtype, self.values[i]);
        engine().literal(&Literal::from_fn(ty, scalar))
    }
}

fn literal(text: &str) -> Literal {
    let (ty, hex) = text.trim().split_once(' ').unwrap_or_else(|| panic!("no tensor {text}"));
    let (name, dims) = ty.trim_end_matches(']').split_once('[').unwrap();
    let hex = if hex == "-" { "" } else { hex };
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    Literal::from_bytes(Type::new(dtype(name), &sizes(dims)), &bytes).unwrap()
}

pub(crate) fn parse(text: &str) -> Line {
    let (call, result) = text.split_once(" = ").unwrap();
    let c: Vec<&str> = call.split(' ').collect();
    let (outs, grads) = result.split_once(" | ").unwrap_or((result, ""));
    let pair = |s: &str| {
        let (k, v) = s.split_once(':').unwrap();
        (k.to_string(), v.to_string())
    };
    let literals = |s: &str| s.split(',').filter(|s| !s.is_empty()).map(literal).collect();
    Line {
        name: c[0].into(),
        inputs: c[1].split(';').filter(|s| *s != "-").map(input).collect(),
        params: c[2].split(';').filter(|s| *s != "-").map(pair).collect(),
        outs: literals(outs),
        grads: literals(grads),
    }
}

/// Parameters by name.
impl Line {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.params.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).filter(|v| *v != "n" && *v != "None")
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_else(|| panic!("{} needs {key}", self.name))
    }

    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key).map(|v| v.parse().unwrap())
    }

    pub(crate) fn f(&self, key: &str) -> f64 {
        self.number(key).unwrap_or_else(|| panic!("{} needs {key}", self.name))
    }

    pub(crate) fn i(&self, key: &str) -> i64 {
        self.f(key) as i64
    }

    pub(crate) fn u(&self, key: &str) -> usize {
        self.f(key) as usize
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some("1" | "True"))
    }

    pub(crate) fn axis(&self) -> Option<isize> {
        self.number("axis").map(|a| a as isize)
    }

    pub(crate) fn list(&self, key: &str) -> Option<Vec<isize>> {
        self.get(key).map(|v| v.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect())
    }

    pub(crate) fn sizes(&self, key: &str) -> Vec<usize> {
        self.list(key).unwrap_or_default().iter().map(|&n| n as usize).collect()
    }

    pub(crate) fn dtype(&self) -> DType {
        dtype(self.text("dtype"))
    }

    /// `axes` and `keep`.
    pub(crate) fn along(&self) -> np::ReduceAxes {
        let axes = match self.list("axes").as_deref() {
            None => np::axes(()),
            Some(&[a]) => np::axes(a),
            Some(&[a, b]) => np::axes([a, b]),
            Some(other) => panic!("no axes {other:?}"),
        };
        if self.flag("keep") { axes.keep() } else { axes }
    }
}
