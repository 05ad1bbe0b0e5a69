//! Samples of views and constants.

use super::SampleTable;
use crate::FillKind;
use ir::ops::{Broadcast, Concat, Const, Flip, Iota, Pad, Permute, Reshape, Slice};
use ir::types::Shape;
use ir::{DType, GraphBuilder, Literal, Scalar};

fn shape(s: &[usize]) -> Shape {
    Shape::from_slice(s)
}

pub(super) fn rows(t: &mut SampleTable) {
    let smooth = FillKind::Smooth;
    for (k, (from, to)) in
        [("f64[2,3]", &[3usize, 2][..]), ("f64[1]", &[]), ("f64[2,0]", &[0, 7]), ("f64[4]", &[1, 2, 2, 1])]
            .into_iter()
            .enumerate()
    {
        t.smooth(&format!("reshape/{k}"), Reshape { shape: shape(to) }, &[from], smooth);
    }
    for (k, (from, perm)) in
        [("f64[2,3,4]", &[2usize, 0, 1][..]), ("f64[]", &[]), ("f64[0,2]", &[1, 0])].into_iter().enumerate()
    {
        t.smooth(&format!("permute/{k}"), Permute { perm: shape(perm) }, &[from], smooth);
    }
    for (k, (from, to, dims)) in [
        ("f64[3]", &[2usize, 3, 2][..], &[1usize][..]),
        ("f64[]", &[2, 2], &[]),
        ("f64[2,1]", &[2, 4], &[0, 1]),
        ("f64[1]", &[0, 4], &[1]),
        ("f64[0]", &[2, 0], &[1]),
    ]
    .into_iter()
    .enumerate()
    {
        t.smooth(&format!("broadcast/{k}"), Broadcast { shape: shape(to), dims: shape(dims) }, &[from], smooth);
    }
    for (k, (from, start, limit, stride)) in [
        ("f64[5,4]", &[1usize, 0][..], &[5usize, 4][..], &[2usize, 3][..]),
        ("f64[3]", &[2], &[2], &[1]),
        ("f64[]", &[], &[], &[]),
        ("f64[0,3]", &[0, 1], &[0, 3], &[1, 1]),
        ("f64[7]", &[0], &[7], &[10]),
    ]
    .into_iter()
    .enumerate()
    {
        let op = Slice { start: shape(start), limit: shape(limit), stride: shape(stride) };
        t.smooth(&format!("slice/{k}"), op, &[from], smooth);
    }
    for (k, (from, low, high, interior)) in [
        ("f64[2,3]", &[1i64, 0][..], &[0i64, 2][..], &[0usize, 1][..]),
        ("f64[4]", &[-1], &[-2], &[0]),
        ("f64[4]", &[-2], &[3], &[2]),
        ("f64[3]", &[2], &[-4], &[1]),
        ("f64[]", &[], &[], &[]),
        ("f64[0]", &[2], &[1], &[3]),
        ("f64[2]", &[-3], &[-1], &[2]),
        ("f64[2]", &[5], &[-6], &[0]),
    ]
    .into_iter()
    .enumerate()
    {
        let op = Pad { low: low.into(), high: high.into(), interior: shape(interior) };
        t.smooth(&format!("pad/{k}"), op.clone(), &[from, "f64[]"], smooth);
        t.graph(&format!("pad/const_fill{k}"), &[from], &[smooth], true, |b, x| {
            let fill = b.scalar(DType::F64, 0.25)?;
            Ok(vec![b.one(op.into(), &[x[0], fill])?])
        });
    }
    for (k, (from, axes)) in
        [("f64[2,3]", &[1usize][..]), ("f64[2,3]", &[0, 1]), ("f64[]", &[]), ("f64[0,2]", &[0])].into_iter().enumerate()
    {
        t.smooth(&format!("flip/{k}"), Flip { axes: shape(axes) }, &[from], smooth);
    }
    t.smooth("concat/0", Concat { axis: 1 }, &["f64[2,1]", "f64[2,3]", "f64[2,0]"], smooth);
    t.smooth("concat/one", Concat { axis: 0 }, &["f64[3]"], smooth);
    t.smooth("concat/empty", Concat { axis: 0 }, &["f64[0,2]", "f64[0,2]"], smooth);
    t.graph("concat/same", &["f64[2]"], &[smooth], true, |b, x| Ok(vec![b.concat(&[x[0], x[0]], 0)?]));
    for d in DType::ALL {
        let (m, v) = (format!("{d}[2,3]"), format!("{d}[]"));
        let special = &[FillKind::Special];
        t.plain(&format!("reshape/{d}"), Reshape { shape: shape(&[6]) }, &[&m], special);
        t.plain(&format!("permute/{d}"), Permute { perm: shape(&[1, 0]) }, &[&m], special);
        t.plain(
            &format!("broadcast/{d}"),
            Broadcast { shape: shape(&[2, 3, 2]), dims: shape(&[0, 1]) },
            &[&m],
            special,
        );
        t.plain(&format!("flip/{d}"), Flip { axes: shape(&[0, 1]) }, &[&m], special);
        t.plain(&format!("concat/{d}"), Concat { axis: 0 }, &[&m, &m], special);
        t.plain(
            &format!("slice/{d}"),
            Slice { start: shape(&[0, 1]), limit: shape(&[2, 3]), stride: shape(&[1, 2]) },
            &[&m],
            special,
        );
        let pad = Pad { low: [1, -1][..].into(), high: [0, 2][..].into(), interior: shape(&[1, 0]) };
        t.plain(&format!("pad/{d}"), pad, &[&m, &v], special);
        t.with(
            &format!("const/{d}"),
            Const(Literal::from_fn(super::parse_type(&m), |i| Scalar::from_i64(d, i as i64))),
            vec![],
        );
        if d != DType::Bool {
            t.with(&format!("iota/{d}"), Iota { dtype: d, shape: shape(&[2, 3]), axis: 1 }, vec![]);
        }
    }
    t.with("iota/empty", Iota { dtype: DType::I32, shape: shape(&[2, 0]), axis: 1 }, vec![]);
    // Equal sizes, so that only the values reveal a wrong axis.
    let cube = Permute { perm: shape(&[1, 2, 0]) };
    t.smooth("permute/cube", cube, &["f64[2,2,2]"], smooth);
    // Views of views: the operand of one index computation is another one.
    t.graph("flip/of_views", &["f64[2,3]"], &[smooth], true, |b, x| {
        let f = b.flip(x[0], &[1])?;
        let p = b.permute(f, &[1, 0])?;
        let s = b.slice(p, &[0, 0], &[3, 2], &[2, 1])?;
        let z = b.scalar(DType::F64, 1.5)?;
        let w = b.pad(s, z, &[1, 0], &[0, 1], &[1, 0])?;
        let r = b.reshape(w, &[12])?;
        let r = b.flip(r, &[0])?;
        let y = b.broadcast(r, &[2, 12], &[1])?;
        Ok(vec![b.mul(y, y)?])
    });
    t.graph("iota/beside", &["f64[2,3]"], &[smooth], true, |b, x| {
        let i = b.iota(DType::F64, &[2, 3], 0)?;
        Ok(vec![b.mul(i, x[0])?, i])
    });
}
