//! Every sampler against JAX, for the lines of `golden/random/random.golden`.

use std::collections::BTreeMap;
use tensorloom::{DType, Literal, Tensor, Type, random, tensor};

/// Samplers whose values are bits, integers or plain arithmetic: equal to the last bit.
const EXACT: [&str; 10] =
    ["bits", "split", "split2", "fold_in", "uniform", "randint", "bernoulli", "permutation", "shuffle", "rademacher"];

struct Line<'a> {
    name: &'a str,
    key: Tensor,
    shape: Vec<usize>,
    dtype: DType,
    p: Vec<f64>,
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap_or_else(|_| panic!("no dtype {name}"))
}

fn literal(ty: &str, hex: &str) -> Literal {
    let (name, dims) = ty.trim_end_matches(']').split_once('[').unwrap();
    let shape: Vec<usize> = dims.split(',').filter(|d| !d.is_empty()).map(|d| d.parse().unwrap()).collect();
    let hex = if hex == "-" { "" } else { hex };
    let bytes: Vec<u8> = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
    Literal::from_bytes(Type::new(dtype(name), &shape), &bytes).unwrap()
}

fn sample(l: &Line<'_>) -> Tensor {
    let (k, s, d, p) = (&l.key, &l.shape[..], l.dtype, &l.p[..]);
    let vector = |x: &[f64]| tensor(x, &[x.len()]).cast(d);
    match l.name {
        "bits" => random::bits(k, s, d),
        "split" => random::split(k, s[0]),
        "split2" => {
            let (a, b) = random::split2(k);
            Tensor::stack(&[&a, &b], 0)
        }
        "shuffle" => {
            let n: usize = s.iter().product();
            let table: Vec<f32> = (0..n).map(|i| i as f32).collect();
            random::shuffle(k, &tensor(&table, s), p[0] as isize)
        }
        "fold_in" => random::fold_in(k, p[0] as u32),
        "uniform" if p.is_empty() => random::uniform(k, s, d, 0.0, 1.0),
        "uniform" => random::uniform(k, s, d, p[0], p[1]),
        "normal" => random::normal(k, s, d),
        "randint" => random::randint(k, s, d, p[0] as i64, p[1] as i64),
        "bernoulli" => random::bernoulli(k, s, p[0]),
        "permutation" => random::permutation(k, s[0]),
        "exponential" => random::exponential(k, s, d),
        "gumbel" => random::gumbel(k, s, d),
        "cauchy" => random::cauchy(k, s, d),
        "laplace" => random::laplace(k, s, d),
        "logistic" => random::logistic(k, s, d),
        "pareto" => random::pareto(k, s, d, p[0]),
        "rayleigh" => random::rayleigh(k, s, d, p[0]),
        "weibull_min" => random::weibull_min(k, s, d, p[0], p[1]),
        "triangular" => random::triangular(k, s, d, p[0], p[1], p[2]),
        "truncated_normal" => random::truncated_normal(k, s, d, p[0], p[1]),
        "lognormal" => random::lognormal(k, s, d, p[0]),
        "maxwell" => random::maxwell(k, s, d),
        "rademacher" => random::rademacher(k, s, d),
        "double_sided_maxwell" => random::double_sided_maxwell(k, s, d, p[0], p[1]),
        "gamma" => random::gamma(k, s, d, p[0]),
        "loggamma" => random::loggamma(k, s, d, p[0]),
        "beta" => random::beta(k, s, d, p[0], p[1]),
        "chisquare" => random::chisquare(k, s, d, p[0]),
        "f" => random::f(k, s, d, p[0], p[1]),
        "wald" => random::wald(k, s, d, p[0]),
        "orthogonal" => random::orthogonal(k, p[0] as usize, s, d),
        "t" => random::t(k, s, d, p[0]),
        "generalized_normal" => random::generalized_normal(k, s, d, p[0]),
        "ball" => random::ball(k, p[0] as usize, p[1], s, d),
        "categorical" => random::categorical(k, &vector(p), -1, s),
        "dirichlet" => random::dirichlet(k, &vector(p), s, d),
        "multivariate_normal" => {
            let cov = tensor(&[2.0, 0.5, 0.5, 1.0], &[2, 2]).cast(d);
            random::multivariate_normal(k, &vector(&[1.0, -1.0]), &cov, s, d)
        }
        "poisson" => random::poisson(k, s, d, p[0]),
        "binomial" => random::binomial(k, s, d, p[0], p[1]),
        "multinomial" => random::multinomial(k, s, d, p[0], &vector(&p[1..])),
        "geometric" => random::geometric(k, s, d, p[0]),
        "choice" => {
            let a = tensor(&[0.0f32, 10.0, 20.0, 30.0], &[4]);
            let weights = tensor(&[0.1f32, 0.2, 0.3, 0.4], &[4]);
            random::choice(k, &a, s, p[0] == 1.0, (p[1] == 1.0).then_some(&weights))
        }
        other => panic!("no sampler {other}"),
    }
}

