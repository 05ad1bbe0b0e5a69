//! Program → something that runs on the device: kernels compiled, products planned, constants in memory.

use super::Inner;
use super::backend::means;
use super::blas::{Call, Plan};
use super::classes::ALIGN;
use super::collective::Talk;
use super::dnn::{self, ReadyDnn};
use super::gemm::{self, Mapped};
use super::kernels::Function;
use super::memory::CudaBuffer;
use super::narrow::{Narrow, ReadyNarrow, Turn};
use super::record::Recordings;
use super::scatter::Rows;
use super::strided::{self, Text};
use crate::cuda::turn::{self, turn};
use crate::cuda::{self, Arg, Attention, Few, Radix, Routine, Running};
use crate::grid::places::aligned;
use crate::grid::{self, Buf, Limits, Space};
use crate::host::Host;
use crate::library;
use compiler::debug::Report;
use compiler::loops::{self, Kernel, Reg, Stmt};
use compiler::program::{Class, Factor, KernelArg, LoopStep, Matmul, Place, Program, Slot, Step, Trip};
use compiler::{DeviceBuffer, Error, Result};
use ir::{Op, Type};
use std::sync::{Arc, Mutex};

/// The most loops inside each other.
pub(crate) const MAX_LEVELS: usize = 8;

/// A step ready to run.
pub(crate) enum Ready {
    Kernel(Launch),
    /// One after another.
    Kernels(Vec<Launch>),
    Product(Box<Product>),
    /// An attention by cuDNN.
    Dnn(Box<ReadyDnn>),
    /// A product of fp8 codes.
    Narrow(Box<ReadyNarrow>),
    Host(Box<Host>),
    /// With other ranks.
    Talk(Box<Talk>),
    Copy {
        from: Place,
        to: Place,
        bytes: usize,
    },
    Zero {
        to: Place,
        bytes: usize,
    },
    Branch {
        index: Place,
        branches: Vec<Vec<Ready>>,
    },
    Loop {
        level: usize,
        trip: ReadyTrip,
        reverse: bool,
        body: Vec<Ready>,
        after: Vec<(Place, Place, usize)>,
    },
}

/// How often a loop runs.
pub(crate) enum ReadyTrip {
    Exact(usize),
    Bounded { bound: usize, count: Place },
    While { test: Vec<Ready>, flag: Place },
}

/// A launch of a kernel.
pub(crate) struct Launch {
    /// Which of the program's functions.
    pub(crate) function: usize,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Bytes of shared memory beyond what the kernel declares.
    pub(crate) shared: u32,
    pub(crate) args: Vec<Argument>,
    pub(crate) sizes: Vec<i64>,
    /// Results that must hold what operands hold, with their bytes: they are the same memory, or become equal first.
    pub(crate) over: Vec<(Place, Place, usize)>,
    pub(crate) name: String,
}

/// A pointer argument of a kernel.
pub(crate) enum Argument {
    Place(Place),
    /// At this offset of the run's scratch.
    Scratch(usize),
}

/// A matrix product.
pub(crate) struct Product {
    pub(crate) shape: Matmul,
    pub(crate) a: Place,
    pub(crate) b: Place,
    pub(crate) c: Place,
    pub(crate) how: How,
}

/// How a product is computed.
pub(crate) enum How {
    /// There are no results.
    Nothing,
    /// The sum of nothing, over dense memory of so many bytes.
    Zeros(usize),
    /// By cuBLASLt; with copies of A, B and C as needed, by their offsets in the run's scratch.
    Library { plan: Box<Plan>, mapped: Mapped, copies: [Option<Packed>; 3] },
    /// By a kernel of ours for few rows.
    Few {
        function: usize,
        few: Few,
        /// Nobody writes the large matrix while the program runs.
        steady: bool,
    },
    /// By a kernel of ours.
    Own { function: usize },
}

/// Dense memory that stands for an operand of a product.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) offset: usize,
    /// The strided copy.
    pub(crate) function: usize,
    pub(crate) sizes: [usize; 3],
    pub(crate) own: [isize; 3],
    pub(crate) dense: [isize; 3],
}

