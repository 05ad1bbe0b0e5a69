//! Rows of a few elements that are reduced and used again: each has its own SIMD lane, in blocks that are transposed.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::ReduceKind;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Unary, Value, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

fn wide(b: &mut Builder, x: Value, shape: &[usize]) -> Value {
    b.expand_reduced(x, shape, &[shape.len() - 1]).unwrap()
}

/// `log(Σ exp x)` of each row, and the softmax.
fn softmax(dtype: DType, shape: &[usize]) -> Graph {
    let (mut b, last) = (Builder::new(), [shape.len() - 1]);
    let x = b.input(dtype, shape);
    let most = b.reduce(ReduceKind::Max, x, &last).unwrap();
    let all = wide(&mut b, most, shape);
    let d = b.sub(x, all).unwrap();
    let e = b.unary(Unary::Exp, d).unwrap();
    let s = b.sum(e, &last).unwrap();
    let all = wide(&mut b, s, shape);
    let y = b.div(e, all).unwrap();
    let log = b.unary(Unary::Log, s).unwrap();
    let sum = b.add(log, most).unwrap();
    b.finish(&[y, sum])
}

/// The derivative of a softmax: two operands with rows, one reduction.
fn backward(dtype: DType, shape: &[usize]) -> Graph {
    let (mut b, last) = (Builder::new(), [shape.len() - 1]);
    let (y, d) = (b.input(dtype, shape), b.input(dtype, shape));
    let product = b.mul(y, d).unwrap();
    let s = b.sum(product, &last).unwrap();
    let all = wide(&mut b, s, shape);
    let rest = b.sub(d, all).unwrap();
    let x = b.mul(y, rest).unwrap();
    b.finish(&[x])
}

/// Centered rows divided by their norm, times a number per column, plus a number per row; two full results.
fn normalised(dtype: DType, shape: &[usize]) -> Graph {
    let (mut b, axis) = (Builder::new(), shape.len() - 1);
    let (x, gain) = (b.input(dtype, shape), b.input(dtype, &shape[axis..]));
    let shift = b.input(dtype, &shape[..axis]);
    let sum = b.sum(x, &[axis]).unwrap();
    let mean = b.scale(sum, 1.0 / shape[axis] as f64).unwrap();
    let mean = wide(&mut b, mean, shape);
    let d = b.sub(x, mean).unwrap();
    let square = b.mul(d, d).unwrap();
    let squares = b.sum(square, &[axis]).unwrap();
    let squares = b.offset(squares, 1.0).unwrap();
    let by = b.unary(Unary::Rsqrt, squares).unwrap();
    let by = wide(&mut b, by, shape);
    let y = b.mul(d, by).unwrap();
    let gain = b.broadcast(gain, shape, &[axis]).unwrap();
    let z = b.mul(y, gain).unwrap();
    let shift = wide(&mut b, shift, shape);
    let z = b.add(z, shift).unwrap();
    b.finish(&[z, y])
}

/// Integers: rows minus their maximum, compared bit by bit.
fn below_largest(dtype: DType, shape: &[usize]) -> Graph {
    let (mut b, last) = (Builder::new(), [shape.len() - 1]);
    let x = b.input(dtype, shape);
    let most = b.reduce(ReduceKind::Max, x, &last).unwrap();
    let all = wide(&mut b, most, shape);
    let y = b.sub(x, all).unwrap();
    b.finish(&[y])
}

fn inputs(graph: &Graph) -> Vec<Literal> {
    let mut r = Random(graph.num_values() as u64 + 3);
    graph.input_types().iter().map(|t| r.literal(t)).collect()
}

fn check(graph: &Graph, tolerance: f64, what: &str) {
    let x = inputs(graph);
    let want = interp::run(graph, &x).unwrap();
    let mut first = None;
    for target in Target::available() {
        for threads in [1, 3] {
            let what = format!("{what}, {target:?}, {threads} threads");
            let got = run(&Cpu::with_target(threads, Some(target)), graph, &x, true);
            match tolerance {
                0.0 => same(&what, &got, &want),
                t => close(&what, &got, &want, t),
            }
            if threads == 1 {
                first = Some(got);
            } else if let Some(first) = &first {
                same(&what, &got, first);
            }
        }
    }
}

#[test]
fn short_rows_agree_with_the_interpreter() {
    let floats = [(DType::F32, 3e-5), (DType::F64, 1e-12), (DType::BF16, 2e-2), (DType::F16, 4e-3)];
    for elements in (2..=34).chain([47, 48, 63, 64, 65]) {
        // One block, several, a remainder of one and of many; below and above the minimum number of rows.
        for rows in [7, 8, 65, 127, 64 * 17 + 1, 2100] {
            let (d, tolerance) = floats[(elements + rows) % 4];
            let shape = if rows % 5 == 0 { vec![5, rows / 5, elements] } else { vec![rows, elements] };
            let what = format!("{d} {shape:?}");
            check(&softmax(d, &shape), tolerance, &format!("softmax {what}"));
            check(&backward(d, &shape), tolerance, &format!("backward {what}"));
            check(&normalised(d, &shape), tolerance, &format!("normalised {what}"));
            let whole = [DType::I32, DType::U8, DType::I16, DType::I64][(elements + rows) % 4];
            check(&below_largest(whole, &shape), 0.0, &format!("below largest {whole} {shape:?}"));
        }
    }
}

/// Rows, or a function of them, divided by their reduction; and the reduction itself.
fn reduced(kind: ReduceKind, function: bool, dtype: DType, shape: &[usize]) -> Graph {
    let (mut b, last) = (Builder::new(), [shape.len() - 1]);
    let x = b.input(dtype, shape);
    let e = if function { b.unary(Unary::Exp, x).unwrap() } else { x };
    let r = b.reduce(kind, e, &last).unwrap();
    let all = wide(&mut b, r, shape);
    let y = b.div(e, all).unwrap();
    b.finish(&[y, r])
}

/// A row has the same bits with many other rows, in its own lane, and with few, in a vector along it:
/// sums and products have one order.
#[test]
fn short_rows_have_the_bits_of_rows_in_vectors() {
    const FEW: usize = 5;
    let kinds = [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min];
    for target in Target::available() {
        let cpu = Cpu::with_target(1, Some(target));
        for (kind, dtype) in kinds.into_iter().flat_map(|k| [(k, DType::F32), (k, DType::F64), (k, DType::BF16)]) {
            for (n, function) in (2..=64).flat_map(|n| [(n, true), (n, false)]) {
                let of = |rows: usize| {
                    let graph = reduced(kind, function, dtype, &[rows, n]);
                    let mut r = Random(n as u64);
                    let x: Vec<Literal> = graph.input_types().iter().map(|t| r.literal(t)).collect();
                    let got = run(&cpu, &graph, &x, true);
                    let bits =
                        |i: usize, width: usize| (0..FEW * width).map(|k| got[i].get(k).bits()).collect::<Vec<_>>();
                    (bits(0, n), bits(1, 1))
                };
                assert_eq!(of(FEW), of(70), "{kind:?} of rows of {n} {dtype}, {target:?}, function: {function}");
            }
        }
    }
}
