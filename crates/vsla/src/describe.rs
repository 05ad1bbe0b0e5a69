//! Descriptions of programs (§3.1): values and nodes as plain data, in any order, and a builder for them.
//!
//! A description may contain every error that §3.2 lists; [`Program::build`](crate::Program::build) reports them.

use crate::error::{Error, Result};
use crate::infer::{ValueSignature, infer};
use crate::lower::Numerics;
use crate::op::{Model, Op};
use crate::program::Program;
use ir::DType;

/// Index of a value of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// The role of a value in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum ValueTag {
    /// A weight.
    Param = 0,
    /// An input, set by the caller for each run.
    Input,
    /// An output, computed by each run.
    Output,
    /// An intermediate value.
    Temp,
}

/// The description of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueDesc {
    /// The name in reports and messages.
    pub name: String,
    /// Element type; optional for computed values.
    pub dtype: Option<DType>,
    /// Logical shape; optional for computed values.
    pub shape: Option<Vec<usize>>,
    /// Physical sizes; by default, the next powers of two.
    pub capacity: Option<Vec<usize>>,
    /// The role of the value.
    pub tag: ValueTag,
    /// Semiring of an input or parameter.
    pub model: Model,
    /// Whether the value is saved for backward. If any value is, the others are recomputed (§9.2).
    pub checkpoint: bool,
}

/// The description of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDesc {
    /// The op that the node computes.
    pub op: Op,
    /// IDs of the operands.
    pub inputs: Vec<u32>,
    /// IDs of the results.
    pub outputs: Vec<u32>,
}

/// A program before validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramDescription {
    /// Values; the ID of a value is its index.
    pub values: Vec<ValueDesc>,
    /// Nodes in any order.
    pub nodes: Vec<NodeDesc>,
    /// IDs of the program's outputs, in order.
    pub outputs: Vec<u32>,
    /// Numerics options of the whole program.
    pub numerics: Numerics,
}

/// Builds a description op by op. An op with invalid operands returns an error when it is added.
///
/// ```
/// use tensorloom_vsla::{DType, ProgramBuilder};
///
/// let mut b = ProgramBuilder::new();
/// let x = b.input("x", DType::F64, &[3])?;
/// let w = b.param("w", DType::F64, &[2])?;
/// let y = b.conv1d(x, w)?;
/// b.output(y)?;
/// let program = b.build()?;
/// assert_eq!(program.signature(y).shape, [4]);
/// # Ok::<(), tensorloom_vsla::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProgramBuilder {
    description: ProgramDescription,
    signatures: Vec<ValueSignature>,
    model: Model,
}

impl ProgramBuilder {
    /// Creates an empty program whose inputs have model A.
    pub fn new() -> ProgramBuilder {
        ProgramBuilder::default()
    }

    /// Sets the model of the inputs and parameters that are declared after this call.
    pub fn model(&mut self, model: Model) -> &mut ProgramBuilder {
        self.model = model;
        self
    }

    /// Sets the numerics options of the whole program.
    pub fn numerics(&mut self, numerics: Numerics) -> &mut ProgramBuilder {
        self.description.numerics = numerics;
        self
    }

    fn value(&mut self, name: &str, signature: ValueSignature, tag: ValueTag) -> ValueId {
        self.description.values.push(ValueDesc {
            name: name.to_string(),
            dtype: Some(signature.dtype),
            shape: Some(signature.shape.clone()),
            capacity: None,
            tag,
            model: signature.model,
            checkpoint: false,
        });
        self.signatures.push(signature);
        ValueId(self.signatures.len() as u32 - 1)
    }

    fn declare_input(&mut self, name: &str, dtype: DType, shape: &[usize], tag: ValueTag) -> Result<ValueId> {
        crate::shape::check_dtype(name, dtype)?;
        crate::shape::check_size(name, shape)?;
        let model = self.model;
        let signature = ValueSignature { model, ..ValueSignature::new(dtype, shape) };
        Ok(self.value(name, signature, tag))
    }

