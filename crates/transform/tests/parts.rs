//! Gradients of slices: the expected number of concatenations and pads, and unchanged values.

use ir::{Builder, DType, Graph, GraphBuilder, Literal, Result, Scalar, Type, Value};
use tensorloom_transform::slice_gradients::{deduplicate, sums_to_concats};

/// The gradient of a function that slices x, before and after the rewrite.
fn gradient(f: impl Fn(&mut Builder, Value) -> Result<Value>) -> (Graph, Graph) {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[3, 6]);
    let y = f(&mut b, x).unwrap();
    let y = b.sum_all(y).unwrap();
    let graph = b.finish(&[y]);
    let plain = tensorloom_transform::vjp_by_rules(&graph, &[0]).unwrap();
    let back =
        sums_to_concats(&tensorloom_transform::vjp_by_rules(&deduplicate(&graph).unwrap(), &[0]).unwrap()).unwrap();
    (plain, back)
}

fn count(g: &Graph, name: &str) -> usize {
    g.nodes().iter().filter(|n| n.op.name() == name).count()
}

fn check(f: impl Fn(&mut Builder, Value) -> Result<Value>, concats: usize, pads: usize) {
    let (plain, back) = gradient(f);
    assert_eq!((count(&back, "concat"), count(&back, "pad")), (concats, pads), "{back}");
    let fill = |t: Type| Literal::from_fn(t, |i| Scalar::from_f64(DType::F32, (i as f64 * 0.7).sin() + 1.5));
    let inputs: Vec<Literal> = plain.input_types().into_iter().map(fill).collect();
    let (want, got) = (ir::interp::run(&plain, &inputs).unwrap(), ir::interp::run(&back, &inputs).unwrap());
    for (w, g) in want.iter().zip(&got) {
        for i in 0..w.ty().numel() {
            assert!((w.get(i).to_f64() - g.get(i).to_f64()).abs() < 1e-5, "{back}");
        }
    }
}

#[test]
fn gradients_of_parts_are_put_together() {
    // Both halves, one of them twice.
    check(
        |b, x| {
            let (l, r, again) = (b.slice_axis(x, 1, 0, 3)?, b.slice_axis(x, 1, 3, 6)?, b.slice_axis(x, 1, 0, 3)?);
            let y = b.mul(l, r)?;
            b.mul(y, again)
        },
        1,
        0,
    );
    // Adjacent slices that do not cover the whole, and the whole itself.
    check(
        |b, x| {
            let (l, r) = (b.slice_axis(x, 1, 1, 3)?, b.slice_axis(x, 1, 3, 5)?);
            let y = b.mul(l, r)?;
            let (y, all) = (b.sum_all(y)?, b.sum_all(x)?);
            b.mul(y, all)
        },
        1,
        1,
    );
    // Overlapping slices, slices of different axes, a single slice.
    check(
        |b, x| {
            let (l, r) = (b.slice_axis(x, 1, 0, 4)?, b.slice_axis(x, 1, 2, 6)?);
            b.mul(l, r)
        },
        0,
        2,
    );
    check(
        |b, x| {
            let (l, r) = (b.slice_axis(x, 1, 0, 1)?, b.slice_axis(x, 0, 1, 2)?);
            let (l, r) = (b.sum_all(l)?, b.sum_all(r)?);
            b.mul(l, r)
        },
        0,
        2,
    );
}
