//! How functions of `nn`, `linalg` and `fft` are called for a line that does not say it by the names of their arguments.

use crate::line::Line;
use tensorloom::fft::{self, Complex};
use tensorloom::linalg::{self, Norm};
use tensorloom::{Tensor, axes, nn};

macro_rules! arms {
    ($l:ident $x:ident $m:ident; $($kind:ident: $($name:ident)*;)* => $($rest:tt)*) => {
        match $l.name.split_once('.')?.1 {
            $($(stringify!($name) => arms!(@$kind $m $name $l $x),)*)*
            $($rest)*
        }
    };
    (@scaled $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], $l.f("p"))] };
    (@complex $m:ident $f:ident $l:ident $x:ident) => { parts($m::$f(&spectrum($x), count($l), $l.axis()?, scale($l))) };
    (@complexes $m:ident $f:ident $l:ident $x:ident) => {
        parts($m::$f(&spectrum($x), $l.list("sizes").map(|_| $l.sizes("sizes")).as_deref(), $l.list("axes").map_or(axes(()), axes), scale($l)))
    };
    (@planes $m:ident $f:ident $l:ident $x:ident) => { parts($m::$f(&spectrum($x), None, scale($l))) };
}

pub(crate) fn nn(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(arms! { l x nn;
        scaled: leaky_relu elu celu squareplus;
        =>
        "dot_product_attention" => {
            let extra = x.get(3).cloned();
            let is_mask = extra.as_ref().is_some_and(|t| !t.dtype().is_float());
            let (mask, bias) = if is_mask { (extra, None) } else { (None, extra) };
            let o = nn::Attention { causal: l.flag("causal"), scale: l.number("scale"), mask, bias, window: None };
            vec![nn::dot_product_attention(&x[0], &x[1], &x[2], &o)]
        }
        _ => return None,
    })
}

fn order(l: &Line) -> Norm {
    match l.get("ord") {
        None => Norm::Default,
        Some("fro") => Norm::Frobenius,
        Some("nuc") => Norm::Nuclear,
        Some(p) => Norm::P(p.parse().unwrap()),
    }
}

pub(crate) fn linalg(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(match l.name.strip_prefix("linalg.")? {
        // Vectors have either sign, so their squares are compared.
        "eigh" => {
            let (v, q) = linalg::eigh(&x[0]);
            vec![v, &q * &q]
        }
        "svd" => {
            let (u, s, v) = linalg::svd(&x[0]);
            vec![&u * &u, s, &v * &v]
        }
        "matrix_power" => vec![linalg::matrix_power(&x[0], l.i("k"))],
        "trace" => vec![trace(&x[0])],
        "diagonal" => vec![linalg::diagonal(&x[0], 0, -2, -1)],
        "lstsq" if l.flag("only") => vec![linalg::lstsq(&x[0], &x[1], None).0],
        "lstsq" => {
            let (x, r, k, s) = linalg::lstsq(&x[0], &x[1], None);
            // What is 0 but for noise is compared with 1.
            vec![x, r + 1.0, k, s]
        }
        "matrix_norm" => vec![linalg::matrix_norm(&x[0], order(l), l.flag("keep"))],
        "vector_norm" => vec![linalg::vector_norm(&x[0], order(l), l.along())],
        "norm" => vec![linalg::norm(&x[0], order(l), l.along())],
        "cond" => vec![linalg::cond(&x[0], order(l))],
        "vecdot" => vec![linalg::vecdot(&x[0], &x[1], -1)],
        "tensordot" => vec![linalg::tensordot(&x[0], &x[1], (&[1], &[0]))],
        _ => return None,
    })
}

/// The array API's trace is of the last two axes, NumPy's of the first two.
fn trace(x: &Tensor) -> Tensor {
    match x.rank() {
        2 => linalg::trace(x, 0),
        _ => linalg::trace(&x.permute(&[1, 2, 0]), 0),
    }
}

fn spectrum(x: &[Tensor]) -> Complex {
    match x {
        [re, im] => Complex { re: re.clone(), im: im.clone() },
        _ => (&x[0]).into(),
    }
}

fn parts(c: Complex) -> Vec<Tensor> {
    vec![c.re, c.im]
}

fn count(l: &Line) -> Option<usize> {
    l.number("n").map(|n| n as usize)
}

fn scale(l: &Line) -> fft::Norm {
    match l.text("norm") {
        "ortho" => fft::Norm::Ortho,
        "forward" => fft::Norm::Forward,
        _ => fft::Norm::Backward,
    }
}

pub(crate) fn fft(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    let sizes = l.list("sizes").map(|_| l.sizes("sizes"));
    let (sizes, list) = (sizes.as_deref(), l.list("axes"));
    Some(arms! { l x fft;
        complex: fft ifft;
        complexes: fftn ifftn;
        planes: fft2 ifft2;
        =>
        "rfft" => parts(fft::rfft(&x[0], count(l), l.axis()?, scale(l))),
        "irfft" => vec![fft::irfft(&spectrum(x), count(l), l.axis()?, scale(l))],
        "hfft" => vec![fft::hfft(&spectrum(x), count(l), l.axis()?, scale(l))],
        "ihfft" => parts(fft::ihfft(&x[0], count(l), l.axis()?, scale(l))),
        "rfft2" => parts(fft::rfft2(&x[0], None, scale(l))),
        "irfft2" => vec![fft::irfft2(&spectrum(x), None, scale(l))],
        "rfftn" => parts(fft::rfftn(&x[0], sizes, list.clone().map_or(axes(()), axes), scale(l))),
        "irfftn" => vec![fft::irfftn(&spectrum(x), sizes, list.clone().map_or(axes(()), axes), scale(l))],
        _ => return None,
    })
}
