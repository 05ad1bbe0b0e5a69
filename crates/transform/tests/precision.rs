//! Mixed precision: which ops use low precision, which stay in f32, and that values and gradients stay close.

mod checks;

use checks::{check_text, graph, run};
use ir::composites::activation::silu;
use ir::composites::attention::{AttentionOptions, attention};
use ir::composites::{COMPOSITES, embedding::embedding, norm::rmsnorm};
use ir::ops::{Cond, ReduceKind, Remat, RematPolicy, Scan};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Scalar, Type, Unary, Value, verify};
use tensorloom_transform::{AutocastPolicy, autocast};

const F32: DType = DType::F32;
const BF16: DType = DType::BF16;

fn values(shape: &[usize], seed: u64) -> Literal {
    let x = checks::random(shape, seed).to_vec::<f64>();
    Literal::from_fn(Type::new(F32, shape), |i| Scalar::from_f64(F32, x[i]))
}

fn narrow(g: &Graph) -> Graph {
    let out = autocast(g, &AutocastPolicy::new(BF16)).unwrap();
    verify::verify(&out).unwrap();
    assert_eq!(out.input_types(), g.input_types());
    assert_eq!(out.output_types(), g.output_types());
    check_text(&out);
    out
}

/// Every op with the dtypes of its float operands and results, sub-graphs included.
fn listing(g: &Graph, out: &mut Vec<(String, Vec<DType>)>) {
    for node in g.nodes() {
        let values = node.args.iter().chain(&node.outs);
        let dtypes = values.map(|&v| g.ty(v).dtype).filter(|d| d.is_float()).collect();
        out.push((node.op.name().to_string(), dtypes));
        match &node.op {
            Op::Scan(s) => listing(&s.body, out),
            Op::Remat(r) => listing(&r.body, out),
            Op::Cond(c) => c.branches.iter().for_each(|b| listing(b, out)),
            _ => {}
        }
    }
}

fn ops(g: &Graph, name: &str) -> Vec<Vec<DType>> {
    let mut all = Vec::new();
    listing(g, &mut all);
    all.into_iter().filter(|(n, _)| n == name).map(|(_, d)| d).collect()
}

#[track_caller]
fn near(a: &[Literal], b: &[Literal], tol: f64) {
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        checks::close(x, y, tol);
    }
}

/// A softmax-like head over two products with one weight: (x[4,8], w[8,8], bias[8]) -> loss.
fn model() -> Graph {
    let (x, w, bias) = (values(&[4, 8], 1), values(&[8, 8], 2), values(&[8], 3));
    graph(&[&x, &w, &bias], |b, v| {
        let h = b.matmul(v[0], v[1])?;
        let half = b.scale(h, 0.5)?;
        let zero = b.full_like(half, 0.0)?;
        let relu = b.binary(ir::Binary::Max, half, zero)?;
        let y = b.matmul(relu, v[1])?;
        let wide = b.broadcast(v[2], &[4, 8], &[1])?;
        let z = b.add(y, wide)?;
        let e = b.unary(Unary::Exp, z)?;
        let s = b.sum(e, &[1])?;
        let l = b.unary(Unary::Log, s)?;
        Ok(vec![b.sum_all(l)?])
    })
}

#[test]
fn contractions_are_narrow_and_the_rest_stays() {
    let g = narrow(&model());
    assert_eq!(ops(&g, "dot"), vec![vec![BF16; 3]; 2]);
    for node in g.nodes() {
        if let Op::Dot(d) = &node.op {
            assert_eq!(d.acc, F32);
        }
    }
    // Multiplication by a constant and relu use the product's precision; adding an f32 bias does not.
    assert_eq!(ops(&g, "mul"), [vec![BF16; 3]]);
    assert_eq!(ops(&g, "max"), [vec![BF16; 3]]);
    assert_eq!(ops(&g, "add"), [vec![F32; 3]]);
    for name in ["exp", "log", "reduce_sum"] {
        assert!(ops(&g, name).iter().all(|d| d.iter().all(|d| *d == F32)), "{name}");
    }
    // Casts of x, of w (once for both products), of two constants, and of the second product back to f32.
    assert_eq!(ops(&g, "cast").len(), 5, "{g}");
}

