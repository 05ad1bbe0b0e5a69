//! Scratch memory between the loops of a row, for expensive values that a later loop needs again.

use super::{Bind, Emitter};
use crate::fuse::expr::ExprId;
use crate::fuse::lower::{Param, ValueRole};
use crate::loops::{self, AccessMode, Buf};
use rustc_hash::FxHashMap;

impl Emitter<'_> {
    /// Finds expensive expressions of the columns that more than one loop of a row needs.
    pub(in crate::fuse) fn plan_cache(&mut self, levels: u32) {
        let row: i64 = self.shape.cols.iter().map(|&v| self.shape.extents[v]).product();
        let in_row = self.shape.vector.is_some_and(|v| self.shape.cols.contains(&v));
        let kept = row * self.shape.interleaved_rows.map_or(1, |a| a.rows);
        if self.tile.is_some()
            || levels == 0
            || !(in_row || self.shape.interleaved_rows.is_some())
            || self.shape.cols.len() != 1
            || kept as usize * 8 > self.row_scratch
        {
            return;
        }
        let col_vars = self.shape.cols.iter().fold(0u64, |m, v| m | 1 << v) | self.merged_into_cols();
        let mut phases: Vec<Vec<ExprId>> = (1..=levels)
            .map(|l| self.reductions.iter().filter(|r| r.level == l).map(|r| r.operand).collect())
            .collect();
        phases.push(self.stores.iter().filter(|s| s.1 == ValueRole::Full).map(|s| s.2).collect());
        let mut first = FxHashMap::default();
        let mut shared = Vec::new();
        for (p, targets) in phases.iter().enumerate() {
            let mut seen = Vec::new();
            let mut stack = targets.clone();
            while let Some(e) = stack.pop() {
                if seen.contains(&e) || self.g.exprs.info(e).vars & col_vars == 0 {
                    continue;
                }
                seen.push(e);
                match first.get(&e) {
                    // An earlier loop has already computed this one, so its operands are not needed again.
                    Some(&q) if q < p => {
                        if self.g.exprs.info(e).cost >= 12 && !shared.contains(&e) {
                            shared.push(e);
                        }
                        if self.g.exprs.info(e).cost >= 12 {
                            continue;
                        }
                    }
                    Some(_) => {}
                    None => {
                        first.insert(e, p);
                    }
                }
                stack.extend(self.g.exprs.get(e).children());
            }
        }
        for e in shared.into_iter().take(4) {
            let dtype = self.g.exprs.info(e).dtype;
            let buf = self.b.buffer(dtype, AccessMode::Scratch(kept as usize));
            self.params.push(Param::Scratch(kept as usize * dtype.size()));
            self.cached.insert(e, buf);
        }
    }

    pub(in crate::fuse) fn merged_into_cols(&self) -> u64 {
        let mut mask = 0;
        for u in 0..self.shape.merged.len() {
            let mut v = u;
            while let Some(m) = self.shape.merged[v] {
                v = m;
            }
            if v != u && self.shape.cols.contains(&v) {
                mask |= 1 << u;
            }
        }
        mask
    }

    /// Stores the values that the current loop has computed and later loops need.
    pub(in crate::fuse) fn write_cache(&mut self, _here: &[usize]) {
        let mut todo: Vec<(ExprId, Buf)> = self.cached.iter().map(|(e, b)| (*e, *b)).collect();
        todo.sort();
        for (e, buf) in todo {
            if self.written.contains(&e) {
                continue;
            }
            let Some(r) = self.find(e) else { continue };
            if let Some(at) = self.column() {
                self.b.store(buf, at, r);
                self.written.push(e);
            }
        }
    }

    /// The position of the innermost loop of a row, as an index into its scratch.
    pub(super) fn column(&self) -> Option<loops::Index> {
        let column = self.bind[*self.shape.cols.last()?];
        if let (Some(a), Some(v)) = (self.shape.interleaved_rows, self.shape.vector) {
            let Bind::Block(_, row) = self.bind[v] else { return None };
            let row = loops::Index::from(row);
            return match column {
                Bind::Var(column) => Some(row.add_var(column, a.rows)),
                Bind::Block(start, column) => {
                    Some(row.add_atom(loops::Atom::Reg(start), loops::Size::Const(a.rows)).add_var(column, a.rows))
                }
                Bind::Unbound | Bind::Reg(_) => None,
            };
        }
        match column {
            Bind::Var(var) => Some(var.into()),
            Bind::Block(start, var) => Some(loops::Index::from(start).add_var(var, 1)),
            Bind::Unbound | Bind::Reg(_) => None,
        }
    }
}
