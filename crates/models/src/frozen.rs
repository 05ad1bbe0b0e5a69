//! A model as one program: its parameters are constants, what is left to give are ids.

use crate::error::Result;
use crate::model::Model;
use ir::{Build, Builder, DType, Graph, Literal, Type};

impl Model {
    /// The graph from ids (`i32[batch, steps]`) to logits in f32, with the parameters inside of it. For programs that are shipped.
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
