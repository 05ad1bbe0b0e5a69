//! Operands without elements, and results without any, through every kind of view and reduction.

mod harness;

use harness::{run, same};
use ir::ops::{Pad, ReduceKind, Sort, TopK};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type, Value, interp};
use tensorloom_cpu::Cpu;

fn agrees(what: &str, g: &Graph) {
    let inputs: Vec<Literal> = g
        .input_types()
        .iter()
        .map(|t| Literal::from_fn(t.clone(), |i| ir::Scalar::from_f64(t.dtype, i as f64 * 0.5 - 1.0)))
        .collect();
    let want = interp::run(g, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    same(what, &run(&Cpu::new(2), g, &inputs, true), &want);
    // Also each result by itself: a view that is the only result is computed where it is read.
    for (k, &v) in g.outputs().iter().enumerate() {
        let mut one = g.clone();
        one.set_outputs(vec![v]);
        same(&format!("{what}, result {k}"), &run(&Cpu::new(1), &one, &inputs, true), &want[k..=k]);
    }
}

/// Uses a value in every way: directly, reduced over each axis and all of them, elementwise, and concatenated with itself.
fn every_reader(b: &mut Builder, v: Value) -> Vec<Value> {
    let ty = b.ty(v);
    let mut outs = vec![v];
    let sets: Vec<Vec<usize>> = (0..ty.rank()).map(|a| vec![a]).chain([(0..ty.rank()).collect()]).collect();
    for axes in sets {
        for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Prod] {
            outs.push(b.reduce(kind, v, &axes).unwrap());
        }
    }
    let twice = b.add(v, v).unwrap();
    outs.push(twice);
    for axis in 0..ty.rank() {
        let joined = b.concat(&[v, twice, v], axis).unwrap();
        outs.push(joined);
        outs.push(b.sum(joined, &[axis]).unwrap());
    }
    outs
}

#[test]
fn concatenations_of_nothing_and_something() {
    for sizes in [vec![0], vec![0, 0], vec![0, 3, 0], vec![3, 0], vec![0, 2, 0, 1, 0]] {
        for other in [None, Some(2), Some(0)] {
            for axis in [0, 1] {
                let mut b = Builder::new();
                let mut parts = Vec::new();
                for &n in &sizes {
                    let shape: Vec<usize> = match (other, axis) {
                        (None, _) => vec![n],
                        (Some(o), 0) => vec![n, o],
                        (Some(o), _) => vec![o, n],
                    };
                    parts.push(b.input(DType::F32, &shape));
                }
                let axis = if other.is_none() { 0 } else { axis };
                let joined = b.concat(&parts, axis).unwrap();
                let outs = every_reader(&mut b, joined);
                agrees(&format!("concat {sizes:?} beside {other:?} along {axis}"), &b.finish(&outs));
            }
        }
    }
}

#[test]
fn the_largest_none() {
    for (shape, axis) in [(vec![4], 0), (vec![3, 4], 1), (vec![3, 4], 0), (vec![0], 0), (vec![0, 4], 1)] {
        let mut b = Builder::new();
        let x = b.input(DType::F32, &shape);
        let top = b.emit(TopK { k: 0, axis }.into(), &[x]).unwrap();
        let mut outs = every_reader(&mut b, top[0]);
        outs.push(top[1]);
        agrees(&format!("top_k of {shape:?}"), &b.finish(&outs));
    }
}

#[test]
fn pads_inside_and_outside_of_anything() {
    for n in [0usize, 1, 2, 5] {
        for (low, high, interior) in
            [(0, 0, 1), (2, 0, 0), (0, 3, 2), (1, 1, 3), (-1, 0, 2), (0, -2, 1), (-1, -1, 1), (3, -1, 0)]
        {
            for beside in [None, Some(3), Some(0)] {
                let shape: Vec<usize> = std::iter::once(n).chain(beside).collect();
                let all = |x: i64| (0..shape.len()).map(|a| if a == 0 { x } else { 0 }).collect::<Vec<i64>>();
                let pad = Pad {
                    low: all(low).into_iter().collect(),
                    high: all(high).into_iter().collect(),
                    interior: all(interior).into_iter().map(|x| x as usize).collect(),
                };
                let ty = Type::new(DType::F32, &shape);
                if ir::Op::from(pad.clone()).infer(&[ty.clone(), Type::scalar(DType::F32)]).is_err() {
                    continue;
                }
                let mut b = Builder::new();
                let (x, fill) = (b.input(DType::F32, &shape), b.input(DType::F32, &[]));
                let y = b.one(pad.into(), &[x, fill]).unwrap();
                let outs = every_reader(&mut b, y);
                agrees(&format!("pad {shape:?} by {low} {high} {interior}"), &b.finish(&outs));
            }
        }
    }
}

#[test]
fn views_and_routines_of_nothing() {
    let mut b = Builder::new();
    let (x, y) = (b.input(DType::F32, &[0, 3]), b.input(DType::F32, &[3, 0]));
    let mut outs = every_reader(&mut b, x);
    let t = b.permute(x, &[1, 0]).unwrap();
    let product = b.matmul(x, t).unwrap();
    let inner = b.matmul(y, x).unwrap();
    let sorted = b.emit(Sort { axis: 0, num_keys: 1, descending: false }.into(), &[x]).unwrap()[0];
    let shaped = b.reshape(x, &[3, 0, 2]).unwrap();
    let spread = b.broadcast(x, &[2, 0, 3], &[1, 2]).unwrap();
    outs.extend([t, product, inner, sorted, shaped, spread]);
    let s = b.sum(spread, &[0, 1]).unwrap();
    outs.push(s);
    agrees("views", &b.finish(&outs));
}

/// Rows of a table by indices of every integer dtype.
#[test]
fn ids_of_every_integer_dtype() {
    use ir::composites::embedding::embedding;
    for ids in [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8] {
        for padding in [None, Some(1)] {
            let (table, at) = (Type::new(DType::F32, &[7, 3]), Type::new(ids, &[2, 4]));
            let c = embedding(&table, &at, padding).unwrap();
            let mut b = Builder::new();
            let (t, i) = (b.input(DType::F32, &[7, 3]), b.input(ids, &[2, 4]));
            let y = b.emit(c.into(), &[t, i]).unwrap()[0];
            let g = transform::vjp(&b.finish(&[y]), &[0]).unwrap();
            let inputs = [
                Literal::from_fn(table.clone(), |i| ir::Scalar::from_f64(DType::F32, i as f64)),
                Literal::from_fn(at.clone(), |i| ir::Scalar::from_i64(ids, (i * 5 % 7) as i64)),
                Literal::from_fn(Type::new(DType::F32, &[2, 4, 3]), |i| ir::Scalar::from_f64(DType::F32, i as f64)),
            ];
            same("ids", &run(&Cpu::new(2), &g, &inputs, true), &interp::run(&g, &inputs).unwrap());
        }
    }
}
