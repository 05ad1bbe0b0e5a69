//! Reductions, norms and losses of f16 and bf16 against f64: of many elements, and of elements whose sums, squares and
//! counts are beyond f16.

use tensorloom::np::{self, axes};
use tensorloom::prelude::*;
use tensorloom::{lax, linalg, optim, special, vjp};

type Case = (&'static str, fn(&Tensor, &Tensor) -> Tensor);

/// Rows and columns of the inputs: more elements than the largest f16.
const SHAPE: [usize; 2] = [256, 400];

fn labels(x: &Tensor) -> Tensor {
    np::remainder(&arange(x.size(0)), 7)
}

const CASES: &[Case] = &[
    ("Tensor::sum", |x, _| x.sum()),
    ("Tensor::mean", |x, _| x.mean()),
    ("Tensor::mean_axes", |x, _| x.mean_axes(0, true)),
    ("Tensor::var", |x, _| x.var(1)),
    ("Tensor::var_axes", |x, _| x.var_axes([0, 1], 0, false)),
    ("Tensor::std", |x, _| x.std(1)),
    ("Tensor::std_axes", |x, _| x.std_axes(1, 0, true)),
    ("Tensor::logsumexp", |x, _| x.logsumexp((), false)),
    ("Tensor::mse_loss", |x, y| x.mse_loss(y)),
    ("np::sum", |x, _| np::sum(x, 0)),
    ("np::mean", |x, _| np::mean(x, ())),
    ("np::mean", |x, _| np::mean(x, axes(1).keep())),
    ("np::average", |x, _| np::average(x, (), None)),
    ("np::average", |x, y| np::average(x, (), Some(&y.abs()))),
    ("np::var", |x, _| np::var(x, (), 1)),
    ("np::std", |x, _| np::std(x, (), 0)),
    ("np::max", |x, _| np::max(x, 0)),
    ("np::min", |x, _| np::min(x, ())),
    ("np::ptp", |x, _| np::ptp(&(x * 0.5), ())),
    ("np::median", |x, _| np::median(x, ())),
    ("np::quantile", |x, _| np::quantile(x, 0.3, 1)),
    ("np::quantile_by", |x, _| np::quantile_by(x, 0.3, 1, "hazen")),
    ("np::percentile", |x, _| np::percentile(x, 99.0, ())),
    ("np::nansum", |x, _| np::nansum(x, 1)),
    ("np::nanmean", |x, _| np::nanmean(x, ())),
    ("np::nanvar", |x, _| np::nanvar(x, (), 1)),
    ("np::nanstd", |x, _| np::nanstd(x, (), 1)),
    ("np::nanmax", |x, _| np::nanmax(x, ())),
    ("np::nanmin", |x, _| np::nanmin(x, ())),
    ("np::nanmedian", |x, _| np::nanmedian(x, ())),
    ("np::nanquantile", |x, _| np::nanquantile(x, 0.3, ())),
    ("np::nanquantile_by", |x, _| np::nanquantile_by(x, 0.3, (), "weibull")),
    ("np::nanpercentile", |x, _| np::nanpercentile(x, 1.0, ())),
    ("np::cov", |x, _| np::cov(&x.slice(0, 0, 3, 1), 1)),
    ("np::corrcoef", |x, _| np::corrcoef(&x.slice(0, 0, 3, 1))),
    ("np::trapezoid", |x, _| np::trapezoid(x, None, 0.01, 1)),
    ("linalg::norm", |x, _| linalg::norm(x, (), ())),
    ("linalg::norm", |x, _| linalg::norm(x, 3, 1)),
    ("linalg::norm", |x, _| linalg::norm(x, f64::INFINITY, 0)),
    ("linalg::norm", |x, _| linalg::norm(x, 0, 1)),
    ("linalg::norm", |x, _| linalg::norm(x, f64::INFINITY, [1, 0])),
    ("linalg::vector_norm", |x, _| linalg::vector_norm(x, 1, ())),
    ("linalg::matrix_norm", |x, _| linalg::matrix_norm(x, linalg::Norm::Frobenius, false)),
    ("linalg::matrix_norm", |x, _| linalg::matrix_norm(x, -1, true)),
    ("special::logsumexp", |x, _| special::logsumexp(x, ())),
    ("nn::logsumexp", |x, _| nn::logsumexp(x, 0)),
    ("nn::logmeanexp", |x, _| nn::logmeanexp(x, ())),
    ("nn::softmax", |x, _| nn::softmax(x, 1)),
    ("nn::log_softmax", |x, _| nn::log_softmax(x, 1)),
    ("nn::standardize", |x, _| nn::standardize(x, (), 1e-5)),
    ("nn::mse_loss", |x, y| nn::mse_loss(x, y)),
    ("nn::l1_loss", |x, y| nn::l1_loss(x, y)),
    ("nn::smooth_l1_loss", |x, y| nn::smooth_l1_loss(x, y, 1.0)),
    ("nn::huber_loss", |x, y| nn::huber_loss(x, y, 0.25)),
    ("nn::binary_cross_entropy_with_logits", |x, y| nn::binary_cross_entropy_with_logits(x, &share(y))),
    ("nn::binary_cross_entropy", |x, y| nn::binary_cross_entropy(&share(x), &share(y))),
    ("nn::kl_div", |x, y| nn::kl_div(x, &share(y))),
    ("nn::cosine_similarity", |x, y| nn::cosine_similarity(x, y, 1, 1e-8)),
    ("nn::nll_loss", |x, _| nn::nll_loss(x, &labels(x))),
    ("nn::cross_entropy", |x, _| nn::cross_entropy(x, &labels(x), nn::CrossEntropy::default())),
    ("nn::avg_pool2d", |x, _| nn::avg_pool2d(&x.reshape((1, 1, 256, 400)), nn::PoolOptions::of(200))),
    ("optim::global_norm", |x, _| optim::global_norm(&vec![x.clone(), x.clone()])),
    ("lax::reduce mean of squares", |x, _| np::mean(&lax::sort(x, 1), ())),
];

/// Numbers between 1/8 and 7/8, exact in every dtype, that follow from a tensor.
fn share(x: &Tensor) -> Tensor {
    let steps = np::remainder(&np::floor(&x.abs()).stop_gradient(), 7.0);
    ((steps + 1.0) * 0.125).stop_gradient()
}

/// Functions of axes that give an element, an index or a truth, or rearrange; and running ones, whose sums are results.
const OTHERS: &[&str] = &[
    "all",
    "any",
    "append",
    "argmax",
    "argmin",
    "argsort",
    "compress",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "delete",
    "expand_dims",
    "flip",
    "insert",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanprod",
    "permute_dims",
    "prod",
    "repeat",
    "roll",
    "sort",
    "squeeze",
    "take",
    "transpose",
    "cond",
    "matrix_rank",
    "clip",
    "adaptive_grad_clip",
    "clip_by_block_rms",
    "clip_by_global_norm",
];

/// Every reduction, norm and loss of the table of functions is compared.
#[test]
fn every_reduction_is_compared() {
    let table = include_str!("../../../docs/functions.json");
    let field = |line: &str, key: &str| {
        let rest = line.split_once(&format!("\"{key}\": \""))?.1;
        Some(rest.split('"').next()?.to_string())
    };
    let mut missing = Vec::new();
    for line in table.lines() {
        let (Some(module), Some(name)) = (field(line, "module"), field(line, "name")) else { continue };
        let reduces =
            ["np", "nn", "linalg", "special"].contains(&module.as_str()) && line.contains("\"impl Into<Along>\"");
        let file = field(line, "file").unwrap_or_default();
        let by_file =
            ["nn/loss.rs", "linalg/norm.rs", "optim/clip.rs", "np/stats.rs", "np/quantile.rs"].contains(&file.as_str());
        let known = CASES.iter().any(|(n, _)| *n == format!("{module}::{name}")) || OTHERS.contains(&name.as_str());
        if (reduces || by_file) && !known {
            missing.push(format!("{module}::{name}"));
        }
    }
    assert!(missing.is_empty(), "{missing:?} are not compared in f16 and bf16");
}

/// Pseudo-random numbers in `low..high`, of either sign if `signed`.
fn numbers(seed: u64, low: f64, high: f64, signed: bool) -> Tensor {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let all: Vec<f64> = (0..SHAPE[0] * SHAPE[1])
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let u = (state >> 33) as f64 / (1u64 << 31) as f64;
            let sign = if signed && state & (1 << 20) != 0 { -1.0 } else { 1.0 };
            sign * (low + u * (high - low))
        })
        .collect();
    tensor(&all, SHAPE)
}

