//! `dynamic_update_slice` on a donated input runs in place and writes only the slice.

use compiler::program::Step;
use compiler::{Backend, Bindings, Options};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, interp};
use std::sync::Arc;
use tensorloom_cpu::Cpu;

struct Case {
    dtype: DType,
    whole: Vec<usize>,
    part: Vec<usize>,
    /// The dtype and value of each start index.
    starts: Vec<(DType, i64)>,
}

/// The cache, a computed update, and the starts; returns the new cache and a sum of it.
fn graph(case: &Case) -> Graph {
    let mut b = Builder::new();
    let x = b.graph.input(Type::new(case.dtype, &case.whole));
    let u = b.graph.input(Type::new(case.dtype, &case.part));
    let starts: Vec<_> = case.starts.iter().map(|(dtype, _)| b.graph.input(Type::scalar(*dtype))).collect();
    let u = b.add(u, u).expect("adds");
    let y = b.dynamic_update_slice(x, u, &starts).expect("fits");
    let read = b.sum_all(y).expect("sums");
    b.finish(&[y, read])
}

fn check(case: &Case, in_place: bool) {
    let (graph, cpu) = (graph(case), Cpu::new(2));
    let options = Options { donate: vec![(0, 0)], ..Options::default() };
    let program = compiler::compile(&graph, &cpu, &options).expect("compiles");
    let scatters =
        program.steps.iter().any(|s| matches!(s, Step::Library { op, .. } if matches!(**op, Op::Scatter(_))));
    assert_eq!(scatters, in_place, "{:?} into {:?}", case.part, case.whole);
    assert_eq!(program.donated, [(0, 0)], "{:?} into {:?}", case.part, case.whole);
    let mut seed = 7u64;
    let mut inputs: Vec<Literal> = graph.input_types()[..2]
        .iter()
        .map(|ty| {
            Literal::from_fn(ty.clone(), |_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Scalar::from_f64(ty.dtype, ((seed >> 40) % 64) as f64)
            })
        })
        .collect();
    for (dtype, start) in &case.starts {
        inputs.push(Literal::from_fn(Type::scalar(*dtype), |_| Scalar::from_f64(*dtype, *start as f64)));
    }
    let want = interp::run(&graph, &inputs).expect("runs");
    let put = |l: &Literal| {
        let buffer = cpu.alloc(l.ty().bytes()).expect("room");
        buffer.write(0, l.bytes()).expect("written");
        buffer
    };
    let inputs: Vec<_> = inputs.iter().map(put).collect();
    let sum = cpu.alloc(want[1].ty().bytes()).expect("room");
    let exe = cpu.load(program).expect("loads");
    let outputs = vec![Arc::clone(&inputs[0]), Arc::clone(&sum)];
    exe.run(&mut Bindings { inputs: inputs.clone(), outputs }).expect("runs");
    for (buffer, want) in [(&inputs[0], &want[0]), (&sum, &want[1])] {
        let mut found = vec![0; want.ty().bytes()];
        buffer.read(0, &mut found).expect("read");
        assert_eq!(found, want.bytes(), "{:?} into {:?} at {:?}", case.part, case.whole, case.starts);
    }
}

#[test]
fn updates_of_donated_inputs_touch_their_slice_alone() {
    for dtype in [DType::F32, DType::BF16, DType::I8] {
        for start in [-5, 0, 3, 60, 63, 64, 1000] {
            let at = |dtypes: [DType; 4]| vec![(dtypes[0], 0), (dtypes[1], 7), (dtypes[2], start), (dtypes[3], 0)];
            let (i, l) = (DType::I32, DType::I64);
            // One position and several, with other start indices along axes that are written completely.
            let whole = vec![1, 4, 64, 8];
            for part in [vec![1, 4, 1, 8], vec![1, 4, 5, 8], vec![1, 1, 2, 8], vec![1, 2, 3, 4], vec![1, 4, 32, 8]] {
                check(&Case { dtype, whole: whole.clone(), part: part.clone(), starts: at([i, i, i, i]) }, true);
                check(&Case { dtype, whole: whole.clone(), part, starts: at([l, i, l, i]) }, true);
            }
            // If more than half is written, a kernel copies the whole array.
            check(&Case { dtype, whole: whole.clone(), part: vec![1, 4, 33, 8], starts: at([i, i, i, i]) }, false);
            check(&Case { dtype, whole, part: vec![1, 4, 64, 8], starts: at([i, i, i, i]) }, false);
        }
    }
    check(&Case { dtype: DType::F32, whole: vec![9], part: vec![2], starts: vec![(DType::I32, 4)] }, true);
}

/// A scatter works in its result's memory, unless other ops read the operand or the result replaces an input.
#[test]
fn what_is_scattered_into_is_made_where_it_goes() {
    use ir::ops::{ScatterKind, ScatterMode, SliceDims};
    let graph = |read: bool| {
        let mut b = Builder::new();
        let (ids, updates) = (b.input(DType::I32, &[300]), b.input(DType::F32, &[300, 5]));
        let zeros = b.zeros(&Type::new(DType::F32, &[40, 5])).expect("zeros");
        let ones = b.scale(zeros, 0.5).expect("scales");
        let base = if read { b.unary(ir::Unary::Exp, ones).expect("a map") } else { ones };
        let at = b.index_vectors(ids).expect("vectors");
        let mut last = base;
        for kind in [ScatterKind::Add, ScatterKind::Max] {
            last = b.scatter(kind, SliceDims::take(2, 0, 1), ScatterMode::Drop, last, at, updates).expect("fits");
        }
        let outs = if read { vec![last, base] } else { vec![last] };
        b.finish(&outs)
    };
    for read in [false, true] {
        let (g, cpu) = (graph(read), Cpu::new(2));
        let program = compiler::compile(&g, &cpu, &Options::default()).expect("compiles");
        let places: Vec<bool> = program
            .steps
            .iter()
            .filter_map(|s| match s {
                Step::Library { op, args, outs } if matches!(**op, Op::Scatter(_)) => Some(args[0].0 == outs[0].0),
                _ => None,
            })
            .collect();
        // The operand of the first scatter is read by other ops; that of the second is not.
        assert_eq!(places, [!read, true]);
        let mut seed = 3u64;
        let inputs: Vec<Literal> = g
            .input_types()
            .into_iter()
            .map(|ty| {
                Literal::from_fn(ty.clone(), |_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    Scalar::from_f64(ty.dtype, ((seed >> 40) % 45) as f64 - 2.0)
                })
            })
            .collect();
        let want = interp::run(&g, &inputs).expect("runs");
        let exe = cpu.load(program).expect("loads");
        let mut bindings = Bindings::for_program(exe.program(), &cpu).expect("room");
        for _ in 0..2 {
            bindings.inputs.iter().zip(&inputs).for_each(|(b, l)| b.write(0, l.bytes()).expect("written"));
            exe.run(&mut bindings).expect("runs");
            for (buffer, want) in bindings.outputs.iter().zip(&want) {
                let mut got = vec![0; want.bytes().len()];
                buffer.read(0, &mut got).expect("read");
                assert_eq!(got, want.bytes());
            }
        }
    }
}
