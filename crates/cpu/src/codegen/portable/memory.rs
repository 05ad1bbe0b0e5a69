//! Emits addresses, loads and stores.

use super::kernel::{LANES, Parts, Writer};
use super::register_type;
use super::vector::{EVEN_HALVES, HIGH_HALVES, lane_type};
use compiler::loops::lanes::index_varies;
use compiler::loops::{AccessMode, Atom, Buf, Index, Op, Reg, Size};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use ir::{DType, Scalar};

impl Writer<'_> {
    fn element(&self, buf: Buf) -> DType {
        self.k.buffers[buf.0 as usize].dtype
    }

    /// The memory flags of a buffer: it may alias other arguments, and is aligned to its elements.
    fn memory(&self, buf: Buf) -> MemFlagsData {
        match self.k.buffers[buf.0 as usize].mode {
            AccessMode::Scratch(_) => MemFlagsData::new(),
            _ => MemFlagsData::new().with_notrap(),
        }
    }

    fn atom(&mut self, a: Atom) -> Value {
        match a {
            Atom::Var(v) => self.vars[v.0 as usize].expect("loop variables are used inside their loops"),
            Atom::Reg(r) => self.scalar(r),
        }
    }

    /// Computes `at + stride · size · v`.
    fn plus(&mut self, at: Value, stride: Size, size: i64, v: Value) -> Value {
        let part = match stride {
            Size::Const(n) => self.b.ins().imul_imm_s(v, n.wrapping_mul(size)),
            Size::Arg(n) => {
                let step = self.b.ins().imul_imm_s(self.sizes[n as usize], size);
                self.b.ins().imul(v, step)
            }
        };
        self.b.ins().iadd(at, part)
    }

    /// Computes `start + index · size`; in lanes, for the first lane without the terms that vary by lane. The terms that are
    /// invariant in the innermost loop come first, so that Cranelift hoists them.
    fn affine(&mut self, start: Value, index: &Index, size: i64) -> Value {
        let mut at = start;
        if index.offset != 0 {
            at = self.b.ins().iadd_imm_s(at, index.offset.wrapping_mul(size));
        }
        for &a in &index.offset_args {
            let bytes = self.b.ins().imul_imm_s(self.sizes[a as usize], size);
            at = self.b.ins().iadd(at, bytes);
        }
        for last in [false, true] {
            for &(atom, stride) in &index.terms {
                let by_lane = matches!(atom, Atom::Reg(r) if self.in_lanes(r));
                if !by_lane && last == matches!(atom, Atom::Var(v) if self.innermost == Some(v)) {
                    let v = self.atom(atom);
                    at = self.plus(at, stride, size, v);
                }
            }
        }
        at
    }

    /// Returns the value of an index.
    pub(super) fn index(&mut self, index: &Index) -> Value {
        let zero = self.b.ins().iconst(types::I64, 0);
        self.affine(zero, index, 1)
    }

    fn address(&mut self, buf: Buf, index: &Index) -> Value {
        let (start, size) = (self.bufs[buf.0 as usize], self.element(buf).size() as i64);
        if self.pointer == types::I64 {
            return self.affine(start, index, size);
        }
        let zero = self.b.ins().iconst(types::I64, 0);
        let bytes = self.affine(zero, index, size);
        let bytes = self.b.ins().ireduce(self.pointer, bytes);
        self.b.ins().iadd(start, bytes)
    }

    /// Returns the addresses of all lanes.
    fn addresses(&mut self, buf: Buf, index: &Index) -> Vec<Value> {
        let vectors = self.vectors.expect("inside of a vector loop");
        let size = self.element(buf).size() as i64;
        let first = self.address(buf, index);
        let strides: Vec<Size> =
            index.terms.iter().filter(|(a, _)| *a == Atom::Var(vectors.var)).map(|t| t.1).collect();
        let mut regs: Vec<(Parts, Size)> = Vec::new();
        for &(a, s) in &index.terms {
            if let Atom::Reg(r) = a
                && self.in_lanes(r)
            {
                regs.push((self.lanes(r), s));
            }
        }
        let mut all = Vec::with_capacity(LANES * vectors.copies);
        for lane in 0..LANES * vectors.copies {
            let mut at = first;
            for &s in &strides {
                let v = self.b.ins().iconst(types::I64, lane as i64);
                at = self.plus(at, s, size, v);
            }
            for (parts, s) in &regs {
                let v = self.extract(DType::I64, parts, lane);
                at = self.plus(at, *s, size, v);
            }
            all.push(at);
        }
        all
    }

    pub(super) fn scalar_load(&mut self, buf: Buf, index: &Index) -> Value {
        let at = self.address(buf, index);
        self.load_at(buf, at)
    }

    fn load_at(&mut self, buf: Buf, at: Value) -> Value {
        let (d, flags) = (self.element(buf), self.memory(buf));
        match d {
            DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
                self.b.ins().load(register_type(d), flags, at, 0)
            }
            DType::I8 => self.b.ins().sload8(types::I32, flags, at, 0),
            DType::I16 => self.b.ins().sload16(types::I32, flags, at, 0),
            DType::U8 => self.b.ins().uload8(types::I32, flags, at, 0),
            DType::U16 => self.b.ins().uload16(types::I32, flags, at, 0),
            DType::Bool => {
                let v = self.b.ins().uload8(types::I32, flags, at, 0);
                self.truth(v)
            }
            DType::BF16 => {
                let v = self.b.ins().uload16(types::I32, flags, at, 0);
                let v = self.b.ins().ishl_imm_s(v, 16);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), v)
            }
            // Other narrow floats: load their bits as an integer, and convert with the helper.
            d => {
                let like = bits_of(d);
                let bits = match d.size() {
                    2 => self.b.ins().uload16(types::I32, flags, at, 0),
                    _ => self.b.ins().uload8(types::I32, flags, at, 0),
                };
                self.call_helper_scalar(&Op::Bitcast(d, Reg(0)), like, d, &[bits])
            }
        }
    }

    fn store_at(&mut self, buf: Buf, at: Value, value: Value) {
        let (d, flags) = (self.element(buf), self.memory(buf));
        match d {
            DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
                self.b.ins().store(flags, value, at, 0)
            }
            DType::I8 | DType::U8 | DType::Bool => self.b.ins().istore8(flags, value, at, 0),
            DType::I16 | DType::U16 => self.b.ins().istore16(flags, value, at, 0),
            DType::BF16 => {
                // Registers of bf16 are already rounded.
                let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), value);
                let bits = self.b.ins().ushr_imm_s(bits, 16);
                self.b.ins().istore16(flags, bits, at, 0)
            }
            d => {
                let bits = self.call_helper_scalar(&Op::Bitcast(bits_of(d), Reg(0)), d, bits_of(d), &[value]);
                match d.size() {
                    2 => self.b.ins().istore16(flags, bits, at, 0),
                    _ => self.b.ins().istore8(flags, bits, at, 0),
                }
            }
        };
    }

    /// Emits `then` for where the condition is true, and `other` for where it is false.
    fn if_(&mut self, condition: Value, then: impl FnOnce(&mut Self), other: impl FnOnce(&mut Self)) {
        let [yes, no, after] = [0; 3].map(|_| self.b.create_block());
        self.b.ins().brif(condition, yes, &[], no, &[]);
        self.b.switch_to_block(yes);
        then(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(no);
        other(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    pub(super) fn masked_load(&mut self, buf: Buf, index: &Index, mask: Reg, other: Scalar) -> Value {
        let (other, m) = (self.constant(other), self.scalar(mask));
        let result = self.variable(other);
        let load = |w: &mut Self| {
            let v = w.scalar_load(buf, index);
            w.b.def_var(result, v);
        };
        self.if_(m, load, |_| {});
        self.b.use_var(result)
    }

    pub(super) fn scalar_store(&mut self, buf: Buf, index: &Index, value: Reg, mask: Option<Reg>) {
        let v = self.scalar(value);
        let store = |w: &mut Self| {
            let at = w.address(buf, index);
            w.store_at(buf, at, v);
        };
        match mask {
            None => store(self),
            Some(m) => {
                let m = self.scalar(m);
                self.if_(m, store, |_| {});
            }
        }
    }

    /// Returns whether adjacent lanes are adjacent in memory.
    fn adjacent(&self, index: &Index) -> bool {
        let var = self.vectors.expect("inside of a vector loop").var;
        let mut own = index.terms.iter().filter(|(a, _)| *a == Atom::Var(var));
        let once = own.next().is_some_and(|t| t.1 == Size::Const(1)) && own.next().is_none();
        once && index.terms.iter().all(|(a, _)| !matches!(a, Atom::Reg(r) if self.in_lanes(*r)))
    }

    pub(super) fn vector_load(&mut self, buf: Buf, index: &Index, mask: Option<(Reg, Scalar)>) -> Parts {
        let d = self.element(buf);
        let copies = self.copies();
        let adjacent = self.adjacent(index);
        let Some((mask, other)) = mask else {
            if adjacent {
                let at = self.address(buf, index);
                return (0..copies).flat_map(|c| self.load_four(buf, at, c)).collect();
            }
            let at = self.addresses(buf, index);
            let lanes: Vec<Value> = at.into_iter().map(|at| self.load_at(buf, at)).collect();
            return self.from_lanes(d, &lanes);
        };
        let (masks, start) = (self.lanes(mask), self.constant_parts(other));
        let each = start.len() / copies;
        let out: Vec<_> = start.into_iter().map(|v| self.variable(v)).collect();
        let first = adjacent.then(|| self.address(buf, index));
        let at = self.addresses(buf, index);
        for c in 0..copies {
            let own = &out[c * each..(c + 1) * each];
            let by_lane = |w: &mut Self| {
                for lane in 0..LANES {
                    let on = w.b.ins().extractlane(masks[c], lane as u8);
                    let load = |w: &mut Self| {
                        let v = w.load_at(buf, at[c * LANES + lane]);
                        let own_lane = &own[lane * each / LANES];
                        let part = w.b.use_var(*own_lane);
                        let part = w.replace(d, part, lane % (LANES / each), v);
                        w.b.def_var(*own_lane, part);
                    };
                    w.if_(on, load, |_| {});
                }
            };
            let Some(first) = first else {
                by_lane(self);
                continue;
            };
            let all = self.b.ins().vall_true(masks[c]);
            let whole = |w: &mut Self| {
                let v = w.load_four(buf, first, c);
                own.iter().zip(v).for_each(|(o, v)| w.b.def_var(*o, v));
            };
            self.if_(all, whole, by_lane);
        }
        out.into_iter().map(|o| self.b.use_var(o)).collect()
    }

    /// Loads the `c`-th group of four elements from an address on.
    fn load_four(&mut self, buf: Buf, at: Value, c: usize) -> Parts {
        let (d, flags) = (self.element(buf), self.memory(buf));
        let offset = (c * LANES * d.size()) as i32;
        let v = match d {
            DType::F32 | DType::I32 | DType::U32 => self.b.ins().load(lane_type(d), flags, at, offset),
            d if d.size() == 8 => {
                return [0, 16].map(|o| self.b.ins().load(lane_type(d), flags, at, offset + o)).to_vec();
            }
            DType::I16 => self.b.ins().sload16x4(flags, at, offset),
            DType::U16 => self.b.ins().uload16x4(flags, at, offset),
            DType::BF16 => {
                let v = self.b.ins().uload16x4(flags, at, offset);
                let v = self.shl(v, 16);
                self.like(types::F32X4, v)
            }
            DType::I8 | DType::U8 | DType::Bool => {
                let v = self.b.ins().load(types::I32, flags, at, offset);
                let v = self.b.ins().scalar_to_vector(types::I32X4, v);
                let v = self.like(types::I8X16, v);
                if d == DType::I8 {
                    let v = self.b.ins().swiden_low(v);
                    self.b.ins().swiden_low(v)
                } else {
                    let v = self.b.ins().uwiden_low(v);
                    let v = self.b.ins().uwiden_low(v);
                    if d == DType::U8 { v } else { self.nonzero_lanes(v) }
                }
            }
            d => {
                let like = bits_of(d);
                let v = match d.size() {
                    2 => self.b.ins().uload16x4(flags, at, offset),
                    _ => {
                        let v = self.b.ins().load(types::I32, flags, at, offset);
                        let v = self.b.ins().scalar_to_vector(types::I32X4, v);
                        let v = self.like(types::I8X16, v);
                        let v = self.b.ins().uwiden_low(v);
                        self.b.ins().uwiden_low(v)
                    }
                };
                return self.call_helper_lanes(&Op::Bitcast(d, Reg(0)), like, d, &[&[v]], 1);
            }
        };
        vec![v]
    }

    /// Stores four elements as the `c`-th group of four from an address on.
    fn store_four(&mut self, buf: Buf, at: Value, c: usize, parts: &[Value]) {
        let (d, flags) = (self.element(buf), self.memory(buf));
        let offset = (c * LANES * d.size()) as i32;
        let v = match d {
            d if d.size() >= 4 => {
                for (i, &v) in parts.iter().enumerate() {
                    self.b.ins().store(flags, v, at, offset + 16 * i as i32);
                }
                return;
            }
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => parts[0],
            DType::Bool => {
                let one = self.words(1);
                self.b.ins().band(parts[0], one)
            }
            DType::BF16 => {
                let v = self.shuffle(parts[0], parts[0], HIGH_HALVES);
                return self.store_low(flags, v, at, offset, 8);
            }
            d => self.call_helper_lanes(&Op::Bitcast(bits_of(d), Reg(0)), d, bits_of(d), &[parts], 1)[0],
        };
        if d.size() == 2 {
            let v = self.shuffle(v, v, EVEN_HALVES);
            return self.store_low(flags, v, at, offset, 8);
        }
        let v = self.shuffle(v, v, EVEN_HALVES);
        let v = self.shuffle(v, v, super::vector::EVEN_BYTES);
        self.store_low(flags, v, at, offset, 4);
    }

    /// Stores the first 4 or 8 bytes of a vector.
    fn store_low(&mut self, flags: MemFlagsData, v: Value, at: Value, offset: i32, bytes: usize) {
        let v = self.like(if bytes == 8 { types::I64X2 } else { types::I32X4 }, v);
        let low = self.b.ins().extractlane(v, 0);
        self.b.ins().store(flags, low, at, offset);
    }

    pub(super) fn vector_store(&mut self, buf: Buf, index: &Index, value: Reg, mask: Option<Reg>) {
        let vectors = self.vectors.expect("inside of a vector loop");
        let (d, v) = (self.element(buf), self.lanes(value));
        let each = v.len() / vectors.copies;
        let adjacent = self.adjacent(index);
        let masks = mask.map(|m| self.lanes(m));
        let Some(masks) = masks else {
            if adjacent {
                let at = self.address(buf, index);
                for c in 0..vectors.copies {
                    self.store_four(buf, at, c, &v[c * each..(c + 1) * each]);
                }
            } else if !index_varies(index, Some(vectors.var), &self.varying) {
                // All lanes store to the same element: the last lane's value remains.
                let last = self.extract(d, &v, LANES * vectors.copies - 1);
                let at = self.address(buf, index);
                self.store_at(buf, at, last);
            } else {
                for (lane, at) in self.addresses(buf, index).into_iter().enumerate() {
                    let x = self.extract(d, &v, lane);
                    self.store_at(buf, at, x);
                }
            }
            return;
        };
        let first = adjacent.then(|| self.address(buf, index));
        let at = self.addresses(buf, index);
        for c in 0..vectors.copies {
            let by_lane = |w: &mut Self| {
                for lane in 0..LANES {
                    let on = w.b.ins().extractlane(masks[c], lane as u8);
                    let store = |w: &mut Self| {
                        let x = w.extract(d, &v, c * LANES + lane);
                        w.store_at(buf, at[c * LANES + lane], x);
                    };
                    w.if_(on, store, |_| {});
                }
            };
            let Some(first) = first else {
                by_lane(self);
                continue;
            };
            let all = self.b.ins().vall_true(masks[c]);
            self.if_(all, |w| w.store_four(buf, first, c, &v[c * each..(c + 1) * each]), by_lane);
        }
    }
}

/// Returns the integer type with a narrow float's bits.
fn bits_of(d: DType) -> DType {
    if d.size() == 2 { DType::U16 } else { DType::U8 }
}