/// Says where a result of a narrow dtype is not what f64 gives.
fn differs(got: &Tensor, want: &Tensor, dtype: DType, size: f64) -> Option<String> {
    if got.error().is_some() || want.error().is_some() {
        return Some(format!("{:?} {:?}", got.error(), want.error()));
    }
    let (ulp, most, least) = match dtype {
        DType::F16 => (f64::powi(2.0, -10), 65504.0, f64::powi(2.0, -24)),
        _ => (f64::powi(2.0, -7), f64::from(f32::MAX), 1e-38),
    };
    let (g, w) = (got.cast(DType::F64).to_vec::<f64>().unwrap(), want.cast(DType::F64).to_vec::<f64>().unwrap());
    assert_eq!(g.len(), w.len());
    let top = w.iter().fold(0.0f64, |a, x| a.max(x.abs()));
    let wrong = (0..g.len()).find(|&i| {
        let (g, w) = (g[i], w[i]);
        let over = w.abs() > most * (1.0 - ulp) && (g.abs() >= most * (1.0 - 2.0 * ulp)) && g.signum() == w.signum();
        let near = (g - w).abs() <= ulp * w.abs() + least + 3e-6 * (top + size);
        !(over || near || g == w)
    })?;
    Some(format!("element {wrong} is {:e} instead of {:e}", g[wrong], w[wrong]))
}

