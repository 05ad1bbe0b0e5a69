//! Several LoRA adapters in one program: their matrices are stacked, and each row selects its own adapter.
//!
//! Adapters of different ranks and targets are padded to a common form: missing ranks and matrices have an update of zero, and
//! `α/r` is multiplied into B. The first entry of the stack is no adapter.

use crate::adapter::{AdaptedMatrix, Adapter, AdapterOptions};
use crate::error::{Error, Result};
use crate::insert_adapter;
use crate::lora::LoraOptions;
use crate::session::{Buffer, upload};
use compiler::Backend;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Value};

/// All adapters of a model in one stack.
pub(super) struct StackedAdapters {
    /// The union of all adapters' matrices, with the highest rank.
    union: Adapter,
    /// The elements of each stacked tensor.
    values: Vec<Vec<f32>>,
    count: usize,
}

impl StackedAdapters {
    pub(super) fn new(adapters: &[Adapter]) -> Result<Option<StackedAdapters>> {
        let Some(first) = adapters.first() else { return Ok(None) };
        let mut places: Vec<AdaptedMatrix> = Vec::new();
        let mut rank = 1;
        for adapter in adapters {
            let AdapterOptions::Lora(options) = &adapter.options else {
                return Err(Error::Input(
                    "only LoRA adapters can be served together with their base model: merge this one with `loom merge`"
                        .into(),
                ));
            };
            rank = rank.max(options.rank);
            for place in &adapter.matrices {
                if !places.iter().any(|known| known.module == place.module) {
                    places.push(place.clone());
                }
            }
        }
        let options = LoraOptions { rank, alpha: rank as f64, dropout: 0.0, targets: Vec::new() };
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); 2 * places.len()];
        for (p, place) in places.iter().enumerate() {
            let [out, inner] = place.shape;
            values[2 * p] = vec![0.0; rank * inner * (adapters.len() + 1)];
            values[2 * p + 1] = vec![0.0; out * rank * (adapters.len() + 1)];
            for (n, adapter) in adapters.iter().enumerate() {
                let AdapterOptions::Lora(options) = &adapter.options else { continue };
                let Some(own) = adapter.matrices.iter().position(|known| known.module == place.module) else {
                    continue;
                };
                let (a, b) = (&adapter.values[2 * own], &adapter.values[2 * own + 1]);
                let (low, scale) = (options.rank, options.scale() as f32);
                let at = (n + 1) * rank * inner;
                values[2 * p][at..at + low * inner].copy_from_slice(a);
                for o in 0..out {
                    for r in 0..low {
                        values[2 * p + 1][((n + 1) * out + o) * rank + r] = scale * b[o * low + r];
                    }
                }
            }
        }
        let union = Adapter {
            options: AdapterOptions::Lora(options),
            base: first.base.clone(),
            matrices: places,
            values: Vec::new(),
        };
        Ok(Some(StackedAdapters { union, values, count: adapters.len() + 1 }))
    }

    fn types(&self) -> Vec<Type> {
        let wide = |ty: Type| {
            let shape: Vec<usize> = std::iter::once(self.count).chain(ty.shape.iter().copied()).collect();
            Type::new(DType::F32, &shape)
        };
        self.union.tensors().into_iter().map(|(_, ty)| wide(ty)).collect()
    }

    pub(super) fn upload(&self, backend: &dyn Backend) -> Result<Vec<Buffer>> {
        let bytes: Vec<Vec<u8>> = self.values.iter().map(|v| train::named_tensor::to_bytes(v, DType::F32)).collect();
        upload(backend, &bytes)
    }

    /// Adds the updates of the adapter whose index is the last input, an i32. The inputs are the
    /// stacks, then the graph's own inputs, then the index.
    pub(super) fn insert_adapters(&self, forward: &Graph) -> Result<Graph> {
        let adapted = insert_adapter::insert_adapter(forward, false, &self.union, false)?;
        let mut b = Builder::new();
        let stacks: Vec<Value> = self.types().into_iter().map(|ty| b.graph.input(ty)).collect();
        let own: Vec<Value> = forward.input_types().into_iter().map(|ty| b.graph.input(ty)).collect();
        let which = b.graph.input(Type::new(DType::I32, &[]));
        let zero = b.scalar(DType::I32, 0.0)?;
        let mut args = Vec::new();
        for stack in stacks {
            let shape = b.ty(stack).shape.clone();
            let starts: Vec<Value> = (0..shape.len()).map(|a| if a == 0 { which } else { zero }).collect();
            let sizes: Vec<usize> = std::iter::once(1).chain(shape[1..].iter().copied()).collect();
            let one = b.dynamic_slice(stack, &starts, &sizes)?;
            args.push(b.reshape(one, &shape[1..])?);
        }
        args.extend(own);
        let outs = b.inline(&adapted, &args)?;
        Ok(b.finish(&outs))
    }
}
