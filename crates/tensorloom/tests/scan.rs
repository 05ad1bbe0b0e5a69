//! Every kind of scan that the function library promises, each on the path `CompiledLoop`, against the same body run by
//! the host one iteration after another.

use compiler::Options;
use tensorloom::lax::{self, Checkpoint, Scan, ScanPath};
use tensorloom::*;

fn m(seed: u64, shape: &[usize]) -> Tensor {
    random::normal(&random::key(seed), shape, DType::F64)
}

fn s(x: f64) -> Tensor {
    tensor_of(&[x], &[])
}

/// A scan that fails unless the whole loop is compiled.
fn compiled() -> Scan {
    Scan::new().accept_path(&[ScanPath::CompiledLoop])
}

/// The body run by the host.
fn unrolled<C: Tree, X: Tree, Y: Tree>(body: impl Fn((C, X)) -> (C, Y), init: C, xs: X, reverse: bool) -> (C, Y) {
    let mut carry = init;
    let mut ys = Vec::new();
    let mut slices = tree::unstack(&xs);
    if reverse {
        slices.reverse();
    }
    for x in slices {
        let (c, y) = body((carry, x));
        carry = c;
        ys.push(y);
    }
    if reverse {
        ys.reverse();
    }
    (carry, tree::stack(&ys))
}

#[track_caller]
fn same<T: Tree>(a: &T, b: &T) {
    testing::assert_close(a, b, 1e-9, 1e-9);
}

/// Forward, both directions, compiled, and all gradients.
#[track_caller]
fn agrees<C: Tree, X: Tree, Y: Tree>(body: impl Fn((C, X)) -> (C, Y) + Copy, init: C, xs: X) {
    let copy = |c: &C, x: &X| (c.map(|t| t.clone()), x.map(|t| t.clone()));
    for reverse in [false, true] {
        let scan = if reverse { compiled().reverse() } else { compiled() };
        let (c, x) = copy(&init, &xs);
        let want = unrolled(body, c, x, reverse);
        same(&scan.run(body, copy(&init, &xs).0, copy(&init, &xs).1), &want);
        same(&jit(|(c, x): (C, X)| scan.run(body, c, x)).call(copy(&init, &xs)), &want);
        let total = |(c, y): (C, Y)| {
            let parts = c.leaves().into_iter().chain(y.leaves()).filter(|t| t.dtype().is_float());
            parts.map(|t| t.cast(DType::F64).sin().sum()).reduce(|a, b| a + b).unwrap_or_else(|| s(0.0))
        };
        let (_, slow) = vjp(|(c, x): (C, X)| total(unrolled(body, c, x, reverse)), copy(&init, &xs));
        let (_, fast) = vjp(|(c, x): (C, X)| total(scan.run(body, c, x)), copy(&init, &xs));
        same(&fast.call(s(1.0)), &slow.call(s(1.0)));
    }
}

#[test]
fn basic() {
    agrees(|(c, x): (Tensor, Tensor)| (&c + &x, &c * &x), s(0.5), m(1, &[7]));
}

#[test]
fn tree_carry() {
    let body = |((a, b), x): ((Tensor, Vec<Tensor>), (Tensor, Tensor))| {
        let next = (&a * 0.5 + &x.0, vec![&b[0] + a.sin() * &x.1]);
        (next, vec![a, b[0].clone()])
    };
    agrees(body, (m(1, &[3]), vec![m(2, &[3])]), (m(3, &[5, 3]), m(4, &[5])));
}

#[test]
fn reverse_scan() {
    let (c, ys) = compiled().reverse().run(|(c, x): (Tensor, Tensor)| (&c + &x, c), s(0.0), m(1, &[4]));
    let x = m(1, &[4]).to_vec::<f64>().unwrap();
    same(&c, &s(x[3] + x[2] + x[1] + x[0]));
    same(&ys, &tensor_of(&[x[3] + x[2] + x[1], x[3] + x[2], x[3], 0.0], &[4]));
}

