//! How the functions of `nn`, `special`, `linalg` and `fft` are called for a line.

use crate::line::Line;
use tensorloom::fft::{self, Complex};
use tensorloom::linalg::{self, Norm};
use tensorloom::{Tensor, along, nn, special};

macro_rules! arms {
    ($l:ident $x:ident $m:ident; $($kind:ident: $($name:ident)*;)* => $($rest:tt)*) => {
        match $l.name.split_once('.')?.1 {
            $($(stringify!($name) => arms!(@$kind $m $name $l $x),)*)*
            $($rest)*
        }
    };
    (@unary $m:ident $f:ident $l:ident $x:ident) => {
        match $l.number("times") {
            Some(t) => vec![$m::$f(&(&$x[0] * t))],
            None => vec![$m::$f(&$x[0])],
        }
    };
    (@binary $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], &$x[1])] };
    (@scaled $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], $l.f("p"))] };
    (@axis $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], $l.axis()?)] };
    (@over $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], $l.along())] };
    (@freq $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f($l.u("n"), $l.f("d"))] };
    (@complex $m:ident $f:ident $l:ident $x:ident) => { parts($m::$f(&spectrum($x), count($l), $l.axis()?, scale($l))) };
    (@complexes $m:ident $f:ident $l:ident $x:ident) => {
        parts($m::$f(&spectrum($x), $l.list("sizes").map(|_| $l.sizes("sizes")).as_deref(), $l.list("axes").map_or(along(()), along), scale($l)))
    };
    (@planes $m:ident $f:ident $l:ident $x:ident) => { parts($m::$f(&spectrum($x), None, scale($l))) };
    (@shift $m:ident $f:ident $l:ident $x:ident) => { vec![$m::$f(&$x[0], $l.list("axes").map_or(along(()), along))] };
}

pub(crate) fn nn(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(arms! { l x nn;
        unary: relu relu6 sigmoid softplus sparse_plus sparse_sigmoid soft_sign silu swish log_sigmoid hard_sigmoid hard_silu
            hard_swish hard_tanh tanh selu mish identity log1mexp;
        scaled: leaky_relu elu celu squareplus;
        axis: glu softmax log_softmax;
        over: logsumexp logmeanexp;
        =>
        "gelu" => vec![nn::gelu(&x[0], l.flag("approximate"))],
        "standardize" => vec![nn::standardize(&x[0], l.along(), l.f("eps"))],
        "one_hot" => vec![nn::one_hot(&x[0], l.u("n"), l.axis()?, l.dtype())],
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

pub(crate) fn special(l: &Line, x: &[Tensor]) -> Option<Vec<Tensor>> {
    Some(arms! { l x special;
        unary: erf erfc erfinv expit logit i0 i0e i1 i1e ndtr ndtri log_ndtr entr gammaln digamma psi gamma factorial;
        binary: xlogy xlog1py rel_entr kl_div betaln beta;
        axis: softmax log_softmax;
        over: logsumexp;
        =>
        "multigammaln" => vec![special::multigammaln(&x[0], l.u("d"))],
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
    let pair = |(a, b): (Tensor, Tensor)| vec![a, b];
    let triple = |(a, b, c): (Tensor, Tensor, Tensor)| vec![a, b, c];
    Some(arms! { l x linalg;
        unary: cholesky inv det eigvalsh svdvals matrix_transpose;
        binary: solve cross matmul outer;
        =>
        "slogdet" => pair(linalg::slogdet(&x[0])),
        // Vectors have either sign, so their squares are compared.
        "eigh" => {
            let (v, q) = linalg::eigh(&x[0]);
            vec![v, &q * &q]
        }
        "svd" => {
            let (u, s, v) = linalg::svd(&x[0]);
            vec![&u * &u, s, &v * &v]
        }
        "lu" => triple(linalg::lu(&x[0])),
        "qr" => pair(linalg::qr(&x[0], l.flag("full"))),
        "pinv" => vec![linalg::pinv(&x[0], None)],
        "matrix_rank" => vec![linalg::matrix_rank(&x[0], None)],
        "matrix_power" => vec![linalg::matrix_power(&x[0], l.i("k"))],
        "trace" => vec![trace(&x[0])],
        "diagonal" => vec![linalg::diagonal(&x[0], 0, -2, -1)],
        "lstsq" if l.flag("only") => vec![linalg::lstsq(&x[0], &x[1], None).0],
        "lstsq" => {
            let (x, r, k, s) = linalg::lstsq(&x[0], &x[1], None);
            // What is 0 but for noise is compared beside 1.
            vec![x, r + 1.0, k, s]
        }
        "matrix_norm" => vec![linalg::matrix_norm(&x[0], order(l), l.flag("keep"))],
        "vector_norm" => vec![linalg::vector_norm(&x[0], order(l), l.along())],
        "norm" => vec![linalg::norm(&x[0], order(l), l.along())],
        "cond" => vec![linalg::cond(&x[0], order(l))],
        "triangular_solve" => {
            vec![linalg::triangular_solve(&x[0], &x[1], l.flag("left"), l.flag("lower"), l.flag("transpose"))]
        }
        "multi_dot" => vec![linalg::multi_dot(&x.iter().collect::<Vec<_>>())],
        "tensorinv" => vec![linalg::tensorinv(&x[0], l.u("ind"))],
        "tensorsolve" => vec![linalg::tensorsolve(&x[0], &x[1])],
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
    let (sizes, axes) = (sizes.as_deref(), l.list("axes"));
    Some(arms! { l x fft;
        complex: fft ifft;
        complexes: fftn ifftn;
        planes: fft2 ifft2;
        freq: fftfreq rfftfreq;
        shift: fftshift ifftshift;
        =>
        "rfft" => parts(fft::rfft(&x[0], count(l), l.axis()?, scale(l))),
        "irfft" => vec![fft::irfft(&spectrum(x), count(l), l.axis()?, scale(l))],
        "hfft" => vec![fft::hfft(&spectrum(x), count(l), l.axis()?, scale(l))],
        "ihfft" => parts(fft::ihfft(&x[0], count(l), l.axis()?, scale(l))),
        "rfft2" => parts(fft::rfft2(&x[0], None, scale(l))),
        "irfft2" => vec![fft::irfft2(&spectrum(x), None, scale(l))],
        "rfftn" => parts(fft::rfftn(&x[0], sizes, axes.clone().map_or(along(()), along), scale(l))),
        "irfftn" => vec![fft::irfftn(&spectrum(x), sizes, axes.clone().map_or(along(()), along), scale(l))],
        _ => return None,
    })
}
