//! Bounds of the indices of a kernel: intervals of registers, and inequalities between linear forms.
//!
//! An inequality is a form that is never negative. Inequalities come from loop bounds, minima, maxima, quotients, and the
//! mask of an access. A form is bounded by its interval, or by the interval of its sum with a multiple of an inequality that
//! cancels one of its roots; a short chain of inequalities is sufficient for the kernels that the compiler generates. The bound
//! is for the form as a whole number: the address is equal to it modulo 2⁶⁴, so partial sums may wrap.

use crate::loops::index_analysis::{IndexAnalysis, IndexVar, LaunchInfo, Linear, MemoryAccess};
use crate::loops::range::IntRange;
use crate::loops::{self, AccessMode, Atom, Buf, Extent, Index, Kernel, Loop, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::{Binary, Compare, DType, Unary};
use std::cell::Cell;

/// The block or tile of a matrix product that a kernel runs over: its first buffer, whose rows and columns are given by six size
/// arguments.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) batch: i64,
    /// The number of rows of the whole matrix.
    pub(super) rows: i64,
    pub(super) cols: i64,
    /// Each tile has all columns.
    pub(super) whole_rows: bool,
}

/// The size arguments of a tile's kernel, as registers of the kernel that is verified.
struct TileArguments {
    tile: Tile,
    /// Batch entry, first row, first column, rows, columns.
    regs: [Reg; 5],
    /// Loops over the tile's rows and columns.
    loops: Vec<(Var, Reg)>,
}

const ROWS: usize = 3;
const COLS: usize = 4;
const STRIDE: u32 = 5;

/// An access that is not proved to be in bounds.
pub(super) struct OutOfBounds {
    pub(super) buf: Buf,
    pub(super) store: bool,
    pub(super) index: String,
}

/// The maximum number of inequalities that are chained for one bound.
const MAX_CHAINED_INEQUALITIES: usize = 5;
/// The maximum number of sums that are tried for one bound.
const MAX_SUMS: usize = 4000;

/// Checks that every access of a verified kernel to buffer `i` is to an element below `limits[i]`. With a tile, its buffer is
/// the first, and the limit of that buffer is ignored.
pub(super) fn is_in_bounds(kernel: &Kernel, limits: &[i64], tile: Option<Tile>) -> Result<(), OutOfBounds> {
    let unknown = |buf| OutOfBounds { buf, store: false, index: "an index with sizes that are not known".into() };
    let mut own = std::borrow::Cow::Borrowed(kernel);
    let mut arguments = None;
    match tile {
        Some(tile) => {
            let args = substitute(own.to_mut(), tile).map_err(unknown)?;
            arguments = Some(args);
        }
        None if kernel.sizes > 0 => return Err(unknown(Buf(0))),
        None => {}
    }
    let given = LaunchInfo::default();
    let known = arguments.as_ref().map_or(Vec::new(), |a| a.ranges());
    let facts = IndexAnalysis::with_ranges(&own, &given, &known);
    let mut prover = Prover { facts: &facts, always: Vec::new(), tries: Cell::new(0) };
    prover.definitions(&own, arguments.as_ref());
    for site in &facts.accesses {
        if site.loops.iter().any(|v| facts.vars[v.0 as usize].max_trip_count <= 0) {
            continue;
        }
        let limit = match (&arguments, site.buf) {
            (Some(a), Buf(0)) => UpperBound::BelowReg(a.regs[COLS]),
            (_, Buf(i)) => UpperBound::Number(limits.get(i as usize).copied().unwrap_or(0)),
        };
        if !prover.site(site, limit) {
            let index = site.form.as_ref().map_or("an index that overflows".into(), show);
            return Err(OutOfBounds { buf: site.buf, store: site.store, index });
        }
    }
    Ok(())
}

fn show(form: &Linear) -> String {
    let mut text = form.offset.to_string();
    for (root, stride) in &form.terms {
        match root {
            IndexVar::Var(v) => text += &format!(" + {stride}·v{}", v.0),
            IndexVar::Reg(r) => text += &format!(" + {stride}·r{}", r.0),
        }
    }
    text
}

