//! Quantiles, and elements of what is sorted.

use crate::{ReduceAxes, Tensor, engine_of, lax, record};

/// How a quantile that lies between two elements is made of them: NumPy's names of methods.
#[derive(Clone, Copy)]
enum Method {
    Lower,
    Higher,
    Nearest,
    Midpoint,
    Linear,
    InvertedCdf,
    AveragedInvertedCdf,
    ClosestObservation,
    /// `n·q + α + q·(1 − α − β) − 1`.
    Between(f64, f64),
}

const METHODS: [(&str, Method); 13] = [
    ("linear", Method::Linear),
    ("lower", Method::Lower),
    ("higher", Method::Higher),
    ("nearest", Method::Nearest),
    ("midpoint", Method::Midpoint),
    ("inverted_cdf", Method::InvertedCdf),
    ("averaged_inverted_cdf", Method::AveragedInvertedCdf),
    ("closest_observation", Method::ClosestObservation),
    ("interpolated_inverted_cdf", Method::Between(0.0, 1.0)),
    ("hazen", Method::Between(0.5, 0.5)),
    ("weibull", Method::Between(0.0, 0.0)),
    ("median_unbiased", Method::Between(1.0 / 3.0, 1.0 / 3.0)),
    ("normal_unbiased", Method::Between(3.0 / 8.0, 3.0 / 8.0)),
];

/// Two places among sorted elements, and the share of the second.
#[derive(Clone, Copy)]
struct Between {
    low: usize,
    high: usize,
    share: f64,
}

impl Method {
    /// Where the quantile of `n` sorted elements lies.
    fn place(self, n: usize, q: f64) -> Between {
        let last = n.saturating_sub(1) as f64;
        let at = match self {
            Method::Lower => (last * q).floor(),
            Method::Higher => (last * q).ceil(),
            Method::Nearest => (last * q).round_ties_even(),
            Method::Midpoint => 0.5 * ((last * q).floor() + (last * q).ceil()),
            Method::Linear => last * q,
            Method::InvertedCdf => (n as f64 * q - 1.0).ceil(),
            Method::AveragedInvertedCdf => n as f64 * q - 1.0,
            Method::ClosestObservation => {
                let at = n as f64 * q - 1.5;
                let down = at.floor();
                if at == down && down.rem_euclid(2.0) == 1.0 { down } else { down + 1.0 }
            }
            Method::Between(a, b) => n as f64 * q + (a + q * (1.0 - a - b)) - 1.0,
        };
        let at = at.clamp(0.0, last);
        let (low, part) = (at.floor(), at - at.floor());
        let share = match self {
            Method::AveragedInvertedCdf if part > 0.0 => 1.0,
            Method::AveragedInvertedCdf => 0.5,
            _ => part,
        };
        // Below the first and at the last element there is nothing between.
        let alone = share == 0.0 || at == last || (at == 0.0 && n as f64 * q < 1.0);
        let high = if alone { low } else { low + 1.0 };
        Between { low: low as usize, high: high as usize, share: if alone { 0.0 } else { share } }
    }
}

fn method(op: &'static str, name: &str) -> Result<Method, Tensor> {
    METHODS.iter().find(|(n, _)| *n == name).map(|(_, m)| *m).ok_or_else(|| {
        let known: Vec<&str> = METHODS.iter().map(|(n, _)| *n).collect();
        record::invalid(op, format!("unknown method {name:?}: use one of {}", known.join(", ")))
    })
}

