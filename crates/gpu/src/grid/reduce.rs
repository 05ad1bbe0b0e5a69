//! Reduces the carried values of a team's lanes by a fixed tree; every lane has the result.
//!
//! In a subgroup, threads exchange values at doubling distances; the value of the lower lane is the left operand, so that
//! all lanes compute the same bits. Across subgroups, each writes its value to shared memory, and every thread reduces them in
//! order. Without subgroups, the tree runs in shared memory.

use super::emit::Emit;
use super::sync::{LaneAccess, MemoryEffect};
use super::{Buf, Index, Stmt};
use compiler::loops::{self, Reg, Size};
use ir::{Binary, Compare, DType, Scalar};

impl Emit<'_, '_> {
    /// Reduces values of the lanes, each by its operator.
    pub(super) fn join(&mut self, values: &[(Reg, Binary)]) -> Vec<Reg> {
        if self.lanes() == 1 || values.is_empty() {
            return values.iter().map(|v| v.0).collect();
        }
        match self.subgroup() {
            Some(group) => {
                let own: Vec<(Reg, Binary)> =
                    values.iter().map(|&(r, op)| (self.exchange(r, op, group.min(self.lanes())), op)).collect();
                if self.lanes() <= group { own.into_iter().map(|v| v.0).collect() } else { self.across(&own, group) }
            }
            None => self.in_memory(values),
        }
    }

    fn exchange(&mut self, mut value: Reg, op: Binary, lanes: u32) -> Reg {
        let d = self.regs[value.0 as usize];
        // The operand order affects the sign of zeros and the bits of NaNs.
        let ordered = d.is_float() && matches!(op, Binary::Max | Binary::Min);
        let mut xor = 1;
        while xor < lanes {
            let dst = self.reg(d);
            self.push(Stmt::Exchange { dst, src: value, xor });
            let (mut a, mut b) = (value, dst);
            if ordered {
                let bit = self.int(DType::I32, xor as i64);
                let bit = self.binary(Binary::And, self.lane, bit);
                let zero = self.int(DType::I32, 0);
                let low = self.compare(Compare::Eq, bit, zero);
                a = self.arith(d, loops::Op::Select(low, value, dst));
                b = self.arith(d, loops::Op::Select(low, dst, value));
            }
            value = self.arith(d, loops::Op::Binary(op, a, b));
            xor *= 2;
        }
        value
    }

    /// The shared arrays for values; records that they are written or read.
    fn arrays(&mut self, values: &[(Reg, Binary)], len: usize) -> Vec<(Buf, DType)> {
        let dtypes: Vec<DType> = values.iter().map(|v| self.regs[v.0.0 as usize]).collect();
        dtypes.into_iter().enumerate().map(|(k, d)| (self.join_array(k, d, len), d)).collect()
    }

    fn touch_arrays(&mut self, arrays: &[(Buf, DType)], write: bool) {
        let touches: Vec<MemoryEffect> = arrays
            .iter()
            .map(|&(b, _)| MemoryEffect { class: self.class_of(b), write, who: LaneAccess::All })
            .collect();
        self.touch(&touches);
    }

    fn across(&mut self, values: &[(Reg, Binary)], group: u32) -> Vec<Reg> {
        let count = (self.lanes() / group) as usize;
        let arrays = self.arrays(values, count);
        self.touch_arrays(&arrays, true);
        let bits = self.int(DType::I32, group as i64 - 1);
        let bits = self.binary(Binary::And, self.lane, bits);
        let zero = self.int(DType::I32, 0);
        let first = self.compare(Compare::Eq, bits, zero);
        let by = self.int(DType::I32, group.trailing_zeros() as i64);
        let number = self.binary(Binary::Shr, self.lane, by);
        for (&(value, _), &(buf, _)) in values.iter().zip(&arrays) {
            self.push(Stmt::Store { buf, index: at(number), value: vec![value], mask: Some(first) });
        }
        self.touch_arrays(&arrays, false);
        let mut out = Vec::new();
        for (&(_, op), &(buf, d)) in values.iter().zip(&arrays) {
            let mut sum = None;
            for k in 0..count {
                let dst = self.reg(d);
                let index = Index { offset: k as i64, ..Index::default() };
                self.push(Stmt::Load { dst: vec![dst], buf, index, mask: None });
                sum = Some(sum.map_or(dst, |s| self.arith(d, loops::Op::Binary(op, s, dst))));
            }
            out.extend(sum);
        }
        out
    }

    fn in_memory(&mut self, values: &[(Reg, Binary)]) -> Vec<Reg> {
        let arrays = self.arrays(values, self.threads() as usize);
        self.touch_arrays(&arrays, true);
        let mut own: Vec<Reg> = values.iter().map(|v| v.0).collect();
        for (&value, &(buf, _)) in own.iter().zip(&arrays) {
            self.push(Stmt::Store { buf, index: at(self.thread), value: vec![value], mask: None });
        }
        let mut half = self.lanes() / 2;
        while half > 0 {
            self.barrier();
            let limit = self.int(DType::I32, half as i64);
            let low = self.compare(Compare::Lt, self.lane, limit);
            for ((value, &(buf, d)), &(_, op)) in own.iter_mut().zip(&arrays).zip(values) {
                let other = self.reg(d);
                let index = Index { offset: half as i64, ..at(self.thread) };
                let mask = Some((low, Scalar::zero(d)));
                self.push(Stmt::Load { dst: vec![other], buf, index, mask });
                *value = self.arith(d, loops::Op::Binary(op, *value, other));
                self.push(Stmt::Store { buf, index: at(self.thread), value: vec![*value], mask: Some(low) });
            }
            half /= 2;
        }
        self.pending.clear();
        self.barrier();
        self.touch_arrays(&arrays, false);
        let first = self.binary(Binary::Sub, self.thread, self.lane);
        let mut out = Vec::new();
        for &(buf, d) in &arrays {
            let dst = self.reg(d);
            self.push(Stmt::Load { dst: vec![dst], buf, index: at(first), mask: None });
            out.push(dst);
        }
        out
    }
}

fn at(r: Reg) -> Index {
    Index { terms: vec![(r, Size::Const(1))], ..Index::default() }
}
