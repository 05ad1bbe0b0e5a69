//! Composed functions at tails and extremes, against values of 80 digits (`golden/tails.py`), in f32 and f64.

use std::collections::BTreeMap;
use tensorloom::{DType, Tensor, grad, linalg, nn, np, special, tensor, tensor_of};

type Row = (Vec<f64>, f64);

/// Arguments and results by function and dtype.
fn table() -> BTreeMap<(String, DType), Vec<Row>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/data/tails.txt");
    let text = std::fs::read_to_string(path).expect("golden data is in the repository");
    let mut found: BTreeMap<(String, DType), Vec<Row>> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, dtype, args, y] = words[..] else { panic!("{line}") };
        let dtype: DType = dtype.parse().expect("a dtype");
        let bits = |s: &str| u64::from_str_radix(s, 16).expect("bits");
        let number = |s: &str| match dtype {
            DType::F32 => f32::from_bits(bits(s) as u32) as f64,
            _ => f64::from_bits(bits(s)),
        };
        let args = args.split(',').map(number).collect();
        found.entry((name.to_string(), dtype)).or_default().push((args, f64::from_bits(bits(y))));
    }
    found
}

/// Every element's result; losses are computed row by row.
fn results(name: &str, x: &Tensor, y: Option<&Tensor>) -> Vec<f64> {
    let one = |f: fn(&Tensor) -> Tensor| f(x);
    let two = |f: fn(&Tensor, &Tensor) -> Tensor| f(x, y.expect("two arguments"));
    let out = match name {
        "gamma" => one(special::gamma),
        "gammaln" => one(special::gammaln),
        "factorial" => one(special::factorial),
        "ndtr" => one(special::ndtr),
        "log_ndtr" => one(special::log_ndtr),
        "ndtri" => one(special::ndtri),
        "i0" => one(special::i0),
        "i0e" => one(special::i0e),
        "i1" => one(special::i1),
        "i1e" => one(special::i1e),
        "logit" => one(special::logit),
        "entr" => one(special::entr),
        "cbrt" => one(np::cbrt),
        "log10" => one(np::log10),
        "softplus" => one(nn::softplus),
        "log_sigmoid" => one(nn::log_sigmoid),
        "log1mexp" => one(nn::log1mexp),
        "betaln" => two(|a, b| special::betaln(a, b)),
        "beta" => two(|a, b| special::beta(a, b)),
        "xlogy" => two(|a, b| special::xlogy(a, b)),
        "xlog1py" => two(|a, b| special::xlog1py(a, b)),
        "rel_entr" => two(|a, b| special::rel_entr(a, b)),
        "kl_div" => two(|a, b| special::kl_div(a, b)),
        "hypot" => two(|a, b| np::hypot(a, b)),
        "logaddexp" => two(|a, b| np::logaddexp(a, b)),
        "logaddexp2" => two(|a, b| np::logaddexp2(a, b)),
        "ldexp" => np::ldexp(x, &y.expect("two arguments").cast(DType::I32)),
        "binary_cross_entropy" => mapped(x, y, nn::binary_cross_entropy),
        "binary_cross_entropy_with_logits" => mapped(x, y, nn::binary_cross_entropy_with_logits),
        "smooth_l1_loss" => mapped(x, y, |a, b| nn::smooth_l1_loss(a, b, 1.0)),
        _ => panic!("{name}"),
    };
    out.cast(DType::F64).to_vec::<f64>().expect("results")
}

fn mapped(x: &Tensor, y: Option<&Tensor>, f: fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
    tensorloom::vmap(|(a, b): (Tensor, Tensor)| f(&a, &b)).call((x.clone(), y.expect("two arguments").clone()))
}

/// How many units in the last place a function may be off, of the result and something besides: what cancels near a root, and what an argument's
/// last place counts.
fn allowed(name: &str, dtype: DType, args: &[f64], want: f64) -> (f64, f64) {
    let larger = args.iter().copied().filter(|x| x.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
    match name {
        "ldexp" | "cbrt" => (1.0, 0.0),
        "log10" | "hypot" => (1.5, 0.0),
        "factorial" if args[0] <= if dtype == DType::F64 { 22.0 } else { 13.0 } => (0.0, 0.0),
        "ndtr" | "log_ndtr" => (16.0 + 2.0 * args[0] * args[0], 0.0),
        "gammaln" => (8.0, 4.0),
        "betaln" => (16.0, 16.0),
        "beta" => (24.0 + 4.0 * want.abs().ln().abs(), 0.0),
        "logaddexp" | "logaddexp2" => (4.0, if want.is_finite() { larger.min(1e3) } else { 0.0 }),
        "kl_div" => (8.0, larger),
        _ => (16.0, 0.0),
    }
}

fn right(dtype: DType, got: f64, want: f64, (ulps, around): (f64, f64)) -> bool {
    if want.is_nan() {
        return got.is_nan();
    }
    let (unit, least, most) = match dtype {
        DType::F32 => (2f64.powi(-23), 2f64.powi(-149), f32::MAX as f64),
        _ => (2f64.powi(-52), 5e-324, f64::MAX),
    };
    if want.is_infinite() || got.is_infinite() {
        return got == want || (got == f64::INFINITY.copysign(want) && want.abs() >= most * (1.0 - unit * ulps));
    }
    (got - want).abs() <= ulps * (unit * (want.abs() + around)).max(least)
}

#[test]
fn composed_functions_hold_at_tails_and_extremes() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for ((name, dtype), rows) in table() {
        let column = |k: usize| {
            let values: Vec<f64> = rows.iter().map(|r| r.0[k]).collect();
            tensor(&values, &[values.len()]).cast(dtype)
        };
        let second = (rows[0].0.len() == 2).then(|| column(1));
        let got = results(&name, &column(0), second.as_ref());
        for ((args, want), got) in rows.iter().zip(got) {
            count += 1;
            if !right(dtype, got, *want, allowed(&name, dtype, args, *want)) {
                wrong.push(format!("{name} {dtype} {args:?} is {got:e}, not {want:e}"));
            }
        }
    }
    println!("{count} values");
    assert!(wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 8000);
}

