//! Attention and its backward on the tensor cores of Hopper (`templates/attention.cu`, `templates/attention_fed.cu`).
//!
//! A few queries, as in decoding, use no tensor cores (`templates/attention_few.cu`): the keys are distributed over blocks
//! (split-KV), whose partial results are then combined.
//!
//! Supported: f16 and bf16, heads of up to 256 elements (128 in backward) that are multiples of 8, any number of queries and
//! keys, grouped heads, causal masks, windows, offsets, lengths, a soft cap. Masks, segments and slopes are inlined by the
//! compiler.

use super::template::{ATTENTION, ATTENTION_FED, ATTENTION_FEW, HOPPER, LaunchSequence, TemplateArg, TemplateLaunch};
use crate::attention::{AttentionCall as Asked, FAR};
use ir::ops::Composite;
use ir::{DType, Type};

/// The rows and columns of a tile.
const SIDE: usize = 64;
/// The bytes of a tile.
const TILE: usize = 8192;
/// With fewer queries than this per key head, most of a tile is empty.
const LEAST_ROWS: usize = 16;
/// The maximum number of queries per key head that fit in registers.
const FEW_ROWS: usize = 8;
/// The number of blocks that saturates the device with few queries.
const BUSY: usize = 1024;
/// The number of rows from which a head without a causal mask is long.
const LONG: usize = 1024;

/// An attention that these kernels support.
#[derive(Clone, Debug, PartialEq)]
pub struct CudaAttention(Asked);

impl std::ops::Deref for CudaAttention {
    type Target = Asked;

    fn deref(&self) -> &Asked {
        &self.0
    }
}

/// The layout of a kernel: the width of queries (and keys) and of values in tiles, the number of warp groups that multiply, the
/// stages of streamed tiles, and whether a separate producer warp group loads them; otherwise the number of blocks per
/// multiprocessor.
#[derive(Clone, Copy)]
struct Layout {
    wide: usize,
    wide_v: usize,
    groups: usize,
    stages: usize,
    fed: bool,
    resident: usize,
}

impl Layout {
    fn threads(&self) -> usize {
        128 * (self.groups + self.fed as usize)
    }
}

impl CudaAttention {
    /// The attention of a composite, if it is supported.
    pub fn of(c: &Composite, args: &[Type]) -> Option<CudaAttention> {
        let a = CudaAttention(Asked::of(c, args)?);
        let widest = if a.backward { 128 } else { 256 };
        let fits = |d: usize| d > 0 && d <= widest && d.is_multiple_of(8);
        // Offsets inside a head have 32 bits; positions are far below that limit.
        let small = a.batch * a.heads < 1 << 24 && a.tq.max(a.tk) < 1 << 22;
        let rows = a.group * a.tq;
        let some = a.batch > 0 && a.heads > 0 && rows > 0 && a.tk > 0 && (rows >= LEAST_ROWS || a.uses_split_kv());
        let types = matches!(a.dtype, DType::BF16 | DType::F16);
        (types && fits(a.d) && fits(a.dv) && small && some && a.scale > 0.0).then_some(a)
    }

    /// Whether there are so few queries that keys are distributed over blocks.
    fn uses_split_kv(&self) -> bool {
        !self.backward && self.group * self.tq <= FEW_ROWS
    }

    /// The fastest layout on an H200.
    fn best_layout(&self, kind: AttentionKernel) -> Layout {
        let (wide, wide_v) = (self.d.div_ceil(SIDE), self.dv.div_ceil(SIDE));
        let alike = |groups, resident| Layout { wide, wide_v, groups, stages: 2, fed: false, resident };
        let fed = |groups, stages| Layout { wide, wide_v, groups, stages, fed: true, resident: 1 };
        // If all blocks are equal and long, a few large ones are used.
        let alike_long = !self.causal && self.window.is_none() && self.tq.min(self.tk) >= LONG;
        match (wide.max(wide_v), kind) {
            (1, AttentionKernel::Forward) if alike_long => fed(3, 3),
            (1, AttentionKernel::Keys) if alike_long => alike(2, 1),
            (1, AttentionKernel::Forward | AttentionKernel::Queries) => alike(1, 4),
            (1, AttentionKernel::Keys) => alike(1, 3),
            (2, AttentionKernel::Forward) => fed(3, 3),
            (2, AttentionKernel::Queries) => alike(1, 2),
            _ => alike(2, 1),
        }
    }

