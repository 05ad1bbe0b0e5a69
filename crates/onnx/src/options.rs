//! What is said about a model's inputs when it is imported.

use ir::{DType, Literal};
use std::collections::BTreeMap;

/// Sizes and values that the model leaves open, and how its numbers are kept.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Sizes by their names in the model.
    pub dims: BTreeMap<String, usize>,
    /// What is known of inputs, by name.
    pub inputs: BTreeMap<String, InputInfo>,
    /// Compute in another float where the model says `float`.
    pub float_dtype: Option<DType>,
    /// Parameters become constants of the graph instead of inputs.
    pub parameters_as_constants: bool,
}

/// What is known of an input.
#[derive(Clone, Debug)]
pub enum InputInfo {
    /// Its shape.
    Shape(Vec<usize>),
    /// Its value: it is no input of the graph any more.
    Value(Literal),
    /// The elements of a sequence.
    Sequence(Vec<InputInfo>),
    /// An optional that is there.
    Present(Box<InputInfo>),
    /// An optional that is not there.
    Absent,
}

impl ImportOptions {
    /// The size that a name of the model stands for.
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> ImportOptions {
        self.dims.insert(name.into(), size);
        self
    }

    /// The shape of an input.
    pub fn shape(mut self, input: impl Into<String>, shape: &[usize]) -> ImportOptions {
        self.inputs.insert(input.into(), InputInfo::Shape(shape.to_vec()));
        self
    }

    /// The value of an input, for those that decide about shapes.
    pub fn value(mut self, input: impl Into<String>, value: Literal) -> ImportOptions {
        self.inputs.insert(input.into(), InputInfo::Value(value));
        self
    }
}
