//! How each function of `np` is called for a line.

use crate::line::Line;
use tensorloom::np::{self, PadMode};
use tensorloom::{Operand, Tensor, along, tensor};

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

macro_rules! arms {
    ($l:ident $x:ident; $($kind:ident: $($name:ident)*;)* => $($rest:tt)*) => {
        match $l.name.strip_prefix("np.")? {
            $($(stringify!($name) => arms!(@$kind $name $l $x),)*)*
            $($rest)*
        }
    };
    (@unary $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0])] };
    (@binary $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0], &$x[1])] };
    (@over $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0], $l.along())] };
    (@axis $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0], $l.axis())] };
    (@spread $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0], $l.along(), $l.u("ddof"))] };
    (@list $f:ident $l:ident $x:ident) => { vec![np::$f(&$x.iter().collect::<Vec<_>>())] };
    (@lists $f:ident $l:ident $x:ident) => { vec![np::$f(&$x.iter().collect::<Vec<_>>(), $l.axis()?)] };
    (@window $f:ident $l:ident $x:ident) => { vec![np::$f($l.u("n"))] };
    (@parts $f:ident $l:ident $x:ident) => { np::$f(&$x[0], $l.u("parts")) };
    (@sized $f:ident $l:ident $x:ident) => { vec![np::$f(&$x[0], $l.u("size"))] };
}

