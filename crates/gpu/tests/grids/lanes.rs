//! A model of the results of lanes: the reference interpreter, except that vector loops keep the carried values of each lane, and
//! reduce them as the grid's documentation specifies. It does not model threads and memory.

use compiler::loops::{Atom, Extent, Index, Kernel, Loop, LoopKind, Op, Size, Stmt};
use ir::{Binary, DType, Scalar};
use tensorloom_gpu::grid::{self, GridLimits};

/// The configuration of a team.
pub(crate) struct Lanes {
    pub(crate) count: usize,
    pub(crate) width: usize,
    pub(crate) subgroup: Option<usize>,
}

impl Lanes {
    pub(crate) fn of(g: &grid::GridKernel, limits: &GridLimits) -> Lanes {
        let count = (g.threads / g.teams) as usize;
        Lanes { count, width: width(&g.body), subgroup: limits.subgroup_size.map(|s| s as usize) }
    }
}

/// The maximum number of elements of one access.
pub(crate) fn width(body: &[grid::Stmt]) -> usize {
    let of = |s: &grid::Stmt| match s {
        grid::Stmt::Load { dst, .. } => dst.len(),
        grid::Stmt::Store { value, .. } => value.len(),
        grid::Stmt::Loop(l) => width(&l.body),
        grid::Stmt::If { body, .. } => width(body),
        _ => 1,
    };
    body.iter().map(of).max().unwrap_or(1)
}

/// Whether a vector loop has carried values whose bits depend on the order.
pub(crate) fn reassociates(k: &Kernel) -> bool {
    fn any(k: &Kernel, body: &[Stmt]) -> bool {
        body.iter().any(|s| match s {
            Stmt::Loop(l) => {
                let float = l.carried.iter().any(|c| k.regs[c.phi.0 as usize].is_float());
                l.kind == LoopKind::Vector && float || any(k, &l.body)
            }
            _ => false,
        })
    }
    any(k, &k.body)
}

pub(crate) fn eval(k: &Kernel, bufs: &mut [&mut [u8]], sizes: &[i64], lanes: &Lanes) -> Result<(), String> {
    let zero = Scalar::zero(DType::Bool);
    let mut m = Machine { k, bufs, sizes, lanes, regs: vec![zero; k.regs.len()], vars: vec![0; k.vars as usize] };
    m.block(&k.body)
}

struct Machine<'a, 'b> {
    k: &'a Kernel,
    bufs: &'a mut [&'b mut [u8]],
    sizes: &'a [i64],
    lanes: &'a Lanes,
    regs: Vec<Scalar>,
    vars: Vec<i64>,
}

