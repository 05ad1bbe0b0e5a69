//! `shard_map`: a function of parts over a mesh, as a function of whole tensors.

use super::spec::Specs;
use super::{Mesh, Spec, context};
use crate::function::{Function, call_error, fail_like, placeholders};
use crate::{Result, Tensor, Tree, Type, record};
use ir::Loc;

/// A function over a mesh. Made by [`shard_map`].
pub struct ShardMap<F> {
    f: F,
    mesh: Mesh,
    ins: Specs,
    outs: Specs,
}

/// Runs a function on every rank of a mesh, each on its part of the arguments.
///
/// Without shardings arguments and results are the same on all ranks. Tensors that the function captures are so too.
///
/// ```
/// use tensorloom::prelude::*;
/// use tensorloom::{Mesh, shard::psum, shard_map};
///
/// // A product along a cut axis: each rank has a part of the sum.
/// let mesh = Mesh::parse("tp=2")?;
/// let product = shard_map(&mesh, |(x, w): (Tensor, Tensor)| psum(&x.matmul(&w), "tp"))
///     .in_specs(["_, tp", "tp"])
///     .out_specs("");
/// let (x, w) = (arange(6).reshape((1, 6)) * 1.0, ones((6, 2)));
/// assert_eq!(product.call((x.clone(), w.clone())).to_vec::<f32>()?, [15.0, 15.0]);
/// let slope = grad(|w: Tensor| product.call((x.clone(), w)).sum());
/// assert_eq!(jit(slope).call(w).to_vec::<f32>()?[2..4], [1.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shard_map<F>(mesh: &Mesh, f: F) -> ShardMap<F> {
    ShardMap { f, mesh: mesh.clone(), ins: "".into(), outs: "".into() }
}

impl<F> ShardMap<F> {
    /// How the arguments are cut.
    pub fn in_specs(mut self, specs: impl Into<Specs>) -> ShardMap<F> {
        self.ins = specs.into();
        self
    }

    /// How the results are put together.
    pub fn out_specs(mut self, specs: impl Into<Specs>) -> ShardMap<F> {
        self.outs = specs.into();
        self
    }

    /// Calls the function on whole tensors.
    #[track_caller]
    pub fn call<A: Tree>(&self, args: A) -> F::Out
    where
        F: Function<A>,
        F::Out: Tree,
    {
        let _here = record::here();
        let at = record::place();
        let fail = |e: crate::Error| {
            let _inside = context::enter(&self.mesh);
            fail_like(&self.f.apply(fail_like(&args, e.clone())), e)
        };
        let (ins, parts) = match self.parts(&args, &at) {
            Ok(found) => found,
            Err(e) => return fail(e),
        };
        let staged = {
            let _inside = context::enter(&self.mesh);
            placeholders(&self.f, &args, &parts)
        };
        let staged = match staged {
            Ok(s) => s,
            Err(e) => return e.result,
        };
        let mapped = self.outs.spread(&staged.result, "out_specs", &at).and_then(|outs| {
            let mut ins = ins;
            ins.resize(staged.inputs.len(), Spec::replicated());
            Ok(ir::ops::ShardMap::new(self.mesh.clone(), ins, outs, staged.graph.clone())?)
        });
        let map = match mapped {
            Ok(map) => map,
            Err(e) => return fail_like(&staged.result, e),
        };
        let inputs: Vec<&Tensor> = staged.inputs.iter().collect();
        let outs = record::many(staged.graph.outputs().len(), &inputs, |b, v| b.emit(map.into(), v));
        let mut outs = outs.into_iter();
        staged.result.rebuild(&mut || outs.next().expect("one for each result"))
    }

    /// Shardings and types of parts of the arguments.
    fn parts<A: Tree>(&self, args: &A, at: &Loc) -> Result<(Vec<Spec>, Vec<Type>)> {
        if context::is_inside() {
            return Err(call_error("shard_map", "shard_map cannot be nested; put all axes into one mesh", at));
        }
        let leaves = args.leaves();
        if let Some(e) = leaves.iter().find_map(|t| t.error()) {
            return Err(e);
        }
        let specs = self.ins.spread(args, "in_specs", at)?;
        let part = |(i, (t, spec)): (usize, (&Tensor, &Spec))| {
            let local = spec.local_type(&self.mesh, t.ty());
            local.map_err(|p| call_error("shard_map", format!("argument {i}: {p}"), at))
        };
        let types = leaves.iter().zip(&specs).enumerate().map(part).collect::<Result<_>>()?;
        Ok((specs, types))
    }
}

impl<A: Tree, F: Function<A>> Function<A> for ShardMap<F>
where
    F::Out: Tree,
{
    type Out = F::Out;

    #[track_caller]
    fn apply(&self, args: A) -> F::Out {
        self.call(args)
    }
}
