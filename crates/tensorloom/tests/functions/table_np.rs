//! How functions of `np` are called for a line that does not say it by the names of their arguments.

use crate::line::Line;
use tensorloom::np::{self, PadMode};
use tensorloom::{Operand, Tensor, tensor};

fn pair((a, b): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b]
}

fn sizes(list: &[usize]) -> Tensor {
    let list: Vec<i64> = list.iter().map(|&n| n as i64).collect();
    tensor(&list, &[list.len()])
}

fn truth(b: tensorloom::Result<bool>) -> Tensor {
    b.map_or_else(Tensor::from_error, |b| tensor(&[b], &[]))
}

pub(crate) fn call(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(match l.name.strip_prefix("np.")? {
        "round" => vec![np::round(&(&x[0] * 7), l.i("decimals") as i32)],
        "around" => vec![np::around(&(&x[0] * 7), l.i("decimals") as i32)],
        "isclose" => vec![np::isclose(&x[0], &x[1], 1e-5, 1e-8)],
        "allclose" => vec![truth(np::allclose(&x[0], &x[1], 1e-5, 1e-8))],
        "array_equal" => vec![truth(np::array_equal(&x[0], &x[1]))],
        "array_equiv" => vec![truth(np::array_equiv(&x[0], &x[1]))],
        "select" => vec![np::select(&[&x[0], &x[1]], &[&x[2], &x[3]], l.f("default"))],
        "piecewise" => {
            let (low, high) = (np::less(&x[0], -1.0), np::greater(&x[0], 1.0));
            vec![np::piecewise(&x[0], &[&low, &high], &[&|x| -x, &|x| x * x], 0.5)]
        }
        "full" => vec![np::full(&l.sizes("shape"), l.f("value"), l.dtype())],
        "full_like" => vec![np::full_like(&x[0], l.f("value"))],
        "array" if x[0].dtype() == tensorloom::DType::F64 => vec![np::array(&[1.0f64, 2.0, 3.0][..], &[3])],
        "array" => vec![np::array(&[1.0f32, 2.0, 3.0], &[3])],
        "linspace" => vec![np::linspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.dtype())],
        "logspace" => vec![np::logspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.f("base"), l.dtype())],
        "geomspace" => vec![np::geomspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.dtype())],
        "fromfunction" => vec![np::fromfunction(|i| &i[0] * 10.0 + &i[1], &l.sizes("shape"), l.dtype())],
        "frombuffer" => vec![np::frombuffer(&x[0].to_vec::<u8>().ok()?, l.dtype())],
        "shape" => vec![sizes(&np::shape(&x[0]))],
        "ndim" => vec![tensor(&[np::ndim(&x[0]) as i64], &[])],
        "size" => vec![tensor(&[np::size(&x[0]) as i64], &[])],
        "isscalar" => vec![tensor(&[np::isscalar(&Operand::from(&x[0]))], &[])],
        "moveaxis" => vec![np::moveaxis(&x[0], &l.list("src")?, &l.list("to")?)],
        "broadcast_shapes" => vec![sizes(&np::broadcast_shapes(&[x[0].shape(), x[1].shape()])?)],
        "pad" => {
            let w = l.sizes("widths");
            let mode = match l.text("mode") {
                "constant" => PadMode::Constant(0.0.into()),
                "edge" => PadMode::Edge,
                "reflect" => PadMode::Reflect,
                "symmetric" => PadMode::Symmetric,
                "linear_ramp" => PadMode::LinearRamp(0.0.into()),
                "maximum" => PadMode::Maximum,
                "minimum" => PadMode::Minimum,
                "mean" => PadMode::Mean,
                "median" => PadMode::Median,
                _ => PadMode::Wrap,
            };
            vec![np::pad(&x[0], &[(w[0], w[1]), (w[2], w[3])], mode)]
        }
        "split_at" => np::split_at(&x[0], &l.sizes("at"), l.axis()?),
        "block" => vec![np::block(&[&[&x[0], &x[1]], &[&x[2], &x[3]]])],
        "apply_along_axis" => vec![np::apply_along_axis(|v: Tensor| &v * v.index(0, 0), l.axis()?, &x[0])],
        "apply_over_axes" => vec![np::apply_over_axes(|x, a| np::sum(x, np::axes(a).keep()), &x[0], &l.list("axes")?)],
        "delete" => vec![np::delete(&x[0], &l.list("at")?, l.axis())],
        "fill_diagonal" => vec![np::fill_diagonal(&x[0], l.f("value"))],
        "histogram" => pair(np::histogram(&x[0], l.u("bins"), l.get("range").map(|_| (-1.0, 1.0)))),
        "histogram_bin_edges" => {
            vec![np::histogram_bin_edges(&x[0], l.u("bins"), l.get("range").map(|_| (-1.0, 1.0)))]
        }
        "histogram2d" => {
            let (h, a, b) = np::histogram2d(&x[0], &x[1], [2, 3]);
            vec![h, a, b]
        }
        "histogramdd" => {
            let (h, edges) = np::histogramdd(&x[0], &l.sizes("bins"));
            [vec![h], edges].concat()
        }
        "einsum" => vec![np::einsum(&l.text("spec").replace('>', "->"), &x.iter().collect::<Vec<_>>())],
        "tensordot" => vec![np::tensordot(&x[0], &x[1], (&l.sizes("a"), &l.sizes("b")))],
        "unwrap" if x[0].rank() == 2 => vec![np::unwrap(&(&x[0] * 4.0), l.axis()?)],
        "unwrap" => vec![np::unwrap(&x[0], l.axis()?)],
        "compress" => {
            let flags: Vec<bool> = l.list("flags")?.iter().map(|&f| f == 1).collect();
            vec![np::compress(&flags, &x[0], l.axis())]
        }
        "unique_all" => {
            let u = np::unique_all(&x[0], l.u("size"));
            vec![u.values, u.indices, u.inverse, u.counts]
        }
        _ => return None,
    })
}
