//! Loop-invariant code motion on kernels.
//!
//! A `Let` whose operands are all defined outside a loop moves in front of it. Arithmetic has no side effects, so it may
//! move even if the loop does not run. A load moves only from a read-only buffer and out of a loop that always runs.

use super::{AccessMode, Atom, Extent, Index, Kernel, Loop, LoopKind, Op, Size, Stmt};

/// Returns the kernel with loop invariants moved, or `None` if nothing moves.
pub fn hoist(k: &Kernel) -> Option<Kernel> {
    let mut depth = DefinitionDepths { regs: vec![0; k.regs.len()], vars: vec![0; k.vars as usize] };
    if !depth.has_hoistable(k, &k.body, 0) {
        return None;
    }
    let mut out = k.clone();
    let mut h = Hoist {
        k,
        depth: DefinitionDepths { regs: vec![0; k.regs.len()], vars: vec![0; k.vars as usize] },
        runs: vec![],
    };
    let body = std::mem::take(&mut out.body);
    let mut pending = vec![];
    out.body = h.block(body, 0, &mut pending);
    Some(out)
}

/// The loop depth at which each name is defined.
struct DefinitionDepths {
    regs: Vec<u32>,
    vars: Vec<u32>,
}

impl DefinitionDepths {
    fn of_index(&self, i: &Index) -> u32 {
        let atoms = i.terms.iter().map(|(a, _)| match a {
            Atom::Var(v) => self.vars[v.0 as usize],
            Atom::Reg(r) => self.regs[r.0 as usize],
        });
        atoms.max().unwrap_or(0)
    }

    /// The smallest depth that the operands of an op allow; the other conditions for loads are not checked here.
    fn of_op(&self, op: &Op) -> u32 {
        let operands = op.operands().map(|r| self.regs[r.0 as usize]).max().unwrap_or(0);
        match op {
            Op::Index(i) => self.of_index(i),
            Op::Load { index, mask, .. } => {
                let mask = mask.map_or(0, |(m, _)| self.regs[m.0 as usize]);
                self.of_index(index).max(mask)
            }
            _ => operands,
        }
    }

    /// Whether any statement can move; constants do not count.
    fn has_hoistable(&mut self, k: &Kernel, body: &[Stmt], depth: u32) -> bool {
        body.iter().any(|s| match s {
            Stmt::Let { dst, op } => {
                let d = self.of_op(op);
                // Constants have no depth: the lowering materializes them up front.
                self.regs[dst.0 as usize] = if matches!(op, Op::Const(_)) { 0 } else { depth };
                d < depth && !matches!(op, Op::Const(_)) && readable(k, op)
            }
            Stmt::Store { .. } => false,
            Stmt::Loop(l) => {
                self.enter(l, depth);
                self.has_hoistable(k, &l.body, depth + 1)
            }
        })
    }

    fn enter(&mut self, l: &Loop, depth: u32) {
        self.vars[l.var.0 as usize] = depth + 1;
        for c in &l.carried {
            self.regs[c.phi.0 as usize] = depth + 1;
            self.regs[c.out.0 as usize] = depth;
        }
    }
}

fn readable(k: &Kernel, op: &Op) -> bool {
    !matches!(op, Op::Load { buf, .. } if k.buffers[buf.0 as usize].mode != AccessMode::Read)
}

struct Hoist<'a> {
    k: &'a Kernel,
    depth: DefinitionDepths,
    /// Whether each open loop runs at least once.
    runs: Vec<bool>,
}

/// Statements that move out, each with the depth of the loop body that it moves to.
type HoistedStmt = Vec<(u32, Stmt)>;

impl Hoist<'_> {
    fn block(&mut self, body: Vec<Stmt>, depth: u32, up: &mut HoistedStmt) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(body.len());
        for s in body {
            match s {
                Stmt::Let { dst, op } => {
                    let to = self.place(&op, depth);
                    self.depth.regs[dst.0 as usize] = if matches!(op, Op::Const(_)) { 0 } else { to };
                    if to < depth {
                        up.push((to, Stmt::Let { dst, op }));
                    } else {
                        out.push(Stmt::Let { dst, op });
                    }
                }
                Stmt::Loop(mut l) => {
                    self.depth.enter(&l, depth);
                    let mut pending = vec![];
                    let inner = std::mem::take(&mut l.body);
                    self.runs.push(always_runs(&l));
                    l.body = self.block(inner, depth + 1, &mut pending);
                    self.runs.pop();
                    for (to, s) in pending {
                        if to < depth {
                            up.push((to, s));
                        } else {
                            out.push(s);
                        }
                    }
                    out.push(Stmt::Loop(l));
                }
                s => out.push(s),
            }
        }
        out
    }

    fn place(&self, op: &Op, depth: u32) -> u32 {
        let least = self.depth.of_op(op);
        match op {
            _ if !readable(self.k, op) => depth,
            Op::Const(_) => depth,
            Op::Load { .. } => {
                let mut to = depth;
                while to > least && self.runs[to as usize - 1] {
                    to -= 1;
                }
                to
            }
            _ => least,
        }
    }
}

fn always_runs(l: &Loop) -> bool {
    l.kind != LoopKind::Parallel && matches!(l.extent, Extent::Exact(Size::Const(1..)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::KernelBuilder;
    use ir::{Binary, DType, Unary};

    #[test]
    fn invariants_move_as_far_as_they_may() {
        let mut b = KernelBuilder::new("hoist");
        let w = b.buffer(DType::F32, AccessMode::Read);
        let x = b.buffer(DType::F32, AccessMode::ReadWrite);
        let n = b.size();
        b.for_loop(LoopKind::Vector, Size::Const(8), |b, i| {
            // The trip count is unknown: arithmetic moves out, loads do not.
            b.for_loop(LoopKind::Serial, n, |b, t| {
                let k = b.load(w, i);
                let two = b.constant_from_f64(DType::F32, 2.0);
                let root = b.unary(Unary::Sqrt, two);
                let v = b.load(x, Index::from(i).add_var(t, 8));
                let v = b.binary(Binary::Mul, v, k);
                let v = b.binary(Binary::Add, v, root);
                b.store(x, Index::from(i).add_var(t, 8), v);
            });
            // The loop runs at least once: a load from a read-only buffer moves out too.
            b.for_loop(LoopKind::Serial, Size::Const(3), |b, t| {
                let k = b.load(w, i);
                b.store(x, Index::from(i).add_var(t, 8), k);
            });
        });
        let text = "\
kernel hoist(b0: in f32, b1: inout f32; 1 sizes) {
  r2: f32 = sqrt r1
  vector v0 < 8 {
    serial v1 < s0 {
      r0: f32 = b0[v0]
      r1: f32 = 2.0
      r3: f32 = b1[v0 + v1*8]
      r4: f32 = mul r3, r0
      r5: f32 = add r4, r2
      b1[v0 + v1*8] = r5
    }
    r6: f32 = b0[v0]
    serial v2 < 3 {
      b1[v0 + v2*8] = r6
    }
  }
}";
        assert_eq!(hoist(&b.finish()).map(|k| k.to_string()).as_deref(), Some(text));
    }
}
