//! Differentiation of loops and other ops with a body: each body runs once, whatever its carries depend on.

mod checks;

use checks::*;
use ir::ops::{Call, Cond, Remat, Scan, ScanCheckpoint};
use ir::{Builder, Graph, GraphBuilder, Literal, Op, Unary};

/// Over (h, k, x): `h' = x`, `k' = k·sin(h)`, stacking `h·k`. Only the first iteration reads the initial value of `h`.
fn overwritten() -> Graph {
    let mut b = Builder::new();
    let (h, k, x) = (b.input(F, &[2]), b.input(F, &[2]), b.input(F, &[2]));
    let s = b.unary(Unary::Sin, h).unwrap();
    let k2 = b.mul(k, s).unwrap();
    let y = b.mul(h, k).unwrap();
    b.finish(&[x, k2, y])
}

fn scan(checkpoint: ScanCheckpoint, reverse: bool, bounded: bool) -> (Graph, Vec<Literal>) {
    let mut x = vec![random(&[2], 1), random(&[2], 2), random(&[4, 2], 3)];
    let scan = Scan { checkpoint, reverse, bounded, ..Scan::over(0, 2, 4, overwritten()) };
    if bounded {
        x.push(ints(&[], &[3]));
    }
    let refs: Vec<&Literal> = x.iter().collect();
    let g = graph(&refs, |b, v| {
        let mut args = v[..3].to_vec();
        if bounded {
            args.insert(0, v[3]);
        }
        Ok(b.emit(scan.into(), &args)?.to_vec())
    });
    (g, x)
}

#[test]
fn a_carry_that_is_overwritten_still_has_its_gradient() {
    for checkpoint in [ScanCheckpoint::All, ScanCheckpoint::EveryN(3)] {
        for (reverse, bounded) in [(false, false), (true, false), (false, true), (true, true)] {
            let (g, x) = scan(checkpoint, reverse, bounded);
            for wrt in [&[0usize][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
                check_grads(&g, &x, wrt, 1e-7);
            }
        }
    }
}

#[test]
fn forward_runs_each_body_once() {
    let x = [random(&[2], 1), random(&[2], 2), random(&[2], 3)];
    // Bodies over (h, k, x); the scan has x as its constant.
    let scan = {
        let mut b = Builder::new();
        let v: Vec<_> = (0..3).map(|_| b.input(F, &[2])).collect();
        let outs = b.inline(&overwritten(), &[v[1], v[2], v[0]]).unwrap();
        Scan::over(1, 2, 3, b.finish(&outs))
    };
    let ops: [(Op, &[usize]); 4] = [
        (Call::new(overwritten()).into(), &[0, 1, 2]),
        (Remat::new(overwritten()).into(), &[0, 1, 2]),
        (Cond::new([overwritten(), overwritten()]).into(), &[3, 0, 1, 2]),
        (scan.into(), &[2, 0, 1]),
    ];
    for (op, order) in ops {
        let g = graph(&[&x[0], &x[1], &x[2], &ints(&[], &[0])], |b, v| {
            let args: Vec<_> = order.iter().map(|&i| v[i]).collect();
            Ok(b.emit(op.clone(), &args)?.to_vec())
        });
        let (fwd, _) = tensorloom_transform::jvp(&g, &[true, true, true, false], &[true; 3]).unwrap();
        let lin = tensorloom_transform::linearize(&g, &[true, true, true, false]).unwrap();
        for graph in [&fwd, &lin.known] {
            let bodies = graph.nodes().iter().filter(|n| n.op.name() == op.name()).count();
            assert_eq!(bodies, 1, "{graph}");
        }
    }
}