/// Slopes where functions are awkward: at corners, NaN and zeros.
#[test]
fn slopes_hold_where_functions_are_awkward() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let slope = |f: &dyn Fn(Tensor) -> Tensor, x: f64| -> f64 {
        grad(|x: Tensor| f(x)).call(tensor_of::<f64>(&[x], &[])).item::<f64>().expect("a number")
    };
    let same = |what: &str, got: f64, want: f64| {
        let near = (got - want).abs() <= 1e-13 * want.abs();
        assert!(got == want || near || (got.is_nan() && want.is_nan()), "{what}: {got}, not {want}");
    };
    for x in [0.0, -0.0] {
        same("cbrt at 0", slope(&|x| np::cbrt(&x), x), inf);
    }
    same("cbrt", slope(&|x| np::cbrt(&x), -8.0), 1.0 / 12.0);
    same("cbrt", slope(&|x| np::cbrt(&x), 27.0), 1.0 / 27.0);
    for y in [0.0, inf, nan] {
        same("logaddexp at NaN", slope(&|x| np::logaddexp(&x, y), nan), nan);
        same("logaddexp2 at NaN", slope(&|x| np::logaddexp2(y, &x), nan), nan);
        same("logaddexp beside NaN", slope(&|x| np::logaddexp(nan, &x), y), nan);
    }
    same("logaddexp at inf", slope(&|x| np::logaddexp(&x, 1.0), inf), 1.0);
    same("logaddexp", slope(&|x| np::logaddexp(&x, 1.0), 1.0), 0.5);
    same("0 to a negative power", slope(&|x| np::power(&x, -1.0), 0.0), -inf);
    same("0 to a negative power", slope(&|y| np::power(&tensor_of::<f64>(&[0.0], &[]), &y), -1.0), -inf);
    for y in [0.0, 0.5, 2.0, inf] {
        same("0 to a power", slope(&|y| np::power(&tensor_of::<f64>(&[0.0], &[]), &y), y), 0.0);
    }
    same("hypot at NaN", slope(&|x| np::hypot(&x, 1.0), nan), nan);
    same("hypot at 0", slope(&|x| np::hypot(&x, 0.0), 0.0), 0.0);
    same("hypot", slope(&|x| np::hypot(&x, 4e200), 3e200), 0.6);
    for p in [1e-300, 1e-10, 0.01, 0.3, 0.5, 0.7, 0.999] {
        let x = special::ndtri(&tensor_of::<f64>(&[p], &[1])).item::<f64>().expect("a number");
        same("ndtri", slope(&|p| special::ndtri(&p), p), (2.0 * std::f64::consts::PI).sqrt() * (x * x / 2.0).exp());
    }
    for x in [0.5, 3.0, 23.5, 24.5, 100.0, -0.3, -5.5] {
        let t = tensor_of::<f64>(&[x], &[1]);
        let want = (special::gamma(&t) * special::digamma(&t)).item::<f64>().expect("a number");
        same("gamma", slope(&|x| special::gamma(&x), x), want);
    }
}

/// Cofactors are the slopes of a determinant, of singular matrices too.
#[test]
fn slopes_of_determinants_are_cofactors() {
    let matrices: [(usize, &[f64]); 9] = [
        (1, &[0.0]),
        (2, &[1.0, 2.0, 2.0, 4.0]),
        (2, &[0.0, 0.0, 0.0, 1.0]),
        (2, &[0.0, 1.0, 0.0, 0.0]),
        (2, &[0.0; 4]),
        (3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]),
        (3, &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        (3, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
        (3, &[2.0, -1.0, 0.5, 3.0, 1.0, 4.0, 0.25, 2.0, 1.0]),
    ];
    for dtype in [DType::F64, DType::F32] {
        for (n, a) in matrices {
            let t = tensor(a, &[n, n]).cast(dtype);
            let got = grad(|a: Tensor| linalg::det(&a)).call(t).cast(DType::F64).to_vec::<f64>().expect("slopes");
            let eps = if dtype == DType::F64 { 1e-13 } else { 1e-4 };
            for i in 0..n {
                for j in 0..n {
                    let want = cofactor(n, a, i, j);
                    assert!(
                        (got[i * n + j] - want).abs() <= eps * 30.0,
                        "{dtype} {a:?} at {i}, {j}: {got:?}, not {want}"
                    );
                }
            }
        }
    }
}

fn cofactor(n: usize, a: &[f64], i: usize, j: usize) -> f64 {
    let rows = (0..n).filter(|&r| r != i);
    let minor: Vec<f64> = rows.flat_map(|r| (0..n).filter(|&c| c != j).map(move |c| a[r * n + c])).collect();
    let sign = if (i + j).is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * match n {
        1 => 1.0,
        2 => minor[0],
        _ => minor[0] * minor[3] - minor[1] * minor[2],
    }
}
