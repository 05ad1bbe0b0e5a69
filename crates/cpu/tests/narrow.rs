//! Operations on elements of one and two bytes, with the vectors of each instruction set: all pairs of bytes, limits of
//! 16-bit integers, chains of operations, operands broadcast over rows or along a row. The bits equal the interpreter's.

mod harness;

use harness::{Random, run, same};
use ir::{Binary, Builder, Compare, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, Value, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::codegen::Target;

const NARROW: [DType; 5] = [DType::U8, DType::I8, DType::U16, DType::I16, DType::Bool];
const BINARIES: [Binary; 12] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Rem,
    Binary::Max,
    Binary::Min,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Shr,
];
const LOGIC: [Binary; 3] = [Binary::And, Binary::Or, Binary::Xor];
const COMPARES: [Compare; 6] = [Compare::Eq, Compare::Ne, Compare::Lt, Compare::Le, Compare::Gt, Compare::Ge];
const UNARIES: [Unary; 5] = [Unary::Neg, Unary::Abs, Unary::Sign, Unary::Not, Unary::PopulationCount];

fn backends(threads: &[usize]) -> Vec<Cpu> {
    let targets = Target::available();
    targets.into_iter().flat_map(|t| threads.iter().map(move |&n| Cpu::with_target(n, Some(t)))).collect()
}

fn binaries(d: DType) -> &'static [Binary] {
    if d == DType::Bool { &LOGIC } else { &BINARIES }
}

fn unaries(d: DType) -> &'static [Unary] {
    if d == DType::Bool { &[Unary::Not] } else { &UNARIES }
}

fn agree(what: &str, graph: &Graph, x: &[Literal], backends: &[Cpu]) {
    let want = interp::run(graph, x).unwrap();
    for cpu in backends {
        same(what, &run(cpu, graph, x, true), &want);
    }
}

/// Numbers near the limits of a range and near its middle, small numbers, and random ones.
fn edges(d: DType, i: usize, r: &mut Random) -> Scalar {
    let (low, high) = (d.int_min() as i64, d.int_max() as i64);
    let all = [low, low + 1, -1, 0, 1, 7, 8, 15, 16, 17, high - 1, high, high / 2];
    Scalar::from_i64(d, if i % 3 == 0 { r.bits() as i64 } else { all[r.below(all.len())] })
}

fn pairs(d: DType, r: &mut Random) -> [Literal; 2] {
    let n = 1 << 16;
    let ty = Type::new(d, &[n]);
    match d {
        DType::U8 | DType::I8 => [8, 0].map(|by| {
            Literal::from_fn(ty.clone(), |i| {
                Scalar::from_i64(d, ((i >> by) & 255) as i64 - if d == DType::I8 { 128 } else { 0 })
            })
        }),
        DType::Bool => [1, 0].map(|by| Literal::from_fn(ty.clone(), |i| Scalar::bool((i >> by) & 1 == 1))),
        _ => [0, 1].map(|k| Literal::from_fn(ty.clone(), |i| edges(d, i + k, r))),
    }
}

#[test]
fn all_pairs_of_bytes() {
    let (backends, mut r) = (backends(&[2]), Random(31));
    for d in NARROW {
        let [x, y] = pairs(d, &mut r);
        let shape = [1 << 16];
        let two = |what: String, f: &dyn Fn(&mut Builder, Value, Value) -> Value| {
            let mut b = Builder::new();
            let (p, q) = (b.input(d, &shape), b.input(d, &shape));
            let v = f(&mut b, p, q);
            agree(&what, &b.finish(&[v]), &[x.clone(), y.clone()], &backends);
        };
        for &op in binaries(d) {
            two(format!("{op:?} of {d}"), &|b, p, q| b.binary(op, p, q).unwrap());
        }
        for op in COMPARES {
            two(format!("{op:?} of {d}"), &|b, p, q| b.compare(op, p, q).unwrap());
            two(format!("select by {op:?} of {d}"), &|b, p, q| {
                let c = b.compare(op, p, q).unwrap();
                b.select(c, q, p).unwrap()
            });
        }
        for &op in unaries(d) {
            two(format!("{op:?} of {d}"), &|b, p, _| b.unary(op, p).unwrap());
        }
        for to in NARROW {
            two(format!("{d} to {to}"), &|b, p, _| b.cast(p, to).unwrap());
        }
    }
}

