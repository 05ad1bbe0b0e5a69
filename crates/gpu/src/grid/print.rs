//! Prints grids as text, for debugging and snapshot tests.

use super::{Access, AddressSpace, GridKernel, Index, Loop, Op, Scope, Size, Stmt, ThreadBuiltin};
use std::fmt::{self, Display, Formatter};

impl Display for GridKernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "grid {}(", self.name)?;
        for (i, m) in self.memory.iter().enumerate() {
            let sep = if i > 0 { ", " } else { "" };
            match m.space {
                AddressSpace::Global(Access::Read) => write!(f, "{sep}b{i}: in {}", m.dtype)?,
                AddressSpace::Global(Access::Write) => write!(f, "{sep}b{i}: out {}", m.dtype)?,
                AddressSpace::Global(Access::ReadWrite) => write!(f, "{sep}b{i}: inout {}", m.dtype)?,
                AddressSpace::Spill(n) => write!(f, "{sep}b{i}: spill {}[{n}]", m.dtype)?,
                AddressSpace::Shared(n) => write!(f, "{sep}b{i}: shared {}[{n}]", m.dtype)?,
            }
        }
        if self.sizes > 0 {
            write!(f, "; {} sizes", self.sizes)?;
        }
        write!(f, ") {} threads, {} teams", self.threads, self.teams)?;
        for (i, c) in self.work.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { ", work " } else { "·" }, c.size)?;
            if c.chunk != 1 {
                write!(f, "/{}", c.chunk)?;
            }
        }
        writeln!(f, " {{")?;
        block(f, self, &self.body, 1)?;
        write!(f, "}}")
    }
}

fn block(f: &mut Formatter<'_>, k: &GridKernel, body: &[Stmt], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    let list = |regs: &[super::Reg]| regs.iter().map(|r| format!("r{}", r.0)).collect::<Vec<_>>().join(" ");
    for s in body {
        match s {
            Stmt::Let { dst, op } => {
                let dtype = k.regs.get(dst.0 as usize).map_or("?", |d| d.name());
                writeln!(f, "{pad}r{}: {dtype} = {op}", dst.0)?;
            }
            Stmt::Load { dst, buf, index, mask } => {
                write!(f, "{pad}{} = b{}[{index}]", list(dst), buf.0)?;
                match mask {
                    Some((m, other)) => writeln!(f, " if r{} else {other}", m.0)?,
                    None => writeln!(f)?,
                }
            }
            Stmt::Store { buf, index, value, mask } => {
                write!(f, "{pad}b{}[{index}] = {}", buf.0, list(value))?;
                match mask {
                    Some(m) => writeln!(f, " if r{}", m.0)?,
                    None => writeln!(f)?,
                }
            }
            Stmt::Loop(l) => loop_(f, k, l, depth)?,
            Stmt::If { cond, body } => {
                writeln!(f, "{pad}if r{} {{", cond.0)?;
                block(f, k, body, depth + 1)?;
                writeln!(f, "{pad}}}")?;
            }
            Stmt::Barrier(Scope::Subgroup) => writeln!(f, "{pad}barrier subgroup")?,
            Stmt::Barrier(Scope::Block) => writeln!(f, "{pad}barrier")?,
            Stmt::Exchange { dst, src, xor } => writeln!(f, "{pad}r{} = exchange r{} xor {xor}", dst.0, src.0)?,
        }
    }
    Ok(())
}

fn loop_(f: &mut Formatter<'_>, k: &GridKernel, l: &Loop, depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    write!(f, "{pad}for r{} = r{}; < r{}; += r{}", l.var.0, l.from.0, l.to.0, l.step.0)?;
    for c in &l.carried {
        write!(f, ", r{} = r{}", c.phi.0, c.init.0)?;
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

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::Const(s) => write!(f, "{s}"),
            Op::ThreadBuiltin(ThreadBuiltin::Thread) => f.write_str("thread"),
            Op::ThreadBuiltin(ThreadBuiltin::Block) => f.write_str("block"),
            Op::ThreadBuiltin(ThreadBuiltin::Blocks) => f.write_str("blocks"),
            Op::Size(n) => write!(f, "s{n}"),
            Op::Index(i) => write!(f, "{i}"),
            Op::Arith(op) => write!(f, "{op}"),
        }
    }
}

impl Display for Index {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.wide {
            f.write_str("i64 ")?;
        }
        let mut sep = "";
        for (r, stride) in &self.terms {
            write!(f, "{sep}r{}", r.0)?;
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
