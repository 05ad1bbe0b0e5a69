//! Runs models with any inputs and outputs: encoders, vision models, sequence pairs.

use crate::asserts;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::ProgramSession;
use compiler::Backend;
use ir::{Builder, DType, Graph, GraphBuilder, Type, Value};
use lang::lower::LowerOptions;
use train::NamedTensor;
use train::named_tensor::{from_bytes, to_bytes};

/// The results of a run.
#[derive(Clone, Debug)]
pub struct ModelOutputs {
    /// The model's outputs under their names.
    pub outputs: Vec<NamedTensor>,
    /// The gradient `grad.<HuggingFace name>` of every tensor of the checkpoint, if cotangents were given.
    pub gradients: Vec<NamedTensor>,
}

impl Model {
    /// Runs the model on tensors by the names of its inputs; optional ones may be omitted. With cotangents (`d_<output>`, of an
    /// output's shape) also computes the gradients of the sum of outputs times cotangents.
    pub fn run(
        &self,
        given: &[NamedTensor],
        cotangents: &[NamedTensor],
        backend: &dyn Backend,
    ) -> Result<ModelOutputs> {
        let slots = self.architecture.inputs();
        let names = || slots.iter().map(|slot| format!("`{}`", slot.name)).collect::<Vec<_>>().join(", ");
        if let Some(unknown) = given.iter().find(|tensor| !slots.iter().any(|slot| slot.name == tensor.name)) {
            return Err(Error::Input(format!("the model has no input `{}`: its inputs are {}", unknown.name, names())));
        }
        let declared = self.architecture.input_types(1, 1, self.dtype)?;
        let (mut types, mut values, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, ty) in slots.iter().zip(declared) {
            match given.iter().find(|tensor| tensor.name == slot.name) {
                Some(tensor) => {
                    if tensor.shape.len() != ty.rank() {
                        let text = format!(
                            "`{}` has shape {:?}, but it must have {} dimensions",
                            slot.name,
                            tensor.shape,
                            ty.rank()
                        );
                        return Err(Error::Input(text));
                    }
                    values.push(convert_tensor(tensor, ty.dtype)?);
                    types.push(Type::new(ty.dtype, &tensor.shape));
                }
                None if slot.optional => absent.push(slot.name.clone()),
                None => {
                    return Err(Error::Input(format!(
                        "the input `{}` is missing: the inputs are {}",
                        slot.name,
                        names()
                    )));
                }
            }
        }
        let absent = absent.into_iter().collect();
        let options = LowerOptions { dtype: self.dtype, asserts: true, absent, ..LowerOptions::default() };
        let mut lowered = self.architecture.lower_for(&types, &options)?;
        lowered.graph = self.read_packed(&lowered.graph, 0)?;
        let (n, results) = (self.param_inputs(), lowered.graph.output_types());
        let all = (0..self.params.len()).filter(|&i| self.params[i].ty.dtype.is_float() && self.packed(i).is_none());
        let wide: Vec<usize> = all.collect();
        let floats: Vec<usize> = wide.iter().map(|&i| (0..i).map(|j| self.inputs_of(j)).sum()).collect();
        let seeds = match_cotangents(&lowered.outputs, &results, cotangents)?;
        let graph = match seeds.is_empty() {
            true => lowered.graph.clone(),
            false => transform::value_and_grad(&weighted_sum_graph(&lowered.graph, &seeds)?, &floats)?,
        };
        let params = self.upload(backend)?;
        let mut session = ProgramSession::new(&graph, backend, &params)?;
        let seeded = seeds.iter().map(|(output, tensor)| convert_tensor(tensor, results[*output].dtype));
        for (i, bytes) in values.into_iter().map(Ok).chain(seeded).enumerate() {
            session.bindings.inputs[n + i].write(0, &bytes?)?;
        }
        session.run()?;
        // With cotangents, the first output is their weighted sum.
        let first = usize::from(!seeds.is_empty());
        asserts::check_assertions(&session, &lowered.observations, first + lowered.outputs.len())?;
        let mut outputs = Vec::new();
        for (i, name) in lowered.outputs.iter().enumerate() {
            let (ty, bytes) = session.read(first + i)?;
            outputs.push(NamedTensor { name: name.clone(), shape: ty.shape.to_vec(), dtype: ty.dtype, bytes });
        }
        let gradients = match seeds.is_empty() {
            true => Vec::new(),
            false => self.named_gradients(&session, 1 + results.len(), &wide)?,
        };
        Ok(ModelOutputs { outputs, gradients })
    }
}

/// Converts a tensor's bytes to another dtype: floats are rounded, integers must be preserved.
pub(crate) fn convert_tensor(tensor: &NamedTensor, dtype: DType) -> Result<Vec<u8>> {
    if tensor.dtype == dtype {
        return Ok(tensor.bytes.clone());
    }
    if tensor.dtype.is_float() && dtype.is_float() {
        return Ok(to_bytes(&from_bytes(&tensor.bytes, tensor.dtype), dtype));
    }
    if tensor.dtype == DType::I64 && dtype == DType::I32 {
        let wide = tensor.bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        let narrow = wide.map(|n| i32::try_from(n).map_err(|_| n)).collect::<std::result::Result<Vec<i32>, i64>>();
        let narrow =
            narrow.map_err(|n| Error::Input(format!("`{}` has the value {n}, which is too large", tensor.name)))?;
        return Ok(narrow.into_iter().flat_map(i32::to_le_bytes).collect());
    }
    Err(Error::Input(format!("`{}` is {}, but the model expects {dtype}", tensor.name, tensor.dtype)))
}

/// The output of each cotangent.
fn match_cotangents<'a>(
    outputs: &[String],
    types: &[Type],
    given: &'a [NamedTensor],
) -> Result<Vec<(usize, &'a NamedTensor)>> {
    let mut found = Vec::new();
    for tensor in given {
        let output = tensor.name.strip_prefix("d_").and_then(|name| outputs.iter().position(|known| known == name));
        let Some(output) = output else {
            let known: Vec<String> = outputs.iter().map(|name| format!("`d_{name}`")).collect();
            let text =
                format!("`{}` is not a cotangent of an output: the outputs are {}", tensor.name, known.join(", "));
            return Err(Error::Input(text));
        };
        if tensor.shape[..] != types[output].shape[..] {
            let text =
                format!("`{}` has shape {:?}, but its output has {:?}", tensor.name, tensor.shape, types[output].shape);
            return Err(Error::Input(text));
        }
        found.push((output, tensor));
    }
    Ok(found)
}

/// Returns the sum of outputs times cotangents, which are inputs after the others, and all outputs.
fn weighted_sum_graph(forward: &Graph, seeds: &[(usize, &NamedTensor)]) -> ir::Result<Graph> {
    let mut b = Builder::new();
    let inputs: Vec<Value> = forward.input_types().into_iter().map(|t| b.graph.input(t)).collect();
    let types = forward.output_types();
    let given: Vec<Value> = seeds.iter().map(|(output, _)| b.graph.input(types[*output].clone())).collect();
    let outs = b.inline(forward, &inputs)?;
    let mut sum: Option<Value> = None;
    for ((output, _), seed) in seeds.iter().zip(given) {
        let product = b.mul(outs[*output], seed)?;
        let wide = b.cast(product, types[*output].dtype.accumulator())?;
        let total = b.sum_all(wide)?;
        sum = b.add_optional(sum, Some(total))?;
    }
    let sum = match sum {
        Some(sum) => sum,
        None => b.scalar(DType::F32, 0.0)?,
    };
    Ok(b.finish(&[&[sum], &outs[..]].concat()))
}
