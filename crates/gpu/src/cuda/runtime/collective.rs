//! Collectives on the device's own memory: what other ranks are needed for is [`compiler::DeviceCommunicator`]'s, in the order of the queue; cutting
//! and joining along axes inside of tensors is copies there. Nothing goes through the host.

use super::context::Context;
use super::device;
use super::execute::{Position, Run};
use compiler::program::Place;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Rules, Type};

/// A tensor as `outer` rows of `parts` equal pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pieces {
    outer: usize,
    bytes: usize,
    parts: usize,
}

impl Pieces {
    /// Of a tensor that is cut along `dim`.
    fn of(ty: &Type, dim: usize, parts: usize) -> Pieces {
        let outer = ty.shape[..dim].iter().product();
        let inner: usize = ty.shape[dim + 1..].iter().product();
        Pieces { outer, bytes: ty.shape[dim] / parts * inner * ty.dtype.size(), parts }
    }

    /// Whether the parts lie one behind another.
    fn dense(&self) -> bool {
        self.outer <= 1 || self.parts == 1
    }

    fn total(&self) -> usize {
        self.outer * self.bytes * self.parts
    }

    /// Copies part `i` of a whole tensor to dense memory, or back.
    fn copy(&self, to: &Stream<'_>, whole: u64, i: usize, part: u64, back: bool) -> Result<()> {
        let (inside, row) = ((whole + (i * self.bytes) as u64, self.parts * self.bytes), (part, self.bytes));
        let (from, into) = if back { (row, inside) } else { (inside, row) };
        to.rows(from, into, self.bytes, self.outer)
    }

    /// Copies all parts of a whole tensor to lie one behind another, or back.
    fn all(&self, to: &Stream<'_>, whole: u64, parts: u64, back: bool) -> Result<()> {
        let part = |i: usize| parts + (i * self.outer * self.bytes) as u64;
        (0..self.parts).try_for_each(|i| self.copy(to, whole, i, part(i), back))
    }
}

/// A queue that copies are given to.
struct Stream<'a> {
    context: &'a Context,
    raw: cu::CUstream,
}

/// The longest distance of two rows that the driver takes.
const PITCH: usize = i32::MAX as usize;

impl Stream<'_> {
    /// Copies rows of so many bytes from an address and distance to another.
    fn rows(&self, from: (u64, usize), to: (u64, usize), width: usize, rows: usize) -> Result<()> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        if rows == 1 || from.1.max(to.1) > PITCH {
            let row = |i: usize| {
                let (from, to) = (from.0 + (i * from.1) as u64, to.0 + (i * to.1) as u64);
                device::copy(self.context, self.raw, from, to, width)
            };
            return (0..rows).try_for_each(row);
        }
        let copy = cu::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: cu::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: from.0,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.1,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: cu::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.0,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.1,
            WidthInBytes: width,
            Height: rows,
        };
        // SAFETY: the caller has memory for so many rows on both sides.
        let code = unsafe { cu::cuMemcpy2DAsync_v2(&copy, self.raw) };
        self.context.check(code, || format!("cuMemcpy2DAsync of {rows} rows of {width} bytes"))
    }

    fn number(&self, to: u64, n: i32) -> Result<()> {
        // SAFETY: the caller has memory for one number there.
        let code = unsafe { cu::cuMemsetD32Async(to, n as u32, 1, self.raw) };
        self.context.check(code, || "cuMemsetD32Async".into())
    }
}

/// A collective step of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Talk {
    from: Option<Place>,
    to: Place,
    what: What,
}

/// What a collective is on the device.
#[derive(Clone, Debug, PartialEq)]
enum What {
    /// The rank's number.
    Number(i32),
    /// The rank's part of what all have.
    Part(Pieces, usize),
    /// A collective along the first axis, with operand and result of it put in order before and behind.
    Others { op: Collective, ty: Type, before: Option<Pieces>, behind: Option<Pieces>, zeroed: Option<usize> },
}

/// What NCCL computes with a dtype in; bools are bytes that are 0 or 1. None where it can't.
fn computed(kind: &Kind, dtype: DType) -> Option<DType> {
    match dtype {
        DType::Bool if matches!(kind, Kind::Max | Kind::Min) => Some(DType::U8),
        DType::Bool | DType::I16 | DType::U16 | DType::F8E4M3 | DType::F8E5M2 => None,
        other => Some(other),
    }
}

