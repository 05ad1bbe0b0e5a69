//! The verifier of programs: proves that every access of every step is inside its buffer, for all input values.
//!
//! Steps state which bytes they access: copies, matrix products with their strides, library ops by their types. For kernels,
//! including prologues and epilogues of matrix products, `bounds` proves the indices. The verifier also checks these invariants
//! of devices:
//!
//! - inputs and constants are not written, because several runs may read them concurrently;
//! - the outputs of a library op do not overlap its inputs, so that an index cannot change after the routine has checked it;
//! - addresses are multiples of their element sizes;
//! - the strides of a buffer slice belong to loops around its step.

mod bounds;

use crate::loops::{AccessMode, Buffer, Kernel};
use crate::plan::ALIGN;
use crate::program::{
    BufferId, BufferKind, BufferRef, BufferSlice, Epilogue, KernelArg, LoopStep, Matmul, MatmulOperand, ProgramParts,
    Prologue, Step, TripCount,
};
use crate::{Error, Result};
use bounds::Tile;
use ir::{DType, Op, Type};
use rustc_hash::FxHashSet;

/// The error message, without the step.
type Check = std::result::Result<(), String>;

/// The maximum bytes of a program's arena, of a worker's scratch, and of products of sizes, so that sums with them do not overflow.
const MAX_BYTES: usize = isize::MAX as usize >> 8;

/// Proves that all accesses of a run of the program are inside its buffers.
pub(crate) fn verify(p: &ProgramParts) -> Result<()> {
    header(p).map_err(Error::Program)?;
    let mut v = Verifier { p, loops: vec![None; p.max_loop_depth.min(u8::MAX.into())], path: Vec::new(), dead: false };
    v.steps(&p.steps)
}

/// Checks that types, buffers and donations are consistent.
fn header(p: &ProgramParts) -> Check {
    if p.arena_bytes > MAX_BYTES {
        return Err(format!("an arena of {} bytes", p.arena_bytes));
    }
    let types = p.inputs.iter().chain(&p.outputs).chain(p.buffers.iter().map(|b| &b.ty));
    types.map(checked).collect::<Check>()?;
    for (i, b) in p.buffers.iter().enumerate() {
        let fits = match &b.kind {
            BufferKind::Input(n) => p.inputs.get(*n) == Some(&b.ty),
            BufferKind::Output(n) => p.outputs.get(*n) == Some(&b.ty),
            BufferKind::Constant(l) => *l.ty() == b.ty,
            BufferKind::Activation => {
                let end = b.offset.checked_add(b.ty.bytes());
                b.lifetime.is_none() || (b.offset.is_multiple_of(ALIGN) && end.is_some_and(|end| end <= p.arena_bytes))
            }
        };
        if !fits {
            return Err(format!("b{i} doesn't fit its input, output, constant or place in the arena"));
        }
    }
    let (mut inputs, mut outputs) = (FxHashSet::default(), FxHashSet::default());
    for &(i, o) in &p.donated {
        let again = !inputs.insert(i) || !outputs.insert(o);
        if i >= p.inputs.len() || p.inputs.get(i) != p.outputs.get(o) || again {
            return Err(format!("input {i} can't be donated to output {o}"));
        }
    }
    Ok(())
}

fn checked(ty: &Type) -> Check {
    Type::checked(ty.dtype, &ty.shape).map(drop).map_err(|e| e.to_string())
}

struct Verifier<'a> {
    p: &'a ProgramParts,
    /// For each depth the last index of the open loop; the maximum value if it is unbounded.
    loops: Vec<Option<i64>>,
    /// The numbers of the enclosing steps.
    path: Vec<usize>,
    /// Set in a loop without iterations: only whole constants are checked, because they may be packed when the program is loaded.
    dead: bool,
}

