//! `scatter_add` of rows: the gradient of an embedding, by sorting and segments. It is deterministic and adds updates in order:
//! two runs give the same bits, which are those of the reference.
//!
//! Each index computes its sorted position by counting the smaller ones. Then the first of equal ones adds up the updates of all
//! of them.

use super::copy_fill;
use super::launch::{Argument, blocks};
use super::tiles::{loader, storer};
use crate::wgpu::functions::needed;
use crate::wgpu::{Binding, ShaderSource};
use compiler::program::BufferSlice;
use ir::ops::scatter::ScatterMode;
use ir::ops::{Scatter, ScatterKind};
use ir::{DType, Op, Type};

const THREADS: usize = 256;
/// The maximum number of updates; counting takes quadratic time.
const MOST: usize = 1 << 16;

/// Rows of `width` elements, added to a table of `rows` at `count` indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowScatter {
    rows: usize,
    width: usize,
    count: usize,
    dtype: DType,
    clip: bool,
}

/// A dispatch: its source, its memory, its parameters, its workgroups.
pub(super) struct ScatterDispatch {
    pub(super) text: Box<dyn Fn(&[usize]) -> ShaderSource>,
    pub(super) args: Vec<Argument>,
    pub(super) params: Vec<u32>,
    pub(super) grid: [u32; 3],
}

impl RowScatter {
    /// The row scatter of an op, if it is one.
    pub(super) fn of(op: &Op, args: &[Type]) -> Option<RowScatter> {
        let Op::Scatter(Scatter { kind: ScatterKind::Add, dims, mode }) = op else { return None };
        let [table, ids, updates] = args else { return None };
        let batch = ids.rank().checked_sub(1)?;
        let behind = (batch..batch + table.rank().checked_sub(1)?).collect::<Vec<usize>>();
        let rows = dims.collapsed[..] == [0]
            && dims.index_map[..] == [0]
            && dims.operand_batch.is_empty()
            && dims.index_batch.is_empty()
            && dims.offset[..] == behind[..]
            && ids.shape[batch] == 1
            && updates.shape[batch..] == table.shape[1..];
        let numbers = matches!(table.dtype, DType::F32 | DType::BF16 | DType::F16) && ids.dtype == DType::I32;
        let count = ids.numel();
        let fits = table.numel() < i32::MAX as usize && updates.numel() < i32::MAX as usize;
        if !rows || !numbers || count == 0 || table.numel() == 0 || count > MOST || !fits {
            return None;
        }
        Some(RowScatter {
            rows: table.shape[0],
            width: table.shape[1..].iter().product(),
            count,
            dtype: table.dtype,
            clip: *mode == ScatterMode::Clip,
        })
    }

    /// The bytes of scratch: the sorted indices, and their updates.
    pub(super) fn scratch(&self) -> usize {
        8 * self.count
    }

    pub(super) fn parts(&self, args: &[BufferSlice], out: &BufferSlice, scratch_at: usize) -> Vec<ScatterDispatch> {
        let size = self.dtype.size();
        let sorted = Argument::scratch(scratch_at, 4 * self.count);
        let order = Argument::scratch(scratch_at + 4 * self.count, 4 * self.count);
        let (own, count) = (*self, self.count);
        let bytes = self.rows * self.width * size;
        let mut all = vec![ScatterDispatch {
            text: Box::new(move |homes| own.places(homes)),
            args: vec![Argument::place(&args[1], 4), sorted.clone(), order.clone()],
            params: vec![count as u32, self.rows as u32],
            grid: [blocks(count, THREADS), 1, 1],
        }];
        if args[0] != *out {
            all.push(ScatterDispatch {
                text: Box::new(copy_fill::copy_text),
                args: vec![Argument::place(out, 1), Argument::place(&args[0], 1)],
                params: vec![bytes as u32],
                grid: copy_fill::grid(bytes),
            });
        }
        all.push(ScatterDispatch {
            text: Box::new(move |homes| own.sums(homes)),
            args: vec![sorted, order, Argument::place(&args[2], size), Argument::place(out, size)],
            params: vec![count as u32, self.rows as u32, self.width as u32],
            grid: [blocks(count, 1), 1, 1],
        });
        all
    }

