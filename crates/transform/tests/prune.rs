//! Pruning: same values, fewer operands and results.

mod checks;

use checks::*;
use ir::ops::{Call, Cond, Remat, Scan, ScanCheckpoint, While};
use ir::{Builder, Compare, DType, Graph, GraphBuilder, Literal, Op, Unary, Value, verify};
use tensorloom_transform::prune;

/// Prunes, checks the values and that a second pass changes nothing, and returns the only node that is not elementwise.
#[track_caller]
fn pruned(g: &Graph, x: &[Literal]) -> Graph {
    let p = prune(g).unwrap();
    verify::verify(&p).unwrap();
    check_text(&p);
    assert_eq!((p.input_types(), p.output_types()), (g.input_types(), g.output_types()));
    gives(&p, x, &run(g, x));
    assert_eq!(prune(&p).unwrap(), p);
    p
}

fn only(g: &Graph) -> (&Op, usize, usize) {
    let node = &g.nodes()[0];
    assert_eq!(g.nodes().len(), 1, "{g}");
    (&node.op, node.args.len(), node.outs.len())
}

fn vectors(n: usize) -> Vec<Literal> {
    (0..n).map(|k| random(&[2], k as u64 + 1)).collect()
}

fn body(inputs: usize, f: impl FnOnce(&mut Builder, &[Value]) -> Vec<Value>) -> Graph {
    let mut b = Builder::new();
    let v: Vec<Value> = (0..inputs).map(|_| b.input(F, &[2])).collect();
    let outs = f(&mut b, &v);
    b.finish(&outs)
}

/// Over (c0, c1, fixed, used, feeds, alone, x0, x1): the carry `fixed` is invariant, `feeds` is read only by `used`,
/// `alone` depends only on itself, c1 and x1; outputs are the carries, then two stacked values.
fn loop_body() -> Graph {
    body(8, |b, v| {
        let [c0, c1, fixed, used, feeds, alone, x0, x1] = v[..] else { unreachable!() };
        let s = b.unary(Unary::Sin, feeds).unwrap();
        let t = b.mul(fixed, x0).unwrap();
        let u = b.add(used, s).unwrap();
        let used = b.add(u, t).unwrap();
        let feeds = b.mul(feeds, c0).unwrap();
        let a = b.add(alone, c1).unwrap();
        let alone = b.mul(a, x1).unwrap();
        vec![fixed, used, feeds, alone, u, alone]
    })
}

fn scan(bounded: bool) -> Scan {
    Scan { bounded, ..Scan::over(2, 4, 3, loop_body()) }
}

#[test]
fn a_scan_keeps_what_its_readers_need() {
    for bounded in [false, true] {
        for count in [0, 2] {
            let mut x = vectors(6);
            x.extend([random(&[3, 2], 9), random(&[3, 2], 10)]);
            if bounded {
                x.insert(0, ints(&[], &[count]));
            }
            let refs: Vec<&Literal> = x.iter().collect();
            // The results that are read; the number of operands, results and carries that remain (without the count).
            let rows: [(&[usize], usize, usize, usize); 7] = [
                (&[0, 1, 2, 3, 4, 5], 8, 5, 3),
                (&[1], 5, 2, 2),
                (&[4, 0], 5, 3, 2),
                (&[2], 2, 1, 1),
                (&[3], 3, 1, 1),
                (&[5, 2], 5, 3, 2),
                (&[0], 0, 0, 0),
            ];
            for (outs, operands, results, carries) in rows {
                let g = graph(&refs, |b, v| {
                    let all = b.emit(scan(bounded).into(), v)?;
                    Ok(outs.iter().map(|&i| all[i]).collect())
                });
                let p = pruned(&g, &x);
                if results == 0 {
                    assert!(p.nodes().is_empty());
                    continue;
                }
                let (op, args, outs) = only(&p);
                let Op::Scan(s) = op else { panic!("{p}") };
                assert_eq!((args - bounded as usize, outs, s.carries), (operands, results, carries), "{p}");
            }
        }
    }
}

#[test]
fn pruning_goes_inside_and_comes_back_out() {
    // The outer loop has a carry that only the dead carry of the inner loop reads.
    let inner = body(2, |b, v| {
        let s = b.unary(Unary::Sin, v[0]).unwrap();
        let t = b.add(v[1], v[0]).unwrap();
        vec![s, t]
    });
    let outer = body(2, |b, v| {
        let outs = b.emit(Scan::over(0, 2, 3, inner).into(), v).unwrap();
        vec![outs[0], v[1]]
    });
    let x = vectors(2);
    let g = graph(&[&x[0], &x[1]], |b, v| Ok(vec![b.emit(Scan::over(0, 2, 2, outer).into(), v)?[0]]));
    let p = pruned(&g, &x);
    let (op, args, outs) = only(&p);
    assert_eq!((args, outs), (1, 1));
    let Op::Scan(s) = op else { panic!() };
    assert_eq!(only(&s.body).1, 1);
}

