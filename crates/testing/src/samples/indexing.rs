//! Samples of ops that read and write at computed indices.

use super::{SampleTable, parse_type};
use crate::FillKind;
use ir::ops::{
    DynamicSlice, DynamicUpdateSlice, Gather, GatherMode, PutAlong, Scatter, ScatterKind, ScatterMode, SliceDims, Sort,
    TakeAlong, TopK,
};
use ir::types::Shape;
use ir::{DType, Literal};

fn shape(s: &[usize]) -> Shape {
    Shape::from_slice(s)
}

pub(super) fn rows(t: &mut SampleTable) {
    gathers(t);
    scatters(t);
    dynamic(t);
    ordered(t);
}

/// The operand, the indices, the dimension numbers, the slice sizes.
type Layout = (&'static str, &'static str, SliceDims, Vec<usize>);

fn layouts() -> Vec<Layout> {
    let along = SliceDims::along_axis(2, 1);
    let window = SliceDims { offset: shape(&[1, 2]), index_map: shape(&[1]), ..SliceDims::default() };
    let inner =
        SliceDims { offset: shape(&[0, 2]), collapsed: shape(&[1]), index_map: shape(&[1]), ..SliceDims::default() };
    vec![
        ("f64[4,3]", "i32[2,1]", SliceDims::take(2, 0, 1), vec![1, 3]),
        ("f64[4,3]", "i32[2,2,1]", SliceDims::take(2, 1, 2), vec![4, 1]),
        ("f64[4]", "i32[1]", SliceDims::take(1, 0, 0), vec![1]),
        ("f64[4,3]", "i64[5,2]", SliceDims::leading(2, 2, 1), vec![1, 1]),
        ("f64[2,3]", "u8[2,2,1]", along, vec![1, 1]),
        ("f64[3,4]", "i32[2,1]", window, vec![3, 2]),
        ("f64[2,3,2]", "i32[4,1]", inner, vec![2, 1, 2]),
        ("f64[4,3]", "i32[0,1]", SliceDims::take(2, 0, 1), vec![1, 3]),
    ]
}

fn gathers(t: &mut SampleTable) {
    for (k, (x, i, dims, sizes)) in layouts().into_iter().enumerate() {
        for (mode, word) in
            [(GatherMode::Clip, "clip"), (GatherMode::fill(DType::F64), "nan"), (GatherMode::zero(DType::F64), "zero")]
        {
            let op = Gather { dims: dims.clone(), slice_sizes: shape(&sizes), mode };
            let inside = [FillKind::Smooth, FillKind::IndexBelow(2)];
            t.graph(&format!("gather/{word}{k}"), &[x, i], &inside, true, |b, v| {
                Ok(ir::GraphBuilder::emit(b, op.clone().into(), v)?.to_vec())
            });
            // Out of bounds on both sides, where it must be clamped, filled or dropped.
            t.graph(&format!("gather/{word}_outside{k}"), &[x, i], &[FillKind::Smooth], word == "clip", |b, v| {
                Ok(ir::GraphBuilder::emit(b, op.into(), v)?.to_vec())
            });
        }
    }
    for d in DType::ALL {
        let x = parse_type(&format!("{d}[4,3]"));
        let op = Gather::take(&x, 0, 1, GatherMode::fill(d));
        t.plain(&format!("gather/{d}"), op, &[&x.to_string(), "i32[6,1]"], &[FillKind::Special, FillKind::Smooth]);
    }
}

fn scatters(t: &mut SampleTable) {
    for kind in ScatterKind::ALL {
        let name = kind.name();
        for (k, (x, i, dims, sizes)) in layouts().into_iter().enumerate() {
            let types = [parse_type(x), parse_type(i)];
            let gather = Gather { dims: dims.clone(), slice_sizes: shape(&sizes), mode: GatherMode::zero(DType::F64) };
            let updates = ir::Rules::infer(&gather, &types).expect("a layout of the table fits")[0].to_string();
            for (mode, word) in [(ScatterMode::Clip, "clip"), (ScatterMode::Drop, "drop")] {
                let op = Scatter { kind, dims: dims.clone(), mode };
                let fills = [FillKind::Smooth, FillKind::IndexBelow(3), FillKind::Smooth];
                t.graph(&format!("{name}/{word}{k}"), &[x, i, &updates], &fills, true, |b, v| {
                    Ok(ir::GraphBuilder::emit(b, op.clone().into(), v)?.to_vec())
                });
                t.graph(&format!("{name}/{word}_outside{k}"), &[x, i, &updates], &[FillKind::Smooth], true, |b, v| {
                    Ok(ir::GraphBuilder::emit(b, op.into(), v)?.to_vec())
                });
            }
        }
        for d in DType::ALL {
            if d == DType::Bool && matches!(kind, ScatterKind::Add | ScatterKind::Mul) {
                continue;
            }
            let op = Scatter { kind, dims: SliceDims::take(2, 0, 1), mode: ScatterMode::Drop };
            let (x, u) = (format!("{d}[4,3]"), format!("{d}[6,3]"));
            t.plain(
                &format!("{name}/{d}"),
                op,
                &[&x, "i32[6,1]", &u],
                &[FillKind::Special, FillKind::Smooth, FillKind::Special],
            );
        }
    }
}

