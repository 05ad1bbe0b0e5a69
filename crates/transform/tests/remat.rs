//! Rematerialization: equal gradients with every policy, and the residuals of each policy.

mod checks;

use checks::*;
use ir::ops::{Call, Name, Remat, RematPolicy, Scan};
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Op, Unary, text};

/// `tanh(sin(x·w) named "hidden" · w)`, with the second half in a call: (x[2,3], w[3,3]) -> y[2,3].
fn layer() -> Graph {
    let mut b = Builder::new();
    let (h, w) = (b.input(F, &[2, 3]), b.input(F, &[3, 3]));
    let m = b.matmul(h, w).unwrap();
    let named = b.one(Name::new("second").into(), &[m]).unwrap();
    let y = b.unary(Unary::Tanh, named).unwrap();
    let tail = b.finish(&[y]);
    let mut b = Builder::new();
    let (x, w) = (b.input(F, &[2, 3]), b.input(F, &[3, 3]));
    let m = b.matmul(x, w).unwrap();
    let s = b.unary(Unary::Sin, m).unwrap();
    let h = b.one(Name::new("hidden").into(), &[s]).unwrap();
    let y = b.one(Call::new(tail).into(), &[h, w]).unwrap();
    b.finish(&[y])
}

fn names(list: &[&str]) -> RematPolicy {
    RematPolicy::Names(list.iter().map(|s| s.to_string()).collect())
}

fn policies() -> Vec<(RematPolicy, usize, usize)> {
    // The number of residuals including x and w, and of contractions that the linear part recomputes.
    vec![
        (RematPolicy::Nothing, 2, 2),
        (names(&["hidden"]), 3, 2),
        (names(&["second"]), 3, 1),
        (names(&["hidden", "second", "absent"]), 4, 1),
        (RematPolicy::Dots, 4, 0),
    ]
}

fn dots(g: &Graph) -> usize {
    let inside = |op: &Op| match op {
        Op::Remat(r) => dots(&r.body),
        Op::Call(c) => dots(&c.body),
        Op::Dot(_) => 1,
        _ => 0,
    };
    g.nodes().iter().map(|n| inside(&n.op)).sum()
}

#[test]
fn each_policy_keeps_what_it_says() {
    let plain = tensorloom_transform::linearize(&layer(), &[true, true]).unwrap();
    for (policy, residuals, again) in policies() {
        let g = tensorloom_transform::remat(&layer(), policy.clone()).unwrap();
        let lin = tensorloom_transform::linearize(&g, &[true, true]).unwrap();
        assert_eq!(lin.residuals, residuals, "{policy:?}\n{}", lin.linear);
        assert_eq!(dots(&lin.linear), dots(&plain.linear) + again, "{policy:?}\n{}", lin.linear);
    }
    let g = tensorloom_transform::remat(&layer(), RematPolicy::Everything).unwrap();
    let lin = tensorloom_transform::linearize(&g, &[true, true]).unwrap();
    assert_eq!(lin.residuals, plain.residuals);
    assert_eq!(dots(&lin.linear), dots(&plain.linear));
}

#[test]
fn gradients_are_the_same_under_every_policy() {
    let x = [random(&[2, 3], 1), random(&[3, 3], 2)];
    let plain = run(&tensorloom_transform::grad(&loss(&layer()), &[0, 1]).unwrap(), &x);
    let all = policies().into_iter().map(|p| p.0).chain([RematPolicy::Everything]);
    for policy in all {
        let g = tensorloom_transform::remat(&layer(), policy).unwrap();
        let got = run(&tensorloom_transform::grad(&loss(&g), &[0, 1]).unwrap(), &x);
        for (a, b) in got.iter().zip(&plain) {
            close(a, b, 1e-14);
        }
        check_grads(&g, &x, &[0, 1], 1e-7);
        let rows: Vec<Vec<Literal>> = (0..3).map(|k| vec![random(&[2, 3], k + 5), random(&[3, 3], k + 9)]).collect();
        check_vmap(&tensorloom_transform::grad(&loss(&g), &[0, 1]).unwrap(), &rows);
    }
}

#[test]
fn a_remat_inside_a_scan_keeps_its_names_for_every_iteration() {
    let scan = |policy: RematPolicy| {
        let mut b = Builder::new();
        let (w, h) = (b.input(F, &[3, 3]), b.input(F, &[2, 3]));
        let y = b.one(Remat::with_policy(layer(), policy).into(), &[h, w]).unwrap();
        let body = b.finish(&[y]);
        let mut b = Builder::new();
        let (w, h) = (b.input(F, &[3, 3]), b.input(F, &[2, 3]));
        let out = b.emit(Scan::over(1, 1, 4, body).into(), &[w, h]).unwrap();
        b.finish(&out)
    };
    let x = [random(&[3, 3], 1), random(&[2, 3], 2)];
    let stored = |policy: RematPolicy| -> usize {
        let lin = tensorloom_transform::linearize(&scan(policy), &[true, true]).unwrap();
        lin.linear.input_types()[..lin.residuals].iter().map(|t| t.bytes()).sum()
    };
    let step = 4 * 2 * 3 * DType::F64.size();
    assert_eq!(stored(names(&["hidden"])), stored(RematPolicy::Nothing) + step);
    assert_eq!(stored(RematPolicy::Dots), stored(RematPolicy::Nothing) + 2 * step);
    for (policy, ..) in policies() {
        check_grads(&scan(policy), &x, &[0, 1], 1e-6);
    }
}

#[test]
fn names_are_the_identity_and_print_any_text() {
    let x = random(&[2], 1);
    for name in ["plain", "with \"quotes\" and \\", "line\nbreak\ttab\r\0", "π ≈ 3 \u{7f}\u{200b}"] {
        let g = graph(&[&x], |b, v| Ok(vec![b.one(Name::new(name).into(), &[v[0]])?]));
        gives(&g, std::slice::from_ref(&x), std::slice::from_ref(&x));
        check_grads(&g, std::slice::from_ref(&x), &[0], 1e-9);
        check_vmap(&g, &[vec![x.clone()], vec![random(&[2], 2)]]);
        assert_eq!(text::parse(&g.to_string()).unwrap(), g);
    }
    for bad in ["\"\\u{}\"", "\"\\u{d800}\"", "\"\\u{1234567}\"", "\"\\u12\"", "\"\\u{12"] {
        let source = format!("graph (%0: f64[]) {{\n  %1 = name(%0) {{name={bad}}} : f64[]\n  return %1\n}}");
        assert!(text::parse(&source).is_err(), "{bad}");
    }
}