impl Machine<'_, '_> {
    fn block(&mut self, body: &[Stmt]) -> Result<(), String> {
        for s in body {
            match s {
                Stmt::Let { dst, op } => {
                    let v = match op {
                        Op::Const(s) => *s,
                        Op::Index(i) => Scalar::from_i64(DType::I64, self.index(i)),
                        Op::Load { mask: Some((m, other)), .. } if !self.regs[m.0 as usize].to_bool() => *other,
                        Op::Load { buf, index, .. } => self.read(buf.0 as usize, index)?,
                        _ => {
                            let args: Vec<Scalar> = op.operands().map(|r| self.regs[r.0 as usize]).collect();
                            op.apply(&args).expect("an arithmetic op")
                        }
                    };
                    self.regs[dst.0 as usize] = v;
                }
                Stmt::Store { buf, index, value, mask } => {
                    if mask.is_none_or(|m| self.regs[m.0 as usize].to_bool()) {
                        let at = self.place(buf.0 as usize, index)?;
                        let size = self.k.buffers[buf.0 as usize].dtype.size();
                        let bytes = self.regs[value.0 as usize].bits().to_le_bytes();
                        self.bufs[buf.0 as usize][at..at + size].copy_from_slice(&bytes[..size]);
                    }
                }
                Stmt::Loop(l) => {
                    let n = match &l.extent {
                        Extent::Exact(n) => self.size(*n),
                        Extent::Bounded { bound, buf, index } => {
                            self.read(buf.0 as usize, index)?.to_i64().clamp(0, self.size(*bound).max(0))
                        }
                    };
                    match l.kind {
                        LoopKind::Vector => self.vector(l, n)?,
                        _ => self.serial(l, n)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn serial(&mut self, l: &Loop, n: i64) -> Result<(), String> {
        for c in &l.carried {
            self.regs[c.phi.0 as usize] = self.regs[c.init.0 as usize];
        }
        for i in 0..n {
            self.vars[l.var.0 as usize] = i;
            self.block(&l.body)?;
            let next: Vec<Scalar> = l.carried.iter().map(|c| self.regs[c.next.0 as usize]).collect();
            l.carried.iter().zip(next).for_each(|(c, v)| self.regs[c.phi.0 as usize] = v);
        }
        for c in &l.carried {
            self.regs[c.out.0 as usize] = self.regs[c.phi.0 as usize];
        }
        Ok(())
    }

    fn vector(&mut self, l: &Loop, n: i64) -> Result<(), String> {
        let (lanes, width) = (self.lanes.count, self.lanes.width);
        let dtype = |c: &compiler::loops::Carried| self.k.regs[c.phi.0 as usize];
        let start = |c: &compiler::loops::Carried| {
            let mut all = vec![vec![identity(c.combine.unwrap(), dtype(c)); width]; lanes];
            all[0][0] = self.regs[c.init.0 as usize];
            all
        };
        let mut accs: Vec<Vec<Vec<Scalar>>> = l.carried.iter().map(start).collect();
        let main = n - n % width as i64;
        for i in 0..n {
            let (lane, j) = if i < main {
                ((i as usize / width) % lanes, i as usize % width)
            } else {
                ((i - main) as usize % lanes, 0)
            };
            self.vars[l.var.0 as usize] = i;
            for (c, a) in l.carried.iter().zip(&accs) {
                self.regs[c.phi.0 as usize] = a[lane][j];
            }
            self.block(&l.body)?;
            for (c, a) in l.carried.iter().zip(&mut accs) {
                a[lane][j] = self.regs[c.next.0 as usize];
            }
        }
        for (c, a) in l.carried.iter().zip(accs) {
            let op = c.combine.unwrap();
            let fold = |v: Vec<Scalar>| v.into_iter().reduce(|a, b| op.eval(a, b)).unwrap();
            let mut each: Vec<Scalar> = a.into_iter().map(fold).collect();
            match self.lanes.subgroup {
                // Adjacent lanes first, in each subgroup; then subgroups in order.
                Some(g) => {
                    let tree = |mut v: Vec<Scalar>| {
                        while v.len() > 1 {
                            v = v.chunks(2).map(|p| op.eval(p[0], p[1])).collect();
                        }
                        v[0]
                    };
                    each = each.chunks(g.min(lanes)).map(|v| tree(v.to_vec())).collect();
                    each = vec![fold(each)];
                }
                // Adds the upper half to the lower one.
                None => {
                    while each.len() > 1 {
                        let upper = each.split_off(each.len() / 2);
                        each = each.into_iter().zip(upper).map(|(a, b)| op.eval(a, b)).collect();
                    }
                }
            }
            self.regs[c.out.0 as usize] = each[0];
        }
        Ok(())
    }

    fn size(&self, s: Size) -> i64 {
        match s {
            Size::Const(n) => n,
            Size::Arg(n) => self.sizes[n as usize],
        }
    }

    fn index(&self, i: &Index) -> i64 {
        let fixed = i.offset_args.iter().fold(i.offset, |at, &a| at.wrapping_add(self.sizes[a as usize]));
        i.terms.iter().fold(fixed, |at, &(atom, stride)| {
            let v = match atom {
                Atom::Var(v) => self.vars[v.0 as usize],
                Atom::Reg(r) => self.regs[r.0 as usize].to_i64(),
            };
            at.wrapping_add(v.wrapping_mul(self.size(stride)))
        })
    }

    fn place(&self, buf: usize, index: &Index) -> Result<usize, String> {
        let size = self.k.buffers[buf].dtype.size();
        let at = self.index(index);
        let ok = at >= 0 && (at as usize) < self.bufs[buf].len() / size;
        if ok { Ok(at as usize * size) } else { Err(format!("b{buf}[{at}] is out of bounds")) }
    }

    fn read(&self, buf: usize, index: &Index) -> Result<Scalar, String> {
        let at = self.place(buf, index)?;
        let dtype = self.k.buffers[buf].dtype;
        let mut word = [0; 8];
        word[..dtype.size()].copy_from_slice(&self.bufs[buf][at..at + dtype.size()]);
        Ok(Scalar::from_bits(dtype, u64::from_le_bytes(word)))
    }
}

fn identity(op: Binary, d: DType) -> Scalar {
    match op {
        Binary::Add if d.is_float() => Scalar::from_f64(d, -0.0),
        Binary::Mul => Scalar::one(d),
        Binary::Max => Scalar::lowest(d),
        Binary::Min => Scalar::highest(d),
        Binary::And => Scalar::from_bits(d, u64::MAX),
        _ => Scalar::zero(d),
    }
}
