//! Every transform of the loss of `scan(rmsnorm(tanh(x·w + b)))` with a mean-squared error.

use ir::composites::norm::rmsnorm;
use ir::ops::{Scan, ScanCheckpoint};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type, Unary, interp, text, verify};

const F: DType = DType::F64;

fn body(batch: usize, d: usize) -> Graph {
    let mut b = Builder::new();
    let (w, bias, g) = (b.input(F, &[d, d]), b.input(F, &[d]), b.input(F, &[d]));
    let h = b.input(F, &[batch, d]);
    let x = b.input(F, &[batch, d]);
    let hx = b.add(h, x).unwrap();
    let m = b.matmul(hx, w).unwrap();
    let wide = b.broadcast(bias, &[batch, d], &[1]).unwrap();
    let z = b.add(m, wide).unwrap();
    let t = b.unary(Unary::Tanh, z).unwrap();
    let norm = rmsnorm(&Type::new(F, &[batch, d]), &Type::new(F, &[d]), 1e-6).unwrap();
    let y = b.emit(norm.into(), &[t, g]).unwrap()[0];
    b.finish(&[y, y])
}

/// (w, bias, gain, h0, xs, target[, count]) -> loss
fn loss(batch: usize, d: usize, length: usize, bounded: bool, checkpoint: ScanCheckpoint) -> Graph {
    let mut b = Builder::new();
    let (w, bias, g) = (b.input(F, &[d, d]), b.input(F, &[d]), b.input(F, &[d]));
    let h0 = b.input(F, &[batch, d]);
    let xs = b.input(F, &[length, batch, d]);
    let target = b.input(F, &[length, batch, d]);
    let mut args = vec![w, bias, g, h0, xs];
    if bounded {
        args.insert(0, b.input(DType::I32, &[]));
    }
    let scan = Scan { bounded, checkpoint, ..Scan::over(3, 1, length, body(batch, d)) };
    let outs = b.emit(scan.into(), &args).unwrap();
    let diff = b.sub(outs[1], target).unwrap();
    let sq = b.mul(diff, diff).unwrap();
    let s = b.sum_all(sq).unwrap();
    let l = b.scale(s, 1.0 / (length * batch * d) as f64).unwrap();
    b.finish(&[l])
}

fn inputs(graph: &Graph) -> Vec<Literal> {
    let mut state = 1u64;
    graph
        .input_types()
        .iter()
        .map(|t| {
            Literal::from_fn(t.clone(), |_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let u = (state >> 33) as f64 / (1u64 << 31) as f64;
                if t.dtype == DType::I32 {
                    ir::Scalar::from_i64(DType::I32, 3)
                } else {
                    ir::Scalar::from_f64(F, u - 0.5)
                }
            })
        })
        .collect()
}

fn close(a: &Literal, b: &Literal, tol: f64) {
    assert_eq!(a.ty(), b.ty());
    for (x, y) in a.scalars().zip(b.scalars()) {
        let (x, y) = (x.to_f64(), y.to_f64());
        assert!((x - y).abs() <= tol * (1.0 + y.abs()), "{x} {y}");
    }
}

fn finite_difference(graph: &Graph, x: &[Literal], wrt: usize) -> Literal {
    let f = |x: &[Literal]| interp::run(graph, x).unwrap()[0].get(0).to_f64();
    let eps = 1e-5;
    Literal::from_fn(x[wrt].ty().clone(), |i| {
        let bump = |by: f64| {
            let mut y = x.to_vec();
            y[wrt] = Literal::from_fn(x[wrt].ty().clone(), |j| {
                let v = x[wrt].get(j).to_f64();
                ir::Scalar::from_f64(F, if i == j { v + by } else { v })
            });
            f(&y)
        };
        ir::Scalar::from_f64(F, (bump(eps) - bump(-eps)) / (2.0 * eps))
    })
}

