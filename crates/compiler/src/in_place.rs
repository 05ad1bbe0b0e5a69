//! Decides when a kernel may write its result over an operand.
//!
//! It may if each element is stored once, and every load of the operand reads the element that is stored at the same index, not
//! later than that store. Loads may be in the store's own block, or in earlier loops that run over the same elements
//! (all or some of them): a row kernel reads its row first and writes it in a second pass.

use crate::loops::{Atom, Buf, Extent, Index, Kernel, LoopKind, Op, Reg, Size, Stmt, Var};
use ir::Binary;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A variable part of an index: a loop variable, or digits of a variable that runs over several axes, `variable / divisor % count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LoopIndex {
    LoopVar(Var),
    LoopVarDigits { var: Var, divisor: i64, count: Option<i64> },
}

impl LoopIndex {
    fn var(self) -> Var {
        match self {
            LoopIndex::LoopVar(var) | LoopIndex::LoopVarDigits { var, .. } => var,
        }
    }

    fn of(self, var: Var) -> LoopIndex {
        match self {
            LoopIndex::LoopVar(_) => LoopIndex::LoopVar(var),
            LoopIndex::LoopVarDigits { divisor, count, .. } => LoopIndex::LoopVarDigits { var, divisor, count },
        }
    }

    /// The digits of the remainder (`rest`) or of the quotient of a division by `n`.
    fn divided(self, n: i64, rest: bool) -> Option<LoopIndex> {
        let (var, divisor, count) = match self {
            LoopIndex::LoopVar(var) => (var, 1, None),
            LoopIndex::LoopVarDigits { var, divisor, count } => (var, divisor, count),
        };
        if n < 1 || count.is_some_and(|c| c % n != 0) {
            return None;
        }
        Some(match rest {
            true => LoopIndex::LoopVarDigits { var, divisor, count: Some(n) },
            false => LoopIndex::LoopVarDigits { var, divisor: divisor.checked_mul(n)?, count: count.map(|c| c / n) },
        })
    }
}

/// `offset + Σ stride · root`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Linear {
    offset: i64,
    terms: BTreeMap<LoopIndex, i64>,
}

impl Linear {
    fn add(&mut self, other: &Linear, times: i64) -> Option<()> {
        self.offset = self.offset.checked_add(other.offset.checked_mul(times)?)?;
        for (v, s) in &other.terms {
            let entry = self.terms.entry(*v).or_default();
            *entry = entry.checked_add(s.checked_mul(times)?)?;
        }
        Some(())
    }

    /// The root, if the form is a root with stride 1 and no offset.
    fn root(&self) -> Option<LoopIndex> {
        let (root, 1) = self.terms.first_key_value()? else { return None };
        (self.offset == 0 && self.terms.len() == 1).then_some(*root)
    }
}

/// A load or a store: its position in each enclosing block from the outside in, the enclosing loops, and its element.
struct AccessSite {
    path: Vec<usize>,
    loops: Vec<EnclosingLoop>,
    index: Option<Linear>,
}

#[derive(Clone, Copy, PartialEq)]
struct EnclosingLoop {
    var: Var,
    /// The trip count, if it is known.
    trip_count: Option<i64>,
    kind: LoopKind,
}

#[derive(Default)]
struct AccessCollector {
    read: u32,
    write: u32,
    regs: FxHashMap<Reg, Linear>,
    loads: Vec<AccessSite>,
    stores: Vec<AccessSite>,
    /// Set if the kernel contains something that this analysis does not support.
    unsupported: bool,
}

/// Whether `write`, with `elements` elements, may share its memory with `read`.
pub(crate) fn may_overwrite(kernel: &Kernel, read: Buf, write: Buf, elements: usize) -> bool {
    let mut r = AccessCollector { read: read.0, write: write.0, ..Default::default() };
    r.block(&kernel.body, &mut Vec::new(), &mut Vec::new());
    let [store] = &r.stores[..] else { return false };
    !r.unsupported && writes_each_element_once(store, elements) && r.loads.iter().all(|l| load_precedes_store(l, store))
}

/// Like [`may_overwrite`], for a kernel that runs over each tile of a matrix product: tiles are disjoint, so it is sufficient
/// that each load is before the store in the store's own block and at the same index.
pub(crate) fn tile_may_overwrite(kernel: &Kernel, read: Buf, write: Buf) -> bool {
    let (mut loads, mut stores) = (Vec::new(), Vec::new());
    accesses(&kernel.body, &mut Vec::new(), &mut |stmt, path| match stmt {
        Stmt::Let { op: Op::Load { buf, index, .. }, .. } if *buf == read => loads.push((path.to_vec(), index.clone())),
        Stmt::Store { buf, index, .. } if *buf == write => stores.push((path.to_vec(), index.clone())),
        _ => {}
    });
    let [(store, index)] = &stores[..] else { return false };
    let (last, block) = store.split_last().expect("a statement has a position");
    loads.iter().all(|(load, at)| {
        let (own, around) = load.split_last().expect("a statement has a position");
        around == block && own < last && at == index
    })
}

fn accesses<'a>(body: &'a [Stmt], path: &mut Vec<usize>, f: &mut dyn FnMut(&'a Stmt, &[usize])) {
    for (i, stmt) in body.iter().enumerate() {
        path.push(i);
        f(stmt, path);
        if let Stmt::Loop(l) = stmt {
            accesses(&l.body, path, f);
        }
        path.pop();
    }
}

impl AccessCollector {
    fn block(&mut self, body: &[Stmt], path: &mut Vec<usize>, loops: &mut Vec<EnclosingLoop>) {
        for (i, stmt) in body.iter().enumerate() {
            path.push(i);
            match stmt {
                Stmt::Let { dst, op } => {
                    if let Op::Load { buf, index, .. } = op
                        && buf.0 == self.read
                    {
                        let site = self.access(index, path, loops);
                        self.loads.push(site);
                    }
                    if let Some(l) = self.linear_op(op) {
                        self.regs.insert(*dst, l);
                    }
                }
                Stmt::Store { buf, index, mask, .. } if buf.0 == self.write => {
                    self.unsupported |= mask.is_some();
                    let site = self.access(index, path, loops);
                    self.stores.push(site);
                }
                Stmt::Store { .. } => {}
                Stmt::Loop(l) => {
                    let runs = match &l.extent {
                        Extent::Exact(Size::Const(n)) => Some(*n),
                        Extent::Exact(Size::Arg(_)) => None,
                        Extent::Bounded { buf, .. } => {
                            self.unsupported |= buf.0 == self.read;
                            None
                        }
                    };
                    loops.push(EnclosingLoop { var: l.var, trip_count: runs, kind: l.kind });
                    self.block(&l.body, path, loops);
                    loops.pop();
                }
            }
            path.pop();
        }
    }

    fn access(&self, index: &Index, path: &[usize], loops: &[EnclosingLoop]) -> AccessSite {
        AccessSite { path: path.to_vec(), loops: loops.to_vec(), index: self.linear(index) }
    }

    fn linear(&self, index: &Index) -> Option<Linear> {
        let mut l = Linear { offset: index.offset, terms: BTreeMap::new() };
        if !index.offset_args.is_empty() {
            return None;
        }
        for (atom, stride) in &index.terms {
            let Size::Const(s) = stride else { return None };
            match atom {
                Atom::Var(v) => l.add(&Linear { offset: 0, terms: [(LoopIndex::LoopVar(*v), 1)].into() }, *s)?,
                Atom::Reg(r) => l.add(self.regs.get(r)?, *s)?,
            }
        }
        Some(l)
    }

    fn linear_op(&self, op: &Op) -> Option<Linear> {
        match op {
            Op::Index(i) => self.linear(i),
            Op::Const(s) if s.dtype() == ir::DType::I64 => Some(Linear { offset: s.to_i64(), terms: BTreeMap::new() }),
            Op::Binary(Binary::Add, a, b) => {
                let mut l = self.regs.get(a)?.clone();
                l.add(self.regs.get(b)?, 1)?;
                Some(l)
            }
            Op::Binary(op @ (Binary::Div | Binary::Rem), a, b) => {
                let (a, b) = (self.regs.get(a)?, self.regs.get(b)?);
                if !b.terms.is_empty() {
                    return None;
                }
                let root = a.root()?.divided(b.offset, *op == Binary::Rem)?;
                Some(Linear { offset: 0, terms: [(root, 1)].into() })
            }
            Op::Binary(Binary::Mul, a, b) => {
                let (a, b) = (self.regs.get(a)?, self.regs.get(b)?);
                let (l, times) = if b.terms.is_empty() { (a, b.offset) } else { (b, a.offset) };
                if !(a.terms.is_empty() || b.terms.is_empty()) {
                    return None;
                }
                let mut product = Linear::default();
                product.add(l, times)?;
                Some(product)
            }
            _ => None,
        }
    }
}

/// Whether each element is stored exactly once: there are as many stores as elements, at dense strides.
fn writes_each_element_once(store: &AccessSite, elements: usize) -> bool {
    let Some(index) = &store.index else { return false };
    let mut strides = Vec::new();
    for l in &store.loops {
        let Some(n) = l.trip_count else { return false };
        if n == 1 {
            continue;
        }
        match axes(index, l.var, n) {
            Some(all) => strides.extend(all),
            None => return false,
        }
    }
    strides.sort_unstable();
    let mut dense = 1i64;
    for (s, n) in strides {
        if s != dense {
            return false;
        }
        dense = dense.saturating_mul(n);
    }
    dense == elements as i64 && index.offset == 0
}

/// The axes that a variable of `n` iterations runs over, as strides and lengths: the variable itself, or its digits.
fn axes(index: &Linear, var: Var, n: i64) -> Option<Vec<(i64, i64)>> {
    let own: Vec<(LoopIndex, i64)> =
        index.terms.iter().filter(|(r, _)| r.var() == var).map(|(r, s)| (*r, *s)).collect();
    if let [(LoopIndex::LoopVar(_), stride)] = own[..] {
        return Some(vec![(stride, n)]);
    }
    let mut digits = Vec::new();
    for (root, stride) in own {
        let LoopIndex::LoopVarDigits { divisor, count, .. } = root else { return None };
        digits.push((divisor, count, stride));
    }
    digits.sort_unstable();
    let (mut next, mut all) = (1i64, Vec::new());
    for (divisor, count, stride) in digits {
        // Each digit starts where the previous one ends; the last one may be the full quotient.
        if divisor != next || n % divisor != 0 {
            return None;
        }
        let runs = count.unwrap_or(n / divisor);
        next = divisor.checked_mul(runs)?;
        all.push((stride, runs));
    }
    (next == n).then_some(all)
}

/// Whether a load reads the element that the store is about to write, and comes first.
fn load_precedes_store(load: &AccessSite, store: &AccessSite) -> bool {
    let depth = load.path.iter().zip(&store.path).take_while(|(a, b)| a == b).count();
    let first = matches!((load.path.get(depth), store.path.get(depth)), (Some(a), Some(b)) if a < b);
    let (Some(from), Some(to)) = (&load.index, &store.index) else { return false };
    if !first {
        return false;
    }
    // The loops up to `depth` enclose both; the inner loops belong to one of them.
    let (own, theirs) = (&load.loops[depth..], &store.loops[depth..]);
    // Lanes of a vector loop run together, so passes inside a vector loop are not ordered.
    if !own.is_empty() && load.loops[..depth].iter().any(|l| l.kind == LoopKind::Vector) {
        return false;
    }
    let mut to = to.clone();
    to.terms.retain(|_, s| *s != 0);
    // Either both have the same inner loops, except for the variables,
    if own.len() == theirs.len()
        && own.iter().zip(theirs).all(|(a, b)| a.trip_count == b.trip_count && a.trip_count.is_some())
    {
        let mut renamed = Linear { offset: from.offset, terms: BTreeMap::new() };
        for (root, s) in &from.terms {
            let to = own.iter().position(|l| l.var == root.var()).map_or(root.var(), |i| theirs[i].var);
            renamed.terms.insert(root.of(to), *s);
        }
        renamed.terms.retain(|_, s| *s != 0);
        if renamed == to {
            return true;
        }
    }
    // or the load is in a full pass over a part of the elements that the store's loops then write without gaps.
    !own.is_empty() && !theirs.is_empty() && reads_inside(from, own, &to, theirs)
}

/// Whether a pass reads only elements from the contiguous range that another pass writes.
fn reads_inside(from: &Linear, own: &[EnclosingLoop], to: &Linear, theirs: &[EnclosingLoop]) -> bool {
    let Some((first, last)) = span(from, own) else { return false };
    let Some((start, end)) = span(to, theirs) else { return false };
    let outer = |l: &Linear, inner: &[EnclosingLoop]| -> BTreeMap<LoopIndex, i64> {
        let around = |r: &LoopIndex| !inner.iter().any(|a| a.var == r.var());
        l.terms.iter().filter(|(r, s)| around(r) && **s != 0).map(|(r, s)| (*r, *s)).collect()
    };
    let mut strides: Vec<(i64, i64)> = Vec::new();
    for l in theirs {
        match (l.trip_count, to.terms.get(&LoopIndex::LoopVar(l.var))) {
            (Some(1), _) => {}
            (Some(n), Some(s)) => strides.push((*s, n)),
            _ => return false,
        }
    }
    strides.sort_unstable();
    let dense = strides.iter().try_fold(1i64, |d, &(s, n)| (s == d).then(|| d.saturating_mul(n))).is_some();
    dense && outer(from, own) == outer(to, theirs) && start <= first && last <= end
}

/// The first and last element that the inner loops access, with the outer variables fixed.
fn span(index: &Linear, inner: &[EnclosingLoop]) -> Option<(i64, i64)> {
    let (mut first, mut last) = (index.offset, index.offset);
    let digits = |r: &LoopIndex| matches!(r, LoopIndex::LoopVarDigits { .. }) && inner.iter().any(|l| l.var == r.var());
    if index.terms.keys().any(digits) {
        return None;
    }
    for l in inner {
        let stride = index.terms.get(&LoopIndex::LoopVar(l.var)).copied().unwrap_or(0);
        let reach = stride.checked_mul(l.trip_count? - 1)?;
        first = first.checked_add(reach.min(0))?;
        last = last.checked_add(reach.max(0))?;
    }
    Some((first, last))
}
