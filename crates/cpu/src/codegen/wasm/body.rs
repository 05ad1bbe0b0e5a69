//! Builds a function: instructions, locals, and constants that are created once at its start.
//!
//! All code is in three-address form: an instruction takes locals and defines a new one.
//! Engines convert locals to SSA values and allocate registers.

use rustc_hash::FxHashMap;
use wasm_encoder::{Function, Instruction as I, MemArg, MemArgTarget, ValType};

/// The index of a local.
pub(crate) type L = u32;

/// Returns the memory argument for an offset; the alignment is a hint that no engine uses.
pub(crate) fn offset_memarg(offset: u64) -> MemArg {
    MemArg { offset, align: 0, target: MemArgTarget::Memory(0), ordering: None }
}

#[derive(Default)]
pub(crate) struct Body {
    code: Vec<I<'static>>,
    start: Vec<I<'static>>,
    params: u32,
    locals: Vec<ValType>,
    constants: FxHashMap<(u8, i128), L>,
}

impl Body {
    pub(crate) fn new(params: u32) -> Body {
        Body { params, ..Body::default() }
    }

    pub(crate) fn push(&mut self, i: I<'static>) {
        self.code.push(i);
    }

    pub(crate) fn local(&mut self, t: ValType) -> L {
        self.locals.push(t);
        self.params + self.locals.len() as u32 - 1
    }

    pub(crate) fn get(&mut self, l: L) {
        self.push(I::LocalGet(l));
    }

    pub(crate) fn set(&mut self, l: L) {
        self.push(I::LocalSet(l));
    }

    /// Pops the value on the stack into a new local.
    pub(crate) fn take(&mut self, t: ValType) -> L {
        let l = self.local(t);
        self.set(l);
        l
    }

    /// Emits an instruction on operands and returns its result.
    pub(crate) fn value(&mut self, t: ValType, i: I<'static>, operands: &[L]) -> L {
        operands.iter().for_each(|&l| self.get(l));
        self.push(i);
        self.take(t)
    }

    pub(crate) fn v128(&mut self, i: I<'static>, operands: &[L]) -> L {
        self.value(ValType::V128, i, operands)
    }

    pub(crate) fn i32(&mut self, i: I<'static>, operands: &[L]) -> L {
        self.value(ValType::I32, i, operands)
    }

    pub(crate) fn i64(&mut self, i: I<'static>, operands: &[L]) -> L {
        self.value(ValType::I64, i, operands)
    }

    fn constant(&mut self, kind: u8, bits: i128, t: ValType, i: I<'static>) -> L {
        if let Some(&l) = self.constants.get(&(kind, bits)) {
            return l;
        }
        let l = self.local(t);
        self.start.extend([i, I::LocalSet(l)]);
        self.constants.insert((kind, bits), l);
        l
    }

    pub(crate) fn const_i32(&mut self, x: i32) -> L {
        self.constant(0, x as i128, ValType::I32, I::I32Const(x))
    }

    pub(crate) fn const_i64(&mut self, x: i64) -> L {
        self.constant(1, x as i128, ValType::I64, I::I64Const(x))
    }

    pub(crate) fn const_f32(&mut self, bits: u32) -> L {
        self.constant(2, bits as i128, ValType::F32, I::F32Const(f32::from_bits(bits).into()))
    }

    pub(crate) fn const_f64(&mut self, bits: u64) -> L {
        self.constant(3, bits as i128, ValType::F64, I::F64Const(f64::from_bits(bits).into()))
    }

    pub(crate) fn const_v128(&mut self, bits: u128) -> L {
        self.constant(4, bits as i128, ValType::V128, I::V128Const(bits as i128))
    }

    /// Returns a vector with the same 32 bits in all lanes.
    pub(crate) fn splat32(&mut self, bits: u32) -> L {
        let b = bits as u128;
        self.const_v128(b | b << 32 | b << 64 | b << 96)
    }

    /// Returns a vector with the same 64 bits in both lanes.
    pub(crate) fn splat64(&mut self, bits: u64) -> L {
        self.const_v128(bits as u128 | (bits as u128) << 64)
    }

    /// The number of locals.
    pub(crate) fn size(&self) -> usize {
        self.locals.len().max(self.code.len() / 64)
    }

    pub(crate) fn finish(self) -> Function {
        let mut f = Function::new_with_locals_types(self.locals);
        self.start.iter().chain(&self.code).for_each(|i| {
            f.instruction(i);
        });
        f.instruction(&I::End);
        f
    }
}
