//! Samples of ops with sub-graphs, and of composites with their own derivative.

use super::{SampleTable, parse_type};
use crate::FillKind;
use ir::ops::{Call, Composite, Cond, CustomLinear, Derivative, Name, Remat, RematPolicy, Scan, ScanCheckpoint, While};
use ir::{Binary, Builder, Compare, DType, Graph, GraphBuilder, Unary, Value};
use std::sync::Arc;

pub(super) fn rows(t: &mut SampleTable) {
    scans(t);
    branches(t);
    loops(t);
    calls(t);
    composites(t);
}

fn graph_of(types: &[&str], build: impl FnOnce(&mut Builder, &[Value]) -> ir::Result<Vec<Value>>) -> Graph {
    let mut b = Builder::new();
    let args: Vec<Value> = types.iter().map(|t| b.graph.input(parse_type(t))).collect();
    let outs = build(&mut b, &args).expect("a sample body is well-typed");
    b.finish(&outs)
}

/// `(w, h, x) -> (tanh(w·h + x), h·x)`.
fn cell() -> Graph {
    graph_of(&["f64[2,2]", "f64[2]", "f64[2]"], |b, v| {
        let column = b.reshape(v[1], &[2, 1])?;
        let m = b.matmul(v[0], column)?;
        let m = b.reshape(m, &[2])?;
        let s = b.add(m, v[2])?;
        let y = b.mul(v[1], v[2])?;
        Ok(vec![b.unary(Unary::Tanh, s)?, y])
    })
}

fn scans(t: &mut SampleTable) {
    let types = ["f64[2,2]", "f64[2]", "f64[5,2]"];
    for (reverse, checkpoint) in [
        (false, ScanCheckpoint::All),
        (true, ScanCheckpoint::All),
        (false, ScanCheckpoint::EveryN(2)),
        (true, ScanCheckpoint::EveryN(2)),
        (false, ScanCheckpoint::EveryN(7)),
    ] {
        let name = format!("reverse={reverse}_{checkpoint:?}");
        let scan = Scan { reverse, checkpoint, ..Scan::over(1, 1, 5, cell()) };
        t.smooth(&format!("scan/{name}"), scan.clone(), &types, FillKind::Smooth);
        let bounded = Scan { bounded: true, ..scan };
        let fills = [FillKind::IndexBelow(6), FillKind::Smooth];
        t.graph(&format!("scan/bounded_{name}"), &["i32[]", types[0], types[1], types[2]], &fills, true, |b, x| {
            Ok(b.emit(bounded.into(), x)?.to_vec())
        });
    }
    t.smooth("scan/empty", Scan::over(1, 1, 0, cell()), &["f64[2,2]", "f64[2]", "f64[0,2]"], FillKind::Smooth);
    // A plain loop without scanned operands and stacked outputs.
    let body = graph_of(&["f64[]"], |b, v| Ok(vec![b.unary(Unary::Sin, v[0])?]));
    t.smooth("scan/loop", Scan::over(0, 1, 4, body), &["f64[]"], FillKind::Smooth);
    // A map without carries.
    let body = graph_of(&["f64[2]", "f64[2]"], |b, v| Ok(vec![b.mul(v[0], v[1])?]));
    t.smooth("scan/map", Scan::over(1, 0, 3, body), &["f64[2]", "f64[3,2]"], FillKind::Smooth);
    // An integer carry and a float one; one stacked output is a constant.
    let body = graph_of(&["i32[]", "f64[2]", "f64[2]"], |b, v| {
        let one = b.full_like(v[0], 1.0)?;
        let n = b.add(v[0], one)?;
        let f = b.cast(n, DType::F64)?;
        let f = b.splat(f, &[2])?;
        let p = b.mul(v[1], f)?;
        let s = b.add(p, v[2])?;
        let y = b.unary(Unary::Tanh, s)?;
        Ok(vec![n, y, f, v[1]])
    });
    t.graph("scan/counter", &["i32[]", "f64[2]", "f64[4,2]"], &[FillKind::Smooth], true, |b, x| {
        Ok(b.emit(Scan::over(0, 2, 4, body).into(), x)?.to_vec())
    });
    // Carries that swap, so that a tangent reaches the second one only in the second iteration.
    let body = graph_of(&["f64[2]", "f64[2]", "f64[2]"], |b, v| {
        let y = b.mul(v[1], v[2])?;
        Ok(vec![v[1], b.unary(Unary::Sin, v[0])?, y])
    });
    t.smooth("scan/swap", Scan::over(0, 2, 3, body.clone()), &["f64[2]", "f64[2]", "f64[3,2]"], FillKind::Smooth);
    t.graph("scan/swap_from_constant", &["f64[2]", "f64[3,2]"], &[FillKind::Smooth], true, |b, x| {
        let c = b.full_like(x[0], 0.7)?;
        Ok(b.emit(Scan::over(0, 2, 3, body).into(), &[c, x[0], x[1]])?.to_vec())
    });
    // A scan inside a scan.
    let inner = Scan::over(
        0,
        1,
        3,
        graph_of(&["f64[2]", "f64[2]"], |b, v| {
            let m = b.mul(v[0], v[1])?;
            Ok(vec![b.unary(Unary::Sin, m)?, m])
        }),
    );
    let body = graph_of(&["f64[3,2]", "f64[2]", "f64[]"], |b, v| {
        let outs = b.emit(inner.into(), &[v[1], v[0]])?;
        let w = b.splat(v[2], &[2])?;
        let next = b.mul(outs[0], w)?;
        let y = b.sum(outs[1], &[0])?;
        Ok(vec![next, y])
    });
    t.smooth("scan/nested", Scan::over(1, 1, 2, body), &["f64[3,2]", "f64[2]", "f64[2]"], FillKind::Smooth);
    let f32_body = graph_of(&["f32[2]", "f32[2]"], |b, v| Ok(vec![b.add(v[0], v[1])?, v[0]]));
    t.plain("scan/f32", Scan::over(0, 1, 3, f32_body), &["f32[2]", "f32[3,2]"], &[FillKind::Smooth]);
}

