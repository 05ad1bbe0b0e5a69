//! Invalid operands give structured errors; nothing panics, and every graph that type-checks runs.

use ir::attr::Attr;
use ir::ops::*;
use ir::types::Shape;
use ir::{Binary, Builder, Compare, DType, Error, Graph, GraphBuilder, InferError, Literal, Op, Type, Unary, interp};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tensorloom_testing::coverage::{each_graph, op_name};
use tensorloom_testing::{FillKind, Rng, rng::run_seed, samples};

/// Every op in the samples, with suitable operand types; including sub-graphs.
fn calls() -> Vec<(Op, Vec<Type>)> {
    let mut calls = Vec::new();
    for row in samples::all_samples() {
        each_graph(&row.graph, &mut |graph| {
            for node in graph.nodes() {
                calls.push((node.op.clone(), node.args.iter().map(|&a| graph.ty(a).clone()).collect()));
            }
        });
    }
    calls
}

/// Whether an op is or contains a collective, which cannot run alone; the tests in `sharded` run them.
fn talks(op: &Op) -> bool {
    fn within(attr: &Attr) -> bool {
        match attr {
            Attr::Graph(g) => g.nodes().iter().any(|n| talks(&n.op)),
            Attr::List(items) => items.iter().any(within),
            _ => false,
        }
    }
    matches!(op, Op::Collective(_)) || op.attrs().iter().any(|(_, attr)| within(attr))
}

/// The types with one random change.
fn disturbed(types: &[Type], rng: &mut Rng) -> Vec<Type> {
    let mut types = types.to_vec();
    const SIZES: [usize; 8] = [0, 1, 2, 3, 7, 1 << 20, 1 << 40, usize::MAX / 2];
    if types.is_empty() || rng.bernoulli(0.1) {
        let extra = Type::new(*rng.pick(&DType::ALL), &[2]);
        types.insert(rng.below(types.len() + 1), extra);
        return types;
    }
    let i = rng.below(types.len());
    let rank = types[i].rank();
    match rng.below(7) {
        0 => {
            types.remove(i);
        }
        1 => types[i].dtype = *rng.pick(&DType::ALL),
        2 => types[i].shape.insert(rng.below(rank + 1), *rng.pick(&SIZES)),
        3 if rank > 0 => {
            types[i].shape.remove(rng.below(rank));
        }
        4 if rank > 0 => types[i].shape[rng.below(rank)] = *rng.pick(&SIZES),
        5 => types[i] = Type::scalar(types[i].dtype),
        _ => {
            let j = rng.below(types.len());
            types.swap(i, j);
        }
    }
    types
}

#[test]
fn disturbed_operands_never_panic_and_what_type_checks_runs() {
    let seed = run_seed();
    let mut rng = Rng::new(seed);
    let calls = calls();
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut ran, mut names) = (0, Vec::new());
    for (op, types) in &calls {
        let name = op_name(op);
        for _ in 0..6 {
            let bad = disturbed(types, &mut rng);
            // Types are created by `Type::checked`: a type that does not fit in memory cannot be an operand.
            if bad.iter().any(|t| Type::checked(t.dtype, &t.shape).is_err()) {
                continue;
            }
            let place = || format!("seed {seed}: {name} of {bad:?}, attributes {:?}", op.attrs());
            let inferred =
                catch_unwind(|| op.infer(&bad)).unwrap_or_else(|_| panic!("inference panicked: {}", place()));
            let outs = match inferred {
                Err(_) => {
                    *refused.entry(name.clone()).or_default() += 1;
                    continue;
                }
                Ok(outs) => outs,
            };
            for t in &outs {
                assert!(Type::checked(t.dtype, &t.shape).is_ok(), "too large a result: {}", place());
            }
            // A tensor with an axis of 2⁴⁰ and one of 0 has no elements, but a contraction may still iterate over the axis.
            let small = bad.iter().chain(&outs).all(|t| t.shape.iter().map(|d| d.max(&1)).product::<usize>() <= 2_000);
            if !small || matches!(op, Op::While(_)) {
                continue;
            }
            let args: Vec<Literal> = bad.iter().map(|t| FillKind::Special.random_tensor(t, &mut rng)).collect();
            let result = catch_unwind(AssertUnwindSafe(|| interp::eval(op, &args, &outs)));
            let values = result.unwrap_or_else(|_| panic!("evaluation panicked: {}", place()));
            if talks(op) && values.is_err() {
                continue;
            }
            let values = values.unwrap_or_else(|e| panic!("it type-checks but does not run ({e}): {}", place()));
            let types: Vec<Type> = values.iter().map(|v| v.ty().clone()).collect();
            assert_eq!(types, outs, "{}", place());
            ran += 1;
        }
        names.push(name);
    }
    names.sort();
    names.dedup();
    println!("{} calls of {} ops disturbed: {ran} ran, refused {refused:?}", calls.len(), names.len());
    let spared: Vec<_> = names.iter().filter(|n| !refused.contains_key(*n)).collect();
    assert!(spared.is_empty(), "never refused: {spared:?}");
}

