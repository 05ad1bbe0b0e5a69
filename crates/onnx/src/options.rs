//! What is said about a model's inputs when it is imported.

use ir::{DType, Literal};
use std::collections::BTreeMap;

/// Sizes and values that the model leaves open, and how its numbers are kept.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Sizes by their names in the model.
    pub dims: BTreeMap<String, usize>,
    /// What is known of inputs, by name.
    pub inputs: BTreeMap<String, Given>,
    /// Compute in another float where the model says `float`.
    pub float: Option<DType>,
    /// Parameters become constants of the graph instead of inputs.
    pub constants: bool,
}

/// What is known of an input.
#[derive(Clone, Debug)]
pub enum Given {
    /// Its shape.
    Shape(Vec<usize>),
    /// Its value: it is no input of the graph any more.
    Value(Literal),
    /// The elements of a sequence.
    Sequence(Vec<Given>),
    /// An optional that is there.
    Present(Box<Given>),
    /// An optional that is not there.
    Absent,
}

impl Options {
    /// The size that a name of the model stands for.
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Options {
        self.dims.insert(name.into(), size);
        self
    }

    /// The shape of an input.
    pub fn shape(mut self, input: impl Into<String>, shape: &[usize]) -> Options {
        self.inputs.insert(input.into(), Given::Shape(shape.to_vec()));
        self
    }

    /// The value of an input, for those that decide about shapes.
    pub fn value(mut self, input: impl Into<String>, value: Literal) -> Options {
        self.inputs.insert(input.into(), Given::Value(value));
        self
    }
}
