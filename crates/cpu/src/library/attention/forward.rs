//! Attention forward: each block of queries processes its keys with an online softmax.

use super::super::{CpuContext, OpRoutine, Pointers, SharedPtr};
use super::block::{BlockPlan, KEYS, QueryBlock, ScratchLayout, balanced_block};
use super::lanes::{PerLane, Scores, SoftmaxState};
use super::problem::AttentionProblem;
use crate::pool::ThreadPool;
use compiler::Result;

/// The forward routine of attention.
pub(super) struct Forward {
    blocks: BlockPlan,
    place: ScratchOffsets,
    /// The number of f32 of scratch per worker.
    each: usize,
    threads: usize,
}

/// The offsets within a worker's scratch.
struct ScratchOffsets {
    qt: usize,
    scores: usize,
    out: usize,
    rows: usize,
    k: usize,
    v: usize,
}

impl Forward {
    pub(super) fn new(problem: AttentionProblem, machine: CpuContext) -> Forward {
        let blocks = BlockPlan::new(problem, 1, KEYS, machine.isa);
        let (p, w) = (&blocks.problem, blocks.width);
        let narrow = usize::from(!blocks.is_f32());
        let mut pieces = ScratchLayout::default();
        let place = ScratchOffsets {
            qt: pieces.take(w * p.d),
            scores: pieces.take(w * blocks.keys),
            out: pieces.take(w * p.dv),
            rows: pieces.take(narrow * w * p.d.max(p.dv)),
            k: pieces.take(narrow * blocks.keys * p.d),
            v: pieces.take(narrow * blocks.keys * p.dv),
        };
        Forward { each: pieces.floats(), blocks, place, threads: machine.threads }
    }

    /// # Safety
    /// The operands and results are those of the problem, and the scratch is this worker's.
    unsafe fn block(&self, args: &[*const u8], outs: &[*mut u8], q: &QueryBlock, scratch: *mut f32) {
        let (b, p, w) = (&self.blocks, &self.blocks.problem, self.blocks.width);
        // SAFETY: the operands and results are those of the problem and the scratch is this worker's.
        unsafe {
            let at = |place: usize| scratch.add(place);
            let (qt, acc) = (at(self.place.qt), at(self.place.out));
            let first_row = q.head * p.rows() + q.row0;
            let rows = b.upcast_rows(args[0], first_row * p.d, q.rows * p.d, at(self.place.rows));
            b.transposed(rows, q.rows, p.d, qt);
            let mut state = SoftmaxState {
                max: PerLane::new(f32::NEG_INFINITY),
                sum: PerLane::new(0.0),
                correction: PerLane::new(1.0),
                corrects: false,
            };
            let mut begun = false;
            for block in b.key_blocks(&q.keys) {
                let first = (block * b.keys).max(q.keys.start);
                let keys = ((block + 1) * b.keys).min(q.keys.end) - first;
                let s = Scores { at: at(self.place.scores), keys, width: w, first };
                let row = q.head * p.tk + first;
                let k = b.upcast_rows(args[1], row * p.d, keys * p.d, at(self.place.k));
                b.scores(args, q, (k, qt), s, std::ptr::null_mut());
                (b.loops.softmax)(s, &mut state);
                if begun && state.corrects {
                    (b.loops.scale)(Scores { at: acc, keys: p.dv, width: w, first: 0 }, &state.correction);
                }
                let v = b.upcast_rows(args[2], row * p.dv, keys * p.dv, at(self.place.v));
                b.gather(v, p.dv, s, acc, 1.0, begun);
                begun = true;
            }
            if !begun {
                std::ptr::write_bytes(acc, 0, w * p.dv);
            }
            // A row that saw no keys has sum 0 and weighted values 0.
            let mut inverse = PerLane::new(1.0);
            let lse = outs[1].cast::<f32>().add(first_row);
            for i in 0..q.rows {
                let sum = state.sum.0[i];
                let seen = sum != 0.0;
                inverse.0[i] = if seen { 1.0 / sum } else { 0.0 };
                *lse.add(i) = if seen { state.max.0[i] + sum.ln() } else { f32::NEG_INFINITY };
            }
            (b.loops.scale)(Scores { at: acc, keys: p.dv, width: w, first: 0 }, &inverse);
            if b.is_f32() {
                let to = outs[0].cast::<f32>().add(first_row * p.dv);
                (b.loops.transpose)(to, p.dv, acc, w, p.dv, q.rows);
            } else {
                (b.loops.transpose)(at(self.place.rows), p.dv, acc, w, p.dv, q.rows);
                b.store_rounded(at(self.place.rows), outs[0], first_row * p.dv, q.rows * p.dv);
            }
        }
    }
}

impl OpRoutine for Forward {
    fn scratch_bytes(&self) -> usize {
        self.each * 4 * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let scratch = SharedPtr(scratch.cast::<f32>());
        let (args, outs) = (Pointers(args), Pointers(outs));
        let n = self.blocks.query_blocks();
        pool.run(self.blocks.problem.heads() * n, &|part, worker| {
            let (args, outs) = (args.get(), outs.get());
            // SAFETY: a part writes the results of its own queries; a worker has its own scratch.
            unsafe {
                let q = self.blocks.queries(args, part / n, balanced_block(part % n, n));
                self.block(args, outs, &q, scratch.at(worker * self.each));
            }
        });
        Ok(())
    }
}
