//! Analysis of the registers and variables of a kernel for one launch: linear forms, ranges, divisors, and definition
//! depths. GPU code generators use it to choose loops and the width of indices, and the program verifier to prove bounds.

use super::range::IntRange;
use super::{AccessMode, Atom, Buf, Extent, Index, Kernel, Loop, Op, Reg, Size, Stmt, Var};
use ir::{Binary, Compare, DType, Unary};
use std::collections::BTreeMap;

/// The properties of a launch that are known when its kernel is lowered.
///
/// A grid is correct for the launch it was lowered for. Sizes stay arguments: another launch may use the same grid if lowering
/// for it produces an equal one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaunchInfo {
    /// Values of the size arguments.
    pub sizes: Vec<i64>,
    /// Pairs of buffers that share their memory element for element, where one of the two is written.
    pub aliases: Vec<(Buf, Buf)>,
    /// For each buffer a number of bytes that divides its address; the size of its dtype if there is no entry.
    pub aligned: Vec<usize>,
    /// For each buffer the number of scratch elements, if the kernel leaves it to the caller (`AccessMode::Scratch(0)`).
    pub scratch: Vec<usize>,
}

/// A variable part of a linear form: a loop variable, or an i64 register without a known form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexVar {
    /// A loop variable.
    Var(Var),
    /// A register.
    Reg(Reg),
}

/// `offset + Σ stride · root`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linear {
    /// The constant part.
    pub offset: i64,
    /// The strides; none is zero.
    pub terms: BTreeMap<IndexVar, i64>,
}

impl Linear {
    /// A form that consists of one root.
    pub fn root(r: IndexVar) -> Linear {
        Linear { offset: 0, terms: [(r, 1)].into() }
    }

    /// A constant.
    pub fn constant(offset: i64) -> Linear {
        Linear { offset, ..Linear::default() }
    }

    /// Adds a multiple of another form; none on overflow.
    pub fn add(&mut self, other: &Linear, times: i64) -> Option<()> {
        self.offset = self.offset.checked_add(other.offset.checked_mul(times)?)?;
        for (r, s) in &other.terms {
            let entry = self.terms.entry(*r).or_default();
            *entry = entry.checked_add(s.checked_mul(times)?)?;
        }
        self.terms.retain(|_, s| *s != 0);
        Some(())
    }
}

/// The known properties of a register.
pub struct RegInfo {
    /// The linear form of an i64 register.
    pub form: Option<Linear>,
    /// The range of an integer.
    pub range: IntRange,
    /// Its value is a multiple of this; 0 if it is 0.
    pub multiple: i64,
    /// The innermost loop around its definition.
    pub enclosing_loop: Option<Var>,
    /// How a bool is computed.
    pub test: Option<Op>,
}

/// The known properties of a loop variable.
pub struct LoopVarInfo {
    /// The trip count, if it is known before the launch.
    pub trip_count: Option<i64>,
    /// The maximum trip count.
    pub max_trip_count: i64,
    /// The enclosing loop.
    pub enclosing_loop: Option<Var>,
}

/// A load or a store.
#[derive(Clone, Debug)]
pub struct MemoryAccess {
    /// The buffer.
    pub buf: Buf,
    /// Whether it is a store.
    pub store: bool,
    /// The Bool register that masks it.
    pub mask: Option<Reg>,
    /// The index of its element.
    pub form: Option<Linear>,
    /// The enclosing loops, outermost first.
    pub loops: Vec<Var>,
    /// Its position in each block, outermost first.
    pub path: Vec<usize>,
}

/// The analysis of a kernel for one launch.
pub struct IndexAnalysis<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The properties of the launch.
    pub launch: &'a LaunchInfo,
    /// The properties of each register.
    pub regs: Vec<RegInfo>,
    /// The properties of each loop variable.
    pub vars: Vec<LoopVarInfo>,
    /// Its loads and stores, including loads of trip counts, in program order.
    pub accesses: Vec<MemoryAccess>,
    /// The alias class of each buffer: buffers that share memory have the same number.
    pub alias_classes: Vec<usize>,
}

