//! How the functions of `lax` are called for a line.

use crate::line::Line;
use ir::Shape;
use ir::ops::{Gather, GatherMode, Scatter, ScatterKind, ScatterMode, SliceDims};
use tensorloom::lax::{self, ConvOptions, Padding};
use tensorloom::{DType, ReduceKind, Tensor, full};

fn padding(l: &Line) -> Padding {
    match l.text("padding") {
        "VALID" => Padding::Valid,
        "SAME" => Padding::Same,
        _ => {
            let w = l.list("padding").unwrap();
            Padding::Explicit(vec![(w[0] as i64, w[1] as i64)])
        }
    }
}

/// `2,1/0` as two lists.
fn two(l: &Line, key: &str) -> (Vec<usize>, Vec<usize>) {
    let list = |s: &str| s.split(',').filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
    let (a, b) = l.text(key).split_once('/').unwrap();
    (list(a), list(b))
}

pub(crate) fn call(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    let pair = |(a, b): (Tensor, Tensor)| vec![a, b];
    let number = |n: f64, like: &Tensor| full(&[], n).cast(like.dtype());
    let index = |from: usize, to: usize| x[from..to].iter().collect::<Vec<_>>();
    let last = x.len() - 1;
    Some(match l.name.strip_prefix("lax.")? {
        "cond" => vec![lax::cond(&x[0], |x: Tensor| &x * &x, |x: Tensor| x.sin(), x[1].clone())],
        "switch" => {
            let branches: [&dyn Fn(Tensor) -> Tensor; 3] = [&|x| x.exp(), &|x| x * 2.0, &|x| -x];
            vec![lax::switch(&x[0], branches, x[1].clone())]
        }
        "index_set" => vec![lax::index_set(&x[0], &index(1, last), &x[last])],
        "index_add" => vec![lax::index_add(&x[0], &index(1, last), &x[last])],
        "index_mul" => vec![lax::index_mul(&x[0], &index(1, last), &x[last])],
        "index_min" => vec![lax::index_min(&x[0], &index(1, last), &x[last])],
        "index_max" => vec![lax::index_max(&x[0], &index(1, last), &x[last])],
        "gather" => {
            let mode = GatherMode::fill(x[0].dtype());
            let op = Gather { dims: SliceDims::leading(2, 1, 1), slice_sizes: Shape::from_slice(&[1, 2]), mode };
            vec![lax::gather(&x[0], &x[1].unsqueeze(-1), op)]
        }
        "scatter" => {
            let op = Scatter { kind: ScatterKind::Add, dims: SliceDims::leading(2, 1, 1), mode: ScatterMode::Drop };
            vec![lax::scatter(&x[0], &x[1].unsqueeze(-1), &x[2], op)]
        }
        "fori_loop" => {
            let body = |(i, c): (Tensor, Tensor)| &c * 0.5 + c.sin() * i.cast(c.dtype());
            vec![lax::fori_loop(l.i("lo") as i32, l.i("hi") as i32, body, x[0].clone())]
        }
        "map" => vec![lax::map(|r: Tensor| &r * r.sum(), x[0].clone())],
        "while_loop" => {
            let more = |c: Tensor| c.sum().lt(&number(100.0, &c));
            vec![lax::while_loop(more, |c: Tensor| c * 2.0 + 1.0, x[0].clone())]
        }
        "scan" => {
            let sum = l.text("body") == "sum";
            let body = |(c, x): (Tensor, Tensor)| match sum {
                true => (&c + &x, c),
                false => (&c * 0.5 + x.tanh(), &c * &x),
            };
            let scan = lax::Scan::new().accept_path(&[lax::ScanPath::CompiledLoop]);
            let scan = if l.flag("reverse") { scan.reverse() } else { scan };
            let plain = lax::scan(body, x[0].clone(), x[1].clone());
            let found = scan.run(body, x[0].clone(), x[1].clone());
            if l.flag("reverse") { pair(found) } else { pair(plain) }
        }
        "sort_by" => lax::sort_by(&x.iter().collect::<Vec<_>>(), l.axis()?, l.u("keys"), false),
        "associative_scan" => {
            let f = |(a, b): (Tensor, Tensor)| a * b;
            vec![lax::associative_scan(f, x[0].clone(), l.flag("reverse"), l.axis()?)]
        }
        "dot_general" => {
            let (c, b) = (two(l, "contract"), two(l, "batch"));
            vec![lax::dot_general(&x[0], &x[1], (&c.0, &c.1), (&b.0, &b.1))]
        }
        "conv_general_dilated" => {
            let n = x[0].rank() - 2;
            let options = ConvOptions {
                strides: vec![l.u("stride"); n],
                padding: padding(l),
                lhs_dilation: l.number("lhs").map(|d| vec![d as usize]).unwrap_or_default(),
                rhs_dilation: l.number("rhs").map(|d| vec![d as usize]).unwrap_or_default(),
                feature_group_count: l.number("groups").map_or(1, |g| g as usize),
                dimension_numbers: l.get("layout").map(|_| ("NHWC", "HWIO", "NHWC")),
                ..ConvOptions::default()
            };
            vec![lax::conv_general_dilated(&x[0], &x[1], &options)]
        }
        "reduce_window" => {
            let kind = match l.text("kind") {
                "Sum" => ReduceKind::Sum,
                "Max" => ReduceKind::Max,
                "Min" => ReduceKind::Min,
                _ => ReduceKind::Prod,
            };
            assert!(x[0].dtype() != DType::Bool);
            vec![lax::reduce_window(&x[0], kind, &[2, 3], &[2, 1], padding(l))]
        }
        _ => return None,
    })
}