impl TileArguments {
    fn ranges(&self) -> Vec<(Reg, IntRange)> {
        let Tile { batch, rows, cols, whole_rows } = self.tile;
        let first = |n: i64| IntRange::new(0, (n as i128 - 1).max(0));
        let columns = if whole_rows {
            (IntRange::single(0), IntRange::single(cols))
        } else {
            (first(cols), IntRange::new(1, cols as i128))
        };
        let of = [first(batch), first(rows), columns.0, IntRange::new(1, rows as i128), columns.1];
        self.regs.into_iter().zip(of).collect()
    }

    /// The first row plus the rows, and the first column plus the columns, do not exceed the size of the matrix.
    fn inequalities(&self) -> impl Iterator<Item = Linear> {
        let both = |first: Reg, count: Reg, of: i64| Linear {
            offset: of,
            terms: [(IndexVar::Reg(first), -1), (IndexVar::Reg(count), -1)].into(),
        };
        let ends =
            [both(self.regs[1], self.regs[ROWS], self.tile.rows), both(self.regs[2], self.regs[COLS], self.tile.cols)];
        let counts = self.loops.iter().map(|&(var, count)| Linear {
            offset: -1,
            terms: [(IndexVar::Reg(count), 1), (IndexVar::Var(var), -1)].into(),
        });
        ends.into_iter().chain(counts).collect::<Vec<_>>().into_iter()
    }
}

/// Turns the size arguments of a kernel over tiles into registers. The row stride occurs only in indices of the tile, for its
/// rows, and is removed there; the column remains.
fn substitute(kernel: &mut Kernel, tile: Tile) -> Result<TileArguments, Buf> {
    let first = kernel.regs.len() as u32;
    kernel.regs.extend([DType::I64; 5]);
    let regs = [0, 1, 2, 3, 4].map(|k| Reg(first + k));
    let mut a = TileArguments { tile, regs, loops: Vec::new() };
    a.block(&mut kernel.body)?;
    Ok(a)
}

impl TileArguments {
    fn block(&mut self, body: &mut [Stmt]) -> Result<(), Buf> {
        for s in body {
            match s {
                Stmt::Let { op: Op::Load { buf, index, .. }, .. } | Stmt::Store { buf, index, .. } => {
                    self.index(index, *buf)?;
                }
                Stmt::Let { op: Op::Index(index), .. } => self.index(index, Buf(u32::MAX))?,
                Stmt::Let { .. } => {}
                Stmt::Loop(l) => {
                    match &mut l.extent {
                        Extent::Exact(n) => match *n {
                            Size::Const(_) => {}
                            Size::Arg(k) if k as usize == ROWS || k as usize == COLS => {
                                self.loops.push((l.var, self.regs[k as usize]));
                                let most = if k as usize == ROWS { self.tile.rows } else { self.tile.cols };
                                *n = Size::Const(most);
                            }
                            Size::Arg(_) => return Err(Buf(0)),
                        },
                        Extent::Bounded { bound, buf, index } => {
                            self.index(index, *buf)?;
                            if matches!(bound, Size::Arg(_)) {
                                return Err(*buf);
                            }
                        }
                    }
                    self.block(&mut l.body)?;
                }
            }
        }
        Ok(())
    }

    fn index(&self, index: &mut Index, buf: Buf) -> Result<(), Buf> {
        for k in std::mem::take(&mut index.offset_args) {
            let r = self.regs.get(k as usize).ok_or(buf)?;
            index.terms.push((Atom::Reg(*r), Size::Const(1)));
        }
        let rows = |atom: &Atom| matches!(atom, Atom::Var(v) if self.loops.contains(&(*v, self.regs[ROWS])));
        let strides = index.terms.iter().filter(|(_, s)| matches!(s, Size::Arg(_))).count();
        match strides {
            0 if buf == Buf(0) && self.tile.rows > 1 => Err(buf),
            0 => Ok(()),
            1 if buf == Buf(0) => {
                let at = index.terms.iter().position(|(atom, s)| *s == Size::Arg(STRIDE) && rows(atom)).ok_or(buf)?;
                index.terms.remove(at);
                Ok(())
            }
            _ => Err(buf),
        }
    }
}

/// An exclusive upper bound of an index.
#[derive(Clone, Copy)]
enum UpperBound {
    Number(i64),
    /// The value of a register.
    BelowReg(Reg),
}

/// The facts that are known at a position of the kernel.
struct WalkState<'k, 'a> {
    ops: &'a mut [Option<&'k Op>],
    /// Scratch buffers whose first element is stored once in the kernel, earlier in this block or an enclosing one, and the
    /// stored value.
    counts: Vec<(Buf, Reg)>,
    /// Whether the position is inside a vector loop, where each lane has its own values.
    vector: bool,
}