impl<'a> IndexAnalysis<'a> {
    /// Analyzes a kernel that is verified ([`super::verify`]).
    pub fn new(kernel: &'a Kernel, given: &'a LaunchInfo) -> IndexAnalysis<'a> {
        IndexAnalysis::with_ranges(kernel, given, &[])
    }

    /// Like [`IndexAnalysis::new`], with known ranges of some `I64` registers that no statement assigns.
    pub fn with_ranges(kernel: &'a Kernel, given: &'a LaunchInfo, known: &[(Reg, IntRange)]) -> IndexAnalysis<'a> {
        let regs = kernel.regs.iter().map(|&d| RegInfo {
            form: None,
            range: IntRange::of_dtype(d),
            multiple: 1,
            enclosing_loop: None,
            test: None,
        });
        let var = || LoopVarInfo { trip_count: None, max_trip_count: i64::MAX, enclosing_loop: None };
        let mut classes: Vec<usize> = (0..kernel.buffers.len()).collect();
        for &(a, b) in &given.aliases {
            let (Some(&x), Some(&y)) = (classes.get(a.0 as usize), classes.get(b.0 as usize)) else { continue };
            classes.iter_mut().filter(|c| **c == y).for_each(|c| *c = x);
        }
        let regs = regs.collect();
        let vars = (0..kernel.vars).map(|_| var()).collect();
        let mut facts =
            IndexAnalysis { kernel, launch: given, regs, vars, accesses: Vec::new(), alias_classes: classes };
        for &(r, range) in known {
            facts.opaque(r, None);
            facts.regs[r.0 as usize].range = range;
        }
        facts.block(&kernel.body, &mut Vec::new(), &mut Vec::new());
        facts
    }

    /// The value of a size.
    pub fn size(&self, s: Size) -> i64 {
        match s {
            Size::Const(n) => n,
            Size::Arg(n) => self.launch.sizes.get(n as usize).copied().unwrap_or(0),
        }
    }

    /// Whether a register or variable is defined inside a loop.
    pub fn inside(&self, root: IndexVar, of: Var) -> bool {
        let mut at = match root {
            IndexVar::Reg(r) => self.regs[r.0 as usize].enclosing_loop,
            IndexVar::Var(v) => Some(v),
        };
        while let Some(v) = at {
            if v == of {
                return true;
            }
            at = self.vars[v.0 as usize].enclosing_loop;
        }
        false
    }

    /// Whether a buffer, or a buffer that aliases it, is stored to.
    pub fn written(&self, buf: Buf) -> bool {
        let class = self.alias_classes[buf.0 as usize];
        self.accesses.iter().any(|s| s.store && self.alias_classes[s.buf.0 as usize] == class)
    }

    /// Whether a buffer is scratch.
    pub fn is_scratch(&self, buf: Buf) -> bool {
        matches!(self.kernel.buffers[buf.0 as usize].mode, AccessMode::Scratch(_))
    }

    fn block(&mut self, body: &[Stmt], path: &mut Vec<usize>, loops: &mut Vec<Var>) {
        for (i, s) in body.iter().enumerate() {
            path.push(i);
            match s {
                Stmt::Let { dst, op } => {
                    if let Op::Load { buf, index, mask } = op {
                        self.site(*buf, index, (false, mask.map(|m| m.0)), path, loops);
                    }
                    let (form, range, multiple) =
                        (self.op_form(*dst, op), self.op_range(*dst, op), self.op_multiple(op));
                    let test = (self.kernel.regs[dst.0 as usize] == DType::Bool).then(|| op.clone());
                    self.regs[dst.0 as usize] =
                        RegInfo { form, range, multiple, enclosing_loop: loops.last().copied(), test };
                }
                Stmt::Store { buf, index, mask, .. } => self.site(*buf, index, (true, *mask), path, loops),
                Stmt::Loop(l) => self.loop_(l, path, loops),
            }
            path.pop();
        }
    }

    fn loop_(&mut self, l: &Loop, path: &mut Vec<usize>, loops: &mut Vec<Var>) {
        let (trips, most) = match &l.extent {
            Extent::Exact(n) => (Some(self.size(*n).max(0)), self.size(*n).max(0)),
            Extent::Bounded { bound, buf, index } => {
                self.site(*buf, index, (false, None), path, loops);
                (None, self.size(*bound).max(0))
            }
        };
        let inside = loops.last().copied();
        self.vars[l.var.0 as usize] = LoopVarInfo { trip_count: trips, max_trip_count: most, enclosing_loop: inside };
        loops.push(l.var);
        for c in &l.carried {
            self.opaque(c.phi, Some(l.var));
        }
        self.block(&l.body, path, loops);
        loops.pop();
        for c in &l.carried {
            self.opaque(c.out, inside);
        }
    }

    /// Adds a register without a known form or range.
    fn opaque(&mut self, r: Reg, inside: Option<Var>) {
        let d = self.kernel.regs[r.0 as usize];
        let form = (d == DType::I64).then(|| Linear::root(IndexVar::Reg(r)));
        self.regs[r.0 as usize] =
            RegInfo { form, range: IntRange::of_dtype(d), multiple: 1, enclosing_loop: inside, test: None };
    }

    fn site(&mut self, buf: Buf, index: &Index, (store, mask): (bool, Option<Reg>), path: &[usize], loops: &[Var]) {
        let form = self.index_form(index);
        self.accesses.push(MemoryAccess { buf, store, mask, form, loops: loops.to_vec(), path: path.to_vec() });
    }

    /// An index as a linear form.
    pub fn index_form(&self, i: &Index) -> Option<Linear> {
        let mut l = Linear { offset: i.offset, ..Linear::default() };
        for &a in &i.offset_args {
            l.offset = l.offset.checked_add(self.size(Size::Arg(a)))?;
        }
        for &(atom, stride) in &i.terms {
            let s = self.size(stride);
            match atom {
                Atom::Var(v) => l.add(&Linear::root(IndexVar::Var(v)), s)?,
                Atom::Reg(r) => l.add(self.regs[r.0 as usize].form.as_ref()?, s)?,
            }
        }
        Some(l)
    }

    /// The range of a loop variable.
    pub fn var_range(&self, v: Var) -> IntRange {
        IntRange::new(0, (self.vars[v.0 as usize].max_trip_count as i128 - 1).max(0))
    }

    fn atom_range(&self, a: Atom) -> IntRange {
        match a {
            Atom::Var(v) => self.var_range(v),
            Atom::Reg(r) => self.regs[r.0 as usize].range,
        }
    }

    /// The range of an index, and whether all its terms and partial sums fit in 32 bits.
    pub fn index_range(&self, i: &Index) -> (IntRange, bool) {
        let mut sum = IntRange::single(i.offset);
        let mut narrow = sum.fits_i32();
        for &a in &i.offset_args {
            let r = IntRange::single(self.size(Size::Arg(a)));
            sum = sum.add(r);
            narrow &= r.fits_i32() && sum.fits_i32();
        }
        for &(atom, stride) in &i.terms {
            let (x, s) = (self.atom_range(atom), IntRange::single(self.size(stride)));
            sum = sum.add(x.mul(s));
            narrow &= x.fits_i32() && s.fits_i32() && x.mul(s).fits_i32() && sum.fits_i32();
        }
        (sum, narrow)
    }

    /// A number that always divides an index.
    pub fn index_multiple(&self, i: &Index) -> i64 {
        let mut m = i.offset;
        for &a in &i.offset_args {
            m = gcd(m, self.size(Size::Arg(a)));
        }
        for &(atom, stride) in &i.terms {
            let of = match atom {
                Atom::Var(_) => 1,
                Atom::Reg(r) => self.regs[r.0 as usize].multiple,
            };
            m = gcd(m, of.saturating_mul(self.size(stride)));
        }
        m
    }

    /// Whether a bool is constant within each aligned group of `width` consecutive iterations of a loop.
    pub fn uniform(&self, r: Reg, of: Var, width: i64) -> bool {
        let steady = |r: IndexVar| !self.inside(r, of);
        if steady(IndexVar::Reg(r)) {
            return true;
        }
        match &self.regs[r.0 as usize].test {
            Some(Op::Const(_)) => true,
            Some(Op::Unary(Unary::Not, x)) => self.uniform(*x, of, width),
            Some(Op::Binary(Binary::And | Binary::Or | Binary::Xor, a, b)) => {
                self.uniform(*a, of, width) && self.uniform(*b, of, width)
            }
            Some(Op::Compare(op, a, b)) => {
                // a - b = s·v + rest: the sign changes between two iterations, at a position that the rest determines.
                let form = |r: &Reg| self.regs[r.0 as usize].form.clone();
                let (Some(mut d), Some(b)) = (form(a), form(b)) else { return false };
                if d.add(&b, -1).is_none() {
                    return false;
                }
                let s = d.terms.remove(&IndexVar::Var(of)).unwrap_or(0);
                if !d.terms.keys().all(|r| steady(*r)) {
                    return false;
                }
                // The first iteration with the other result: s v + rest < 0 or > 0 there.
                let after = match (s, op) {
                    (0, _) => return true,
                    (1, Compare::Ge | Compare::Lt) | (-1, Compare::Gt | Compare::Le) => 0,
                    (1, Compare::Gt | Compare::Le) | (-1, Compare::Ge | Compare::Lt) => 1,
                    _ => return false,
                };
                let divides = |x: i64| x % width == 0;
                let multiple = |r: &IndexVar| match r {
                    IndexVar::Var(_) => 1,
                    IndexVar::Reg(r) => self.regs[r.0 as usize].multiple,
                };
                let offset = d.offset.saturating_mul(-s).saturating_add(after);
                divides(offset) && d.terms.iter().all(|(r, x)| divides(x.saturating_mul(multiple(r))))
            }
            _ => false,
        }
    }

    fn op_form(&self, dst: Reg, op: &Op) -> Option<Linear> {
        let form = |r: &Reg| self.regs[r.0 as usize].form.as_ref();
        let known = || match op {
            Op::Index(i) => self.index_form(i),
            Op::Const(s) => Some(Linear::constant(s.to_i64())),
            Op::Binary(op @ (Binary::Add | Binary::Sub), a, b) => {
                let mut l = form(a)?.clone();
                l.add(form(b)?, if *op == Binary::Add { 1 } else { -1 })?;
                Some(l)
            }
            Op::Binary(Binary::Mul, a, b) => {
                let (a, b) = (form(a)?, form(b)?);
                let (l, times) = if b.terms.is_empty() { (a, b.offset) } else { (b, a.offset) };
                if !(a.terms.is_empty() || b.terms.is_empty()) {
                    return None;
                }
                let mut product = Linear::default();
                product.add(l, times)?;
                Some(product)
            }
            _ => None,
        };
        (self.kernel.regs[dst.0 as usize] == DType::I64)
            .then(|| known().unwrap_or_else(|| Linear::root(IndexVar::Reg(dst))))
    }

    fn op_range(&self, dst: Reg, op: &Op) -> IntRange {
        let of = |r: &Reg| self.regs[r.0 as usize].range;
        let d = self.kernel.regs[dst.0 as usize];
        match op {
            Op::Const(s) => IntRange::of(*s),
            Op::Index(i) => {
                let r = self.index_range(i).0;
                if r.is_within(IntRange::of_dtype(DType::I64)) { r } else { IntRange::of_dtype(DType::I64) }
            }
            Op::Unary(op, x) => IntRange::unary(*op, d, of(x)),
            Op::Binary(op, a, b) => IntRange::binary(*op, d, of(a), of(b)),
            Op::Select(_, a, b) => of(a).union(of(b)),
            Op::Compare(..) => IntRange::new(0, 1),
            Op::Cast(to, x) => of(x).cast(self.kernel.regs[x.0 as usize], *to),
            _ => IntRange::of_dtype(d),
        }
    }

    fn op_multiple(&self, op: &Op) -> i64 {
        let of = |r: &Reg| self.regs[r.0 as usize].multiple;
        match op {
            Op::Const(s) if s.dtype().is_int() => s.to_i64(),
            Op::Index(i) => self.index_multiple(i),
            Op::Binary(Binary::Add | Binary::Sub, a, b) | Op::Select(_, a, b) => gcd(of(a), of(b)),
            Op::Binary(Binary::Mul, a, b) => of(a).saturating_mul(of(b)),
            Op::Cast(to, x) if *to == DType::I64 && self.kernel.regs[x.0 as usize].is_int() => of(x),
            _ => 1,
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // 2⁶³ does not fit in an i64; 2⁶² also divides the value.
    i64::try_from(a).unwrap_or(1 << 62)
}
