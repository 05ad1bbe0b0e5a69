//! Describing programs, and building them (§3, §12.1).

use crate::vsla::error::{Code, guard};
use crate::vsla::handles::{Object, insert, lock, want};
use crate::vsla::pointers::{check_writable, dtype, model, sizes, slice, slice_mut, text, write_out};
use std::ffi::c_char;
use std::sync::{Arc, Mutex};
use vsla::{
    ConvAlgorithm, Error, GeluForm, NodeDesc, Numerics, Op, Program, ProgramDescription, Result, ValueDesc, ValueId,
};

/// A program under description.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_graph_t;

/// A validated program.
#[expect(non_camel_case_types, reason = "the name in C")]
pub struct vsla_program_t;

/// What a value is to its program.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ValueTag {
    /// A weight.
    VslaTensorParam = 0,
    /// Given for each run.
    VslaTensorInput,
    /// What a run gives, for `vsla_program_values`.
    VslaTensorOutput,
}

/// Semirings.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ModelC {
    /// Addition and convolution.
    VslaModelA = 0,
    /// Addition and Kronecker product.
    VslaModelB,
}

/// Operations. The comment says which attributes each reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum OpKind {
    /// a + b.
    VslaOpAdd = 0,
    /// a - b.
    VslaOpSub,
    /// a * b, elementwise.
    VslaOpHadamard,
    /// Convolution along the last axis; model A.
    VslaOpConv1d,
    /// Kronecker product; model B.
    VslaOpKronecker,
    /// Softmax along the last axis.
    VslaOpSoftmax,
    /// x, gamma, beta; `value` is epsilon.
    VslaOpLayernorm,
    /// x, gamma; `value` is epsilon.
    VslaOpRmsnorm,
    /// Product over the last two axes.
    VslaOpMatmul,
    /// max(0, x).
    VslaOpRelu,
    /// Gaussian error linear unit; `form` 1 is the tanh approximation.
    VslaOpGelu,
    /// 1 / (1 + exp(-x)).
    VslaOpSigmoid,
    /// Hyperbolic tangent.
    VslaOpTanh,
    /// `value` is the rate.
    VslaOpDropout,
    /// `axis`.
    VslaOpSum,
    /// `axis`.
    VslaOpMean,
    /// Any number of operands of one rank.
    VslaOpStack,
    /// `size` and `stride`; one result for each window.
    VslaOpWindow,
    /// `list` is the new shape.
    VslaOpReshape,
    /// `list` is the order of the axes.
    VslaOpTranspose,
    /// `list` and `list2` are start and limit on each axis.
    VslaOpSlice,
    /// `list` holds indices into the first axis.
    VslaOpGather,
    /// `list` holds indices into a first axis of `size`.
    VslaOpScatter,
    /// x * m, where m is constant.
    VslaOpMask,
    /// exp(x).
    VslaOpExp,
    /// log(x).
    VslaOpLog,
    /// By `value`; or, with a second operand of shape `[1]`, by that.
    VslaOpMulScalar,
    /// x stacked `size` times.
    VslaOpRepeat,
    /// q, k, v of shape [tokens, width]; `size` is the number of heads, `list` the lengths of the packed sequences.
    VslaOpAttention,
}

/// Attributes of operations; those that an operation doesn't read may be anything. A null pointer is all zeros.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vsla_attrs_t {
    /// An axis; negative ones count from the back.
    pub axis: i64,
    /// A number.
    pub value: f64,
    /// A size.
    pub size: u64,
    /// A stride.
    pub stride: u64,
    /// A list.
    pub list: *const u64,
    /// Its length.
    pub list_len: usize,
    /// A second list.
    pub list2: *const u64,
    /// Its length.
    pub list2_len: usize,
    /// A variant.
    pub form: u32,
}

