//! `vmap`: a function over a batch.

use super::trace::call_error;
use super::{Function, fail_like, placeholders};
use crate::{Result, Tensor, Tree, Type};
use ir::Loc;

/// Axes for a tree: one for all leaves, one for each item at the top, or one for each leaf. `None` is not mapped over.
#[derive(Clone, Debug)]
pub struct Axes(Vec<Option<isize>>);

impl From<isize> for Axes {
    fn from(axis: isize) -> Axes {
        Axes(vec![Some(axis)])
    }
}

impl<const N: usize> From<[isize; N]> for Axes {
    fn from(axes: [isize; N]) -> Axes {
        Axes(axes.iter().map(|&a| Some(a)).collect())
    }
}

impl<const N: usize> From<[Option<isize>; N]> for Axes {
    fn from(axes: [Option<isize>; N]) -> Axes {
        Axes(axes.to_vec())
    }
}

impl From<&[Option<isize>]> for Axes {
    fn from(axes: &[Option<isize>]) -> Axes {
        Axes(axes.to_vec())
    }
}

impl Axes {
    /// One for each leaf.
    fn spread<T: Tree>(&self, tree: &T, what: &str, at: &Loc) -> Result<Vec<Option<isize>>> {
        let items = tree.items();
        let leaves: usize = items.iter().sum();
        if self.0.len() == 1 {
            return Ok(vec![self.0[0]; leaves]);
        }
        if self.0.len() == items.len() {
            let each = self.0.iter().zip(&items);
            return Ok(each.flat_map(|(&a, &n)| std::iter::repeat_n(a, n)).collect());
        }
        if self.0.len() == leaves {
            return Ok(self.0.clone());
        }
        let text = format!("{} {what} for {} items with {leaves} tensors", self.0.len(), items.len());
        Err(call_error("vmap", text, at))
    }
}

/// A function over a batch. Made by [`vmap`].
pub struct Vmap<F> {
    f: F,
    in_axes: Axes,
    out_axes: Axes,
    size: Option<usize>,
}

/// Maps a function over an axis of its arguments, without a loop.
///
/// ```
/// use tensorloom::{Tensor, arange, vmap};
///
/// let m = arange(6).reshape(&[2, 3]);
/// let dot = |(x, y): (Tensor, Tensor)| (&x * &y).sum();
/// let rows = vmap(dot).call((m.clone(), m.clone()));
/// let with_first = vmap(dot).in_axes([Some(0), None]).call((m.clone(), m.index(0, 0)));
/// let columns = vmap(dot).in_axes([1, 1]).call((m.clone(), m));
/// assert_eq!(rows.to_vec::<i64>()?, [5, 50]);
/// assert_eq!(with_first.to_vec::<i64>()?, [5, 14]);
/// assert_eq!(columns.to_vec::<i64>()?, [9, 17, 29]);
/// # Ok::<(), tensorloom::Error>(())
/// ```
pub fn vmap<F>(f: F) -> Vmap<F> {
    Vmap { f, in_axes: 0.into(), out_axes: 0.into(), size: None }
}

impl<F> Vmap<F> {
    /// The axes of the arguments that are mapped over; `None` for an argument that all of the batch share.
    pub fn in_axes(mut self, axes: impl Into<Axes>) -> Vmap<F> {
        self.in_axes = axes.into();
        self
    }

    /// Where the results have the batch; `None` for a result that does not depend on it.
    pub fn out_axes(mut self, axes: impl Into<Axes>) -> Vmap<F> {
        self.out_axes = axes.into();
        self
    }

    /// The size of the batch, for a function of no mapped argument.
    pub fn axis_size(mut self, size: usize) -> Vmap<F> {
        self.size = Some(size);
        self
    }