/// Largest relative difference, in units of the dtype's precision.
fn ulps(got: &Literal, want: &Literal) -> f64 {
    let unit = if want.ty().dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let each = got.scalars().zip(want.scalars()).map(|(g, w)| {
        let (g, w) = (g.to_f64(), w.to_f64());
        if g == w { 0.0 } else { (g - w).abs() / (w.abs().max(0.05) * unit) }
    });
    each.fold(0.0, |a, b| if b.is_nan() { f64::INFINITY } else { a.max(b) })
}

#[test]
fn samples_equal_jax() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/random/random.golden");
    let text = std::fs::read_to_string(path).unwrap();
    let mut worst: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let (call, result) = line.split_once(" = ").unwrap();
        let c: Vec<&str> = call.split(' ').collect();
        let list = |s: &'static str, text: &str| -> Vec<f64> {
            text.split(s).filter(|x| *x != "-").map(|x| x.parse().unwrap()).collect()
        };
        let l = Line {
            name: c[0],
            key: random::key(c[1].parse().unwrap()),
            shape: list("x", c[2]).into_iter().map(|n| n as usize).collect(),
            dtype: dtype(c[3]),
            p: list(",", c[4]),
        };
        let (ty, hex) = result.split_once(' ').unwrap();
        let want = literal(ty, hex);
        let got = match sample(&l).to_literal() {
            Ok(g) => g,
            Err(e) => panic!("{call}: {e}"),
        };
        assert_eq!(got.ty(), want.ty(), "{call}");
        let exact = got.bytes() == want.bytes();
        let off = if exact { 0.0 } else { ulps(&got, &want) };
        let entry = worst.entry(l.name).or_default();
        *entry = (entry.0.max(off), entry.1 + 1);
        let loose = if want.ty().dtype == DType::F64 { 256.0 } else { 64.0 };
        let allowed = if EXACT.contains(&l.name) || !want.ty().dtype.is_float() { 0.0 } else { loose };
        if (!exact && allowed == 0.0) || off > allowed {
            wrong.push(format!("{call}: off by {off} ulps\n  got {got:?}\n want {want:?}"));
        }
    }
    for (name, (off, n)) in &worst {
        println!("{name}: {n} lines, at most {off:.1} ulps");
    }
    assert!(
        wrong.is_empty(),
        "{} of {} lines\n{}",
        wrong.len(),
        text.lines().count(),
        wrong[..wrong.len().min(8)].join("\n")
    );
}

#[test]
fn bad_keys_are_errors() {
    let text = random::normal(&tensor(&[1u32], &[1]), &[2], DType::F32).check().unwrap_err().to_string();
    assert!(text.contains("a key must be u32[2]") && text.contains("random.rs:"), "{text}");
    assert!(random::uniform(&random::key(0), &[2], DType::I32, 0, 1).check().is_err());
    assert!(random::randint(&random::key(0), &[2], DType::F32, 0, 1).check().is_err());
}
