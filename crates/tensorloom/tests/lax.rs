//! Control flow and the ops with options: the rows of the scan tables, and what can go wrong.

use tensorloom::lax::{self, Checkpoint, Scan, ScanPath};
use tensorloom::*;

fn t(x: &[f64]) -> Tensor {
    tensor(x, &[x.len()])
}

fn s(x: f64) -> Tensor {
    tensor_of(&[x], &[])
}

fn near(t: &Tensor, expected: &[f64]) {
    let got = t.to_vec::<f64>().unwrap();
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
    assert!(got.len() == expected.len() && got.iter().zip(expected).all(close), "{got:?} vs {expected:?}");
}

#[test]
fn scan_rows() {
    let add = |(c, x): (Tensor, Tensor)| {
        let c = &c + &x;
        (c.clone(), c)
    };
    let xs = t(&[1.0, 2.0, 3.0, 4.0]);
    let (c, ys) = lax::scan(add, s(0.0), xs.clone());
    near(&c, &[10.0]);
    near(&ys, &[1.0, 3.0, 6.0, 10.0]);
    let (_, ys) = Scan::new().reverse().run(add, s(0.0), xs.clone());
    near(&ys, &[10.0, 9.0, 7.0, 4.0]);
    // Trees as carry, views as xs.
    let m = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let f = |((a, b), x): ((Tensor, Vec<Tensor>), Tensor)| ((b[0].clone(), vec![&a + &x]), ());
    let ((a, b), ()) = lax::scan(f, (s(0.0), vec![s(100.0)]), m.t().index(1, 1));
    near(&a, &[100.0 + 5.0]);
    near(&b[0], &[4.0 + 6.0]);
    // Length 0, no xs, no ys.
    let (c, ys) = lax::scan(add, s(7.0), t(&[]));
    near(&c, &[7.0]);
    near(&ys, &[]);
    let (c, ()) = Scan::new().length(3).run(|(c, ()): (Tensor, ())| (c * 2.0, ()), s(1.0), ());
    near(&c, &[8.0]);
    // Passed through: carries, xs; carries of other number than outputs; mixed dtypes.
    let (c, (a, b, d)) = lax::scan(
        |((k, i), x): ((Tensor, Tensor), Tensor)| ((k.clone(), &i + 1), (x.clone(), k, i.cast(DType::F64) * x)),
        (s(5.0), tensor(&[0i32], &[])),
        xs.clone(),
    );
    near(&c.0, &[5.0]);
    assert_eq!(c.1.item::<i32>().unwrap(), 4);
    near(&a, &[1.0, 2.0, 3.0, 4.0]);
    near(&b, &[5.0; 4]);
    near(&d, &[0.0, 2.0, 6.0, 12.0]);
    // Routines in the body, several of them.
    let spd = tensor_of(&[4.0f64, 1.0, 1.0, 3.0], &[2, 2]);
    let body = |(c, x): (Tensor, Tensor)| {
        let l = Tensor::apply(ir::ops::Cholesky, &[&(&c + &spd * &x)], 1).swap_remove(0);
        let sorted = lax::sort(&l, 0);
        (l.matmul(&l.t()), sorted.sum())
    };
    let (_, ys) = Scan::new().accept_path(&[ScanPath::CompiledLoop]).run(body, spd.clone(), t(&[1.0, 2.0]));
    let eager = |c: &Tensor| Tensor::apply(ir::ops::Cholesky, &[c], 1).swap_remove(0).sum().item::<f64>().unwrap();
    near(&ys, &[eager(&(&spd * 2.0)), eager(&(&spd * 4.0))]);
    // Bounded: only the first iterations run.
    let run = jit(move |n: Tensor| Scan::new().count(&n).run(add, s(0.0), t(&[1.0, 2.0, 3.0, 4.0])));
    for (n, c, ys) in [(2, 3.0, [1.0, 3.0, 0.0, 0.0]), (4, 10.0, [1.0, 3.0, 6.0, 10.0])] {
        let (got, got_ys) = run.call(tensor(&[n], &[]));
        near(&got, &[c]);
        near(&got_ys, &ys);
    }
    assert_eq!(run.stats().misses, 1);
}