#[test]
fn a_while_keeps_what_decides_and_what_is_read() {
    let mut c = Builder::new();
    let (limit, i) = (c.input(DType::I32, &[]), c.input(DType::I32, &[]));
    let cap = c.input(DType::I32, &[]);
    for _ in 0..3 {
        c.input(F, &[2]);
    }
    let l = c.binary(ir::Binary::Min, limit, cap).unwrap();
    let go = c.compare(Compare::Lt, i, l).unwrap();
    let cond = c.finish(&[go]);
    let mut b = Builder::new();
    let (w, unused) = (b.input(F, &[2]), b.input(F, &[2]));
    let (i, cap) = (b.input(DType::I32, &[]), b.input(DType::I32, &[]));
    let (x, alone, fixed) = (b.input(F, &[2]), b.input(F, &[2]), b.input(F, &[2]));
    let one = b.full_like(i, 1.0).unwrap();
    let j = b.add(i, one).unwrap();
    let m = b.mul(x, w).unwrap();
    let y = b.add(m, fixed).unwrap();
    let a = b.add(alone, unused).unwrap();
    let body = b.finish(&[j, cap, y, a, fixed]);
    let v = vectors(5);
    let x = [
        ints(&[], &[4]),
        v[0].clone(),
        v[1].clone(),
        ints(&[], &[0]),
        ints(&[], &[3]),
        v[2].clone(),
        v[3].clone(),
        v[4].clone(),
    ];
    let refs: Vec<&Literal> = x.iter().collect();
    let rows: [(&[usize], usize, usize); 5] =
        [(&[0, 1, 2, 3, 4], 8, 3), (&[2], 6, 2), (&[0, 1], 3, 1), (&[3], 5, 2), (&[1, 4], 0, 0)];
    for (outs, operands, results) in rows {
        let g = graph(&refs, |b, v| {
            let all = b.emit(While::new(1, 2, cond.clone(), body.clone()).into(), v)?;
            Ok(outs.iter().map(|&i| all[i]).collect())
        });
        let p = pruned(&g, &x);
        match results {
            0 => assert!(p.nodes().is_empty()),
            _ => assert_eq!((only(&p).1, only(&p).2), (operands, results), "{p}"),
        }
    }
}

#[test]
fn branches_and_functions_drop_unread_operands_and_results() {
    let first = body(4, |b, v| vec![b.add(v[0], v[1]).unwrap(), v[2], v[3], v[3]]);
    let second = body(4, |b, v| vec![v[0], v[2], v[3], b.neg(v[2]).unwrap()]);
    let mut x = vec![ints(&[], &[1])];
    x.extend(vectors(4));
    let refs: Vec<&Literal> = x.iter().collect();
    for (outs, operands, results) in [(&[0usize, 1, 2, 3][..], 5, 2), (&[0], 3, 1), (&[3, 1], 3, 1)] {
        let g = graph(&refs, |b, v| {
            let all = b.emit(Cond::new([first.clone(), second.clone()]).into(), v)?;
            Ok(outs.iter().map(|&i| all[i]).collect())
        });
        let p = pruned(&g, &x);
        assert_eq!((only(&p).1, only(&p).2), (operands, results), "{p}");
    }
    for op in [Op::from(Call::new(first.clone())), Remat::new(first).into()] {
        let g = graph(&refs[1..], |b, v| {
            let all = b.emit(op.clone(), v)?;
            Ok(vec![all[0], all[1]])
        });
        let p = pruned(&g, &x[1..]);
        assert_eq!((only(&p).1, only(&p).2), (2, 1));
    }
}

#[test]
fn gradients_of_loops_get_smaller_and_stay_right() {
    for checkpoint in [ScanCheckpoint::All, ScanCheckpoint::EveryN(2)] {
        let mut x = vectors(6);
        x.extend([random(&[3, 2], 9), random(&[3, 2], 10)]);
        let refs: Vec<&Literal> = x.iter().collect();
        let scan = Scan { checkpoint, ..scan(false) };
        let g = graph(&refs, |b, v| Ok(vec![b.emit(scan.into(), v)?[1]]));
        let back = tensorloom_transform::grad(&loss(&g), &[0, 3, 6]).unwrap();
        let p = pruned(&back, &x);
        assert!(p.to_string().len() < back.to_string().len());
    }
}
