//! Samples of the library's composites.

use super::{SampleTable, parse_type};
use crate::FillKind;
use ir::attr::Attr;
use ir::composites;
use ir::composites::quantized::{QuantFormat, QuantScheme};
use ir::{DType, GraphBuilder, Scalar, Type};

/// Parses parameters in a short form: `eps=1e-6 causal form=tanh window=2`.
fn params(text: &str) -> Vec<(String, Attr)> {
    text.split_whitespace()
        .map(|p| match p.split_once('=') {
            None => (p.to_string(), Attr::Bool(true)),
            Some((k, v)) => {
                let float = || v.parse().ok().map(|x| Attr::Scalar(Scalar::from_f64(DType::F64, x)));
                let int = || v.parse().ok().map(Attr::Int);
                let value = int().or_else(float).unwrap_or_else(|| Attr::Word(v.to_string()));
                (k.to_string(), value)
            }
        })
        .collect()
}

fn row(t: &mut SampleTable, name: &str, text: &str, types: &[&str], fills: &[FillKind], smooth: bool) {
    let family = name.split('/').next().unwrap_or(name);
    let operands: Vec<Type> = types.iter().map(|t| parse_type(t)).collect();
    let op = composites::build(family, &params(text), &operands).unwrap_or_else(|e| panic!("row {name}: {e}"));
    let public = op.num_public_outputs;
    t.graph(name, types, fills, smooth, |b, x| Ok(b.emit(op.into(), x)?[..public].to_vec()));
}

pub(super) fn rows(t: &mut SampleTable) {
    let s = &[FillKind::Smooth];
    for (k, x) in ["f64[2,4]", "f64[2]", "f64[2,1,2]", "f64[0,2]"].into_iter().enumerate() {
        for name in ["relu", "relu2", "silu", "softmax", "log_softmax", "logsumexp"] {
            row(t, &format!("{name}/{k}"), "", &[x], s, true);
        }
        row(t, &format!("rmsnorm/plain{k}"), "eps=0.001", &[x], s, true);
        row(t, &format!("layernorm/plain{k}"), "eps=0.001", &[x], s, true);
        for form in ["erf", "tanh"] {
            row(t, &format!("gelu/{form}{k}"), &format!("form={form}"), &[x], s, true);
            row(t, &format!("geglu/{form}{k}"), &format!("form={form}"), &[x, x], s, true);
            row(t, &format!("geglu/fused_{form}{k}"), &format!("form={form}"), &[x], s, true);
        }
        row(t, &format!("swiglu/{k}"), "", &[x, x], s, true);
        row(t, &format!("swiglu/fused{k}"), "", &[x], s, true);
        let ty = parse_type(x);
        let w = ty.with_shape(&ty.shape[ty.rank() - 1..]).to_string();
        row(t, &format!("rmsnorm/{k}"), "eps=0.001", &[x, &w], s, true);
        row(t, &format!("layernorm/weight{k}"), "eps=0.001", &[x, &w], s, true);
        row(t, &format!("layernorm/bias{k}"), "eps=0.001", &[x, &w, &w], s, true);
        row(t, &format!("fused_residual_rmsnorm/{k}"), "eps=0.001", &[x, x, &w], s, true);
        row(t, &format!("qk_norm/{k}"), "eps=0.001", &[x, x, &w, &w], s, true);
        let (bits, mask) = (ty.with_dtype(DType::U32).to_string(), ty.with_dtype(DType::Bool).to_string());
        row(t, &format!("dropout/bits{k}"), "rate=0.25", &[x, &bits], &[FillKind::Smooth, FillKind::Special], true);
        row(t, &format!("dropout/mask{k}"), "rate=0.5", &[x, &mask], s, true);
    }
    for (name, text) in
        [("relu", ""), ("silu", ""), ("gelu", "form=erf"), ("softmax", ""), ("log_softmax", ""), ("logsumexp", "")]
    {
        for d in ["f32", "f16", "bf16"] {
            row(t, &format!("{name}/{d}"), text, &[&format!("{d}[2,5]")], &[FillKind::Special], false);
        }
    }
    for d in ["f32", "f16", "bf16"] {
        let (x, w) = (format!("{d}[2,4]"), format!("{d}[4]"));
        row(t, &format!("rmsnorm/{d}"), "eps=1e-6", &[&x, &w], s, false);
        row(t, &format!("layernorm/{d}"), "eps=1e-6", &[&x, &w, &w], s, false);
        row(t, &format!("fused_residual_rmsnorm/{d}"), "eps=1e-6", &[&x, &x, &w], s, false);
    }
    rope(t);
    attention(t);
    lookups(t);
    quantized(t);
}