#[test]
fn scan_derivatives() {
    let w = s(0.9);
    let rnn = |w: Tensor, how: Checkpoint| {
        let (h, ys) = Scan::new().checkpoint(how).run(
            |(h, x): (Tensor, Tensor)| {
                let h = (&h * &w + &x).tanh();
                (h.clone(), h.square())
            },
            s(0.1),
            t(&[0.5, -0.3, 0.8, 0.2, 0.4]),
        );
        h + ys.sum()
    };
    let eps = 1e-6;
    let at = |x: f64| rnn(s(x), Checkpoint::All).item::<f64>().unwrap();
    let slope = (at(0.9 + eps) - at(0.9 - eps)) / (2.0 * eps);
    let close = |t: &Tensor, e: f64| assert!((t.item::<f64>().unwrap() - e).abs() < 1e-7, "{t:?}");
    for how in [Checkpoint::Auto, Checkpoint::All, Checkpoint::Sqrt, Checkpoint::Every(2), Checkpoint::Every(5)] {
        let f = move |w: Tensor| rnn(w, how);
        close(&grad(f).call(w.clone()), slope);
        close(&grad(jit(f)).call(w.clone()), slope);
        close(&jit(grad(f)).call(w.clone()), slope);
        close(&jvp(f, w.clone(), s(1.0)).1, slope);
        let many = vmap(grad(f)).call(t(&[0.9, 0.2]));
        close(&many.index(0, 0), slope);
        let second = grad(grad(f)).call(w.clone()).item::<f64>().unwrap();
        let forward = jvp(grad(f), w.clone(), s(1.0)).1.item::<f64>().unwrap();
        assert!((second - forward).abs() < 1e-9);
    }
    // A batch of loops, as one loop.
    let sums = vmap(|x: Tensor| lax::scan(|(c, x): (Tensor, Tensor)| (c + x, ()), s(0.0), x).0);
    near(&sums.call(tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2])), &[3.0, 7.0]);
    near(&sums.in_axes(1).call(tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2])), &[4.0, 6.0]);
}

#[test]
fn other_loops_and_branches() {
    let collatz = |n: Tensor| {
        let one = tensor(&[1i64], &[]);
        let (_, steps) = lax::while_loop(
            |(n, _): (Tensor, Tensor)| n.ne(&one),
            |(n, k): (Tensor, Tensor)| {
                let even = (&n % 2).eq(0);
                (even.select(&n.floor_divide(2), &(&n * 3 + 1)), k + 1)
            },
            (n, tensor(&[0i64], &[])),
        );
        steps
    };
    assert_eq!(collatz(tensor(&[27i64], &[])).item::<i64>().unwrap(), 111);
    let many = vmap(collatz).call(tensor(&[1i64, 6, 7], &[3]));
    assert_eq!(many.to_vec::<i64>().unwrap(), [0, 8, 16]);
    assert_eq!(jit(collatz).call(tensor(&[6i64], &[])).item::<i64>().unwrap(), 8);

    let power = |x: Tensor| lax::fori_loop(0, 4, |(_, c): (Tensor, Tensor)| c * &x, s(1.0));
    near(&grad(power).call(s(2.0)), &[32.0]);
    near(&vmap(grad(power)).call(t(&[1.0, 2.0])), &[4.0, 32.0]);
    near(&lax::map(|x: Tensor| x.sum(), tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2])), &[3.0, 7.0]);

    let k = s(10.0);
    let f =
        |(i, x): (Tensor, Tensor)| lax::switch(&i, [&|x: Tensor| &x * &k, &|x: Tensor| x.exp(), &|x: Tensor| -x], x);
    for (i, y, dy) in [(-1, 20.0, 10.0), (1, 2f64.exp(), 2f64.exp()), (7, -2.0, -1.0)] {
        let args = || (tensor(&[i], &[]), s(2.0));
        near(&f(args()), &[y]);
        near(&jit(f).call(args()), &[y]);
        near(&grad(f).argnums(Arg::<1>).call(args()), &[dy]);
    }
    let batch = vmap(f).in_axes([Some(0), None]).call((tensor(&[0i32, 2], &[2]), s(2.0)));
    near(&batch, &[20.0, -2.0]);
}

#[test]
fn long_loops_need_no_memory_for_their_numbers() {
    let options = tensorloom::EngineOptions { memory_limit: Some(1 << 16), ..Default::default() };
    let e = tensorloom::Engine::with_backends(vec![std::sync::Arc::new(cpu::Cpu::new(1))], &options);
    let odd = |(i, c): (Tensor, Tensor)| c + i % 2;
    let many = lax::fori_loop(-3, 1 << 24, odd, e.full(DType::I32, &[], 0));
    // Of -3 and -1 the remainder is 1 too.
    assert_eq!(many.item::<i32>().unwrap(), 2 + (1 << 23));
    let none = lax::fori_loop(5, 5, odd, e.full(DType::I32, &[], 7));
    assert_eq!(none.item::<i32>().unwrap(), 7);
    let last = lax::fori_loop(i32::MAX - 2, i32::MAX, |(i, _): (Tensor, Tensor)| i, e.full(DType::I32, &[], 0));
    assert_eq!(last.item::<i32>().unwrap(), i32::MAX - 1);
}