#[test]
fn views_as_xs() {
    let base = m(1, &[6, 4]);
    let body = |(c, x): (Tensor, Tensor)| (&c * 0.5 + &x, c);
    agrees(body, m(2, &[6]), base.t());
    agrees(body, m(2, &[4]), base.slice(0, 1, 6, 2));
    agrees(body, m(2, &[4]), base.flip(&[0]));
    agrees(body, m(2, &[4]), base.index(0, 0).expand(&[3, 4]));
}

#[test]
fn length_zero() {
    let (c, ys) = compiled().run(|(c, x): (Tensor, Tensor)| (&c + &x, x.exp()), m(1, &[2]), m(2, &[0, 2]));
    same(&c, &m(1, &[2]));
    assert_eq!(ys.shape(), [0, 2]);
    let f = |c: Tensor| compiled().run(|(c, x): (Tensor, Tensor)| (&c + &x, x), c, m(2, &[0, 2])).0.sum();
    same(&grad(f).call(m(1, &[2])), &ones(&[2]).cast(DType::F64));
}

#[test]
fn no_xs() {
    let (c, ys) = compiled().length(5).run(|(c, ()): (Tensor, ())| (&c * 0.5, c.exp()), m(1, &[3]), ());
    let mut want = m(1, &[3]);
    let mut outs = Vec::new();
    for _ in 0..5 {
        outs.push(want.exp());
        want = want * 0.5;
    }
    same(&(c, ys), &(want, tree::stack(&outs)));
}

#[test]
fn no_ys() {
    let body = |(c, x): (Tensor, Tensor)| (c.sin() + x, ());
    let (c, ()) = compiled().run(body, m(1, &[3]), m(2, &[6, 3]));
    same(&c, &unrolled(body, m(1, &[3]), m(2, &[6, 3]), false).0);
}

#[test]
fn carry_passed_through() {
    // One carry is never changed, and an output is the carry that went in.
    agrees(|((a, b), x): ((Tensor, Tensor), Tensor)| ((&a + &x * &b, b), a), (m(1, &[3]), m(2, &[3])), m(3, &[4, 3]));
}

#[test]
fn xs_passed_through() {
    agrees(|(c, x): (Tensor, Tensor)| (&c + &x, (x.clone(), x)), m(1, &[3]), m(3, &[4, 3]));
}

#[test]
fn same_value_twice() {
    let body = |(c, x): (Tensor, Tensor)| {
        let c = &c * &x;
        (c.clone(), (c.clone(), c))
    };
    agrees(body, m(1, &[3]), m(3, &[4, 3]));
}

#[test]
fn mixed_dtypes() {
    let body = |((k, c, on), x): ((Tensor, Tensor, Tensor), Tensor)| {
        let next = &c + x.cast(DType::F64) * k.cast(DType::F64);
        let up = np::greater(&next, 0.0);
        ((&k + 1, next.clone(), on.xor(&up)), (k, next.cast(DType::F32), up))
    };
    let init = (tensor(&[0i32], &[]), s(0.5), tensor(&[true], &[]));
    agrees(body, init, random::normal(&random::key(1), &[6], DType::F32));
}

#[test]
fn carries_other_than_outputs() {
    // Three carries and one output; one carry and three outputs.
    let three = |((a, b, c), x): ((Tensor, Tensor, Tensor), Tensor)| ((&b + &x, &c * 0.5, a.sin()), b);
    agrees(three, (m(1, &[2]), m(2, &[2]), m(3, &[2])), m(4, &[5, 2]));
    agrees(|(c, x): (Tensor, Tensor)| (&c + &x, (c.exp(), x.sum(), &c * &x)), m(1, &[2]), m(2, &[5, 2]));
}

#[test]
fn dependent_steps() {
    // Later parts of the body read earlier ones: a Mandelbrot iteration.
    let body = |((a, b), x): ((Tensor, Tensor), Tensor)| {
        let (aa, bb, ab) = (&a * &a, &b * &b, &a * &b);
        ((&aa - &bb + &x, &ab * 2.0 + &x), &aa + &bb)
    };
    agrees(body, (m(1, &[8]) * 0.1, m(2, &[8]) * 0.1), m(3, &[4, 8]) * 0.1);
}

#[test]
fn constants_in_the_body() {
    let w = m(9, &[3]);
    agrees(
        |(c, x): (Tensor, Tensor)| (&c * &w + tensor(&[1.0, 2.0, 3.0], &[3]), &c * &x * &w),
        m(1, &[3]),
        m(2, &[4, 3]),
    );
}

