//! Counts: of events, of successes, of each outcome. The draws are those that JAX makes.

use super::gamma::like;
use crate::{DType, Operand, Tensor, lax, np, record, special};

#[track_caller]
fn spread(of: Operand, key: &Tensor, dtype: DType, shape: &[usize]) -> Tensor {
    let signed: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
    match of {
        Operand::Tensor(t) => t.cast(dtype).expand(&signed),
        Operand::Number(x) => crate::engine_of(key).full(dtype, shape, x),
    }
}

/// Transformed rejection: pairs of uniforms, the first around 0, are drawn until `propose` has accepted a count for every
/// element.
#[track_caller]
fn rejection(key: &Tensor, of: &Tensor, propose: impl Fn(&Tensor, &Tensor) -> (Tensor, Tensor)) -> Tensor {
    let (shape, dtype) = (of.shape(), of.dtype());
    let (_, counts, _) = lax::while_loop(
        |(accepted, ..): (Tensor, Tensor, Tensor)| np::any(&np::logical_not(&accepted), ()),
        |(accepted, counts, key): (Tensor, Tensor, Tensor)| {
            let keys = super::split(&key, 3);
            let u = super::uniform(&keys.index(0, 1), shape, dtype, 0.0, 1.0) - 0.5;
            let v = super::uniform(&keys.index(0, 2), shape, dtype, 0.0, 1.0);
            let (accept, count) = propose(&u, &v);
            (accepted.or(&accept), accept.select(&count, &counts), keys.index(0, 0))
        },
        (np::zeros_like(of).cast(DType::Bool), np::zeros_like(of) - 1.0, key.clone()),
    );
    counts
}

/// Events of a rate below 10, by multiplying uniforms until the product is small enough.
#[track_caller]
fn few_events(key: &Tensor, rate: &Tensor) -> Tensor {
    let goes_on = |product: &Tensor| product.gt(&-rate);
    let (_, _, counts) = lax::while_loop(
        |(product, ..): (Tensor, Tensor, Tensor)| np::any(&goes_on(&product), ()),
        |(product, key, counts): (Tensor, Tensor, Tensor)| {
            let (next, sub) = super::split2(&key);
            let counts = goes_on(&product).select(&(&counts + 1.0), &counts);
            (product + super::uniform(&sub, rate.shape(), DType::F32, 0.0, 1.0).log(), next, counts)
        },
        (np::zeros_like(rate), key.clone(), np::zeros_like(rate)),
    );
    counts - 1.0
}

/// Events of a rate from 10 on: Hörmann's PTRS.
#[track_caller]
fn many_events(key: &Tensor, rate: &Tensor) -> Tensor {
    let log_rate = rate.log();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * &b;
    let inverse = 1.1239 + 1.1328 / (&b - 3.4);
    let inside = 0.9277 - 3.6224 / (&b - 2.0);
    rejection(key, rate, |u, v| {
        let rest = 0.5 - u.abs();
        let k = np::floor(&((2.0 * &a / &rest + &b) * u + rate + 0.43));
        let s = (v * &inverse / (&a / (&rest * &rest) + &b)).log();
        let t = -rate + &k * &log_rate - special::gammaln(&(&k + 1.0));
        let sure = rest.ge(&like(rate, 0.07)).and(&v.le(&inside));
        let out = k.lt(&like(rate, 0.0)).or(&rest.lt(&like(rate, 0.013)).and(&v.gt(&rest)));
        (sure.or(&np::logical_not(&out).and(&s.le(&t))), k)
    })
}

/// Numbers of events of a Poisson process with a rate, which broadcasts to the shape. Gives integers.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let n = random::poisson(&random::key(3), &[2000], DType::I32, 4.0);
/// assert!((n.cast(DType::F32).mean().item::<f32>()? - 4.0).abs() < 0.2);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn poisson(key: &Tensor, shape: &[usize], dtype: DType, rate: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    if dtype.is_float() || dtype == DType::Bool {
        return record::invalid("poisson", "counts are integers: request an integer dtype");
    }
    let rate = spread(rate.into(), key, DType::F32, shape);
    let few = np::isnan(&rate).or(&rate.lt(&like(&rate, 10.0)));
    let counts = few.select(
        &few_events(key, &few.select(&rate, &np::zeros_like(&rate))),
        &many_events(key, &few.select(&np::full_like(&rate, 1e5), &rate)),
    );
    rate.eq(&like(&rate, 0.0)).select(&np::zeros_like(&rate), &counts).cast(dtype)
}

/// Successes where few are expected: the gaps between them are geometric.
#[track_caller]
fn few_successes(key: &Tensor, trials: &Tensor, p: &Tensor) -> Tensor {
    let log_failure = np::log1p(&-p);
    let goes_on = |sum: &Tensor| sum.le(trials);
    let (_, counts, _) = lax::while_loop(
        |(sum, ..): (Tensor, Tensor, Tensor)| np::any(&goes_on(&sum), ()),
        |(sum, counts, key): (Tensor, Tensor, Tensor)| {
            let (sub, next) = super::split2(&key);
            let counts = goes_on(&sum).select(&(&counts + 1.0), &counts);
            let gap = np::ceil(&(super::uniform(&sub, p.shape(), p.dtype(), 0.0, 1.0).log() / &log_failure));
            (sum + gap, counts, next)
        },
        (np::zeros_like(p), np::zeros_like(p), key.clone()),
    );
    counts - 1.0
}

