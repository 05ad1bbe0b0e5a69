//! Transforms in every order: {jit, grad, vmap, jvp, checkpoint} to depth 3 over functions of every kind, against JAX.
//!
//! `golden/functions/cases_compose.py` says what each makes of a function of a 3×3 matrix; jit and checkpoint change no
//! values, so an order with them has the values of the order without.

use std::collections::BTreeMap;
use std::rc::Rc;
use tensorloom::lax::{self, ConvOptions, Padding};
use tensorloom::*;

type F = Rc<dyn Fn(Tensor) -> Tensor>;

fn noise(seed: u32, i: u32) -> f64 {
    let mut x = seed.wrapping_mul(7919).wrapping_add(i.wrapping_mul(104_729)).wrapping_add(12345);
    x ^= x >> 15;
    x = x.wrapping_mul(2_246_822_519);
    x ^= x >> 13;
    x = x.wrapping_mul(3_266_489_917);
    x ^= x >> 16;
    (2.0 * f64::from(x & 255) - 255.0) / 128.0
}

fn numbers(seed: u32, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    tensor(&(0..n as u32).map(|i| noise(seed, i)).collect::<Vec<f64>>(), shape)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Jit,
    Grad,
    Vmap,
    Jvp,
    Checkpoint,
}

use Kind::*;

const KINDS: [Kind; 5] = [Jit, Grad, Vmap, Jvp, Checkpoint];

/// `kind(f)`.
fn wrap(kind: Kind, f: F) -> F {
    match kind {
        Jit => {
            let g = jit(move |x: Tensor| f(x));
            Rc::new(move |x| g.call(x))
        }
        Grad => Rc::new(move |x| grad(|x: Tensor| (f(x) * numbers(100, &[3, 3])).sum()).call(x)),
        Vmap => Rc::new(move |x| {
            let batch = Tensor::stack(&[&x, &(&x * 0.5)], 0);
            vmap(|x: Tensor| f(x)).call(batch).sum_axes(&[0], false)
        }),
        Jvp => Rc::new(move |x| jvp(|x: Tensor| f(x), x, numbers(101, &[3, 3])).1),
        Checkpoint => {
            let g = checkpoint(move |x: Tensor| f(x));
            Rc::new(move |x| g.call(x))
        }
    }
}

/// All orders of up to three transforms, the outermost first.
fn orders() -> Vec<Vec<Kind>> {
    let longer = |all: &[Vec<Kind>]| -> Vec<Vec<Kind>> {
        all.iter().flat_map(|o| KINDS.iter().map(move |&k| [o.as_slice(), &[k]].concat())).collect()
    };
    let one = longer(&[vec![]]);
    let two = longer(&one);
    let three = longer(&two);
    [vec![vec![]], one, two, three].concat()
}

fn expected(name: &str) -> BTreeMap<String, Vec<f64>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/functions/compose.golden");
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with(&format!("compose.{name} "))) {
        let (call, result) = line.split_once(" = ").unwrap();
        let order = call.rsplit("order:").next().unwrap().trim_matches('-').to_string();
        let hex = result.split(' ').nth(1).unwrap();
        let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        let value = |k: usize| f64::from_le_bytes(std::array::from_fn(|i| byte(8 * k + i)));
        all.insert(order, (0..9).map(value).collect());
    }
    assert_eq!(all.len(), 40, "{name}");
    all
}

fn check(name: &str, f: impl Fn(Tensor) -> Tensor + 'static) {
    let expected = expected(name);
    let f: F = Rc::new(f);
    let x = numbers(5, &[3, 3]);
    let mut wrong = Vec::new();
    let orders = orders();
    assert_eq!(orders.len(), 156);
    for order in &orders {
        let g = order.iter().rev().fold(f.clone(), |f, &k| wrap(k, f));
        let letter = |k: &Kind| match k {
            Grad => "g",
            Vmap => "v",
            Jvp => "j",
            Jit | Checkpoint => "",
        };
        let want = &expected[&order.iter().map(letter).collect::<String>()];
        match g(x.clone()).to_vec::<f64>() {
            Err(e) => wrong.push(format!("{order:?}: {e}")),
            Ok(got) => {
                let scale = want.iter().fold(1.0f64, |a, b| a.max(b.abs()));
                let off = got.iter().zip(want).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max);
                if off.is_nan() || off > 1e-9 {
                    wrong.push(format!("{order:?}: off by {off:e}\n  got {got:?}\n want {want:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{name}: {} of {} orders\n{}", wrong.len(), orders.len(), wrong.join("\n"));
}

#[test]
fn elementwise() {
    check("elementwise", |x| x.sin() * &x);
}

#[test]
fn matmul() {
    check("matmul", |x| x.matmul(&x.t()) + &x);
}

#[test]
fn softmax() {
    check("softmax", |x| nn::softmax(&x, -1));
}

#[test]
fn scan() {
    let step = |(c, x): (Tensor, Tensor)| {
        let c = (&c * 0.5 + &x).tanh();
        (c.clone(), c * x)
    };
    check("scan", move |x| lax::scan(step, x.index(0, 0), x).1);
}

#[test]
fn cond() {
    check("cond", |x| lax::cond(&np::greater(x.sum(), 0.0), |x: Tensor| x.sin(), |x: Tensor| &x * &x * &x, x.clone()));
}

#[test]
fn cholesky() {
    check("cholesky", |x| linalg::cholesky(&(x.matmul(&x.t()) + np::identity(3, DType::F64) * 3.0)));
}

#[test]
fn sort() {
    check("sort", |x| np::sort(&x, Some(0)) * &x);
}

#[test]
fn fft() {
    check("fft", |x| {
        let z = tensorloom::fft::fft(&x, None, -1, tensorloom::fft::Norm::Backward);
        z.re * &x + z.im
    });
}

#[test]
fn conv() {
    check("conv", |x| {
        let options = ConvOptions { padding: Padding::Same, ..ConvOptions::default() };
        let y = lax::conv_general_dilated(&x.reshape(&[1, 1, 3, 3]), &numbers(102, &[1, 1, 2, 2]), &options);
        y.reshape(&[3, 3]) * &x
    });
}
