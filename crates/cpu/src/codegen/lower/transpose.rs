//! Loops that copy a block of rows column by column, or back, become one call of the routine that transposes tiles.
//!
//! Such loops surround kernels with one short row per lane. Copying lane by lane would take longer than the kernel itself.

use super::super::helper;
use super::super::inst::{Inst, Mem, V};
use super::Lower;
use super::loops::Count;
use compiler::loops::{Atom, Buf, Extent, Index, Loop, LoopKind, Op, Size, Stmt, Var};

/// A copy: its source and destination.
struct Copy<'a> {
    from: (Buf, &'a Index),
    to: (Buf, &'a Index),
    /// The extents of the rows, and of their elements.
    extents: [&'a Extent; 2],
    vars: [Var; 2],
}

fn copy(l: &Loop) -> Option<Copy<'_>> {
    let [Stmt::Loop(inner)] = &l.body[..] else { return None };
    let [
        Stmt::Let { dst, op: Op::Load { buf: from, index: read, mask: None } },
        Stmt::Store { buf: to, index: written, value, mask: None },
    ] = &inner.body[..]
    else {
        return None;
    };
    let plain = l.kind == LoopKind::Vector && inner.kind == LoopKind::Serial && value == dst;
    let vars = [l.var, inner.var];
    plain.then_some(Copy { from: (*from, read), to: (*to, written), extents: [&l.extent, &inner.extent], vars })
}

/// Returns the index without two variables, and their strides.
fn split_strides(index: &Index, vars: [Var; 2]) -> Option<(Index, [Size; 2])> {
    let (mut rest, mut strides) = (index.clone(), [None; 2]);
    rest.terms.retain(|(atom, _)| !vars.iter().any(|v| *atom == Atom::Var(*v)));
    for (atom, stride) in &index.terms {
        if let Some(k) = vars.iter().position(|v| *atom == Atom::Var(*v)) {
            if strides[k].is_some() {
                return None;
            }
            strides[k] = Some(*stride);
        }
    }
    Some((rest, [strides[0]?, strides[1]?]))
}

impl Lower<'_> {
    /// Emits the call if the loops only transpose rows or transpose them back; returns whether they do.
    pub(super) fn lower_transpose(&mut self, l: &Loop) -> bool {
        let Some(copy) = copy(l) else { return false };
        let ends = (split_strides(copy.from.1, copy.vars), split_strides(copy.to.1, copy.vars));
        let (Some((read, [row_read, column_read])), Some((written, [row_written, column_written]))) = ends else {
            return false;
        };
        const ONE: Size = Size::Const(1);
        let back = match (column_read, row_written, row_read, column_written) {
            (ONE, ONE, _, _) => false,
            (_, _, ONE, ONE) => true,
            _ => return false,
        };
        let (outside, inside) = if back { (row_written, column_read) } else { (row_read, column_written) };
        let [rows, columns] = copy.extents.map(|e| self.count(e));
        self.l = 1;
        for (k, (buf, index)) in [(copy.from.0, &read), (copy.to.0, &written)].into_iter().enumerate() {
            let mem = self.address(Some(buf), index);
            let p = self.gpr();
            self.lea(p, mem);
            self.hand_over(k, p);
        }
        for (k, n) in [(2, rows), (3, columns)] {
            let n = self.counted(n);
            self.hand_over(k, n);
        }
        for (k, s) in [(4, outside), (5, inside)] {
            let s = match s {
                Size::Const(n) => self.counted(Count::Const(n)),
                Size::Arg(a) => self.size_arg(a, 1),
            };
            self.hand_over(k, s);
        }
        let bytes = self.k.buffers[copy.from.0.0 as usize].dtype.size();
        self.emit(Inst::Call { code: helper::transpose_code(bytes, back, self.wide_target()) });
        true
    }

    fn counted(&mut self, n: Count) -> V {
        match n {
            Count::Reg(v) => v,
            Count::Const(n) => {
                let v = self.gpr();
                self.imm(v, n);
                v
            }
        }
    }

    /// Stores a word in the transfer area.
    fn hand_over(&mut self, k: usize, v: V) {
        self.store_gpr(v, Mem::frame(8 * k as i32), 8);
    }
}