impl Talk {
    /// What a collective of a program is for a rank; none where the device's library lacks the arithmetic, so that the host takes it.
    pub(crate) fn of(op: &Collective, arg: Option<(&Place, &Type)>, to: &Place, me: usize) -> Result<Option<Talk>> {
        let wrong = |e: ir::Problem| Error::Internal(format!("{}: {e}", op.name()));
        let (n, to) = (op.ranks(), to.clone());
        let Some((from, ty)) = arg else {
            return Ok(Some(Talk { from: None, to, what: What::Number(me as i32) }));
        };
        let out = op.infer(std::slice::from_ref(ty)).map_err(wrong)?.remove(0);
        // Bytes that only travel need no arithmetic.
        let bytes = Type::new(DType::U8, &[ty.bytes()]);
        let with = |kind: Kind| Collective { kind, axes: op.axes.clone() };
        let inside = |p: Pieces| (!p.dense()).then_some(p);
        let others = |op: Collective, ty: Type, before: Option<Pieces>, behind: Option<Pieces>| What::Others {
            op,
            ty,
            before,
            behind,
            zeroed: None,
        };
        let what = match &op.kind {
            Kind::Index => What::Number(me as i32),
            Kind::Vary => What::Part(Pieces { outer: 1, bytes: ty.bytes(), parts: 1 }, 0),
            Kind::Part { dim } => What::Part(Pieces::of(ty, *dim, n), me),
            Kind::Sum | Kind::Max | Kind::Min => match computed(&op.kind, ty.dtype) {
                Some(dtype) => others(op.clone(), Type::new(dtype, &[ty.numel()]), None, None),
                None => return Ok(None),
            },
            Kind::SumScatter { dim } => match computed(&op.kind, ty.dtype) {
                Some(dtype) => {
                    let before = inside(Pieces::of(ty, *dim, n));
                    others(with(Kind::SumScatter { dim: 0 }), Type::new(dtype, &[ty.numel()]), before, None)
                }
                None => return Ok(None),
            },
            Kind::Gather { dim, same, turn } => {
                let behind = inside(Pieces::of(&out, *dim, n));
                others(with(Kind::Gather { dim: 0, same: *same, turn: *turn }), bytes, None, behind)
            }
            Kind::AllToAll { split, join } => {
                let (before, behind) = (inside(Pieces::of(ty, *split, n)), inside(Pieces::of(&out, *join, n)));
                others(with(Kind::AllToAll { split: 0, join: 0 }), bytes, before, behind)
            }
            Kind::Permute { pairs } => {
                let zeroed = (!pairs.iter().any(|(_, to)| *to == me)).then(|| ty.bytes());
                What::Others { op: op.clone(), ty: bytes, before: None, behind: None, zeroed }
            }
        };
        Ok(Some(Talk { from: Some(from.clone()), to, what }))
    }

    /// Whether other ranks take part.
    pub(crate) fn needs_others(&self) -> bool {
        matches!(self.what, What::Others { .. })
    }

    /// Bytes of scratch: operand and result in another order.
    pub(crate) fn scratch(&self) -> usize {
        match &self.what {
            What::Others { before, behind, .. } => before.iter().chain(behind).map(|p| room(p)).sum(),
            _ => 0,
        }
    }

    /// Gives it to the stream of a run.
    pub(crate) fn run(&self, run: &Run<'_>, at: &Position) -> Result<()> {
        let inner = &run.loaded.inner;
        let stream = Stream { context: &inner.device.context, raw: run.stream };
        let to = run.address(&self.to, at);
        let from = self.from.as_ref().map_or(0, |p| run.address(p, at));
        match &self.what {
            What::Number(n) => stream.number(to, *n),
            What::Part(pieces, me) => pieces.copy(&stream, from, *me, to, false),
            What::Others { op, ty, before, behind, zeroed } => {
                let Some(talk) = &inner.talk else {
                    return Err(Error::Internal("a collective without a communicator".into()));
                };
                let mut scratch = run.scratch;
                let mut take = |p: &Pieces| {
                    let own = scratch;
                    scratch += room(p) as u64;
                    own
                };
                let operand = match before {
                    Some(pieces) => {
                        let own = take(pieces);
                        pieces.all(&stream, from, own, false)?;
                        own
                    }
                    None => from,
                };
                let result = behind.as_ref().map_or(to, &mut take);
                if let Some(bytes) = zeroed {
                    device::zero(stream.context, stream.raw, to, *bytes)?;
                }
                if ty.bytes() > 0 {
                    // SAFETY: the planner keeps operand and result for the step, and what comes later comes later in the stream.
                    unsafe { talk.put(op, ty, operand, result, stream.raw.cast())? };
                }
                match behind {
                    Some(pieces) => pieces.all(&stream, to, result, true),
                    None => Ok(()),
                }
            }
        }
    }
}

