//! Contractions, convolutions and pooling with all their options.

use crate::{Tensor, record};
use ir::ops::{Conv, Dot, ReduceKind, WindowConfig};
use ir::{GraphBuilder, Shape, Value};

/// A contraction over any axes. The result has the batch axes, the left operand's other axes, the right one's.
///
/// ```
/// use tensorloom::{lax, ones};
///
/// let (a, b) = (ones(&[2, 3, 4]), ones(&[2, 4, 5]));
/// assert_eq!(lax::dot_general(&a, &b, (&[2], &[1]), (&[0], &[0])).shape(), [2, 3, 5]);
/// ```
#[track_caller]
pub fn dot_general(lhs: &Tensor, rhs: &Tensor, contract: (&[usize], &[usize]), batch: (&[usize], &[usize])) -> Tensor {
    let _here = crate::record::here();
    record::one(&[lhs, rhs], |b, v| {
        let (tx, ty) = (b.ty(v[0]), b.ty(v[1]));
        let Some(dtype) = tx.dtype.promote(ty.dtype) else {
            return Err(record::misfit("dot_general", &[tx, ty], "the dtypes have no common dtype; cast one of them"));
        };
        let (x, y) = (b.cast(v[0], dtype)?, b.cast(v[1], dtype)?);
        let dot = Dot {
            lhs_batch: Shape::from_slice(batch.0),
            rhs_batch: Shape::from_slice(batch.1),
            lhs_contract: Shape::from_slice(contract.0),
            rhs_contract: Shape::from_slice(contract.1),
            ..Dot::matmul(dtype)
        };
        b.one(dot.into(), &[x, y])
    })
}

/// Room around the base of sliding windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// None.
    #[default]
    Valid,
    /// As much as makes `ceil(size / stride)` windows, the odd place behind.
    Same,
    /// Before and after, for each axis; negative amounts cut.
    Explicit(Vec<(i64, i64)>),
}

impl Padding {
    fn of(&self, base: &[usize], window: &[usize], w: &mut WindowConfig) -> Result<(), String> {
        match self {
            Padding::Valid => {}
            Padding::Same => {
                for i in 0..base.len() {
                    let spread = (base[i].max(1) - 1) * w.base_dilation[i] + 1;
                    let reach = (window[i].max(1) - 1) * w.window_dilation[i] + 1;
                    let count = spread.div_ceil(w.strides[i].max(1));
                    let total = ((count.max(1) - 1) * w.strides[i] + reach).saturating_sub(spread) as i64;
                    (w.low[i], w.high[i]) = (total / 2, total - total / 2);
                }
            }
            Padding::Explicit(list) if list.len() == base.len() => {
                for (i, &(low, high)) in list.iter().enumerate() {
                    (w.low[i], w.high[i]) = (low, high);
                }
            }
            Padding::Explicit(list) => {
                return Err(format!("{} paddings for {} axes", list.len(), base.len()));
            }
        }
        Ok(())
    }
}

/// Choices about a convolution; empty lists are ones.
#[derive(Clone, Debug)]
pub struct ConvOptions {
    /// Places from one window to the next.
    pub strides: Vec<usize>,
    /// Room around the input.
    pub padding: Padding,
    /// Places from one input element to the next.
    pub lhs_dilation: Vec<usize>,
    /// Places from one kernel element to the next.
    pub rhs_dilation: Vec<usize>,
    /// Features are divided into this many groups.
    pub feature_group_count: usize,
    /// The batch is divided into this many groups.
    pub batch_group_count: usize,
    /// The layouts of input, kernel and result, like `("NHWC", "HWIO", "NHWC")`.
    pub dimension_numbers: Option<(&'static str, &'static str, &'static str)>,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions {
            strides: Vec::new(),
            padding: Padding::Valid,
            lhs_dilation: Vec::new(),
            rhs_dilation: Vec::new(),
            feature_group_count: 1,
            batch_group_count: 1,
            dimension_numbers: None,
        }
    }
}

/// Where the axes of `spec` stand in `N C spatial..` order; spatial axes go by their order in `like`.
fn layout(spec: &str, ends: [char; 2], like: &str) -> Option<Vec<usize>> {
    let spatial = like.chars().filter(|c| !"NCOI".contains(*c));
    ends.into_iter().chain(spatial).map(|c| spec.find(c)).collect()
}

