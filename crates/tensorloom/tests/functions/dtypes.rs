//! Every public function for operands of every dtype: the dtype of its results, and their values. The lines are those of
//! `golden/functions/dtypes.golden`, which `golden/functions/dtypes.py` makes with JAX.

use crate::line::{self, Line};
use crate::{Table, call, table_lax, table_more, table_np};
use ir::Literal;
use std::collections::{BTreeMap, BTreeSet};
use tensorloom::DType;

/// What is given in place of JAX's results.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    /// An error.
    Refused,
    /// The same values in another dtype.
    In(DType),
    /// The same values in the dtype of the operands.
    Own,
    /// Other values in JAX's dtype.
    Values,
    /// Other values in another dtype.
    ValuesIn(DType),
    /// It has no meaning for this dtype.
    Nothing,
}

use Gives::{In, Nothing, Own, Refused, Values, ValuesIn};

const UNSIGNED: &str = "u8 u16 u32 u64";

const INTEGERS: &str = "bool u8 u16 u32 u64 i8 i16 i32 i64";

/// Functions, dtypes, what they give, and why that is not what JAX gives.
const DIFFERENT: &[(&str, &str, Gives, &str)] = &[
    ("np.polyder", "bool u8 u16 u32 i8 i16 i32", In(DType::I64), "powers are i64, as in NumPy; JAX takes floats"),
    (
        "np.apply_along_axis lax.scan",
        "bool",
        Refused,
        "the function that is called does arithmetic, which bools don't have",
    ),
    ("np.array", "bool", ValuesIn(DType::F32), "the test makes it of numbers of f32"),
    ("np.array", "u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16", In(DType::F32), "the test makes it of numbers of f32"),
    (
        "np.cumprod np.cumulative_prod",
        "u8",
        ValuesIn(DType::I64),
        "running products are i64, as in NumPy; JAX's u8 wrap",
    ),
    (
        "np.cumsum np.cumprod np.cumulative_sum np.cumulative_prod np.nancumsum np.nancumprod",
        "bool u8 u16 u32 i8 i16 i32",
        In(DType::I64),
        "running sums and products are i64, as in NumPy",
    ),
    (
        "np.square np.power np.pow np.fmod np.remainder np.floor_divide np.divmod np.left_shift np.bitwise_left_shift np.right_shift np.bitwise_right_shift",
        "bool",
        In(DType::I8),
        "bools are numbers of i8 here, as in NumPy; JAX takes int32",
    ),
    (
        "np.convolve np.correlate np.polymul np.polyder",
        INTEGERS,
        Own,
        "integers stay what they are, as in NumPy; JAX takes floats",
    ),
    ("nn.relu", "bool", Own, "the larger of a bool and 0 is the bool"),
    ("nn.hard_tanh", UNSIGNED, ValuesIn(DType::F32), "the bound −1 is no unsigned number, and wraps in JAX"),
    ("nn.hard_tanh", INTEGERS, In(DType::F32), "activations are functions of real numbers"),
    ("linalg.vector_norm", INTEGERS, In(DType::F32), "norms are floats, of order 0 too"),
    (
        "lax.dot_general lax.conv_general_dilated",
        "bool",
        Refused,
        "ops of the graph multiply numbers; np::matmul and np::convolve take bools",
    ),
    ("lax.while_loop", INTEGERS, Refused, "the body multiplies by a float, so the carry would not keep its dtype"),
    ("linalg.det linalg.slogdet linalg.triangular_solve", "f16 bf16", Refused, "routines have f32 and f64 alone"),
    ("linalg.matrix_power", INTEGERS, In(DType::F32), "linear algebra computes with floats"),
    ("linalg.tensorinv", "bool", Values, "the matrix is singular"),
    (
        "linalg.multi_dot linalg.tensordot np.tensordot np.einsum",
        "bool",
        Refused,
        "contractions multiply numbers; np::matmul takes bools",
    ),
    ("np.polyval", "bool", ValuesIn(DType::I64), "coefficients are numbers: bools count as 0 and 1"),
    ("np.interp", "bool", Values, "two points stand at one place"),
    ("np.pow np.power", "i8 i16 i32 i64", Values, "a negative power of an integer is 0; JAX's is not defined"),
    ("np.frombuffer", "u16 u32 u64 i16 i32 i64 f16 bf16 f32 f64", Nothing, "its operand is bytes"),
    ("np.unravel_index", "u8 u16 u32 u64 i8 i16 i32 f16 bf16 f32 f64", ValuesIn(DType::I64), "indices are i64"),
    ("np.quantile_by np.nanquantile_by", "bf16", Own, "NumPy, which has all methods, gives f32"),
    ("np.spacing", "f16", Values, "NumPy's for a negative f16 is that towards 0"),
    ("np.spacing", INTEGERS, ValuesIn(DType::F32), "integers become f32; NumPy takes a float by their size"),
    ("nn.one_hot", INTEGERS, Own, "the dtype is an argument"),
    (
        "nn.softmax nn.log_softmax special.softmax special.log_softmax nn.log1mexp",
        UNSIGNED,
        Values,
        "differences of unsigned numbers wrap in JAX",
    ),
    (
        "special.betaln special.gammaln special.psi special.digamma",
        INTEGERS,
        Values,
        "JAX computes integers with fewer digits, and gives NaN at the pole",
    ),
];

