//! Kernels through Cranelift, for machines that the generator of this crate doesn't know.
//!
//! One lane at a time: a `Vector` loop runs in order. Common arithmetic on f32, f64, bf16, i32 and i64 is inline, common
//! functions are calls, and every other op and dtype takes the road through [`super::helper`], one call a value.
//!
//! Registers hold what lanes hold there: 8 bytes for 64-bit dtypes and 4 for all others, small floats as f32, small
//! integers extended to 32 bits, bool as 0 or 1.

use super::{CodegenError, CompiledKernel, Entry, helper};
use compiler::loops::{Atom, Buf, Extent, Index, Kernel, Loop, LoopKind, Mode, Op, Size, Stmt};
use cranelift_codegen::Context;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AbiParam, Function, InstBuilder, MemFlagsData, SigRef, Signature, StackSlot, StackSlotData, StackSlotKind, Type,
    UserFuncName, Value, types,
};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};
use ir::{Binary, Class, Compare, DType, Scalar, Unary};

/// Code in memory of its own.
pub(crate) struct Code(Option<JITModule>);

// SAFETY: after it is finished the module is only kept, and given back.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: the kernel that held the entry goes with this.
            unsafe { module.free_memory() };
        }
    }
}

fn fault(e: impl std::fmt::Display) -> CodegenError {
    CodegenError::Memory(std::io::Error::other(e.to_string()))
}

pub(crate) fn compile(kernel: &Kernel) -> Result<CompiledKernel, CodegenError> {
    #[cfg(debug_assertions)]
    compiler::loops::verify(kernel)?;
    let mut flags = settings::builder();
    for (name, value) in [("use_colocated_libcalls", "false"), ("is_pic", "false"), ("opt_level", "speed")] {
        flags.set(name, value).map_err(fault)?;
    }
    let isa = cranelift_native::builder().map_err(|_| CodegenError::Unsupported)?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(fault)?;
    let mut module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
    let pointer = module.target_config().pointer_type();
    let mut signature = module.make_signature();
    signature.params = [pointer, pointer, types::I64, types::I64].map(AbiParam::new).to_vec();
    let id = module.declare_function("kernel", Linkage::Local, &signature).map_err(fault)?;
    let mut context = Context::new();
    context.func = Function::with_name_signature(UserFuncName::user(0, id.as_u32()), signature);
    let mut shared = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut context.func, &mut shared);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let params = b.block_params(entry).to_vec();
    let mut call = module.make_signature();
    call.params = [pointer, types::I64].map(AbiParam::new).to_vec();
    let one = |t: Type| -> Signature {
        let mut s = module.make_signature();
        s.params.push(AbiParam::new(t));
        s.returns.push(AbiParam::new(t));
        s
    };
    let (f32s, f64s) = (one(types::F32), one(types::F64));
    let flags = MemFlagsData::trusted();
    let bufs = (0..kernel.buffers.len() as i32)
        .map(|i| b.ins().load(pointer, flags, params[0], i * pointer.bytes() as i32))
        .collect();
    let sizes = (0..kernel.sizes as i32).map(|i| b.ins().load(types::I64, flags, params[1], i * 8)).collect();
    let area = b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 256, 4));
    let signatures = [call, f32s, f64s].map(|s| b.import_signature(s));
    let mut w = Writer {
        k: kernel,
        b,
        pointer,
        bufs,
        sizes,
        regs: vec![None; kernel.regs.len()],
        vars: vec![None; kernel.vars as usize],
        range: (params[2], params[3]),
        area,
        signatures,
    };
    w.block(&kernel.body);
    w.b.ins().return_(&[]);
    w.b.seal_all_blocks();
    let config = module.target_config();
    w.b.finalize(config);
    module.define_function(id, &mut context).map_err(fault)?;
    let size = context.compiled_code().map_or(0, |c| c.code_buffer().len());
    module.clear_context(&mut context);
    module.finalize_definitions().map_err(fault)?;
    // SAFETY: the function was declared with this signature in the C calling convention of this machine.
    let entry = unsafe { std::mem::transmute::<*const u8, Entry>(module.get_finalized_function(id)) };
    Ok(CompiledKernel::portable(Code(Some(module)), entry, size))
}

/// How a register of a dtype is held.
fn held(d: DType) -> Type {
    match d {
        DType::F64 => types::F64,
        d if d.is_float() => types::F32,
        d if d.size() == 8 => types::I64,
        _ => types::I32,
    }
}