/// What Stirling's formula lacks of log k!. Above 9 the value at 9 stands for all, as it does in JAX: the samples are to
/// be the same.
#[track_caller]
fn stirling_tail(k: &Tensor) -> Tensor {
    const EXACT: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    let small = k.le(&like(k, 9.0));
    let k = k.clamp(0.0, 9.0);
    let next = &k + 1.0;
    let square = &next * &next;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / &square) / &square) / &next;
    let table = crate::engine_of(&k).tensor(&EXACT, &[10]).cast(k.dtype());
    small.select(&np::take(&table, &np::floor(&k).cast(DType::I32), None), &series)
}

/// Successes where many are expected: Hörmann's BTRS.
#[track_caller]
fn many_successes(key: &Tensor, trials: &Tensor, p: &Tensor) -> Tensor {
    let spread = (trials * p * (1.0 - p)).sqrt();
    let b = 1.15 + 2.53 * &spread;
    let a = -0.0873 + 0.0248 * &b + 0.01 * p;
    let c = trials * p + 0.5;
    let inside = 0.92 - 4.2 / &b;
    let odds = p / (1.0 - p);
    let alpha = (2.83 + 5.1 / &b) * &spread;
    let m = np::floor(&((trials + 1.0) * p));
    let left = trials - &m;
    let at_mode = (&m + 0.5) * ((&m + 1.0) / (&odds * (&left + 1.0))).log();
    let tails = stirling_tail(&m) + stirling_tail(&left);
    rejection(key, p, |u, v| {
        let rest = 0.5 - u.abs();
        let k = np::floor(&((2.0 * &a / &rest + &b) * u + &c));
        let sure = rest.ge(&like(p, 0.07)).and(&v.le(&inside));
        let out = k.lt(&like(p, 0.0)).or(&k.gt(trials));
        let failures = trials - &k;
        let s = (v * &alpha / (&a / (&rest * &rest) + &b)).log();
        let t = &at_mode
            + (trials + 1.0) * ((&left + 1.0) / (&failures + 1.0)).log()
            + (&k + 0.5) * (&odds * (&failures + 1.0) / (&k + 1.0)).log()
            + &tails
            - stirling_tail(&k)
            - stirling_tail(&failures);
        (sure.or(&np::logical_not(&out).and(&s.le(&t))), k)
    })
}

/// Successes in `n` trials with probability `p` each; both broadcast to the shape. Gives floats: NaN where there is no
/// such distribution.
///
/// ```
/// use tensorloom::{DType, random};
///
/// let heads = random::binomial(&random::key(3), &[2000], DType::F32, 100.0, 0.3);
/// assert!((heads.mean().item::<f32>()? - 30.0).abs() < 1.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn binomial(key: &Tensor, shape: &[usize], dtype: DType, n: impl Into<Operand>, p: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    if !dtype.is_float() {
        return record::invalid("binomial", "counts are floats here, because some are NaN: request a float dtype");
    }
    let trials = spread(n.into(), key, dtype, shape);
    let p = spread(p.into(), key, dtype, shape);
    let zero = like(&p, 0.0);
    let rare = p.lt(&like(&p, 0.5));
    let q = rare.select(&p, &(1.0 - &p));
    let no_trials = np::isnan(&trials).or(&trials.lt(&zero));
    let wrong = np::isnan(&q).or(&q.lt(&zero));
    let unclear = no_trials.or(&np::isnan(&q));
    let q = wrong.select(&np::full_like(&q, 0.01), &q);
    let few = no_trials.or(&(&trials * &q).le(&like(&p, 10.0)));
    let endless = np::isinf(&trials);
    let trials = np::floor(&trials);
    let counts = few.select(
        &few_successes(key, &few.select(&trials, &np::zeros_like(&trials)), &q),
        &many_successes(
            key,
            &few.select(&np::full_like(&trials, 1e4), &trials),
            &few.select(&np::full_like(&q, 0.5), &q),
        ),
    );
    let invalid = wrong.or(&no_trials);
    let counts = invalid.select(&np::full_like(&counts, f64::NAN), &counts);
    let counts = endless.and(&np::logical_not(&invalid)).select(&np::full_like(&counts, f64::INFINITY), &counts);
    rare.or(&unclear).or(&endless).select(&counts, &(trials - &counts))
}

/// How often each outcome came up in `n` trials; probabilities are along the last axis of `p`, and `shape` is that of the
/// batch. Gives floats.
#[track_caller]
pub fn multinomial(key: &Tensor, shape: &[usize], dtype: DType, n: impl Into<Operand>, p: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let Some(&outcomes) = p.shape().last() else {
        return record::invalid("multinomial", "probabilities need an axis of outcomes");
    };
    let n = spread(n.into(), key, dtype, shape);
    let wide: Vec<isize> = shape.iter().chain([&outcomes]).map(|&n| n as isize).collect();
    let p = np::moveaxis(&p.cast(dtype).expand(&wide), &[-1], &[0]);
    let left = np::flip(&np::cumsum(&np::flip(&p, 0), 0), 0);
    let ratios = &p / left.eq(&like(&left, 0.0)).select(&np::ones_like(&left), &left);
    let keys = super::split(key, outcomes);
    let step = |(rest, (ratio, key)): (Tensor, (Tensor, Tensor))| {
        let count = binomial(&key, shape, dtype, &rest, &ratio.clamp(0.0, 1.0));
        (rest - &count, count)
    };
    let (_, counts) = lax::scan(step, n, (ratios, keys));
    np::moveaxis(&counts, &[0], &[-1])
}