/// Quantized storage: every format, with rows of one and of several groups, no rows, and leading axes.
fn quantized(t: &mut SampleTable) {
    for format in QuantFormat::ALL {
        let group = format.fixed_group().unwrap_or(4);
        let packing = QuantScheme::new(format, Some(group)).unwrap_or_else(|e| panic!("{e}"));
        let text = format!("format={format} group={group}");
        for (k, shape) in [vec![2, 2 * group], vec![2, 1, group], vec![0, group], vec![1, 0]].iter().enumerate() {
            let parts = packing.part_types(shape, DType::F32).unwrap_or_else(|e| panic!("{e}"));
            let parts: Vec<String> = parts.iter().map(Type::to_string).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            row(t, &format!("dequantize/{format}_{k}"), &text, &parts, &[FillKind::Special], false);
            let x = Type::new([DType::F32, DType::BF16, DType::F16, DType::F64][k % 4], shape).to_string();
            let mut operands = vec![x.as_str()];
            if format == QuantFormat::Nvfp4 {
                operands.push("f32[]");
            }
            if format.has_quantizer() {
                row(t, &format!("quantize_blocks/{format}_{k}"), &text, &operands, &[FillKind::Smooth], false);
                row(t, &format!("fake_quantize/{format}_{k}"), &text, &operands, &[FillKind::Smooth], false);
            }
        }
    }
    // Linear in the scales.
    let parts = ["i8[2,6]", "f64[2,2]"];
    row(t, "dequantize/slope", "format=int8 group=3 dtype=f64", &parts, &[FillKind::Special, FillKind::Smooth], false);
}

fn rope(t: &mut SampleTable) {
    let s = &[FillKind::Smooth];
    for pairs in ["halves", "interleaved"] {
        let p = format!("pairs={pairs}");
        row(t, &format!("rope/{pairs}"), &p, &["f64[2,3,4]", "f64[3,2]", "f64[3,2]"], s, true);
        row(t, &format!("rope/{pairs}_partial"), &p, &["f64[2,3,4]", "f64[3,1]", "f64[3,1]"], s, true);
        row(t, &format!("rope/{pairs}_positions"), &p, &["f64[2,3,4]", "f64[2,3,2]", "f64[2,3,2]"], s, true);
        let p = format!("pairs={pairs} heads_inside");
        row(t, &format!("rope/{pairs}_heads"), &p, &["f64[2,3,2,4]", "f64[3,2]", "f64[3,2]"], s, true);
        row(t, &format!("rope/{pairs}_bf16"), &p, &["bf16[3,2,4]", "f32[3,2]", "f32[3,2]"], s, false);
    }
}