/// Several numbers that are exact in every dtype; one for a result of rank 0.
fn cotangent(like: &Tensor) -> Tensor {
    match like.rank() {
        0 => ones(()),
        _ => ((np::remainder(&arange(like.numel()), 7) - 2) * 0.25).reshape(like.shape()),
    }
}

fn check(name: &str, f: fn(&Tensor, &Tensor) -> Tensor, x: &Tensor, y: &Tensor, size: f64) -> Option<String> {
    let dtype = x.dtype();
    let (wx, wy) = (x.cast(DType::F64), y.cast(DType::F64));
    let (got, want) = (f(x, y), f(&wx, &wy));
    // Where numbers are much smaller than what they are made of, f32 has lost their digits too.
    let size = if name.contains("kl_div") || name.contains("mean") || name.contains("average") { size } else { 0.0 };
    if let Some(text) = differs(&got, &want, dtype, size) {
        return Some(text);
    }
    let finite = np::all(&np::isfinite(&got), ()).item::<bool>().unwrap();
    let (outs, back) = vjp(move |v: (Tensor, Tensor)| f(&v.0, &v.1), (x.clone(), y.clone()));
    let (_, wide) = vjp(move |v: (Tensor, Tensor)| f(&v.0, &v.1), (wx, wy));
    if !finite {
        return None;
    }
    let ct = cotangent(&outs);
    let (g, w) = (back.call(ct.cast(outs.dtype())), wide.call(ct.cast(DType::F64)));
    // Backward of a softmax begins with its rounded results: what is left of the terms, which are near 1, has their noise.
    let terms = if name.contains("softmax") { 8.0 * if dtype == DType::F16 { 330.0 } else { 2600.0 } } else { 0.0 };
    for (which, (g, w)) in [(&g.0, &w.0), (&g.1, &w.1)].into_iter().enumerate() {
        if g.dtype() != dtype {
            return Some(format!("gradient {which} is {}", g.ty()));
        }
        if let Some(text) = differs(g, w, dtype, terms) {
            return Some(format!("gradient {which}: {text}"));
        }
    }
    None
}

fn all(dtype: DType, low: f64, high: f64, signed: bool) {
    let (x, y) = (numbers(1, low, high, signed).cast(dtype), numbers(2, low, high, signed).cast(dtype));
    let wrong: Vec<String> = CASES
        .iter()
        .filter_map(|(name, f)| check(name, *f, &x, &y, high).map(|text| format!("{name}: {text}")))
        .collect();
    assert!(wrong.is_empty(), "{} of {} in {dtype} differ:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

#[test]
fn many_f16() {
    all(DType::F16, 0.25, 2.0, true);
}

#[test]
fn large_f16() {
    all(DType::F16, 1000.0, 30000.0, false);
}

#[test]
fn large_f16_of_both_signs() {
    all(DType::F16, 300.0, 30000.0, true);
}

#[test]
fn many_bf16() {
    all(DType::BF16, 0.25, 2.0, true);
}

#[test]
fn large_bf16() {
    all(DType::BF16, 1e3, 1e12, true);
}