/// A program ready to run.
pub(crate) struct Loaded {
    /// Before what they refer to, so that they go first.
    pub(crate) recordings: Mutex<Recordings>,
    pub(crate) inner: Arc<Inner>,
    pub(crate) program: Program,
    pub(crate) steps: Vec<Ready>,
    pub(crate) functions: Vec<Arc<Function>>,
    /// All constants in one buffer, and where in it each buffer of the program is.
    pub(crate) constants: Option<CudaBuffer>,
    pub(crate) constant_at: Vec<usize>,
    pub(crate) arena_bytes: usize,
    pub(crate) scratch_at: usize,
    /// How many launches a run is, where that is known before it runs and nothing is read back.
    pub(crate) launches: Option<usize>,
}

impl Loaded {
    pub(crate) fn new(inner: &Arc<Inner>, program: Program) -> Result<Loaded> {
        if program.levels > MAX_LEVELS {
            return Err(Error::Backend(format!(
                "loops nest {} deep, at most {MAX_LEVELS} are supported",
                program.levels
            )));
        }
        inner.device.context.enter()?;
        let capability = inner.device.context.capability;
        let report = Report::code(&program, || "cuda".into());
        let program = library::expand(program, &means(), &|op, args| own(capability, op, args));
        let mut loader = Loader { inner, program: &program, texts: Vec::new(), scratch: 0, report };
        let steps = loader.steps(&program.steps)?;
        let (texts, scratch) = (loader.texts, loader.scratch);
        let functions = inner.kernels.get(&texts)?;
        for (function, bytes) in shared(&steps) {
            functions[function].allow_shared(&inner.device.context, bytes)?;
        }
        let mut at = 0;
        let mut constant_at = vec![0; program.buffers.len()];
        let mut data = Vec::new();
        for (i, b) in program.buffers.iter().enumerate() {
            if let Class::Constant(l) = &b.class {
                data.resize(at, 0);
                data.extend_from_slice(l.bytes());
                constant_at[i] = at;
                at = data.len().next_multiple_of(ALIGN);
            }
        }
        let constants = match data.is_empty() {
            true => None,
            false => {
                let buffer = CudaBuffer::new(&inner.device, data.len())?;
                buffer.write(0, &data)?;
                Some(buffer)
            }
        };
        let scratch_at = program.arena.next_multiple_of(ALIGN);
        let launches = launches(&steps);
        Ok(Loaded {
            inner: inner.clone(),
            steps,
            functions,
            constants,
            constant_at,
            arena_bytes: scratch_at + scratch,
            scratch_at,
            launches,
            recordings: Mutex::default(),
            program,
        })
    }
}

/// What kernels want of shared memory.
fn shared(steps: &[Ready]) -> Vec<(usize, u32)> {
    let one = |l: &Launch| (l.shared > 0).then_some((l.function, l.shared));
    let each = |s: &Ready| match s {
        Ready::Kernel(l) => one(l).into_iter().collect(),
        Ready::Kernels(all) => all.iter().filter_map(one).collect(),
        Ready::Branch { branches, .. } => branches.iter().flat_map(|b| shared(b)).collect(),
        Ready::Loop { trip, body, .. } => {
            let mut found = shared(body);
            if let ReadyTrip::While { test, .. } = trip {
                found.extend(shared(test));
            }
            found
        }
        _ => Vec::new(),
    };
    steps.iter().flat_map(each).collect()
}

/// How many launches steps are; none if that depends on data, or the host takes part.
fn launches(steps: &[Ready]) -> Option<usize> {
    let mut sum = 0usize;
    for s in steps {
        sum = sum.saturating_add(match s {
            Ready::Kernel(_) | Ready::Copy { .. } | Ready::Zero { .. } => 1,
            Ready::Kernels(launches) => launches.len(),
            Ready::Product(_) | Ready::Narrow(_) | Ready::Dnn(_) => 1,
            Ready::Host(_) | Ready::Talk(_) | Ready::Branch { .. } => return None,
            Ready::Loop { trip: ReadyTrip::Exact(n), body, after, .. } => {
                launches(body)?.saturating_mul(*n).saturating_add(after.len())
            }
            Ready::Loop { .. } => return None,
        });
    }
    Some(sum)
}

/// The launches of an op that has templates on devices of a compute capability.
pub(crate) fn claimed(capability: (i32, i32), op: &Op, args: &[Type]) -> Option<Routine> {
    let Op::Composite(c) = op else {
        let sorted = Radix::of(op, args).map(|r| r.routine());
        return sorted.or_else(|| Running::of(op, args).map(|r| r.routine()));
    };
    // Hopper's matrix instructions are no other's.
    if capability != (9, 0) {
        return None;
    }
    Some(Attention::of(c, args)?.routine())
}