struct Prover<'a> {
    facts: &'a IndexAnalysis<'a>,
    /// Inequalities that hold wherever their roots are defined.
    always: Vec<Linear>,
    tries: Cell<usize>,
}

impl Prover<'_> {
    fn site(&self, site: &MemoryAccess, end: UpperBound) -> bool {
        let Some(form) = &site.form else { return false };
        let mut inequalities = self.always.clone();
        if let Some(mask) = site.mask {
            self.mask(mask, false, &mut inequalities);
        }
        let mut above = Linear::default();
        if above.add(form, -1).is_none() {
            return false;
        }
        let (below, limit) = match end {
            UpperBound::Number(n) => (Some(form.clone()), n as i128 - 1),
            UpperBound::BelowReg(r) => (minus(form, &Linear::root(IndexVar::Reg(r))), -1),
        };
        let at_most = |form: &Linear, limit: i128| {
            self.tries.set(MAX_SUMS);
            self.at_most(form, &inequalities, limit, MAX_CHAINED_INEQUALITIES)
        };
        at_most(&above, 0) && below.is_some_and(|below| at_most(&below, limit))
    }

    /// Whether a form never exceeds a limit.
    fn at_most(&self, form: &Linear, inequalities: &[Linear], limit: i128, depth: usize) -> bool {
        if self.range(form).is_some_and(|r| r.hi <= limit) {
            return true;
        }
        if depth == 0 {
            return false;
        }
        for other in inequalities {
            for (root, own) in &form.terms {
                let Some(theirs) = other.terms.get(root) else { continue };
                if (*own > 0) == (*theirs > 0) || own % theirs != 0 {
                    continue;
                }
                if self.tries.get() == 0 {
                    return false;
                }
                self.tries.set(self.tries.get() - 1);
                let mut sum = form.clone();
                let times = own.checked_div(*theirs).and_then(i64::checked_neg);
                if times.and_then(|times| sum.add(other, times)).is_some()
                    && self.at_most(&sum, inequalities, limit, depth - 1)
                {
                    return true;
                }
            }
        }
        false
    }

    fn root(&self, root: IndexVar) -> IntRange {
        match root {
            IndexVar::Var(v) => self.facts.var_range(v),
            IndexVar::Reg(r) => self.facts.regs[r.0 as usize].range,
        }
    }

    /// The range of a form as a whole number.
    fn range(&self, form: &Linear) -> Option<IntRange> {
        let mut sum = IntRange::single(form.offset);
        for (root, stride) in &form.terms {
            let (r, s) = (self.root(*root), *stride as i128);
            let (a, b) = (r.lo.checked_mul(s)?, r.hi.checked_mul(s)?);
            sum = IntRange::new(sum.lo.checked_add(a.min(b))?, sum.hi.checked_add(a.max(b))?);
        }
        Some(sum)
    }

    /// The form that equals a register exactly, not only modulo 2⁶⁴.
    fn exact(&self, r: Reg) -> Option<&Linear> {
        let form = self.facts.regs[r.0 as usize].form.as_ref()?;
        self.range(form)?.is_within(IntRange::of_dtype(DType::I64)).then_some(form)
    }

    /// The inequalities that hold where a mask is true, or where it is false.
    fn mask(&self, r: Reg, negated: bool, found: &mut Vec<Linear>) {
        match self.facts.regs[r.0 as usize].test {
            Some(Op::Unary(Unary::Not, x)) => self.mask(x, !negated, found),
            Some(Op::Binary(Binary::And, a, b)) if !negated => {
                [a, b].into_iter().for_each(|x| self.mask(x, false, found))
            }
            Some(Op::Binary(Binary::Or, a, b)) if negated => [a, b].into_iter().for_each(|x| self.mask(x, true, found)),
            Some(Op::Compare(op, a, b)) => {
                let (Some(a), Some(b)) = (self.exact(a), self.exact(b)) else { return };
                let op = match (op, negated) {
                    (op, false) => op,
                    (Compare::Ge, true) => Compare::Lt,
                    (Compare::Gt, true) => Compare::Le,
                    (Compare::Le, true) => Compare::Gt,
                    (Compare::Lt, true) => Compare::Ge,
                    (Compare::Eq, true) => Compare::Ne,
                    (Compare::Ne, true) => Compare::Eq,
                };
                let mut push = |large, small, by| found.extend(difference_at_least(large, small, by));
                match op {
                    Compare::Ge => push(a, b, 0),
                    Compare::Gt => push(a, b, 1),
                    Compare::Le => push(b, a, 0),
                    Compare::Lt => push(b, a, 1),
                    Compare::Eq => {
                        push(a, b, 0);
                        push(b, a, 0);
                    }
                    Compare::Ne => {}
                }
            }
            _ => {}
        }
    }

    /// Collects the inequalities of all registers and loops.
    fn definitions(&mut self, kernel: &Kernel, arguments: Option<&TileArguments>) {
        let mut found = Vec::new();
        if let Some(a) = arguments {
            found.extend(a.inequalities());
        }
        let mut ops: Vec<Option<&Op>> = vec![None; kernel.regs.len()];
        self.walk(
            &kernel.body,
            kernel,
            &mut WalkState { ops: &mut ops, counts: Vec::new(), vector: false },
            &mut found,
        );
        self.always = found;
    }

    fn walk<'k>(&self, body: &'k [Stmt], kernel: &Kernel, w: &mut WalkState<'k, '_>, found: &mut Vec<Linear>) {
        let mark = w.counts.len();
        for s in body {
            match s {
                Stmt::Let { dst, op } => {
                    w.ops[dst.0 as usize] = Some(op);
                    self.definition(*dst, op, found);
                }
                Stmt::Store { buf, index, value, mask } => {
                    let private = matches!(kernel.buffers[buf.0 as usize].mode, AccessMode::Scratch(_));
                    let once = self.facts.accesses.iter().filter(|s| s.store && s.buf == *buf).count() == 1;
                    if private && once && !w.vector && mask.is_none() && *index == Index::default() {
                        w.counts.push((*buf, *value));
                    }
                }
                Stmt::Loop(l) => {
                    self.bounded(l, w, found);
                    let outer = w.vector;
                    w.vector |= l.kind == LoopKind::Vector;
                    self.walk(&l.body, kernel, w, found);
                    w.vector = outer;
                }
            }
        }
        w.counts.truncate(mark);
    }

    /// Collects the upper bounds of a loop's trip count.
    fn bounded(&self, l: &Loop, w: &WalkState<'_, '_>, found: &mut Vec<Linear>) {
        let Extent::Bounded { buf, index, .. } = &l.extent else { return };
        let Some((_, value)) = w.counts.iter().find(|c| c.0 == *buf) else { return };
        if *index != Index::default() {
            return;
        }
        let op = |r: Reg| w.ops[r.0 as usize];
        // A cast from i64 to i32 whose value fits.
        let Some(Op::Cast(DType::I32, wide)) = op(*value) else { return };
        if !self.facts.regs[wide.0 as usize].range.is_within(IntRange::of_dtype(DType::I32)) {
            return;
        }
        let var = Linear::root(IndexVar::Var(l.var));
        let mut open = vec![*wide];
        while let Some(r) = open.pop() {
            found.extend(self.exact(r).and_then(|count| difference_at_least(count, &var, 1)));
            if let Some(Op::Binary(Binary::Min, a, b)) = op(r) {
                open.extend([*a, *b]);
            }
        }
    }

    fn definition(&self, dst: Reg, op: &Op, found: &mut Vec<Linear>) {
        let own = Linear::root(IndexVar::Reg(dst));
        if self.facts.kernel.regs[dst.0 as usize] != DType::I64 {
            return;
        }
        let Op::Binary(op, a, b) = op else { return };
        let (Some(x), Some(y)) = (self.exact(*a), self.exact(*b)) else { return };
        match op {
            Binary::Min => {
                found.extend(difference_at_least(x, &own, 0));
                found.extend(difference_at_least(y, &own, 0));
            }
            Binary::Max => {
                found.extend(difference_at_least(&own, x, 0));
                found.extend(difference_at_least(&own, y, 0));
            }
            // n·q ≤ x < n·q + n.
            Binary::Div if y.terms.is_empty() && y.offset > 0 && self.range(x).is_some_and(|r| r.lo >= 0) => {
                let n = y.offset;
                let Some(scaled) = times(&own, n) else { return };
                found.extend(difference_at_least(x, &scaled, 0));
                found.extend(minus(&scaled, x).and_then(|mut l| {
                    l.offset = l.offset.checked_add(n - 1)?;
                    Some(l)
                }));
            }
            // The remainder does not exceed the dividend.
            Binary::Rem if y.terms.is_empty() && y.offset > 0 && self.range(x).is_some_and(|r| r.lo >= 0) => {
                found.extend(difference_at_least(x, &own, 0));
            }
            _ => {}
        }
    }
}

