//! Attention backward: scores are recomputed from the log-sum-exp, block by block.
//!
//! A part processes a complete key head and computes all three cotangents (five products per pair of blocks). If there are too
//! few heads for the threads, the cotangents of keys and of queries are separate parts (seven products, more parts). Both
//! add the same pairs of blocks in the same order, so the bits are the same.

use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::block::{BlockPlan, QueryBlock, ScratchLayout, balanced_block};
use super::lanes::{PerLane, Scores};
use super::problem::AttentionProblem;
use crate::pool::ThreadPool;
use compiler::Result;
use std::ops::Range;

/// The number of keys in a block.
pub(super) const KEYS: usize = 64;

/// The backward routine of attention.
pub(super) struct Backward {
    blocks: BlockPlan,
    place: ScratchOffsets,
    /// The number of f32 of scratch per worker.
    each: usize,
    threads: usize,
    /// Whether a part processes a complete key head.
    whole: bool,
}

/// The offsets within a worker's scratch.
struct ScratchOffsets {
    qt: usize,
    dot: usize,
    scores: usize,
    ds: usize,
    tanh: usize,
    dq: usize,
    q: usize,
    out: usize,
    dout: usize,
    k: usize,
    v: usize,
    dk: usize,
    dv: usize,
}

/// The work of one part.
#[derive(Clone)]
struct BackwardTask {
    head: usize,
    key_blocks: Range<usize>,
    query_blocks: Range<usize>,
    /// Whether to compute the cotangents of keys and values.
    keys: bool,
    /// Whether to compute the cotangent of queries.
    queries: bool,
}

impl Backward {
    pub(super) fn new(problem: AttentionProblem, machine: CpuContext) -> Backward {
        let blocks = BlockPlan::new(problem, 2, KEYS, machine.isa);
        let (p, w) = (&blocks.problem, blocks.width);
        let (heads, threads) = (p.heads(), machine.threads);
        let whole = threads <= 1 || heads * 4 >= heads.div_ceil(threads) * threads * 3;
        let narrow = usize::from(!blocks.is_f32());
        let (kept, rows) = (if whole { p.tk } else { KEYS }, p.d.max(p.dv));
        let mut pieces = ScratchLayout::default();
        let place = ScratchOffsets {
            qt: pieces.take(w * p.d),
            dot: pieces.take(w * p.dv),
            scores: pieces.take(w * KEYS),
            ds: pieces.take(w * KEYS),
            tanh: pieces.take(usize::from(p.softcap.is_some()) * w * KEYS),
            dq: pieces.take(w * p.d),
            q: pieces.take(narrow * w * rows),
            out: pieces.take(narrow * w * p.dv),
            dout: pieces.take(narrow * w * p.dv),
            k: pieces.take(narrow * KEYS * p.d),
            v: pieces.take(narrow * KEYS * p.dv),
            dk: pieces.take(narrow * kept * p.d),
            dv: pieces.take(narrow * kept * p.dv),
        };
        Backward { each: pieces.floats(), blocks, place, threads, whole }
    }

    /// # Safety
    /// The operands and results are those of the problem, only this part writes its results, and the scratch is this
    /// worker's.
    unsafe fn part(&self, args: &[*const u8], outs: &[*mut u8], part: &BackwardTask, scratch: *mut f32) {
        let (b, p) = (&self.blocks, &self.blocks.problem);
        let first = part.key_blocks.start * KEYS;
        let keys = (part.key_blocks.end * KEYS).min(p.tk).saturating_sub(first);
        let row = part.head * p.tk + first;
        // SAFETY: the operands and results are those of the problem and the scratch is this worker's.
        unsafe {
            let (dk, dv) = if b.is_f32() {
                (outs[1].cast::<f32>().add(row * p.d), outs[2].cast::<f32>().add(row * p.dv))
            } else {
                (scratch.add(self.place.dk), scratch.add(self.place.dv))
            };
            if part.keys {
                std::ptr::write_bytes(dk, 0, keys * p.d);
                std::ptr::write_bytes(dv, 0, keys * p.dv);
            }
            for block in part.query_blocks.clone() {
                let q = b.queries(args, part.head, block);
                let met = b.key_blocks(&q.keys);
                let met = met.start.max(part.key_blocks.start)..met.end.min(part.key_blocks.end);
                if part.queries || !met.is_empty() {
                    self.block(args, outs, part, &q, met, (dk, dv, first), scratch);
                }
            }
            if part.keys && !b.is_f32() {
                b.store_rounded(dk, outs[1], row * p.d, keys * p.d);
                b.store_rounded(dv, outs[2], row * p.dv, keys * p.dv);
            }
        }
    }