fn ty(text: &str) -> Type {
    tensorloom_testing::golden::parse_type(text).unwrap()
}

/// The name of an error's kind.
fn kind(p: &InferError) -> &'static str {
    match p {
        InferError::Arity { .. } => "arity",
        InferError::DType { .. } => "dtype",
        InferError::DTypes(..) => "dtypes",
        InferError::Shapes(..) => "shapes",
        InferError::Axis { .. } => "axis",
        InferError::RepeatedAxis(_) => "repeated",
        InferError::TooLarge { .. } => "large",
        InferError::Other(_) => "other",
    }
}

fn shape(s: &[usize]) -> Shape {
    Shape::from_slice(s)
}

#[test]
fn bad_calls_say_what_is_wrong() {
    const HUGE: usize = usize::MAX / 4;
    let huge = format!("f32[{HUGE}]");
    let dot = |lc: &[usize], rc: &[usize]| Dot {
        lhs_contract: shape(lc),
        rhs_contract: shape(rc),
        ..Dot::matmul(DType::F32)
    };
    let windows = |strides: usize, low: i64| WindowConfig {
        strides: shape(&[strides]),
        low: [low][..].into(),
        ..WindowConfig::unit_stride(1)
    };
    let pad = |low: i64, high: i64, interior: usize| Pad {
        low: [low][..].into(),
        high: [high][..].into(),
        interior: shape(&[interior]),
    };
    let take = |axis| Gather::take(&ty("f32[4,3]"), axis, 1, GatherMode::Clip);
    let body = || {
        let mut b = Builder::new();
        let (h, x) = (b.input(DType::F32, &[2]), b.input(DType::F32, &[2]));
        let y = b.add(h, x).unwrap();
        b.finish(&[y, y])
    };
    let long = format!("f32[{HUGE},2]");
    #[rustfmt::skip]
    let table: Vec<(Op, Vec<&str>, &str)> = vec![
        (Unary::Exp.into(), vec!["f32[2]", "f32[2]"], "arity"),
        (Unary::Exp.into(), vec!["i32[2]"], "dtype"),
        (Unary::Not.into(), vec!["f32[2]"], "dtype"),
        (Unary::PopulationCount.into(), vec!["bool[2]"], "dtype"),
        (Binary::Add.into(), vec!["f32[2]"], "arity"),
        (Binary::Add.into(), vec!["f32[2]", "f64[2]"], "dtypes"),
        (Binary::Add.into(), vec!["f32[2]", "f32[3]"], "shapes"),
        (Binary::Add.into(), vec!["f32[2]", "f32[]"], "shapes"),
        (Binary::Add.into(), vec!["bool[2]", "bool[2]"], "dtype"),
        (Binary::Shl.into(), vec!["f32[2]", "f32[2]"], "dtype"),
        (Compare::Eq.into(), vec!["f32[2]", "i32[2]"], "dtypes"),
        (Select.into(), vec!["i32[2]", "f32[2]", "f32[2]"], "dtype"),
        (Select.into(), vec!["bool[3]", "f32[2]", "f32[2]"], "shapes"),
        (Clamp.into(), vec!["f32[2]", "f32[2]", "f32[]"], "shapes"),
        (Fma.into(), vec!["bool[2]", "bool[2]", "bool[2]"], "dtype"),
        (Cast(DType::F64).into(), vec!["bool[4611686018427387904]"], "large"),
        (Quantize(DType::I8).into(), vec!["i32[2]"], "dtype"),
        (Bitcast(DType::F32).into(), vec!["f64[2]"], "other"),
        (Iota {dtype: DType::Bool, shape: shape(&[2]), axis: 0 } .into(), vec![], "other"),
        (Iota {dtype: DType::I32, shape: shape(&[2]), axis: 1 } .into(), vec![], "axis"),
        (Iota {dtype: DType::I32, shape: shape(&[HUGE, HUGE]), axis: 1 } .into(), vec![], "large"),
        (Reshape { shape: shape(&[5]) }.into(), vec!["f32[2,3]"], "other"),
        (Reshape {shape: shape(&[HUGE, 16]) } .into(), vec!["f32[2,3]"], "large"),
        (Permute { perm: shape(&[0, 2]) }.into(), vec!["f32[2,3]"], "axis"),
        (Permute { perm: shape(&[0, 0]) }.into(), vec!["f32[2,3]"], "repeated"),
        (Permute { perm: shape(&[0]) }.into(), vec!["f32[2,3]"], "other"),
        (Broadcast {shape: shape(&[2, 3]), dims: shape(&[0]) } .into(), vec!["f32[3]"], "other"),
        (Broadcast {shape: shape(&[3]), dims: shape(&[1]) } .into(), vec!["f32[3]"], "axis"),
        (Broadcast {shape: shape(&[HUGE, 3, 4]), dims: shape(&[1]) } .into(), vec!["f32[3]"], "large"),
        (Slice {start: shape(&[2]), limit: shape(&[1]), stride: shape(&[1]) } .into(), vec!["f32[3]"], "other"),
        (Slice {start: shape(&[0]), limit: shape(&[4]), stride: shape(&[1]) } .into(), vec!["f32[3]"], "other"),
        (Slice {start: shape(&[0]), limit: shape(&[3]), stride: shape(&[0]) } .into(), vec!["f32[3]"], "other"),
        (pad(-2, -2, 0).into(), vec!["f32[3]", "f32[]"], "other"),
        (pad(i64::MAX, i64::MAX, 0).into(), vec!["f32[3]", "f32[]"], "large"),
        (pad(0, 0, usize::MAX).into(), vec!["f32[3]", "f32[]"], "large"),
        (pad(1, 1, 0).into(), vec!["f32[3]", "f32[1]"], "other"),
        (pad(1, 1, 0).into(), vec!["f32[3]", "f64[]"], "dtypes"),
        (Flip { axes: shape(&[1]) }.into(), vec!["f32[3]"], "axis"),
        (Flip { axes: shape(&[0, 0]) }.into(), vec!["f32[3]"], "repeated"),
        (Concat { axis: 0 }.into(), vec![], "arity"),
        (Concat { axis: 0 }.into(), vec!["f32[]"], "axis"),
        (Concat { axis: 0 }.into(), vec!["f32[2,3]", "f32[2,2]"], "shapes"),
        (Concat { axis: 0 }.into(), vec![&huge, &huge, &huge], "large"),
        (Reduce {kind: ReduceKind::Sum, axes: shape(&[2]) } .into(), vec!["f32[2,3]"], "axis"),
        (Reduce {kind: ReduceKind::Sum, axes: shape(&[1, 1]) } .into(), vec!["f32[2,3]"], "repeated"),
        (Reduce {kind: ReduceKind::Sum, axes: shape(&[0]) } .into(), vec!["bool[2]"], "dtype"),
        (Reduce {kind: ReduceKind::Any, axes: shape(&[0]) } .into(), vec!["f32[2]"], "dtype"),
        (Cumulative {kind: ReduceKind::Sum, axis: 1, reverse: false } .into(), vec!["f32[2]"], "axis"),
        (ArgReduce {max: true, axis: 0, index: DType::U8 } .into(), vec!["f32[2]"], "other"),
        (ArgReduce {max: true, axis: 0, index: DType::I32 } .into(), vec!["f32[0]"], "other"),
        (dot(&[1], &[0]).into(), vec!["f32[2,3]", "f32[4,2]"], "other"),
        (dot(&[2], &[0]).into(), vec!["f32[2,3]", "f32[3,2]"], "axis"),
        (dot(&[1], &[]).into(), vec!["f32[2,3]", "f32[3,2]"], "other"),
        (dot(&[], &[]).into(), vec![&huge, &huge], "large"),
        (dot(&[1], &[0]).into(), vec!["i32[2,3]", "i32[3,2]"], "other"),
        (RaggedDot::rows(DType::F32).into(), vec!["f32[4,2]", "f32[2,2,3]", "f32[3]"], "dtype"),
        (RaggedDot::rows(DType::F32).into(), vec!["f32[4,2]", "f32[2,2,3]", "i32[7]"], "other"),
        (Conv::new(DType::F32, windows(0, 0)).into(), vec!["f32[1,1,3]", "f32[1,1,2]"], "other"),
        (Conv::new(DType::F32, windows(1, -9)).into(), vec!["f32[1,1,3]", "f32[1,1,2]"], "other"),
        (Conv::new(DType::F32, windows(1, 0)).into(), vec!["f32[1,2,3]", "f32[1,1,2]"], "other"),
        (take(0).into(), vec!["f32[4,3]", "f32[2,1]"], "dtype"),
        (take(0).into(), vec!["f32[4,3]", "i32[2,2]"], "other"),
        (take(0).into(), vec!["f32[4,3]", "i32[]"], "other"),
        (DynamicSlice { sizes: shape(&[5]) }.into(), vec!["f32[4]", "i32[]"], "other"),
        (DynamicSlice { sizes: shape(&[2]) }.into(), vec!["f32[4]"], "arity"),
        (DynamicSlice { sizes: shape(&[2]) }.into(), vec!["f32[4]", "f32[]"], "dtype"),
        (DynamicUpdateSlice.into(), vec!["f32[4]", "f64[2]", "i32[]"], "dtypes"),
        (Threefry2x32.into(), vec!["i32[2]"; 4], "dtype"),
        (Sort {axis: 0, num_keys: 2, descending: false } .into(), vec!["f32[2]"], "other"),
        (TopK { k: 3, axis: 0 }.into(), vec!["f32[2]"], "other"),
        (TopK { k: 1, axis: 1 }.into(), vec!["f32[2]"], "axis"),
        (TakeAlong { axis: 0 }.into(), vec!["f32[2]", "f32[2]"], "dtype"),
        (PutAlong {axis: 0, size: usize::MAX } .into(), vec!["f32[2]", "i32[2]"], "large"),
        (Fft {kind: FftKind::Forward, axes: shape(&[0]) } .into(), vec!["f16[2]", "f16[2]"], "dtype"),
        (Fft {kind: FftKind::Real, axes: shape(&[3]) } .into(), vec!["f32[2]"], "axis"),
        (Cholesky.into(), vec!["f32[2,3]"], "other"),
        (Cholesky.into(), vec!["f16[2,2]"], "dtype"),
        (Eigh.into(), vec!["f32[2]"], "other"),
        (Svd { vectors: true }.into(), vec!["i32[2,2]"], "dtype"),
        (Scan::over(0, 1, 3, body()).into(), vec!["f32[2]", "f32[4,2]"], "other"),
        (Scan::over(0, 1, 3, body()).into(), vec!["f32[2]"], "arity"),
        (Scan::over(0, 3, 3, body()).into(), vec!["f32[2]", "f32[3,2]"], "arity"),
        (Scan {bounded: true, ..Scan::over(0, 1, 3, body()) } .into(), vec!["f32[2]", "f32[3,2]"], "other"),
        (Scan::over(0, 1, HUGE, body()).into(), vec!["f32[2]", &long], "large"),
        (Call::new(body()).into(), vec!["f32[2]"], "arity"),
        (Call::new(body()).into(), vec!["f32[2]", "f32[3]"], "other"),
        (Cond::new([]).into(), vec!["i32[]"], "other"),
        (Cond::new([body()]).into(), vec!["bool[]", "f32[2]", "f32[2]"], "other"),
    ];
    for (op, types, want) in table {
        let mut graph = Graph::new();
        let args: Vec<ir::Value> = types.iter().map(|t| graph.input(ty(t))).collect();
        let found = graph.push(op.clone(), &args, ir::Loc::caller());
        let Err(Error::Type(e)) = found else { panic!("{} of {types:?} gives {found:?}", op.name()) };
        // The error contains the op, the operands' types and the source location.
        assert_eq!(kind(&e.problem), want, "{e}");
        assert_eq!((e.op.as_str(), e.operands.len()), (op.name(), types.len()));
        assert!(e.to_string().contains(file!()), "{e}");
        assert_eq!(graph.nodes().len(), 0, "a refused op must leave the graph as it was");
    }
}

