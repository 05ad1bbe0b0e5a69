//! Prints grids as WGSL.
//!
//! Registers are `bool`, `i32`, `u32` or `f32`; narrower types are numbers in their range (see the prelude). Memory consists of
//! words: an element of 8 or 16 bits is extracted from its word. A thread that stores whole words uses ordinary stores; one that
//! stores a part of a word changes its own bytes atomically, so that concurrent stores to the other part are preserved and the
//! order does not matter.

use super::functions::needed;
use super::values::{
    bitcast, bools, cast, compare, constant, decoded, encoded, integer, ones, opaque_constant, rounded, ty, wrapped,
};
use crate::grid::{Access, AddressSpace, GridKernel, Index, Loop, Op, Reg, Scope, Size, Stmt, ThreadBuiltin};
use compiler::loops;
use ir::scalar::finite_max;
use ir::{Binary, DType, DTypeKind, Scalar, Unary};
use std::fmt::Write;

/// The source of a kernel: one compute shader with the entry point `main`.
///
/// Its bindings are group 0. Group 1 has one uniform block: the offset of each `Global` and `Spill` memory in its binding, in
/// elements; then the sizes. All are 32-bit words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShaderSource {
    /// The source.
    pub source: String,
    /// The bindings.
    pub bindings: Vec<Binding>,
    /// The number of words of the parameter block.
    pub params: usize,
    /// The bytes of workgroup memory.
    pub shared: usize,
}

/// A binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Whether it is written.
    pub writable: bool,
}

/// Prints a kernel with the given binding of each memory (shared arrays have none).
pub fn print(k: &GridKernel, homes: &[usize]) -> ShaderSource {
    let count = homes.iter().zip(&k.memory).filter(|(_, m)| !matches!(m.space, AddressSpace::Shared(_)));
    let count = count.map(|(h, _)| h + 1).max().unwrap_or(0);
    let mut bindings = vec![Binding { writable: false }; count];
    let mut atomic = vec![false; count];
    for (m, &home) in k.memory.iter().zip(homes) {
        match m.space {
            AddressSpace::Global(Access::Read) | AddressSpace::Shared(_) => {}
            _ => bindings[home].writable = true,
        }
    }
    let mut whole = vec![true; k.memory.len()];
    parts(k, &k.body, &mut whole);
    for (i, &home) in homes.iter().enumerate() {
        if !whole[i] && !matches!(k.memory[i].space, AddressSpace::Shared(_)) {
            atomic[home] = true;
        }
    }
    // Whether lanes communicate through memory that is not shared.
    let passes = !k.noalias
        || k.memory.iter().any(|m| matches!(m.space, AddressSpace::Spill(_)))
        || k.memory.iter().any(|m| m.space == AddressSpace::Global(Access::ReadWrite));
    let mut p = Printer {
        k,
        homes,
        atomic,
        passes,
        out: String::new(),
        consts: vec![None; k.regs.len()],
        floats: vec![None; k.regs.len()],
        factors: vec![Vec::new(); k.regs.len()],
        params: Vec::new(),
    };
    p.params = parameters(k);
    p.kernel(&bindings);
    let shared = k.memory.iter().map(|m| match m.space {
        AddressSpace::Shared(n) => n.max(1) * 4,
        _ => 0,
    });
    let shared = shared.sum();
    let params = k.memory.iter().filter(|m| !matches!(m.space, AddressSpace::Shared(_))).count() + k.sizes as usize;
    let source = format!("{}{}", needed(&p.out), p.out);
    ShaderSource { source, bindings, params, shared }
}

/// The index of each memory's parameter.
fn parameters(k: &GridKernel) -> Vec<usize> {
    let mut next = 0;
    let number = |m: &crate::grid::Memory| {
        let own = next;
        next += !matches!(m.space, AddressSpace::Shared(_)) as usize;
        own
    };
    k.memory.iter().map(number).collect()
}

/// Finds memory with stores of partial words.
fn parts(k: &GridKernel, body: &[Stmt], whole: &mut [bool]) {
    for s in body {
        match s {
            Stmt::Store { buf, value, .. } => {
                let m = &k.memory[buf.0 as usize];
                if value.len() * m.dtype.size() % 4 != 0 {
                    whole[buf.0 as usize] = false;
                }
            }
            Stmt::Loop(l) => parts(k, &l.body, whole),
            Stmt::If { body, .. } => parts(k, body, whole),
            _ => {}
        }
    }
}

