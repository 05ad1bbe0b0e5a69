//! Options of an import: sizes, values of inputs, and dtypes.

use ir::{DType, Literal};
use std::collections::BTreeMap;

/// Sizes and values that the model leaves open, and the dtype of its floats.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Sizes by their names in the model.
    pub dims: BTreeMap<String, usize>,
    /// Known properties of inputs, by name.
    pub inputs: BTreeMap<String, InputInfo>,
    /// The dtype that replaces the model's `float`.
    pub float_dtype: Option<DType>,
    /// Whether parameters become constants of the graph instead of inputs.
    pub parameters_as_constants: bool,
}

/// Known properties of an input.
#[derive(Clone, Debug)]
pub enum InputInfo {
    /// Its shape.
    Shape(Vec<usize>),
    /// Its value: it is no longer an input of the graph.
    Value(Literal),
    /// The elements of a sequence.
    Sequence(Vec<InputInfo>),
    /// A present optional value.
    Present(Box<InputInfo>),
    /// An absent optional value.
    Absent,
}

impl ImportOptions {
    /// Sets the size with this symbolic name.
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> ImportOptions {
        self.dims.insert(name.into(), size);
        self
    }

    /// Sets the shape of an input.
    pub fn shape(mut self, input: impl Into<String>, shape: &[usize]) -> ImportOptions {
        self.inputs.insert(input.into(), InputInfo::Shape(shape.to_vec()));
        self
    }

    /// Sets the value of an input, for inputs that determine shapes.
    pub fn value(mut self, input: impl Into<String>, value: Literal) -> ImportOptions {
        self.inputs.insert(input.into(), InputInfo::Value(value));
        self
    }
}
