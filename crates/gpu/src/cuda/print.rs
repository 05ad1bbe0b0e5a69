//! Prints grids as CUDA C++, without includes.
//!
//! Every operation gives the bits that `ir::scalar` defines, except functions (`exp`, `sin`, ..), whose errors are within the
//! tolerances in `docs/ir.md`; so the source must be compiled with [`FLAGS`]: only `Fma` is contracted.

use crate::grid::{Access, AddressSpace, GridKernel, Index, Loop, Op, Reg, Scope, Size, Stmt, ThreadBuiltin};
use compiler::loops;
use ir::scalar::finite_max;
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Unary};
use std::fmt::Write;

/// Types, conversions and functions for kernels; included once at the start of a source.
pub const PRELUDE: &str = include_str!("prelude.cu");

/// The required compiler flags.
pub const FLAGS: &[&str] =
    &["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--disable-warnings"];

/// One source with these kernels under these names. A kernel's arguments are pointers to its `Global` and `Spill` memory in order,
/// then its sizes as i64.
pub fn print(kernels: &[(&str, &GridKernel)]) -> String {
    let mut out = PRELUDE.to_string();
    for (name, k) in kernels {
        out.push('\n');
        out.push_str(&function(name, k));
    }
    out
}

/// Prints one kernel.
pub fn function(name: &str, k: &GridKernel) -> String {
    let mut p = Printer { k, out: String::new(), consts: vec![None; k.regs.len()] };
    p.kernel(name);
    p.out
}

struct Printer<'a> {
    k: &'a GridKernel,
    out: String,
    /// The values of registers that are constants.
    consts: Vec<Option<i64>>,
}

/// The type of a register.
fn ty(d: DType) -> &'static str {
    match d {
        DType::Bool => "bool",
        DType::F16 | DType::BF16 => "u16",
        DType::F8E4M3 | DType::F8E5M2 => "u8",
        d => d.name(),
    }
}

/// The type of an element in memory.
fn stored(d: DType) -> &'static str {
    if d == DType::Bool { "u8" } else { ty(d) }
}

/// Whether values are bits of a float dtype that is computed in f32.
fn narrow(d: DType) -> bool {
    d.is_float() && !matches!(d, DType::F32 | DType::F64)
}