/// The elements along axes as one axis at the end, and the shape of what is left, with those axes of size 1 if they stay.
#[track_caller]
fn lines(op: &'static str, x: &Tensor, along: &ReduceAxes) -> Result<(Tensor, Vec<isize>), Tensor> {
    if let Some(e) = x.error() {
        return Err(Tensor::from_error(e));
    }
    let (axes, kept) =
        super::resolve(along, op, x.ty()).map_err(|e| Tensor::from_error(e.at(&record::place()).into()))?;
    if (1..axes.len()).any(|i| axes[..i].contains(&axes[i])) {
        return Err(record::invalid(op, format!("the axes {axes:?} name an axis twice")));
    }
    let rest: Vec<usize> = (0..x.rank()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<isize> = rest.iter().chain(&axes).map(|&a| a as isize).collect();
    let left: Vec<usize> = rest.iter().map(|&a| x.shape()[a]).collect();
    let size: usize = axes.iter().map(|&a| x.shape()[a]).product();
    let flat: Vec<usize> = left.iter().copied().chain([size]).collect();
    let shape = if along.keep { super::signed(&kept) } else { super::signed(&left) };
    Ok((x.permute(&order).reshape(&super::signed(&flat)), shape))
}

/// Quantiles of lines; with `skip`, of their numbers, else NaN where there is one.
#[track_caller]
fn quantile_of(op: &'static str, x: &Tensor, q: f64, along: ReduceAxes, name: &str, skip: bool) -> Tensor {
    let (method, (x, shape)) = match (method(op, name), lines(op, x, &along)) {
        (Ok(method), Ok(lines)) => (method, lines),
        (Err(bad), _) | (_, Err(bad)) => return bad,
    };
    if !(0.0..=1.0).contains(&q) {
        return record::invalid(op, format!("the quantile {q} must be from 0 to 1"));
    }
    let x = x.cast(record::float_of(x.dtype()));
    let n = x.size(-1);
    if n == 0 {
        return engine_of(&x).full(x.dtype(), &shape.iter().map(|&n| n as usize).collect::<Vec<_>>(), f64::NAN);
    }
    record::rounded([&x], |[x]| {
        // NaN is sorted to the end.
        let sorted = lax::sort(&x, -1);
        let y = if skip {
            of_numbers(&x, &sorted, q, method)
        } else {
            let at = method.place(n, q);
            let (low, high) = (sorted.index(-1, at.low as isize), sorted.index(-1, at.high as isize));
            let y = if at.share == 0.0 { low } else { low * (1.0 - at.share) + high * at.share };
            super::where_(&super::isnan(&sorted.index(-1, -1)), f64::NAN, &y)
        };
        y.reshape(&shape)
    })
}

/// Quantiles of the numbers of each line: where they lie is looked up by how many numbers there are.
fn of_numbers(x: &Tensor, sorted: &Tensor, q: f64, method: Method) -> Tensor {
    let engine = engine_of(x);
    let places: Vec<Between> = (0..=x.size(-1)).map(|n| method.place(n, q)).collect();
    let numbers = super::sum(&super::isnan(x).not(), super::axes(-1).keep());
    let look = |table: Tensor| super::take(&table, &numbers, Some(0));
    let index = |f: fn(&Between) -> usize| {
        let table: Vec<i64> = places.iter().map(|p| f(p) as i64).collect();
        super::take_along_axis(sorted, &look(engine.tensor(&table, &[table.len()])), -1)
    };
    let shares: Vec<f64> = places.iter().map(|p| p.share).collect();
    let share = look(engine.literal(&crate::Literal::from_fn(crate::Type::new(x.dtype(), &[shares.len()]), |i| {
        ir::Scalar::from_f64(x.dtype(), shares[i])
    })));
    let (low, high) = (index(|p| p.low), index(|p| p.high));
    // An infinite element that has no share gives nothing, rather than NaN.
    super::where_(&super::equal(&share, 0.0), &low, &(&low * (1.0 - &share) + &high * &share))
}

/// The middle element in order, or the mean of the middle two, along axes.
#[track_caller]
pub fn median(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("median", x, 0.5, axis.into(), "linear", false)
}

/// The element below which a fraction `q` lies along axes, by linear interpolation.
#[track_caller]
pub fn quantile(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("quantile", x, q, axis.into(), "linear", false)
}

/// [`quantile`] by one of NumPy's methods, by its name: `"lower"`, `"hazen"`, `"inverted_cdf"`, ..
///
/// ```
/// use tensorloom::{np, tensor};
///
/// let x = tensor(&[1.0f32, 2.0, 3.0, 10.0], &[4]);
/// assert_eq!(np::quantile_by(&x, 0.5, (), "higher").item::<f32>()?, 3.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn quantile_by(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>, method: &str) -> Tensor {
    let _here = crate::record::here();
    quantile_of("quantile_by", x, q, axis.into(), method, false)
}

/// [`quantile`] by percent.
#[track_caller]
pub fn percentile(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("percentile", x, q / 100.0, axis.into(), "linear", false)
}

/// [`median`] without NaN.
#[track_caller]
pub fn nanmedian(x: &Tensor, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("nanmedian", x, 0.5, axis.into(), "linear", true)
}

/// [`quantile`] without NaN.
#[track_caller]
pub fn nanquantile(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("nanquantile", x, q, axis.into(), "linear", true)
}

/// [`quantile_by`] without NaN.
#[track_caller]
pub fn nanquantile_by(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>, method: &str) -> Tensor {
    let _here = crate::record::here();
    quantile_of("nanquantile_by", x, q, axis.into(), method, true)
}

/// [`percentile`] without NaN.
#[track_caller]
pub fn nanpercentile(x: &Tensor, q: f64, axis: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    quantile_of("nanpercentile", x, q / 100.0, axis.into(), "linear", true)
}