/// A value of a shape: an input, possibly broadcast over rows, along rows, or everywhere, or a constant.
fn operand(b: &mut Builder, d: DType, shape: &[usize], r: &mut Random) -> Value {
    let [rows, size] = shape else { return b.input(d, shape) };
    let of = |b: &mut Builder, own: &[usize], dims: &[usize]| {
        let x = b.input(d, own);
        b.broadcast(x, shape, dims).unwrap()
    };
    match r.below(6) {
        0 => of(b, &[*size], &[1]),
        1 => of(b, &[*rows], &[0]),
        2 => of(b, &[], &[]),
        3 => {
            let x = b.scalar(d, r.below(2) as f64).unwrap();
            b.broadcast(x, shape, &[]).unwrap()
        }
        _ => b.input(d, shape),
    }
}

#[test]
fn chains_and_broadcasts() {
    let (backends, mut r) = (backends(&[1, 3]), Random(32));
    let sizes = [1, 2, 3, 5, 7, 8, 9, 17, 31, 33, 63, 65, 100, 333, 1023, 1024, 1025, 3000];
    for round in 0..150 {
        let size = sizes[r.below(sizes.len())];
        let shape = match r.below(4) {
            0 => vec![4096 + r.below(9000)],
            _ => vec![1 + r.below(20_000 / size + 1), size],
        };
        let mut d = NARROW[r.below(5)];
        let mut b = Builder::new();
        let mut v = operand(&mut b, d, &shape, &mut r);
        let ops = 1 + r.below(5);
        for _ in 0..ops {
            v = match r.below(6) {
                0 => {
                    d = NARROW[r.below(5)];
                    b.cast(v, d).unwrap()
                }
                1 => b.unary(unaries(d)[r.below(unaries(d).len())], v).unwrap(),
                2 => {
                    let (p, q) = (operand(&mut b, d, &shape, &mut r), operand(&mut b, d, &shape, &mut r));
                    let c = b.compare(COMPARES[r.below(6)], v, p).unwrap();
                    b.select(c, v, q).unwrap()
                }
                _ => {
                    let w = operand(&mut b, d, &shape, &mut r);
                    let (p, q) = if r.below(2) == 0 { (v, w) } else { (w, v) };
                    b.binary(binaries(d)[r.below(binaries(d).len())], p, q).unwrap()
                }
            };
        }
        let graph = b.finish(&[v]);
        let x: Vec<_> = graph.input_types().iter().map(|t| r.literal(t)).collect();
        agree(&format!("round {round}: {ops} operations on {shape:?}, giving {d}"), &graph, &x, &backends);
    }
}

/// Rows that end inside a vector, of every dtype: the memory around them is unchanged, and every element is written.
#[test]
fn rows_shorter_than_a_vector() {
    let (backends, mut r) = (backends(&[1, 2]), Random(33));
    for d in DType::ALL {
        for size in (1..=17).chain([23, 31, 33]) {
            for axis in [0, 1] {
                let shape = [37, size];
                let mut b = Builder::new();
                let (x, y) = (b.input(d, &shape), b.input(d, &[shape[axis]]));
                let y = b.broadcast(y, &shape, &[axis]).unwrap();
                let sum = if d == DType::Bool { b.binary(Binary::Xor, x, y) } else { b.add(x, y) }.unwrap();
                let less = b.compare(Compare::Lt, x, y).unwrap();
                let wide = b.cast(sum, DType::F64).unwrap();
                let graph = b.finish(&[sum, less, wide]);
                let x: Vec<_> = graph.input_types().iter().map(|t| r.literal(t)).collect();
                agree(&format!("{d} {shape:?} along {axis}"), &graph, &x, &backends);
            }
        }
    }
}
