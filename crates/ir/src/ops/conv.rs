//! `conv(x, kernel)`: convolution over any number of spatial axes, as in deep learning (the kernel is not flipped).
//!
//! There is one layout: `x` is `[N, C, spatial..]`, the kernel `[O, C/groups, spatial..]`, the result `[N, O, spatial..]`. Other
//! layouts are permutations, which are views. The transposes with respect to both operands are convolutions again.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Scalar};
use crate::types::{for_each_index, offset};

/// `conv(x, kernel)`: a convolution of `[N, C, ..]` by `[O, C/groups, ..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// The window configuration of the kernel over the spatial axes.
    pub windows: WindowConfig,
    /// The number of feature groups; each group of outputs depends only on its group of inputs.
    pub groups: usize,
    /// The number of batch groups; batch group `i` computes the `i`-th part of the output features. It is needed
    /// for the kernel gradient of a grouped convolution. Not together with `groups`.
    pub batch_groups: usize,
    /// The accumulator dtype.
    pub acc: DType,
    /// The dtype of the result.
    pub out: DType,
}

impl Conv {
    /// A convolution without groups.
    pub fn new(dtype: DType, windows: WindowConfig) -> Conv {
        Conv { windows, groups: 1, batch_groups: 1, acc: dtype.accumulator(), out: dtype }
    }

    /// The number of parts of the output features, for either kind of group.
    fn parts(&self) -> usize {
        self.groups * self.batch_groups
    }

    fn check_dtypes(&self, a: DType, b: DType) -> std::result::Result<(), InferError> {
        if a != b {
            return Err(InferError::DTypes(a, b));
        }
        if a == DType::Bool {
            return Err(InferError::DType { operand: 0, expected: "a number dtype (not bool)", got: a });
        }
        if self.acc.is_float() != a.is_float() || self.out.is_float() != a.is_float() {
            return Err(InferError::other(format!(
                "operands of {a} cannot be accumulated in {} with results in {}",
                self.acc, self.out
            )));
        }
        Ok(())
    }

    /// ∂x: the cotangent, dilated by the stride, convolved with the flipped kernel with exchanged features.
    fn transpose_input(&self, cx: &mut dyn GraphTransforms, ct: Value, kernel: Value, x: &Type) -> Result<Value> {
        let (k, y, parts) = (cx.ty(kernel), cx.ty(ct), self.parts());
        let spatial = 2..k.rank();
        let windows = self.windows.transposed(&x.shape[2..], &k.shape[2..], &y.shape[2..])?;
        let (outs, ins) = (k.shape[0] / parts, k.shape[1]);
        let grouped = cx.reshape(kernel, &with_tail(&[parts, outs, ins], &k.shape[2..]))?;
        let swapped = cx.move_axis(grouped, 2, 1)?;
        let swapped = cx.reshape(swapped, &with_tail(&[parts * ins, outs], &k.shape[2..]))?;
        let flipped = cx.flip(swapped, &spatial.collect::<Vec<_>>())?;
        let back = Conv { windows, groups: parts, batch_groups: 1, acc: self.acc, out: x.dtype };
        let v = cx.one(back.into(), &[ct, flipped])?;
        // Batch groups became feature groups: [N/b, b·C] to [b·N/b, C].
        let rows = x.shape[0] / self.batch_groups;
        let split = cx.reshape(v, &with_tail(&[rows, self.batch_groups, x.shape[1]], &x.shape[2..]))?;
        let front = cx.move_axis(split, 1, 0)?;
        cx.reshape(front, &x.shape)
    }

    /// ∂kernel: the input convolved with the cotangent as its kernel, batch and features exchanged.
    fn transpose_kernel(&self, cx: &mut dyn GraphTransforms, ct: Value, x: Value, kernel: &Type) -> Result<Value> {
        let (xt, y) = (cx.ty(x), cx.ty(ct));
        let windows = self.windows.for_window(&xt.shape[2..], &kernel.shape[2..], &y.shape[2..])?;
        let back =
            Conv { windows, groups: self.batch_groups, batch_groups: self.groups, acc: self.acc, out: kernel.dtype };
        let (xs, cs) = (cx.move_axis(x, 0, 1)?, cx.move_axis(ct, 0, 1)?);
        let v = cx.one(back.into(), &[xs, cs])?;
        cx.move_axis(v, 0, 1)
    }
}