impl Printer<'_> {
    fn kernel(&mut self, name: &str) {
        let k = self.k;
        let mut args = Vec::new();
        let mut shared = String::new();
        // If no written buffer has an alias, the compiler may move loads.
        let restrict = if k.noalias { " __restrict__" } else { "" };
        for (i, m) in k.memory.iter().enumerate() {
            let t = stored(m.dtype);
            match m.space {
                AddressSpace::Global(Access::Read) => args.push(format!("const {t}*{restrict} b{i}")),
                AddressSpace::Global(_) | AddressSpace::Spill(_) => args.push(format!("{t}*{restrict} b{i}")),
                AddressSpace::Shared(n) => {
                    let _ = writeln!(shared, "    __shared__ __align__(16) {t} b{i}[{}];", n.max(1));
                }
            }
        }
        args.extend((0..k.sizes).map(|n| format!("i64 s{n}")));
        let _ = writeln!(self.out, "// {}", k.name.replace(['\n', '\r', '\\'], " "));
        let _ = writeln!(
            self.out,
            "extern \"C\" __global__ void __launch_bounds__({}) {name}({}) {{",
            k.threads,
            args.join(", ")
        );
        self.out.push_str(&shared);
        self.out.push_str("    wait_turn();\n");
        self.block(&k.body, 1);
        self.out.push_str("}\n");
    }

    fn line(&mut self, depth: usize, text: &str) {
        self.out.push_str(&"    ".repeat(depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn d(&self, r: Reg) -> DType {
        self.k.regs[r.0 as usize]
    }

    fn block(&mut self, body: &[Stmt], depth: usize) {
        body.iter().for_each(|s| self.stmt(s, depth));
    }

    fn stmt(&mut self, s: &Stmt, depth: usize) {
        match s {
            Stmt::Let { dst, op } => {
                let d = self.d(*dst);
                if let Op::Const(c) = op
                    && d.is_int()
                {
                    self.consts[dst.0 as usize] = Some(c.to_i64());
                }
                let value = self.op(d, op);
                self.line(depth, &format!("const {} r{} = {value};", ty(d), dst.0));
            }
            Stmt::Load { dst, buf, index, mask } => self.load(dst, buf.0, index, mask, depth),
            Stmt::Store { buf, index, value, mask } => {
                let d = self.k.memory[buf.0 as usize].dtype;
                let at = self.index(index);
                let guard = mask.map_or(String::new(), |m| format!("if (r{}) ", m.0));
                let text = match &value[..] {
                    [one] => format!("{guard}b{}[{at}] = r{};", buf.0, one.0),
                    many => {
                        let list: Vec<String> = many.iter().map(|r| format!("r{}", r.0)).collect();
                        let vec = format!("Vec<{}, {}>", stored(d), many.len());
                        format!("{guard}*({vec}*)(b{} + {at}) = {vec}{{{{{}}}}};", buf.0, list.join(", "))
                    }
                };
                self.line(depth, &text);
            }
            Stmt::Loop(l) => self.loop_(l, depth),
            Stmt::If { cond, body } => {
                self.line(depth, &format!("if (r{}) {{", cond.0));
                self.block(body, depth + 1);
                self.line(depth, "}");
            }
            Stmt::Barrier(Scope::Subgroup) => self.line(depth, "__syncwarp();"),
            Stmt::Barrier(Scope::Block) => self.line(depth, "__syncthreads();"),
            Stmt::Exchange { dst, src, xor } => {
                let d = self.d(*dst);
                // Small values are passed in whole registers.
                let via = if d.size() < 4 { "(u32)" } else { "" };
                let t = ty(d);
                self.line(
                    depth,
                    &format!("const {t} r{} = ({t})__shfl_xor_sync(0xffffffffu, {via}r{}, {xor});", dst.0, src.0),
                );
            }
        }
    }

    fn load(&mut self, dst: &[Reg], buf: u32, index: &Index, mask: &Option<(Reg, Scalar)>, depth: usize) {
        let d = self.k.memory[buf as usize].dtype;
        let at = self.index(index);
        let whole = if d == DType::Bool { " & 1" } else { "" };
        if let [one] = dst {
            let value = match (mask, d) {
                (None, DType::Bool) => format!("(b{buf}[{at}]{whole}) != 0"),
                (None, _) => format!("b{buf}[{at}]"),
                (Some((m, other)), DType::Bool) => {
                    format!("r{} ? (b{buf}[{at}]{whole}) != 0 : {}", m.0, constant(*other))
                }
                (Some((m, other)), _) => format!("r{} ? b{buf}[{at}] : ({}){}", m.0, stored(d), constant(*other)),
            };
            return self.line(depth, &format!("const {} r{} = {value};", ty(d), one.0));
        }
        let first = dst[0].0;
        let vec = format!("Vec<{}, {}>", stored(d), dst.len());
        match mask {
            None => self.line(depth, &format!("const {vec} v{first} = *(const {vec}*)(b{buf} + {at});")),
            Some((m, other)) => {
                let others = vec![format!("({}){}", stored(d), constant(*other)); dst.len()].join(", ");
                self.line(depth, &format!("{vec} v{first} = {{{{{others}}}}};"));
                self.line(depth, &format!("if (r{}) v{first} = *(const {vec}*)(b{buf} + {at});", m.0));
            }
        }
        for (j, r) in dst.iter().enumerate() {
            let test =
                if d == DType::Bool { format!("(v{first}.at[{j}]{whole}) != 0") } else { format!("v{first}.at[{j}]") };
            self.line(depth, &format!("const {} r{} = {test};", ty(d), r.0));
        }
    }

    fn loop_(&mut self, l: &Loop, depth: usize) {
        for c in &l.carried {
            let t = ty(self.d(c.phi));
            self.line(depth, &format!("{t} r{} = r{};", c.phi.0, c.init.0));
        }
        let t = ty(self.d(l.var));
        let (v, from, to, step) = (l.var.0, l.from.0, l.to.0, l.step.0);
        self.line(depth, &format!("for ({t} r{v} = r{from}; r{v} < r{to}; r{v} += r{step}) {{"));
        self.block(&l.body, depth + 1);
        // All are read before any is written: a `next` may be the `phi` of another value.
        let crossed = l.carried.iter().any(|c| l.carried.iter().any(|o| o.phi == c.next && o.phi != c.phi));
        for c in &l.carried {
            if crossed {
                let t = ty(self.d(c.phi));
                self.line(depth + 1, &format!("const {t} n{} = r{};", c.phi.0, c.next.0));
            } else {
                self.line(depth + 1, &format!("r{} = r{};", c.phi.0, c.next.0));
            }
        }
        for c in l.carried.iter().filter(|_| crossed) {
            self.line(depth + 1, &format!("r{} = n{};", c.phi.0, c.phi.0));
        }
        self.line(depth, "}");
        for c in &l.carried {
            let t = ty(self.d(c.out));
            self.line(depth, &format!("const {t} r{} = r{};", c.out.0, c.phi.0));
        }
    }

    fn index(&self, i: &Index) -> String {
        let t = if i.wide { "i64" } else { "i32" };
        let size = |s: Size| match s {
            Size::Const(n) => integer(if i.wide { DType::I64 } else { DType::I32 }, n),
            Size::Arg(n) => format!("({t})s{n}"),
        };
        // In the order for which the lowering proved that sums fit.
        let mut parts = Vec::new();
        if i.offset != 0 || (i.terms.is_empty() && i.offset_args.is_empty()) {
            parts.push(size(Size::Const(i.offset)));
        }
        parts.extend(i.offset_args.iter().map(|a| size(Size::Arg(*a))));
        for &(r, stride) in &i.terms {
            let reg = if i.wide && self.d(r) != DType::I64 { format!("(i64)r{}", r.0) } else { format!("r{}", r.0) };
            match stride {
                Size::Const(1) => parts.push(reg),
                s => parts.push(format!("{reg} * {}", size(s))),
            }
        }
        if parts.len() > 1 { format!("({})", parts.join(" + ")) } else { parts.remove(0) }
    }

    fn op(&self, d: DType, op: &Op) -> String {
        match op {
            Op::Const(s) => constant(*s),
            Op::ThreadBuiltin(ThreadBuiltin::Thread) => "(i32)threadIdx.x".into(),
            Op::ThreadBuiltin(ThreadBuiltin::Block) => "(i32)blockIdx.x".into(),
            Op::ThreadBuiltin(ThreadBuiltin::Blocks) => "(i32)gridDim.x".into(),
            Op::Size(n) => format!("({})s{n}", ty(d)),
            Op::Index(i) => self.index(i),
            Op::Arith(op) => self.arith(op),
        }
    }

    fn arith(&self, op: &loops::Op) -> String {
        use loops::Op::*;
        let r = |r: &Reg| format!("r{}", r.0);
        match op {
            Unary(op, x) => self.unary(*op, *x),
            Binary(op, a, b) => self.binary(*op, *a, *b),
            Compare(op, a, b) => {
                let d = self.d(*a);
                format!("{} {} {}", value(d, &r(a)), compare(*op), value(d, &r(b)))
            }
            // The assembler could turn this into a minimum or a maximum; see `pick`.
            Select(c, a, b) if matches!(self.d(*a), DType::F32 | DType::F64 | DType::I8 | DType::I16 | DType::I32) => {
                format!("pick(r{}, r{}, r{})", c.0, a.0, b.0)
            }
            Select(c, a, b) => format!("r{} ? r{} : r{}", c.0, a.0, b.0),
            Fma(a, b, c) => {
                let d = self.d(*a);
                let [a, b, c] = [a, b, c].map(|x| value(d, &r(x)));
                match d {
                    DType::F64 => format!("fma({a}, {b}, {c})"),
                    _ if d.is_float() => packed(d, format!("fmaf({a}, {b}, {c})")),
                    _ => {
                        let (t, w) = (ty(d), word(d));
                        format!("({t})(({w}){a} * ({w}){b} + ({w}){c})")
                    }
                }
            }
            Cast(to, x) => cast(self.d(*x), *to, &r(x)),
            Quantize(to, x) => {
                let from = self.d(*x);
                if !(from.is_float() && to.is_float()) {
                    return cast(from, *to, &r(x));
                }
                // In the wider of the two dtypes, so that the bound is representable.
                let wide = if [from, *to].contains(&DType::F64) { DType::F64 } else { DType::F32 };
                let most = constant(Scalar::from_f64(wide, finite_max(*to)));
                let x = format!("within({}, {most})", cast(from, wide, &r(x)));
                cast(wide, *to, &x)
            }
            Bitcast(to, x) => bitcast(self.d(*x), *to, &r(x)),
            Const(s) => constant(*s),
            Index(_) | Load { .. } => unreachable!("statements of their own"),
        }
    }

    fn unary(&self, op: Unary, x: Reg) -> String {
        let d = self.d(x);
        let r = format!("r{}", x.0);
        let (t, w) = (ty(d), word(d));
        match (d.kind(), op) {
            (DTypeKind::Bool, _) => format!("!{r}"),
            (DTypeKind::Float, _) => {
                let v = value(d, &r);
                let suffix = if d == DType::F64 { "" } else { "f" };
                use Unary::*;
                let call = |f: &str| format!("{f}{suffix}({v})");
                let text = match op {
                    Neg => format!("-{v}"),
                    Abs => format!("abs_of({v})"),
                    Sign => format!("sign_of({v})"),
                    Floor => call("floor"),
                    Ceil => call("ceil"),
                    Round => call("rint"),
                    Trunc => call("trunc"),
                    Sqrt => call("sqrt"),
                    Reciprocal => format!("reciprocal({v})"),
                    IsFinite => return format!("finite_of({v})"),
                    _ => format!("{}_{}({v})", op.name(), computed(d)),
                };
                packed(d, text)
            }
            (_, Unary::Neg) => format!("neg<{t}, {w}>({r})"),
            (DTypeKind::Signed, Unary::Abs) => format!("magnitude<{t}, {w}>({r})"),
            (_, Unary::Sign) => format!("sign<{t}>({r})"),
            (_, Unary::Not) => format!("({t})~{r}"),
            (_, Unary::PopulationCount) if d.size() == 8 => format!("({t})__popcll((u64){r})"),
            (_, Unary::PopulationCount) => {
                let unsigned = format!("u{}", d.bits());
                format!("({t})__popc((u32)({unsigned}){r})")
            }
            _ => r,
        }
    }

    fn binary(&self, op: Binary, a: Reg, b: Reg) -> String {
        let d = self.d(a);
        let (x, y) = (format!("r{}", a.0), format!("r{}", b.0));
        let (t, w) = (ty(d), word(d));
        use Binary::*;
        match d.kind() {
            DTypeKind::Bool => match op {
                And | Min | Mul => format!("{x} && {y}"),
                Xor => format!("{x} != {y}"),
                _ => format!("{x} || {y}"),
            },
            DTypeKind::Float => {
                let (x, y) = (value(d, &x), value(d, &y));
                let suffix = if d == DType::F64 { "" } else { "f" };
                packed(
                    d,
                    match op {
                        Add => format!("{x} + {y}"),
                        Sub => format!("{x} - {y}"),
                        Mul => format!("{x} * {y}"),
                        Div => format!("quotient({x}, {y})"),
                        Rem => format!("fmod{suffix}({x}, {y})"),
                        Max => format!("max_of({x}, {y})"),
                        Min => format!("min_of({x}, {y})"),
                        _ => format!("{}_{}({x}, {y})", op.name(), computed(d)),
                    },
                )
            }
            _ => match op {
                Add => format!("add<{t}, {w}>({x}, {y})"),
                Sub => format!("sub<{t}, {w}>({x}, {y})"),
                Mul => format!("mul<{t}, {w}>({x}, {y})"),
                // A known positive divisor, as in indices, needs no special cases.
                Div if self.consts[b.0 as usize].is_some_and(|n| n > 0) => format!("({t})({x} / {y})"),
                Rem if self.consts[b.0 as usize].is_some_and(|n| n > 0) => format!("({t})({x} % {y})"),
                Div => format!("div<{t}, {w}>({x}, {y})"),
                Rem => format!("rem<{t}>({x}, {y})"),
                Pow => format!("power<{t}>({x}, {y})"),
                Max => format!("largest<{t}>({x}, {y})"),
                Min => format!("smallest<{t}>({x}, {y})"),
                And => format!("({t})({x} & {y})"),
                Or => format!("({t})({x} | {y})"),
                Xor => format!("({t})({x} ^ {y})"),
                Shl => format!("shl<{t}, {w}>({x}, {y})"),
                Shr => format!("shr<{t}>({x}, {y})"),
                Atan2 | Zeta => format!("({t})0"),
            },
        }
    }
}

/// The unsigned type in which integers are computed.
fn word(d: DType) -> &'static str {
    if d.size() == 8 { "u64" } else { "u32" }
}

/// The suffix of prelude functions for the dtype that is computed in.
fn computed(d: DType) -> &'static str {
    match d {
        DType::F64 => "f64",
        DType::F32 => "f32",
        _ => "narrow",
    }
}

