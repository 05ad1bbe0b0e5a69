//! Matmuls whose operands are computed while they are packed, or packed when the program is loaded.

mod harness;

use compiler::program::{MatmulOperand, Step};
use harness::{Random, close, load, run};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type, Unary, interp};
use tensorloom_cpu::Cpu;

fn inputs(g: &Graph) -> Vec<Literal> {
    let mut r = Random(11);
    g.input_types().iter().map(|t| r.literal(t)).collect()
}

/// Returns the number of computed operands, after comparing the results with the interpreter.
fn computed(g: &Graph) -> usize {
    let x = inputs(g);
    let want = interp::run(g, &x).unwrap();
    let mut count = 0;
    for threads in [1, 2] {
        let cpu = Cpu::new(threads);
        let exe = load(&cpu, g, true);
        let is = |f: &MatmulOperand| matches!(f, MatmulOperand::Computed(_)) as usize;
        let products = exe.program().steps.iter();
        count = products.map(|s| if let Step::Matmul { a, b, .. } = s { is(a) + is(b) } else { 0 }).sum();
        let narrow = g.output_types().iter().any(|t| t.dtype.size() == 2);
        close("computed", &run(&cpu, g, &x, true), &want, if narrow { 2e-2 } else { 2e-5 });
    }
    count
}

#[test]
fn arithmetic_in_front_of_a_product_is_done_while_packing() {
    // Normalized rows times a weight, as before every projection of a transformer, on either side.
    let mut b = Builder::new();
    let (x, r, w, p) = (
        b.input(DType::F32, &[96, 80]),
        b.input(DType::F32, &[96]),
        b.input(DType::F32, &[80]),
        b.input(DType::F32, &[80, 112]),
    );
    let rows = b.broadcast(r, &[96, 80], &[0]).unwrap();
    let cols = b.broadcast(w, &[96, 80], &[1]).unwrap();
    let n = b.mul(x, rows).unwrap();
    let n = b.mul(n, cols).unwrap();
    let y = b.matmul(n, p).unwrap();
    let t = b.permute(n, &[1, 0]).unwrap();
    let z = b.matmul(t, y).unwrap();
    assert_eq!(computed(&b.finish(&[y, z])), 2);

    // Both operands, batched, converted to the matmul's dtype.
    for narrow in [DType::BF16, DType::F16] {
        let mut b = Builder::new();
        let (x, y) = (b.input(DType::F32, &[3, 40, 64]), b.input(DType::F32, &[3, 64, 48]));
        let (x, y) = (b.cast(x, narrow).unwrap(), b.cast(y, narrow).unwrap());
        let axes = |list: &[usize]| list.iter().copied().collect();
        let dot = ir::ops::Dot {
            lhs_batch: axes(&[0]),
            rhs_batch: axes(&[0]),
            lhs_contract: axes(&[2]),
            rhs_contract: axes(&[1]),
            acc: DType::F32,
            out: narrow,
        };
        let z = b.emit(dot.into(), &[x, y]).unwrap()[0];
        assert_eq!(computed(&b.finish(&[z])), 2, "{narrow}");
    }
}

#[test]
fn what_others_read_or_costs_much_is_kept() {
    let mut b = Builder::new();
    let (x, p) = (b.input(DType::F32, &[96, 80]), b.input(DType::F32, &[80, 112]));
    let e = b.unary(Unary::Exp, x).unwrap();
    let y = b.matmul(e, p).unwrap();
    let s = b.scale(x, 2.0).unwrap();
    let z = b.matmul(s, p).unwrap();
    let t = b.sum(s, &[0]).unwrap();
    let g = b.finish(&[y, z, t]);
    assert_eq!(computed(&g), 0);
}

#[test]
fn constant_factors_are_packed_ahead() {
    let mut r = Random(5);
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12), (DType::BF16, 2e-2)] {
        for turned in [false, true] {
            let shape: &[usize] = if turned { &[130, 70] } else { &[70, 130] };
            let w = r.literal(&Type::new(dtype, shape));
            let mut b = Builder::new();
            let x = b.input(dtype, &[3, 50, 70]);
            let w = b.constant(w).unwrap();
            let w = if turned { b.permute(w, &[1, 0]).unwrap() } else { w };
            let rows = b.reshape(x, &[150, 70]).unwrap();
            let y = b.matmul(rows, w).unwrap();
            let g = b.finish(&[y]);
            let x = inputs(&g);
            for threads in [1, 2] {
                close("packed ahead", &run(&Cpu::new(threads), &g, &x, true), &interp::run(&g, &x).unwrap(), tolerance);
            }
        }
    }
}