fn with_tail(head: &[usize], tail: &[usize]) -> Shape {
    head.iter().chain(tail).copied().collect()
}

impl Rules for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn attrs(&self) -> Attrs {
        let mut attrs = self.windows.attrs();
        attrs.extend([
            ("groups", self.groups.into()),
            ("batch_groups", self.batch_groups.into()),
            ("acc", self.acc.into()),
            ("out", self.out.into()),
        ]);
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let (x, k) = (&args[0], &args[1]);
        self.check_dtypes(x.dtype, k.dtype)?;
        if x.rank() < 2 || x.rank() != k.rank() {
            return Err(InferError::other(format!(
                "the input {x} must be [N, C, spatial..] and the kernel {k} [O, C/groups, spatial..]"
            )));
        }
        let (g, b) = (self.groups, self.batch_groups);
        if g == 0 || b == 0 || (g > 1 && b > 1) {
            return Err(InferError::other(format!(
                "{g} groups and {b} batch groups: both must be at least 1, and one of them must be 1"
            )));
        }
        let (n, c, o) = (x.shape[0], x.shape[1], k.shape[0]);
        if k.shape[1].checked_mul(g) != Some(c) || o % g != 0 || o % b != 0 || n % b != 0 {
            return Err(InferError::other(format!(
                "{x} by {k} in {g} groups and {b} batch groups: the kernel takes {} features of {c}, and groups must \
                 divide the batch {n} and the features {o} evenly",
                k.shape[1]
            )));
        }
        let spatial = self.windows.count(&x.shape[2..], &k.shape[2..])?;
        Ok(vec![Type::checked(self.out, &with_tail(&[n / b, o], &spatial))?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        if !cx.ty(y[0]).dtype.is_float() {
            return Ok(vec![None]);
        }
        let op: Op = self.clone().into();
        let a = dx[0].map(|d| cx.one(op.clone(), &[d, x[1]])).transpose()?;
        let b = dx[1].map(|d| cx.one(op.clone(), &[x[0], d])).transpose()?;
        Ok(vec![cx.add_optional(a, b)?])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let (of, other, at) = match (&args[0], &args[1]) {
            (TransposeArg::Linear(ty), TransposeArg::Known(k)) => (ty, *k, 0),
            (TransposeArg::Known(x), TransposeArg::Linear(ty)) => (ty, *x, 1),
            _ => return not_linear(self),
        };
        let mut cts = vec![None, None];
        // An empty tensor has no last element to compute padding from, and its gradient is zero.
        cts[at] = Some(if [of.numel(), cx.ty(other).numel(), cx.ty(c).numel()].contains(&0) {
            cx.zeros(of)?
        } else {
            let c = cx.cast(c, of.dtype)?;
            match at {
                0 => self.transpose_input(cx, c, other, of)?,
                _ => self.transpose_kernel(cx, c, other, of)?,
            }
        });
        Ok(cts)
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let one = |cx: &mut dyn GraphTransforms, i: usize| match batched[i] {
            true => cx.ty(x[i]).unbatched(),
            false => cx.ty(x[i]),
        };
        let (xt, kt) = (one(cx, 0), one(cx, 1));
        let (n, c, o) = (xt.shape[0], xt.shape[1], kt.shape[0]);
        let (rows, parts) = (n / self.batch_groups, self.parts());
        if size == 0 {
            let types = self.infer(&[xt, kt]).map_err(|p| Error::Invalid(p.to_string()))?;
            return Ok(vec![(cx.zeros(&types[0].batched(0))?, true)]);
        }
        let (xs, ks) = (&xt.shape[2..], &kt.shape[2..]);
        let mut wide = self.clone();
        let (mut input, mut kernel) = (x[0], x[1]);
        match (batched[0], batched[1]) {
            (true, true) => {
                // Each element of the batch becomes a group, of the kind that the convolution already uses.
                if self.batch_groups > 1 {
                    wide.batch_groups = self.batch_groups.saturating_mul(size);
                    input = cx.reshape(input, &with_tail(&[size * n, c], xs))?;
                } else {
                    wide.groups = self.groups.saturating_mul(size);
                    let inner = cx.move_axis(input, 0, 1)?;
                    input = cx.reshape(inner, &with_tail(&[n, size * c], xs))?;
                }
                kernel = cx.reshape(kernel, &with_tail(&[size * o, kt.shape[1]], ks))?;
            }
            (true, false) => {
                let split = cx.reshape(input, &with_tail(&[size, self.batch_groups, rows, c], xs))?;
                let inner = cx.move_axis(split, 0, 1)?;
                input = cx.reshape(inner, &with_tail(&[size * n, c], xs))?;
            }
            _ => {
                let split = cx.reshape(kernel, &with_tail(&[size, parts, o / parts, kt.shape[1]], ks))?;
                let inner = cx.move_axis(split, 0, 1)?;
                kernel = cx.reshape(inner, &with_tail(&[size * o, kt.shape[1]], ks))?;
            }
        }
        let y = cx.one(wide.into(), &[input, kernel])?;
        let spatial = Shape::from_slice(&cx.ty(y).shape[2..]);
        let y = match (batched[0], batched[1]) {
            (true, true) => {
                let split = cx.reshape(y, &with_tail(&[rows, size, o], &spatial))?;
                cx.move_axis(split, 1, 0)?
            }
            (true, false) => cx.reshape(y, &with_tail(&[size, rows, o], &spatial))?,
            _ => {
                let split = cx.reshape(y, &with_tail(&[rows, parts, size, o / parts], &spatial))?;
                let front = cx.move_axis(split, 2, 0)?;
                cx.reshape(front, &with_tail(&[size, rows, o], &spatial))?
            }
        };
        Ok(vec![(y, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::bilinear(&[0, 1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::LowPrecision
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (x, k) = (&args[0], &args[1]);
        let ty = eval_types(self, args)?.remove(0);
        let (xt, kt) = (x.ty(), k.ty());
        let (sx, sk) = (xt.strides(), kt.strides());
        let (rows, outs, ins) = (ty.shape[0], ty.shape[1], kt.shape[1]);
        let mut items = Vec::with_capacity(ty.numel());
        for_each_index(&ty.shape, |i| {
            let (group, batch_group) = (i[1] / (outs / self.groups), i[1] / (outs / self.batch_groups));
            let n = batch_group * rows + i[0];
            let (mut float, mut int) = (0.0, Scalar::zero(self.acc));
            for c in 0..ins {
                let at_x = n * sx[0] + (group * ins + c) * sx[1];
                let at_k = i[1] * sk[0] + c * sk[1];
                // Padding is multiplied like other zeros: with an infinite weight it gives NaN.
                self.windows.visit_all(&xt.shape[2..], &kt.shape[2..], &i[2..], |p, q| {
                    let a = p.map_or(Scalar::zero(xt.dtype), |p| x.get(at_x + offset(p, &sx[2..])));
                    let b = k.get(at_k + offset(q, &sk[2..]));
                    if ty.dtype.is_float() {
                        float += a.to_f64() * b.to_f64();
                    } else {
                        int = Binary::Add.eval(int, Binary::Mul.eval(a.cast(self.acc), b.cast(self.acc)));
                    }
                });
            }
            items.push(match ty.dtype.is_float() {
                true => Scalar::from_f64(ty.dtype, float),
                false => int.cast(ty.dtype),
            });
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Conv>> {
        (name == "conv").then(|| {
            Ok(Conv {
                windows: WindowConfig::parse(attrs)?,
                groups: attrs.usize("groups")?,
                batch_groups: attrs.usize("batch_groups")?,
                acc: attrs.dtype("acc")?,
                out: attrs.dtype("out")?,
            })
        })
    }
}