/// Whether the device has something of its own for an op, better than the kernels that it would become.
pub(crate) fn own(capability: (i32, i32), op: &Op, args: &[Type]) -> bool {
    Rows::of(op, args).is_some() || Narrow::of(op, args).is_some() || claimed(capability, op, args).is_some()
}

/// What a kernel step becomes.
pub(crate) struct Grid {
    pub(crate) grid: grid::Kernel,
    pub(crate) text: Text,
    /// Operands, and results that must hold what they hold, with their bytes.
    pub(crate) over: Vec<(Place, Place, usize)>,
}

/// The grid of a kernel step and its text.
pub(crate) fn lowered(program: &Program, kernel: &Kernel, args: &[KernelArg]) -> Result<Grid> {
    if args.len() != kernel.buffers.len() {
        return Err(Error::Internal(format!(
            "kernel {} has {} buffers, the step gives {}",
            kernel.name,
            kernel.buffers.len(),
            args.len()
        )));
    }
    let given = grid::given(program, kernel, args, ALIGN);
    let stays = grid::stays(kernel, &given).filter(|s| s.over.iter().all(|o| whole(program, args, *o).is_some()));
    let over = stays.iter().flat_map(|s| &s.over).filter_map(|o| whole(program, args, *o)).collect();
    let kernel = stays.as_ref().map_or(kernel, |s| &s.kernel);
    let grid = grid::lower(kernel, &Limits::CUDA, &given).map_err(|e| Error::Backend(e.to_string()))?;
    let text = super::text(&grid);
    Ok(Grid { grid, text, over })
}

/// An operand and a result that are whole buffers of equal types, with their bytes.
fn whole(program: &Program, args: &[KernelArg], (from, to): (Buf, Buf)) -> Option<(Place, Place, usize)> {
    let of = |b: Buf| match args.get(b.0 as usize)? {
        KernelArg::Place(p) => match p.slot {
            Slot::Fixed(id) if *p == Place::of(id) => Some((p.clone(), &program.buffers[id.0 as usize].ty)),
            _ => None,
        },
        KernelArg::Scratch(_) => None,
    };
    let ((from, ty), (to, other)) = (of(from)?, of(to)?);
    (ty == other).then(|| (from, to, ty.bytes()))
}

/// Whether nothing writes a place while its program runs.
fn steady(program: &Program, p: &Place) -> bool {
    p.buffers().all(|b| match &program.buffers[b.0 as usize].class {
        Class::Constant(_) => true,
        Class::Input(i) => !program.donated.iter().any(|(from, _)| from == i),
        _ => false,
    })
}

/// Whether a place is known to hold zeros and nothing else: one step writes its buffer, and writes zeros.
fn zeros(program: &Program, p: &Place) -> bool {
    let Slot::Fixed(id) = p.slot else { return false };
    match &program.buffers[id.0 as usize].class {
        Class::Constant(l) => return l.bytes().iter().all(|b| *b == 0),
        Class::Activation => {}
        _ => return false,
    }
    let writes = |s: &Step| {
        let mut found = false;
        s.places(&mut |place, written| found |= written && place.buffers().any(|b| b == id));
        found
    };
    let mut writers = program.steps.iter().filter(|s| writes(s));
    match (writers.next(), writers.next()) {
        (Some(Step::Zero { to, bytes }), None) => {
            *to == Place::of(id) && *bytes == program.buffers[id.0 as usize].ty.bytes()
        }
        (Some(Step::Kernel { kernel, args, .. }), None) => {
            let own = |a: &KernelArg| matches!(a, KernelArg::Place(place) if place.buffers().any(|b| b == id));
            let all = args.iter().enumerate().filter(|(_, a)| own(a)).map(|(i, _)| i);
            all.into_iter().all(|i| stores_zeros(&kernel.body, Buf(i as u32), &mut Vec::new()))
        }
        _ => false,
    }
}