#[test]
fn grad_through_scan_and_composite_equals_finite_differences() {
    for (bounded, checkpoint) in [
        (false, ScanCheckpoint::All),
        (true, ScanCheckpoint::All),
        (false, ScanCheckpoint::EveryN(2)),
        (true, ScanCheckpoint::EveryN(2)),
    ] {
        let f = loss(2, 3, 5, bounded, checkpoint);
        verify::verify(&f).unwrap();
        let x = inputs(&f);
        let g = tensorloom_transform::grad(&f, &[0, 1, 2, 3, 4]).unwrap();
        verify::verify(&g).unwrap();
        let got = interp::run(&g, &x).unwrap();
        for i in 0..5 {
            close(&got[i], &finite_difference(&f, &x, i), 1e-7);
        }
    }
}

#[test]
fn grad_of_grad_through_scan_equals_finite_differences() {
    for checkpoint in [ScanCheckpoint::All, ScanCheckpoint::EveryN(2)] {
        let f = loss(1, 2, 3, false, checkpoint);
        let x = inputs(&f);
        let g = tensorloom_transform::grad(&f, &[0]).unwrap();
        let mut b = Builder::new();
        let args: Vec<_> = g.input_types().into_iter().map(|t| b.graph.input(t)).collect();
        let gw = b.inline(&g, &args).unwrap()[0];
        let sq = b.mul(gw, gw).unwrap();
        let s = b.sum_all(sq).unwrap();
        let norm = b.finish(&[s]);
        let second = tensorloom_transform::grad(&norm, &[0, 2, 4]).unwrap();
        verify::verify(&second).unwrap();
        let got = interp::run(&second, &x).unwrap();
        for (k, i) in [0, 2, 4].into_iter().enumerate() {
            close(&got[k], &finite_difference(&norm, &x, i), 1e-6);
        }
    }
}

#[test]
fn vmap_of_grad_equals_a_loop() {
    let f = loss(2, 3, 4, true, ScanCheckpoint::All);
    let g = tensorloom_transform::grad(&f, &[0, 2, 4]).unwrap();
    let n = f.inputs().len();
    for mask in [0b1010001u32, 0b0000111, 0b1111111, 0b0010100, 0b1000000] {
        let axes: Vec<bool> = (0..n).map(|i| mask >> i & 1 == 1).collect();
        let size = 3;
        let (vg, outs) = tensorloom_transform::vmap(&g, &axes, &[true; 3], size).unwrap();
        verify::verify(&vg).unwrap();
        assert!(outs.iter().all(|o| *o));
        let mut x = inputs(&vg);
        if axes[n - 1] {
            x[n - 1] = Literal::new(&[3], &[0i32, 4, 2]);
        }
        let got = interp::run(&vg, &x).unwrap();
        for k in 0..size {
            let one: Vec<Literal> = (0..n)
                .map(|i| {
                    if !axes[i] {
                        return x[i].clone();
                    }
                    let t = x[i].ty().unbatched();
                    Literal::from_bytes(t.clone(), &x[i].bytes()[k * t.bytes()..(k + 1) * t.bytes()]).unwrap()
                })
                .collect();
            let expected = interp::run(&g, &one).unwrap();
            for (a, e) in got.iter().zip(&expected) {
                let t = e.ty();
                let slice = Literal::from_bytes(t.clone(), &a.bytes()[k * t.bytes()..(k + 1) * t.bytes()]).unwrap();
                close(&slice, e, 1e-12);
            }
        }
    }
}

#[test]
fn jvp_equals_vjp_and_text_round_trips() {
    let f = loss(2, 3, 4, false, ScanCheckpoint::EveryN(3));
    let g = tensorloom_transform::grad(&f, &[0, 1, 2, 3, 4]).unwrap();
    for graph in [&f, &g] {
        let printed = graph.to_string();
        let parsed = text::parse(&printed).unwrap();
        assert_eq!(parsed.to_string(), printed);
        assert_eq!(parsed.structural_hash(), graph.structural_hash());
    }
    let (fwd, has) = tensorloom_transform::jvp(&f, &[true, true, true, true, true, false], &[false]).unwrap();
    assert_eq!(has, [true]);
    let x = inputs(&fwd);
    let dy = interp::run(&fwd, &x).unwrap()[1].get(0).to_f64();
    let grads = interp::run(&g, &x[..6]).unwrap();
    let dot: f64 = (0..5)
        .map(|i| grads[i].scalars().zip(x[6 + i].scalars()).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>())
        .sum();
    assert!((dy - dot).abs() < 1e-12, "{dy} {dot}");
}
