//! The table of the primitives of §6: signature, attributes, tensors saved for the backward pass, and shape rule.
//!
//! Signatures are written in the language itself. `ShapeRule::Signature` means that unification is sufficient; the other rules
//! compute shapes that signatures cannot express.

use crate::ast::{IoTensor, Item, Param, PassItemKind, SectionKind};
use crate::parser;
use crate::span::FileId;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// How the shapes of the results are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeRule {
    /// By unifying the signature.
    Signature,
    /// `A·B` with leading axes flattened into rows; see `check/rules.rs`.
    Matmul,
    /// `A·B` per leading axes, which broadcast.
    BatchedMatmul,
    /// Grouped products: each group of rows has its own matrix.
    GroupedGemm,
    /// The operands' shapes broadcast.
    Broadcast,
    /// Broadcasting; the result is boolean, stored as ones and zeros.
    Compare,
    /// Broadcasting; the result is a float, also for integers.
    Divide,
    /// One result per size along an axis.
    Split,
    /// Sizes add up along an axis.
    Concat,
    /// A reshape with the same number of elements.
    View,
    /// Two axes swapped.
    Transpose,
    /// All axes reordered.
    Permute,
    /// Axes removed, or kept with size 1.
    Reduce,
    /// A given number of copies.
    Fork,
    /// A shape given as an argument.
    Filled,
    /// Results whose shapes the checker does not follow.
    Opaque,
}

/// A primitive: one row of the table, parsed.
#[derive(Clone, Debug)]
pub struct Primitive {
    /// Its name.
    pub name: &'static str,
    /// Its tensor inputs.
    pub inputs: Vec<IoTensor>,
    /// Its results.
    pub outputs: Vec<IoTensor>,
    /// Its attributes with defaults.
    pub attributes: Vec<Param>,
    /// The inputs and results that its derived backward pass reads.
    pub saves: &'static [&'static str],
    /// The shape rule.
    pub rule: ShapeRule,
}

struct Row(&'static str, &'static str, &'static str, &'static str, &'static [&'static str], ShapeRule);

const MATMUL_ATTRIBUTES: &str =
    "transpose: enum(NN, NT, TN, TT) = NN, accumulate: bool = false, alpha: float = 1.0, beta: float = 0.0";