#[test]
fn transforms_refuse_what_they_cannot_do() {
    let mut b = Builder::new();
    let (x, n) = (b.input(DType::F32, &[2]), b.input(DType::I32, &[]));
    let y = b.mul(x, x).unwrap();
    let g = b.finish(&[y, n]);
    assert!(transform::jvp(&g, &[true], &[]).is_err());
    assert!(transform::jvp(&g, &[true, true], &[]).is_err(), "an integer has no tangent");
    assert!(transform::vjp(&g, &[1]).is_err(), "an integer has no gradient");
    assert!(transform::vjp(&g, &[7]).is_err());
    assert!(transform::grad(&g, &[0]).is_err(), "the gradient is of a scalar");
    assert!(transform::vmap(&g, &[true], &[], 2).is_err());
    assert!(transform::vmap_axes(&g, &[Some(2), None], &[0, 0], 2).is_err());
    assert!(transform::vmap_axes(&g, &[Some(0), None], &[5, 0], 2).is_err());
    assert!(transform::vmap_axes(&g, &[Some(0), None], &[0], 2).is_err());
    assert!(transform::partial_eval(&g, &[true]).is_err());
    assert!(transform::transpose(&g, &[true], &[true]).is_err());
    assert!(transform::transpose(&g, &[true, false], &[true, false]).is_err(), "x² is not linear");
    assert!(transform::vmap_axes(&g, &[Some(0), None], &[0, 0], usize::MAX).is_err());
    assert!(interp::run(&g, &[]).is_err());
    let wrong = [Literal::new(&[2], &[1f64, 2.0]), Literal::new(&[], &[1i32])];
    assert!(interp::run(&g, &wrong).is_err());
}
