//! What each op of ONNX means, in ops of ours.

mod attention;
mod cast;
mod control;
mod conv;
mod detect;
mod elementwise;
mod index;
mod loss;
mod moves;
mod norm;
mod products;
mod quant;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod sample;
mod signal;

use crate::error::{Error, Result};
use crate::item::{Item, Tensor};
use crate::node::Cx;
use elementwise::SoftmaxKind;
use ir::ops::ReduceKind;
use ir::{Binary, Build, Compare, Unary, Value};
use reduce::Kind;

/// What a node gives.
pub(crate) type Outs = Vec<Item>;

fn one(v: Value) -> Result<Outs> {
    Ok(vec![v.into()])
}

/// The newest version of ONNX's own ops that is known; later ones may mean something else.
const NEWEST: i64 = 28;

/// Ops that sum, or sum powers. What is between may be larger than the largest f16, so narrow floats are computed in f32 and
/// rounded once.
const SUMMING: [&str; 18] = [
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

/// Writes a node into the graph.
pub(crate) fn convert(cx: &mut Cx) -> Result<Outs> {
    if !SUMMING.contains(&cx.op()) {
        return convert_as_it_is(cx);
    }
    let mut narrow = None;
    for i in 0..cx.args.len() {
        let Some(Item::Tensor(Tensor { v, carried: None })) = cx.args[i] else { continue };
        let dtype = cx.dtype(v);
        if dtype.accumulator() != dtype {
            narrow = narrow.or(Some(dtype));
            cx.args[i] = Some(cx.cast(v, dtype.accumulator())?.into());
        }
    }
    let mut outs = convert_as_it_is(cx)?;
    let Some(dtype) = narrow else { return Ok(outs) };
    for out in &mut outs {
        if let Item::Tensor(Tensor { v, carried: None }) = *out
            && cx.dtype(v) == dtype.accumulator()
        {
            *out = cx.cast(v, dtype)?.into();
        }
    }
    Ok(outs)
}

fn convert_as_it_is(cx: &mut Cx) -> Result<Outs> {
    if !cx.domain.is_empty() {
        return Err(Error::here(format!(
            "the op belongs to the domain `{}`, which is not supported; export the model with ONNX's own ops, or with the op as a function",
            cx.domain
        )));
    }
    if cx.version > NEWEST {
        return Err(Error::here(format!(
            "opset {} is newer than {NEWEST}; export the model with an older one",
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
        "Where" => elementwise::choose(cx),
        "Clip" => elementwise::clip(cx),

        "Celu" => elementwise::celu(cx),
        "Elu" => elementwise::elu(cx),
        "Gelu" => elementwise::gelu(cx),
        "HardSigmoid" => elementwise::hard_sigmoid(cx),
        "HardSwish" => elementwise::hard_swish(cx),
        "Hardmax" => elementwise::softmax(cx, SoftmaxKind::Hard),
        "LeakyRelu" => elementwise::leaky_relu(cx),
        "LogSoftmax" => elementwise::softmax(cx, SoftmaxKind::Log),
        "Mish" => elementwise::mish(cx),
        "PRelu" => elementwise::prelu(cx),
        "Relu" => elementwise::relu(cx),
        "Selu" => elementwise::selu(cx),
        "Shrink" => elementwise::shrink(cx),
        "Softmax" => elementwise::softmax(cx, SoftmaxKind::Plain),
        "Softplus" => elementwise::softplus(cx),
        "Softsign" => elementwise::softsign(cx),
        "SwiGLU" => swiglu(cx),
        "Swish" => elementwise::swish(cx),
        "ThresholdedRelu" => elementwise::thresholded_relu(cx),

        "BitCast" => cast::bit_cast(cx),
        "Cast" => cast::cast(cx),
        "CastLike" => cast::cast_like(cx),

        "CenterCropPad" => moves::center_crop_pad(cx),
        "Concat" => moves::concat(cx),
        "Constant" => moves::constant(cx),
        "ConstantOfShape" => moves::constant_of_shape(cx),
        "DepthToSpace" => moves::depth_to_space(cx),
        "Expand" => moves::expand(cx),
        "EyeLike" => moves::eye_like(cx),
        "Flatten" => moves::flatten(cx),
        "Identity" => moves::identity(cx),
        "Pad" => moves::pad(cx),
        "Range" => moves::range(cx),
        "Reshape" => moves::reshape(cx),
        "ReverseSequence" => moves::reverse_sequence(cx),
        "Shape" => moves::shape(cx),
        "Size" => moves::size(cx),
        "Slice" => moves::slice(cx),
        "SpaceToDepth" => moves::space_to_depth(cx),
        "Split" => moves::split(cx),
        "SplitToSequence" => moves::split_to_sequence(cx),
        "Squeeze" => moves::squeeze(cx),
        "Tile" => moves::tile(cx),
        "Transpose" => moves::transpose(cx),
        "Trilu" => moves::trilu(cx),
        "Unsqueeze" => moves::unsqueeze(cx),

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
        "ReduceL1" => reduce::reduce(cx, Kind::L1),
        "ReduceL2" => reduce::reduce(cx, Kind::L2),
        "ReduceLogSum" => reduce::reduce(cx, Kind::LogSum),
        "ReduceLogSumExp" => reduce::reduce(cx, Kind::LogSumExp),
        "ReduceMax" => reduce::reduce(cx, Kind::Max),
        "ReduceMean" => reduce::reduce(cx, Kind::Mean),
        "ReduceMin" => reduce::reduce(cx, Kind::Min),
        "ReduceProd" => reduce::reduce(cx, Kind::Prod),
        "ReduceSum" => reduce::reduce(cx, Kind::Sum),
        "ReduceSumSquare" => reduce::reduce(cx, Kind::SumSquare),
        "TopK" => reduce::top_k(cx),

        "Det" => products::det(cx),
        "Einsum" => products::einsum(cx),
        "Gemm" => products::gemm(cx),
        "MatMul" => products::matmul(cx),

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

        "AffineGrid" => sample::affine_grid(cx),
        "DeformConv" => sample::deform_conv(cx),
        "GridSample" => sample::grid_sample(cx),
        "Resize" => resize::resize(cx),
        "RoiAlign" => sample::roi_align(cx),
        "Upsample" => resize::upsample(cx),

        "Attention" => attention::convert(cx),
        "CausalConvWithState" => recurrent::causal_conv(cx),
        "GRU" => recurrent::recurrent(cx, recurrent::Cell::Gru),
        "LSTM" => recurrent::recurrent(cx, recurrent::Cell::Lstm),
        "LinearAttention" => recurrent::linear_attention(cx),
        "RNN" => recurrent::recurrent(cx, recurrent::Cell::Rnn),
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
        "If" => control::branch(cx),
        "Loop" => control::repeat(cx),
        "Optional" => control::optional(cx),
        "OptionalGetElement" => control::optional_get(cx),
        "OptionalHasElement" => control::optional_has(cx),
        "Scan" => control::scan(cx),
        "SequenceAt" => control::sequence_at(cx),
        "SequenceConstruct" => control::sequence_construct(cx),
        "SequenceEmpty" => Ok(vec![Item::Sequence(Vec::new())]),
        "SequenceErase" => control::sequence_erase(cx),
        "SequenceInsert" => control::sequence_insert(cx),
        "SequenceLength" => control::sequence_length(cx),
        "SequenceMap" => control::sequence_map(cx),

        "ImageDecoder" => Err(Error::here("image decoding is not supported; give the model decoded pixels")),
        "RegexFullMatch" | "StringConcat" | "StringNormalizer" | "StringSplit" | "TfIdfVectorizer" => {
            Err(Error::here("text processing is not supported; do this part outside the model"))
        }
        other => Err(Error::here(format!(
            "the op {other} is not supported; export the model with another opset, or with the op as a function"
        ))),
    }
}

/// `swish(a) · b`.
fn swiglu(cx: &mut Cx) -> Result<Outs> {
    let (a, b, alpha) = (cx.x(0)?, cx.x(1)?, cx.float("alpha", 1.0));
    let s = elementwise::swish_of(cx, a, alpha)?;
    one(cx.mul(s, b)?)
}