pub(crate) fn call(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    let axes = || l.list("axes");
    Some(arms! { l x;
        unary: abs absolute negative sign positive square exp exp2 expm1 log log2 log1p log10 sqrt reciprocal sin cos tan
            asin arcsin acos arccos atan arctan sinh cosh tanh asinh arcsinh acosh arccosh atanh arctanh cbrt sinc deg2rad
            radians rad2deg degrees floor ceil trunc rint nan_to_num invert bitwise_not bitwise_invert bitwise_count signbit
            spacing logical_not isfinite isnan isinf isposinf isneginf zeros_like ones_like ravel matrix_transpose fliplr
            flipud corrcoef ediff1d poly;
        binary: add subtract multiply maximum minimum fmax fmin arctan2 atan2 hypot logaddexp logaddexp2 copysign divide
            true_divide power pow float_power fmod remainder floor_divide bitwise_and bitwise_or bitwise_xor left_shift
            bitwise_left_shift right_shift bitwise_right_shift equal not_equal less less_equal greater greater_equal
            heaviside ldexp nextafter gcd lcm logical_and logical_or logical_xor isin matmul dot inner outer vdot matvec
            vecmat cross kron polyadd polysub polymul polyval;
        over: sum prod max min mean ptp all any count_nonzero nansum nanprod nanmean nanmax nanmin;
        axis: cumsum cumprod cumulative_sum cumulative_prod argmax argmin nanargmax nanargmin nancumsum nancumprod nanmedian
            sort argsort median;
        spread: var std nanvar nanstd;
        list: vstack hstack dstack column_stack;
        lists: concatenate stack lexsort;
        window: bartlett blackman hamming hanning;
        parts: vsplit hsplit dsplit;
        sized: flatnonzero argwhere unique unique_values;
        =>
        "divmod" => pair(np::divmod(&x[0], &x[1])),
        "modf" => pair(np::modf(&x[0])),
        "frexp" => pair(np::frexp(&x[0])),
        "round" => vec![np::round(&(&x[0] * 7.0), l.i("decimals") as i32)],
        "around" => vec![np::around(&(&x[0] * 7.0), l.i("decimals") as i32)],
        "clip" => vec![np::clip(&x[0], l.number("low").map(Operand::from), l.number("high").map(Operand::from))],
        "isclose" => vec![np::isclose(&x[0], &x[1], 1e-5, 1e-8)],
        "allclose" => vec![truth(np::allclose(&x[0], &x[1], 1e-5, 1e-8))],
        "array_equal" => vec![truth(np::array_equal(&x[0], &x[1]))],
        "array_equiv" => vec![truth(np::array_equiv(&x[0], &x[1]))],
        "where_" => vec![np::where_(&x[0], &x[1], &x[2])],
        "select" => vec![np::select(&[&x[0], &x[1]], &[&x[2], &x[3]], l.f("default"))],
        "piecewise" => {
            let (low, high) = (np::less(&x[0], -1.0), np::greater(&x[0], 1.0));
            vec![np::piecewise(&x[0], &[&low, &high], &[&|x| -x, &|x| x * x], 0.5)]
        }
        "zeros" => vec![np::zeros(&l.sizes("shape"), l.dtype())],
        "ones" => vec![np::ones(&l.sizes("shape"), l.dtype())],
        "full" => vec![np::full(&l.sizes("shape"), l.f("value"), l.dtype())],
        "full_like" => vec![np::full_like(&x[0], l.f("value"))],
        "array" if x[0].dtype() == tensorloom::DType::F64 => vec![np::array(&[1.0f64, 2.0, 3.0][..], &[3])],
        "array" => vec![np::array(&[1.0f32, 2.0, 3.0], &[3])],
        "asarray" => vec![np::asarray(&x[0])],
        "arange" => vec![np::arange(l.f("start"), l.f("stop"), l.f("step"))],
        "linspace" => vec![np::linspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.dtype())],
        "logspace" => vec![np::logspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.f("base"), l.dtype())],
        "geomspace" => vec![np::geomspace(l.f("start"), l.f("stop"), l.u("n"), l.flag("end"), l.dtype())],
        "eye" => vec![np::eye(l.u("n"), l.u("m"), l.i("k"), l.dtype())],
        "tri" => vec![np::tri(l.u("n"), l.u("m"), l.i("k"), l.dtype())],
        "tril" => vec![np::tril(&x[0], l.i("k"))],
        "triu" => vec![np::triu(&x[0], l.i("k"))],
        "tril_indices" => pair(np::tril_indices(l.u("n"), l.i("k"), l.u("m"))),
        "triu_indices" => pair(np::triu_indices(l.u("n"), l.i("k"), l.u("m"))),
        "tril_indices_from" => pair(np::tril_indices_from(&x[0], l.i("k"))),
        "triu_indices_from" => pair(np::triu_indices_from(&x[0], l.i("k"))),
        "identity" => vec![np::identity(l.u("n"), l.dtype())],
        "fromfunction" => vec![np::fromfunction(|i| &i[0] * 10.0 + &i[1], &l.sizes("shape"), l.dtype())],
        "indices" => vec![np::indices(&l.sizes("shape"), l.dtype())],
        "meshgrid" => np::meshgrid(&x.iter().collect::<Vec<_>>(), l.text("indexing")),
        "vander" => vec![np::vander(&x[0], Some(l.u("n")), l.flag("increasing"))],
        "kaiser" => vec![np::kaiser(l.u("n"), l.f("beta"))],
        "astype" => vec![np::astype(&x[0], l.dtype())],
        "frombuffer" => vec![np::frombuffer(&x[0].to_vec::<u8>().ok()?, l.dtype())],
        "average" => vec![np::average(&x[0], l.along(), x.get(1))],
        "trapezoid" => vec![np::trapezoid(&x[0], x.get(1), l.f("dx"), l.axis()?)],
        "nanquantile" => vec![np::nanquantile(&x[0], l.f("q"), l.axis())],
        "nanpercentile" => vec![np::nanpercentile(&x[0], l.f("q"), l.axis())],
        "quantile" => vec![np::quantile(&x[0], l.f("q"), l.axis())],
        "percentile" => vec![np::percentile(&x[0], l.f("q"), l.axis())],
        "cov" => vec![np::cov(&x[0], l.u("ddof"))],
        "shape" => vec![sizes(&np::shape(&x[0]))],
        "ndim" => vec![tensor(&[np::ndim(&x[0]) as i64], &[])],
        "size" => vec![tensor(&[np::size(&x[0]) as i64], &[])],
        "isscalar" => vec![tensor(&[np::isscalar(&Operand::from(&x[0]))], &[])],
        "reshape" => vec![np::reshape(&x[0], &l.list("shape")?)],
        "transpose" => vec![np::transpose(&x[0], axes().map_or(along(()), along))],
        "permute_dims" => vec![np::permute_dims(&x[0], &axes()?)],
        "swapaxes" => vec![np::swapaxes(&x[0], l.i("a") as isize, l.i("b") as isize)],
        "moveaxis" => vec![np::moveaxis(&x[0], &l.list("src")?, &l.list("to")?)],
        "expand_dims" => vec![np::expand_dims(&x[0], &axes()?)],
        "squeeze" => vec![np::squeeze(&x[0], axes().map_or(along(()), along))],
        "broadcast_to" => vec![np::broadcast_to(&x[0], &l.sizes("shape"))],
        "broadcast_arrays" => np::broadcast_arrays(&[&x[0], &x[1]]),
        "broadcast_shapes" => vec![sizes(&np::broadcast_shapes(&[x[0].shape(), x[1].shape()])?)],
        "flip" => vec![np::flip(&x[0], axes().map_or(along(()), along))],
        "rot90" => vec![np::rot90(&x[0], l.i("k") as i32, 0, 1)],
        "roll" => vec![np::roll(&x[0], l.i("by") as isize, l.axis())],
        "pad" => {
            let w = l.sizes("widths");
            let mode = match l.text("mode") {
                "constant" => PadMode::Constant(0.0.into()),
                "edge" => PadMode::Edge,
                "reflect" => PadMode::Reflect,
                "symmetric" => PadMode::Symmetric,
                _ => PadMode::Wrap,
            };
            vec![np::pad(&x[0], &[(w[0], w[1]), (w[2], w[3])], mode)]
        }
        "append" => vec![np::append(&x[0], &x[1], l.axis())],
        "unstack" => np::unstack(&x[0], l.axis()?),
        "split" => np::split(&x[0], l.u("parts"), l.axis()?),
        "split_at" => np::split_at(&x[0], &l.sizes("at"), l.axis()?),
        "array_split" => np::array_split(&x[0], l.u("parts"), l.axis()?),
        "tile" => vec![np::tile(&x[0], &l.sizes("reps"))],
        "repeat" => vec![np::repeat(&x[0], l.u("n"), l.axis())],
        "block" => vec![np::block(&[&[&x[0], &x[1]], &[&x[2], &x[3]]])],
        "take" => vec![np::take(&x[0], &x[1], l.axis())],
        "take_along_axis" => vec![np::take_along_axis(&x[0], &x[1], l.axis()?)],
        "diagonal" => vec![np::diagonal(&x[0], l.i("k") as isize, l.i("a") as isize, l.i("b") as isize)],
        "diag" => vec![np::diag(&x[0], l.i("k") as isize)],
        "diagflat" => vec![np::diagflat(&x[0], l.i("k") as isize)],
        "trace" => vec![np::trace(&x[0], l.i("k") as isize)],
        "diag_indices" => np::diag_indices(l.u("n"), l.u("ndim")),
        "diag_indices_from" => np::diag_indices_from(&x[0]),
        "apply_along_axis" => vec![np::apply_along_axis(|v: Tensor| &v * v.index(0, 0), l.axis()?, &x[0])],
        "apply_over_axes" => vec![np::apply_over_axes(|x, a| np::sum(x, np::along(a).keep()), &x[0], &axes()?)],
        "delete" => vec![np::delete(&x[0], &l.list("at")?, l.axis())],
        "insert" => vec![np::insert(&x[0], l.u("at"), &x[1], l.axis())],
        "put" => vec![np::put(&x[0], &x[1], &x[2])],
        "put_along_axis" => vec![np::put_along_axis(&x[0], &x[1], &x[2], l.axis()?)],
        "fill_diagonal" => vec![np::fill_diagonal(&x[0], l.f("value"))],
        "resize" => vec![np::resize(&x[0], &l.sizes("shape"))],
        "unravel_index" => np::unravel_index(&x[0], &l.sizes("shape")),
        "ravel_multi_index" => vec![np::ravel_multi_index(&[&x[0], &x[1]], &l.sizes("shape"))],
        "bincount" => vec![np::bincount(&x[0], l.u("n"))],
        "searchsorted" => vec![np::searchsorted(&x[0], &x[1], l.flag("right"))],
        "digitize" => vec![np::digitize(&x[0], &x[1], l.flag("right"))],
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
        "vecdot" => vec![np::vecdot(&x[0], &x[1], l.axis()?)],
        "einsum" => vec![np::einsum(&l.text("spec").replace('>', "->"), &x.iter().collect::<Vec<_>>())],
        "tensordot" => vec![np::tensordot(&x[0], &x[1], (&l.sizes("a"), &l.sizes("b")))],
        "convolve" => vec![np::convolve(&x[0], &x[1], l.text("mode"))],
        "correlate" => vec![np::correlate(&x[0], &x[1], l.text("mode"))],
        "diff" => vec![np::diff(&x[0], l.u("n"), l.axis()?)],
        "unwrap" if x[0].rank() == 2 => vec![np::unwrap(&(&x[0] * 4.0), l.axis()?)],
        "unwrap" => vec![np::unwrap(&x[0], l.axis()?)],
        "interp" => vec![np::interp(&x[0], &x[1], &x[2])],
        "gradient" => vec![np::gradient(&x[0], l.f("step"), l.axis()?)],
        "polyder" => vec![np::polyder(&x[0], l.u("m"))],
        "polyint" => vec![np::polyint(&x[0], l.u("m"))],
        "polydiv" => pair(np::polydiv(&x[0], &x[1])),
        "polyfit" => vec![np::polyfit(&x[0], &x[1], l.u("degree"))],
        "nonzero" => np::nonzero(&x[0], l.u("size")),
        "extract" => vec![np::extract(&x[0], &x[1], l.u("size"))],
        "compress" => {
            let flags: Vec<bool> = l.list("flags")?.iter().map(|&f| f == 1).collect();
            vec![np::compress(&flags, &x[0], l.axis())]
        }
        "place" => vec![np::place(&x[0], &x[1], &x[2])],
        "unique_counts" => pair(np::unique_counts(&x[0], l.u("size"))),
        "unique_inverse" => pair(np::unique_inverse(&x[0], l.u("size"))),
        "unique_all" => {
            let u = np::unique_all(&x[0], l.u("size"));
            vec![u.values, u.indices, u.inverse, u.counts]
        }
        "union1d" => vec![np::union1d(&x[0], &x[1], l.u("size"))],
        _ => return None,
    })
}
