//! Import rules: converts each ONNX op to ops of ours.

mod attention;
mod cast;
mod control;
mod conv;
mod detect;
mod elementwise;
mod grid_sample;
mod index;
mod loss;
mod matmul;
mod norm;
mod quant;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod shape;
mod signal;

use crate::error::{Error, Result};
use crate::item::{ImportedTensor, ImportedValue};
use crate::node::NodeContext;
use elementwise::SoftmaxKind;
use ir::ops::ReduceKind;
use ir::{Binary, Compare, GraphBuilder, Unary, Value};
use reduce::ReduceOp;

/// The outputs of a node.
pub(crate) type NodeOutputs = Vec<ImportedValue>;

fn one(v: Value) -> Result<NodeOutputs> {
    Ok(vec![v.into()])
}

/// The newest supported version of ONNX's own ops; later ones may have other semantics.
const MAX_OPSET: i64 = 28;

/// Ops that sum, or sum powers. Intermediate values may exceed the f16 range, so narrow floats are computed in f32 and rounded once.
const ACCUMULATING_OPS: [&str; 18] = [
    "AveragePool",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LpNormalization",
    "LpPool",
    "Mean",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMean",
    "ReduceProd",
    "ReduceSumSquare",
    "SoftmaxCrossEntropyLoss",
];

/// Imports a node into the graph.
pub(crate) fn convert(cx: &mut NodeContext) -> Result<NodeOutputs> {
    if !ACCUMULATING_OPS.contains(&cx.op()) {
        return convert_as_it_is(cx);
    }
    let mut narrow = None;
    for i in 0..cx.args.len() {
        let Some(ImportedValue::Tensor(ImportedTensor { v, elem: None })) = cx.args[i] else { continue };
        let dtype = cx.dtype(v);
        if dtype.accumulator() != dtype {
            narrow = narrow.or(Some(dtype));
            cx.args[i] = Some(cx.cast(v, dtype.accumulator())?.into());
        }
    }
    let mut outs = convert_as_it_is(cx)?;
    let Some(dtype) = narrow else { return Ok(outs) };
    for out in &mut outs {
        if let ImportedValue::Tensor(ImportedTensor { v, elem: None }) = *out
            && cx.dtype(v) == dtype.accumulator()
        {
            *out = cx.cast(v, dtype)?.into();
        }
    }
    Ok(outs)
}