/// The operation that a number and attributes mean.
///
/// # Safety
/// `attrs` is null or valid for a read, and the lists that the operation reads are valid for their lengths.
pub(crate) unsafe fn op(kind: u32, attrs: *const vsla_attrs_t, operands: usize) -> Result<Op> {
    let a = match attrs.is_null() {
        true => None,
        // SAFETY: `attrs` is not null, and valid for a read.
        false => unsafe { slice(attrs, 1, "attrs")?.first() },
    };
    let zero = vsla_attrs_t {
        axis: 0,
        value: 0.0,
        size: 0,
        stride: 0,
        list: std::ptr::null(),
        list_len: 0,
        list2: std::ptr::null(),
        list2_len: 0,
        form: 0,
    };
    let a = a.unwrap_or(&zero);
    // SAFETY: an operation that reads the list requires it to be valid for `list_len` sizes; null is refused.
    let list = || unsafe { sizes(a.list, a.list_len, "attribute list") };
    let size = |n: u64| usize::try_from(n).map_err(|_| Error::InvalidArg(format!("the size {n} is too large")));
    const KINDS: u32 = OpKind::VslaOpAttention as u32 + 1;
    Ok(match kind {
        0 => Op::Add,
        1 => Op::Sub,
        2 => Op::Hadamard,
        3 => Op::Conv1d,
        4 => Op::Kronecker,
        5 => Op::Softmax,
        6 => Op::LayerNorm { eps: a.value },
        7 => Op::RmsNorm { eps: a.value },
        8 => Op::Matmul,
        9 => Op::Relu,
        10 => Op::Gelu(if a.form == 1 { GeluForm::Tanh } else { GeluForm::Erf }),
        11 => Op::Sigmoid,
        12 => Op::Tanh,
        13 => Op::Dropout { rate: a.value },
        14 => Op::Sum { axis: a.axis },
        15 => Op::Mean { axis: a.axis },
        16 => Op::Stack,
        17 => Op::Window { size: size(a.size)?, stride: size(a.stride)? },
        18 => Op::Reshape { shape: list()? },
        19 => Op::Transpose { permutation: list()? },
        20 => Op::Slice {
            start: list()?,
            // SAFETY: as above.
            limit: unsafe { sizes(a.list2, a.list2_len, "second attribute list")? },
        },
        21 => Op::Gather { indices: list()? },
        22 => Op::Scatter { indices: list()?, size: size(a.size)? },
        23 => Op::Mask,
        24 => Op::Exp,
        25 => Op::Log,
        26 => Op::MulScalar { value: (operands < 2).then_some(a.value) },
        27 => Op::Repeat { count: size(a.size)? },
        28 => Op::Attention { heads: size(a.size)?, lengths: list()? },
        n => return Err(Error::InvalidArg(format!("{n} is not an operation; there are {KINDS}"))),
    })
}

/// An empty graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_graph_create(out: *mut *mut vsla_graph_t) -> Code {
    guard(|| {
        check_writable(out)?;
        let graph = Object::Graph(Mutex::new(ProgramDescription::default()));
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(graph)) }
    })
}

/// Declares a parameter or an input. `capacity` may be null; `name` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_graph_value(
    graph: *const vsla_graph_t,
    tag: u32,
    dtype_: u32,
    model_: u32,
    rank: usize,
    shape: *const u64,
    capacity: *const u64,
    name: *const c_char,
    id: *mut u32,
) -> Code {
    guard(|| {
        check_writable(id)?;
        want!(graph, Graph, graph);
        let tag = match tag {
            0 => vsla::ValueTag::Param,
            1 => vsla::ValueTag::Input,
            n => {
                return Err(Error::InvalidArg(format!("invalid tag {n}; declare parameters and inputs, mark outputs")));
            }
        };
        // SAFETY: the header requires `name` to be null or a string that ends with a zero byte, and `shape` to be valid
        // for reads of that many elements; null is refused.
        let (shape, name) = unsafe { (sizes(shape, rank, "the shape")?, text(name)?) };
        let capacity = match capacity.is_null() {
            true => None,
            // SAFETY: as above.
            false => Some(unsafe { sizes(capacity, rank, "the capacity")? }),
        };
        let value = ValueDesc {
            name: name.to_string(),
            dtype: Some(dtype(dtype_)?),
            shape: Some(shape),
            capacity,
            tag,
            model: model(model_)?,
            checkpoint: false,
        };
        let mut d = lock(graph);
        d.values.push(value);
        // SAFETY: the header requires `id` to be valid for a write; null is refused.
        unsafe { write_out(id, d.values.len() as u32 - 1) }
    })
}

/// Adds an operation. Writes the ids of its results, which exist from then on. Shapes are inferred when the program is
/// built.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_graph_node(
    graph: *const vsla_graph_t,
    kind: u32,
    inputs: *const u32,
    ninputs: usize,
    attrs: *const vsla_attrs_t,
    outputs: *mut u32,
    noutputs: usize,
) -> Code {
    guard(|| {
        want!(graph, Graph, graph);
        // SAFETY: the header requires `inputs` to be valid for reads of that many elements, and `outputs` to be valid
        // for writes of that many elements; null is refused.
        let (inputs, outputs) =
            unsafe { (slice(inputs, ninputs, "inputs")?, slice_mut(outputs, noutputs, "outputs")?) };
        // SAFETY: as above.
        let op = unsafe { op(kind, attrs, ninputs)? };
        let mut d = lock(graph);
        let first = d.values.len() as u32;
        let ids: Vec<u32> = (0..noutputs as u32).map(|k| first + k).collect();
        for _ in &ids {
            d.values.push(ValueDesc {
                name: String::new(),
                dtype: None,
                shape: None,
                capacity: None,
                tag: vsla::ValueTag::Temp,
                model: Default::default(),
                checkpoint: false,
            });
        }
        outputs.copy_from_slice(&ids);
        d.nodes.push(NodeDesc { op, inputs: inputs.to_vec(), outputs: ids });
        Ok(())
    })
}