/// The number in a register, converted to the computation type.
fn value(d: DType, r: &str) -> String {
    if narrow(d) { format!("{}_f32({r})", d.name()) } else { r.to_string() }
}

/// Rounds a number to a dtype.
fn packed(d: DType, x: String) -> String {
    if narrow(d) { format!("f32_{}({x})", d.name()) } else { x }
}

fn compare(op: Compare) -> &'static str {
    match op {
        Compare::Eq => "==",
        Compare::Ne => "!=",
        Compare::Lt => "<",
        Compare::Le => "<=",
        Compare::Gt => ">",
        Compare::Ge => ">=",
    }
}

fn cast(from: DType, to: DType, r: &str) -> String {
    if from == to {
        return r.to_string();
    }
    let x = value(from, r);
    match (from.kind(), to.kind()) {
        (_, DTypeKind::Bool) => format!("{x} != 0"),
        (DTypeKind::Float, DTypeKind::Float) => match (from, to) {
            (_, DType::F32 | DType::F64) => format!("({}){x}", ty(to)),
            (DType::F64, _) => packed(to, format!("odd({x})")),
            _ => packed(to, x),
        },
        (DTypeKind::Float, _) => format!("to_{}({x})", to.name()),
        (_, DTypeKind::Float) => match to {
            DType::F32 | DType::F64 => format!("({}){x}", ty(to)),
            // f32 represents all values of up to 16 bits; other types are also rounded once.
            _ if from.size() <= 2 => packed(to, format!("(f32){x}")),
            _ if from.size() == 4 => packed(to, format!("odd((f64){x})")),
            _ => packed(to, format!("odd({x})")),
        },
        _ => format!("({}){x}", ty(to)),
    }
}