#[test]
fn values_and_gradients_stay_close_and_gradients_are_f32() {
    let f = model();
    let x = [values(&[4, 8], 1), values(&[8, 8], 2), values(&[8], 3)];
    let g = narrow(&f);
    near(&run(&g, &x), &run(&f, &x), 2e-2);
    let (exact, got) =
        (tensorloom_transform::grad(&f, &[0, 1, 2]).unwrap(), tensorloom_transform::grad(&g, &[0, 1, 2]).unwrap());
    assert_eq!(got.output_types(), exact.output_types());
    assert!(ops(&got, "dot").iter().all(|d| d.iter().all(|d| *d == BF16)), "{got}");
    near(&run(&got, &x), &run(&exact, &x), 5e-2);
    // In f16 the same.
    let g = autocast(&f, &AutocastPolicy::new(DType::F16)).unwrap();
    near(&run(&g, &x), &run(&f, &x), 2e-3);
}

#[test]
fn sub_graphs_keep_their_types() {
    let (w, h) = (values(&[3, 3], 1), values(&[2, 3], 2));
    let step = |b: &mut Builder, w: Value, h: Value| -> ir::Result<Value> {
        let m = b.matmul(h, w)?;
        b.unary(Unary::Tanh, m)
    };
    let new = || {
        let mut b = Builder::new();
        let (w, h) = (b.input(F32, &[3, 3]), b.input(F32, &[2, 3]));
        (b, w, h)
    };
    let (mut b, wv, hv) = new();
    let y = step(&mut b, wv, hv).unwrap();
    let inner = b.finish(&[y]);
    let (mut b, wv, hv) = new();
    let y = b.one(Remat::new(inner.clone()).into(), &[wv, hv]).unwrap();
    let body = b.finish(&[y, y]);
    let i = checks::ints(&[], &[1]);
    let f = graph(&[&w, &h, &i], |b, v| {
        let outs = b.emit(Scan::over(1, 1, 3, body.clone()).into(), &[v[0], v[1]])?;
        let c = b.one(Cond::new([inner.clone(), inner.clone()]).into(), &[v[2], v[0], outs[0]])?;
        Ok(vec![c, outs[1]])
    });
    let g = narrow(&f);
    assert_eq!(ops(&g, "dot"), vec![vec![BF16; 3]; 3]);
    assert_eq!(ops(&g, "tanh"), vec![vec![F32; 2]; 3]);
    let x = [w, h, i];
    near(&run(&g, &x), &run(&f, &x), 2e-2);
}

#[test]
fn composites_are_narrow_only_where_the_policy_says() {
    let (x, w) = (values(&[4, 8], 1), values(&[8], 2));
    let f = graph(&[&x, &w], |b, v| {
        let norm = rmsnorm(&b.ty(v[0]), &b.ty(v[1]), 1e-5)?;
        Ok(vec![b.emit(norm.into(), v)?[0]])
    });
    assert_eq!(narrow(&f), f);
    let policy = AutocastPolicy { low_precision: vec!["rmsnorm".into()], ..AutocastPolicy::new(BF16) };
    let g = autocast(&f, &policy).unwrap();
    let Some(Op::Composite(c)) = g.nodes().iter().map(|n| &n.op).find(|o| o.name() == "composite") else {
        panic!("the composite stays one");
    };
    assert!(c.body.input_types().iter().all(|t| t.dtype == BF16));
    near(&run(&g, &[x.clone(), w.clone()]), &run(&f, &[x, w]), 2e-2);
}

#[test]
fn rematerialised_bodies_compute_as_if_they_stood_outside() {
    let (x, w) = (values(&[4, 8], 1), values(&[8, 8], 2));
    let make = |inside: bool| {
        graph(&[&x, &w], |b, v| {
            let y = b.matmul(v[0], v[1])?;
            let z = match inside {
                false => {
                    let y = b.mul(y, y)?;
                    b.matmul(y, v[1])?
                }
                true => {
                    let mut inner = Builder::new();
                    let (p, q) = (inner.graph.input(b.ty(y)), inner.graph.input(b.ty(v[1])));
                    let square = inner.mul(p, p)?;
                    let product = inner.matmul(square, q)?;
                    let body = inner.finish(&[product]);
                    b.emit(Remat::with_policy(body, RematPolicy::Nothing).into(), &[y, v[1]])?[0]
                }
            };
            Ok(vec![b.add(y, z)?])
        })
    };
    let g = narrow(&make(true));
    let Some(Op::Remat(r)) = g.nodes().iter().map(|n| &n.op).find(|o| matches!(o, Op::Remat(_))) else {
        panic!("the body stays one");
    };
    let outs: Vec<DType> = r.body.outputs().iter().map(|&v| r.body.ty(v).dtype).collect();
    assert_eq!((r.body.input_types()[0].dtype, &outs[..]), (BF16, &[BF16][..]), "{g}");
    let inputs = [x.clone(), w.clone()];
    assert_eq!(run(&g, &inputs), run(&narrow(&make(false)), &inputs));
}

