//! Matmuls of bf16 and i8 on AMX tiles: with AMX instructions where the machine has them, otherwise emulated.

mod harness;

use harness::{Random, close, run, same};
use ir::ops::Dot;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Scalar, Unary, interp};
use tensorloom_cpu::Cpu;
use tensorloom_cpu::gemm::Isa;

/// `[batch, m, k]·[batch, k, n]` with either operand transposed, and the ops before and after it.
#[derive(Clone, Copy, Debug)]
struct Product {
    dtype: DType,
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    turned: [bool; 2],
    around: Around,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Around {
    Nothing,
    /// The left operand is computed; a bias and a function follow.
    Elements,
    /// The right operand is a constant that is packed when the program is loaded.
    Constant,
    /// The sum of squares of each row is added to its elements.
    Rows,
}

fn graph(p: Product) -> Graph {
    let mut b = Builder::new();
    let lead = (p.batch > 1) as usize;
    let shape = |tail: [usize; 2], turned: bool| {
        let tail = if turned { [tail[1], tail[0]] } else { tail };
        if lead == 1 { vec![p.batch, tail[0], tail[1]] } else { tail.to_vec() }
    };
    let mut x = b.input(p.dtype, &shape([p.m, p.k], p.turned[0]));
    if p.around == Around::Elements {
        x = b.add(x, x).unwrap();
    }
    let right = ir::Type::new(p.dtype, &shape([p.k, p.n], p.turned[1]));
    let w = if p.around == Around::Constant {
        let w = Literal::from_fn(right, |i| Scalar::from_i64(DType::I64, i as i64 % 11 - 5).cast(p.dtype));
        b.constant(w).unwrap()
    } else {
        b.input(p.dtype, &right.shape)
    };
    let acc = if p.dtype == DType::I8 { DType::I32 } else { DType::F32 };
    let dot = Dot {
        lhs_batch: (0..lead).collect(),
        rhs_batch: (0..lead).collect(),
        lhs_contract: [lead + !p.turned[0] as usize].into_iter().collect(),
        rhs_contract: [lead + p.turned[1] as usize].into_iter().collect(),
        acc,
        out: if p.dtype == DType::I8 { DType::I32 } else { p.dtype },
    };
    let y = b.one(dot.into(), &[x, w]).unwrap();
    let out = b.ty(y);
    let axis = out.rank() - 1;
    let y = match p.around {
        Around::Nothing | Around::Constant => y,
        Around::Elements => {
            let bias = b.input(out.dtype, &[p.n]);
            let bias = b.broadcast(bias, &out.shape, &[axis]).unwrap();
            let y = b.add(y, bias).unwrap();
            if out.dtype.is_float() { b.unary(Unary::Tanh, y).unwrap() } else { b.mul(y, y).unwrap() }
        }
        Around::Rows => {
            let squares = b.mul(y, y).unwrap();
            let total = b.sum(squares, &[axis]).unwrap();
            let dims: Vec<usize> = (0..axis).collect();
            let total = b.broadcast(total, &out.shape, &dims).unwrap();
            b.add(y, total).unwrap()
        }
    };
    b.finish(&[y])
}

fn check(p: Product, r: &mut Random) {
    let g = graph(p);
    let x: Vec<Literal> = g.input_types().iter().map(|t| r.literal(t)).collect();
    let want = interp::run(&g, &x).unwrap();
    let mut first = None;
    for threads in [1, 2, 3, 16] {
        let what = format!("{p:?}, {threads} threads");
        let got = run(&Cpu::new(threads), &g, &x, true);
        match p.dtype {
            DType::I8 => same(&what, &got, &want),
            _ => close(&what, &got, &want, 2e-2),
        }
        same(&what, &got, first.get_or_insert_with(|| got.clone()));
    }
}

/// Sizes near one and two tiles, and near a k-block; all transposes; a sample of the surrounding ops.
#[test]
fn products_on_tiles_are_those_of_the_interpreter() {
    let here = tensorloom_cpu::gemm::emulate_tiles();
    println!("tiles: {}", if here { "instructions of this machine" } else { "emulated" });
    if Isa::detect() != Isa::Avx512 {
        return println!("a machine without AVX-512 takes another way");
    }
    let mut r = Random(11);
    let sides = [1usize, 2, 7, 15, 16, 17, 31, 32, 33, 40, 47, 65];
    let depths = [1usize, 2, 3, 31, 32, 33, 63, 64, 65, 127, 130];
    let around = [Around::Nothing, Around::Elements, Around::Constant, Around::Rows];
    for dtype in [DType::BF16, DType::I8] {
        for (i, &m) in sides.iter().enumerate() {
            for (j, &n) in sides.iter().enumerate().filter(|(j, _)| (i + j) % 3 == 0) {
                let at = i * sides.len() + j;
                let turned = [at & 1 == 1, at & 2 == 2];
                let (k, around) = (depths[at % depths.len()], around[at / 3 % 4]);
                check(Product { dtype, batch: 1 + 2 * (at % 5 == 0) as usize, m, k, n, turned, around }, &mut r);
            }
        }
        // Several blocks of k, of rows and of columns; enough work for several threads.
        for (m, k, n) in [(40, 511, 70), (33, 513, 48), (17, 1024, 16), (130, 300, 290), (64, 1100, 64), (35, 2049, 33)]
        {
            for (i, around) in around.into_iter().enumerate() {
                let turned = [i & 1 == 1, i & 2 == 2];
                check(Product { dtype, batch: 1, m, k, n, turned, around }, &mut r);
            }
        }
    }
}

/// The padding of tiles must not be multiplied by infinities of the operands.
#[test]
fn what_fills_tiles_up_meets_no_infinity() {
    tensorloom_cpu::gemm::emulate_tiles();
    for k in [1usize, 5, 33] {
        let p =
            Product { dtype: DType::BF16, batch: 1, m: 5, k, n: 7, turned: [false, false], around: Around::Nothing };
        let g = graph(p);
        let x: Vec<Literal> = g
            .input_types()
            .iter()
            .enumerate()
            .map(|(i, t)| {
                let fill = [f64::INFINITY, 2.0][i];
                Literal::from_fn(t.clone(), |_| Scalar::from_f64(DType::BF16, fill))
            })
            .collect();
        let got = run(&Cpu::new(1), &g, &x, true);
        assert!(got[0].scalars().all(|s| s.to_f64() == f64::INFINITY), "{k}: {:?}", got[0].get(0));
    }
}
