//! Arguments of a call from a golden line: tensors are the line's inputs in order, everything else is a parameter of the argument's name.

use crate::line::Line;
use std::cell::Cell;
use tensorloom::np::{self, ReduceAxes};
use tensorloom::{DType, Operand, Tensor};

/// A line's inputs and parameters, as the functions of `calls.rs` take them.
pub(crate) struct Arguments<'a> {
    line: &'a Line,
    inputs: Vec<Tensor>,
    next: Cell<usize>,
}

impl<'a> Arguments<'a> {
    /// With the parameter `times` the first tensor is that often what the line says.
    pub(crate) fn new(line: &'a Line, inputs: &[Tensor]) -> Arguments<'a> {
        let mut inputs = inputs.to_vec();
        if let (Some(times), Some(first)) = (line.number("times"), inputs.first_mut()) {
            *first = &*first * times;
        }
        Arguments { line, inputs, next: Cell::new(0) }
    }

    pub(crate) fn maybe_tensor(&self) -> Option<&Tensor> {
        let at = self.next.replace(self.next.get() + 1);
        self.inputs.get(at)
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        self.maybe_tensor().unwrap_or_else(|| panic!("{} has fewer inputs than the function", self.line.name))
    }

    /// What is left of the inputs.
    pub(crate) fn tensors(&self) -> Vec<&Tensor> {
        self.inputs[self.next.replace(self.inputs.len())..].iter().collect()
    }

    pub(crate) fn owned(&self) -> Vec<Tensor> {
        self.tensors().into_iter().cloned().collect()
    }

    pub(crate) fn maybe(&self, name: &str) -> Option<f64> {
        self.line.number(name)
    }

    /// A number that the function can't do without.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.maybe(name).unwrap_or_else(|| {
            panic!("{} needs `{name}`: name it in golden/functions, or say in a table how it is called", self.line.name)
        })
    }

    pub(crate) fn maybe_operand(&self, name: &str) -> Option<Operand> {
        self.maybe(name).map(Operand::from)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.line.flag(name)
    }

    pub(crate) fn text(&self, name: &str) -> &'a str {
        self.line.text(name)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.line.dtype()
    }

    pub(crate) fn list(&self, name: &str) -> Vec<isize> {
        self.line.list(name).unwrap_or_else(|| panic!("{} needs `{name}`", self.line.name))
    }

    pub(crate) fn sizes(&self, name: &str) -> Vec<usize> {
        self.list(name).iter().map(|&n| n as usize).collect()
    }

    /// Axes, one or several, and with `keep` that they stay.
    pub(crate) fn along(&self, name: &str) -> ReduceAxes {
        let axes = self.line.list(name).or_else(|| self.line.list(if name == "axis" { "axes" } else { "axis" }));
        let axes = axes.map_or(np::axes(()), np::axes);
        if self.flag("keep") { axes.keep() } else { axes }
    }
}

/// Results of a function as a list of tensors.
pub(crate) trait Results {
    fn list(self) -> Vec<Tensor>;
}

impl Results for Tensor {
    fn list(self) -> Vec<Tensor> {
        vec![self]
    }
}

impl Results for Vec<Tensor> {
    fn list(self) -> Vec<Tensor> {
        self
    }
}

impl Results for (Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1]
    }
}

impl Results for (Tensor, Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2]
    }
}

impl Results for (Tensor, Tensor, Tensor, Tensor) {
    fn list(self) -> Vec<Tensor> {
        vec![self.0, self.1, self.2, self.3]
    }
}
