//! Attention and its backward by blocks of queries and keys: scores are never stored in memory, no atomics are used, and two
//! runs give the same bits.
//!
//! Forward is one dispatch. Backward is three: the row sums of dout·out, with the positions of each batch; then dQ by blocks of
//! queries; then dK and dV by blocks of keys. Both of these recompute the scores.

mod text;

use super::launch::{Argument, blocks};
use super::scatter_rows::ScatterDispatch;
use crate::attention::{AttentionCall, FAR};
use crate::grid::GridLimits;
use compiler::program::BufferSlice;
use ir::ops::Composite;
use ir::{DType, Op, Type};
use text::Kind;
pub(super) use text::Shape;

/// With fewer queries than this per key head, most of a block is empty.
const LEAST_ROWS: usize = 16;
/// The number of blocks that saturates a device; with fewer, smaller blocks are faster.
const BUSY: usize = 256;
/// The rows of a workgroup that computes the row sums.
const LOSSES: usize = 32;

/// An attention that these kernels support.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attention(AttentionCall);

impl std::ops::Deref for Attention {
    type Target = AttentionCall;

    fn deref(&self) -> &AttentionCall {
        &self.0
    }
}

impl Attention {
    /// The attention of an op, if it is supported on a device with these limits.
    pub(super) fn of(op: &Op, args: &[Type], limits: &GridLimits) -> Option<Attention> {
        match op {
            Op::Composite(c) => Attention::composite(c, args, limits),
            _ => None,
        }
    }

    /// The attention of a composite, if it is supported on a device with these limits.
    pub(super) fn composite(c: &Composite, args: &[Type], limits: &GridLimits) -> Option<Attention> {
        let a = Attention(AttentionCall::of(c, args)?);
        let types = matches!(a.dtype, DType::F32 | DType::F16 | DType::BF16);
        let some = a.batch > 0 && a.heads > 0 && a.tk > 0 && a.group * a.tq >= LEAST_ROWS;
        // The sums of a block are in registers. Indices have 32 bits; positions are far below that limit.
        let wide = a.d > 0 && a.dv > 0 && a.d <= 128 && a.dv <= 128;
        let heads = a.batch.checked_mul(a.heads)?;
        let most = heads.checked_mul(a.tq.max(a.tk))?.checked_mul(a.d.max(a.dv))?;
        let small = most < 1 << 30 && a.tq.max(a.tk) < 1 << 22;
        let fits = limits.max_shared_bytes >= 16 << 10 && limits.threads >= 64;
        (types && some && wide && small && fits).then_some(a)
    }

    /// The bytes of scratch: two numbers per row, two per batch.
    pub(super) fn scratch(&self) -> usize {
        match self.backward {
            true => 8 * (self.rows() + self.batch),
            false => 0,
        }
    }

    fn rows(&self) -> usize {
        self.batch * self.heads * self.tq
    }

    /// The dispatches; intermediate results are aligned to `aligned` bytes.
    pub(super) fn parts(
        &self,
        args: &[BufferSlice],
        outs: &[BufferSlice],
        aligned: usize,
        scratch_at: usize,
        limits: &GridLimits,
    ) -> Vec<ScatterDispatch> {
        let size = self.dtype.size();
        let own = |i: usize| Argument::place(&args[i], size);
        let number = |i: usize| Argument::place(&args[i], 4);
        // A missing operand is never read.
        let optional = |x: Option<(usize, usize)>| x.map_or_else(|| own(0), |(arg, _)| number(arg));
        let heads = self.batch * self.heads;
        let every = |x: Option<(usize, usize)>| x.map_or(0, |(_, every)| every.max(1) as u32);
        let sizes = vec![
            heads as u32,
            self.heads as u32,
            self.group as u32,
            self.tq as u32,
            self.tk as u32,
            self.d as u32,
            self.dv as u32,
            self.window.map_or(FAR, |w| (w - 1).min(FAR)) as u32,
            if self.causal { 1 } else { self.window.map_or(FAR, |w| w.min(FAR)) as u32 },
            every(self.offset),
            every(self.lengths),
            self.scale.to_bits(),
            self.cap.unwrap_or(1.0).to_bits(),
            self.batch as u32,
        ];
        let whole = |width: usize| size == 4 || (width.is_multiple_of(2) && aligned.is_multiple_of(4));
        let pairs = whole(self.d) && whole(self.dv);
        let part = |kind: Kind, args: Vec<Argument>, rows: usize, heads: usize| {
            let large =
                limits.max_shared_bytes >= 28 << 10 && limits.threads >= 128 && rows.div_ceil(64) * heads >= BUSY;
            let shape = Shape {
                kind,
                dtype: self.dtype,
                side: if large { 64 } else { 32 },
                depth: if !large && limits.max_shared_bytes >= 24 << 10 { 64 } else { 16 },
                d: self.d.next_multiple_of(32),
                dv: self.dv.next_multiple_of(32),
                capped: self.cap.is_some(),
                pairs,
            };
            let grid = match kind {
                Kind::Losses => [blocks(rows, LOSSES), 1, 1],
                _ => [blocks(rows.div_ceil(shape.side) * heads, 1), 1, 1],
            };
            ScatterDispatch { text: Box::new(move |homes| shape.text(homes)), args, params: sizes.clone(), grid }
        };
        if !self.backward {
            let mut all = vec![own(0), own(1), own(2), optional(self.offset), optional(self.lengths)];
            all.extend([Argument::place(&outs[0], size), Argument::place(&outs[1], 4)]);
            return vec![part(Kind::Forward, all, self.tq, heads)];
        }
        let [out, lse, dout, dlse] = [0, 1, 2, 3].map(|i| self.operands + i);
        let scratch = Argument::scratch(scratch_at, self.scratch());
        let all = vec![own(out), own(dout), number(lse), number(dlse), optional(self.offset), optional(self.lengths)];
        let losses = part(Kind::Losses, [all, vec![scratch.clone()]].concat(), self.rows().max(self.batch), 1);
        let first = [own(0), own(1), own(2), own(dout), scratch];
        let with = |more: &[usize]| {
            first.iter().cloned().chain(more.iter().map(|i| Argument::place(&outs[*i], size))).collect::<Vec<_>>()
        };
        let dq = part(Kind::Queries, with(&[0]), self.tq, heads);
        let dkv = part(Kind::Keys, with(&[1, 2]), self.tk, heads / self.group);
        vec![losses, dq, dkv]
    }
}

/// One shape of each kind, for tests of their source.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn shapes() -> Vec<Shape> {
    let mut all = Vec::new();
    for kind in [Kind::Forward, Kind::Losses, Kind::Queries, Kind::Keys] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for (side, depth, d, dv) in [(32, 16, 32, 128), (32, 64, 128, 64), (64, 16, 64, 64), (64, 16, 128, 128)] {
                for capped in [true, false] {
                    let pairs = capped || dtype == DType::F32;
                    all.push(Shape { kind, dtype, side, depth, d, dv, capped, pairs });
                }
            }
        }
    }
    all
}
