//! A model whose parameters and caches ranks share, for generation: each rank runs its part of every program, and all see the
//! same logits.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::placing::{About, by_shard, part};
use crate::session::Buffer;
use compiler::Backend;
use dist::Comm;
use ir::{Graph, Mesh, Spec, Type};
use lang::lower::{Options, Parameter};
use std::sync::Arc;
use transform::{Cut, Placement};

/// How a model lies on the ranks of a mesh.
pub(crate) struct Divided {
    comm: Arc<Comm>,
    params: Vec<Placement>,
}

/// What one rank of a mesh runs of a graph from (parameters.., inputs..): parameters are cut as their `@shard` says, inputs by
/// `dp`, `fsdp` and `ep` along their first axis and by `sp` along their second.
pub fn divide(graph: &Graph, params: &[Parameter], mesh: &Mesh) -> Result<Graph> {
    let about = params.iter().map(About::of).enumerate();
    let mut ins: Vec<Placement> = about.map(|(i, about)| by_shard(mesh, graph, i, about)).collect();
    let by = |names: &[&str]| -> Cut {
        let axes = names.iter().filter_map(|name| mesh.axes().iter().position(|a| a.name == *name && a.size > 1));
        Cut::by(axes.collect())
    };
    for ty in &graph.input_types()[params.len()..] {
        let mut layout = vec![Cut::default(); ty.rank()];
        for (cut, own) in [by(&["dp", "fsdp", "ep"]), by(&["sp"])].into_iter().zip(&mut layout) {
            *own = cut;
        }
        let fits = |(cut, size): (&Cut, &usize)| cut.is_whole() || cut.fits(mesh, *size);
        if !layout.iter().zip(&ty.shape).all(fits) {
            return Err(Error::Input(format!("an input {ty} cannot be sharded over {mesh}: use other sizes")));
        }
        ins.push(Placement { layout, stored: None });
    }
    let outs = vec![None; graph.outputs().len()];
    Ok(transform::partition(graph, mesh, &ins, &outs)?.graph)
}

impl Divided {
    /// Divides a model as its `@shard`s say.
    pub(crate) fn of(model: &Model, comm: Arc<Comm>) -> Result<Divided> {
        let mesh = comm.mesh();
        if let Some(other) = mesh.axes().iter().find(|a| !["tp", "ep"].contains(&a.name.as_str()) && a.size > 1) {
            return Err(Error::Input(format!(
                "`--mesh {mesh}`: generation does not support axis `{}`; use tp and ep",
                other.name
            )));
        }
        if model.is_quantized() {
            return Err(Error::Input("quantized weights cannot be sharded: generate in one process".into()));
        }
        let options = Options { dtype: model.dtype, ..Options::default() };
        let graph = model.architecture.lower_with(1, 1, &options)?.graph;
        let about = model.params.iter().map(About::of).enumerate();
        let params = about.map(|(i, about)| by_shard(mesh, &graph, i, about)).collect();
        Ok(Divided { comm, params })
    }

    fn mesh(&self) -> &Mesh {
        self.comm.mesh()
    }

    /// This rank's part of each parameter. One after another: a rank never holds the whole model.
    pub(crate) fn upload(&self, model: &Model, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for (i, (param, placement)) in model.params.iter().zip(&self.params).enumerate() {
            let whole = model.upload_some(&[i], backend)?.remove(0);
            if placement.layout.iter().all(Cut::is_whole) {
                buffers.push(whole);
                continue;
            }
            let mut bytes = vec![0; param.ty.bytes()];
            whole.read(0, &mut bytes)?;
            drop(whole);
            let own = part(placement, &param.ty, self.mesh(), self.comm.rank(), &bytes);
            let buffer = backend.alloc(own.len())?;
            buffer.write(0, &own)?;
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    /// The graph of one rank, from (parameters.., ids, and with caches position, caches.., more) to (results.., caches.., more).
    /// Caches are cut by heads where ranks can share them; `results` is how many outputs come before them.
    pub(crate) fn local(&self, graph: &Graph, caches: &[Type], results: usize) -> Result<Graph> {
        let (mesh, n) = (self.mesh(), self.params.len());
        let by = mesh.axes().iter().position(|a| a.name == "tp" && a.size > 1);
        let cache = |ty: &Type| {
            let mut layout = vec![Cut::default(); ty.rank()];
            if let (Some(by), 4) = (by, ty.rank())
                && ty.shape[1].is_multiple_of(mesh.axes()[by].size)
            {
                layout[1] = Cut::by(vec![by]);
            }
            Placement { layout, stored: None }
        };
        let first = n + 2;
        let mut ins = self.params.clone();
        for (i, ty) in graph.input_types().iter().enumerate().skip(n) {
            ins.push(match i.checked_sub(first).and_then(|i| caches.get(i)) {
                Some(ty) => cache(ty),
                None => Placement { layout: vec![Cut::default(); ty.rank()], stored: None },
            });
        }
        let spec = |p: &Placement| {
            let names = |c: &Cut| c.axes.iter().map(|&a| mesh.axes()[a].name.clone()).collect();
            Spec(p.layout.iter().map(names).collect())
        };
        let out = |o: usize| match o.checked_sub(results).filter(|i| *i < caches.len()) {
            Some(i) => Some(spec(&ins[first + i])),
            None => Some(Spec::replicated()),
        };
        let outs: Vec<Option<Spec>> = (0..graph.outputs().len()).map(out).collect();
        Ok(transform::partition(graph, mesh, &ins, &outs)?.graph)
    }
}
