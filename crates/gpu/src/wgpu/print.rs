//! Grids as WGSL.
//!
//! Registers are `bool`, `i32`, `u32` or `f32`; narrower types are numbers in their range (see the prelude). Memory is words: an
//! element of 8 or 16 bits is cut out of its word. Where a thread stores whole words nothing else happens to them; where it stores a
//! part of one, it exchanges its own bits atomically, so that the thread of the other part loses nothing and the order
//! doesn't matter.

use super::functions::needed;
use crate::grid::{Access, Index, Kernel, Loop, Op, Own, Reg, Scope, Size, Space, Stmt};
use compiler::loops;
use ir::scalar::finite_max;
use ir::{Binary, Class, Compare, DType, Scalar, Unary};
use std::fmt::Write;

/// A kernel's text: one compute shader with the entry point `main`.
///
/// Its bindings are group 0. Group 1 has one uniform block: where each `Global` and `Spill` memory starts in its binding, in
/// elements; then the sizes. All are words of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Text {
    /// The source.
    pub source: String,
    /// What is bound.
    pub bindings: Vec<Binding>,
    /// Words of the block of parameters.
    pub params: usize,
    /// Bytes of memory that a workgroup shares.
    pub shared: usize,
}

/// A binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Whether it is written.
    pub writable: bool,
}

/// The text of a kernel whose memory lies in these bindings, one number for each memory (shared arrays have none).
pub fn print(k: &Kernel, homes: &[usize]) -> Text {
    let count = homes.iter().zip(&k.memory).filter(|(_, m)| !matches!(m.space, Space::Shared(_)));
    let count = count.map(|(h, _)| h + 1).max().unwrap_or(0);
    let mut bindings = vec![Binding { writable: false }; count];
    let mut atomic = vec![false; count];
    for (m, &home) in k.memory.iter().zip(homes) {
        match m.space {
            Space::Global(Access::Read) | Space::Shared(_) => {}
            _ => bindings[home].writable = true,
        }
    }
    let mut whole = vec![true; k.memory.len()];
    parts(k, &k.body, &mut whole);
    for (i, &home) in homes.iter().enumerate() {
        if !whole[i] && !matches!(k.memory[i].space, Space::Shared(_)) {
            atomic[home] = true;
        }
    }
    // Where lanes pass data to each other through memory that is not shared.
    let passes = !k.apart
        || k.memory.iter().any(|m| matches!(m.space, Space::Spill(_)))
        || k.memory.iter().any(|m| m.space == Space::Global(Access::ReadWrite));
    let mut p = Printer {
        k,
        homes,
        atomic,
        passes,
        out: String::new(),
        consts: vec![None; k.regs.len()],
        numbers: vec![false; k.regs.len()],
        params: Vec::new(),
    };
    p.params = parameters(k);
    p.kernel(&bindings);
    let shared = k.memory.iter().map(|m| match m.space {
        Space::Shared(n) => n.max(1) * 4,
        _ => 0,
    });
    let shared = shared.sum();
    let params = k.memory.iter().filter(|m| !matches!(m.space, Space::Shared(_))).count() + k.sizes as usize;
    let source = format!("{}{}", needed(&p.out), p.out);
    Text { source, bindings, params, shared }
}

/// The number of each memory's parameter.
fn parameters(k: &Kernel) -> Vec<usize> {
    let mut next = 0;
    let number = |m: &crate::grid::Memory| {
        let own = next;
        next += !matches!(m.space, Space::Shared(_)) as usize;
        own
    };
    k.memory.iter().map(number).collect()
}

/// Finds memory of which parts of words are stored.
fn parts(k: &Kernel, body: &[Stmt], whole: &mut [bool]) {
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
    k: &'a Kernel,
    homes: &'a [usize],
    /// Bindings whose words are exchanged atomically.
    atomic: Vec<bool>,
    passes: bool,
    out: String,
    /// Registers that are constants.
    consts: Vec<Option<i64>>,
    /// Registers that are constants other than NaN.
    numbers: Vec<bool>,
    params: Vec<usize>,
}

/// The type of a register.
fn ty(d: DType) -> &'static str {
    match d.class() {
        Class::Bool => "bool",
        Class::Signed => "i32",
        Class::Unsigned => "u32",
        Class::Float => "f32",
    }
}