    /// Calls the function over the batch.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> F::Out
    where
        F: Function<A>,
        F::Out: Tree,
    {
        let _here = crate::record::here();
        let at = crate::record::place();
        let (types, axes, size) = match self.batch(&args, &at) {
            Ok(b) => b,
            Err(e) => return fail_like(&self.f.apply(fail_like(&args, e.clone())), e),
        };
        let staged = match placeholders(&self.f, &args, &types) {
            Ok(s) => s,
            Err(e) => return e.result,
        };
        let mut in_axes = axes;
        in_axes.resize(staged.inputs.len(), None);
        let mapped = self.out_places(&staged.result, &staged.graph, &at).and_then(|out| {
            let batched: Vec<bool> = in_axes.iter().map(Option::is_some).collect();
            let want: Vec<bool> = out.iter().map(Option::is_some).collect();
            let (graph, has) = transform::vmap(&staged.graph, &batched, &want, size)?;
            if let Some(i) = (0..has.len()).find(|&i| has[i] && !want[i]) {
                let text = format!("result {i} depends on the batch, so its axis can't be None");
                return Err(call_error("vmap", text, &at));
            }
            Ok((graph, out))
        });
        let (graph, out) = match mapped {
            Ok(m) => m,
            Err(e) => return fail_like(&staged.result, e),
        };
        let inputs: Vec<Tensor> = (staged.inputs.iter().zip(&in_axes))
            .map(|(t, a)| match a {
                Some(a) if *a > 0 => move_axis(t, *a, 0),
                _ => t.clone(),
            })
            .collect();
        let outs = super::inline(&graph, &inputs.iter().collect::<Vec<_>>());
        let mut outs = outs.iter().zip(out).map(|(t, a)| match a {
            Some(a) if a > 0 => move_axis(t, 0, a),
            _ => t.clone(),
        });
        staged.result.rebuild(&mut || outs.next().expect("one for each result"))
    }

    /// Types without the batch, mapped axes, and the size of the batch.
    #[expect(clippy::type_complexity, reason = "used once, and named by the comment")]
    fn batch<A: Tree>(&self, args: &A, at: &Loc) -> Result<(Vec<Type>, Vec<Option<usize>>, usize)> {
        let leaves = args.leaves();
        if let Some(e) = leaves.iter().find_map(|t| t.error()) {
            return Err(e);
        }
        let axes = self.in_axes.spread(args, "in_axes", at)?;
        let mut size = self.size;
        let (mut types, mut places) = (Vec::new(), Vec::new());
        for (i, (t, a)) in leaves.iter().zip(axes).enumerate() {
            let mut ty = t.ty().clone();
            let Some(a) = a else {
                types.push(ty);
                places.push(None);
                continue;
            };
            let rank = ty.rank() as isize;
            let k = if a < 0 { a + rank } else { a };
            if k < 0 || k >= rank {
                let text = format!("argument {i} is {}, which has no axis {a} to map over", t.ty());
                return Err(call_error("vmap", text, at));
            }
            let n = ty.shape.remove(k as usize);
            if size.is_some_and(|s| s != n) {
                let text = format!(
                    "argument {i} is {}, whose axis {a} has {n} elements, but the others have {}",
                    t.ty(),
                    size.unwrap_or(n)
                );
                return Err(call_error("vmap", text, at));
            }
            size = Some(n);
            types.push(ty);
            places.push(Some(k as usize));
        }
        match size {
            Some(n) => Ok((types, places, n)),
            None => {
                let text = "no argument is mapped over; give one an axis, or give axis_size";
                Err(call_error("vmap", text, at))
            }
        }
    }

    fn out_places<R: Tree>(&self, result: &R, graph: &ir::Graph, at: &Loc) -> Result<Vec<Option<usize>>> {
        let axes = self.out_axes.spread(result, "out_axes", at)?;
        let types = graph.output_types();
        let place = |(i, (t, a)): (usize, (&Type, Option<isize>))| {
            let Some(a) = a else { return Ok(None) };
            let rank = t.rank() as isize + 1;
            let k = if a < 0 { a + rank } else { a };
            if k < 0 || k >= rank {
                let text = format!("result {i} is {t} for each element, so the batch can't be at axis {a}");
                return Err(call_error("vmap", text, at));
            }
            Ok(Some(k as usize))
        };
        types.iter().zip(axes).enumerate().map(place).collect()
    }
}

/// Moves one axis to another place.
#[track_caller]
fn move_axis(t: &Tensor, from: usize, to: usize) -> Tensor {
    let mut perm: Vec<isize> = (0..t.rank()).filter(|&a| a != from).map(|a| a as isize).collect();
    perm.insert(to, from as isize);
    t.permute(&perm)
}

impl<A: Tree, F: Function<A>> Function<A> for Vmap<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, args: A) -> F::Out {
        self.call(args)
    }
}
