//! Matmuls of a given size.

use super::{Case, Maker, Round};
use ir::ops::Dot;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary, Value};

/// A product of `[batch, m, k]` and `[batch, k, n]`, optionally with the right one transposed.
#[derive(Clone, Copy)]
struct Product {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    turned: bool,
    dtype: DType,
}

fn product(m: usize, k: usize, n: usize) -> Product {
    Product { batch: 1, m, k, n, turned: false, dtype: DType::F32 }
}

/// The ops after the product.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Nothing,
    /// A bias and an elementwise function.
    Elements,
    /// A residual, then the row divided by its norm.
    Rows,
}

impl Product {
    fn turned(self) -> Product {
        Product { turned: true, ..self }
    }

    fn of(self, dtype: DType) -> Product {
        Product { dtype, ..self }
    }

    fn batch(self, batch: usize) -> Product {
        Product { batch, ..self }
    }

    fn emit(&self, b: &mut Builder, x: Value, w: Value) -> Value {
        let lead = (self.batch > 1) as usize;
        let dot = Dot {
            lhs_batch: (0..lead).collect(),
            rhs_batch: (0..lead).collect(),
            lhs_contract: [lead + 1].into_iter().collect(),
            rhs_contract: [lead + self.turned as usize].into_iter().collect(),
            acc: self.dtype.accumulator(),
            out: self.dtype,
        };
        b.one(dot.into(), &[x, w]).unwrap()
    }

    fn shape(&self, tail: [usize; 2]) -> Vec<usize> {
        let lead = if self.batch > 1 { vec![self.batch] } else { vec![] };
        [lead, tail.to_vec()].concat()
    }

    fn graph(&self, after: After) -> Graph {
        let mut b = Builder::new();
        let x = b.input(self.dtype, &self.shape([self.m, self.k]));
        let right = if self.turned { [self.n, self.k] } else { [self.k, self.n] };
        let w = b.input(self.dtype, &self.shape(right));
        let y = self.emit(&mut b, x, w);
        self.finish(b, y, after)
    }

    fn finish(&self, mut b: Builder, y: Value, after: After) -> Graph {
        let out = self.shape([self.m, self.n]);
        let axis = out.len() - 1;
        match after {
            After::Nothing => b.finish(&[y]),
            After::Elements => {
                let bias = b.input(self.dtype, &[self.n]);
                let bias = b.broadcast(bias, &out, &[axis]).unwrap();
                let y = b.add(y, bias).unwrap();
                let y = b.unary(Unary::Tanh, y).unwrap();
                b.finish(&[y])
            }
            After::Rows => {
                let r = b.input(self.dtype, &out);
                let y = b.add(y, r).unwrap();
                let squares = b.mul(y, y).unwrap();
                let total = b.sum(squares, &[axis]).unwrap();
                let scale = b.unary(Unary::Rsqrt, total).unwrap();
                let dims: Vec<usize> = (0..axis).collect();
                let scale = b.broadcast(scale, &out, &dims).unwrap();
                let z = b.mul(y, scale).unwrap();
                b.finish(&[z, y])
            }
        }
    }

    fn cases(self, quantity: usize) -> Vec<Case> {
        [After::Nothing, After::Elements, After::Rows].map(|a| Case::new(quantity, self.graph(a))).into()
    }

    fn plain(self, quantity: usize) -> Case {
        Case::new(quantity, self.graph(After::Nothing))
    }
}

fn each(products: &[Product], quantity: usize) -> Vec<Case> {
    products.iter().flat_map(|p| p.cases(quantity)).collect()
}

/// Enough work for two, three and five threads.
fn parallel(q: usize, round: Round) -> Vec<Case> {
    let mut all = Vec::new();
    for threads in [2, 3, 5] {
        let work = q * threads;
        for p in [
            product(24, 0, 25),
            product(1, 0, 128),
            product(1, 0, 128).turned(),
            product(128, 0, 1),
            product(8, 0, 16).batch(4),
        ] {
            let each = p.batch * p.m * p.n;
            let p = Product { k: round.divide(work, each), ..p };
            let quantity = round.divide(p.k * each, threads);
            all.extend(p.cases(quantity));
            if p.batch == 1 {
                all.push(p.of(DType::BF16).plain(quantity));
            }
        }
    }
    all
}

fn constant(q: usize, _: Round) -> Vec<Case> {
    let mut b = Builder::new();
    let x = b.input(DType::F32, &[q + 3, q]);
    let w = Literal::from_fn(Type::new(DType::F32, &[q, q]), |i| Scalar::from_f64(DType::F32, (i % 7) as f64 - 3.0));
    let w = b.constant(w).unwrap();
    let p = product(q + 3, q, q);
    let y = p.emit(&mut b, x, w);
    vec![Case::new(q, p.finish(b, y, After::Elements))]
}