struct Writer<'a> {
    k: &'a Kernel,
    b: FunctionBuilder<'a>,
    pointer: Type,
    bufs: Vec<Value>,
    sizes: Vec<Value>,
    regs: Vec<Option<Value>>,
    vars: Vec<Option<Value>>,
    range: (Value, Value),
    area: StackSlot,
    /// Of the helper, and of functions of one f32 and one f64.
    signatures: [SigRef; 3],
}

impl Writer<'_> {
    fn reg(&self, r: compiler::loops::Reg) -> Value {
        self.regs[r.0 as usize].expect("registers are defined before they are used")
    }

    fn dtype(&self, r: compiler::loops::Reg) -> DType {
        self.k.regs[r.0 as usize]
    }

    fn block(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let { dst, op } => self.regs[dst.0 as usize] = Some(self.op(op, self.k.regs[dst.0 as usize])),
                Stmt::Store { buf, index, value, mask } => {
                    let value = self.reg(*value);
                    match mask {
                        None => self.store(*buf, index, value),
                        Some(m) => {
                            let (then, after) = (self.b.create_block(), self.b.create_block());
                            let m = self.reg(*m);
                            self.b.ins().brif(m, then, &[], after, &[]);
                            self.b.switch_to_block(then);
                            self.store(*buf, index, value);
                            self.b.ins().jump(after, &[]);
                            self.b.switch_to_block(after);
                        }
                    }
                }
                Stmt::Loop(l) => self.loop_(l),
            }
        }
    }

    fn loop_(&mut self, l: &Loop) {
        let n = match &l.extent {
            Extent::Exact(n) => self.size(*n),
            Extent::Bounded { bound, buf, index } => {
                let count = self.load(*buf, index);
                let count = self.b.ins().sextend(types::I64, count);
                let bound = self.size(*bound);
                let zero = self.b.ins().iconst(types::I64, 0);
                let count = self.b.ins().smin(count, bound);
                self.b.ins().smax(count, zero)
            }
        };
        let (begin, end) = match l.kind {
            LoopKind::Parallel => (self.range.0, self.b.ins().smin(n, self.range.1)),
            _ => (self.b.ins().iconst(types::I64, 0), n),
        };
        let i = self.variable(types::I64, begin);
        let carried: Vec<Variable> = l
            .carried
            .iter()
            .map(|c| {
                let (t, v) = (held(self.dtype(c.init)), self.reg(c.init));
                self.variable(t, v)
            })
            .collect();
        let [head, body, after] = [0; 3].map(|_| self.b.create_block());
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(head);
        let at = self.b.use_var(i);
        let more = self.b.ins().icmp(IntCC::SignedLessThan, at, end);
        self.b.ins().brif(more, body, &[], after, &[]);
        self.b.switch_to_block(body);
        self.vars[l.var.0 as usize] = Some(at);
        for (c, v) in l.carried.iter().zip(&carried) {
            self.regs[c.phi.0 as usize] = Some(self.b.use_var(*v));
        }
        self.block(&l.body);
        let next: Vec<Value> = l.carried.iter().map(|c| self.reg(c.next)).collect();
        for (v, next) in carried.iter().zip(next) {
            self.b.def_var(*v, next);
        }
        let one = self.b.ins().iadd_imm_s(at, 1);
        self.b.def_var(i, one);
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(after);
        for (c, v) in l.carried.iter().zip(&carried) {
            self.regs[c.out.0 as usize] = Some(self.b.use_var(*v));
        }
    }

    fn variable(&mut self, ty: Type, value: Value) -> Variable {
        let v = self.b.declare_var(ty);
        self.b.def_var(v, value);
        v
    }

    fn size(&mut self, s: Size) -> Value {
        match s {
            Size::Const(n) => self.b.ins().iconst(types::I64, n),
            Size::Arg(n) => self.sizes[n as usize],
        }
    }

    fn index(&mut self, index: &Index) -> Value {
        let mut at = self.b.ins().iconst(types::I64, index.offset);
        for &a in &index.offset_args {
            at = self.b.ins().iadd(at, self.sizes[a as usize]);
        }
        for &(atom, stride) in &index.terms {
            let v = match atom {
                Atom::Var(v) => self.vars[v.0 as usize].expect("loop variables are used inside their loops"),
                Atom::Reg(r) => self.reg(r),
            };
            let part = match stride {
                Size::Const(1) => v,
                Size::Const(n) => self.b.ins().imul_imm_s(v, n),
                Size::Arg(n) => self.b.ins().imul(v, self.sizes[n as usize]),
            };
            at = self.b.ins().iadd(at, part);
        }
        at
    }

    fn address(&mut self, buf: Buf, index: &Index) -> Value {
        let size = self.k.buffers[buf.0 as usize].dtype.size() as i64;
        let at = self.index(index);
        let bytes = self.b.ins().imul_imm_s(at, size);
        let bytes = if self.pointer == types::I64 { bytes } else { self.b.ins().ireduce(self.pointer, bytes) };
        self.b.ins().iadd(self.bufs[buf.0 as usize], bytes)
    }

    /// Memory that other arguments may share, aligned to its elements.
    fn memory(&self, buf: Buf) -> MemFlagsData {
        match self.k.buffers[buf.0 as usize].mode {
            Mode::Scratch(_) => MemFlagsData::new(),
            _ => MemFlagsData::new().with_notrap(),
        }
    }

    fn load(&mut self, buf: Buf, index: &Index) -> Value {
        let (at, flags) = (self.address(buf, index), self.memory(buf));
        let d = self.k.buffers[buf.0 as usize].dtype;
        match d {
            DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
                self.b.ins().load(held(d), flags, at, 0)
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
            // Other narrow floats: their bits as an integer, and the helper's conversion.
            d => {
                let (bits, like) = if d.size() == 2 {
                    (self.b.ins().uload16(types::I32, flags, at, 0), DType::U16)
                } else {
                    (self.b.ins().uload8(types::I32, flags, at, 0), DType::U8)
                };
                self.helped(&Op::Bitcast(d, compiler::loops::Reg(0)), like, d, &[bits])
            }
        }
    }

    fn store(&mut self, buf: Buf, index: &Index, value: Value) {
        let (at, flags) = (self.address(buf, index), self.memory(buf));
        let d = self.k.buffers[buf.0 as usize].dtype;
        match d {
            DType::F32 | DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => {
                self.b.ins().store(flags, value, at, 0);
            }
            DType::I8 | DType::U8 | DType::Bool => {
                self.b.ins().istore8(flags, value, at, 0);
            }
            DType::I16 | DType::U16 => {
                self.b.ins().istore16(flags, value, at, 0);
            }
            DType::BF16 => {
                // Registers of bf16 are rounded already.
                let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), value);
                let bits = self.b.ins().ushr_imm_s(bits, 16);
                self.b.ins().istore16(flags, bits, at, 0);
            }
            d => {
                let like = if d.size() == 2 { DType::U16 } else { DType::U8 };
                let bits = self.helped(&Op::Bitcast(like, compiler::loops::Reg(0)), d, like, &[value]);
                match d.size() {
                    2 => self.b.ins().istore16(flags, bits, at, 0),
                    _ => self.b.ins().istore8(flags, bits, at, 0),
                };
            }
        }
    }

    fn truth(&mut self, v: Value) -> Value {
        let c = self.b.ins().icmp_imm_s(IntCC::NotEqual, v, 0);
        self.b.ins().uextend(types::I32, c)
    }

    fn constant(&mut self, s: Scalar) -> Value {
        let d = s.dtype();
        match held(d) {
            types::F64 => self.b.ins().f64const(s.to_f64()),
            types::F32 if d == DType::F32 => {
                let bits = self.b.ins().iconst(types::I32, s.bits() as i64);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
            }
            types::F32 => self.b.ins().f32const(s.to_f64() as f32),
            types::I64 => self.b.ins().iconst(types::I64, s.bits() as i64),
            _ if d == DType::Bool => self.b.ins().iconst(types::I32, s.to_bool() as i64),
            _ => self.b.ins().iconst(types::I32, (s.to_i64() as i32) as i64),
        }
    }

    fn op(&mut self, op: &Op, out: DType) -> Value {
        match op {
            Op::Const(s) => self.constant(*s),
            Op::Index(i) => self.index(i),
            Op::Load { buf, index, mask: None } => self.load(*buf, index),
            Op::Load { buf, index, mask: Some((m, other)) } => {
                let (then, after) = (self.b.create_block(), self.b.create_block());
                let result = self.b.append_block_param(after, held(out));
                let (other, m) = (self.constant(*other), self.reg(*m));
                self.b.ins().brif(m, then, &[], after, &[other.into()]);
                self.b.switch_to_block(then);
                let v = self.load(*buf, index);
                self.b.ins().jump(after, &[v.into()]);
                self.b.switch_to_block(after);
                result
            }
            Op::Select(c, x, y) => {
                let (c, x, y) = (self.reg(*c), self.reg(*x), self.reg(*y));
                self.b.ins().select(c, x, y)
            }
            _ => {
                let from = self.dtype(op.operands().next().expect("arithmetic has operands"));
                let args: Vec<Value> = op.operands().map(|r| self.reg(r)).collect();
                match self.inline(op, from, out, &args) {
                    Some(v) => v,
                    None => self.helped(op, from, out, &args),
                }
            }
        }
    }

    /// The op as instructions, where that is short.
    fn inline(&mut self, op: &Op, from: DType, out: DType, x: &[Value]) -> Option<Value> {
        let float = matches!(from, DType::F32 | DType::F64 | DType::BF16);
        let word = matches!(from, DType::I32 | DType::U32 | DType::I64 | DType::U64);
        let ins = self.b.ins();
        let v = match op {
            Op::Unary(Unary::Neg, _) if float => ins.fneg(x[0]),
            Op::Unary(Unary::Abs, _) if float => ins.fabs(x[0]),
            Op::Unary(Unary::Sqrt, _) if float => ins.sqrt(x[0]),
            Op::Unary(Unary::Floor, _) if float => ins.floor(x[0]),
            Op::Unary(Unary::Ceil, _) if float => ins.ceil(x[0]),
            Op::Unary(Unary::Trunc, _) if float => ins.trunc(x[0]),
            Op::Unary(Unary::Round, _) if float => ins.nearest(x[0]),
            Op::Unary(f, _) if matches!(from, DType::F32 | DType::F64) => return self.function(*f, from, x[0]),
            Op::Binary(Binary::Add, ..) if float => ins.fadd(x[0], x[1]),
            Op::Binary(Binary::Sub, ..) if float => ins.fsub(x[0], x[1]),
            Op::Binary(Binary::Mul, ..) if float => ins.fmul(x[0], x[1]),
            Op::Binary(Binary::Div, ..) if float => ins.fdiv(x[0], x[1]),
            Op::Binary(kind @ (Binary::Max | Binary::Min), ..) if float => {
                let cc = if *kind == Binary::Max { FloatCC::GreaterThan } else { FloatCC::LessThan };
                // The first where it is NaN or wins, else the second.
                let wins = ins.fcmp(cc, x[0], x[1]);
                let nan = self.b.ins().fcmp(FloatCC::Unordered, x[0], x[0]);
                let first = self.b.ins().bor(wins, nan);
                self.b.ins().select(first, x[0], x[1])
            }
            Op::Binary(Binary::Add, ..) if word => ins.iadd(x[0], x[1]),
            Op::Binary(Binary::Sub, ..) if word => ins.isub(x[0], x[1]),
            Op::Binary(Binary::Mul, ..) if word => ins.imul(x[0], x[1]),
            Op::Binary(Binary::And, ..) => ins.band(x[0], x[1]),
            Op::Binary(Binary::Or, ..) => ins.bor(x[0], x[1]),
            Op::Binary(Binary::Xor, ..) => ins.bxor(x[0], x[1]),
            Op::Fma(..) if float => ins.fma(x[0], x[1], x[2]),
            Op::Compare(c, ..) if from.is_float() => {
                let cc = match c {
                    Compare::Eq => FloatCC::Equal,
                    Compare::Ne => FloatCC::NotEqual,
                    Compare::Lt => FloatCC::LessThan,
                    Compare::Le => FloatCC::LessThanOrEqual,
                    Compare::Gt => FloatCC::GreaterThan,
                    Compare::Ge => FloatCC::GreaterThanOrEqual,
                };
                let c = ins.fcmp(cc, x[0], x[1]);
                self.b.ins().uextend(types::I32, c)
            }
            Op::Compare(c, ..) => {
                let signed = from.class() == Class::Signed;
                let cc = match c {
                    Compare::Eq => IntCC::Equal,
                    Compare::Ne => IntCC::NotEqual,
                    Compare::Lt => IntCC::SignedLessThan,
                    Compare::Le => IntCC::SignedLessThanOrEqual,
                    Compare::Gt => IntCC::SignedGreaterThan,
                    Compare::Ge => IntCC::SignedGreaterThanOrEqual,
                };
                let c = ins.icmp(if signed { cc } else { cc.unsigned() }, x[0], x[1]);
                self.b.ins().uextend(types::I32, c)
            }
            Op::Cast(to, _) => match (from, *to) {
                (a, b) if a == b => x[0],
                (DType::F32 | DType::BF16, DType::F64) => ins.fpromote(types::F64, x[0]),
                (DType::F64, DType::F32) => ins.fdemote(types::F32, x[0]),
                (DType::BF16, DType::F32) | (DType::F32, DType::BF16) => x[0],
                (DType::I32, DType::F32) => ins.fcvt_from_sint(types::F32, x[0]),
                (DType::Bool, DType::F32) => ins.fcvt_from_uint(types::F32, x[0]),
                (DType::I32, DType::I64) => ins.sextend(types::I64, x[0]),
                (DType::I64, DType::I32) => ins.ireduce(types::I32, x[0]),
                (DType::F32, DType::I32) => ins.fcvt_to_sint_sat(types::I32, x[0]),
                _ => return None,
            },
            _ => return None,
        };
        Some(if out == DType::BF16 { self.rounded(v) } else { v })
    }

    /// An f32 rounded to bf16, ties to even; NaN stays NaN.
    fn rounded(&mut self, v: Value) -> Value {
        let bits = self.b.ins().bitcast(types::I32, MemFlagsData::new(), v);
        let odd = self.b.ins().ushr_imm_s(bits, 16);
        let odd = self.b.ins().band_imm_s(odd, 1);
        let up = self.b.ins().iadd_imm_s(bits, 0x7fff);
        let up = self.b.ins().iadd(up, odd);
        let nan = self.b.ins().fcmp(FloatCC::Unordered, v, v);
        let quiet = self.b.ins().bor_imm_s(bits, 0x40_0000);
        let bits = self.b.ins().select(nan, quiet, up);
        let bits = self.b.ins().band_imm_s(bits, !0xffff);
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
    }

    /// A call of a function of one number.
    fn function(&mut self, f: Unary, d: DType, x: Value) -> Option<Value> {
        macro_rules! table {
            ($($name:ident => $f:expr),* $(,)?) => {
                match (f, d) {
                    $((Unary::$name, DType::F32) => {
                        extern "C" fn call(x: f32) -> f32 {
                            let f: fn(f64) -> f64 = $f;
                            f(x as f64) as f32
                        }
                        call as *const () as i64
                    }
                    (Unary::$name, _) => {
                        extern "C" fn call(x: f64) -> f64 {
                            let f: fn(f64) -> f64 = $f;
                            f(x)
                        }
                        call as *const () as i64
                    })*
                    _ => return None,
                }
            };
        }
        let address = table! {
            Exp => f64::exp,
            Exp2 => f64::exp2,
            Log => f64::ln,
            Log2 => f64::log2,
            Expm1 => f64::exp_m1,
            Log1p => f64::ln_1p,
            Tanh => f64::tanh,
            Sin => f64::sin,
            Cos => f64::cos,
            Logistic => |x| 1.0 / (1.0 + (-x).exp()),
        };
        let address = self.b.ins().iconst(self.pointer, address);
        let signature = self.signatures[if d == DType::F32 { 1 } else { 2 }];
        let call = self.b.ins().call_indirect(signature, address, &[x]);
        Some(self.b.inst_results(call)[0])
    }

    /// The op through the helper.
    fn helped(&mut self, op: &Op, from: DType, out: DType, args: &[Value]) -> Value {
        let code = helper::code(op, from, 1).expect("an arithmetic op");
        for (i, v) in args.iter().enumerate() {
            self.b.ins().stack_store(self.pointer, *v, self.area, 64 * i as i32);
        }
        let area = self.b.ins().stack_addr(self.pointer, self.area, 0);
        let code = self.b.ins().iconst(types::I64, code as i64);
        let lanes: unsafe extern "C" fn(*mut [u8; 256], u64) = helper::lanes;
        let lanes = self.b.ins().iconst(self.pointer, lanes as *const () as i64);
        self.b.ins().call_indirect(self.signatures[0], lanes, &[area, code]);
        let v = self.b.ins().stack_load(self.pointer, held(out), self.area, helper::OUT as i32);
        if out == DType::Bool { self.truth(v) } else { v }
    }
}
