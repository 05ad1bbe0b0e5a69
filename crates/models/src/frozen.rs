//! Freezes a model to one program: its parameters are constants, and only token IDs are inputs.

use crate::error::Result;
use crate::model::Model;
use ir::{Builder, DType, Graph, GraphBuilder, Literal, Type};

impl Model {
    /// The graph from token IDs (`i32[batch, steps]`) to logits in f32, with the parameters as constants. For ahead-of-time compilation.
    pub fn frozen(&self, batch: usize, steps: usize) -> Result<Graph> {
        let (graph, values) = self.graph(batch, steps)?;
        let mut b = Builder::new();
        let ids = b.input(DType::I32, &[batch, steps]);
        let mut args = Vec::with_capacity(values.len() + 1);
        for v in &values {
            let literal = Literal::from_bytes(Type::new(v.dtype, &v.shape), &v.bytes).ok_or_else(|| {
                crate::Error::Input(format!("{}: the number of elements does not match its type", v.name))
            })?;
            args.push(b.constant(literal)?);
        }
        args.push(ids);
        if graph.inputs().len() != args.len() {
            let more = graph.inputs().len() - values.len();
            return Err(crate::Error::Input(format!(
                "the model has {more} inputs: only models with one input of token IDs can be exported"
            )));
        }
        let logits = b.inline(&graph, &args)?[0];
        let logits = b.cast(logits, DType::F32)?;
        Ok(b.finish(&[logits]))
    }
}