/// Whether values are f32 numbers that a narrower format has.
fn narrow(d: DType) -> bool {
    d.is_float() && d != DType::F32
}

/// A number rounded to a dtype.
fn rounded(d: DType, x: String) -> String {
    if narrow(d) { format!("round_{}({x})", d.name()) } else { x }
}

/// A number cut to the bits of an integer type.
fn wrapped(d: DType, x: String) -> String {
    match d {
        DType::I8 => format!("wrap_i8({x})"),
        DType::I16 => format!("wrap_i16({x})"),
        DType::U8 => format!("(({x}) & 0xffu)"),
        DType::U16 => format!("(({x}) & 0xffffu)"),
        _ => x,
    }
}

/// The bits of a value, as a word whose upper part is nothing.
fn encoded(d: DType, x: &str) -> String {
    match d {
        DType::Bool => format!("select(0u, 1u, {x})"),
        DType::F32 => format!("bitcast<u32>({x})"),
        DType::U32 | DType::U8 | DType::U16 => x.to_string(),
        DType::I32 => format!("bitcast<u32>({x})"),
        DType::I8 => format!("(bitcast<u32>({x}) & 0xffu)"),
        DType::I16 => format!("(bitcast<u32>({x}) & 0xffffu)"),
        _ => format!("f32_{}({x})", d.name()),
    }
}

/// A value of its bits; the word's upper part is nothing.
fn decoded(d: DType, w: &str) -> String {
    match d {
        DType::Bool => format!("(({w}) & 1u) != 0u"),
        DType::F32 => format!("bitcast<f32>({w})"),
        DType::U32 | DType::U8 | DType::U16 => w.to_string(),
        DType::I32 => format!("bitcast<i32>({w})"),
        DType::I8 => format!("wrap_i8(bitcast<i32>({w}))"),
        DType::I16 => format!("wrap_i16(bitcast<i32>({w}))"),
        _ => format!("{}_f32({w})", d.name()),
    }
}