/// Marks a value as an output of the program.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_graph_output(graph: *const vsla_graph_t, id: u32) -> Code {
    guard(|| {
        want!(graph, Graph, graph);
        lock(graph).outputs.push(id);
        Ok(())
    })
}

/// Marks a value to be kept for backward; then values without a mark are computed again.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_graph_checkpoint(graph: *const vsla_graph_t, id: u32) -> Code {
    guard(|| {
        want!(graph, Graph, graph);
        match lock(graph).values.get_mut(id as usize) {
            Some(v) => v.checkpoint = true,
            None => return Err(Error::InvalidArg(format!("there is no value {id}"))),
        }
        Ok(())
    })
}

/// How a convolution is computed.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum ConvPath {
    /// The cheaper way for the lengths.
    VslaConvAuto = 0,
    /// Sums of products.
    VslaConvDirect,
    /// Through a Fourier transform.
    VslaConvFft,
}

/// Sets how the programs of a graph compute: whether products of matrices and attention of narrower types accumulate in 32
/// bits (`narrow_products` isn't 0) instead of 64, which is several times as fast, and by which `vsla_convpath_t`
/// convolutions go.
#[unsafe(no_mangle)]
pub extern "C" fn vsla_graph_numerics(graph: *const vsla_graph_t, narrow_products: u32, conv: u32) -> Code {
    guard(|| {
        want!(graph, Graph, graph);
        let conv = match conv {
            0 => None,
            1 => Some(ConvAlgorithm::Direct),
            2 => Some(ConvAlgorithm::Fft),
            n => return Err(Error::InvalidArg(format!("{n} is not a convolution algorithm"))),
        };
        lock(graph).numerics = Numerics { reduced_precision_products: narrow_products != 0, conv };
        Ok(())
    })
}

/// Validates a graph and freezes it as a program. The graph stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_build(graph: *const vsla_graph_t, out: *mut *mut vsla_program_t) -> Code {
    guard(|| {
        check_writable(out)?;
        want!(graph, Graph, graph);
        let program = Program::build(&lock(graph))?;
        // SAFETY: the header requires `out` to be valid for a write; null is refused.
        unsafe { write_out(out, insert(Object::Program(Arc::new(program)))) }
    })
}

/// Writes how many parameters (`VSLA_TENSOR_PARAM`), inputs (`VSLA_TENSOR_INPUT`) or outputs (`VSLA_TENSOR_OUTPUT`) a
/// program has and, where there is room for them, their ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_values(
    program: *const vsla_program_t,
    tag: u32,
    ids: *mut u32,
    room: usize,
    count: *mut usize,
) -> Code {
    guard(|| {
        want!(program, Program, program);
        let list = match tag {
            0 => program.params(),
            1 => program.inputs(),
            2 => program.outputs(),
            n => return Err(Error::InvalidArg(format!("invalid tag {n}; list parameters, inputs or outputs"))),
        };
        // SAFETY: the header requires `count` to be valid for a write; null is refused.
        unsafe { write_out(count, list.len())? };
        if room >= list.len() {
            // SAFETY: as above.
            let to = unsafe { slice_mut(ids, list.len(), "ids")? };
            to.iter_mut().zip(list).for_each(|(to, v)| *to = v.0);
        }
        Ok(())
    })
}

/// Writes the name that a value was declared with, as `vsla_plan_report` writes its text; it may be empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_value_name(
    program: *const vsla_program_t,
    id: u32,
    name: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Code {
    guard(|| {
        want!(program, Program, program);
        // SAFETY: the header requires the text to be valid for writes of `room` bytes and `needed` for a write; null is
        // refused.
        unsafe { crate::vsla::plan::write_text(&program.value(ValueId(id))?.name, name, room, needed) }
    })
}

/// Writes the `vsla_dtype_t` and the `vsla_model_t` of a value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_value_kind(
    program: *const vsla_program_t,
    id: u32,
    dtype_: *mut u32,
    model_: *mut u32,
) -> Code {
    guard(|| {
        check_writable(model_)?;
        want!(program, Program, program);
        // SAFETY: the header requires `dtype_` and `model_` to be valid for writes; null and misaligned pointers are
        // refused.
        unsafe { crate::vsla::tensor::write_kind(&program.value(ValueId(id))?.signature, dtype_, model_) }
    })
}

/// Writes the rank of a value and, where there is room for it, its shape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vsla_program_shape(
    program: *const vsla_program_t,
    id: u32,
    rank: *mut usize,
    shape: *mut u64,
    room: usize,
) -> Code {
    guard(|| {
        want!(program, Program, program);
        let found = &program.value(ValueId(id))?.signature.shape;
        // SAFETY: the header requires `rank` to be valid for a write; null is refused.
        unsafe { write_out(rank, found.len())? };
        if room >= found.len() {
            // SAFETY: as above.
            let to = unsafe { slice_mut(shape, found.len(), "shape")? };
            to.iter_mut().zip(found).for_each(|(t, d)| *t = *d as u64);
        }
        Ok(())
    })
}
