//! Recognizes kernels that only move elements, from their loops.
//!
//! Rows that run in parallel are digits of one loop variable: its quotients and remainders, computed before the inner loops.

use super::{Axis, StridedMoves};
use compiler::loops::{AccessMode, Atom, Extent, Index, Kernel, Op, Reg, Size, Stmt};
use ir::Binary;
use smallvec::SmallVec;

/// The value `variable / over % size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digit {
    pub(super) var: u32,
    pub(super) over: i64,
    pub(super) size: i64,
}

/// The known value of a register.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Number(i64),
    /// A digit times a factor.
    Digit(Digit, i64),
}

pub(super) type Known = SmallVec<[(Reg, Value); 12]>;

/// The loop variables with their trip counts.
pub(super) type Vars = SmallVec<[(u32, i64); 6]>;

/// Matches a kernel that is one loop nest without carried values.
/// Returns the loops, the known values of registers, and the remaining statements.
pub(super) fn nest(kernel: &Kernel) -> Option<(Vars, Known, &[Stmt])> {
    let (mut vars, mut known) = (Vars::new(), Known::new());
    let mut body = &kernel.body[..];
    loop {
        match body {
            [Stmt::Let { dst, op }, rest @ ..] if !matches!(op, Op::Load { .. }) => {
                known.push((*dst, value(op, &vars, &known)?));
                body = rest;
            }
            [Stmt::Loop(l)] => {
                let Extent::Exact(Size::Const(n)) = l.extent else { return None };
                if !l.carried.is_empty() || n < 1 {
                    return None;
                }
                vars.push((l.var.0, n));
                body = &l.body;
            }
            _ => return Some((vars, known, body)),
        }
    }
}

/// Matches a kernel that only moves elements. Returns the moves and the buffers of operand and result.
pub(super) fn match_moves(kernel: &Kernel) -> Option<(StridedMoves, [usize; 2])> {
    let (vars, known, body) = nest(kernel)?;
    let [
        Stmt::Let { dst, op: Op::Load { buf: from, index, mask: None } },
        Stmt::Store { buf: to, index: place, value, mask: None },
    ] = body
    else {
        return None;
    };
    let (a, b) = (&kernel.buffers[from.0 as usize], &kernel.buffers[to.0 as usize]);
    if dst != value || a.mode != AccessMode::Read || b.mode != AccessMode::Write || a.dtype != b.dtype || from == to {
        return None;
    }
    let buffers = [from.0 as usize, to.0 as usize];
    let (reads, writes) = (digits(index, &vars, &known)?, digits(place, &vars, &known)?);
    // Every digit of every variable must determine a position in the result; otherwise elements would be written repeatedly.
    let mut axes = SmallVec::<[Axis; 6]>::new();
    for &(var, n) in vars.iter().filter(|v| v.1 > 1) {
        let mut own: SmallVec<[(Digit, i64); 6]> = writes.iter().copied().filter(|(d, _)| d.var == var).collect();
        own.sort_by_key(|(d, _)| d.over);
        let mut over = 1;
        for (digit, to) in own {
            if digit.over != over || to <= 0 {
                return None;
            }
            over *= digit.size;
            let from = reads.iter().find(|(d, _)| *d == digit).map_or(0, |r| r.1);
            axes.push(Axis { size: digit.size as usize, from: from as isize, to: to as isize });
        }
        if over != n {
            return None;
        }
    }
    // If the operand is indexed by other digits than the result, the kernel is not a move of axes.
    if reads.iter().any(|(d, by)| *by != 0 && !writes.iter().any(|(w, _)| w == d)) {
        return None;
    }
    let (from, to) = (index.offset as isize, place.offset as isize);
    axes.retain(|a| a.size > 1);
    let mut moves = StridedMoves { from, to, axes, bytes: a.dtype.size() };
    moves.merge_axes();
    Some((moves, buffers))
}

/// Returns the result of an operation on digits if it is a digit.
pub(super) fn value(op: &Op, vars: &[(u32, i64)], known: &Known) -> Option<Value> {
    let of = |r: &Reg| known.iter().find(|k| k.0 == *r).map(|k| k.1);
    match op {
        Op::Const(c) if !c.dtype().is_float() => Some(Value::Number(c.to_i64())),
        Op::Index(index) => match &digits(index, vars, known)?[..] {
            [(digit, by)] if index.offset == 0 => Some(Value::Digit(*digit, *by)),
            _ => None,
        },
        Op::Binary(f, a, b) => match (f, of(a)?, of(b)?) {
            (Binary::Rem, Value::Digit(d, 1), Value::Number(n)) if n > 0 && d.size % n == 0 => {
                Some(Value::Digit(Digit { size: n, ..d }, 1))
            }
            (Binary::Div, Value::Digit(d, 1), Value::Number(n)) if n > 0 && d.size % n == 0 => {
                Some(Value::Digit(Digit { over: d.over * n, size: d.size / n, ..d }, 1))
            }
            (Binary::Mul, Value::Digit(d, by), Value::Number(n))
            | (Binary::Mul, Value::Number(n), Value::Digit(d, by)) => Some(Value::Digit(d, by * n)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns an index as a sum of multiples of digits, each digit once.
pub(super) fn digits(index: &Index, vars: &[(u32, i64)], known: &Known) -> Option<SmallVec<[(Digit, i64); 6]>> {
    if !index.offset_args.is_empty() {
        return None;
    }
    let mut found = SmallVec::<[(Digit, i64); 6]>::new();
    for (atom, size) in &index.terms {
        let Size::Const(times) = size else { return None };
        let (digit, by) = match atom {
            Atom::Var(v) => {
                let size = vars.iter().find(|x| x.0 == v.0)?.1;
                (Digit { var: v.0, over: 1, size }, 1)
            }
            Atom::Reg(r) => match known.iter().find(|k| k.0 == *r)?.1 {
                Value::Digit(digit, by) => (digit, by),
                Value::Number(_) => return None,
            },
        };
        match found.iter_mut().find(|(d, _)| *d == digit) {
            Some((_, total)) => *total += by * times,
            None => found.push((digit, by * times)),
        }
    }
    Some(found)
}
