//! Convolutions.

use crate::check::{check, close, random, value};
use ir::ops::{Conv, WindowConfig};
use ir::{DType, GraphBuilder, Literal};

struct Case {
    name: &'static str,
    x: &'static [usize],
    kernel: &'static [usize],
    strides: &'static [usize],
    padding: &'static [(i64, i64)],
    base: &'static [usize],
    dilation: &'static [usize],
    groups: (usize, usize),
    shape: &'static [usize],
    /// The results of `lax.conv_general_dilated`, for the operands of `ramp`.
    values: &'static [i32],
}

impl Case {
    fn conv(&self, dtype: DType) -> Conv {
        let windows = WindowConfig {
            strides: self.strides.into(),
            low: self.padding.iter().map(|p| p.0).collect(),
            high: self.padding.iter().map(|p| p.1).collect(),
            base_dilation: self.base.into(),
            window_dilation: self.dilation.into(),
        };
        Conv { groups: self.groups.0, batch_groups: self.groups.1, ..Conv::new(dtype, windows) }
    }
}

const CASES: [Case; 6] = [
    Case {
        name: "same",
        x: &[2, 2, 5],
        kernel: &[3, 2, 3],
        strides: &[1],
        padding: &[(1, 1)],
        base: &[1],
        dilation: &[1],
        groups: (1, 1),
        shape: &[2, 3, 5],
        values: &[
            20, -9, 19, 14, -55, -60, 18, -1, -9, 24, 14, 12, -10, 23, 4, -4, 29, -9, 19, 16, 28, -62, 18, -1, 9, -28,
            12, 12, -10, 13,
        ],
    },
    Case {
        name: "strided",
        x: &[1, 2, 5, 4],
        kernel: &[2, 2, 2, 3],
        strides: &[2, 1],
        padding: &[(1, 0), (0, 2)],
        base: &[1, 1],
        dilation: &[1, 1],
        groups: (1, 1),
        shape: &[1, 2, 3, 4],
        values: &[
            -4, -14, -22, 20, 16, 25, -8, -26, -44, -2, -5, -25, 38, 22, -22, -14, 17, 25, -12, 14, 48, -32, -18, 16,
        ],
    },
    Case {
        name: "dilated and cut",
        x: &[1, 1, 4, 5],
        kernel: &[2, 1, 2, 2],
        strides: &[1, 2],
        padding: &[(2, -1), (0, 1)],
        base: &[2, 3],
        dilation: &[3, 2],
        groups: (1, 1),
        shape: &[1, 2, 5, 6],
        values: &[
            0, 0, 0, 0, 0, 0, -3, 0, 0, 0, 0, 12, 25, 0, 4, 10, 0, -2, -1, 0, 8, 2, 0, 20, 15, 0, 0, 0, 0, -6, 0, 0, 0,
            0, 0, 0, -6, 0, 0, 0, 0, 15, 20, 0, 2, 8, 0, -1, -2, 0, 10, 4, 0, 25, 12, 0, 0, 0, 0, -3,
        ],
    },
    Case {
        name: "grouped",
        x: &[1, 4, 3],
        kernel: &[2, 2, 2],
        strides: &[1],
        padding: &[(0, 1)],
        base: &[1],
        dilation: &[1],
        groups: (2, 1),
        shape: &[1, 2, 3],
        values: &[30, -17, 7, -15, -23, 6],
    },
    Case {
        name: "batch grouped",
        x: &[4, 2, 3],
        kernel: &[2, 2, 2],
        strides: &[1],
        padding: &[(0, 1)],
        base: &[2],
        dilation: &[1],
        groups: (1, 2),
        shape: &[2, 2, 5],
        values: &[30, 0, -9, -8, 7, -6, -13, 2, 15, -12, -17, -4, -1, -12, 15, -2, -21, 6, 7, -8],
    },
    Case {
        name: "pointwise",
        x: &[2, 3],
        kernel: &[2, 3],
        strides: &[],
        padding: &[],
        base: &[],
        dilation: &[],
        groups: (1, 1),
        shape: &[2, 2],
        values: &[19, -26, -30, 19],
    },
];

fn ramp(shape: &[usize], step: usize) -> Literal {
    let n: usize = shape.iter().product();
    let data: Vec<i32> = (0..n).map(|i| (i * step % 11) as i32 - 5).collect();
    Literal::new(shape, &data)
}

#[test]
fn values_are_those_of_jax() {
    for c in &CASES {
        let y = value(&[ramp(c.x, 7), ramp(c.kernel, 3)], |b, v| b.one(c.conv(DType::I32).into(), v));
        close(c.name, &y, &Literal::new(c.shape, c.values), 0.0);
    }
}

#[test]
fn every_law_holds() {
    for c in &CASES {
        check(c.name, &[random(c.x, 1), random(c.kernel, 2)], |b, v| b.one(c.conv(DType::F64).into(), v));
    }
    // Depthwise with two outputs per channel; elements that a stride skips; more windows than batches.
    let rows: [(&[usize], &[usize], WindowConfig, usize); 6] = [
        (&[2, 3, 4], &[6, 1, 2], WindowConfig::strided(&[1], &[1]), 3),
        (&[1, 2, 6, 5], &[2, 2, 2, 2], WindowConfig::strided(&[3, 4], &[0, 0]), 1),
        (&[1, 1, 2, 3, 2], &[1, 1, 2, 2, 1], WindowConfig::unit_stride(3), 1),
        (&[1, 2, 0], &[3, 2, 2], WindowConfig::strided(&[1], &[2]), 1),
        (&[1, 2, 3], &[3, 2, 5], WindowConfig::unit_stride(1), 1),
        (&[0, 2, 3], &[3, 1, 2], WindowConfig::unit_stride(1), 1),
    ];
    for (i, (x, kernel, windows, groups)) in rows.into_iter().enumerate() {
        let mut x = x.to_vec();
        x[1] = kernel[1] * groups;
        check(&format!("row {i}"), &[random(&x, 1), random(kernel, 2)], |b, v| b.conv(v[0], v[1], windows, groups));
    }
}
