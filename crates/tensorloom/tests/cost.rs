//! What compiled functions cost. Figures are printed, not asserted: `cargo test --release -p tensorloom --test cost --
//! --ignored --nocapture`; docs/bench/functions.md has those of one machine.

use std::time::{Duration, Instant};
use tensorloom::*;

/// The median of many runs of a batch, for one call.
fn median(batches: usize, calls: usize, mut f: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..batches)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| f());
            start.elapsed() / calls as u32
        })
        .collect();
    times.sort();
    times[batches / 2]
}

#[test]
#[ignore = "prints figures"]
fn cached_call() {
    let x = ones(&[16]);
    let f = jit(|x: Tensor| (&x * 2.0 + 1.0).tanh());
    block_until_ready(f.call(x.clone())).unwrap();
    let called = median(201, 500, || drop(f.call(x.clone())));
    let run = median(201, 500, || drop(block_until_ready(f.call(x.clone())).unwrap()));
    println!("jit of 16 elements: {called:?}, and waited for {run:?}");
    let pair = jit(|(x, y): (Tensor, Tensor)| (&x + &y, &x * &y));
    block_until_ready(pair.call((x.clone(), x.clone()))).unwrap();
    let run = median(201, 500, || drop(block_until_ready(pair.call((x.clone(), x.clone()))).unwrap()));
    println!("jit of two arguments and results: called and waited for {run:?}");
    let eager = median(101, 200, || drop(block_until_ready((&x * 2.0 + 1.0).tanh()).unwrap()));
    println!("the same without jit: {eager:?}");
}

/// A function of about a thousand ops that don't repeat.
fn thousand(x: Tensor) -> Tensor {
    let mut y = x.clone();
    for i in 0..125 {
        let c = 0.5 + i as f64 * 1e-3;
        y = (&y * c).sin() + &x * (1.0 - c);
    }
    y.sum()
}

#[test]
#[ignore = "prints figures"]
fn tracing_and_compiling() {
    let x = ones(&[64]);
    let n = make_graph(thousand, x.clone()).unwrap().nodes().len();
    let traced = median(21, 1, || drop(make_graph(thousand, x.clone()).unwrap()));
    // Another number each time, so that nothing is found in a cache.
    let mut k = 0.0;
    let compiled = median(21, 1, || {
        k += 1.0;
        let f = jit(|x: Tensor| thousand(x * k));
        block_until_ready(f.call(x.clone())).unwrap();
    });
    println!("{n} ops: traced in {traced:?}, traced, compiled and run in {compiled:?}");
    let gradient = median(11, 1, || {
        k += 1.0;
        let f = jit(grad(|x: Tensor| thousand(x * k)));
        block_until_ready(f.call(x.clone())).unwrap();
    });
    let n = make_graph(grad(thousand), x.clone()).unwrap().nodes().len();
    println!("its gradient, {n} ops: traced, compiled and run in {gradient:?}");
}

#[test]
#[ignore = "prints figures"]
fn loops() {
    let xs = ones(&[1000]);
    let sum = jit(|xs: Tensor| lax::scan(|(c, x): (Tensor, Tensor)| (&c + &x, c), zeros(&[]), xs));
    block_until_ready(sum.call(xs.clone())).unwrap();
    let t = median(101, 20, || drop(block_until_ready(sum.call(xs.clone())).unwrap()));
    println!("scan of 1000 sums: {t:?}, {:.0} M iterations/s", 1e-3 / t.as_secs_f64());
    let xs = ones(&[1000, 4]);
    let four = jit(|xs: Tensor| {
        let body = |(c, x): (Tensor, Tensor)| {
            let c = &c * 0.9 + &x;
            (c.clone(), c)
        };
        lax::scan(body, zeros(&[4]), xs)
    });
    block_until_ready(four.call(xs.clone())).unwrap();
    let t = median(101, 20, || drop(block_until_ready(four.call(xs.clone())).unwrap()));
    println!("scan of 1000 × 4 elements: {t:?}, {:.0} M iterations/s", 1e-3 / t.as_secs_f64());
    let w = ones(&[16, 16]) * 0.1;
    let rnn =
        jit(|xs: Tensor| lax::scan(|(c, x): (Tensor, Tensor)| ((c.matmul(&w) + x).tanh(), ()), zeros(&[16]), xs).0);
    let xs = ones(&[1000, 16]);
    block_until_ready(rnn.call(xs.clone())).unwrap();
    let t = median(101, 5, || drop(block_until_ready(rnn.call(xs.clone())).unwrap()));
    println!("scan of 1000 products 16×16: {t:?}, {:.2} M iterations/s", 1e-3 / t.as_secs_f64());
}

#[test]
#[ignore = "prints figures"]
fn factorisations() {
    for n in [64, 256, 1024] {
        let a = random::normal(&random::key(1), &[n, n], DType::F64);
        let s = a.matmul(&a.t()) + np::identity(n, DType::F64) * n as f64;
        let mut line = format!("{n}×{n} in f64:");
        let mut time = |name: &str, f: &dyn Fn() -> Vec<Tensor>| {
            block_until_ready(f()).unwrap();
            let t = median(if n > 500 { 3 } else { 11 }, 1, || drop(block_until_ready(f()).unwrap()));
            line += &format!(" {name} {:.3} ms", t.as_secs_f64() * 1e3);
        };
        time("cholesky", &|| vec![linalg::cholesky(&s)]);
        time("solve", &|| vec![linalg::solve(&s, &a)]);
        time("inv", &|| vec![linalg::inv(&a)]);
        time("qr", &|| {
            let (q, r) = linalg::qr(&a, false);
            vec![q, r]
        });
        if n < 1000 {
            time("eigh", &|| {
                let (w, v) = linalg::eigh(&s);
                vec![w, v]
            });
            time("svd", &|| {
                let (u, s, v) = linalg::svd(&a);
                vec![u, s, v]
            });
        }
        println!("{line}");
    }
}