fn branches(t: &mut SampleTable) {
    let types = ["f64[2]", "f64[2]"];
    let sum = || graph_of(&types, |b, v| Ok(vec![b.add(v[0], v[1])?, v[0]]));
    let product = || {
        graph_of(&types, |b, v| {
            let s = b.unary(Unary::Sin, v[0])?;
            Ok(vec![b.mul(s, v[1])?, b.unary(Unary::Exp, v[1])?])
        })
    };
    // One result does not depend on the operands in this branch: its tangent is zero here and not in the others.
    let constant = || {
        graph_of(&types, |b, v| {
            let c = b.full_like(v[0], 2.0)?;
            Ok(vec![c, v[1]])
        })
    };
    for (k, op) in [Cond::new([sum()]), Cond::new([sum(), product()]), Cond::new([constant(), product(), sum()])]
        .into_iter()
        .enumerate()
    {
        for n in [0, 1, 4] {
            let fills = [FillKind::Uniform(0.0, 1.0), FillKind::Smooth, FillKind::Smooth];
            let op = op.clone();
            t.graph(&format!("cond/{k}_{n}"), &["i32[]", "f64[2]", "f64[2]"], &fills, true, |b, x| {
                let n = b.full_like(x[0], n as f64)?;
                Ok(b.emit(op.into(), &[n, x[1], x[2]])?.to_vec())
            });
        }
        t.plain(
            &format!("cond/index{k}"),
            op,
            &["i32[]", "f64[2]", "f64[2]"],
            &[FillKind::IndexBelow(3), FillKind::Smooth],
        );
    }
}

fn loops(t: &mut SampleTable) {
    // While the first carry is below a bound: x ← x·1.5 + c, y ← sin(x)·y.
    let cond = || graph_of(&["f64[]", "f64[]", "f64[2]"], |b, v| Ok(vec![b.compare(Compare::Lt, v[1], v[0])?]));
    let body = || {
        graph_of(&["f64[2]", "f64[]", "f64[2]"], |b, v| {
            let grown = b.scale(v[1], 1.5)?;
            let x = b.offset(grown, 0.75)?;
            let s = b.unary(Unary::Sin, v[2])?;
            Ok(vec![x, b.mul(s, v[0])?])
        })
    };
    let fills = [FillKind::Uniform(5.0, 5.1), FillKind::Smooth, FillKind::Uniform(0.3, 0.4), FillKind::Smooth];
    t.graph("while/smooth", &["f64[]", "f64[2]", "f64[]", "f64[2]"], &fills, true, |b, x| {
        Ok(b.emit(While::new(1, 1, cond(), body()).into(), x)?.to_vec())
    });
    t.forward_only();
    let cond = graph_of(&["i32[]", "i32[]"], |b, v| Ok(vec![b.compare(Compare::Lt, v[0], v[1])?]));
    let body = graph_of(&["i32[]", "i32[]"], |b, v| {
        let one = b.full_like(v[0], 1.0)?;
        Ok(vec![b.add(v[0], one)?, b.binary(Binary::Max, v[1], v[0])?])
    });
    t.plain("while/count", While::new(0, 0, cond, body), &["i32[]", "i32[]"], &[FillKind::Smooth]);
}