fn prologue(q: usize, round: Round) -> Vec<Case> {
    let rows = round.divide(q, 64);
    let mut b = Builder::new();
    let (x, s, w) = (b.input(DType::F32, &[rows, 64]), b.input(DType::F32, &[rows]), b.input(DType::F32, &[64, 40]));
    let s = b.broadcast(s, &[rows, 64], &[0]).unwrap();
    let x = b.mul(x, s).unwrap();
    let p = product(rows, 64, 40);
    let y = p.emit(&mut b, x, w);
    vec![Case::new(rows * 64, p.finish(b, y, After::Elements))]
}

pub(super) const MAKERS: &[(&str, Maker)] = &[
    ("gemm.parallel", parallel),
    ("gemm.k_block", |q, _| {
        each(
            &[product(9, q, 20), product(30, q, 100), product(30, q, 100).turned(), product(9, q, 20).of(DType::BF16)],
            q,
        )
    }),
    ("gemm.tiles_k", |q, _| each(&[product(9, q, 20).of(DType::BF16), product(40, q, 50).turned().of(DType::BF16)], q)),
    ("gemm.strip", |q, _| each(&[product(q, 600, 100), product(q, 30, 40).turned()], q)),
    ("gemm.columns", |q, _| each(&[product(17, 40, q), product(40, 40, q).turned(), product(17, 520, q)], q)),
    ("gemm.direct_b", |q, round| {
        let k = round.divide(q, 1024);
        vec![product(30, k, 1024).plain(k * 1024)]
    }),
    ("gemm.packed_b", |q, round| {
        let n = round.divide(q, 2048);
        // Few rows, for which each part packs B for itself, and enough rows that B is packed once for all.
        let cases = [(2, After::Nothing), (2, After::Rows), (40, After::Rows)];
        let case = |(m, after)| Case::new(n * 2048, product(m, 2048, n).turned().graph(after));
        cases.map(case).into()
    }),
    ("gemm.packed_a", |q, _| vec![product(125, q, 97).plain(q)]),
    ("gemm.packed_a_columns", |q, _| each(&[product(20, 600, q), product(20, 600, q).of(DType::F64)], q)),
    ("gemm.spread", |q, _| each(&[product(40, 60, q)], q)),
    ("gemm.one_set_rows", |q, _| each(&[product(q, 60, 1024), product(q, 530, 512).of(DType::F64)], q)),
    ("gemm.whole_rows", |q, _| each(&[product(130, 20, q).of(DType::F64)], q)),
    // Every case runs on fewer threads than the threshold and on more.
    ("gemm.few_parts", |q, _| each(&[product(150, 90, 260), product(400, 64, 100).turned(), product(40, 600, 300)], q)),
    ("gemm.tiny", |q, _| {
        let shapes = [(q, q, q), (q, 3, 2), (2, q, 5), (3, 4, q), (1, q, q)];
        let narrow = shapes.iter().flat_map(|&(m, k, n)| {
            let all = product(m, k, n).batch(70);
            let half = product(m.div_ceil(2), k.div_ceil(2), n.div_ceil(2)).batch(70);
            [all.of(DType::BF16), all.of(DType::F16), all.turned().of(DType::BF16), half, half.turned()]
        });
        each(&narrow.collect::<Vec<_>>(), q)
    }),
    ("gemm.batches", |q, _| each(&[product(30, 100, 45).batch(q), product(1, 1000, 130).batch(q).turned()], q)),
    ("gemm.group", |q, _| each(&[product(40, 50, q).turned(), product(40, 50, q).of(DType::BF16)], q)),
    ("gemv.chunk", |q, _| each(&[product(1, 20, q), product(1, 70, q), product(1, 20, q).of(DType::BF16)], q)),
    ("gemv.streams", |q, _| each(&[product(1, q, 40), product(1, 2 * q, 40), product(1, q, 3)], q)),
    ("gemv.sums", |q, _| {
        let narrow = [q / 2, q / 2 + 17, q, q + 31, 2 * q + 40].map(|k| product(1, k, 5).turned().of(DType::BF16));
        each(
            &[vec![product(1, q, 5).turned(), product(7, q, 1), product(1, 2 * q, 5).turned()], narrow.to_vec()]
                .concat(),
            q,
        )
    }),
    ("gemv.along", |q, _| {
        each(
            &[product(1, q, 6).turned(), product(5, q, 1), product(1, q, 1), product(1, q, 6).turned().of(DType::F16)],
            q,
        )
    }),
    ("gemv.bytes", |q, _| {
        let sides = [product(1, q, 70), product(70, q, 1), product(1, q, 333)];
        let both = sides.into_iter().flat_map(|p| [p.of(DType::I8), p.turned().of(DType::I8)]);
        both.map(|p| Case::new(q, p.graph(After::Nothing))).collect()
    }),
    ("gemv.streamed", |q, round| {
        let n = round.divide(q, 250);
        each(&[product(1, 250, n).turned(), product(n, 250, 1), product(1, 250, n).turned().of(DType::BF16)], n * 250)
    }),
    ("gemv.chain", |q, _| each(&[product(1, q, 50), product(1, q, 50).of(DType::BF16), product(1, q, 2100)], q)),
    ("load.packed_ahead", constant),
    ("products.prologue", prologue),
    ("products.whole_row", |q, _| each(&[product(3, 30, q), product(1, 90, q), product(40, 30, q).turned()], q)),
];
