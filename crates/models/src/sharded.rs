//! Generation with a model whose parameters and KV caches are sharded among ranks: each rank runs its part of every program, and
//! all ranks get the same logits.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::param_sharding::{ParamInfo, local_part, param_sharding};
use crate::session::Buffer;
use compiler::Backend;
use dist::Comm;
use ir::{Graph, Mesh, Spec, Type};
use lang::lower::{LowerOptions, Parameter};
use std::sync::Arc;
use transform::{DimSharding, Sharding};

/// The sharding of a model over the ranks of a mesh.
pub(crate) struct Sharded {
    comm: Arc<Comm>,
    params: Vec<Sharding>,
}

/// Partitions a graph of (parameters.., inputs..) for one rank of a mesh: parameters are sharded by their `@shard`, inputs along
/// `dp`, `fsdp` and `ep` on their first axis and along `sp` on their second.
pub fn shard_graph(graph: &Graph, params: &[Parameter], mesh: &Mesh) -> Result<Graph> {
    let about = params.iter().map(ParamInfo::of).enumerate();
    let mut ins: Vec<Sharding> = about.map(|(i, about)| param_sharding(mesh, graph, i, about)).collect();
    let by = |names: &[&str]| -> DimSharding {
        let axes = names.iter().filter_map(|name| mesh.axes().iter().position(|a| a.name == *name && a.size > 1));
        DimSharding::over_axes(axes.collect())
    };
    for ty in &graph.input_types()[params.len()..] {
        let mut layout = vec![DimSharding::default(); ty.rank()];
        for (cut, own) in [by(&["dp", "fsdp", "ep"]), by(&["sp"])].into_iter().zip(&mut layout) {
            *own = cut;
        }
        let fits = |(cut, size): (&DimSharding, &usize)| cut.is_replicated() || cut.divides(mesh, *size);
        if !layout.iter().zip(&ty.shape).all(fits) {
            return Err(Error::Input(format!("an input {ty} cannot be sharded over {mesh}: use other sizes")));
        }
        ins.push(Sharding { spec: layout, storage_sharding: None });
    }
    let outs = vec![None; graph.outputs().len()];
    Ok(transform::partition(graph, mesh, &ins, &outs)?.graph)
}

impl Sharded {
    /// Shards a model by its `@shard` annotations.
    pub(crate) fn new(model: &Model, comm: Arc<Comm>) -> Result<Sharded> {
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
        let options = LowerOptions { dtype: model.dtype, ..LowerOptions::default() };
        let graph = model.architecture.lower_with(1, 1, &options)?.graph;
        let about = model.params.iter().map(ParamInfo::of).enumerate();
        let params = about.map(|(i, about)| param_sharding(mesh, &graph, i, about)).collect();
        Ok(Sharded { comm, params })
    }

    fn mesh(&self) -> &Mesh {
        self.comm.mesh()
    }

    /// Uploads this rank's shard of each parameter, one after another: a rank never holds the whole model.
    pub(crate) fn upload(&self, model: &Model, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        for (i, (param, placement)) in model.params.iter().zip(&self.params).enumerate() {
            let whole = model.upload_some(&[i], backend)?.remove(0);
            if placement.spec.iter().all(DimSharding::is_replicated) {
                buffers.push(whole);
                continue;
            }
            let mut bytes = vec![0; param.ty.bytes()];
            whole.read(0, &mut bytes)?;
            drop(whole);
            let own = local_part(placement, &param.ty, self.mesh(), self.comm.rank(), &bytes);
            let buffer = backend.alloc(own.len())?;
            buffer.write(0, &own)?;
            buffers.push(buffer);
        }
        Ok(buffers)
    }

    /// Partitions a graph from (parameters.., token IDs, and with caches position, caches.., more) to (results.., caches.., more)
    /// for one rank. Caches are sharded by heads if possible; `results` is the number of outputs before them.
    pub(crate) fn local_graph(&self, graph: &Graph, caches: &[Type], results: usize) -> Result<Graph> {
        let (mesh, n) = (self.mesh(), self.params.len());
        let by = mesh.axes().iter().position(|a| a.name == "tp" && a.size > 1);
        let cache = |ty: &Type| {
            let mut layout = vec![DimSharding::default(); ty.rank()];
            if let (Some(by), 4) = (by, ty.rank())
                && ty.shape[1].is_multiple_of(mesh.axes()[by].size)
            {
                layout[1] = DimSharding::over_axes(vec![by]);
            }
            Sharding { spec: layout, storage_sharding: None }
        };
        let first = n + 2;
        let mut ins = self.params.clone();
        for (i, ty) in graph.input_types().iter().enumerate().skip(n) {
            ins.push(match i.checked_sub(first).and_then(|i| caches.get(i)) {
                Some(ty) => cache(ty),
                None => Sharding { spec: vec![DimSharding::default(); ty.rank()], storage_sharding: None },
            });
        }
        let spec = |p: &Sharding| {
            let names = |c: &DimSharding| c.axes.iter().map(|&a| mesh.axes()[a].name.clone()).collect();
            Spec(p.spec.iter().map(names).collect())
        };
        let out = |o: usize| match o.checked_sub(results).filter(|i| *i < caches.len()) {
            Some(i) => Some(spec(&ins[first + i])),
            None => Some(Spec::replicated()),
        };
        let outs: Vec<Option<Spec>> = (0..graph.outputs().len()).map(out).collect();
        Ok(transform::partition(graph, mesh, &ins, &outs)?.graph)
    }
}