fn times(l: &Linear, n: i64) -> Option<Linear> {
    let mut sum = Linear::default();
    sum.add(l, n)?;
    Some(sum)
}

fn minus(a: &Linear, b: &Linear) -> Option<Linear> {
    let mut difference = a.clone();
    difference.add(b, -1)?;
    Some(difference)
}

/// `large ≥ small + by` as a form.
fn difference_at_least(large: &Linear, small: &Linear, by: i64) -> Option<Linear> {
    let mut l = minus(large, small)?;
    l.offset = l.offset.checked_sub(by)?;
    Some(l)
}

/// Checks that the kernel is valid and that the numbers of loops, registers and sizes are within limits.
pub(super) fn valid(kernel: &Kernel) -> Result<(), String> {
    const MOST: u32 = 1 << 16;
    if kernel.vars > MOST || kernel.sizes > MOST || kernel.buffers.len() > MOST as usize {
        return Err("more variables or sizes than a kernel has".into());
    }
    loops::verify(kernel).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::KernelBuilder;
    use ir::Scalar;

    const N: Size = Size::Const(10);

    fn index(terms: &[(Var, i64)], offset: i64) -> Index {
        let all = terms.iter().map(|&(v, s)| (Atom::Var(v), Size::Const(s))).collect();
        Index { offset, terms: all, ..Index::default() }
    }

    fn number(b: &mut KernelBuilder, n: i64) -> Reg {
        b.constant(Scalar::from_i64(DType::I64, n))
    }

    /// `x[.. ] = 1` in a loop over 0..10, and the smallest number of elements for which it is in bounds; none if there is no
    /// such number.
    type Case = (&'static str, Option<i64>, fn(&mut KernelBuilder, Buf, Buf, Var));

    const CASES: &[Case] = &[
        ("a loop", Some(10), |b, x, _, i| store(b, x, i.into())),
        ("a stride and an offset", Some(30), |b, x, _, i| store(b, x, index(&[(i, 3)], 2))),
        ("from the end", Some(10), |b, x, _, i| store(b, x, index(&[(i, -1)], 9))),
        ("before the start", None, |b, x, _, i| store(b, x, index(&[(i, 1)], -1))),
        ("beyond 64 bits", None, |b, x, _, i| store(b, x, index(&[(i, i64::MAX)], 0))),
        ("a quotient", Some(4), |b, x, _, i| {
            let (own, three) = (b.index(i), number(b, 3));
            let q = b.binary(Binary::Div, own, three);
            store(b, x, q.into());
        }),
        ("a rest", Some(3), |b, x, _, i| {
            let (own, three) = (b.index(i), number(b, 3));
            let rest = b.binary(Binary::Rem, own, three);
            store(b, x, rest.into());
        }),
        ("what a quotient leaves", Some(3), |b, x, _, i| {
            let (own, three) = (b.index(i), number(b, 3));
            let q = b.binary(Binary::Div, own, three);
            store(b, x, Index::from(i).add_atom(Atom::Reg(q), Size::Const(-3)));
        }),
        ("an index from memory", None, |b, x, at, i| {
            let raw = b.load(at, i);
            let wide = b.cast(DType::I64, raw);
            store(b, x, wide.into());
        }),
        ("an index from memory, clamped", Some(8), |b, x, at, i| {
            let raw = b.load(at, i);
            let wide = b.cast(DType::I64, raw);
            let (zero, most) = (number(b, 0), number(b, 7));
            let low = b.binary(Binary::Max, wide, zero);
            let both = b.binary(Binary::Min, low, most);
            store(b, x, both.into());
        }),
        ("an index from memory, clamped at one end", None, |b, x, at, i| {
            let raw = b.load(at, i);
            let wide = b.cast(DType::I64, raw);
            let most = number(b, 7);
            let low = b.binary(Binary::Min, wide, most);
            store(b, x, low.into());
        }),
        ("under a mask", Some(5), |b, x, _, i| {
            let inner = b.index(index(&[(i, 1)], -2));
            let (zero, five) = (number(b, 0), number(b, 5));
            let (low, high) = (b.compare(Compare::Ge, inner, zero), b.compare(Compare::Lt, inner, five));
            let both = b.binary(Binary::And, low, high);
            let one = b.constant_from_f64(DType::F32, 1.0);
            b.store_masked(x, inner, one, both);
        }),
        ("under one of two masks", None, |b, x, _, i| {
            let inner = b.index(index(&[(i, 1)], -2));
            let (zero, five) = (number(b, 0), number(b, 5));
            let (low, high) = (b.compare(Compare::Ge, inner, zero), b.compare(Compare::Lt, inner, five));
            let either = b.binary(Binary::Or, low, high);
            let one = b.constant_from_f64(DType::F32, 1.0);
            b.store_masked(x, inner, one, either);
        }),
        ("blocks of three, the last of which has fewer", Some(29), |b, x, _, i| {
            blocks(b, x, i);
        }),
    ];

    fn store(b: &mut KernelBuilder, x: Buf, at: Index) {
        let one = b.constant_from_f64(DType::F32, 1.0);
        b.store(x, at, one);
    }

    /// `x[3 i + k] = 1` for k below a count in scratch, which is `min(29 - 3 i, 3)`.
    fn blocks(b: &mut KernelBuilder, x: Buf, i: Var) {
        let count = b.buffer(DType::I32, AccessMode::Scratch(1));
        let (start, all, three) = (b.index(index(&[(i, 3)], 0)), number(b, 29), number(b, 3));
        let left = b.binary(Binary::Sub, all, start);
        let here = b.binary(Binary::Min, left, three);
        let here = b.cast(DType::I32, here);
        b.store(count, 0, here);
        let extent = Extent::Bounded { bound: Size::Const(3), buf: count, index: Index::default() };
        b.loop_(LoopKind::Serial, extent, &[], |b, k, _| {
            store(b, x, Index::from(start).add_var(k, 1));
            vec![]
        });
    }

    #[test]
    fn the_least_buffer_is_found() {
        for (what, least, body) in CASES {
            let mut b = KernelBuilder::new(what);
            let x = b.buffer(DType::F32, AccessMode::Write);
            let at = b.buffer(DType::I32, AccessMode::Read);
            b.for_loop(LoopKind::Serial, N, |b, i| body(b, x, at, i));
            let kernel = b.finish();
            assert_eq!(valid(&kernel), Ok(()), "{what}");
            let fits = |n: i64| is_in_bounds(&kernel, &[n, 10, 1], None).is_ok();
            match least {
                Some(n) => assert!(fits(*n) && !fits(n - 1), "{what}: {} {}", fits(*n), fits(n - 1)),
                None => assert!(!fits(i64::MAX), "{what}"),
            }
        }
    }

    #[test]
    fn tiles_reach_as_far_as_their_matrix() {
        // out[(row0 + r) * 20 + col0 + c] = tile[r * stride + c]
        let mut b = KernelBuilder::new("tile");
        let tile = b.buffer(DType::F32, AccessMode::Read);
        let out = b.buffer(DType::F32, AccessMode::Write);
        let args: Vec<Size> = (0..6).map(|_| b.size()).collect();
        b.for_loop(LoopKind::Serial, args[3], |b, r| {
            b.for_loop(LoopKind::Vector, args[4], |b, c| {
                let terms = vec![(Atom::Var(r), Size::Arg(5)), (Atom::Var(c), Size::Const(1))];
                let x = b.load(tile, Index { terms, ..Index::default() });
                let row = b.index(Index { offset_args: vec![1], ..index(&[(r, 1)], 0) });
                let at =
                    Index { offset_args: vec![2], ..index(&[(c, 1)], 0) }.add_atom(Atom::Reg(row), Size::Const(20));
                b.store(out, at, x);
            });
        });
        let kernel = b.finish();
        let of = |rows, cols| Tile { batch: 1, rows, cols, whole_rows: false };
        assert!(is_in_bounds(&kernel, &[0, 300], Some(of(15, 20))).is_ok());
        assert!(is_in_bounds(&kernel, &[0, 299], Some(of(15, 20))).is_err());
        assert!(is_in_bounds(&kernel, &[0, 300], Some(of(16, 20))).is_err());
        assert!(is_in_bounds(&kernel, &[0, 300], Some(of(15, 21))).is_err());
    }
}