struct Printer<'a> {
    k: &'a GridKernel,
    homes: &'a [usize],
    /// The bindings whose words are changed atomically.
    atomic: Vec<bool>,
    passes: bool,
    out: String,
    /// The values of registers that are constants.
    consts: Vec<Option<i64>>,
    /// The values of registers that are float constants.
    floats: Vec<Option<Scalar>>,
    /// The factors of registers that are products or quotients of floats, or sums with one, including nested products.
    factors: Vec<Vec<Reg>>,
    params: Vec<usize>,
}

impl Printer<'_> {
    fn kernel(&mut self, bindings: &[Binding]) {
        let k = self.k;
        let _ = writeln!(self.out, "// {}", k.name.replace(['\n', '\r'], " "));
        for (i, b) in bindings.iter().enumerate() {
            let access = if b.writable { "read_write" } else { "read" };
            let word = if self.atomic[i] { "atomic<u32>" } else { "u32" };
            let _ = writeln!(self.out, "@group(0) @binding({i}) var<storage, {access}> g{i}: array<{word}>;");
        }
        let params =
            self.params.iter().zip(&k.memory).filter(|(_, m)| !matches!(m.space, AddressSpace::Shared(_))).count()
                + k.sizes as usize;
        if params > 0 {
            let rows = params.div_ceil(4);
            let _ = writeln!(self.out, "struct Params {{ v: array<vec4<u32>, {rows}> }}");
            let _ = writeln!(self.out, "@group(1) @binding(0) var<uniform> params: Params;");
        }
        for i in 0..k.memory.len() {
            self.memory(i);
        }
        let _ = writeln!(
            self.out,
            "\n@compute @workgroup_size({}) fn main(@builtin(local_invocation_index) own_thread: u32, @builtin(workgroup_id) \
             own_block: vec3<u32>, @builtin(num_workgroups) own_blocks: vec3<u32>) {{",
            k.threads
        );
        // There is one row of workgroups, but compilers do not know that.
        self.line(1, "let nothing: u32 = own_blocks.y - 1u;");
        self.block(&k.body, 1);
        self.out.push_str("}\n");
    }

    /// Declares the access to a memory: an array, or functions over the words of its binding.
    fn memory(&mut self, i: usize) {
        let m = self.k.memory[i];
        let (d, t, bytes) = (m.dtype, ty(m.dtype), m.dtype.size());
        if let AddressSpace::Shared(n) = m.space {
            let t = if d == DType::Bool { "u32" } else { t };
            let _ = writeln!(self.out, "var<workgroup> b{i}: array<{t}, {}>;", n.max(1));
            return;
        }
        let home = self.homes[i];
        let at = parameter(self.params[i]);
        let (load, store): (fn(String) -> String, fn(String, &str) -> String) = match self.atomic[home] {
            true => (|w| format!("atomicLoad(&{w})"), |w, x| format!("atomicStore(&{w}, {x})")),
            false => (|w| w, |w, x| format!("{w} = {x}")),
        };
        let shift = match bytes {
            1 => 2,
            2 => 1,
            _ => 0,
        };
        let word = if shift == 0 { format!("g{home}[e]") } else { format!("g{home}[e >> {shift}u]") };
        let by = match bytes {
            1 => "(e & 3u) << 3u",
            _ => "(e & 1u) << 4u",
        };
        let out = &mut self.out;
        let start = format!("let e = {at} + u32(at);");
        if !matches!(m.space, AddressSpace::Global(Access::Write)) {
            let whole = load(word.clone());
            let bits = if bytes == 4 { whole.clone() } else { format!("({whole} >> ({by})) & {}", ones(bytes)) };
            let _ = writeln!(out, "fn ld{i}(at: i32) -> {t} {{ {start} return {}; }}", decoded(d, &bits));
            let _ = writeln!(out, "fn lw{i}(at: i32) -> u32 {{ {start} return {whole}; }}");
        }
        if !matches!(m.space, AddressSpace::Global(Access::Read)) {
            let bits = encoded(d, "x");
            let _ = writeln!(out, "fn sw{i}(at: i32, x: u32) {{ {start} {}; }}", store(word.clone(), "x"));
            if bytes == 4 {
                let _ = writeln!(out, "fn st{i}(at: i32, x: {t}) {{ {start} {}; }}", store(word, &bits));
            } else if self.atomic[home] {
                let _ = writeln!(
                    out,
                    "fn st{i}(at: i32, x: {t}) {{ {start} let s = {by}; let old = atomicLoad(&{word}) >> s; \
                     atomicXor(&{word}, ((old ^ {bits}) & {}) << s); }}",
                    ones(bytes)
                );
            }
        }
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
                if let Op::Const(c) = op
                    && d.is_float()
                {
                    self.floats[dst.0 as usize] = Some(*c);
                }
                if let Op::Arith(loops::Op::Binary(Binary::Mul | Binary::Div, a, b) | loops::Op::Fma(a, b, _)) = op
                    && d.is_float()
                {
                    self.factors[dst.0 as usize] = self.product_closure(&[*a, *b]);
                }
                let value = self.op(*dst, op);
                self.line(depth, &format!("let r{}: {} = {value};", dst.0, ty(d)));
            }
            Stmt::Load { dst, buf, index, mask } => self.load(dst, buf.0, index, mask, depth),
            Stmt::Store { buf, index, value, mask } => self.store(buf.0, index, value, *mask, depth),
            Stmt::Loop(l) => self.loop_(l, depth),
            Stmt::If { cond, body } => {
                self.line(depth, &format!("if (r{}) {{", cond.0));
                self.block(body, depth + 1);
                self.line(depth, "}");
            }
            Stmt::Barrier(Scope::Subgroup) => self.line(depth, "subgroupBarrier();"),
            Stmt::Barrier(Scope::Block) => {
                self.line(depth, "workgroupBarrier();");
                if self.passes {
                    self.line(depth, "storageBarrier();");
                }
            }
            Stmt::Exchange { dst, src, xor } => {
                let d = self.d(*dst);
                let text = match d {
                    DType::Bool => format!("subgroupShuffleXor(select(0u, 1u, r{}), {xor}u) != 0u", src.0),
                    _ => format!("subgroupShuffleXor(r{}, {xor}u)", src.0),
                };
                self.line(depth, &format!("let r{}: {} = {text};", dst.0, ty(d)));
            }
        }
    }

    fn shared(&self, buf: u32) -> bool {
        matches!(self.k.memory[buf as usize].space, AddressSpace::Shared(_))
    }

    fn load(&mut self, dst: &[Reg], buf: u32, index: &Index, mask: &Option<(Reg, Scalar)>, depth: usize) {
        let d = self.k.memory[buf as usize].dtype;
        let at = self.index(index);
        let t = ty(d);
        let bytes = dst.len() * d.size();
        // Whole words, each read once.
        let by_words = dst.len() > 1 && d.size() < 4 && bytes.is_multiple_of(4) && !self.shared(buf);
        let mut lines = Vec::new();
        let name = dst[0].0;
        if dst.len() > 1 {
            lines.push(format!("let a{name} = {at};"));
        }
        // Shared bools are words, because a driver was observed to lose concurrent stores to others.
        let whole = if d == DType::Bool { " != 0u" } else { "" };
        let each = 4 / d.size();
        if by_words {
            for w in 0..bytes / 4 {
                lines.push(format!("let w{name}_{w} = lw{buf}(a{name} + {});", w * each));
            }
        }
        let values: Vec<String> = (0..dst.len())
            .map(|j| match (dst.len(), by_words) {
                (_, true) => {
                    let bits = format!("(w{name}_{} >> {}u) & {}", j / each, j % each * d.size() * 8, ones(d.size()));
                    decoded(d, &bits)
                }
                (1, _) if self.shared(buf) => format!("b{buf}[{at}]{whole}"),
                (1, _) => format!("ld{buf}({at})"),
                _ if self.shared(buf) => format!("b{buf}[a{name} + {j}]{whole}"),
                _ => format!("ld{buf}(a{name} + {j})"),
            })
            .collect();
        match mask {
            None => {
                lines.iter().for_each(|l| self.line(depth, l));
                for (r, v) in dst.iter().zip(&values) {
                    self.line(depth, &format!("let r{}: {t} = {v};", r.0));
                }
            }
            Some((m, other)) => {
                for r in dst {
                    self.line(depth, &format!("var r{}: {t} = {};", r.0, opaque_constant(*other, *r)));
                }
                self.line(depth, &format!("if (r{}) {{", m.0));
                lines.iter().for_each(|l| self.line(depth + 1, l));
                for (r, v) in dst.iter().zip(&values) {
                    self.line(depth + 1, &format!("r{} = {v};", r.0));
                }
                self.line(depth, "}");
            }
        }
    }

    fn store(&mut self, buf: u32, index: &Index, value: &[Reg], mask: Option<Reg>, depth: usize) {
        let d = self.k.memory[buf as usize].dtype;
        let at = self.index(index);
        let mut inner = depth;
        if let Some(m) = mask {
            self.line(depth, &format!("if (r{}) {{", m.0));
            inner += 1;
        }
        let bytes = value.len() * d.size();
        let each = 4 / d.size();
        let name = value[0].0;
        let kept = |r: &Reg| match d {
            DType::Bool => format!("select(0u, 1u, r{})", r.0),
            _ => format!("r{}", r.0),
        };
        match value {
            [one] if self.shared(buf) => self.line(inner, &format!("b{buf}[{at}] = {};", kept(one))),
            [one] => self.line(inner, &format!("st{buf}({at}, r{});", one.0)),
            many => {
                // In a nested block, because a register may be stored several times.
                self.line(inner, "{");
                self.line(inner + 1, &format!("let a{name} = {at};"));
                if d.size() < 4 && bytes.is_multiple_of(4) && !self.shared(buf) {
                    for (w, part) in many.chunks(each).enumerate() {
                        let bits = |(j, r): (usize, &Reg)| {
                            let x = encoded(d, &format!("r{}", r.0));
                            format!("(({x}) << {}u)", j * d.size() * 8)
                        };
                        let word: Vec<String> = part.iter().enumerate().map(bits).collect();
                        self.line(inner + 1, &format!("sw{buf}(a{name} + {}, {});", w * each, word.join(" | ")));
                    }
                } else {
                    for (j, r) in many.iter().enumerate() {
                        let text = match self.shared(buf) {
                            true => format!("b{buf}[a{name} + {j}] = {};", kept(r)),
                            false => format!("st{buf}(a{name} + {j}, r{});", r.0),
                        };
                        self.line(inner + 1, &text);
                    }
                }
                self.line(inner, "}");
            }
        }
        if mask.is_some() {
            self.line(depth, "}");
        }
    }

    fn loop_(&mut self, l: &Loop, depth: usize) {
        for c in &l.carried {
            let t = ty(self.d(c.phi));
            self.line(depth, &format!("var r{}: {t} = r{};", c.phi.0, c.init.0));
        }
        let t = ty(self.d(l.var));
        let (v, from, to, step) = (l.var.0, l.from.0, l.to.0, l.step.0);
        self.line(depth, &format!("for (var r{v}: {t} = r{from}; r{v} < r{to}; r{v} += r{step}) {{"));
        self.block(&l.body, depth + 1);
        // All are read before any is written: a `next` may be the `phi` of another value.
        let crossed = l.carried.iter().any(|c| l.carried.iter().any(|o| o.phi == c.next && o.phi != c.phi));
        for c in &l.carried {
            match crossed {
                true => self.line(depth + 1, &format!("let n{} = r{};", c.phi.0, c.next.0)),
                false => self.line(depth + 1, &format!("r{} = r{};", c.phi.0, c.next.0)),
            }
        }
        for c in l.carried.iter().filter(|_| crossed) {
            self.line(depth + 1, &format!("r{} = n{};", c.phi.0, c.phi.0));
        }
        self.line(depth, "}");
        for c in &l.carried {
            let t = ty(self.d(c.out));
            self.line(depth, &format!("let r{}: {t} = r{};", c.out.0, c.phi.0));
        }
    }

    fn size(&self, s: Size) -> String {
        match s {
            Size::Const(n) => integer(n),
            Size::Arg(n) => format!("i32({})", self.argument(n)),
        }
    }

    fn argument(&self, n: u32) -> String {
        let memory = self.k.memory.iter().filter(|m| !matches!(m.space, AddressSpace::Shared(_))).count();
        parameter(memory + n as usize)
    }

    fn index(&self, i: &Index) -> String {
        // In the order for which the lowering proved that sums fit.
        let mut parts = Vec::new();
        if i.offset != 0 || (i.terms.is_empty() && i.offset_args.is_empty()) {
            parts.push(integer(i.offset));
        }
        parts.extend(i.offset_args.iter().map(|a| self.size(Size::Arg(*a))));
        for &(r, stride) in &i.terms {
            match stride {
                Size::Const(1) => parts.push(format!("r{}", r.0)),
                s => parts.push(format!("r{} * {}", r.0, self.size(s))),
            }
        }
        if parts.len() > 1 { format!("({})", parts.join(" + ")) } else { parts.remove(0) }
    }

    fn op(&self, dst: Reg, op: &Op) -> String {
        let d = self.d(dst);
        match op {
            Op::Const(s) => opaque_constant(*s, dst),
            Op::ThreadBuiltin(ThreadBuiltin::Thread) => "i32(own_thread)".into(),
            Op::ThreadBuiltin(ThreadBuiltin::Block) => "i32(own_block.x)".into(),
            Op::ThreadBuiltin(ThreadBuiltin::Blocks) => "i32(own_blocks.x)".into(),
            Op::Size(n) => format!("{}({})", ty(d), self.argument(*n)),
            Op::Index(i) => self.index(i),
            Op::Arith(op) => self.arith(dst, op),
        }
    }

    fn arith(&self, dst: Reg, op: &loops::Op) -> String {
        use loops::Op::*;
        let r = |r: &Reg| format!("r{}", r.0);
        match op {
            Unary(op, x) => self.unary(*op, *x),
            Binary(op, a, b) => self.binary(*op, *a, *b),
            Compare(op, a, b) => match (self.d(*a), op) {
                // WGSL cannot order bools.
                (DType::Bool, op) => bools(*op, &r(a), &r(b)),
                // NaN is not equal to itself, but not every compiler implements `!=` and `==` this way.
                (d, ir::Compare::Ne) if d.is_float() => {
                    let nans = self.may_be_nan(a, b).map(|r| format!(" || nan_of(r{})", r.0));
                    format!("!(r{} == r{}){}", a.0, b.0, nans.collect::<String>())
                }
                // A compiler that ignores NaN may turn `x <= 0` into `!(x > 0)`.
                (d, op) if d.is_float() => {
                    let nans = self.may_be_nan(a, b).map(|r| format!(" && !nan_of(r{})", r.0));
                    format!("r{} {} r{}{}", a.0, compare(*op), b.0, nans.collect::<String>())
                }
                (_, op) => format!("r{} {} r{}", a.0, compare(*op), b.0),
            },
            // A selection between compared values could be turned into a minimum, which may return another zero.
            Select(c, a, b) if self.d(*a).is_float() => {
                format!("pick(r{}, hidden(r{}, nothing), r{})", c.0, a.0, b.0)
            }
            Select(c, a, b) => format!("select(r{}, r{}, r{})", b.0, a.0, c.0),
            Fma(a, b, c) => {
                let d = self.d(*a);
                match d.kind() {
                    DTypeKind::Float => {
                        let sum = self.addend(*c, &[*a, *b]);
                        rounded(d, format!("fma(r{}, r{}, {sum})", a.0, b.0))
                    }
                    _ => wrapped(d, format!("r{} * r{} + r{}", a.0, b.0, c.0)),
                }
            }
            Cast(to, x) => cast(self.d(*x), *to, &r(x), dst),
            Quantize(to, x) => {
                let from = self.d(*x);
                if !(from.is_float() && to.is_float()) {
                    return cast(from, *to, &r(x), dst);
                }
                let most = constant(Scalar::from_f64(DType::F32, finite_max(*to)));
                cast(DType::F32, *to, &format!("within(r{}, {most})", x.0), dst)
            }
            Bitcast(to, x) => bitcast(self.d(*x), *to, &r(x), dst),
            Const(s) => opaque_constant(*s, dst),
            Index(_) | Load { .. } => unreachable!("statements of their own"),
        }
    }

    /// Those of two registers that may be NaN.
    fn may_be_nan(&self, a: &Reg, b: &Reg) -> impl Iterator<Item = Reg> {
        [*a, *b].into_iter().filter(|r| self.floats[r.0 as usize].is_none_or(|c| c.to_f64().is_nan()))
    }

    /// These registers and all their factors.
    fn product_closure(&self, all: &[Reg]) -> Vec<Reg> {
        let mut found: Vec<Reg> =
            all.iter().flat_map(|r| [*r].into_iter().chain(self.factors[r.0 as usize].clone())).collect();
        found.sort_by_key(|r| r.0);
        found.dedup();
        found
    }

    /// A summand of a product; hidden if they share a factor: a compiler may turn `a·b + a·c` into `a·(b + c)`, which differs
    /// if one of the products is NaN.
    fn addend(&self, r: Reg, others: &[Reg]) -> String {
        let (own, others) = (self.product_closure(&[r]), self.product_closure(others));
        let shared = own.iter().any(|f| others.contains(f));
        if shared { format!("hidden(r{}, nothing)", r.0) } else { format!("r{}", r.0) }
    }

    /// A register as an argument of a prelude function, which is correct for every number; functions of constants are specialized.
    fn argument_of(&self, r: Reg) -> String {
        self.floats[r.0 as usize].map_or_else(|| format!("r{}", r.0), constant)
    }

    fn unary(&self, op: Unary, x: Reg) -> String {
        let d = self.d(x);
        let r = format!("r{}", x.0);
        let bits = d.bits();
        match (d.kind(), op) {
            (DTypeKind::Bool, _) => format!("!{r}"),
            (DTypeKind::Float, _) => {
                use Unary::*;
                let text = match op {
                    Neg => format!("negated({r}, nothing)"),
                    Abs => format!("abs({r})"),
                    Sign => format!("sign_of({r})"),
                    Floor => format!("floor({r})"),
                    Ceil => format!("ceil({r})"),
                    Round => format!("round({r})"),
                    Trunc => format!("trunc({r})"),
                    Sqrt => format!("root_of({r}, nothing)"),
                    Reciprocal => format!("over(1.0f, {r}, nothing)"),
                    IsFinite => return format!("finite_of({r})"),
                    _ => format!("{}_f32({r})", op.name()),
                };
                rounded(d, text)
            }
            (DTypeKind::Signed, Unary::Neg) => wrapped(d, format!("0 - {r}")),
            (_, Unary::Neg) => wrapped(d, format!("0u - {r}")),
            (DTypeKind::Signed, Unary::Abs) => wrapped(d, format!("abs({r})")),
            (DTypeKind::Signed, Unary::Sign) => format!("sign_i32({r})"),
            (_, Unary::Sign) => format!("min({r}, 1u)"),
            (_, Unary::Not) => wrapped(d, format!("~{r}")),
            (DTypeKind::Signed, Unary::PopulationCount) if bits < 32 => {
                format!("countOneBits({r} & {})", (1i64 << bits) - 1)
            }
            (_, Unary::PopulationCount) => format!("countOneBits({r})"),
            _ => r,
        }
    }

    fn binary(&self, op: Binary, a: Reg, b: Reg) -> String {
        let d = self.d(a);
        let (x, y) = (format!("r{}", a.0), format!("r{}", b.0));
        let t = ty(d);
        use Binary::*;
        match d.kind() {
            DTypeKind::Bool => match op {
                And | Min | Mul => format!("{x} && {y}"),
                Xor => format!("{x} != {y}"),
                _ => format!("{x} || {y}"),
            },
            DTypeKind::Float => rounded(
                d,
                match op {
                    Add => format!("{x} + {}", self.addend(b, &[a])),
                    Sub => format!("{x} + negated({y}, nothing)"),
                    Mul => format!("{x} * {y}"),
                    Div => format!("over({x}, {y}, nothing)"),
                    Max => format!("max_of({x}, {y})"),
                    Min => format!("min_of({x}, {y})"),
                    _ => format!("{}_f32({}, {})", op.name(), self.argument_of(a), self.argument_of(b)),
                },
            ),
            class => {
                let width = match class {
                    DTypeKind::Signed => format!("{}", d.bits()),
                    _ => format!("{}u", d.bits()),
                };
                // A known positive divisor, as in indices, needs no special cases.
                let known = self.consts[b.0 as usize].is_some_and(|n| n > 0);
                match op {
                    Add => wrapped(d, format!("{x} + {y}")),
                    Sub => wrapped(d, format!("{x} - {y}")),
                    Mul => wrapped(d, format!("{x} * {y}")),
                    Div if known => format!("{x} / {y}"),
                    Rem if known => format!("{x} % {y}"),
                    Div => wrapped(d, format!("div_{t}({x}, {y})")),
                    Rem => format!("rem_{t}({x}, {y})"),
                    Pow => wrapped(d, format!("power_{t}({x}, {y})")),
                    Max => format!("max({x}, {y})"),
                    Min => format!("min({x}, {y})"),
                    And => format!("{x} & {y}"),
                    Or => format!("{x} | {y}"),
                    Xor => format!("{x} ^ {y}"),
                    Shl => wrapped(d, format!("shl_{t}({x}, {y}, {width})")),
                    Shr => format!("shr_{t}({x}, {y}, {width})"),
                    Atan2 | Zeta => format!("{t}(0)"),
                }
            }
        }
    }
}

/// A word of the parameter block.
fn parameter(n: usize) -> String {
    format!("params.v[{}].{}", n / 4, ["x", "y", "z", "w"][n % 4])
}