#[test]
fn results_may_be_rounded_so_that_what_follows_is_narrow() {
    let (table, ids) = (values(&[6, 4], 1), checks::ints(&[3], &[1, 5, 0]));
    let f = graph(&[&table, &ids], |b, v| {
        let e = embedding(&b.ty(v[0]), &b.ty(v[1]), None)?;
        let x = b.emit(e.into(), v)?[0];
        Ok(vec![b.add(x, x)?])
    });
    let adds = |g: &Graph| {
        let add = g.nodes().iter().find(|n| n.op.name() == "add").expect("a sum");
        g.ty(add.outs[0]).dtype
    };
    assert_eq!(adds(&narrow(&f)), F32);
    let policy = AutocastPolicy { rounded_outputs: vec!["embedding".into()], ..AutocastPolicy::new(BF16) };
    let g = autocast(&f, &policy).unwrap();
    assert_eq!(adds(&g), BF16);
    near(&run(&g, &[table.clone(), ids.clone()]), &run(&f, &[table, ids]), 2e-2);
}

#[test]
fn other_dtypes_are_left_alone() {
    let (a, i) = (checks::random(&[2, 2], 1), checks::ints(&[2, 2], &[1, 2, 3, 4]));
    let f = graph(&[&a, &i], |b, v| {
        let m = b.matmul(v[0], v[0])?;
        let n = b.matmul(v[1], v[1])?;
        Ok(vec![m, b.reduce(ReduceKind::Max, n, &[0])?])
    });
    assert_eq!(narrow(&f), f);
    for dtype in [F32, DType::F64, DType::I32, DType::F8E4M3] {
        assert!(autocast(&f, &AutocastPolicy::new(dtype)).is_err());
    }
}

#[test]
fn attention_is_narrow_activations_follow_and_norms_stay() {
    let (x, w) = (values(&[2, 4, 8], 1), values(&[8], 2));
    let f = graph(&[&x, &w], |b, v| {
        let ty = b.ty(v[0]);
        let norm = rmsnorm(&ty, &b.ty(v[1]), 1e-5)?;
        let h = b.emit(norm.into(), v)?[0];
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let y = b.emit(attention(&ty, &ty, &ty, &options)?.into(), &[h, h, h])?[0];
        let after = b.one(silu(&ty)?.into(), &[y])?;
        let before = b.one(silu(&ty)?.into(), &[h])?;
        Ok(vec![b.add(after, before)?])
    });
    let g = narrow(&f);
    let found: Vec<(String, DType)> = (g.nodes().iter())
        .filter_map(|n| match &n.op {
            Op::Composite(c) => Some((c.name.clone(), g.ty(n.args[0]).dtype)),
            _ => None,
        })
        .collect();
    let expected = [("rmsnorm", F32), ("attention", BF16), ("silu", BF16), ("silu", F32)];
    assert_eq!(found, expected.map(|(n, d)| (n.to_string(), d)));
    let x = [x, w];
    near(&run(&g, &x), &run(&f, &x), 3e-2);
    let total = |g: &Graph| {
        graph(&[&x[0], &x[1]], |b, v| {
            let y = b.inline(g, v)?[0];
            Ok(vec![b.sum_all(y)?])
        })
    };
    let grads = |g: &Graph| run(&tensorloom_transform::grad(&total(g), &[0, 1]).unwrap(), &x);
    near(&grads(&g), &grads(&f), 5e-2);
}

#[test]
fn the_policy_names_composites_that_exist() {
    let policy = AutocastPolicy::new(BF16);
    for name in policy.low_precision.iter().chain(&policy.promote) {
        assert!(COMPOSITES.iter().any(|f| f.name == name), "{name}");
    }
}
