//! Finds the registers that differ between the lanes of the enclosing vector loop, and the initial values of lanes.

use super::{Atom, Extent, Index, Kernel, Loop, LoopKind, Op, Size, Stmt, Var};
use ir::{Binary, DType, Scalar};

/// Whether a loop runs in vector lanes. A loop that runs at most once does not.
pub fn is_vector(l: &Loop) -> bool {
    l.kind == LoopKind::Vector && !matches!(l.extent, Extent::Exact(Size::Const(..=1)))
}

/// Whether each register varies by lane.
pub fn varying(k: &Kernel) -> Vec<bool> {
    let mut a = Analysis { varying: vec![false; k.regs.len()], vector: None };
    a.block(&k.body);
    a.varying
}

/// Whether an index varies by lane of the loop over `vector`.
pub fn index_varies(i: &Index, vector: Option<Var>, varying: &[bool]) -> bool {
    i.terms.iter().any(|&(atom, stride)| match atom {
        Atom::Var(v) => vector == Some(v) && stride != Size::Const(0),
        Atom::Reg(r) => varying[r.0 as usize] && stride != Size::Const(0),
    })
}

/// The identity of a reduction operator, which initializes lanes.
pub fn identity(op: Binary, d: DType) -> Scalar {
    match op {
        // −0 + x is x for every x; 0 + −0 is not.
        Binary::Add if d.is_float() => Scalar::from_f64(d, -0.0),
        Binary::Mul => Scalar::one(d),
        Binary::Max => Scalar::lowest(d),
        Binary::Min => Scalar::highest(d),
        Binary::And => Scalar::from_bits(d, u64::MAX),
        _ => Scalar::zero(d),
    }
}

struct Analysis {
    varying: Vec<bool>,
    vector: Option<Var>,
}

impl Analysis {
    /// Processes a block and returns whether anything changed.
    fn block(&mut self, body: &[Stmt]) -> bool {
        let mut changed = false;
        for s in body {
            match s {
                Stmt::Let { dst, op } => {
                    let mut v = op.operands().any(|r| self.varying[r.0 as usize]);
                    match op {
                        Op::Index(i) => v = index_varies(i, self.vector, &self.varying),
                        Op::Load { index, mask, .. } => {
                            v = index_varies(index, self.vector, &self.varying)
                                || mask.is_some_and(|(m, _)| self.varying[m.0 as usize]);
                        }
                        _ => {}
                    }
                    changed |= self.set(dst.0, v);
                }
                Stmt::Store { .. } => {}
                Stmt::Loop(l) => changed |= self.loop_(l),
            }
        }
        changed
    }

    fn loop_(&mut self, l: &Loop) -> bool {
        let mut changed = false;
        if is_vector(l) {
            for c in &l.carried {
                changed |= self.set(c.phi.0, true);
            }
            self.vector = Some(l.var);
            changed |= self.block(&l.body);
            self.vector = None;
            return changed;
        }
        for c in &l.carried {
            changed |= self.set(c.phi.0, self.varying[c.init.0 as usize]);
        }
        loop {
            let mut again = self.block(&l.body);
            for c in &l.carried {
                again |= self.set(c.phi.0, self.varying[c.next.0 as usize]);
            }
            changed |= again;
            if !again {
                break;
            }
        }
        for c in &l.carried {
            let v = self.varying[c.phi.0 as usize];
            changed |= self.set(c.out.0, v);
        }
        changed
    }

    fn set(&mut self, r: u32, v: bool) -> bool {
        let old = self.varying[r as usize];
        self.varying[r as usize] = old | v;
        v && !old
    }
}

/// Whether the body computes lane-varying 64-bit values, which halves the number of lanes.
pub fn has_wide_lanes(k: &Kernel, l: &Loop, varying: &[bool]) -> bool {
    let wide = |d: DType| d.size() == 8;
    let reg = |r: u32| wide(k.regs[r as usize]);
    fn any(body: &[Stmt], f: &mut impl FnMut(&Stmt) -> bool) -> bool {
        body.iter().any(|s| match s {
            Stmt::Loop(l) => f(s) || any(&l.body, f),
            _ => f(s),
        })
    }
    l.carried.iter().any(|c| reg(c.phi.0))
        || any(&l.body, &mut |s| match s {
            Stmt::Let { dst, op } => {
                varying[dst.0 as usize] && (reg(dst.0) || op.operands().any(|r| reg(r.0)) || lane_index(op, varying))
            }
            Stmt::Store { value, index, .. } => reg(value.0) || index_varies(index, None, varying),
            Stmt::Loop(l) => l.carried.iter().any(|c| varying[c.phi.0 as usize] && reg(c.phi.0)),
        })
}

fn lane_index(op: &Op, varying: &[bool]) -> bool {
    match op {
        Op::Load { index, .. } => index_varies(index, None, varying),
        _ => false,
    }
}