fn calls(t: &mut SampleTable) {
    let body = || {
        graph_of(&["f64[2,3]", "f64[3]", "i32[3]"], |b, v| {
            let w = b.broadcast_to(v[1], &[2, 3])?;
            let p = b.mul(v[0], w)?;
            let s = b.unary(Unary::Sin, p)?;
            Ok(vec![s, v[2], w, b.sum(s, &[1])?])
        })
    };
    let types = ["f64[2,3]", "f64[3]", "i32[3]"];
    t.smooth("call/smooth", Call::new(body()), &types, FillKind::Smooth);
    t.smooth("remat/smooth", Remat::new(body()), &types, FillKind::Smooth);
    for policy in [RematPolicy::Everything, RematPolicy::Dots, RematPolicy::Names(vec!["h".into(), "unused".into()])] {
        let name = format!("remat/{policy:?}");
        let body = graph_of(&["f64[2,2]", "f64[2,2]"], |b, v| {
            let m = b.matmul(v[0], v[1])?;
            let s = b.unary(Unary::Sin, m)?;
            let h = b.one(Name::new("h").into(), &[s])?;
            let m = b.matmul(h, v[1])?;
            Ok(vec![b.unary(Unary::Tanh, m)?, h])
        });
        t.smooth(&name, Remat::with_policy(body, policy), &["f64[2,2]", "f64[2,2]"], FillKind::Smooth);
    }
    let nothing = graph_of(&["f64[2]"], |_, v| Ok(vec![v[0], v[0]]));
    t.smooth("call/identity", Call::new(nothing.clone()), &["f64[2]"], FillKind::Smooth);
    t.smooth("remat/identity", Remat::new(nothing), &["f64[2]"], FillKind::Smooth);
    let constant = graph_of(&["f64[2]"], |b, v| {
        let c = b.full_like(v[0], 3.0)?;
        Ok(vec![c, b.mul(c, v[0])?])
    });
    t.smooth("call/constant", Call::new(constant.clone()), &["f64[2]"], FillKind::Smooth);
    t.smooth("remat/constant", Remat::new(constant), &["f64[2]"], FillKind::Smooth);
    t.graph("remat/in_remat", &["f64[2]", "f64[2]"], &[FillKind::Smooth], true, |b, x| {
        let inner = Remat::new(graph_of(&["f64[2]"], |b, v| {
            let s = b.unary(Unary::Sin, v[0])?;
            Ok(vec![b.unary(Unary::Exp, s)?])
        }));
        let outer = graph_of(&["f64[2]", "f64[2]"], |b, v| {
            let y = b.one(inner.into(), &[v[0]])?;
            let z = b.mul(y, v[1])?;
            Ok(vec![b.unary(Unary::Tanh, z)?, y])
        });
        Ok(b.emit(Remat::new(outer).into(), x)?.to_vec())
    });
}

/// `f(x, y) = sin(x)·y` with its own derivative.
fn custom(kind: &str) -> Composite {
    let body = graph_of(&["f64[3]", "f64[3]"], |b, v| {
        let s = b.unary(Unary::Sin, v[0])?;
        Ok(vec![b.mul(s, v[1])?, s])
    });
    let derivative = match kind {
        "vjp" => Derivative::Vjp(Arc::new(graph_of(&["f64[3]"; 5], |b, v| {
            let c = b.unary(Unary::Cos, v[0])?;
            let cy = b.mul(c, v[1])?;
            Ok(vec![b.mul(v[4], cy)?, b.mul(v[4], v[3])?])
        }))),
        "jvp" => Derivative::Jvp(Arc::new(graph_of(&["f64[3]"; 4], |b, v| {
            let (s, c) = (b.unary(Unary::Sin, v[0])?, b.unary(Unary::Cos, v[0])?);
            let l = b.mul(c, v[1])?;
            let (l, r) = (b.mul(l, v[2])?, b.mul(s, v[3])?);
            Ok(vec![b.add(l, r)?])
        }))),
        _ => Derivative::Body,
    };
    Composite {
        name: format!("sample_{kind}"),
        params: Vec::new(),
        body: Arc::new(body),
        num_public_outputs: 1,
        derivative,
    }
}

fn composites(t: &mut SampleTable) {
    for kind in ["body", "vjp", "jvp"] {
        t.graph(&format!("composite/{kind}"), &["f64[3]", "f64[3]"], &[FillKind::Smooth], true, |b, x| {
            Ok(vec![b.emit(custom(kind).into(), x)?[0]])
        });
    }
    t.graph("custom_linear/forward", &["f64[3]", "f64[3]", "f64[3]"], &[FillKind::Smooth], true, |b, x| {
        let c = custom("vjp");
        let y = b.emit(c.clone().into(), &x[..2])?;
        let forward = graph_of(&["f64[3]"; 3], |b, v| {
            let c = b.unary(Unary::Cos, v[0])?;
            let d = b.mul(c, v[2])?;
            Ok(vec![b.mul(d, v[1])?, d])
        });
        let Derivative::Vjp(vjp) = &c.derivative else { unreachable!("built with a vjp") };
        let op = CustomLinear {
            name: c.name.clone(),
            forward: Arc::new(forward),
            vjp: vjp.clone(),
            outputs: c.body.output_types(),
            num_public_outputs: 1,
            active: vec![true, false],
        };
        Ok(vec![b.emit(op.into(), &[x[0], x[1], y[0], y[1], x[2]])?[0]])
    });
}
