//! Prints kernels as text, for debugging and snapshot tests.

use super::{AccessMode, Atom, Extent, Index, Kernel, Loop, LoopKind, Op, Size, Stmt};
use std::fmt::{self, Display, Formatter};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}(", self.name)?;
        for (i, b) in self.buffers.iter().enumerate() {
            let sep = if i > 0 { ", " } else { "" };
            match b.mode {
                AccessMode::Read => write!(f, "{sep}b{i}: in {}", b.dtype)?,
                AccessMode::Write => write!(f, "{sep}b{i}: out {}", b.dtype)?,
                AccessMode::ReadWrite => write!(f, "{sep}b{i}: inout {}", b.dtype)?,
                AccessMode::Scratch(n) => write!(f, "{sep}b{i}: scratch {}[{n}]", b.dtype)?,
            }
        }
        if self.sizes > 0 {
            write!(f, "; {} sizes", self.sizes)?;
        }
        writeln!(f, ") {{")?;
        block(f, self, &self.body, 1)?;
        write!(f, "}}")
    }
}

fn block(f: &mut Formatter<'_>, k: &Kernel, body: &[Stmt], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for s in body {
        match s {
            Stmt::Let { dst, op } => {
                let dtype = k.regs.get(dst.0 as usize).map_or("?", |d| d.name());
                writeln!(f, "{pad}r{}: {dtype} = {op}", dst.0)?;
            }
            Stmt::Store { buf, index, value, mask } => {
                write!(f, "{pad}b{}[{index}] = r{}", buf.0, value.0)?;
                match mask {
                    Some(m) => writeln!(f, " if r{}", m.0)?,
                    None => writeln!(f)?,
                }
            }
            Stmt::Loop(l) => loop_(f, k, l, depth)?,
        }
    }
    Ok(())
}

fn loop_(f: &mut Formatter<'_>, k: &Kernel, l: &Loop, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    let kind = match l.kind {
        LoopKind::Parallel => "parallel",
        LoopKind::Vector => "vector",
        LoopKind::Serial => "serial",
    };
    write!(f, "{pad}{kind} v{} < {}", l.var.0, l.extent)?;
    for c in &l.carried {
        write!(f, ", r{} = r{}", c.phi.0, c.init.0)?;
        if let Some(op) = c.combine {
            write!(f, " by {}", op.name())?;
        }
    }
    writeln!(f, " {{")?;
    block(f, k, &l.body, depth + 1)?;
    write!(f, "{pad}}}")?;
    for (i, c) in l.carried.iter().enumerate() {
        write!(f, "{} r{} = r{}", if i == 0 { " next" } else { "," }, c.phi.0, c.next.0)?;
    }
    for (i, c) in l.carried.iter().enumerate() {
        write!(f, "{} r{}", if i == 0 { " out" } else { "," }, c.out.0)?;
    }
    writeln!(f)
}

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Size::Const(n) => write!(f, "{n}"),
            Size::Arg(n) => write!(f, "s{n}"),
        }
    }
}

impl Display for Extent {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Exact(n) => write!(f, "{n}"),
            Extent::Bounded { bound, buf, index } => write!(f, "min({bound}, b{}[{index}])", buf.0),
        }
    }
}

impl Display for Index {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        for (atom, stride) in &self.terms {
            write!(f, "{sep}")?;
            match atom {
                Atom::Var(v) => write!(f, "v{}", v.0)?,
                Atom::Reg(r) => write!(f, "r{}", r.0)?,
            }
            if *stride != Size::Const(1) {
                write!(f, "*{stride}")?;
            }
            sep = " + ";
        }
        for a in &self.offset_args {
            write!(f, "{sep}s{a}")?;
            sep = " + ";
        }
        if self.offset != 0 || sep.is_empty() {
            write!(f, "{sep}{}", self.offset)?;
        }
        Ok(())
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::Const(s) => write!(f, "{s}"),
            Op::Index(i) => write!(f, "index {i}"),
            Op::Load { buf, index, mask: None } => write!(f, "b{}[{index}]", buf.0),
            Op::Load { buf, index, mask: Some((m, other)) } => {
                write!(f, "b{}[{index}] if r{} else {other}", buf.0, m.0)
            }
            Op::Unary(op, x) => write!(f, "{} r{}", op.name(), x.0),
            Op::Binary(op, a, b) => write!(f, "{} r{}, r{}", op.name(), a.0, b.0),
            Op::Compare(op, a, b) => write!(f, "{} r{}, r{}", op.name(), a.0, b.0),
            Op::Select(c, a, b) => write!(f, "select r{}, r{}, r{}", c.0, a.0, b.0),
            Op::Fma(a, b, c) => write!(f, "fma r{}, r{}, r{}", a.0, b.0, c.0),
            Op::Cast(to, x) => write!(f, "cast {to} r{}", x.0),
            Op::Quantize(to, x) => write!(f, "quantize {to} r{}", x.0),
            Op::Bitcast(to, x) => write!(f, "bitcast {to} r{}", x.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::loops::{AccessMode, Extent, KernelBuilder, LoopKind, Size};
    use ir::{Binary, DType};

    #[test]
    fn a_row_sum_reads_well() {
        let mut b = KernelBuilder::new("row_sum");
        let x = b.buffer(DType::F32, AccessMode::Read);
        let y = b.buffer(DType::F32, AccessMode::Write);
        b.for_loop(LoopKind::Parallel, Size::Const(4), |b, r| {
            let zero = b.constant_from_f64(DType::F32, 0.0);
            let n = Extent::Exact(Size::Const(100));
            let sum = b.loop_(LoopKind::Vector, n, &[(zero, Some(Binary::Add))], |b, i, phi| {
                let v = b.load(x, super::Index::from(i).add_var(r, 100));
                vec![b.binary(Binary::Add, phi[0], v)]
            });
            b.store(y, r, sum[0]);
        });
        let text = "\
kernel row_sum(b0: in f32, b1: out f32) {
  parallel v0 < 4 {
    r0: f32 = 0.0
    vector v1 < 100, r1 = r0 by add {
      r2: f32 = b0[v1 + v0*100]
      r3: f32 = add r1, r2
    } next r1 = r3 out r4
    b1[v0] = r4
  }
}";
        assert_eq!(b.finish().to_string(), text);
    }
}
