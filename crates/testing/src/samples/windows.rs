//! Samples of sliding windows, cumulative reductions, and argmax/argmin.

use super::{FLOATS, INTS, SampleTable};
use crate::FillKind;
use ir::ops::{ArgReduce, Conv, Cumulative, ReduceKind, ReduceWindow, WindowConfig, WindowGather, WindowScatter};
use ir::types::Shape;
use ir::{DType, GraphBuilder};

pub(super) fn rows(t: &mut SampleTable) {
    convolutions(t);
    pools(t);
    running(t);
    places(t);
}

fn windows(strides: &[usize], low: &[i64], high: &[i64], base: &[usize], window: &[usize]) -> WindowConfig {
    WindowConfig {
        strides: Shape::from_slice(strides),
        low: low.into(),
        high: high.into(),
        base_dilation: Shape::from_slice(base),
        window_dilation: Shape::from_slice(window),
    }
}

fn convolutions(t: &mut SampleTable) {
    let d = DType::F64;
    let s = FillKind::Smooth;
    let one = |w: WindowConfig| Conv::new(d, w);
    for (k, (x, kernel, w)) in [
        ("f64[2,2,5]", "f64[3,2,3]", WindowConfig::unit_stride(1)),
        ("f64[1,2,5]", "f64[2,2,2]", windows(&[2], &[1], &[2], &[1], &[2])),
        ("f64[1,1,4]", "f64[1,1,3]", windows(&[1], &[-1], &[2], &[2], &[1])),
        ("f64[1,1,6]", "f64[1,1,2]", windows(&[3], &[0], &[-1], &[1], &[3])),
        ("f64[1,2,3,4]", "f64[2,2,2,3]", windows(&[1, 2], &[1, 0], &[0, 1], &[1, 1], &[1, 1])),
        ("f64[2,3]", "f64[4,3]", WindowConfig::unit_stride(0)),
        ("f64[1,1,2]", "f64[1,1,4]", WindowConfig::unit_stride(1)),
        ("f64[0,1,3]", "f64[2,1,2]", WindowConfig::unit_stride(1)),
        ("f64[2,0,3]", "f64[2,0,2]", WindowConfig::unit_stride(1)),
    ]
    .into_iter()
    .enumerate()
    {
        t.smooth(&format!("conv/{k}"), one(w), &[x, kernel], s);
    }
    let grouped = Conv { groups: 2, ..one(windows(&[1], &[1], &[1], &[1], &[1])) };
    t.smooth("conv/groups", grouped, &["f64[2,4,4]", "f64[6,2,3]"], s);
    let depthwise = Conv { groups: 3, ..one(windows(&[2], &[0], &[1], &[1], &[1])) };
    t.smooth("conv/depthwise", depthwise, &["f64[1,3,5]", "f64[3,1,2]"], s);
    let batched = Conv { batch_groups: 2, ..one(WindowConfig::unit_stride(1)) };
    t.smooth("conv/batch_groups", batched, &["f64[4,2,4]", "f64[4,2,2]"], s);
    for d in FLOATS.into_iter().chain(INTS) {
        let (x, k) = (format!("{d}[1,2,4]"), format!("{d}[2,2,3]"));
        t.plain(&format!("conv/{d}"), Conv::new(d, WindowConfig::strided(&[1], &[1])), &[&x, &k], &[s]);
    }
}