    /// Declares an input, which the caller sets for each run.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ValueId> {
        self.declare_input(name, dtype, shape, ValueTag::Input)
    }

    /// Declares a parameter (a weight).
    pub fn param(&mut self, name: &str, dtype: DType, shape: &[usize]) -> Result<ValueId> {
        self.declare_input(name, dtype, shape, ValueTag::Param)
    }

    /// Marks a value as an output of the program.
    pub fn output(&mut self, v: ValueId) -> Result<()> {
        self.signature(v)?;
        self.description.outputs.push(v.0);
        let value = &mut self.description.values[v.0 as usize];
        if value.tag == ValueTag::Temp {
            value.tag = ValueTag::Output;
        }
        Ok(())
    }

    /// Marks a value to be saved for backward. If any value is marked, unmarked values are recomputed (§9.2).
    pub fn checkpoint(&mut self, v: ValueId) -> Result<()> {
        self.signature(v)?;
        self.description.values[v.0 as usize].checkpoint = true;
        Ok(())
    }

    /// Returns the dtype, shape and model of a value.
    pub fn signature(&self, v: ValueId) -> Result<&ValueSignature> {
        let found = self.signatures.get(v.0 as usize);
        found.ok_or_else(|| Error::invalid_arg(format!("value {} belongs to another program", v.0)))
    }

    /// Adds any op.
    pub fn op(&mut self, op: Op, args: &[ValueId]) -> Result<Vec<ValueId>> {
        let types: Vec<ValueSignature> = args.iter().map(|&a| self.signature(a).cloned()).collect::<Result<_>>()?;
        let outs = infer(&op, &types)?;
        let inputs = args.iter().map(|a| a.0).collect();
        let outputs: Vec<ValueId> = outs.into_iter().map(|s| self.value("", s, ValueTag::Temp)).collect();
        self.description.nodes.push(NodeDesc { op, inputs, outputs: outputs.iter().map(|v| v.0).collect() });
        Ok(outputs)
    }

    fn one(&mut self, op: Op, args: &[ValueId]) -> Result<ValueId> {
        Ok(self.op(op, args)?[0])
    }

    /// Validates the description and returns the program.
    pub fn build(self) -> Result<Program> {
        Program::build(&self.description)
    }

    /// Returns the description built so far.
    pub fn description(&self) -> &ProgramDescription {
        &self.description
    }
}

macro_rules! writes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),* $(; $($attr:ident: $ty:ty),*)?) => $op:expr;)*) => {
        impl ProgramBuilder { $(
            $(#[$doc])*
            pub fn $name(&mut self, $($arg: ValueId,)* $($($attr: $ty),*)?) -> Result<ValueId> {
                self.one($op, &[$($arg),*])
            }
        )* }
    };
}

writes! {
    /// [`Op::Add`].
    add(a, b) => Op::Add;
    /// [`Op::Sub`].
    sub(a, b) => Op::Sub;
    /// [`Op::Hadamard`].
    hadamard(a, b) => Op::Hadamard;
    /// [`Op::Conv1d`].
    conv1d(a, b) => Op::Conv1d;
    /// [`Op::Kronecker`].
    kronecker(a, b) => Op::Kronecker;
    /// [`Op::Matmul`].
    matmul(a, b) => Op::Matmul;
    /// [`Op::Mask`].
    mask(x, m) => Op::Mask;
    /// [`Op::Softmax`].
    softmax(x) => Op::Softmax;
    /// [`Op::LayerNorm`].
    layernorm(x, gamma, beta; eps: f64) => Op::LayerNorm { eps };
    /// [`Op::RmsNorm`].
    rmsnorm(x, gamma; eps: f64) => Op::RmsNorm { eps };
    /// [`Op::Relu`].
    relu(x) => Op::Relu;
    /// [`Op::Gelu`] in its exact form, with the error function.
    gelu(x) => Op::Gelu(crate::op::GeluForm::Erf);
    /// [`Op::Sigmoid`].
    sigmoid(x) => Op::Sigmoid;
    /// [`Op::Tanh`].
    tanh(x) => Op::Tanh;
    /// [`Op::Exp`].
    exp(x) => Op::Exp;
    /// [`Op::Log`].
    log(x) => Op::Log;
    /// [`Op::Dropout`].
    dropout(x; rate: f64) => Op::Dropout { rate };
    /// [`Op::Sum`].
    sum(x; axis: i64) => Op::Sum { axis };
    /// [`Op::Mean`].
    mean(x; axis: i64) => Op::Mean { axis };
    /// [`Op::MulScalar`] by a number.
    mul_scalar(x; value: f64) => Op::MulScalar { value: Some(value) };
    /// [`Op::MulScalar`] by a value of shape `[1]`.
    scale_by(x, s) => Op::MulScalar { value: None };
    /// [`Op::Repeat`].
    repeat(x; count: usize) => Op::Repeat { count };
    /// [`Op::Reshape`].
    reshape(x; shape: &[usize]) => Op::Reshape { shape: shape.to_vec() };
    /// [`Op::Transpose`].
    transpose(x; permutation: &[usize]) => Op::Transpose { permutation: permutation.to_vec() };
    /// [`Op::Slice`].
    slice(x; start: &[usize], limit: &[usize]) => Op::Slice { start: start.to_vec(), limit: limit.to_vec() };
    /// [`Op::Gather`].
    gather(x; indices: &[usize]) => Op::Gather { indices: indices.to_vec() };
    /// [`Op::Attention`].
    attention(q, k, v; heads: usize, lengths: &[usize]) => Op::Attention { heads, lengths: lengths.to_vec() };
    /// [`Op::Scatter`].
    scatter(x; indices: &[usize], size: usize) => Op::Scatter { indices: indices.to_vec(), size };
}

impl ProgramBuilder {
    /// [`Op::Stack`].
    pub fn stack(&mut self, xs: &[ValueId]) -> Result<ValueId> {
        self.one(Op::Stack, xs)
    }

    /// [`Op::Window`]: stacks `size` consecutive tensors, one stack every `stride` tensors.
    pub fn window(&mut self, xs: &[ValueId], size: usize, stride: usize) -> Result<Vec<ValueId>> {
        self.op(Op::Window { size, stride }, xs)
    }
}