    /// Arguments: indices, sorted indices, the update of each; then count and rows.
    fn places(&self, homes: &[usize]) -> ShaderSource {
        let outside = match self.clip {
            true => "return u32(clamp(v, 0, i32(p(4u)) - 1));",
            false => "return select(u32(v), p(4u), v < 0 || v >= i32(p(4u)));",
        };
        let (head, bindings) = head(homes, &[1, 2], None, 2);
        let (ids, sorted, order) = (homes[0], homes[1], homes[2]);
        let source = format!(
            "{head}var<workgroup> tile: array<u32, {THREADS}>;
fn key(i: u32) -> u32 {{ let v = bitcast<i32>(g{ids}[p(0u) + i]); {outside} }}
@compute @workgroup_size({THREADS}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let count = p(3u);
    for (var first = wg.x * {THREADS}u; first < count; first += wgs.x * {THREADS}u) {{
        let i = first + t;
        var own = 0xffffffffu;
        if (i < count) {{ own = key(i); }}
        var rank = 0u;
        for (var base = 0u; base < count; base += {THREADS}u) {{
            workgroupBarrier();
            if (base + t < count) {{ tile[t] = key(base + t); }}
            workgroupBarrier();
            let many = min({THREADS}u, count - base);
            for (var j = 0u; j < many; j += 1u) {{
                let other = tile[j];
                rank += select(0u, 1u, other < own || (other == own && base + j < i));
            }}
        }}
        if (i < count) {{
            g{sorted}[p(1u) + rank] = own;
            g{order}[p(2u) + rank] = i;
        }}
    }}
}}
"
        );
        ShaderSource { source, bindings, params: 5, shared: 4 * THREADS }
    }

    /// Arguments: sorted indices, their updates, the update rows, out; then count, rows, width. Sums are rounded after each
    /// addition, like the reference's.
    fn sums(&self, homes: &[usize]) -> ShaderSource {
        let parts = self.dtype != DType::F32;
        let written = homes[3];
        let (head, bindings) = head(homes, &[3], parts.then_some(written), 3);
        let word = |h: usize, at: &str| match parts && h == written {
            true => format!("atomicLoad(&g{h}[{at}])"),
            false => format!("g{h}[{at}]"),
        };
        let round = if parts { format!("round_{}", self.dtype.name()) } else { String::new() };
        let text = format!(
            "{head}{}{}{}fn sorted(i: u32) -> u32 {{ return {}; }}
fn order(i: u32) -> u32 {{ return {}; }}
@compute @workgroup_size({THREADS}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let count = p(4u); let rows = p(5u); let width = p(6u);
    for (var i = wg.x; i < count; i += wgs.x) {{
        let row = sorted(i);
        if (row >= rows || (i > 0u && sorted(i - 1u) == row)) {{ continue; }}
        for (var c = t; c < width; c += {THREADS}u) {{
            let e = p(3u) + row * width + c;
            var s = o_at(e);
            for (var j = i; j < count && sorted(j) == row; j += 1u) {{
                s = {round}(s + u_at(p(2u) + order(j) * width + c));
            }}
            put(e, s);
        }}
    }}
}}
",
            loader("u_at", homes[2], self.dtype, parts && homes[2] == written),
            loader("o_at", written, self.dtype, parts),
            storer(written, self.dtype, parts),
            word(homes[0], "p(0u) + i"),
            word(homes[1], "p(1u) + i"),
        );
        let source = format!("{}{text}", needed(&text));
        ShaderSource { source, bindings, params: 7, shared: 0 }
    }
}

/// Declares the bindings, some of which are written, and the parameters after those of the arguments.
fn head(homes: &[usize], written: &[usize], atomic: Option<usize>, more: usize) -> (String, Vec<Binding>) {
    let count = homes.iter().max().map_or(0, |h| h + 1);
    let mut text = String::new();
    let mut all = Vec::new();
    for i in 0..count {
        let writable = written.iter().any(|w| homes[*w] == i);
        let access = if writable { "read_write" } else { "read" };
        let word = if atomic == Some(i) { "atomic<u32>" } else { "u32" };
        text.push_str(&format!("@group(0) @binding({i}) var<storage, {access}> g{i}: array<{word}>;\n"));
        all.push(Binding { writable });
    }
    let rows = (homes.len() + more).div_ceil(4);
    text.push_str(&format!("struct Params {{ v: array<vec4<u32>, {rows}> }}\n"));
    text.push_str("@group(1) @binding(0) var<uniform> params: Params;\n");
    text.push_str("fn p(i: u32) -> u32 { return params.v[i >> 2u][i & 3u]; }\n");
    (text, all)
}