fn pools(t: &mut SampleTable) {
    for kind in ReduceKind::ALL {
        let boolean = matches!(kind, ReduceKind::Any | ReduceKind::All);
        let name = format!("reduce_window_{}", kind.name().trim_start_matches("reduce_"));
        let pool =
            |window: &[usize], windows: WindowConfig| ReduceWindow { kind, window: Shape::from_slice(window), windows };
        if boolean {
            t.plain(
                &format!("{name}/bool"),
                pool(&[2], WindowConfig::strided(&[1], &[1])),
                &["bool[5]"],
                &[FillKind::Smooth],
            );
            continue;
        }
        t.smooth(&format!("{name}/0"), pool(&[3], WindowConfig::unit_stride(1)), &["f64[5]"], FillKind::Smooth);
        t.smooth(
            &format!("{name}/1"),
            pool(&[2, 2], WindowConfig::strided(&[2, 1], &[1, 0])),
            &["f64[3,4]"],
            FillKind::Smooth,
        );
        t.smooth(
            &format!("{name}/2"),
            pool(&[2], windows(&[1], &[1], &[0], &[2], &[2])),
            &["f64[4]"],
            FillKind::Smooth,
        );
        t.smooth(&format!("{name}/empty"), pool(&[4], WindowConfig::unit_stride(1)), &["f64[2]"], FillKind::Smooth);
        t.plain(
            &format!("{name}/ties"),
            pool(&[3], WindowConfig::strided(&[1], &[1])),
            &["f64[8]"],
            &[FillKind::Duplicates],
        );
        for d in FLOATS.into_iter().chain(INTS) {
            t.plain(
                &format!("{name}/{d}"),
                pool(&[2], WindowConfig::strided(&[1], &[1])),
                &[&format!("{d}[6]")],
                &[FillKind::Special],
            );
        }
    }
    for max in [true, false] {
        let word = if max { "max" } else { "min" };
        let w = windows(&[1], &[1], &[1], &[1], &[1]);
        let gather = WindowGather { max, window: Shape::from_slice(&[2]), windows: w.clone() };
        t.smooth(&format!("window_gather_{word}/smooth"), gather.clone(), &["f64[4]", "f64[4]"], FillKind::Smooth);
        t.plain(
            &format!("window_gather_{word}/ties"),
            gather,
            &["i32[6]", "f32[6]"],
            &[FillKind::Duplicates, FillKind::Special],
        );
        let scatter = WindowScatter { max, window: Shape::from_slice(&[2]), windows: w };
        t.smooth(&format!("window_scatter_{word}/smooth"), scatter.clone(), &["f64[4]", "f64[5]"], FillKind::Smooth);
        t.plain(&format!("window_scatter_{word}/ties"), scatter, &["f32[6]", "i32[7]"], &[FillKind::Duplicates]);
    }
}

fn running(t: &mut SampleTable) {
    for kind in ReduceKind::ALL {
        let name = format!("cum{}", kind.name().trim_start_matches("reduce_"));
        for reverse in [false, true] {
            let op = |axis| Cumulative { kind, axis, reverse };
            if matches!(kind, ReduceKind::Any | ReduceKind::All) {
                t.plain(&format!("{name}/bool_{reverse}"), op(0), &["bool[5]"], &[FillKind::Smooth]);
                continue;
            }
            t.smooth(&format!("{name}/last_{reverse}"), op(1), &["f64[2,4]"], FillKind::Smooth);
            t.smooth(&format!("{name}/front_{reverse}"), op(0), &["f64[3,2]"], FillKind::Smooth);
            t.smooth(&format!("{name}/empty_{reverse}"), op(0), &["f64[0,2]"], FillKind::Smooth);
            t.plain(&format!("{name}/ties_{reverse}"), op(0), &["f64[8]"], &[FillKind::Duplicates]);
            for d in FLOATS.into_iter().chain(INTS) {
                t.plain(&format!("{name}/{d}_{reverse}"), op(0), &[&format!("{d}[6]")], &[FillKind::Special]);
            }
        }
    }
    t.graph("cumprod/zero", &["f64[4]"], &[FillKind::Smooth], true, |b, x| {
        let i = b.iota(DType::F64, &[4], 0)?;
        let y = b.mul(x[0], i)?;
        Ok(vec![b.cumulative(ReduceKind::Prod, y, 0, true)?])
    });
}

fn places(t: &mut SampleTable) {
    for max in [true, false] {
        let name = if max { "argmax" } else { "argmin" };
        for index in [DType::I32, DType::I64] {
            let op = |axis| ArgReduce { max, axis, index };
            t.plain(&format!("{name}/last_{index}"), op(1), &["f64[2,4]"], &[FillKind::Smooth]);
            t.plain(&format!("{name}/ties_{index}"), op(0), &["f64[6,2]"], &[FillKind::Duplicates]);
            t.plain(&format!("{name}/empty_{index}"), op(0), &["f32[2,0]"], &[FillKind::Duplicates]);
        }
        for d in DType::ALL {
            t.plain(
                &format!("{name}/{d}"),
                ArgReduce { max, axis: 1, index: DType::I32 },
                &[&format!("{d}[3,8]")],
                &[FillKind::Special],
            );
        }
    }
}