fn attention(t: &mut SampleTable) {
    let s = &[FillKind::Smooth];
    let qkv = ["f64[2,3,2]", "f64[2,4,2]", "f64[2,4,3]"];
    for (k, text) in ["", "causal", "window=2", "causal window=2 scale=0.7", "softcap=1.5", "causal softcap=2.5"]
        .into_iter()
        .enumerate()
    {
        row(t, &format!("attention/{k}"), text, &qkv, s, true);
    }
    row(t, "attention/grouped", "causal", &["f64[4,2,2]", "f64[2,3,2]", "f64[2,3,2]"], s, true);
    row(t, "attention/batched", "causal", &["f64[2,2,2,2]", "f64[2,1,3,2]", "f64[2,1,3,2]"], s, true);
    let with = |extra: &[&'static str]| -> Vec<&'static str> { qkv.iter().chain(extra).copied().collect() };
    let index = |n| [FillKind::Smooth, FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(n)];
    row(t, "attention/q_offset", "causal q_offset", &with(&["i32[]"]), &index(4), true);
    row(t, "attention/lengths", "lengths", &with(&["i32[]"]), &index(5), true);
    row(t, "attention/segments", "segments", &with(&["i32[3]", "i32[4]"]), &index(2), true);
    row(t, "attention/slopes", "slopes", &with(&["f64[2]"]), s, true);
    row(t, "attention/mask", "mask=bool", &with(&["bool[1,3,4]"]), s, true);
    row(t, "attention/bias", "mask=add", &with(&["f64[2,1,4]"]), s, true);
    let b = ["f64[2,2,2,2]", "f64[2,2,3,2]", "f64[2,2,3,2]"];
    let all: Vec<&str> = b.into_iter().chain(["i32[2]", "f64[2]", "f64[2,2,2,3]"]).collect();
    row(
        t,
        "attention/all",
        "causal lengths slopes mask=add",
        &all,
        &[FillKind::Smooth, FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(4), FillKind::Smooth],
        true,
    );
    row(
        t,
        "attention/none_visible",
        "mask=bool",
        &with(&["bool[2,3,4]"]),
        &[FillKind::Smooth, FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(1)],
        true,
    );
    row(t, "attention/bf16", "causal", &["bf16[2,3,2]", "bf16[2,4,2]", "bf16[2,4,3]"], s, false);
    let back: Vec<&str> = qkv.into_iter().chain(["f64[2,3,3]", "f64[2,3]", "f64[2,3,3]", "f64[2,3]"]).collect();
    row(t, "attention_backward/0", "causal scale=0.7", &back, s, true);
    row(t, "attention_backward/softcap", "softcap=1.5 scale=0.7", &back, s, true);
}

/// Lookups, losses and convolution.
fn lookups(t: &mut SampleTable) {
    let fills = &[FillKind::Smooth, FillKind::IndexBelow(3)];
    for (k, ids) in ["i32[2,2]", "i64[]", "u8[4]", "i32[0]"].into_iter().enumerate() {
        row(t, &format!("embedding/{k}"), "", &["f64[3,2]", ids], fills, true);
        // The padding row has no gradient, so finite differences do not apply.
        row(t, &format!("embedding/padding{k}"), "padding_idx=1", &["f64[3,2]", ids], fills, false);
    }
    for (k, (x, y)) in [("f64[2,3]", "i32[2]"), ("f64[3]", "i64[]"), ("f64[2,2,3]", "u8[2,2]"), ("f64[0,3]", "i32[0]")]
        .into_iter()
        .enumerate()
    {
        for (word, text) in [
            ("plain", ""),
            ("smoothed", "label_smoothing=0.1"),
            ("z", "z_loss=0.01"),
            ("ignore", "ignore_index=1"),
            ("all", "label_smoothing=0.1 z_loss=0.01 ignore_index=0"),
        ] {
            row(t, &format!("cross_entropy/{word}{k}"), text, &[x, y], fills, true);
        }
    }
    for (k, (x, y)) in [
        ("f64[3]", "f64[3]"),
        ("f64[2,3]", "f64[2,2]"),
        ("f64[1]", "f64[4]"),
        ("f64[2,1,2]", "f64[2,1,3]"),
        ("f64[0,2]", "f64[0,3]"),
    ]
    .into_iter()
    .enumerate()
    {
        row(t, &format!("fft_convolve/{k}"), "", &[x, y], &[FillKind::Smooth], true);
    }
    for d in ["f32", "f16", "bf16"] {
        let (x, y) = (format!("{d}[2,7]"), format!("{d}[2,4]"));
        row(t, &format!("fft_convolve/{d}"), "", &[&x, &y], &[FillKind::Smooth], false);
    }
    row(t, "cross_entropy/bf16", "", &["bf16[4,3]", "i32[4]"], fills, false);
}