fn convert_as_it_is(cx: &mut NodeContext) -> Result<NodeOutputs> {
    if !cx.domain.is_empty() {
        return Err(Error::node_error(format!(
            "the op belongs to the domain `{}`, which is not supported; export the model with ONNX's own ops, or with the op as a function",
            cx.domain
        )));
    }
    if cx.version > MAX_OPSET {
        return Err(Error::node_error(format!(
            "opset {} is newer than {MAX_OPSET}; export the model with an older one",
            cx.version
        )));
    }
    match cx.op() {
        "Abs" => elementwise::unary(cx, Unary::Abs),
        "Acos" => elementwise::unary(cx, Unary::Acos),
        "Acosh" => elementwise::unary(cx, Unary::Acosh),
        "Asin" => elementwise::unary(cx, Unary::Asin),
        "Asinh" => elementwise::unary(cx, Unary::Asinh),
        "Atan" => elementwise::unary(cx, Unary::Atan),
        "Atanh" => elementwise::unary(cx, Unary::Atanh),
        "BitwiseNot" | "Not" => elementwise::unary(cx, Unary::Not),
        "Ceil" => elementwise::unary(cx, Unary::Ceil),
        "Cos" => elementwise::unary(cx, Unary::Cos),
        "Cosh" => elementwise::unary(cx, Unary::Cosh),
        "Erf" => elementwise::unary(cx, Unary::Erf),
        "Exp" => elementwise::unary(cx, Unary::Exp),
        "Floor" => elementwise::unary(cx, Unary::Floor),
        "Log" => elementwise::unary(cx, Unary::Log),
        "Neg" => elementwise::unary(cx, Unary::Neg),
        "Reciprocal" => elementwise::unary(cx, Unary::Reciprocal),
        "Round" => elementwise::unary(cx, Unary::Round),
        "Sigmoid" => elementwise::unary(cx, Unary::Logistic),
        "Sign" => elementwise::unary(cx, Unary::Sign),
        "Sin" => elementwise::unary(cx, Unary::Sin),
        "Sinh" => elementwise::unary(cx, Unary::Sinh),
        "Sqrt" => elementwise::unary(cx, Unary::Sqrt),
        "Tan" => elementwise::unary(cx, Unary::Tan),
        "Tanh" => elementwise::unary(cx, Unary::Tanh),

        "Add" => elementwise::binary(cx, Binary::Add),
        "And" | "BitwiseAnd" => elementwise::binary(cx, Binary::And),
        "BitwiseOr" | "Or" => elementwise::binary(cx, Binary::Or),
        "BitwiseXor" | "Xor" => elementwise::binary(cx, Binary::Xor),
        "Div" => elementwise::binary(cx, Binary::Div),
        "Mul" => elementwise::binary(cx, Binary::Mul),
        "Sub" => elementwise::binary(cx, Binary::Sub),
        "BitShift" => elementwise::bit_shift(cx),
        "Mod" => elementwise::modulo(cx),
        "Pow" => elementwise::pow(cx),
        "Max" => elementwise::variadic(cx, Binary::Max, false),
        "Min" => elementwise::variadic(cx, Binary::Min, false),
        "Sum" => elementwise::variadic(cx, Binary::Add, false),
        "Mean" => elementwise::variadic(cx, Binary::Add, true),
        "Equal" => elementwise::compare(cx, Compare::Eq),
        "Greater" => elementwise::compare(cx, Compare::Gt),
        "GreaterOrEqual" => elementwise::compare(cx, Compare::Ge),
        "Less" => elementwise::compare(cx, Compare::Lt),
        "LessOrEqual" => elementwise::compare(cx, Compare::Le),
        "IsInf" => elementwise::is_inf(cx),
        "IsNaN" => elementwise::is_nan(cx),
        "Where" => elementwise::select(cx),
        "Clip" => elementwise::clip(cx),

        "Celu" => elementwise::celu(cx),
        "Elu" => elementwise::elu(cx),
        "Gelu" => elementwise::gelu(cx),
        "HardSigmoid" => elementwise::hard_sigmoid(cx),
        "HardSwish" => elementwise::hard_swish(cx),
        "Hardmax" => elementwise::softmax(cx, SoftmaxKind::Hardmax),
        "LeakyRelu" => elementwise::leaky_relu(cx),
        "LogSoftmax" => elementwise::softmax(cx, SoftmaxKind::LogSoftmax),
        "Mish" => elementwise::mish(cx),
        "PRelu" => elementwise::prelu(cx),
        "Relu" => elementwise::relu(cx),
        "Selu" => elementwise::selu(cx),
        "Shrink" => elementwise::shrink(cx),
        "Softmax" => elementwise::softmax(cx, SoftmaxKind::Softmax),
        "Softplus" => elementwise::softplus(cx),
        "Softsign" => elementwise::softsign(cx),
        "SwiGLU" => swiglu(cx),
        "Swish" => elementwise::swish(cx),
        "ThresholdedRelu" => elementwise::thresholded_relu(cx),

        "BitCast" => cast::bit_cast(cx),
        "Cast" => cast::cast(cx),
        "CastLike" => cast::cast_like(cx),

        "CenterCropPad" => shape::center_crop_pad(cx),
        "Concat" => shape::concat(cx),
        "Constant" => shape::constant(cx),
        "ConstantOfShape" => shape::constant_of_shape(cx),
        "DepthToSpace" => shape::depth_to_space(cx),
        "Expand" => shape::expand(cx),
        "EyeLike" => shape::eye_like(cx),
        "Flatten" => shape::flatten(cx),
        "Identity" => shape::identity(cx),
        "Pad" => shape::pad(cx),
        "Range" => shape::range(cx),
        "Reshape" => shape::reshape(cx),
        "ReverseSequence" => shape::reverse_sequence(cx),
        "Shape" => shape::shape(cx),
        "Size" => shape::size(cx),
        "Slice" => shape::slice(cx),
        "SpaceToDepth" => shape::space_to_depth(cx),
        "Split" => shape::split(cx),
        "SplitToSequence" => shape::split_to_sequence(cx),
        "Squeeze" => shape::squeeze(cx),
        "Tile" => shape::tile(cx),
        "Transpose" => shape::transpose(cx),
        "Trilu" => shape::trilu(cx),
        "Unsqueeze" => shape::unsqueeze(cx),

        "Compress" => index::compress(cx),
        "Gather" => index::gather(cx),
        "GatherElements" => index::gather_elements(cx),
        "GatherND" => index::gather_nd(cx),
        "NonZero" => index::non_zero(cx),
        "OneHot" => index::one_hot(cx),
        "Scatter" | "ScatterElements" => index::scatter_elements(cx),
        "ScatterND" => index::scatter_nd(cx),
        "TensorScatter" => index::tensor_scatter(cx),
        "Unique" => index::unique(cx),
        "NonMaxSuppression" => detect::non_max_suppression(cx),

        "ArgMax" => reduce::arg_reduce(cx, true),
        "ArgMin" => reduce::arg_reduce(cx, false),
        "CumProd" => reduce::cumulative(cx, ReduceKind::Prod),
        "CumSum" => reduce::cumulative(cx, ReduceKind::Sum),
        "ReduceL1" => reduce::reduce(cx, ReduceOp::L1),
        "ReduceL2" => reduce::reduce(cx, ReduceOp::L2),
        "ReduceLogSum" => reduce::reduce(cx, ReduceOp::LogSum),
        "ReduceLogSumExp" => reduce::reduce(cx, ReduceOp::LogSumExp),
        "ReduceMax" => reduce::reduce(cx, ReduceOp::Max),
        "ReduceMean" => reduce::reduce(cx, ReduceOp::Mean),
        "ReduceMin" => reduce::reduce(cx, ReduceOp::Min),
        "ReduceProd" => reduce::reduce(cx, ReduceOp::Prod),
        "ReduceSum" => reduce::reduce(cx, ReduceOp::Sum),
        "ReduceSumSquare" => reduce::reduce(cx, ReduceOp::SumSquare),
        "TopK" => reduce::top_k(cx),

        "Det" => matmul::det(cx),
        "Einsum" => matmul::einsum(cx),
        "Gemm" => matmul::gemm(cx),
        "MatMul" => matmul::matmul(cx),

        "AveragePool" => conv::average_pool(cx),
        "Col2Im" => conv::col2im(cx),
        "Conv" => conv::conv(cx),
        "ConvInteger" => conv::conv_integer(cx),
        "ConvTranspose" => conv::conv_transpose(cx),
        "GlobalAveragePool" => conv::global_pool(cx, conv::GlobalPool::Average),
        "GlobalLpPool" => conv::global_pool(cx, conv::GlobalPool::Lp),
        "GlobalMaxPool" => conv::global_pool(cx, conv::GlobalPool::Max),
        "LRN" => conv::lrn(cx),
        "LpPool" => conv::lp_pool(cx),
        "MaxPool" => conv::max_pool(cx),
        "MaxUnpool" => conv::max_unpool(cx),

        "BatchNormalization" => norm::batch(cx),
        "GroupNormalization" => norm::group(cx),
        "InstanceNormalization" => norm::instance(cx),
        "LayerNormalization" => norm::layer(cx),
        "LpNormalization" => norm::lp(cx),
        "MeanVarianceNormalization" => norm::mean_variance(cx),
        "RMSNormalization" => norm::rms(cx),

        "DequantizeLinear" => quant::dequantize(cx),
        "DynamicQuantizeLinear" => quant::dynamic_quantize(cx),
        "MatMulInteger" => quant::matmul_integer(cx),
        "QLinearConv" => quant::qlinear_conv(cx),
        "QLinearMatMul" => quant::qlinear_matmul(cx),
        "QuantizeLinear" => quant::quantize(cx),

        "AffineGrid" => grid_sample::affine_grid(cx),
        "DeformConv" => grid_sample::deform_conv(cx),
        "GridSample" => grid_sample::grid_sample(cx),
        "Resize" => resize::resize(cx),
        "RoiAlign" => grid_sample::roi_align(cx),
        "Upsample" => resize::upsample(cx),

        "Attention" => attention::convert(cx),
        "CausalConvWithState" => recurrent::causal_conv(cx),
        "GRU" => recurrent::recurrent(cx, recurrent::RnnCell::Gru),
        "LSTM" => recurrent::recurrent(cx, recurrent::RnnCell::Lstm),
        "LinearAttention" => recurrent::linear_attention(cx),
        "RNN" => recurrent::recurrent(cx, recurrent::RnnCell::Rnn),
        "RotaryEmbedding" => recurrent::rotary(cx),

        "NegativeLogLikelihoodLoss" => loss::nll(cx),
        "SoftmaxCrossEntropyLoss" => loss::softmax_cross_entropy(cx),

        "BlackmanWindow" => signal::window(cx, &[0.42, -0.5, 0.08]),
        "DFT" => signal::dft(cx),
        "HammingWindow" => signal::window(cx, &[25.0 / 46.0, -21.0 / 46.0]),
        "HannWindow" => signal::window(cx, &[0.5, -0.5]),
        "MelWeightMatrix" => signal::mel_weights(cx),
        "STFT" => signal::stft(cx),

        "Bernoulli" => random::bernoulli(cx),
        "Dropout" => random::dropout(cx),
        "Multinomial" => random::multinomial(cx),
        "RandomNormal" => random::random_normal(cx, false),
        "RandomNormalLike" => random::random_normal(cx, true),
        "RandomUniform" => random::random_uniform(cx, false),
        "RandomUniformLike" => random::random_uniform(cx, true),

        "ConcatFromSequence" => control::concat_from_sequence(cx),
        "If" => control::if_op(cx),
        "Loop" => control::loop_op(cx),
        "Optional" => control::optional(cx),
        "OptionalGetElement" => control::optional_get(cx),
        "OptionalHasElement" => control::optional_has(cx),
        "Scan" => control::scan(cx),
        "SequenceAt" => control::sequence_at(cx),
        "SequenceConstruct" => control::sequence_construct(cx),
        "SequenceEmpty" => Ok(vec![ImportedValue::Sequence(Vec::new())]),
        "SequenceErase" => control::sequence_erase(cx),
        "SequenceInsert" => control::sequence_insert(cx),
        "SequenceLength" => control::sequence_length(cx),
        "SequenceMap" => control::sequence_map(cx),

        "ImageDecoder" => Err(Error::node_error("image decoding is not supported; give the model decoded pixels")),
        "RegexFullMatch" | "StringConcat" | "StringNormalizer" | "StringSplit" | "TfIdfVectorizer" => {
            Err(Error::node_error("text processing is not supported; do this part outside the model"))
        }
        other => Err(Error::node_error(format!(
            "the op {other} is not supported; export the model with another opset, or with the op as a function"
        ))),
    }
}

/// `swish(a) · b`.
fn swiglu(cx: &mut NodeContext) -> Result<NodeOutputs> {
    let (a, b, alpha) = (cx.x(0)?, cx.x(1)?, cx.float("alpha", 1.0));
    let s = elementwise::swish_of(cx, a, alpha)?;
    one(cx.mul(s, b)?)
}