#[test]
fn reductions_in_the_body() {
    agrees(|(c, x): (Tensor, Tensor)| (&c + x.sum(), nn::softmax(&(&x * &c), -1)), s(0.5), m(2, &[4, 5]));
}

#[test]
fn products_in_the_body() {
    let w = m(9, &[3, 3]) * 0.5;
    agrees(|(c, x): (Tensor, Tensor)| (c.matmul(&w).tanh() + &x, c.matmul(&x.t())), m(1, &[2, 3]), m(2, &[4, 2, 3]));
}

fn definite(x: &Tensor) -> Tensor {
    x.matmul(&x.t()) + np::identity(3, DType::F64) * 2.0
}

#[test]
fn cholesky_in_the_body() {
    // The factor is carry and output at once.
    let body = |(c, x): (Tensor, Tensor)| {
        let l = linalg::cholesky(&definite(&(&x + &c * 0.1)));
        (l.clone(), l)
    };
    agrees(body, m(1, &[3, 3]), m(2, &[4, 3, 3]));
}

#[test]
fn sort_in_the_body() {
    agrees(|(c, x): (Tensor, Tensor)| (lax::sort(&(&c + &x), 0), lax::sort(&(&c * &x), 0)), m(1, &[5]), m(2, &[4, 5]));
}

#[test]
fn several_routines() {
    // Cholesky, then two triangular solves: least squares step by step.
    let body = |(c, (a, b)): (Tensor, (Tensor, Tensor))| {
        let l = linalg::cholesky(&definite(&a));
        let y = linalg::triangular_solve(&l, &(&b + &c), true, true, false);
        let x = linalg::triangular_solve(&l, &y, true, true, true);
        (x.clone(), (x, l))
    };
    agrees(body, m(1, &[3, 2]), (m(2, &[4, 3, 3]), m(3, &[4, 3, 2])));
}

#[test]
fn kernels_and_routines() {
    // A Kalman filter: products, a factorisation and elementwise ops in one body.
    let (f, h) = (m(7, &[3, 3]) * 0.4, m(8, &[2, 3]));
    let body = |((x, p), z): ((Tensor, Tensor), Tensor)| {
        let (x, p) = (f.matmul(&x), f.matmul(&p).matmul(&f.t()) + np::identity(3, DType::F64) * 0.1);
        let spread = h.matmul(&p).matmul(&h.t()) + np::identity(2, DType::F64) * 0.5;
        let gain = linalg::solve(&spread, &h.matmul(&p)).t();
        let x = &x + gain.matmul(&(&z - h.matmul(&x)));
        let p = &p - gain.matmul(&h).matmul(&p);
        ((x.clone(), p.clone()), (x, p))
    };
    agrees(body, (m(1, &[3]), np::identity(3, DType::F64)), m(2, &[6, 2]));
}

#[test]
fn lu_and_fft_in_the_body() {
    let body = |(c, x): (Tensor, Tensor)| {
        let z = fft::rfft(&(&c + &x).index(0, 0), None, -1, fft::Norm::Ortho);
        let y = linalg::solve(&definite(&x), &c);
        (y, (z.re, linalg::det(&definite(&c))))
    };
    agrees(body, m(1, &[3, 3]), m(2, &[3, 3, 3]));
}

#[test]
fn jvp_of_scan() {
    let body = |(c, x): (Tensor, Tensor)| (c.sin() * &x, &c * &x);
    let (args, tangents) = ((m(1, &[2]), m(2, &[5, 2])), (m(3, &[2]), m(4, &[5, 2])));
    let copy = |p: &(Tensor, Tensor)| (p.0.clone(), p.1.clone());
    let fast = jvp(|(c, x): (Tensor, Tensor)| compiled().run(body, c, x), copy(&args), copy(&tangents));
    let slow = jvp(|(c, x): (Tensor, Tensor)| unrolled(body, c, x, false), args, tangents);
    same(&fast, &slow);
}