fn bitcast(from: DType, to: DType, r: &str) -> String {
    let raw = match from {
        DType::F32 | DType::F64 => format!("bits({r})"),
        _ => r.to_string(),
    };
    match to {
        _ if from == to => r.to_string(),
        DType::F32 => format!("real((u32){raw})"),
        DType::F64 => format!("real((u64){raw})"),
        _ => format!("({}){raw}", ty(to)),
    }
}

fn integer(d: DType, n: i64) -> String {
    match d {
        DType::I64 if n == i64::MIN => "(-0x7fffffffffffffffll - 1)".into(),
        DType::I64 if n < 0 => format!("({n}ll)"),
        DType::I64 => format!("{n}ll"),
        DType::I32 if n == i32::MIN as i64 => "(-0x7fffffff - 1)".into(),
        _ if n < 0 => format!("({n})"),
        _ => format!("{n}"),
    }
}

fn constant(s: Scalar) -> String {
    let d = s.dtype();
    match d.kind() {
        DTypeKind::Bool => s.to_bool().to_string(),
        DTypeKind::Signed => integer(d, s.to_i64()),
        DTypeKind::Unsigned if d == DType::U64 => format!("{}ull", s.bits()),
        DTypeKind::Unsigned => format!("{}u", s.bits()),
        DTypeKind::Float if narrow(d) => format!("0x{:x}", s.bits()),
        DTypeKind::Float => {
            let x = s.to_f64();
            match d {
                DType::F32 if x.is_finite() => format!("{:?}f", x as f32),
                DType::F64 if x.is_finite() => format!("{x:?}"),
                DType::F32 => format!("real(0x{:x}u)", s.bits()),
                _ => format!("real((u64)0x{:x}ull)", s.bits()),
            }
        }
    }
}