fn different(line: &Line, dtype: &str) -> Option<Gives> {
    let has = |list: &str, word: &str| list.split(' ').any(|w| w == word);
    DIFFERENT.iter().find(|(names, dtypes, ..)| has(names, &line.name) && has(dtypes, dtype)).map(|d| d.2)
}

fn table(name: &str) -> Table {
    match name.split('.').next() {
        Some("np") => table_np::call,
        Some("nn") => table_more::nn,
        Some("linalg") => table_more::linalg,
        Some("fft") => table_more::fft,
        Some("lax") => table_lax::call,
        _ => |_, _| None,
    }
}

/// Results are rounded after each op of a function, so only gross differences count in narrow floats.
fn bound(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-4,
        DType::F16 => 2e-2,
        _ => 1.5e-1,
    }
}

fn differs(got: &Literal, want: &Literal, loose: f64) -> Option<String> {
    let numbers = |l: &Literal| l.scalars().map(|s| s.to_f64()).collect::<Vec<f64>>();
    let (g, w) = (numbers(got), numbers(want));
    let dtype = want.ty().dtype;
    if !dtype.is_float() {
        let same = got.scalars().eq(want.scalars());
        return (!same).then(|| format!("{g:?} instead of {w:?}"));
    }
    let scale = w.iter().filter(|x| x.is_finite()).fold(0.0f64, |a, x| a.max(x.abs()));
    let near = |(&g, &w): (&f64, &f64)| {
        (g - w).abs() <= bound(dtype) * loose * w.abs().max(0.1 * scale).max(1e-3)
            || g == w
            || (g.is_nan() && w.is_nan())
    };
    (!g.iter().zip(&w).all(near)).then(|| format!("{g:?} instead of {w:?}"))
}

/// The literal in another dtype.
fn converted(x: &Literal, dtype: DType) -> Literal {
    Literal::from_fn(x.ty().with_dtype(dtype), |i| x.get(i).cast(dtype))
}