fn ones(bytes: usize) -> &'static str {
    if bytes == 1 { "0xffu" } else { "0xffffu" }
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
        let params = self.params.iter().zip(&k.memory).filter(|(_, m)| !matches!(m.space, Space::Shared(_))).count()
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
        self.block(&k.body, 1);
        self.out.push_str("}\n");
    }

    /// How a memory is reached: an array, or functions over the words of its binding.
    fn memory(&mut self, i: usize) {
        let m = self.k.memory[i];
        let (d, t, bytes) = (m.dtype, ty(m.dtype), m.dtype.size());
        if let Space::Shared(n) = m.space {
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
        if !matches!(m.space, Space::Global(Access::Write)) {
            let whole = load(word.clone());
            let bits = if bytes == 4 { whole.clone() } else { format!("({whole} >> ({by})) & {}", ones(bytes)) };
            let _ = writeln!(out, "fn ld{i}(at: i32) -> {t} {{ {start} return {}; }}", decoded(d, &bits));
            let _ = writeln!(out, "fn lw{i}(at: i32) -> u32 {{ {start} return {whole}; }}");
        }
        if !matches!(m.space, Space::Global(Access::Read)) {
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
                if let Op::Const(c) = op {
                    self.numbers[dst.0 as usize] = d.is_float() && !c.to_f64().is_nan();
                }
                let value = self.op(d, op);
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
        matches!(self.k.memory[buf as usize].space, Space::Shared(_))
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
        // Shared bools are words: a driver was seen to lose others'.
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
                    self.line(depth, &format!("var r{}: {t} = {};", r.0, unknown(*other)));
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
                // In a block of its own: a register may be stored several times.
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
        // All at once: a `next` may be another value's `phi`.
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
        let memory = self.k.memory.iter().filter(|m| !matches!(m.space, Space::Shared(_))).count();
        parameter(memory + n as usize)
    }

    fn index(&self, i: &Index) -> String {
        // In the order in which the lowering proved that sums fit.
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

    fn op(&self, d: DType, op: &Op) -> String {
        match op {
            Op::Const(s) => unknown(*s),
            Op::Own(Own::Thread) => "i32(own_thread)".into(),
            Op::Own(Own::Block) => "i32(own_block.x)".into(),
            Op::Own(Own::Blocks) => "i32(own_blocks.x)".into(),
            Op::Size(n) => format!("{}({})", ty(d), self.argument(*n)),
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
            Compare(op, a, b) => match (self.d(*a), op) {
                // WGSL has no order of bools.
                (DType::Bool, op) => bools(*op, &r(a), &r(b)),
                // NaN is unlike itself: not every compiler's `!=` says so.
                (d, ir::Compare::Ne) if d.is_float() => format!("!(r{} == r{})", a.0, b.0),
                // A compiler that thinks of no NaN may turn `x <= 0` into `!(x > 0)`.
                (d, op) if d.is_float() => {
                    let mut text = format!("r{} {} r{}", a.0, compare(*op), b.0);
                    for r in [a, b].into_iter().filter(|r| !self.numbers[r.0 as usize]) {
                        let _ = write!(text, " && !nan_of(r{})", r.0);
                    }
                    text
                }
                (_, op) => format!("r{} {} r{}", a.0, compare(*op), b.0),
            },
            Select(c, a, b) if self.d(*a).is_float() => format!("pick(r{}, r{}, r{})", c.0, a.0, b.0),
            Select(c, a, b) => format!("select(r{}, r{}, r{})", b.0, a.0, c.0),
            Fma(a, b, c) => {
                let d = self.d(*a);
                match d.class() {
                    Class::Float => {
                        // `x · -1 + x` is NaN where x is.
                        let same = a == c || b == c;
                        let factor = |r: Reg| match same && self.numbers[r.0 as usize] {
                            true => format!("hidden(r{}, own_blocks.y)", r.0),
                            false => format!("r{}", r.0),
                        };
                        rounded(d, format!("fma({}, {}, r{})", factor(*a), factor(*b), c.0))
                    }
                    _ => wrapped(d, format!("r{} * r{} + r{}", a.0, b.0, c.0)),
                }
            }
            Cast(to, x) => cast(self.d(*x), *to, &r(x)),
            Quantize(to, x) => {
                let from = self.d(*x);
                if !(from.is_float() && to.is_float()) {
                    return cast(from, *to, &r(x));
                }
                let most = constant(Scalar::from_f64(DType::F32, finite_max(*to)));
                cast(DType::F32, *to, &format!("within(r{}, {most})", x.0))
            }
            Bitcast(to, x) => bitcast(self.d(*x), *to, &r(x)),
            Const(s) => unknown(*s),
            Index(_) | Load { .. } => unreachable!("statements of their own"),
        }
    }

    fn unary(&self, op: Unary, x: Reg) -> String {
        let d = self.d(x);
        let r = format!("r{}", x.0);
        let bits = d.bits();
        match (d.class(), op) {
            (Class::Bool, _) => format!("!{r}"),
            (Class::Float, _) => {
                use Unary::*;
                let text = match op {
                    Neg => format!("-{r}"),
                    Abs => format!("abs({r})"),
                    Sign => format!("sign_of({r})"),
                    Floor => format!("floor({r})"),
                    Ceil => format!("ceil({r})"),
                    Round => format!("round({r})"),
                    Trunc => format!("trunc({r})"),
                    Sqrt => format!("sqrt({r})"),
                    Reciprocal => format!("1.0f / {r}"),
                    IsFinite => return format!("finite_of({r})"),
                    _ => format!("{}_f32({r})", op.name()),
                };
                rounded(d, text)
            }
            (Class::Signed, Unary::Neg) => wrapped(d, format!("0 - {r}")),
            (_, Unary::Neg) => wrapped(d, format!("0u - {r}")),
            (Class::Signed, Unary::Abs) => wrapped(d, format!("abs({r})")),
            (Class::Signed, Unary::Sign) => format!("sign_i32({r})"),
            (_, Unary::Sign) => format!("min({r}, 1u)"),
            (_, Unary::Not) => wrapped(d, format!("~{r}")),
            (Class::Signed, Unary::PopulationCount) if bits < 32 => {
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
        match d.class() {
            Class::Bool => match op {
                And | Min | Mul => format!("{x} && {y}"),
                Xor => format!("{x} != {y}"),
                _ => format!("{x} || {y}"),
            },
            Class::Float => rounded(
                d,
                match op {
                    Add => format!("{x} + {y}"),
                    Sub => format!("minus({x}, {y})"),
                    Mul => format!("{x} * {y}"),
                    Div => format!("over({x}, {y}, own_blocks.y)"),
                    Max => format!("max_of({x}, {y})"),
                    Min => format!("min_of({x}, {y})"),
                    _ => format!("{}_f32({x}, {y})", op.name()),
                },
            ),
            class => {
                let width = match class {
                    Class::Signed => format!("{}", d.bits()),
                    _ => format!("{}u", d.bits()),
                };
                // Known divisors, as indices have them, need no care.
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

/// A word of the block of parameters.
fn parameter(n: usize) -> String {
    format!("params.v[{}].{}", n / 4, ["x", "y", "z", "w"][n % 4])
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

fn bools(op: Compare, a: &str, b: &str) -> String {
    match op {
        Compare::Eq => format!("{a} == {b}"),
        Compare::Ne => format!("{a} != {b}"),
        Compare::Lt => format!("!{a} && {b}"),
        Compare::Le => format!("!{a} || {b}"),
        Compare::Gt => format!("{a} && !{b}"),
        Compare::Ge => format!("{a} || !{b}"),
    }
}

fn cast(from: DType, to: DType, r: &str) -> String {
    if from == to {
        return r.to_string();
    }
    match (from.class(), to.class()) {
        (Class::Float, Class::Bool) => format!("!({r} == 0.0f)"),
        (Class::Signed, Class::Bool) => format!("{r} != 0"),
        (_, Class::Bool) => format!("{r} != 0u"),
        (Class::Bool, Class::Float) => format!("select(0.0f, 1.0f, {r})"),
        (Class::Bool, Class::Signed) => format!("select(0, 1, {r})"),
        (Class::Bool, Class::Unsigned) => format!("select(0u, 1u, {r})"),
        // What a wider format of the same kind holds already is rounded to itself.
        (Class::Float, Class::Float) => rounded(to, r.to_string()),
        (Class::Float, _) => format!("to_{}({r})", to.name()),
        (_, Class::Float) if to == DType::F32 => format!("f32({r})"),
        // Up to 16 bits f32 holds them all; others are rounded once too.
        (_, Class::Float) if from.size() <= 2 => rounded(to, format!("f32({r})")),
        (_, Class::Float) => rounded(to, format!("odd_{}({r})", ty(from))),
        (_, _) if ty(from) == ty(to) => wrapped(to, r.to_string()),
        (_, _) => wrapped(to, format!("{}({r})", ty(to))),
    }
}

fn bitcast(from: DType, to: DType, r: &str) -> String {
    if from == to { r.to_string() } else { decoded(to, &encoded(from, r)) }
}

fn integer(n: i64) -> String {
    match n {
        n if n == i32::MIN as i64 => "i32(-2147483648)".into(),
        n if n < 0 => format!("({n})"),
        n => format!("{n}"),
    }
}

/// A constant; a 0 that no compiler knows, since with it a product that must be NaN would be none.
fn unknown(s: Scalar) -> String {
    let text = constant(s);
    if s.dtype().is_float() && s.to_f64() == 0.0 { format!("hidden({text}, own_blocks.y)") } else { text }
}

fn constant(s: Scalar) -> String {
    let d = s.dtype();
    match d.class() {
        Class::Bool => s.to_bool().to_string(),
        Class::Signed => integer(s.to_i64()),
        Class::Unsigned => format!("{}u", s.bits()),
        Class::Float => {
            let x = s.to_f64() as f32;
            if x.is_finite() && (x == 0.0 || x.is_normal()) {
                match x {
                    // Not the negation of a constant: the sign of zero counts.
                    x if x == 0.0 && x.is_sign_negative() => "real(0x80000000u)".into(),
                    // Its shortest decimals are beyond it, which browsers refuse.
                    x if x.abs() == f32::MAX => format!("({:e}f)", x as f64),
                    x if x < 0.0 => format!("({x:?}f)"),
                    x => format!("{x:?}f"),
                }
            } else {
                format!("real(0x{:x}u)", x.to_bits())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_numbers_that_the_type_has() {
        for x in [f32::MAX, f32::MIN, f32::MIN_POSITIVE, 0.1, -2.5, 1e38, 16_777_217.0, 3.402_823e38] {
            let text = constant(Scalar::from_f64(DType::F32, x as f64));
            let read: f64 = text.trim_matches(['(', ')', 'f']).parse().expect("a number");
            assert!(read.abs() <= f32::MAX as f64 && read as f32 == x, "{text} for {x}");
        }
    }
}