fn dynamic(t: &mut SampleTable) {
    for (k, (x, sizes)) in
        [("f64[4,3]", &[2usize, 2][..]), ("f64[]", &[]), ("f64[3]", &[3]), ("f64[3]", &[0])].into_iter().enumerate()
    {
        let rank = sizes.len();
        for index in ["i32[]", "i64[]"] {
            let mut types = vec![x];
            types.extend(vec![index; rank]);
            let op = DynamicSlice { sizes: shape(sizes) };
            t.smooth(&format!("dynamic_slice/{index}{k}"), op, &types, FillKind::Smooth);
            let update = parse_type(x).with_shape(sizes).to_string();
            let mut types = vec![x, &update];
            types.extend(vec![index; rank]);
            t.smooth(&format!("dynamic_update_slice/{index}{k}"), DynamicUpdateSlice, &types, FillKind::Smooth);
        }
    }
    for d in DType::ALL {
        let x = format!("{d}[4,3]");
        let op = DynamicSlice { sizes: shape(&[2, 1]) };
        t.plain(
            &format!("dynamic_slice/{d}"),
            op,
            &[&x, "i32[]", "i32[]"],
            &[FillKind::Special, FillKind::IndexBelow(4)],
        );
        let u = format!("{d}[2,2]");
        t.plain(
            &format!("dynamic_update_slice/{d}"),
            DynamicUpdateSlice,
            &[&x, &u, "i32[]", "i32[]"],
            &[FillKind::Special, FillKind::Special, FillKind::IndexBelow(4)],
        );
    }
    for (k, (x, i, axis)) in
        [("f64[4,3]", "i32[2,3]", 0), ("f64[2,3]", "u8[2,5]", 1), ("f64[3]", "i64[0]", 0)].into_iter().enumerate()
    {
        let fills = [FillKind::Smooth, FillKind::IndexBelow(4)];
        t.graph(&format!("take_along/{k}"), &[x, i], &fills, true, |b, v| {
            Ok(ir::GraphBuilder::emit(b, TakeAlong { axis }.into(), v)?.to_vec())
        });
        let put = parse_type(i).with_dtype(DType::F64).to_string();
        let op = PutAlong { axis, size: 3 };
        t.graph(&format!("put_along/{k}"), &[&put, i], &fills, true, |b, v| {
            Ok(ir::GraphBuilder::emit(b, op.into(), v)?.to_vec())
        });
    }
    for d in DType::ALL {
        let x = format!("{d}[2,3]");
        t.plain(
            &format!("take_along/{d}"),
            TakeAlong { axis: 1 },
            &[&x, "i32[2,4]"],
            &[FillKind::Special, FillKind::IndexBelow(4)],
        );
        if d != DType::Bool {
            t.plain(
                &format!("put_along/{d}"),
                PutAlong { axis: 1, size: 2 },
                &[&x, "i32[2,3]"],
                &[FillKind::Special, FillKind::IndexBelow(3)],
            );
        }
    }
}

fn ordered(t: &mut SampleTable) {
    for descending in [false, true] {
        let sort = |axis, num_keys| Sort { axis, num_keys, descending };
        t.smooth(&format!("sort/smooth_{descending}"), sort(1, 1), &["f64[2,4]"], FillKind::Smooth);
        t.smooth(&format!("sort/front_{descending}"), sort(0, 1), &["f64[3,2]"], FillKind::Smooth);
        t.smooth(&format!("sort/values_{descending}"), sort(0, 1), &["f64[4]", "f64[4]", "i32[4]"], FillKind::Smooth);
        t.plain(
            &format!("sort/two_keys_{descending}"),
            sort(0, 2),
            &["i32[8]", "f64[8]", "f64[8]"],
            &[FillKind::Duplicates],
        );
        t.plain(&format!("sort/ties_{descending}"), sort(1, 1), &["f64[2,6]", "i32[2,6]"], &[FillKind::Duplicates]);
        t.smooth(&format!("sort/empty_{descending}"), sort(0, 1), &["f64[0,2]"], FillKind::Smooth);
        for d in DType::ALL {
            let x = format!("{d}[12]");
            t.plain(&format!("sort/{d}_{descending}"), sort(0, 1), &[&x, "i32[12]"], &[FillKind::Special]);
        }
    }
    t.smooth("top_k/smooth", TopK { k: 2, axis: 1 }, &["f64[2,4]"], FillKind::Smooth);
    t.smooth("top_k/front", TopK { k: 3, axis: 0 }, &["f64[3,2]"], FillKind::Smooth);
    t.smooth("top_k/none", TopK { k: 0, axis: 0 }, &["f64[3]"], FillKind::Smooth);
    t.plain("top_k/ties", TopK { k: 4, axis: 1 }, &["f64[2,6]"], &[FillKind::Duplicates]);
    for d in DType::ALL {
        t.plain(&format!("top_k/{d}"), TopK { k: 5, axis: 0 }, &[&format!("{d}[12]")], &[FillKind::Special]);
    }
    t.with("top_k/nan", TopK { k: 2, axis: 0 }, vec![Literal::new(&[4], &[1f32, f32::NAN, 3.0, f32::INFINITY])]);
}