#[test]
fn derivatives_by_differences() {
    let body = |(c, x): (Tensor, Tensor)| ((&c * 0.7 + &x).tanh(), c.square());
    testing::check_grads(|(c, x): (Tensor, Tensor)| compiled().run(body, c, x), (m(1, &[2]), m(2, &[4, 2])), 2)
        .unwrap();
}

#[test]
fn vmap_of_scan_is_scan_of_vmap() {
    let body = |(c, x): (Tensor, Tensor)| (c.sin() + &x, &c * &x);
    let (c, xs) = (m(1, &[3, 2]), m(2, &[3, 5, 2]));
    let of_scan = vmap(|(c, x): (Tensor, Tensor)| compiled().run(body, c, x)).call((c.clone(), xs.clone()));
    let batched = |(c, x): (Tensor, Tensor)| vmap(body).call((c, x));
    let (last, ys) = compiled().run(batched, c.clone(), xs.transpose(0, 1));
    same(&of_scan, &(last, ys.transpose(0, 1)));
    let jitted =
        jit(|(c, x): (Tensor, Tensor)| vmap(|(c, x): (Tensor, Tensor)| compiled().run(body, c, x)).call((c, x)));
    same(&jitted.call((c.clone(), xs.clone())), &of_scan);
    let inner = jit(|(c, x): (Tensor, Tensor)| compiled().run(body, c, x));
    same(&vmap(|(c, x): (Tensor, Tensor)| inner.call((c, x))).call((c, xs)), &of_scan);
}

#[test]
fn sandwiches() {
    let body = |(c, x): (Tensor, Tensor)| ((&c * 0.5 + &x).tanh(), c.sum());
    let loss = |x: Tensor| compiled().run(body, m(1, &[2]), x).1.sum();
    let reference = |x: Tensor| unrolled(body, m(1, &[2]), x, false).1.sum();
    let x = m(2, &[5, 2]);
    let want = grad(reference).call(x.clone());
    same(&grad(loss).call(x.clone()), &want);
    same(&jit(grad(loss)).call(x.clone()), &want);
    same(&grad(jit(loss)).call(x.clone()), &want);
    same(&jit(grad(jit(loss))).call(x.clone()), &want);
    same(&grad(checkpoint(loss)).call(x.clone()), &want);
    let compiled_body = jit(body);
    let with_jit = |x: Tensor| compiled().run(|a: (Tensor, Tensor)| compiled_body.call(a), m(1, &[2]), x).1.sum();
    same(&grad(with_jit).call(x.clone()), &want);
    let batch = m(3, &[4, 5, 2]);
    let each = tree::stack(&tree::unstack(&batch).into_iter().map(|x| grad(reference).call(x)).collect::<Vec<_>>());
    same(&vmap(grad(loss)).call(batch.clone()), &each);
    same(&vmap(jit(grad(loss))).call(batch.clone()), &each);
    same(&grad(|b: Tensor| vmap(loss).call(b).sum()).call(batch), &each);
    same(&hessian(loss).call(m(4, &[2, 2])), &hessian(reference).call(m(4, &[2, 2])));
}

#[test]
fn dynamic_length() {
    let body = |(c, x): (Tensor, Tensor)| (&c + &x, c);
    let f = jit(|(n, x): (Tensor, Tensor)| compiled().count(&n).run(body, s(0.0), x));
    for n in 0..=4usize {
        let (c, ys) = f.call((tensor(&[n as i32], &[]), m(1, &[4])));
        let sum = m(1, &[4]).narrow(0, 0, n).sum();
        same(&c, &sum);
        same(&ys.narrow(0, n, 4 - n), &np::zeros(&[4 - n], DType::F64));
    }
    assert_eq!(f.stats().misses, 1);
}

/// Bytes that the compiled gradient of a long loop needs besides its inputs and results.
fn memory(checkpoint: Checkpoint, length: usize) -> usize {
    let body = |(c, x): (Tensor, Tensor)| ((&c * 0.5 + &x).tanh(), ());
    let loss = |(c, x): (Tensor, Tensor)| compiled().checkpoint(checkpoint).run(body, c, x).0.sum();
    let args = (np::zeros(&[256], DType::F32), np::zeros(&[length, 256], DType::F32));
    let graph = make_graph(|a: (Tensor, Tensor)| grad(loss).argnums(Arg::<0>).call(a), args).unwrap();
    compiler::compile(&graph, &cpu::Cpu::for_machine(), &Options::default()).unwrap().arena_bytes
}

