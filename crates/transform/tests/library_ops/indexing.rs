//! Gather, scatter and dynamic slices.

use crate::check::{check, random, value};
use ir::ops::{Gather, GatherMode, ScatterKind, ScatterMode, SliceDims};
use ir::{DType, GraphBuilder, Literal};

const F: DType = DType::F64;
const NAN: f64 = f64::NAN;

fn dims(offset: &[usize], collapsed: &[usize], index_map: &[usize]) -> SliceDims {
    SliceDims {
        offset: offset.into(),
        collapsed: collapsed.into(),
        index_map: index_map.into(),
        ..SliceDims::default()
    }
}

fn ramp(shape: &[usize]) -> Literal {
    let n: usize = shape.iter().product();
    Literal::new(shape, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

fn same(what: &str, got: &Literal, shape: &[usize], expected: &[f64]) {
    crate::check::close(what, got, &Literal::new(shape, expected), 0.0);
}

#[test]
fn gather_reads_what_jax_reads() {
    let (x, at) = (ramp(&[3, 4]), Literal::new(&[3, 2], &[0i32, 2, 2, 5, -1, 1]));
    let rows = |mode| Gather { dims: dims(&[1], &[0], &[0, 1]), slice_sizes: [1, 2].into_iter().collect(), mode };
    let cases = [
        (GatherMode::Clip, [2.0, 3.0, 10.0, 11.0, 1.0, 2.0]),
        (GatherMode::fill(F), [2.0, 3.0, NAN, NAN, NAN, NAN]),
        (GatherMode::zero(F), [2.0, 3.0, 0.0, 0.0, 0.0, 0.0]),
    ];
    for (mode, expected) in cases {
        let y = value(&[x.clone(), at.clone()], |b, v| b.one(rows(mode).into(), v));
        same("rows", &y, &[3, 2], &expected);
    }
    let windows =
        Gather { dims: dims(&[0, 2], &[], &[1]), slice_sizes: [2, 2].into_iter().collect(), mode: GatherMode::Clip };
    let y = value(&[x.clone(), Literal::new(&[2, 1], &[1u8, 3])], |b, v| b.one(windows.into(), v));
    same("windows", &y, &[2, 2, 2], &[1.0, 2.0, 2.0, 3.0, 5.0, 6.0, 6.0, 7.0]);
    let y =
        value(&[x.clone(), Literal::new(&[2, 2], &[3i64, 0, 1, 9])], |b, v| b.take(v[0], v[1], 1, GatherMode::fill(F)));
    let expected = [3.0, 0.0, 1.0, NAN, 7.0, 4.0, 5.0, NAN, 11.0, 8.0, 9.0, NAN];
    same("take", &y, &[3, 2, 2], &expected);
    let y = value(&[x, Literal::new(&[3, 1], &[3u64, 0, u64::MAX])], |b, v| {
        b.take_along_axis(v[0], v[1], 1, GatherMode::Clip)
    });
    same("take_along_axis", &y, &[3, 1], &[3.0, 4.0, 11.0]);
}

#[test]
fn index_tensors_of_leading_axes_pick_as_numpy_does() {
    // x[[0, 1], [2, 0]] of an x with one more axis; negative indices are out of bounds unless the size is added.
    let at = Literal::new(&[2, 2], &[0i32, 2, 1, 0]);
    let op = Gather {
        dims: SliceDims::leading(3, 2, 1),
        slice_sizes: [1, 1, 2].into_iter().collect(),
        mode: GatherMode::fill(F),
    };
    let y = value(&[ramp(&[2, 3, 2]), at], |b, v| b.one(op.into(), v));
    same("leading", &y, &[2, 2], &[4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn scatter_writes_what_jax_writes() {
    use ScatterKind::{Add, Max, Min, Mul, Set};
    let x = ramp(&[3, 4]);
    let at = Literal::new(&[3, 2], &[0i32, 2, 2, 5, -1, 1]);
    let updates = Literal::new(&[3, 2], &[1.0, -2.0, 30.0, -4.0, 5.0, 6.0]);
    // Elements 1, 2, 3 and 10, 11 change.
    let rows = [
        (Set, ScatterMode::Clip, [5.0, 6.0, -2.0, 30.0, -4.0]),
        (Add, ScatterMode::Clip, [6.0, 9.0, 1.0, 40.0, 7.0]),
        (Mul, ScatterMode::Clip, [5.0, 12.0, -6.0, 300.0, -44.0]),
        (Min, ScatterMode::Clip, [1.0, 1.0, -2.0, 10.0, -4.0]),
        (Max, ScatterMode::Clip, [5.0, 6.0, 3.0, 30.0, 11.0]),
        (Set, ScatterMode::Drop, [1.0, 1.0, -2.0, 10.0, 11.0]),
        (Add, ScatterMode::Drop, [1.0, 3.0, 1.0, 10.0, 11.0]),
        (Mul, ScatterMode::Drop, [1.0, 2.0, -6.0, 10.0, 11.0]),
        (Min, ScatterMode::Drop, [1.0, 1.0, -2.0, 10.0, 11.0]),
        (Max, ScatterMode::Drop, [1.0, 2.0, 3.0, 10.0, 11.0]),
    ];
    for (kind, mode, changed) in rows {
        let y = value(&[x.clone(), at.clone(), updates.clone()], |b, v| {
            b.scatter(kind, dims(&[1], &[0], &[0, 1]), mode, v[0], v[1], v[2])
        });
        let mut expected = x.to_vec::<f64>();
        for (i, v) in [1, 2, 3, 10, 11].into_iter().zip(changed) {
            expected[i] = v;
        }
        same(kind.name(), &y, &[3, 4], &expected);
    }
}

#[test]
fn gather_keeps_every_law() {
    let x = random(&[3, 4], 1);
    let at = Literal::new(&[3, 2], &[0i32, 2, 2, 5, -1, 1]);
    for mode in [GatherMode::Clip, GatherMode::zero(F)] {
        let op = Gather { dims: dims(&[1], &[0], &[0, 1]), slice_sizes: [1, 2].into_iter().collect(), mode };
        check("rows", &[x.clone(), at.clone()], |b, v| b.one(op.into(), v));
        let indices = Literal::new(&[2, 2], &[3i64, 0, 1, 9]);
        check("take", &[x.clone(), indices], |b, v| b.take(v[0], v[1], 1, mode));
        let indices = Literal::new(&[2, 4], &[2u8, 0, 2, 1, 0, 7, 1, 1]);
        check("along", &[x.clone(), indices], |b, v| b.take_along_axis(v[0], v[1], 0, mode));
        check("rank 0", &[random(&[], 2), Literal::new::<i32>(&[2, 0], &[])], |b, v| {
            let op = Gather { dims: SliceDims::default(), slice_sizes: [].into_iter().collect(), mode };
            b.one(op.into(), v)
        });
        check("nothing", &[random(&[3, 0], 2), Literal::new(&[2], &[0i32, 1])], |b, v| b.take(v[0], v[1], 0, mode));
        let none = Literal::new::<i32>(&[0], &[]);
        check("of nothing", &[random(&[0, 2], 2), none], |b, v| b.take(v[0], v[1], 0, mode));
    }
}

#[test]
fn scatter_keeps_every_law() {
    for kind in ScatterKind::ALL {
        for mode in [ScatterMode::Clip, ScatterMode::Drop] {
            let name = format!("{} {mode:?}", kind.name());
            // Repeated, out of bounds, and overlapping after clamping.
            let at = Literal::new(&[4, 2], &[0i32, 2, 2, 5, -1, 1, 0, 2]);
            let inputs = [random(&[3, 4], 1), at, random(&[4, 2], 2)];
            check(&name, &inputs, |b, v| b.scatter(kind, dims(&[1], &[0], &[0, 1]), mode, v[0], v[1], v[2]));
            let at = Literal::new(&[2, 3, 1], &[1i64, 0, 3, 1, 1, 0]);
            let inputs = [random(&[3, 3], 3), at, random(&[2, 3], 4)];
            let along = SliceDims {
                operand_batch: [1].into_iter().collect(),
                index_batch: [1].into_iter().collect(),
                ..dims(&[], &[0], &[0])
            };
            check(&format!("{name} along"), &inputs, |b, v| b.scatter(kind, along, mode, v[0], v[1], v[2]));
            let inputs = [random(&[2, 3], 3), Literal::new(&[2, 1], &[1u8, 0]), random(&[2, 2], 4)];
            check(&format!("{name} index_add"), &inputs, |b, v| {
                b.scatter(kind, SliceDims::take(2, 1, 1), mode, v[0], v[1], v[2])
            });
        }
    }
}

#[test]
fn scatter_mul_has_the_right_slope_at_zeros() {
    // x·u₀·u₁ with u₀ = 0: only the derivative with respect to u₀ is not 0, and it is x·u₁.
    let inputs = [Literal::new(&[1], &[3.0f64]), Literal::new(&[2, 1], &[0i32, 0]), Literal::new(&[2], &[0.0f64, 5.0])];
    let g = crate::check::graph(&inputs, |b, v| {
        let dims = SliceDims::take(1, 0, 1);
        let y = b.scatter(ScatterKind::Mul, dims, ScatterMode::Clip, v[0], v[1], v[2])?;
        b.sum_all(y)
    });
    let grads = crate::check::run(&tensorloom_transform::grad(&g, &[0, 2]).unwrap(), &inputs);
    same("x", &grads[0], &[1], &[0.0]);
    same("u", &grads[1], &[2], &[15.0, 0.0]);
}

#[test]
fn dynamic_slices_are_moved_inside_and_keep_every_law() {
    let x = ramp(&[3, 4]);
    for (i, j, first) in [(0i32, 1i64, 1.0), (1, 9, 6.0), (-5, -1, 0.0), (i32::MAX, i64::MIN, 4.0)] {
        let starts = [Literal::new(&[], &[i]), Literal::new(&[], &[j])];
        let inputs = [std::slice::from_ref(&x), &starts[..]].concat();
        let y = value(&inputs, |b, v| b.dynamic_slice(v[0], &v[1..], &[2, 2]));
        same("slice", &y, &[2, 2], &[first, first + 1.0, first + 4.0, first + 5.0]);
        let inputs = [&[x.clone(), Literal::new(&[1, 1], &[100.0])], &starts[..]].concat();
        let y = value(&inputs, |b, v| b.dynamic_update_slice(v[0], v[1], &v[2..]));
        let mut expected = x.to_vec::<f64>();
        expected[i.clamp(0, 2) as usize * 4 + j.clamp(0, 3) as usize] = 100.0;
        same("update", &y, &[3, 4], &expected);

        let x = random(&[3, 4], 1);
        let inputs = [std::slice::from_ref(&x), &starts[..]].concat();
        check("slice", &inputs, |b, v| b.dynamic_slice(v[0], &v[1..], &[2, 3]));
        check("empty slice", &inputs, |b, v| b.dynamic_slice(v[0], &v[1..], &[2, 0]));
        let inputs = [&[x, random(&[2, 3], 2)], &starts[..]].concat();
        check("update", &inputs, |b, v| b.dynamic_update_slice(v[0], v[1], &v[2..]));
    }
    check("rank 0", &[random(&[], 1)], |b, v| b.dynamic_slice(v[0], &[], &[]));
    check("rank 0", &[random(&[], 1), random(&[], 2)], |b, v| b.dynamic_update_slice(v[0], v[1], &[]));
}