#[test]
fn prefixes() {
    for n in [1usize, 2, 3, 7, 8] {
        let x: Vec<f64> = (0..n).map(|i| 1.0 + 0.1 * i as f64).collect();
        let product = |x: Tensor| lax::associative_scan(|(a, b): (Tensor, Tensor)| a * b, x, false, 0);
        let mut p = 1.0;
        let expected: Vec<f64> = x
            .iter()
            .map(|v| {
                p *= v;
                p
            })
            .collect();
        near(&product(t(&x)), &expected);
    }
    // A linear recurrence h' = a·h + b, backwards and along the last axis.
    let (a, b) = (tensor(&[0.5, 0.5, 0.5], &[1, 3]), tensor(&[1.0, 2.0, 3.0], &[1, 3]));
    let join = |((a1, b1), (a2, b2)): ((Tensor, Tensor), (Tensor, Tensor))| (&a1 * &a2, &a2 * &b1 + &b2);
    near(&lax::associative_scan(join, (a, b), true, -1).1, &[2.75, 3.5, 3.0]);

    // A function that gives something else is an error, not a wrong weave.
    let x = tensor(&[1.0f32, 2.0, 3.0, 4.0], 4);
    let bad: [fn((Vec<Tensor>, Vec<Tensor>)) -> Vec<Tensor>; 4] = [
        |(a, _)| a[..1].to_vec(),
        |(a, b)| vec![a[0].sum(), b[1].clone()],
        |(a, b)| vec![a[0].cast(DType::F64), b[1].clone()],
        |(a, b)| vec![a[0].clone(), b[1].clone(), a[1].clone()],
    ];
    for f in bad {
        for reverse in [false, true] {
            let all = lax::associative_scan(f, vec![x.clone(), x.clone()], reverse, 0);
            let e = all[0].error().expect("an error").to_string();
            assert!(e.contains("associative_scan") && e.contains("takes two of"), "{e}");
        }
    }
}

#[track_caller]
fn fails(t: &Tensor, words: &[&str]) {
    let text = t.check().expect_err("it is invalid").to_string();
    for w in words.iter().chain(&["lax.rs:"]) {
        assert!(text.contains(w), "{w:?} is not in: {text}");
    }
}

#[test]
fn bad_calls_name_the_line() {
    let xs = t(&[1.0, 2.0]);
    fails(
        &lax::scan(|(c, x): (Tensor, Tensor)| (&c + &x.unsqueeze(0), ()), s(0.0), xs.clone()).0,
        &["carry 0", "f64[1]"],
    );
    fails(&lax::scan(|(c, x): (Tensor, Tensor)| (c, x), s(0.0), s(0.0)).1, &["no axis"]);
    fails(&Scan::new().length(3).run(|(c, x): (Tensor, Tensor)| (c, x), s(0.0), xs.clone()).1, &["3 iterations"]);
    fails(&Scan::new().run(|(c, ()): (Tensor, ())| (c, ()), s(0.0), ()).0, &["length"]);
    let body = |(c, x): (Tensor, Tensor)| (c, x);
    fails(&Scan::new().accept_path(&[]).run(body, s(0.0), xs.clone()).1, &["CompiledLoop", "[]"]);
    fails(&lax::while_loop(|x: Tensor| x, |x: Tensor| x, s(0.0)), &["condition", "f64[]"]);
    fails(&lax::cond(&xs, |x: Tensor| x, |x: Tensor| x, s(0.0)), &["f64[2]", "bool"]);
    let p = tensor(&[true], &[]);
    fails(&lax::cond(&p, |x: Tensor| x, |x: Tensor| x.unsqueeze(0), s(0.0)), &["branch 0", "branch 1"]);
    fails(
        &grad(|x: Tensor| lax::while_loop(|x: Tensor| x.lt(&s(9.0)), |x: Tensor| x * 2.0, x)).call(s(1.0)),
        &["while"],
    );
    fails(&lax::dot_general(&xs, &xs, (&[1], &[0]), (&[], &[])), &["axis 1"]);
    fails(&lax::top_k(&xs, 3).0, &["3"]);
}