/// Scratch for a tensor in another order.
fn room(p: &Pieces) -> usize {
    p.total().next_multiple_of(super::classes::ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::program::BufferId;

    /// Pieces as bytes of the host: what the copies of a stream do.
    fn moved(p: &Pieces, whole: &[u8]) -> Vec<u8> {
        let mut dense = vec![0; whole.len()];
        for i in 0..p.parts {
            for o in 0..p.outer {
                let (at, own) = (o * p.parts * p.bytes + i * p.bytes, (i * p.outer + o) * p.bytes);
                dense[own..own + p.bytes].copy_from_slice(&whole[at..at + p.bytes]);
            }
        }
        dense
    }

    #[test]
    fn parts_of_a_tensor_are_put_one_behind_another() {
        let ty = Type::new(DType::U8, &[2, 4, 3]);
        let whole: Vec<u8> = (0..24).collect();
        let cut = Pieces::of(&ty, 1, 2);
        assert_eq!(cut, Pieces { outer: 2, bytes: 6, parts: 2 });
        assert_eq!(moved(&cut, &whole)[..12], [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17]);
        assert!(Pieces::of(&ty, 0, 2).dense() && !cut.dense());
        assert!(Pieces::of(&Type::new(DType::F32, &[1, 4]), 1, 2).dense(), "nothing lies before the axis");
    }

    #[test]
    fn what_travels_is_bytes_and_what_is_computed_keeps_its_type() {
        let axes = [ir::MeshAxis::new("x", 2)];
        let place = Place::of(BufferId(0));
        let of = |kind: Kind, dtype: DType, shape: &[usize]| {
            let (op, ty) = (Collective::new(kind, &axes), Type::new(dtype, shape));
            Talk::of(&op, Some((&place, &ty)), &place, 1).unwrap().map(|t| t.what)
        };
        let inside = |kind: Kind, dtype: DType, shape: &[usize]| match of(kind, dtype, shape) {
            Some(What::Others { op, ty, before, behind, zeroed }) => {
                (op.kind, ty, before.is_some(), behind.is_some(), zeroed)
            }
            other => panic!("{other:?}"),
        };
        let flat = |dtype: DType, n: usize| Type::new(dtype, &[n]);
        assert_eq!(inside(Kind::Sum, DType::F32, &[2, 3]), (Kind::Sum, flat(DType::F32, 6), false, false, None));
        assert_eq!(inside(Kind::Max, DType::Bool, &[5]), (Kind::Max, flat(DType::U8, 5), false, false, None));
        assert_eq!(of(Kind::Sum, DType::I16, &[5]), None, "the host sums what NCCL can't");
        assert_eq!(of(Kind::SumScatter { dim: 0 }, DType::F8E4M3, &[4]), None);
        let scatter = inside(Kind::SumScatter { dim: 1 }, DType::BF16, &[3, 4]);
        assert_eq!(scatter, (Kind::SumScatter { dim: 0 }, flat(DType::BF16, 12), true, false, None));
        let gather = inside(Kind::Gather { dim: 1, same: true, turn: 3 }, DType::F8E5M2, &[3, 4]);
        assert_eq!(gather, (Kind::Gather { dim: 0, same: true, turn: 3 }, flat(DType::U8, 12), false, true, None));
        let all = inside(Kind::AllToAll { split: 1, join: 2 }, DType::I16, &[3, 4, 5]);
        assert_eq!(all, (Kind::AllToAll { split: 0, join: 0 }, flat(DType::U8, 120), true, true, None));
        let sent = inside(Kind::Permute { pairs: vec![(1, 0)] }, DType::F64, &[3]);
        assert_eq!(sent.4, Some(24), "nothing comes to rank 1");
        assert_eq!(
            of(Kind::Part { dim: 1 }, DType::F32, &[2, 4]),
            Some(What::Part(Pieces { outer: 2, bytes: 8, parts: 2 }, 1))
        );
        let index = Talk::of(&Collective::new(Kind::Index, &axes), None, &place, 1).unwrap().unwrap();
        assert!(!index.needs_others() && index.scratch() == 0);
    }
}
