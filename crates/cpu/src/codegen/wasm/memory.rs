//! Emits addresses, loads and stores.
//!
//! The part of an address without the innermost loop's variable is computed before that loop ([`KernelWriter::enter`]).

use super::body::{L, offset_memarg};
use super::kernel::{KernelWriter, LANES, Parts, VectorLoop, register_type};
use compiler::loops::lanes::index_varies;
use compiler::loops::{Atom, Buf, Index, Loop, Op, Reg, Size, Stmt, Var};
use ir::{DType, Scalar};
use wasm_encoder::{BlockType, Instruction as I, ValType};

/// An address and an additional offset in bytes.
pub(crate) type Address = (L, u64);

impl KernelWriter<'_> {
    /// Computes the parts of addresses that are invariant in a loop.
    pub(crate) fn enter(&mut self, l: &Loop) {
        let mut inside = Vec::new();
        defined(&l.body, &mut inside);
        l.carried.iter().for_each(|c| inside.push(c.phi));
        let mut made: Vec<(Buf, Index, L)> = Vec::new();
        for s in &l.body {
            let (buf, index) = match s {
                Stmt::Let { op: Op::Load { buf, index, .. }, .. } => (*buf, index),
                Stmt::Store { buf, index, .. } => (*buf, index),
                _ => continue,
            };
            let moves = |a: &Atom| match a {
                Atom::Var(v) => *v == l.var,
                Atom::Reg(r) => inside.contains(r) || self.varying[r.0 as usize],
            };
            if index.terms.iter().any(|(a, _)| matches!(a, Atom::Reg(_)) && moves(a)) {
                continue;
            }
            let mut fixed = index.clone();
            fixed.terms.retain(|(a, _)| !moves(a));
            let found = made.iter().find(|(b, i, _)| *b == buf && *i == fixed).map(|m| m.2);
            let base = found.unwrap_or_else(|| {
                let base = self.whole_address(buf, &fixed);
                made.push((buf, fixed, base));
                base
            });
            self.bases.insert(&raw const *index, base);
        }
    }

    fn element(&self, buf: Buf) -> i64 {
        self.k.buffers[buf.0 as usize].dtype.size() as i64
    }

    fn whole_address(&mut self, buf: Buf, index: &Index) -> L {
        let size = self.element(buf);
        let mut at = self.bufs[buf.0 as usize];
        if index.offset != 0 {
            let c = self.b.const_i32((index.offset.wrapping_mul(size)) as i32);
            at = self.b.i32(I::I32Add, &[at, c]);
        }
        for &a in &index.offset_args {
            at = self.plus(at, Size::Arg(a), size, None);
        }
        for &(atom, stride) in &index.terms {
            if let Atom::Reg(r) = atom
                && self.vectors.is_some()
                && self.varying[r.0 as usize]
            {
                continue;
            }
            let v = self.atom(atom);
            at = self.plus(at, stride, size, Some(v));
        }
        at
    }

    /// Computes `at + stride · size · v`.
    fn plus(&mut self, at: L, stride: Size, size: i64, v: Option<L>) -> L {
        let scaled = match (stride, v) {
            (Size::Const(s), Some(v)) => {
                let by = s.wrapping_mul(size);
                if by == 1 {
                    v
                } else {
                    let c = self.b.const_i32(by as i32);
                    self.b.i32(I::I32Mul, &[v, c])
                }
            }
            (Size::Const(s), None) => self.b.const_i32(s.wrapping_mul(size) as i32),
            (s, v) => {
                let (s, c) = (self.size32(s), self.b.const_i32(size as i32));
                let step = self.b.i32(I::I32Mul, &[s, c]);
                match v {
                    Some(v) => self.b.i32(I::I32Mul, &[v, step]),
                    None => step,
                }
            }
        };
        self.b.i32(I::I32Add, &[at, scaled])
    }

    /// Returns an index's variable part as an i32.
    fn atom(&mut self, a: Atom) -> L {
        match a {
            Atom::Var(v) => self.var(v),
            Atom::Reg(r) => {
                let l = self.scalar(r);
                self.b.i32(I::I32WrapI64, &[l])
            }
        }
    }

    fn var(&self, v: Var) -> L {
        self.vars[v.0 as usize].expect("loop variables are used inside their loops")
    }

    /// Returns the address of an element.
    /// In lanes, it is the address of the first lane without the terms of registers that vary by lane.
    fn address(&mut self, buf: Buf, index: &Index) -> L {
        let Some(&base) = self.bases.get(&(&raw const *index)) else { return self.whole_address(buf, index) };
        // Add the term of the innermost loop's variable, which the base does not include.
        let size = self.element(buf);
        let mut at = base;
        for &(atom, stride) in &index.terms {
            if let Atom::Var(v) = atom
                && self.innermost == Some(v)
            {
                let v = self.var(v);
                at = self.plus(at, stride, size, Some(v));
            }
        }
        at
    }

    /// Returns the addresses of all lanes. With a mask, the first lane's address may be invalid, and constant offsets from it
    /// must not be used because they do not wrap.
    fn addresses(&mut self, vectors: VectorLoop, buf: Buf, index: &Index, masked: bool) -> Vec<Address> {
        let size = self.element(buf);
        let first = self.address(buf, index);
        let strides = index.terms.iter().filter(|(a, _)| *a == Atom::Var(vectors.var)).map(|t| t.1);
        let strides: Vec<Size> = strides.collect();
        let reg = |(a, s): &(Atom, Size)| match a {
            Atom::Reg(r) if self.varying[r.0 as usize] => Some((*r, *s)),
            _ => None,
        };
        let regs: Vec<(Reg, Size)> = index.terms.iter().filter_map(reg).collect();
        let regs: Vec<(Parts, Size)> = regs.into_iter().map(|(r, s)| (self.lanes(r), s)).collect();
        (0..LANES * vectors.copies)
            .map(|lane| {
                let mut at = (first, 0);
                for &s in &strides {
                    match s {
                        Size::Const(s) if s >= 0 && regs.is_empty() && !masked => {
                            at.1 += (s * size) as u64 * lane as u64
                        }
                        _ => {
                            let v = self.b.const_i32(lane as i32);
                            at.0 = self.plus(at.0, s, size, Some(v));
                        }
                    }
                }
                for (parts, s) in &regs {
                    let v = self.extract(DType::I64, parts, lane);
                    let v = self.b.i32(I::I32WrapI64, &[v]);
                    at.0 = self.plus(at.0, *s, size, Some(v));
                }
                at
            })
            .collect()
    }

    pub(crate) fn scalar_load(&mut self, buf: Buf, index: &Index) -> L {
        let at = self.address(buf, index);
        self.load_at(self.k.buffers[buf.0 as usize].dtype, (at, 0))
    }

    fn load_at(&mut self, d: DType, (at, offset): Address) -> L {
        let m = offset_memarg(offset);
        match d {
            DType::F32 => self.b.value(ValType::F32, I::F32Load(m), &[at]),
            DType::F64 => self.b.value(ValType::F64, I::F64Load(m), &[at]),
            DType::I32 | DType::U32 => self.b.i32(I::I32Load(m), &[at]),
            DType::I64 | DType::U64 => self.b.i64(I::I64Load(m), &[at]),
            DType::I8 => self.b.i32(I::I32Load8S(m), &[at]),
            DType::I16 => self.b.i32(I::I32Load16S(m), &[at]),
            DType::U8 => self.b.i32(I::I32Load8U(m), &[at]),
            DType::U16 => self.b.i32(I::I32Load16U(m), &[at]),
            DType::Bool => {
                let v = self.b.i32(I::I32Load8U(m), &[at]);
                let zero = self.b.const_i32(0);
                self.b.i32(I::I32Ne, &[v, zero])
            }
            DType::BF16 => {
                let v = self.b.i32(I::I32Load16U(m), &[at]);
                let n = self.b.const_i32(16);
                let v = self.b.i32(I::I32Shl, &[v, n]);
                self.b.value(ValType::F32, I::F32ReinterpretI32, &[v])
            }
            d => {
                let like = bits_of(d);
                let v = self.load_at(like, (at, offset));
                self.call_helper_scalar(&Op::Bitcast(d, Reg(0)), like, d, &[v])
            }
        }
    }

    fn store_at(&mut self, d: DType, (at, offset): Address, value: L) {
        let m = offset_memarg(offset);
        let (value, i) = match d {
            DType::F32 => (value, I::F32Store(m)),
            DType::F64 => (value, I::F64Store(m)),
            DType::I32 | DType::U32 => (value, I::I32Store(m)),
            DType::I64 | DType::U64 => (value, I::I64Store(m)),
            DType::I8 | DType::U8 | DType::Bool => (value, I::I32Store8(m)),
            DType::I16 | DType::U16 => (value, I::I32Store16(m)),
            DType::BF16 => {
                // Registers of bf16 are already rounded.
                let v = self.b.i32(I::I32ReinterpretF32, &[value]);
                let n = self.b.const_i32(16);
                (self.b.i32(I::I32ShrU, &[v, n]), I::I32Store16(m))
            }
            d => {
                let like = bits_of(d);
                let v = self.call_helper_scalar(&Op::Bitcast(like, Reg(0)), d, like, &[value]);
                return self.store_at(like, (at, offset), v);
            }
        };
        self.b.get(at);
        self.b.get(value);
        self.b.push(i);
    }

    pub(crate) fn masked_load(&mut self, buf: Buf, index: &Index, mask: Reg, other: Scalar) -> L {
        let d = self.k.buffers[buf.0 as usize].dtype;
        let out = self.b.local(register_type(d));
        let other = self.constant(other);
        self.b.get(other);
        self.b.set(out);
        let m = self.scalar(mask);
        self.b.get(m);
        self.b.push(I::If(BlockType::Empty));
        let v = self.scalar_load(buf, index);
        self.b.get(v);
        self.b.set(out);
        self.b.push(I::End);
        out
    }

    pub(crate) fn scalar_store(&mut self, buf: Buf, index: &Index, value: Reg, mask: Option<Reg>) {
        let v = self.scalar(value);
        if let Some(m) = mask {
            let m = self.scalar(m);
            self.b.get(m);
            self.b.push(I::If(BlockType::Empty));
        }
        let at = self.address(buf, index);
        self.store_at(self.k.buffers[buf.0 as usize].dtype, (at, 0), v);
        if mask.is_some() {
            self.b.push(I::End);
        }
    }

    /// Returns whether adjacent lanes are adjacent in memory.
    fn adjacent(&self, vectors: VectorLoop, index: &Index) -> bool {
        let mut own = index.terms.iter().filter(|(a, _)| *a == Atom::Var(vectors.var));
        let once = own.next().is_some_and(|t| t.1 == Size::Const(1)) && own.next().is_none();
        once && index.terms.iter().all(|(a, _)| !matches!(a, Atom::Reg(r) if self.varying[r.0 as usize]))
    }

    pub(crate) fn vector_load(&mut self, buf: Buf, index: &Index, mask: Option<(Reg, Scalar)>) -> Parts {
        let vectors = self.vectors.expect("inside of a vector loop");
        let d = self.k.buffers[buf.0 as usize].dtype;
        let adjacent = self.adjacent(vectors, index);
        let Some((mask, other)) = mask else {
            if adjacent {
                let at = self.address(buf, index);
                return (0..vectors.copies)
                    .flat_map(|c| self.load_f32x4(d, (at, (c * LANES * d.size()) as u64)))
                    .collect();
            }
            let at = self.addresses(vectors, buf, index, false);
            let lanes: Vec<L> = at.into_iter().map(|at| self.load_at(d, at)).collect();
            return self.from_lanes(d, &lanes);
        };
        let masks = self.lanes(mask);
        let out: Parts = (0..self.count(d)).map(|_| self.b.local(ValType::V128)).collect();
        for (o, v) in out.iter().zip(self.constant_parts(other)) {
            self.b.get(v);
            self.b.set(*o);
        }
        let first = adjacent.then(|| self.address(buf, index));
        let at = self.addresses(vectors, buf, index, true);
        let each = out.len() / vectors.copies;
        for c in 0..vectors.copies {
            let own = &out[c * each..(c + 1) * each];
            if let Some(first) = first {
                self.b.get(masks[c]);
                self.b.push(I::I32x4AllTrue);
                self.b.push(I::If(BlockType::Empty));
                let v = self.load_f32x4(d, (first, (c * LANES * d.size()) as u64));
                for (o, v) in own.iter().zip(v) {
                    self.b.get(v);
                    self.b.set(*o);
                }
                self.b.push(I::Else);
            }
            for lane in 0..LANES {
                self.b.get(masks[c]);
                self.b.push(I::I32x4ExtractLane(lane as u8));
                self.b.push(I::If(BlockType::Empty));
                let v = self.load_at(d, at[c * LANES + lane]);
                self.replace(d, own, lane, v);
                self.b.push(I::End);
            }
            if first.is_some() {
                self.b.push(I::End);
            }
        }
        out
    }

    /// Loads four adjacent elements.
    fn load_f32x4(&mut self, d: DType, (at, offset): Address) -> Parts {
        let m = offset_memarg(offset);
        let v = match d {
            DType::F32 | DType::I32 | DType::U32 => self.b.v128(I::V128Load(m), &[at]),
            d if d.size() == 8 => {
                let low = self.b.v128(I::V128Load(m), &[at]);
                return vec![low, self.b.v128(I::V128Load(offset_memarg(offset + 16)), &[at])];
            }
            DType::I16 => self.b.v128(I::V128Load16x4S(m), &[at]),
            DType::U16 => self.b.v128(I::V128Load16x4U(m), &[at]),
            DType::BF16 => {
                let v = self.b.v128(I::V128Load16x4U(m), &[at]);
                let n = self.b.const_i32(16);
                self.b.v128(I::I32x4Shl, &[v, n])
            }
            DType::I8 => {
                let v = self.b.v128(I::V128Load32Zero(m), &[at]);
                let v = self.b.v128(I::I16x8ExtendLowI8x16S, &[v]);
                self.b.v128(I::I32x4ExtendLowI16x8S, &[v])
            }
            DType::U8 | DType::Bool => {
                let v = self.b.v128(I::V128Load32Zero(m), &[at]);
                let v = self.b.v128(I::I16x8ExtendLowI8x16U, &[v]);
                let v = self.b.v128(I::I32x4ExtendLowI16x8U, &[v]);
                if d == DType::U8 {
                    v
                } else {
                    let zero = self.b.splat32(0);
                    self.b.v128(I::I32x4Ne, &[v, zero])
                }
            }
            d => {
                let like = bits_of(d);
                let v = self.load_f32x4(like, (at, offset));
                return self.call_helper_vector(&Op::Bitcast(d, Reg(0)), like, d, &[&v]);
            }
        };
        vec![v]
    }

    fn store_f32x4(&mut self, d: DType, (at, offset): Address, parts: &[L]) {
        let m = offset_memarg(offset);
        let (v, i) = match d {
            DType::F32 | DType::I32 | DType::U32 => (parts[0], I::V128Store(m)),
            d if d.size() == 8 => {
                self.b.get(at);
                self.b.get(parts[0]);
                self.b.push(I::V128Store(m));
                (parts[1], I::V128Store(offset_memarg(offset + 16)))
            }
            DType::I8 | DType::U8 | DType::Bool => {
                let mut v = parts[0];
                if d == DType::Bool {
                    let one = self.b.splat32(1);
                    v = self.b.v128(I::V128And, &[v, one]);
                }
                let v = self.b.v128(I::I8x16Shuffle([0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), &[v, v]);
                (v, I::V128Store32Lane { memarg: m, lane: 0 })
            }
            DType::I16 | DType::U16 | DType::BF16 => {
                let from = if d == DType::BF16 { 2 } else { 0 };
                let mut bytes = [0; 16];
                for i in 0..4 {
                    (bytes[2 * i], bytes[2 * i + 1]) = (4 * i as u8 + from, 4 * i as u8 + from + 1);
                }
                let v = self.b.v128(I::I8x16Shuffle(bytes), &[parts[0], parts[0]]);
                (v, I::V128Store64Lane { memarg: m, lane: 0 })
            }
            d => {
                let like = bits_of(d);
                let v = self.call_helper_vector(&Op::Bitcast(like, Reg(0)), d, like, &[parts]);
                return self.store_f32x4(like, (at, offset), &v);
            }
        };
        self.b.get(at);
        self.b.get(v);
        self.b.push(i);
    }

    pub(crate) fn vector_store(&mut self, vectors: VectorLoop, buf: Buf, index: &Index, value: Reg, mask: Option<Reg>) {
        let d = self.k.buffers[buf.0 as usize].dtype;
        let v = self.lanes(value);
        let each = v.len() / vectors.copies;
        let adjacent = self.adjacent(vectors, index);
        let masks = mask.map(|m| self.lanes(m));
        if adjacent && masks.is_none() {
            let at = self.address(buf, index);
            for c in 0..vectors.copies {
                self.store_f32x4(d, (at, (c * LANES * d.size()) as u64), &v[c * each..(c + 1) * each]);
            }
            return;
        }
        if !index_varies(index, Some(vectors.var), &self.varying) && masks.is_none() {
            // All lanes store to the same element: the last lane's value remains.
            let last = self.extract(d, &v, LANES * vectors.copies - 1);
            let at = self.address(buf, index);
            return self.store_at(d, (at, 0), last);
        }
        let first = adjacent.then(|| self.address(buf, index));
        let at = self.addresses(vectors, buf, index, masks.is_some());
        for c in 0..vectors.copies {
            if let (Some(masks), Some(first)) = (&masks, first) {
                self.b.get(masks[c]);
                self.b.push(I::I32x4AllTrue);
                self.b.push(I::If(BlockType::Empty));
                self.store_f32x4(d, (first, (c * LANES * d.size()) as u64), &v[c * each..(c + 1) * each]);
                self.b.push(I::Else);
            }
            for lane in c * LANES..(c + 1) * LANES {
                if let Some(masks) = &masks {
                    self.b.get(masks[c]);
                    self.b.push(I::I32x4ExtractLane((lane % LANES) as u8));
                    self.b.push(I::If(BlockType::Empty));
                }
                let x = self.extract(d, &v, lane);
                self.store_at(d, at[lane], x);
                if masks.is_some() {
                    self.b.push(I::End);
                }
            }
            if masks.is_some() && first.is_some() {
                self.b.push(I::End);
            }
        }
    }
}

/// Returns the registers that a block defines.
fn defined(body: &[Stmt], out: &mut Vec<Reg>) {
    for s in body {
        match s {
            Stmt::Let { dst, op } if !matches!(op, Op::Const(_)) => out.push(*dst),
            Stmt::Loop(l) => {
                out.extend(l.carried.iter().flat_map(|c| [c.phi, c.out]));
                defined(&l.body, out);
            }
            _ => {}
        }
    }
}

/// Returns the integer type with a narrow float's bits.
fn bits_of(d: DType) -> DType {
    if d.size() == 2 { DType::U16 } else { DType::U8 }
}
