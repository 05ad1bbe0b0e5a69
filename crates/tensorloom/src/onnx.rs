//! ONNX models in and out. An imported model is a function of tensors: it runs, is differentiated and compiled.
//!
//! ```
//! use tensorloom::{Tensor, make_graph, onnx, tensor, zeros};
//!
//! // A function, written as an ONNX file ..
//! let graph = make_graph(|x: Tensor| x.square(), zeros((2, 2)))?;
//! let file = std::env::temp_dir().join(format!("square-{}.onnx", std::process::id()));
//! std::fs::write(&file, onnx::export(&graph, &onnx::ExportNames::default())?)?;
//!
//! // .. and read again.
//! let square = onnx::import(&file)?;
//! let y = square.call(&[tensor(&[1.0, 2.0, 3.0, 4.0], (2, 2))])?;
//! assert_eq!(y[0].to_vec::<f32>()?, [1.0, 4.0, 9.0, 16.0]);
//! # std::fs::remove_file(file)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Graph, Tensor, engine, record};
pub use ::onnx::*;
use std::path::Path;

/// A model that was imported.
pub struct Model {
    graph: Graph,
    inputs: Vec<TensorPort>,
    outputs: Vec<TensorPort>,
    parameters: Vec<(String, Tensor)>,
}

/// Reads a model from a file; tensors may be in files beside it. A model that leaves sizes open is read by [`import_with_options`].
#[track_caller]
pub fn import(path: impl AsRef<Path>) -> crate::Result<Model> {
    import_with_options(path, &ImportOptions::default())
}

/// Reads a model from a file, with what the file leaves open.
#[track_caller]
pub fn import_with_options(path: impl AsRef<Path>, options: &ImportOptions) -> crate::Result<Model> {
    let _here = record::here();
    let path = path.as_ref();
    let found = import_file(path, options).map_err(|e| fault("onnx::import", format!("{}: {e}", path.display())))?;
    let parameters = found.parameters.iter().map(|(name, x)| (name.clone(), engine().literal(x))).collect();
    Ok(Model { graph: found.graph, inputs: found.inputs, outputs: found.outputs, parameters })
}

#[track_caller]
fn fault(op: &'static str, reason: String) -> crate::Error {
    record::error(op, reason)
}

impl Model {
    /// What it takes, in order.
    pub fn inputs(&self) -> &[TensorPort] {
        &self.inputs
    }

    /// What it gives, in order.
    pub fn outputs(&self) -> &[TensorPort] {
        &self.outputs
    }

    /// Its weights by their names. Floats can be trained: see [`Tensor::requires_grad_`].
    pub fn parameters(&self) -> &[(String, Tensor)] {
        &self.parameters
    }

    /// The graph, from the inputs, then the parameters, to the outputs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The outputs for these inputs.
    #[track_caller]
    pub fn call(&self, inputs: &[Tensor]) -> crate::Result<Vec<Tensor>> {
        let _here = record::here();
        if inputs.len() != self.inputs.len() {
            let names: Vec<&str> = self.inputs.iter().map(|port| &*port.name).collect();
            let reason =
                format!("{} inputs given; the model takes {}: {}", inputs.len(), names.len(), names.join(", "));
            return Err(fault("onnx::Model::call", reason));
        }
        for (port, x) in self.inputs.iter().zip(inputs) {
            x.check()?;
            if *x.ty() != port.ty {
                let reason = format!("input `{}` is {}, but the model takes {}", port.name, x.ty(), port.ty);
                return Err(fault("onnx::Model::call", reason));
            }
        }
        let args: Vec<&Tensor> = inputs.iter().chain(self.parameters.iter().map(|(_, x)| x)).collect();
        let outs = crate::trace::inline(&self.graph, &args);
        outs.iter().try_for_each(Tensor::check)?;
        Ok(outs)
    }
}