/// Whether everything that a kernel stores to a buffer is the constant 0.
fn stores_zeros(body: &[Stmt], buf: Buf, known: &mut Vec<Reg>) -> bool {
    body.iter().all(|s| match s {
        Stmt::Let { dst, op: loops::Op::Const(c) } if c.bits() == 0 => {
            known.push(*dst);
            true
        }
        Stmt::Let { .. } => true,
        Stmt::Store { buf: to, value, .. } => *to != buf || known.contains(value),
        Stmt::Loop(l) => stores_zeros(&l.body, buf, known),
    })
}

struct Loader<'a> {
    inner: &'a Arc<Inner>,
    program: &'a Program,
    texts: Vec<Text>,
    /// Bytes of scratch that the neediest step wants: steps follow each other.
    scratch: usize,
    /// Prints the code of the kernels.
    report: Option<Report>,
}

impl Loader<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<Vec<Ready>> {
        steps.iter().map(|s| self.step(s)).collect()
    }

    fn step(&mut self, step: &Step) -> Result<Ready> {
        Ok(match step {
            Step::Kernel { kernel, args, .. } => Ready::Kernel(self.kernel(kernel, args)?),
            Step::Matmul { shape, a, b, c, epilogue } => {
                let (Factor::Memory(a), Factor::Memory(b), Some(c), None) = (a, b, c, epilogue) else {
                    return Err(Error::Internal(
                        "a product with a prologue or epilogue, which cuda has none of".into(),
                    ));
                };
                Ready::Product(Box::new(self.product(shape, a, b, c)?))
            }
            Step::Library { op, args, outs } => {
                let types: Vec<Type> = args.iter().map(|(_, t)| t.clone()).collect();
                if let Some(talk) = self.talk(op, args, outs)? {
                    return Ok(Ready::Talk(Box::new(talk)));
                }
                if let Some(narrow) = Narrow::of(op, &types) {
                    return Ok(Ready::Narrow(Box::new(self.narrow(&narrow, args, &outs[0].0)?)));
                }
                if let Some(ready) = self.dnn(op, &types, args, outs) {
                    return Ok(Ready::Dnn(Box::new(ready)));
                }
                if let Some(routine) = claimed(self.inner.device.context.capability, op, &types) {
                    return Ok(self.routine(routine, args, outs));
                }
                match Rows::of(op, &types) {
                    Some(rows) => {
                        self.scratch = self.scratch.max(rows.scratch().next_multiple_of(ALIGN));
                        let functions = rows.texts().map(|text| self.function(text));
                        let places: Vec<Place> = args.iter().map(|(p, _)| p.clone()).collect();
                        Ready::Kernels(rows.launches(functions, &places, &outs[0].0))
                    }
                    None => Ready::Host(Box::new(Host::new(&self.inner.host, op, args, outs)?)),
                }
            }
            Step::Copy { from, to, bytes } => Ready::Copy { from: from.clone(), to: to.clone(), bytes: *bytes },
            Step::Zero { to, bytes } => Ready::Zero { to: to.clone(), bytes: *bytes },
            Step::Branch { index, branches } => Ready::Branch {
                index: index.clone(),
                branches: branches.iter().map(|b| self.steps(b)).collect::<Result<_>>()?,
            },
            Step::Loop(l) => {
                let LoopStep { level, trip, reverse, body, after } = &**l;
                let trip = match trip {
                    Trip::Exact(n) => ReadyTrip::Exact(*n),
                    Trip::Bounded { bound, count } => ReadyTrip::Bounded { bound: *bound, count: count.clone() },
                    Trip::While { test, flag } => ReadyTrip::While { test: self.steps(test)?, flag: flag.clone() },
                };
                let body = self.steps(body)?;
                Ready::Loop { level: *level, trip, reverse: *reverse, body, after: after.clone() }
            }
        })
    }

    /// A collective on the device, where it has a way to the others.
    fn talk(&mut self, op: &Op, args: &[(Place, Type)], outs: &[(Place, Type)]) -> Result<Option<Talk>> {
        let (Op::Collective(op), Some(others)) = (op, &self.inner.talk) else { return Ok(None) };
        let named = |p: ir::Problem| Error::Backend(format!("{}: {p}", ir::Rules::name(op)));
        others.mesh().set(&op.axes).map_err(named)?;
        let me = others.mesh().index(others.rank(), &op.axes);
        let Some(talk) = Talk::of(op, args.first().map(|(p, t)| (p, t)), &outs[0].0, me)? else { return Ok(None) };
        if talk.needs_others() {
            others.prepare(&op.axes)?;
        }
        self.scratch = self.scratch.max(talk.scratch());
        Ok(Some(talk))
    }

    fn routine(&mut self, routine: Routine, args: &[(Place, Type)], outs: &[(Place, Type)]) -> Ready {
        self.scratch = self.scratch.max(routine.scratch.next_multiple_of(ALIGN));
        let argument = |a: &Arg| match *a {
            Arg::Operand(i) => Argument::Place(args[i].0.clone()),
            Arg::Result(i) => Argument::Place(outs[i].0.clone()),
            Arg::Scratch(offset) => Argument::Scratch(offset),
        };
        let launch = |c: cuda::Call| Launch {
            blocks: c.blocks as u32,
            threads: c.threads,
            shared: c.shared,
            args: c.args.iter().map(argument).collect(),
            sizes: c.sizes,
            over: Vec::new(),
            name: c.entry.clone(),
            function: self.function(Text { entry: c.entry, text: c.text }),
        };
        Ready::Kernels(routine.calls.into_iter().map(launch).collect())
    }

    /// An attention by cuDNN, where that is quicker than the template and has a plan.
    fn dnn(&mut self, op: &Op, types: &[Type], args: &[(Place, Type)], outs: &[(Place, Type)]) -> Option<ReadyDnn> {
        let Op::Composite(c) = op else { return None };
        let asked = Attention::of(c, types).filter(|a| dnn::suits(a))?;
        let tensors: Vec<Place> = match (asked.backward, args, outs) {
            (false, [q, k, v, ..], [out, lse]) => [q, k, v, out, lse].map(|(p, _)| p.clone()).to_vec(),
            (true, [q, k, v, out, lse, dout, dlse], [dq, dk, dv]) if zeros(self.program, &dlse.0) => {
                [q, k, v, out, dout, lse, dq, dk, dv].map(|(p, _)| p.clone()).to_vec()
            }
            _ => return None,
        };
        if tensors.iter().any(|p| aligned(self.program, p, ALIGN) < turn::LEAST) {
            return None;
        }
        let plan = self.inner.dnn()?.plan(&asked)?;
        self.scratch = self.scratch.max(plan.workspace.next_multiple_of(ALIGN));
        Some(ReadyDnn { plan, tensors })
    }

    fn narrow(&mut self, narrow: &Narrow, args: &[(Place, Type)], out: &Place) -> Result<ReadyNarrow> {
        let none = || Error::Internal(format!("cuBLASLt has nothing for {narrow:?}, which was claimed"));
        let blas = self.inner.blas.as_ref().ok_or_else(none)?;
        let places = [&args[0].0, &args[1].0, out];
        // What doesn't lie as cuBLASLt wants it goes through memory that does.
        let (mut copies, mut scratch) = ([None; 3], 0);
        for ((copy, place), bytes) in copies.iter_mut().zip(places).zip(narrow.bytes()) {
            if aligned(self.program, place, ALIGN) < turn::LEAST {
                *copy = Some(scratch);
                scratch += bytes.next_multiple_of(ALIGN);
            }
        }
        let mut turned = [None, None];
        for (side, turned) in turned.iter_mut().enumerate().filter(|(side, _)| narrow.across[*side]) {
            let (rows, cols) = narrow.sizes(side);
            let c = turn(rows, cols, Arg::Operand(side), Arg::Scratch(scratch));
            let function = self.function(Text { entry: c.entry, text: c.text });
            *turned = Some((scratch, Turn { function, blocks: c.blocks as u32, threads: c.threads, sizes: c.sizes }));
            scratch += narrow.bytes()[side].next_multiple_of(ALIGN);
        }
        self.scratch = self.scratch.max(scratch);
        let plan = blas.plan(&narrow.call())?.ok_or_else(none)?;
        let [a, b, out] = places.map(Place::clone);
        let scales = [args[2].0.clone(), args[3].0.clone()];
        Ok(ReadyNarrow { plan, a, b, scales, out, bytes: narrow.bytes(), copies, turned })
    }

    fn function(&mut self, text: Text) -> usize {
        let entry = text.entry.clone();
        self.named(&entry, text)
    }

    /// The function of a text, printed with the name of its kernel.
    fn named(&mut self, name: &str, text: Text) -> usize {
        self.report.iter_mut().for_each(|r| r.kernel_code(name, &text.text));
        match self.texts.iter().position(|t| *t == text) {
            Some(i) => i,
            None => {
                self.texts.push(text);
                self.texts.len() - 1
            }
        }
    }

    fn kernel(&mut self, kernel: &Kernel, args: &[KernelArg]) -> Result<Launch> {
        let Grid { grid, text, over } = lowered(self.program, kernel, args)?;
        let blocks = grid.blocks(&[]);
        let mut spills = grid.spill_bytes(blocks).into_iter();
        let mut scratch = 0;
        let mut arguments = Vec::with_capacity(grid.memory.len());
        for (i, m) in grid.memory.iter().enumerate() {
            match m.space {
                Space::Shared(_) => {}
                Space::Spill(_) => {
                    arguments.push(Argument::Scratch(scratch));
                    scratch += spills.next().unwrap_or(0).next_multiple_of(ALIGN);
                }
                Space::Global(_) => match args.get(i) {
                    Some(KernelArg::Place(p)) => arguments.push(Argument::Place(p.clone())),
                    _ => return Err(Error::Internal(format!("kernel {}: no memory for argument {i}", kernel.name))),
                },
            }
        }
        self.scratch = self.scratch.max(scratch);
        let function = self.named(&kernel.name, text);
        let name = kernel.name.clone();
        let (threads, sizes) = (grid.threads, Vec::new());
        Ok(Launch { function, blocks, threads, shared: 0, args: arguments, sizes, over, name })
    }

    fn product(&mut self, s: &Matmul, a: &Place, b: &Place, c: &Place) -> Result<Product> {
        let how = self.how(s, a, b, c)?;
        Ok(Product { shape: s.clone(), a: a.clone(), b: b.clone(), c: c.clone(), how })
    }

    fn how(&mut self, s: &Matmul, a: &Place, b: &Place, c: &Place) -> Result<How> {
        let results = s.batch * s.m * s.n;
        if results == 0 {
            return Ok(How::Nothing);
        }
        let dense = (s.c[2] == 1 || s.n == 1)
            && (s.c[1] == s.n as isize || s.m == 1)
            && (s.c[0] == (s.m * s.n) as isize || s.batch == 1);
        if s.k == 0 && dense {
            return Ok(How::Zeros(results * s.out.size()));
        }
        let align = [a, b].map(|p| aligned(self.program, p, ALIGN));
        if let Some(few) = Few::of(s, align) {
            let (entry, text) = few.text();
            let function = self.function(Text { entry, text });
            let steady = steady(self.program, if few.swapped() { a } else { b });
            return Ok(How::Few { function, few, steady });
        }
        let own = |loader: &mut Self| How::Own { function: loader.function(strided::product(s.dtype, s.out)) };
        let Some(blas) = self.inner.blas.as_ref().filter(|_| s.k > 0) else { return Ok(own(self)) };
        let mapped = gemm::map(s);
        let sides = [
            (a, s.dtype, s.a, [s.batch, s.m, s.k]),
            (b, s.dtype, s.b, [s.batch, s.k, s.n]),
            (c, s.out, s.c, [s.batch, s.m, s.n]),
        ];
        let mut copies = [None; 3];
        let mut aligns = [ALIGN as u32; 3];
        let mut scratch = 0;
        for (i, (place, dtype, own, mut sizes)) in sides.into_iter().enumerate() {
            match mapped.dense[i] {
                None => aligns[i] = aligned(self.program, place, ALIGN) as u32,
                Some(dense) => {
                    if dense[0] == 0 {
                        sizes[0] = 1;
                    }
                    let function = self.function(strided::strided_copy(dtype.size()));
                    copies[i] = Some(Packed { offset: scratch, function, sizes, own, dense });
                    let bytes = sizes.iter().product::<usize>() * dtype.size();
                    scratch += bytes.next_multiple_of(ALIGN);
                }
            }
        }
        let [in_a, in_b, in_c] = aligns;
        let aligned = if mapped.gemm.swapped { [in_b, in_a, in_c] } else { [in_a, in_b, in_c] };
        let call = Call { gemm: mapped.gemm, dtype: s.dtype, second: s.dtype, out: s.out, aligned };
        match blas.plan(&call)? {
            Some(plan) => {
                self.scratch = self.scratch.max(scratch);
                Ok(How::Library { plan: Box::new(plan), mapped, copies })
            }
            None => Ok(own(self)),
        }
    }
}