#[test]
fn sqrt_checkpoints_save_memory() {
    let body = |(c, x): (Tensor, Tensor)| ((&c * 0.5 + &x).tanh(), c.sum());
    let loss = |k: Checkpoint| move |x: Tensor| compiled().checkpoint(k).run(body, m(1, &[3]), x).1.sum();
    let x = m(2, &[50, 3]);
    let want = grad(loss(Checkpoint::All)).call(x.clone());
    for k in [Checkpoint::Auto, Checkpoint::Sqrt, Checkpoint::Every(1), Checkpoint::Every(7), Checkpoint::Every(99)] {
        same(&jit(grad(loss(k))).call(x.clone()), &want);
    }
    // 256 f32 for each of n iterations are n KiB; with √n kept and √n computed again they are about 2√n.
    for n in [256, 1024, 4096] {
        let (all, sqrt) = (memory(Checkpoint::All, n), memory(Checkpoint::Sqrt, n));
        println!("{n} iterations: all {} KiB, sqrt {} KiB", all >> 10, sqrt >> 10);
        assert!(all >= n << 10, "{all}");
        let root = (n as f64).sqrt() as usize;
        assert!(sqrt <= (4 * root + 16) << 10, "{sqrt} for {n}");
    }
}

#[test]
fn the_other_paths_give_what_the_compiled_loop_gives() {
    let w = tensor_of(&[0.5f64, -0.25], &[2]);
    let body = |(c, x): (Tensor, Tensor)| {
        let y = (&c * &w).sin() + &x;
        (&y * 0.5 + &c * 0.25, (y.sum(), x))
    };
    let init = tensor_of(&[1.0f64, 2.0], &[2]);
    let xs = tensor_of(&[0.1f64, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], &[4, 2]);
    let none = engine().zeros(DType::F64, &[0, 2]);
    let run = |scan: Scan, xs: &Tensor| {
        let (c, (y, z)) = scan.run(body, init.clone(), xs.clone());
        [c, y, z].map(|t| t.to_vec::<f64>().unwrap())
    };
    for path in [ScanPath::Preencoded, ScanPath::Fallback] {
        let on = |s: Scan| s.path(path).accept_path(&[path]);
        assert_eq!(run(on(Scan::new()), &xs), run(Scan::new(), &xs), "{path:?}");
        assert_eq!(run(on(Scan::new().reverse()), &xs), run(Scan::new().reverse(), &xs), "{path:?}");
        assert_eq!(run(on(Scan::new()), &none), run(Scan::new(), &none), "{path:?}");
        for n in [-1, 0, 2, 4, 9] {
            let n = tensor_of::<i32>(&[n], ());
            assert_eq!(run(on(Scan::new().count(&n)), &xs), run(Scan::new().count(&n), &xs), "{path:?} {n}");
            let backwards = Scan::new().reverse().count(&n);
            assert_eq!(run(on(backwards.clone()), &xs), run(backwards, &xs), "{path:?} {n}");
        }
        // Gradients go through.
        let loss = |scan: Scan| {
            let xs = xs.clone();
            move |c: Tensor| {
                let (c, (y, _)) = scan.run(body, c, xs.clone());
                c.sum() + y.square().sum()
            }
        };
        let (a, b) = (grad(loss(on(Scan::new()))).call(init.clone()), grad(loss(Scan::new())).call(init.clone()));
        for (a, b) in a.to_vec::<f64>().unwrap().iter().zip(b.to_vec::<f64>().unwrap()) {
            assert!((a - b).abs() < 1e-12, "{path:?}");
        }
        // In a traced function there is one path.
        let traced = jit(|c: Tensor| on(Scan::new()).run(body, c, xs.clone()).0).call(init.clone());
        assert!(traced.check().unwrap_err().to_string().contains("CompiledLoop"));
        let err = Scan::new().path(path).accept_path(&[]).run(body, init.clone(), xs.clone()).0;
        assert!(err.check().unwrap_err().to_string().contains(&format!("{path:?}")));
    }
}