/// A convolution as deep learning means it; `[N, C, ..]` by `[O, C, ..]` unless `dimension_numbers` say otherwise.
///
/// ```
/// use tensorloom::lax::{ConvOptions, Padding, conv_general_dilated};
/// use tensorloom::ones;
///
/// let options = ConvOptions { padding: Padding::Same, ..ConvOptions::default() };
/// let y = conv_general_dilated(&ones(&[1, 2, 5, 5]), &ones(&[3, 2, 3, 3]), &options);
/// assert_eq!(y.shape(), [1, 3, 5, 5]);
/// assert_eq!(y.index(1, 0).max().item::<f32>()?, 18.0);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn conv_general_dilated(lhs: &Tensor, rhs: &Tensor, options: &ConvOptions) -> Tensor {
    let _here = crate::record::here();
    record::one(&[lhs, rhs], |b, v| conv(b, v[0], v[1], options))
}

fn conv(b: &mut dyn GraphBuilder, x: Value, k: Value, o: &ConvOptions) -> ir::Result<Value> {
    let (tx, tk) = (b.ty(x), b.ty(k));
    let bad = |why: String| record::misfit("conv_general_dilated", &[tx.clone(), tk.clone()], why);
    if tx.rank() != tk.rank() || tx.rank() < 2 {
        return Err(bad("input and kernel need equal ranks of 2 or more".into()));
    }
    let Some(dtype) = tx.dtype.promote(tk.dtype) else {
        return Err(bad("the dtypes have no common dtype; cast one of them".into()));
    };
    let (mut x, mut k) = (b.cast(x, dtype)?, b.cast(k, dtype)?);
    let mut out = None;
    if let Some((lhs, rhs, result)) = o.dimension_numbers {
        let places = (layout(lhs, ['N', 'C'], lhs), layout(rhs, ['O', 'I'], lhs), layout(result, ['N', 'C'], lhs));
        let (Some(lp), Some(kp), Some(rp)) = places else {
            return Err(bad(format!("the layouts {lhs}, {rhs}, {result} don't name the same axes")));
        };
        if [&lp, &kp, &rp].iter().any(|p| p.len() != tx.rank()) {
            return Err(bad(format!("the layouts {lhs}, {rhs}, {result} have another number of axes")));
        }
        (x, k) = (b.permute(x, &lp)?, b.permute(k, &kp)?);
        out = Some(rp);
    }
    let (base, window) = (b.ty(x).shape[2..].to_vec(), b.ty(k).shape[2..].to_vec());
    let n = base.len();
    let mut w = WindowConfig::unit_stride(n);
    for (list, into) in [
        (&o.strides, &mut w.strides),
        (&o.lhs_dilation, &mut w.base_dilation),
        (&o.rhs_dilation, &mut w.window_dilation),
    ] {
        if list.len() == n {
            *into = Shape::from_slice(list);
        } else if !list.is_empty() {
            return Err(bad(format!("{} numbers for {n} spatial axes", list.len())));
        }
    }
    o.padding.of(&base, &window, &mut w).map_err(bad)?;
    let op = Conv { groups: o.feature_group_count, batch_groups: o.batch_group_count, ..Conv::new(dtype, w) };
    let y = b.one(op.into(), &[x, k])?;
    match out {
        None => Ok(y),
        Some(places) => {
            let mut perm = vec![0; places.len()];
            places.iter().enumerate().for_each(|(i, &p)| perm[p] = i);
            b.permute(y, &perm)
        }
    }
}

/// Reduces every window of a sliding window to one element: pooling.
///
/// ```
/// use tensorloom::lax::{Padding, reduce_window};
/// use tensorloom::{ReduceKind, tensor};
///
/// let x = tensor(&[1.0f32, 5.0, 2.0, 4.0], &[4]);
/// let y = reduce_window(&x, ReduceKind::Max, &[2], &[2], Padding::Valid);
/// assert_eq!(y.to_vec::<f32>()?, [5.0, 4.0]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
#[track_caller]
pub fn reduce_window(x: &Tensor, kind: ReduceKind, window: &[usize], strides: &[usize], padding: Padding) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| {
        let ty = b.ty(v[0]);
        let n = ty.rank();
        if window.len() != n || strides.len() != n {
            let why = format!("{} window sizes and {} strides for {n} axes", window.len(), strides.len());
            return Err(record::misfit("reduce_window", &[ty], why));
        }
        let mut w = WindowConfig { strides: Shape::from_slice(strides), ..WindowConfig::unit_stride(n) };
        padding
            .of(&ty.shape, window, &mut w)
            .map_err(|why| record::misfit("reduce_window", std::slice::from_ref(&ty), why))?;
        b.reduce_window(kind, v[0], window, w)
    })
}
