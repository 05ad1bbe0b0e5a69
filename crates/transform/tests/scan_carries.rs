//! Carries that lose or gain their dependence on the operands on the way through a scan.

mod checks;

use checks::*;
use ir::ops::{Checkpoint, Scan};
use ir::{Build, Builder, Graph, Literal, Unary};

/// Over (h, k, x): `h' = x`, `k' = k·sin(h)`, stacking `h·k`. Only the first iteration sees the start of `h`.
fn overwritten() -> Graph {
    let mut b = Builder::new();
    let (h, k, x) = (b.input(F, &[2]), b.input(F, &[2]), b.input(F, &[2]));
    let s = b.unary(Unary::Sin, h).unwrap();
    let k2 = b.mul(k, s).unwrap();
    let y = b.mul(h, k).unwrap();
    b.finish(&[x, k2, y])
}

fn scan(checkpoint: Checkpoint, reverse: bool, bounded: bool) -> (Graph, Vec<Literal>) {
    let mut x = vec![random(&[2], 1), random(&[2], 2), random(&[4, 2], 3)];
    let scan = Scan {
        checkpoint,
        reverse,
        bounded,
        ..Scan::over(0, 2, 4, overwritten())
    };
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
    for checkpoint in [Checkpoint::All, Checkpoint::Every(3)] {
        for (reverse, bounded) in [(false, false), (true, false), (false, true), (true, true)] {
            let (g, x) = scan(checkpoint, reverse, bounded);
            for wrt in [&[0usize][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
                check_grads(&g, &x, wrt, 1e-7);
            }
        }
    }
}