    /// Processes a block of queries with blocks of keys. `dk` and `dv` begin at key `origin`.
    ///
    /// # Safety
    /// The operands and results are those of the problem, only this part writes its results, and the scratch is this
    /// worker's.
    #[expect(clippy::too_many_arguments, reason = "one call site, which has all of it at hand")]
    unsafe fn block(
        &self,
        args: &[*const u8],
        outs: &[*mut u8],
        part: &BackwardTask,
        q: &QueryBlock,
        met: Range<usize>,
        (dk, dv, origin): (*mut f32, *mut f32, usize),
        scratch: *mut f32,
    ) {
        let (b, p, w) = (&self.blocks, &self.blocks.problem, self.blocks.width);
        let first_row = q.head * p.rows() + q.row0;
        // SAFETY: as in `part`.
        unsafe {
            let at = |place: usize| scratch.add(place);
            let (qt, dot, dqt) = (at(self.place.qt), at(self.place.dot), at(self.place.dq));
            let rows = b.upcast_rows(args[0], first_row * p.d, q.rows * p.d, at(self.place.q));
            b.transposed(rows, q.rows, p.d, qt);
            let results = &args[p.operands..];
            let out = b.upcast_rows(results[0], first_row * p.dv, q.rows * p.dv, at(self.place.out));
            let dout = b.upcast_rows(results[2], first_row * p.dv, q.rows * p.dv, at(self.place.dout));
            b.transposed(dout, q.rows, p.dv, dot);
            let (mut lse, mut row) = (PerLane::new(0.0), PerLane::new(0.0));
            for i in 0..q.rows {
                let l = *results[1].cast::<f32>().add(first_row + i);
                if l != f32::NEG_INFINITY {
                    lse.0[i] = l;
                    let delta = (b.loops.dot)(out.add(i * p.dv), dout.add(i * p.dv), p.dv);
                    row.0[i] = *results[3].cast::<f32>().add(first_row + i) - delta;
                }
            }
            let tanh = if p.softcap.is_some() { at(self.place.tanh) } else { std::ptr::null_mut() };
            let mut begun = false;
            for block in met {
                let first = (block * KEYS).max(q.keys.start);
                let keys = ((block + 1) * KEYS).min(q.keys.end) - first;
                let s = Scores { at: at(self.place.scores), keys, width: w, first };
                let ds = Scores { at: at(self.place.ds), ..s };
                let row0 = q.head * p.tk + first;
                let k = b.upcast_rows(args[1], row0 * p.d, keys * p.d, at(self.place.k));
                let v = b.upcast_rows(args[2], row0 * p.dv, keys * p.dv, at(self.place.v));
                b.scores(args, q, (k, qt), s, tanh);
                b.dot_block(v, dot, p.dv, ds, 1.0);
                (b.loops.gradient)(s, ds.at, &lse, &row, tanh);
                if part.keys {
                    b.accumulate_block(s, q.rows, dout, p.dv, dv.add((first - origin) * p.dv), 1.0);
                    b.accumulate_block(ds, q.rows, rows, p.d, dk.add((first - origin) * p.d), p.scale);
                }
                if part.queries {
                    b.gather(k, p.d, ds, dqt, p.scale, begun);
                }
                begun = true;
            }
            if !part.queries {
                return;
            }
            if !begun {
                std::ptr::write_bytes(dqt, 0, w * p.d);
            }
            if b.is_f32() {
                (b.loops.transpose)(outs[0].cast::<f32>().add(first_row * p.d), p.d, dqt, w, p.d, q.rows);
            } else {
                (b.loops.transpose)(at(self.place.q), p.d, dqt, w, p.d, q.rows);
                b.store_rounded(at(self.place.q), outs[0], first_row * p.d, q.rows * p.d);
            }
        }
    }
}

impl OpRoutine for Backward {
    fn scratch_bytes(&self) -> usize {
        self.each * 4 * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let scratch = SharedPtr(scratch.cast::<f32>());
        let (args, outs) = (Pointers(args), Pointers(outs));
        let (heads, queries) = (self.blocks.problem.heads(), self.blocks.query_blocks());
        let keys = self.blocks.problem.tk.div_ceil(KEYS);
        let all =
            |head| BackwardTask { head, key_blocks: 0..keys, query_blocks: 0..queries, keys: true, queries: true };
        let one = |part: &BackwardTask, worker: usize| {
            // SAFETY: a part writes the cotangents of its own keys and queries; a worker has its own scratch.
            unsafe { self.part(args.get(), outs.get(), part, scratch.at(worker * self.each)) }
        };
        if self.whole {
            pool.run(heads, &|head, worker| one(&all(head), worker));
            return Ok(());
        }
        pool.run(heads * keys, &|i, worker| {
            let block = balanced_block(i % keys, keys);
            one(&BackwardTask { key_blocks: block..block + 1, queries: false, ..all(i / keys) }, worker);
        });
        pool.run(heads * queries, &|i, worker| {
            let block = balanced_block(i % queries, queries);
            one(&BackwardTask { query_blocks: block..block + 1, keys: false, ..all(i / queries) }, worker);
        });
        Ok(())
    }
}