const ATTENTION_ATTRIBUTES: &str = "causal: bool = true, softmax_scale: float? = None, window_size: int? = None, \
     alibi_slopes: [H]? = None, alibi: bool = false, softcap: float? = None, chunk_size: int? = None";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // §6.1 linear algebra
    Row("matmul", "(A: [*, K], B: [*, N])", "C: [*, N]", MATMUL_ATTRIBUTES, &["A", "B"], ShapeRule::Matmul),
    Row("batched_matmul", "(A: [*, M, K], B: [*, K, N])", "C: [*, M, N]", MATMUL_ATTRIBUTES, &["A", "B"], ShapeRule::BatchedMatmul),
    Row("grouped_gemm", "(input: [n, K], weights: [G, N, K], offsets: [G + 1, int32])", "output: [n, N]",
        "transpose: enum(NN, NT, TN, TT) = NT", &["input", "weights"], ShapeRule::GroupedGemm),
    Row("grouped_gemm_weight_grad", "(input: [n, K], d_output: [n, N], offsets: [G + 1, int32])", "d_weights: [G, N, K]",
        "accumulate: bool = false", &[], ShapeRule::Signature),
    Row("weight_grad", "(d_out: [*, N], x: [*, K])", "d_weight: [N, K]", "accumulate: bool = false", &[], ShapeRule::Signature),
    // §6.2 normalisation
    Row("rmsnorm", "(x: [*, C], weight: [C]?)", "(y: [*, C], rstd: [*])", "eps: float = 1e-6", &["x", "rstd"], ShapeRule::Signature),
    Row("rmsnorm_backward", "(d_y: [*, C], x: [*, C], weight: [C], rstd: [*]?)", "(d_x: [*, C], d_weight: [C])", "eps: float = 1e-6", &[], ShapeRule::Signature),
    Row("fused_residual_rmsnorm", "(residual: [*, C], input: [*, C], weight: [C])",
        "(residual_out: [*, C], y: [*, C], rstd: [*])", "eps: float = 1e-6", &["residual_out", "rstd"], ShapeRule::Signature),
    Row("fused_residual_rmsnorm_backward", "(d_y: [*, C], d_residual_next: [*, C], residual_out: [*, C], weight: [C], rstd: [*]?)",
        "(d_residual: [*, C], d_input: [*, C], d_weight: [C])", "eps: float = 1e-6", &[], ShapeRule::Signature),
    Row("layernorm", "(x: [*, C], weight: [C]?, bias: [C]?)", "(y: [*, C], mean: [*], rstd: [*])", "eps: float = 1e-5", &["x", "mean", "rstd"], ShapeRule::Signature),
    Row("layernorm_backward", "(d_y: [*, C], x: [*, C], weight: [C], mean: [*], rstd: [*])", "(d_x: [*, C], d_weight: [C], d_bias: [C])",
        "eps: float = 1e-5", &[], ShapeRule::Signature),
    Row("group_rmsnorm", "(x: [*, C], weight: [C])", "y: [*, C]", "groups: int = 1, eps: float = 1e-6", &["x"], ShapeRule::Signature),
    // §6.3 activations
    Row("swiglu", "(gate: [*, D], up: [*, D])", "out: [*, D]", "", &["gate", "up"], ShapeRule::Signature),
    Row("swiglu_backward", "(d_out: [*, D], gate: [*, D], up: [*, D])", "(d_gate: [*, D], d_up: [*, D])", "", &[], ShapeRule::Signature),
    Row("geglu", "(gate: [*, D], up: [*, D])", "out: [*, D]", "approximate: bool = true", &["gate", "up"], ShapeRule::Signature),
    Row("geglu_backward", "(d_out: [*, D], gate: [*, D], up: [*, D])", "(d_gate: [*, D], d_up: [*, D])", "approximate: bool = true", &[], ShapeRule::Signature),
    Row("silu_mul", "(gate: [*], up: [*])", "out: [*]", "", &["gate", "up"], ShapeRule::Signature),
    Row("silu_mul_backward", "(d_out: [*], gate: [*], up: [*])", "(d_gate: [*], d_up: [*])", "", &[], ShapeRule::Signature),
    Row("silu", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("silu_backward", "(d_out: [*], x: [*])", "d_x: [*]", "", &[], ShapeRule::Signature),
    Row("relu", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("relu_backward", "(d_out: [*], x: [*])", "d_x: [*]", "", &[], ShapeRule::Signature),
    Row("relu2", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("relu2_backward", "(d_out: [*], x: [*])", "d_x: [*]", "", &[], ShapeRule::Signature),
    Row("gelu", "x: [*]", "out: [*]", "approximate: bool = true", &["x"], ShapeRule::Signature),
    Row("gelu_backward", "(d_out: [*], x: [*])", "d_x: [*]", "approximate: bool = true", &[], ShapeRule::Signature),
    Row("sigmoid", "x: [*]", "out: [*]", "", &["out"], ShapeRule::Signature),
    Row("tanh", "x: [*]", "out: [*]", "", &["out"], ShapeRule::Signature),
    Row("softmax", "x: [*]", "out: [*]", "dim: int = -1", &["out"], ShapeRule::Signature),
    Row("softmax_backward", "(d_out: [*], out: [*])", "d_x: [*]", "dim: int = -1", &[], ShapeRule::Signature),
    // §6.4 attention
    Row("flash_attention", "(q: [B, Hq, T, D], k: [B, Hkv, S, D], v: [B, Hkv, S, Dv], bias: [*, T, S]?, mask: [B, S, int32]?)",
        "(out: [B, Hq, T, Dv], lse: [B, Hq, T])", ATTENTION_ATTRIBUTES,
        &["q", "k", "v", "out", "lse"], ShapeRule::Signature),
    Row("flash_attention_backward", "(d_out: [B, Hq, T, Dv], q: [B, Hq, T, D], k: [B, Hkv, S, D], v: [B, Hkv, S, Dv], out: [B, Hq, T, Dv], lse: [B, Hq, T])",
        "(d_q: [B, Hq, T, D], d_k: [B, Hkv, S, D], d_v: [B, Hkv, S, Dv])", ATTENTION_ATTRIBUTES, &[], ShapeRule::Signature),
    Row("rope", "(q: [B, H, T, D], k: [B, Hkv, T, D], freqs: [S, D // 2, 2]?)", "(q_rot: [B, H, T, D], k_rot: [B, Hkv, T, D])",
        "d_head: int? = None, max_seq: int? = None, theta: float = 10000.0, interleaved: bool = false", &[], ShapeRule::Signature),
    Row("rope_backward", "(d_q_rot: [B, H, T, D], d_k_rot: [B, Hkv, T, D], freqs: [S, D // 2, 2]?)", "(d_q: [B, H, T, D], d_k: [B, Hkv, T, D])",
        "d_head: int? = None, max_seq: int? = None, theta: float = 10000.0, interleaved: bool = false", &[], ShapeRule::Signature),
    Row("qk_norm", "(q: [B, H, T, D], k: [B, Hkv, T, D], q_weight: [D], k_weight: [D])",
        "(q_norm: [B, H, T, D], k_norm: [B, Hkv, T, D], q_rstd: [B, H, T], k_rstd: [B, Hkv, T])", "eps: float = 1e-6",
        &["q", "k", "q_rstd", "k_rstd"], ShapeRule::Signature),
    Row("qk_norm_backward", "(d_q_norm: [B, H, T, D], d_k_norm: [B, Hkv, T, D], q: [B, H, T, D], k: [B, Hkv, T, D], q_weight: [D], k_weight: [D], q_rstd: [B, H, T], k_rstd: [B, Hkv, T])",
        "(d_q: [B, H, T, D], d_k: [B, Hkv, T, D], d_q_weight: [D], d_k_weight: [D])", "eps: float = 1e-6", &[], ShapeRule::Signature),
    // §6.5 tensor manipulation
    Row("split", "x: [*]", "parts", "sizes: [int], dim: int = -1", &[], ShapeRule::Split),
    Row("concat", "(tensors...)", "out", "dim: int = -1", &[], ShapeRule::Concat),
    Row("view", "x: [*]", "out", "shape: [int]", &[], ShapeRule::View),
    Row("reshape", "x: [*]", "out", "shape: [int]", &[], ShapeRule::View),
    Row("transpose", "x: [*]", "out", "dim0: int, dim1: int", &[], ShapeRule::Transpose),
    Row("permute", "x: [*]", "out", "dims: [int]", &[], ShapeRule::Permute),
    Row("contiguous", "x: [*]", "out: [*]", "", &[], ShapeRule::Signature),
    Row("fork", "x: [*]", "copies", "count: int", &[], ShapeRule::Fork),
    // §6.6 elementwise
    Row("add", "(a: [*], b: [*])", "out: [*]", "", &[], ShapeRule::Broadcast),
    Row("sub", "(a: [*], b: [*])", "out: [*]", "", &[], ShapeRule::Broadcast),
    Row("mul", "(a: [*], b: [*])", "out: [*]", "", &["a", "b"], ShapeRule::Broadcast),
    Row("div", "(a: [*], b: [*])", "out: [*]", "", &["a", "b"], ShapeRule::Divide),
    Row("bias_add", "(a: [*], b: [*])", "out: [*]", "", &[], ShapeRule::Broadcast),
    Row("add3", "(a: [*], b: [*], c: [*])", "out: [*]", "", &[], ShapeRule::Broadcast),
    Row("scale", "x: [*]", "out: [*]", "factor: float", &[], ShapeRule::Signature),
    Row("sqrt", "x: [*]", "out: [*]", "", &["out"], ShapeRule::Signature),
    Row("exp", "x: [*]", "out: [*]", "", &["out"], ShapeRule::Signature),
    Row("exp_neg", "x: [*]", "out: [*]", "", &["out"], ShapeRule::Signature),
    Row("log", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("softplus", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("abs", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("floor", "x: [*]", "out: [*]", "", &[], ShapeRule::Signature),
    Row("sin", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("cos", "x: [*]", "out: [*]", "", &["x"], ShapeRule::Signature),
    Row("clamp", "x: [*]", "out: [*]", "min: float? = None, max: float? = None", &["x"], ShapeRule::Signature),
    Row("equal", "(a: [*], b: [*])", "out: [*]", "", &[], ShapeRule::Compare),
    Row("less", "(a: [*], b: [*])", "out: [*]", "", &[], ShapeRule::Compare),
    // §6.7 reductions
    Row("reduce_sum", "x: [*]", "out", "dims: [int]? = None, keepdim: bool = false, dim: int? = None", &[], ShapeRule::Reduce),
    Row("reduce_mean", "x: [*]", "out", "dims: [int]? = None, keepdim: bool = false, dim: int? = None", &[], ShapeRule::Reduce),
    Row("reduce_max", "x: [*]", "(values, indices)", "dim: int, keepdim: bool = false", &["indices"], ShapeRule::Reduce),
    Row("cumsum", "x: [*]", "out: [*]", "dim: int = -1", &[], ShapeRule::Signature),
    Row("take_rows", "(x: [B, T, C], indices: [B, int32])", "out: [B, C]", "", &["indices"], ShapeRule::Signature),
    // Convolution and pooling
    Row("conv1d", "(x: [B, C, T], weight: [N, G, K], bias: [N]?)", "out: [B, N, (T + 2 * padding - K) // stride + 1]",
        "stride: int = 1, padding: int = 0, groups: int = 1", &["x", "weight"], ShapeRule::Signature),
    Row("conv2d", "(x: [B, C, H, W], weight: [N, G, KH, KW], bias: [N]?)",
        "out: [B, N, (H + 2 * padding - KH) // stride + 1, (W + 2 * padding - KW) // stride + 1]",
        "stride: int = 1, padding: int = 0, groups: int = 1", &["x", "weight"], ShapeRule::Signature),
    // §6.8 embedding
    Row("embedding", "(indices: [*, int32], weight: [V, D])", "out: [*, D]", "padding: int? = None", &["indices"], ShapeRule::Signature),
    Row("embedding_backward", "(d_out: [*, D], indices: [*, int32], weight: [V, D]?)", "d_weight: [V, D]", "", &[], ShapeRule::Signature),
    Row("cross_entropy", "(logits: [*, V], labels: [*, int32])", "loss: scalar", "reduction: enum(mean, sum, none) = mean", &["logits", "labels"], ShapeRule::Opaque),
    // §6.9 mixture of experts
    Row("moe_router", "(x: [n, C], gate: [E, C], bias: [E]?)", "(weights: [n, top_k], indices: [n, top_k, int32], aux_loss: scalar)",
        "top_k: int, normalize: bool = true, aux_loss_coef: float = 0.01, use_sigmoid: bool = false, scale: float = 1.0, \
         groups: int = 1, top_groups: int = 1, group_score: enum(max, top2) = max", &["x", "indices"], ShapeRule::Signature),
    Row("moe_router_backward", "(d_weights: [n, top_k], x: [n, C], gate: [E, C], indices: [n, top_k, int32])", "(d_x: [n, C], d_gate: [E, C])",
        "normalize: bool = true, use_sigmoid: bool = false", &[], ShapeRule::Signature),
    Row("moe_compute_offsets", "indices: [n, k, int32]", "offsets: [num_experts + 1, int32]", "num_experts: int", &[], ShapeRule::Signature),
    Row("moe_permute", "(x: [n, C], indices: [n, k, int32], expert_offsets: [E, int32]?, weights: [n, k]?)", "(permuted: [n * k, C], scatter_indices: [n * k, int32])", "", &["scatter_indices"], ShapeRule::Signature),
    Row("moe_unpermute", "(expert_outputs: [n * k, C], weights: [n, k], scatter_indices: [n * k, int32])", "combined: [n, C]", "", &["expert_outputs", "weights", "scatter_indices"], ShapeRule::Signature),
    Row("moe_experts", "(x: [n, C], experts, indices: [m, k, int32])", "out: [n, C]", "", &[], ShapeRule::Opaque),
    // §6.10 state space
    Row("mamba_conv1d", "(x: [B, D, T], weight: [D, 1, K], bias: [D]?, conv_state: [B, D, K - 1]?)", "(y: [B, D, T], conv_state_out: [B, D, K - 1])",
        "kernel_size: int? = None, activation: enum(silu, none) = silu, silu: bool = true", &["x"], ShapeRule::Signature),
    Row("mamba_selective_scan", "(u: [Bt, D, T], delta: [Bt, D, T], A: [D, N], B: [Bt, G, N, T], C: [Bt, G, N, T], D: [D], dt_bias: [D], ssm_state: [Bt, D, N]?)",
        "(y: [Bt, D, T], ssm_state_out: [Bt, D, N])", "chunk_size: int = 256, dt_min: float = 0.0, dt_max: float? = None", &["u", "delta", "A", "B", "C"], ShapeRule::Signature),
    Row("mamba_split_proj", "x: [Bt, T, P]", "(gate: [Bt, T, d_inner], conv_in: [Bt, d_conv, T], delta: [Bt, d_inner, T])", "d_inner: int, d_conv: int", &[], ShapeRule::Signature),
    Row("mamba_split_conv", "x: [Bt, P, T]", "(u: [Bt, d_inner, T], B: [Bt, n_groups, d_state, T], C: [Bt, n_groups, d_state, T])",
        "d_inner: int, n_groups: int, d_state: int", &[], ShapeRule::Signature),
    // §6.11 utilities
    Row("zeros", "()", "out", "shape: [int], dtype: dtype = bf16", &[], ShapeRule::Filled),
    Row("ones", "()", "out", "shape: [int], dtype: dtype = bf16", &[], ShapeRule::Filled),
    Row("fill", "()", "out", "shape: [int], value: float, dtype: dtype = bf16", &[], ShapeRule::Filled),
    Row("full", "()", "out", "shape: [int], value: float, dtype: dtype = bf16", &[], ShapeRule::Filled),
    Row("positions", "()", "out", "shape: [int], dtype: dtype = int32", &[], ShapeRule::Filled),
    Row("relative_buckets", "()", "out", "shape: [int], buckets: int, max_distance: int, bidirectional: bool = true, dtype: dtype = int32", &[], ShapeRule::Filled),
    Row("copy", "x: [*]", "out: [*]", "", &[], ShapeRule::Signature),
    Row("quantize", "x: [*]", "out: [*]", "dtype: dtype = fp8_e4m3", &[], ShapeRule::Signature),
    Row("dequantize", "x: [*]", "out: [*]", "dtype: dtype = bf16", &[], ShapeRule::Signature),
    // §7.6 collectives
    Row("all_reduce", "x: [*]", "out: [*]", "group: string = \"default\"", &[], ShapeRule::Signature),
    Row("all_gather", "x: [*]", "out", "dim: int = 0, group: string = \"default\"", &[], ShapeRule::Opaque),
    Row("reduce_scatter", "x: [*]", "out", "dim: int = 0, group: string = \"default\"", &[], ShapeRule::Opaque),
];

static PRIMITIVES: LazyLock<BTreeMap<&'static str, Primitive>> =
    LazyLock::new(|| TABLE.iter().map(|row| (row.0, parse(row))).collect());

/// The primitive with this name.
pub fn find(name: &str) -> Option<&'static Primitive> {
    PRIMITIVES.get(name)
}

/// The primitive with this name, also in the spelling of modules: `FlashAttention`, `Add` (§5.3, §5.4).
pub fn find_by_module_name(name: &str) -> Option<&'static Primitive> {
    static SPELLED: LazyLock<BTreeMap<String, &'static str>> =
        LazyLock::new(|| TABLE.iter().map(|row| (row.0.replace('_', ""), row.0)).collect());
    let capital = name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_');
    find(name).or_else(|| find(SPELLED.get(&name.to_ascii_lowercase()).filter(|_| capital)?))
}

/// The names of all primitives, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRIMITIVES.keys().copied()
}

fn parse(&Row(name, inputs, outputs, attributes, saves, rule): &Row) -> Primitive {
    let text = format!("module p({attributes}):\n  forward:\n    in: {inputs}\n    out: {outputs}\n");
    let parsed = parser::parse(FileId::default(), &text);
    assert!(parsed.diagnostics.is_empty(), "{name}: {:?}", parsed.diagnostics);
    let Some(Item::Decl(mut decl)) = parsed.file.items.into_iter().next() else { panic!("{name} is a declaration") };
    let Some(SectionKind::Forward(pass)) = decl.sections.pop().map(|section| section.kind) else {
        panic!("{name} has a forward section")
    };
    let mut primitive = Primitive {
        name,
        inputs: Vec::new(),
        outputs: Vec::new(),
        attributes: decl.params.unwrap_or_default(),
        saves,
        rule,
    };
    for item in pass.items {
        match item.kind {
            PassItemKind::In(spec) => primitive.inputs = spec.tensors,
            PassItemKind::Out(spec) => primitive.outputs = spec.tensors,
            _ => {}
        }
    }
    primitive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_parses_and_saves_what_exists() {
        for name in names() {
            let primitive = find(name).unwrap();
            let tensors: Vec<_> =
                primitive.inputs.iter().chain(&primitive.outputs).filter_map(|t| t.name.as_ref()).collect();
            for saved in primitive.saves {
                assert!(tensors.iter().any(|t| t.name == *saved), "{name} saves {saved}");
            }
        }
        assert_eq!(names().count(), TABLE.len());
    }
}