/// `act(x·w + r)` normalized along each row, and the row before normalization, as between two layers of a transformer.
fn row_epilogue(dtype: DType, [batch, m, k, n]: [usize; 4], turned: bool, computed: bool) -> Graph {
    let mut b = Builder::new();
    let lead: &[usize] = if batch == 1 { &[] } else { &[batch] };
    let of = |tail: [usize; 2]| [lead, &tail].concat();
    let (x, w) = (b.input(dtype, &of([m, k])), b.input(dtype, &of(if turned { [n, k] } else { [k, n] })));
    let r = b.input(dtype, &of([m, n]));
    let x = if computed { b.scale(x, 0.5).unwrap() } else { x };
    let axis = |i: usize| [lead.len() + i].into_iter().collect();
    let dot = ir::ops::Dot {
        lhs_batch: (0..lead.len()).collect(),
        rhs_batch: (0..lead.len()).collect(),
        lhs_contract: axis(1),
        rhs_contract: axis(turned as usize),
        acc: dtype.accumulator(),
        out: dtype,
    };
    let y = b.emit(dot.into(), &[x, w]).unwrap()[0];
    let y = b.add(y, r).unwrap();
    let squares = b.mul(y, y).unwrap();
    let total = b.sum(squares, &[lead.len() + 1]).unwrap();
    let scale = b.unary(Unary::Rsqrt, total).unwrap();
    let dims: Vec<usize> = (0..=lead.len()).collect();
    let scale = b.broadcast(scale, &of([m, n]), &dims).unwrap();
    let z = b.mul(y, scale).unwrap();
    b.finish(&[z, y])
}

#[test]
fn epilogues_over_rows_see_whole_rows_however_the_product_is_split() {
    let mut fused = 0;
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12), (DType::BF16, 2e-2)] {
        for shape @ [_, _, _, n] in [
            [1, 1, 1024, 128],
            [1, 1, 512, 512],
            [1, 1, 300, 1000],
            [1, 1, 5000, 24],
            [1, 5, 400, 130],
            [1, 70, 96, 100],
            [1, 130, 40, 1],
            [3, 1, 400, 256],
            [8, 1, 64, 512],
            [2, 9, 200, 300],
        ] {
            for turned in [false, true] {
                for computed in [false, true] {
                    let g = row_epilogue(dtype, shape, turned, computed);
                    let x = inputs(&g);
                    let want = interp::run(&g, &x).unwrap();
                    let mut first = None;
                    for threads in [1, 2, 3, 5] {
                        let cpu = Cpu::new(threads);
                        let exe = load(&cpu, &g, true);
                        let whole = |s: &Step| matches!(s, Step::Matmul { epilogue: Some(e), .. } if e.needs_full_rows);
                        fused += exe.program().steps.iter().filter(|s| whole(s)).count();
                        let got = run(&cpu, &g, &x, true);
                        let what = format!("{dtype} {shape:?} turned {turned} computed {computed} threads {threads}");
                        close(&what, &got, &want, tolerance * if n == 1 { 2.0 } else { 1.0 });
                        harness::same(&what, &got, first.get_or_insert_with(|| got.clone()));
                    }
                }
            }
        }
    }
    assert!(fused > 200, "only {fused} products finished whole rows");
}

#[test]
fn products_of_integers_are_exact() {
    let mut r = Random(31);
    for (m, k, n) in [(1, 1, 1), (5, 7, 9), (33, 130, 65), (1, 3000, 70), (40, 4100, 1), (128, 64, 96), (3, 5, 0)] {
        for (dtype, acc, out) in [
            (DType::I8, DType::I32, DType::I32),
            (DType::I8, DType::I8, DType::I8),
            (DType::I8, DType::I32, DType::I64),
            (DType::I8, DType::I32, DType::I8),
            (DType::I32, DType::I32, DType::I32),
            (DType::I32, DType::I32, DType::I8),
        ] {
            for turned in [false, true] {
                let mut b = Builder::new();
                let x = b.input(dtype, &[m, k]);
                let right = if turned { [n, k] } else { [k, n] };
                let y = b.input(dtype, &right);
                let dot = if turned { ir::ops::Dot::last_axes(dtype, 2, 2) } else { ir::ops::Dot::matmul(dtype) };
                let z = b.one(ir::ops::Dot { acc, out, ..dot }.into(), &[x, y]).unwrap();
                let twice = b.add(z, z).unwrap();
                let g = b.finish(&[z, twice]);
                // The whole range of a byte; sums of wider integers wrap.
                let scale = if dtype == DType::I8 { 1 } else { 1 << 20 };
                let inputs: Vec<Literal> = g
                    .input_types()
                    .iter()
                    .map(|t| {
                        let number = |_| ir::Scalar::from_i64(t.dtype, (r.below(256) as i64 - 128) * scale);
                        Literal::from_fn(t.clone(), number)
                    })
                    .collect();
                let want = interp::run(&g, &inputs).unwrap();
                for threads in [1, 2, 3, 16] {
                    let what = format!("{dtype} {m}x{k}x{n} in {acc} as {out}, {threads} threads");
                    harness::same(&what, &run(&Cpu::new(threads), &g, &inputs, true), &want);
                }
            }
        }
    }
}