/// What is wrong with a line's dtypes or values.
fn check(line: &Line, gives: Option<Gives>) -> Result<(), String> {
    let x: Vec<_> = line.inputs.iter().map(line::Input::tensor).collect();
    let outs = call(line, &x, table(&line.name)).ok_or("it is not known how to call it")?;
    if gives == Some(Refused) {
        return match outs.iter().find_map(|t| t.error()) {
            Some(_) => Ok(()),
            None => Err(format!("it gives {} instead of an error", outs[0].ty())),
        };
    }
    if let Some(e) = outs.iter().find_map(|t| t.error()) {
        return Err(format!("error: {}", e.to_string().lines().next().unwrap_or_default()));
    }
    let want: Vec<Literal> = match gives {
        Some(In(dtype) | ValuesIn(dtype)) => line.outs.iter().map(|l| converted(l, dtype)).collect(),
        Some(Own) => line.outs.iter().map(|l| converted(l, x[0].dtype())).collect(),
        _ => line.outs.clone(),
    };
    let got: Vec<String> = outs.iter().map(|t| t.ty().to_string()).collect();
    let types: Vec<String> = want.iter().map(|l| l.ty().to_string()).collect();
    if got != types {
        return Err(format!("{got:?} instead of {types:?}"));
    }
    if matches!(gives, Some(Values | ValuesIn(_))) {
        return Ok(());
    }
    let loose = line.number("loose").unwrap_or(1.0);
    for (t, want) in outs.iter().zip(&want) {
        let got = t.to_literal().map_err(|e| e.to_string())?;
        if let Some(text) = differs(&got, want, loose) {
            return Err(text);
        }
    }
    Ok(())
}

#[test]
fn every_dtype_equals_jax() {
    let text = line::read("dtypes");
    let (mut wrong, mut lines) = (Vec::new(), 0);
    for text in text.lines().filter(|l| !l.starts_with('#')) {
        let line = line::parse(text);
        let inputs = text.split(' ').nth(1).unwrap_or_default();
        // The dtype that the line is about: that of the operand that changes, which stands first but for conditions.
        let gives = inputs.split(';').filter_map(|i| i.split(':').next()).find_map(|d| different(&line, d));
        lines += 1;
        if gives == Some(Nothing) {
            continue;
        }
        if let Err(why) = check(&line, gives) {
            wrong.push(format!("{}\n  {why}", text.split(" = ").next().unwrap_or_default()));
        }
    }
    println!("{lines} lines");
    assert!(lines > 4500 && wrong.is_empty(), "{} of {lines} lines differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every function that the other golden files call with tensors has a line, or a reason, for every dtype.
#[test]
fn every_function_has_every_dtype() {
    const DTYPES: [&str; 13] =
        ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"];
    let mut covered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let text = line::read("dtypes");
    for text in text.lines() {
        if let Some((name, dtypes)) = text.strip_prefix("# ").and_then(|t| t.split_once(" of ")) {
            let dtypes = dtypes.split(':').next().unwrap_or_default();
            covered.entry(name.into()).or_default().extend(dtypes.split(' ').map(String::from));
            continue;
        }
        let Some((name, rest)) = text.split_once(' ').filter(|_| !text.starts_with('#')) else { continue };
        let own = rest.split([';', ' ']).filter_map(|input| input.split(':').next());
        covered.entry(name.into()).or_default().extend(own.filter(|d| DTYPES.contains(d)).map(String::from));
    }
    let mut missing = Vec::new();
    for file in ["np", "nn", "special", "linalg", "fft", "lax"] {
        let mut names: BTreeMap<String, bool> = BTreeMap::new();
        for text in line::read(file).lines() {
            let mut words = text.split(' ');
            let (Some(name), Some(inputs)) = (words.next(), words.next()) else { continue };
            *names.entry(name.into()).or_default() |= inputs != "-";
        }
        for (name, _) in names.iter().filter(|(_, tensors)| **tensors) {
            let has = covered.get(name).cloned().unwrap_or_default();
            let lacks: Vec<&str> = DTYPES.into_iter().filter(|d| !has.contains(*d)).collect();
            if !lacks.is_empty() {
                missing.push(format!("{name}: {lacks:?}"));
            }
        }
    }
    assert!(missing.is_empty(), "{} functions are not called with every dtype:\n{}", missing.len(), missing.join("\n"));
}