    /// The launches.
    pub fn routine(&self) -> LaunchSequence {
        let heads = self.batch * self.heads;
        let every = |x: Option<(usize, usize)>| x.map_or(0, |(_, every)| every.max(1) as i64);
        let sizes = vec![
            heads as i64,
            self.heads as i64,
            self.group as i64,
            self.tq as i64,
            self.tk as i64,
            self.d as i64,
            self.dv as i64,
            self.window.map_or(FAR, |w| (w - 1).min(FAR)),
            if self.causal { 1 } else { self.window.map_or(FAR, |w| w.min(FAR)) },
            every(self.offset),
            every(self.lengths),
            self.scale.to_bits() as i64,
            self.cap.unwrap_or(1.0).to_bits() as i64,
        ];
        // A missing operand is never read.
        let optional = |x: Option<(usize, usize)>| TemplateArg::Operand(x.map_or(0, |(arg, _)| arg));
        let mut first = vec![TemplateArg::Operand(0), TemplateArg::Operand(1), TemplateArg::Operand(2)];
        first.extend([optional(self.offset), optional(self.lengths)]);
        let call = |kind: AttentionKernel, rows: usize, heads: usize, more: &[TemplateArg]| {
            let l = self.best_layout(kind);
            TemplateLaunch {
                entry_point: self.entry(kind, l),
                source: self.text(kind, l),
                blocks: rows.div_ceil(SIDE * l.groups) * heads,
                threads: l.threads() as u32,
                dynamic_shared_bytes: kind.shared(l) as u32,
                args: first.iter().chain(more).copied().collect(),
                sizes: sizes.clone(),
            }
        };
        if self.uses_split_kv() {
            return self.split_kv_routine(first, sizes);
        }
        if !self.backward {
            let calls =
                vec![call(AttentionKernel::Forward, self.tq, heads, &[TemplateArg::Result(0), TemplateArg::Result(1)])];
            return LaunchSequence { calls, scratch: 0 };
        }
        let [out, lse, dout, dlse] = [0, 1, 2, 3].map(|i| TemplateArg::Operand(self.operands + i));
        let losses = TemplateArg::Scratch(0);
        let rows = heads * self.tq;
        let entry = format!("attention_rows_{}", self.dtype);
        let element = self.element();
        let text = format!(
            "{HOPPER}{ATTENTION}extern \"C\" __global__ void __launch_bounds__(256) {entry}(const u16* out, const u16* dout, \
             const f32* lse, const f32* dlse, f32* rows, i64 count, i64 width) {{\n    \
             wait_turn();\n    attention_rows<{element}>(out, dout, lse, dlse, rows, count, (i32)width);\n}}\n"
        );
        let rows_call = TemplateLaunch {
            entry_point: entry,
            source: text,
            blocks: rows.div_ceil(32),
            threads: 256,
            dynamic_shared_bytes: 0,
            args: vec![out, dout, lse, dlse, losses],
            sizes: vec![rows as i64, self.dv as i64],
        };
        let dq = call(AttentionKernel::Queries, self.tq, heads, &[dout, losses, TemplateArg::Result(0)]);
        let dkv = call(
            AttentionKernel::Keys,
            self.tk,
            heads / self.group,
            &[dout, losses, TemplateArg::Result(1), TemplateArg::Result(2)],
        );
        // The scratch has two numbers per row.
        LaunchSequence { calls: vec![rows_call, dq, dkv], scratch: rows * 8 }
    }