impl Verifier<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<()> {
        for (i, step) in steps.iter().enumerate() {
            self.path.push(i);
            match step {
                Step::Loop(l) => self.loop_(l)?,
                Step::Branch { index, branches } => {
                    self.check_access(index, 0, 4, 1, false).map_err(|e| self.fault(step, e))?;
                    branches.iter().try_for_each(|b| self.steps(b))?;
                }
                _ => self.verify_step(step).map_err(|e| self.fault(step, e))?,
            }
            self.path.pop();
        }
        Ok(())
    }

    fn fault(&self, step: &Step, what: String) -> Error {
        let path: Vec<String> = self.path.iter().map(usize::to_string).collect();
        Error::Program(format!("step {} ({}): {what}", path.join("."), step.label()))
    }

    fn loop_(&mut self, l: &LoopStep) -> Result<()> {
        let whole = |v: &Self, e: String| {
            let path: Vec<String> = v.path.iter().map(usize::to_string).collect();
            Error::Program(format!("step {} (loop): {e}", path.join(".")))
        };
        match self.loops.get(l.depth) {
            Some(None) => {}
            _ => {
                return Err(whole(
                    self,
                    format!("level {} is another loop's, or deeper than the program says", l.depth),
                ));
            }
        }
        let (most, count) = match &l.trip_count {
            TripCount::Exact(n) => (*n, None),
            TripCount::Bounded { bound, count } => (*bound, Some(count)),
            TripCount::While { .. } => (usize::MAX, None),
        };
        if let Some(count) = count {
            self.check_access(count, 0, 4, 1, false).map_err(|e| whole(self, e))?;
        }
        let outer = self.dead;
        self.dead |= most == 0;
        self.loops[l.depth] = Some(i64::try_from(most).unwrap_or(i64::MAX).saturating_sub(1).max(0));
        if let TripCount::While { test, flag } = &l.trip_count {
            self.steps(test)?;
            self.check_access(flag, 0, 1, 1, false).map_err(|e| whole(self, e))?;
        }
        self.steps(&l.body)?;
        self.loops[l.depth] = None;
        self.dead = outer;
        for (from, to, bytes) in &l.copies_after {
            self.copy(from, to, *bytes).map_err(|e| whole(self, e))?;
        }
        Ok(())
    }

    fn copy(&self, from: &BufferSlice, to: &BufferSlice, bytes: usize) -> Check {
        self.check_access(from, 0, bytes as i128, 1, false)?;
        self.check_access(to, 0, bytes as i128, 1, true)
    }

    fn verify_step(&self, step: &Step) -> Check {
        match step {
            Step::Kernel { kernel, args, parallel } => self.kernel(kernel, args, *parallel),
            Step::Matmul { shape, a, b, c, epilogue } => self.matmul(shape, [a, b], c.as_ref(), epilogue.as_ref()),
            Step::Library { op, args, outs } => self.library(op, args, outs),
            Step::Copy { from, to, bytes } => self.copy(from, to, *bytes),
            Step::Zero { to, bytes } => self.check_access(to, 0, *bytes as i128, 1, true),
            Step::Loop(_) | Step::Branch { .. } => Ok(()),
        }
    }

    /// The range of byte offsets of a slice in its buffer, given the enclosing loops.
    fn span(&self, place: &BufferSlice) -> std::result::Result<(i128, i128), String> {
        const FAR: i128 = 1 << 62;
        let (mut lo, mut hi) = (place.offset as i128, place.offset as i128);
        for (level, stride) in &place.strides {
            let last = match self.loops.get(*level) {
                Some(Some(last)) => *last,
                _ => return Err(format!("{place} varies with a loop that isn't around it")),
            };
            let reach = last as i128 * *stride as i128;
            (lo, hi) = (lo + reach.min(0), hi + reach.max(0));
            // The sum is computed from left to right in 64 bits.
            if lo < -FAR || hi > FAR {
                return Err(format!("{place} is outside of its buffer"));
            }
        }
        Ok((lo, hi))
    }

    /// The buffers of a slice, and the size of the smallest in bytes. Double buffers have equal sizes.
    fn buffers(&self, place: &BufferSlice, write: bool) -> std::result::Result<usize, String> {
        if let BufferRef::DoubleBuffered(level, ..) = place.buffer
            && level >= self.loops.len()
        {
            return Err(format!("{place} follows a loop that the program doesn't have"));
        }
        let mut bytes = None;
        for id in place.buffers() {
            let buffer = self.p.buffers.get(id.0 as usize).ok_or_else(|| format!("{place} is no buffer"))?;
            match buffer.kind {
                BufferKind::Input(_) | BufferKind::Constant(_) if write => {
                    return Err(format!("b{} is written, and is an input or a constant", id.0));
                }
                BufferKind::Activation if buffer.lifetime.is_none() => {
                    return Err(format!("b{} is used, and has no place in the arena", id.0));
                }
                _ => {}
            }
            if bytes.is_some_and(|bytes| bytes != buffer.ty.bytes()) {
                return Err(format!("{place} takes turns between buffers of different sizes"));
            }
            bytes = Some(buffer.ty.bytes());
        }
        bytes.ok_or_else(|| format!("{place} is no buffer"))
    }

    /// Whether no step at this point accesses a slice.
    fn never_accessed(&self, place: &BufferSlice) -> bool {
        let constant = |id: BufferId| matches!(self.p.buffers[id.0 as usize].kind, BufferKind::Constant(_));
        self.dead && !(place.strides.is_empty() && place.buffers().any(constant))
    }

    /// Checks that the bytes `from..to` of a slice, relative to its start, are inside its buffers, and that elements of `size`
    /// bytes are aligned.
    fn check_access(&self, place: &BufferSlice, from: i128, to: i128, size: usize, write: bool) -> Check {
        let bytes = self.buffers(place, write)?;
        let (lo, hi) = self.span(place)?;
        if self.never_accessed(place) {
            return Ok(());
        }
        if lo < 0 || hi > bytes as i128 || (from < to && (lo + from < 0 || hi + to > bytes as i128)) {
            let (b, what) = (place, if write { "written" } else { "read" });
            return Err(format!("{b} is {what} from byte {} to {}, and has {bytes}", lo + from.min(0), hi + to));
        }
        self.is_aligned(place, size)
    }

    /// Checks that addresses are multiples of the element size; buffers of the caller are aligned to their own dtype.
    fn is_aligned(&self, place: &BufferSlice, size: usize) -> Check {
        let multiple = |n: i64| n.unsigned_abs().is_multiple_of(size as u64);
        let base = |id: BufferId| match &self.p.buffers[id.0 as usize] {
            b if matches!(b.kind, BufferKind::Input(_) | BufferKind::Output(_)) => b.ty.dtype.size(),
            _ => ALIGN,
        };
        let fits = place.buffers().all(|id| base(id).is_multiple_of(size))
            && multiple(place.offset)
            && place.strides.iter().all(|(_, s)| multiple(*s));
        if fits { Ok(()) } else { Err(format!("{place} is not aligned to elements of {size} bytes")) }
    }

    /// The number of elements of a kernel's buffer that are accessible in every iteration of the enclosing loops.
    fn elements(&self, place: &BufferSlice, buffer: &Buffer) -> std::result::Result<i64, String> {
        let size = buffer.dtype.size();
        let bytes = self.buffers(place, buffer.mode != AccessMode::Read)?;
        let (lo, hi) = self.span(place)?;
        if self.never_accessed(place) {
            return Ok(0);
        }
        if lo < 0 || hi > bytes as i128 {
            return Err(format!("{place} is outside of its buffer of {bytes} bytes"));
        }
        self.is_aligned(place, size)?;
        Ok(((bytes as i128 - hi) / size as i128) as i64)
    }

    fn kernel(&self, kernel: &Kernel, args: &[KernelArg], parallel: Option<i64>) -> Check {
        bounds::valid(kernel)?;
        if args.len() != kernel.buffers.len() {
            return Err(format!("{} arguments for {} buffers", args.len(), kernel.buffers.len()));
        }
        let own = match &kernel.body[..] {
            [crate::loops::Stmt::Loop(l)] if l.kind == crate::loops::LoopKind::Parallel => match l.extent {
                crate::loops::Extent::Exact(crate::loops::Size::Const(n)) => Some(n),
                _ => return Err("a parallel loop whose count is not known".into()),
            },
            _ => None,
        };
        if own != parallel || own.is_some_and(|n| n < 0) {
            return Err(format!("{parallel:?} parallel iterations are run of a kernel that has {own:?}"));
        }
        let (mut limits, mut scratch) = (Vec::with_capacity(args.len()), 0usize);
        for (arg, buffer) in args.iter().zip(&kernel.buffers) {
            limits.push(match (arg, buffer.mode) {
                (KernelArg::Scratch(bytes), AccessMode::Scratch(elements)) => {
                    let size = buffer.dtype.size();
                    scratch = scratch.saturating_add(*bytes).saturating_add(ALIGN);
                    if scratch > MAX_BYTES || elements.checked_mul(size).is_none_or(|n| n > *bytes) {
                        return Err(format!("{bytes} bytes of scratch for {elements} elements of {size}"));
                    }
                    (bytes / size) as i64
                }
                (KernelArg::Place(place), AccessMode::Read | AccessMode::Write | AccessMode::ReadWrite) => {
                    self.elements(place, buffer)?
                }
                _ => return Err("memory where the kernel has scratch, or scratch where it has memory".into()),
            });
        }
        if self.dead {
            return Ok(());
        }
        bounds::is_in_bounds(kernel, &limits, None).map_err(|o| {
            let arg = match args.get(o.buf.0 as usize) {
                Some(KernelArg::Place(place)) => place.to_string(),
                _ => "scratch".to_string(),
            };
            outside(&o, &arg, &limits)
        })
    }

    /// Checks a kernel over blocks or tiles of a matrix product; `written` states whether its first buffer is written.
    fn tile(&self, kernel: &Kernel, args: &[BufferSlice], tile: Tile, (dtype, written): (DType, bool)) -> Check {
        bounds::valid(kernel)?;
        let Some((first, others)) = kernel.buffers.split_first() else {
            return Err("a tile's kernel without a tile".into());
        };
        let mode = if written { first.mode == AccessMode::Write } else { first.mode != AccessMode::Write };
        if first.dtype != dtype || !mode || matches!(first.mode, AccessMode::Scratch(_)) || kernel.sizes != 6 {
            return Err(format!("{} doesn't fit tiles of {dtype}", kernel.name));
        }
        let alone =
            matches!(&kernel.body[..], [crate::loops::Stmt::Loop(l)] if l.kind == crate::loops::LoopKind::Parallel);
        if others.len() != args.len() || alone || others.iter().any(|b| matches!(b.mode, AccessMode::Scratch(_))) {
            return Err(format!("wrong arguments for {}", kernel.name));
        }
        let mut limits = vec![0];
        for (place, buffer) in args.iter().zip(others) {
            limits.push(self.elements(place, buffer)?);
        }
        // A matrix without elements has no tiles.
        if self.dead || tile.batch == 0 || tile.rows == 0 || tile.cols == 0 {
            return Ok(());
        }
        bounds::is_in_bounds(kernel, &limits, Some(tile)).map_err(|o| {
            let arg = match o.buf.0 {
                0 => "its tile".to_string(),
                n => args.get(n as usize - 1).map_or("an index".into(), BufferSlice::to_string),
            };
            format!("{}: {}", kernel.name, outside(&o, &arg, &limits))
        })
    }

    fn matmul(
        &self,
        s: &Matmul,
        factors: [&MatmulOperand; 2],
        c: Option<&BufferSlice>,
        epilogue: Option<&Epilogue>,
    ) -> Check {
        let sizes = [s.batch, s.m, s.n, s.k].map(|n| n.max(1));
        let work = sizes.iter().try_fold(16usize, |n, s| n.checked_mul(*s)).filter(|n| *n <= MAX_BYTES);
        let far = |stride: &isize| stride.unsigned_abs() > MAX_BYTES;
        if work.is_none() || s.a.iter().chain(&s.b).any(far) {
            return Err(format!("a product of {}×[{}·{}·{}]", s.batch, s.m, s.k, s.n));
        }
        let [m, k, n, batch] = [s.m, s.k, s.n, s.batch].map(|n| n as i64);
        let shapes = [([s.batch, s.m, s.k], s.a, (m, k)), ([s.batch, s.k, s.n], s.b, (k, n))];
        for (factor, (sizes, strides, (rows, cols))) in factors.into_iter().zip(shapes) {
            match factor {
                MatmulOperand::Memory(place) => {
                    let size = s.dtype.size() as i128;
                    let (lo, hi) = matmul_access_range(sizes, strides);
                    self.check_access(place, lo * size, hi * size, s.dtype.size(), false)?;
                }
                MatmulOperand::Computed(c) => {
                    let Prologue { kernel, args } = &**c;
                    self.tile(kernel, args, Tile { batch, rows, cols, whole_rows: false }, (s.dtype, true))?;
                }
            }
        }
        match (c, epilogue) {
            (_, Some(e)) => {
                let tile = Tile { batch, rows: m, cols: n, whole_rows: e.needs_full_rows };
                self.tile(&e.kernel, &e.args, tile, (accumulator(s.dtype), false))
            }
            (Some(c), None) => {
                let dense = [s.m * s.n, s.n, 1].map(|n| n as isize);
                if s.c != dense {
                    return Err("the result of a product is not dense".into());
                }
                let bytes = (s.batch * s.m * s.n * s.out.size()) as i128;
                self.check_access(c, 0, bytes, s.out.size(), true)
            }
            (None, None) => Err("a product without a result".into()),
        }
    }

    fn library(&self, op: &Op, args: &[(BufferSlice, Type)], outs: &[(BufferSlice, Type)]) -> Check {
        for (list, write) in [(args, false), (outs, true)] {
            for (place, ty) in list {
                checked(ty)?;
                self.check_access(place, 0, ty.bytes() as i128, ty.dtype.size(), write)?;
            }
        }
        for (o, (to, ty)) in outs.iter().enumerate().filter(|_| !self.dead) {
            // A scatter may change its first operand in place.
            let over = matches!(op, Op::Scatter(_)) && o == 0;
            let others =
                args.iter().enumerate().filter(|(i, (from, t))| !(over && *i == 0 && t == ty && self.one(from, to)));
            let before = outs[..o].iter();
            if let Some((from, _)) = others
                .map(|(_, a)| a)
                .chain(before)
                .find(|(from, t)| self.may_overlap((from, t.bytes()), (to, ty.bytes())))
            {
                return Err(format!("{to} is written, and {from} is the same memory"));
            }
        }
        Ok(())
    }

    /// Whether two slices are the same: the same buffer, or an input and the output that it is donated to.
    fn one(&self, a: &BufferSlice, b: &BufferSlice) -> bool {
        let (BufferRef::Fixed(x), BufferRef::Fixed(y)) = (a.buffer, b.buffer) else { return a == b };
        let rest = a.offset == b.offset && a.strides == b.strides;
        rest && (x == y || self.donated(x, y))
    }

    fn donated(&self, x: BufferId, y: BufferId) -> bool {
        match (&self.p.buffers[x.0 as usize].kind, &self.p.buffers[y.0 as usize].kind) {
            (BufferKind::Input(i), BufferKind::Output(o)) | (BufferKind::Output(o), BufferKind::Input(i)) => {
                self.p.donated.contains(&(*i, *o))
            }
            _ => false,
        }
    }

    /// Whether the bytes of two slices may overlap.
    fn may_overlap(&self, (a, m): (&BufferSlice, usize), (b, n): (&BufferSlice, usize)) -> bool {
        if m == 0 || n == 0 {
            return false;
        }
        let levels = [a, b].map(|p| match p.buffer {
            BufferRef::Fixed(_) => None,
            BufferRef::DoubleBuffered(level, ..) => Some(level),
        });
        let of = |p: &BufferSlice, odd: bool| match p.buffer {
            BufferRef::Fixed(id) => id,
            BufferRef::DoubleBuffered(_, x, y) => {
                if odd {
                    y
                } else {
                    x
                }
            }
        };
        let turns: &[(bool, bool)] = match levels {
            [Some(x), Some(y)] if x == y => &[(false, false), (true, true)],
            _ => &[(false, false), (false, true), (true, false), (true, true)],
        };
        turns.iter().any(|&(odd, other)| self.overlap((a, of(a, odd), m), (b, of(b, other), n)))
    }

    fn overlap(&self, (a, x, m): (&BufferSlice, BufferId, usize), (b, y, n): (&BufferSlice, BufferId, usize)) -> bool {
        let (p, q) = (&self.p.buffers[x.0 as usize], &self.p.buffers[y.0 as usize]);
        if x == y || self.donated(x, y) {
            let apart = a.strides == b.strides
                && (a.offset as i128 + m as i128 <= b.offset as i128
                    || b.offset as i128 + n as i128 <= a.offset as i128);
            return !apart;
        }
        match (&p.kind, &q.kind) {
            (BufferKind::Activation, BufferKind::Activation) => {
                p.offset < q.offset + q.ty.bytes() && q.offset < p.offset + p.ty.bytes()
            }
            (BufferKind::Input(i), BufferKind::Input(j)) | (BufferKind::Output(i), BufferKind::Output(j)) => i == j,
            _ => false,
        }
    }
}

/// The accumulator dtype of matrix products of a dtype, which is also the dtype of tiles.
fn accumulator(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        DType::I8 | DType::I32 => DType::I32,
        _ => DType::F32,
    }
}

/// The range of elements that a matrix product reads of an operand; the end is exclusive.
fn matmul_access_range(sizes: [usize; 3], strides: [isize; 3]) -> (i128, i128) {
    if sizes.contains(&0) {
        return (0, 0);
    }
    let ends = sizes.into_iter().zip(strides).map(|(n, s)| (n as i128 - 1) * s as i128);
    let (lo, hi) = ends.fold((0, 0), |(lo, hi): (i128, i128), end| (lo + end.min(0), hi + end.max(0)));
    (lo, hi + 1)
}

fn outside(o: &bounds::OutOfBounds, arg: &str, limits: &[i64]) -> String {
    let what = if o.store { "written" } else { "read" };
    let limit = limits.get(o.buf.0 as usize).copied().unwrap_or(0);
    format!("{arg} (buffer {}) is {what} at {}, which can't be shown to be below {limit}", o.buf.0, o.index)
}