    /// Two launches: partial results for parts of the keys, then their combination.
    fn split_kv_routine(&self, operands: Vec<TemplateArg>, sizes: Vec<i64>) -> LaunchSequence {
        let (rows, heads) = (self.group * self.tq, self.batch * self.heads / self.group);
        let lanes = (self.d.max(self.dv) / 8).next_power_of_two();
        let chunk = 4 * 128 / lanes;
        let splits = BUSY.div_ceil(heads).min(self.tk.div_ceil(chunk)).max(1);
        let all = heads * rows;
        let (element, capped) = (self.element(), self.cap.is_some());
        let tail = format!("{}_{rows}_{lanes}{}", self.dtype, if capped { "_capped" } else { "" });
        let resident = if rows <= 4 { 3 } else { 2 };
        let text = |entry: &str, params: &str, call: &str| {
            format!(
                r#"{HOPPER}{ATTENTION}{ATTENTION_FEW}extern "C" __global__ void __launch_bounds__(128, {resident}) {entry}({params}, i64 heads, i64 per,
    i64 group, i64 tq, i64 tk, i64 d, i64 dv, i64 back, i64 ahead, i64 offset_every, i64 length_every, i64 scale, i64 cap, i64 splits,
    i64 rows) {{
    wait_turn();
    const Attention z = {{(i32)heads, (i32)per, (i32)group, (i32)tq, (i32)tk, (i32)d, (i32)dv, (i32)back, (i32)ahead,
        (i32)offset_every, (i32)length_every, real((u32)scale), real((u32)cap), offsets, lengths}};
    {call};
}}
"#
            )
        };
        let sizes: Vec<i64> = sizes.into_iter().chain([splits as i64, all as i64]).collect();
        let part = format!("attention_part_{tail}");
        let join = format!("attention_join_{tail}");
        let shared = "const i32* offsets, const i32* lengths";
        let first = TemplateLaunch {
            source: text(
                &part,
                &format!("const u16* q, const u16* k, const u16* v, {shared}, f32* parts"),
                &format!("attention_part<{element}, {rows}, {lanes}, {capped}>(q, k, v, parts, z, (i32)splits)"),
            ),
            entry_point: part,
            blocks: heads * splits,
            threads: 128,
            dynamic_shared_bytes: 0,
            args: operands.iter().copied().chain([TemplateArg::Scratch(0)]).collect(),
            sizes: sizes.clone(),
        };
        let second = TemplateLaunch {
            source: text(
                &join,
                &format!("const f32* parts, u16* out, f32* lse, {shared}"),
                &format!("attention_join<{element}, {rows}, {capped}>(parts, out, lse, z, (i32)splits, (i32)rows)"),
            ),
            entry_point: join,
            blocks: all.div_ceil(4),
            threads: 128,
            dynamic_shared_bytes: 0,
            args: [TemplateArg::Scratch(0), TemplateArg::Result(0), TemplateArg::Result(1)]
                .into_iter()
                .chain(operands[3..].iter().copied())
                .collect(),
            sizes,
        };
        LaunchSequence { calls: vec![first, second], scratch: heads * splits * rows * (self.dv + 2) * 4 }
    }

    fn element(&self) -> &'static str {
        if self.dtype == DType::BF16 { "Bf16" } else { "Half" }
    }

    fn entry(&self, kind: AttentionKernel, l: Layout) -> String {
        let capped = if self.cap.is_some() { "_capped" } else { "" };
        format!("attention_{}_{}_{}_{}_by_{}{capped}", kind.name(), self.dtype, l.wide, l.wide_v, l.groups)
    }

    fn text(&self, kind: AttentionKernel, l: Layout) -> String {
        let entry = self.entry(kind, l);
        let (element, Layout { wide, wide_v, groups, stages, fed, resident }) = (self.element(), l);
        let (params, args) = kind.kernel_params();
        let capped = self.cap.is_some();
        let (name, threads) = (kind.name(), l.threads());
        let (more, function) = match fed {
            true => (ATTENTION_FED, format!("fed_{name}<{element}, {wide}, {wide_v}, {groups}, {stages}, {capped}>")),
            false => ("", format!("attention_{name}<{element}, {wide}, {wide_v}, {groups}, {capped}>")),
        };
        format!(
            r#"{HOPPER}{ATTENTION}{more}extern "C" __global__ void __launch_bounds__({threads}, {resident}) {entry}(const u16* q, const u16* k,
    const u16* v, const i32* offsets, const i32* lengths, {params}, i64 heads, i64 per, i64 group, i64 tq, i64 tk, i64 d, i64 dv,
    i64 back, i64 ahead, i64 offset_every, i64 length_every, i64 scale, i64 cap) {{
    const Attention z = {{(i32)heads, (i32)per, (i32)group, (i32)tq, (i32)tk, (i32)d, (i32)dv, (i32)back, (i32)ahead,
        (i32)offset_every, (i32)length_every, real((u32)scale), real((u32)cap), offsets, lengths}};
    wait_turn();
    {function}(q, k, v, {args}, z);
}}
"#
        )
    }
}

/// The kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttentionKernel {
    Forward,
    Queries,
    Keys,
}

impl AttentionKernel {
    fn name(self) -> &'static str {
        match self {
            AttentionKernel::Forward => "forward",
            AttentionKernel::Queries => "dq",
            AttentionKernel::Keys => "dkv",
        }
    }

    /// The additional parameters of this kernel, and their arguments.
    fn kernel_params(self) -> (&'static str, &'static str) {
        match self {
            AttentionKernel::Forward => ("u16* out, f32* lse", "out, lse"),
            AttentionKernel::Queries => ("const u16* dout, const f32* rows, u16* dq", "dout, rows, dq"),
            AttentionKernel::Keys => {
                ("const u16* dout, const f32* rows, u16* to_k, u16* to_v", "dout, rows, to_k, to_v")
            }
        }
    }

    /// The bytes of shared memory: stages of streamed tiles, resident tiles, and barriers.
    fn shared(self, l: Layout) -> usize {
        let both = l.wide + l.wide_v;
        let (numbers, stays) = match self {
            AttentionKernel::Forward => (0, l.wide),
            AttentionKernel::Queries => (0, both),
            AttentionKernel::Keys => (1024, both),
        };
        l.stages * (both * TILE + numbers) + l.groups * stays * TILE + if l.fed { 16 * l.stages } else { 0 }
    }
}
