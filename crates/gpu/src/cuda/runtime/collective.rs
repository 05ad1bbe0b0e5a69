//! Collectives on device memory: [`compiler::DeviceCommunicator`] exchanges data with other ranks, in queue order; slices and
//! concatenations along inner axes are device copies. No data passes through the host.

use super::context::Context;
use super::device;
use super::execute::{LoopPosition, ProgramRun};
use compiler::program::BufferSlice;
use compiler::{Error, Result};
use cudarc::driver::sys as cu;
use ir::ops::{Collective, CollectiveKind as Kind};
use ir::{DType, Rules, Type};

/// A tensor as `outer` rows of `parts` equal pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AxisPieces {
    outer: usize,
    bytes: usize,
    parts: usize,
}

impl AxisPieces {
    /// The pieces of a tensor along `dim`.
    fn of(ty: &Type, dim: usize, parts: usize) -> AxisPieces {
        let outer = ty.shape[..dim].iter().product();
        let inner: usize = ty.shape[dim + 1..].iter().product();
        AxisPieces { outer, bytes: ty.shape[dim] / parts * inner * ty.dtype.size(), parts }
    }

    /// Whether each part is contiguous.
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

    /// Copies all parts of a whole tensor to consecutive dense blocks, or back.
    fn all(&self, to: &Stream<'_>, whole: u64, parts: u64, back: bool) -> Result<()> {
        let part = |i: usize| parts + (i * self.outer * self.bytes) as u64;
        (0..self.parts).try_for_each(|i| self.copy(to, whole, i, part(i), back))
    }
}

/// The stream that copies are enqueued on.
struct Stream<'a> {
    context: &'a Context,
    raw: cu::CUstream,
}

/// The maximum row pitch that the driver supports.
const PITCH: usize = i32::MAX as usize;

impl Stream<'_> {
    /// Copies rows of `width` bytes between two addresses with row pitches.
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
        // SAFETY: both device addresses are valid for that many rows.
        let code = unsafe { cu::cuMemcpy2DAsync_v2(&copy, self.raw) };
        self.context.check(code, || format!("cuMemcpy2DAsync of {rows} rows of {width} bytes"))
    }

    fn number(&self, to: u64, n: i32) -> Result<()> {
        // SAFETY: the device address is valid for one number.
        let code = unsafe { cu::cuMemsetD32Async(to, n as u32, 1, self.raw) };
        self.context.check(code, || "cuMemsetD32Async".into())
    }
}

/// A collective step of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CollectiveStep {
    from: Option<BufferSlice>,
    to: BufferSlice,
    what: DeviceCollective,
}

/// The implementation of a collective on the device.
#[derive(Clone, Debug, PartialEq)]
enum DeviceCollective {
    /// The rank's index.
    AxisIndex(i32),
    /// The rank's shard of a replicated value.
    ShardSlice(AxisPieces, usize),
    /// A collective along the first axis; operand and result are rearranged before and after it if necessary.
    Nccl { op: Collective, ty: Type, before: Option<AxisPieces>, behind: Option<AxisPieces>, zeroed: Option<usize> },
}

/// The dtype that NCCL uses for a dtype; bools are bytes that are 0 or 1. None if NCCL does not support it.
fn computed(kind: &Kind, dtype: DType) -> Option<DType> {
    match dtype {
        DType::Bool if matches!(kind, Kind::Max | Kind::Min) => Some(DType::U8),
        DType::Bool | DType::I16 | DType::U16 | DType::F8E4M3 | DType::F8E5M2 => None,
        other => Some(other),
    }
}

impl CollectiveStep {
    /// The implementation of a program's collective for a rank; none if the device's library lacks the arithmetic, so that the
    /// host runs it.
    pub(crate) fn of(
        op: &Collective,
        arg: Option<(&BufferSlice, &Type)>,
        to: &BufferSlice,
        me: usize,
    ) -> Result<Option<CollectiveStep>> {
        let wrong = |e: ir::InferError| Error::Internal(format!("{}: {e}", op.name()));
        let (n, to) = (op.ranks(), to.clone());
        let Some((from, ty)) = arg else {
            return Ok(Some(CollectiveStep { from: None, to, what: DeviceCollective::AxisIndex(me as i32) }));
        };
        let out = op.infer(std::slice::from_ref(ty)).map_err(wrong)?.remove(0);
        // Data movement without arithmetic can use bytes.
        let bytes = Type::new(DType::U8, &[ty.bytes()]);
        let with = |kind: Kind| Collective { kind, axes: op.axes.clone() };
        let inside = |p: AxisPieces| (!p.dense()).then_some(p);
        let others = |op: Collective, ty: Type, before: Option<AxisPieces>, behind: Option<AxisPieces>| {
            DeviceCollective::Nccl { op, ty, before, behind, zeroed: None }
        };
        let what = match &op.kind {
            Kind::AxisIndex => DeviceCollective::AxisIndex(me as i32),
            Kind::PVary => DeviceCollective::ShardSlice(AxisPieces { outer: 1, bytes: ty.bytes(), parts: 1 }, 0),
            Kind::ShardSlice { dim } => DeviceCollective::ShardSlice(AxisPieces::of(ty, *dim, n), me),
            Kind::Sum | Kind::Max | Kind::Min => match computed(&op.kind, ty.dtype) {
                Some(dtype) => others(op.clone(), Type::new(dtype, &[ty.numel()]), None, None),
                None => return Ok(None),
            },
            Kind::ReduceScatter { dim } => match computed(&op.kind, ty.dtype) {
                Some(dtype) => {
                    let before = inside(AxisPieces::of(ty, *dim, n));
                    others(with(Kind::ReduceScatter { dim: 0 }), Type::new(dtype, &[ty.numel()]), before, None)
                }
                None => return Ok(None),
            },
            Kind::AllGather { dim, same, turn } => {
                let behind = inside(AxisPieces::of(&out, *dim, n));
                others(with(Kind::AllGather { dim: 0, same: *same, turn: *turn }), bytes, None, behind)
            }
            Kind::AllToAll { split, join } => {
                let (before, behind) = (inside(AxisPieces::of(ty, *split, n)), inside(AxisPieces::of(&out, *join, n)));
                others(with(Kind::AllToAll { split: 0, join: 0 }), bytes, before, behind)
            }
            Kind::Permute { pairs } => {
                let zeroed = (!pairs.iter().any(|(_, to)| *to == me)).then(|| ty.bytes());
                DeviceCollective::Nccl { op: op.clone(), ty: bytes, before: None, behind: None, zeroed }
            }
        };
        Ok(Some(CollectiveStep { from: Some(from.clone()), to, what }))
    }

    /// Whether other ranks take part.
    pub(crate) fn communicates(&self) -> bool {
        matches!(self.what, DeviceCollective::Nccl { .. })
    }

    /// The bytes of scratch for a rearranged operand and result.
    pub(crate) fn scratch(&self) -> usize {
        match &self.what {
            DeviceCollective::Nccl { before, behind, .. } => before.iter().chain(behind).map(|p| scratch_for(p)).sum(),
            _ => 0,
        }
    }

    /// Enqueues the collective on the stream of a run.
    pub(crate) fn run(&self, run: &ProgramRun<'_>, at: &LoopPosition) -> Result<()> {
        let inner = &run.loaded.inner;
        let stream = Stream { context: &inner.device.context, raw: run.stream };
        let to = run.address(&self.to, at);
        let from = self.from.as_ref().map_or(0, |p| run.address(p, at));
        match &self.what {
            DeviceCollective::AxisIndex(n) => stream.number(to, *n),
            DeviceCollective::ShardSlice(pieces, me) => pieces.copy(&stream, from, *me, to, false),
            DeviceCollective::Nccl { op, ty, before, behind, zeroed } => {
                let Some(talk) = &inner.communicator else {
                    return Err(Error::Internal("a collective without a communicator".into()));
                };
                let mut scratch = run.scratch;
                let mut take = |p: &AxisPieces| {
                    let own = scratch;
                    scratch += scratch_for(p) as u64;
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
                    unsafe { talk.enqueue(op, ty, operand, result, stream.raw.cast())? };
                }
                match behind {
                    Some(pieces) => pieces.all(&stream, to, result, true),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The scratch bytes for a rearranged tensor.
fn scratch_for(p: &AxisPieces) -> usize {
    p.total().next_multiple_of(super::size_classes::ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::program::BufferId;

    /// Rearranges pieces on the host, like the copies of a stream.
    fn moved(p: &AxisPieces, whole: &[u8]) -> Vec<u8> {
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
        let cut = AxisPieces::of(&ty, 1, 2);
        assert_eq!(cut, AxisPieces { outer: 2, bytes: 6, parts: 2 });
        assert_eq!(moved(&cut, &whole)[..12], [0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17]);
        assert!(AxisPieces::of(&ty, 0, 2).dense() && !cut.dense());
        assert!(AxisPieces::of(&Type::new(DType::F32, &[1, 4]), 1, 2).dense(), "nothing lies before the axis");
    }

    #[test]
    fn what_travels_is_bytes_and_what_is_computed_keeps_its_type() {
        let axes = [ir::MeshAxis::new("x", 2)];
        let place = BufferSlice::of(BufferId(0));
        let of = |kind: Kind, dtype: DType, shape: &[usize]| {
            let (op, ty) = (Collective::new(kind, &axes), Type::new(dtype, shape));
            CollectiveStep::of(&op, Some((&place, &ty)), &place, 1).unwrap().map(|t| t.what)
        };
        let inside = |kind: Kind, dtype: DType, shape: &[usize]| match of(kind, dtype, shape) {
            Some(DeviceCollective::Nccl { op, ty, before, behind, zeroed }) => {
                (op.kind, ty, before.is_some(), behind.is_some(), zeroed)
            }
            other => panic!("{other:?}"),
        };
        let flat = |dtype: DType, n: usize| Type::new(dtype, &[n]);
        assert_eq!(inside(Kind::Sum, DType::F32, &[2, 3]), (Kind::Sum, flat(DType::F32, 6), false, false, None));
        assert_eq!(inside(Kind::Max, DType::Bool, &[5]), (Kind::Max, flat(DType::U8, 5), false, false, None));
        assert_eq!(of(Kind::Sum, DType::I16, &[5]), None, "the host sums what NCCL can't");
        assert_eq!(of(Kind::ReduceScatter { dim: 0 }, DType::F8E4M3, &[4]), None);
        let scatter = inside(Kind::ReduceScatter { dim: 1 }, DType::BF16, &[3, 4]);
        assert_eq!(scatter, (Kind::ReduceScatter { dim: 0 }, flat(DType::BF16, 12), true, false, None));
        let gather = inside(Kind::AllGather { dim: 1, same: true, turn: 3 }, DType::F8E5M2, &[3, 4]);
        assert_eq!(gather, (Kind::AllGather { dim: 0, same: true, turn: 3 }, flat(DType::U8, 12), false, true, None));
        let all = inside(Kind::AllToAll { split: 1, join: 2 }, DType::I16, &[3, 4, 5]);
        assert_eq!(all, (Kind::AllToAll { split: 0, join: 0 }, flat(DType::U8, 120), true, true, None));
        let sent = inside(Kind::Permute { pairs: vec![(1, 0)] }, DType::F64, &[3]);
        assert_eq!(sent.4, Some(24), "nothing comes to rank 1");
        assert_eq!(
            of(Kind::ShardSlice { dim: 1 }, DType::F32, &[2, 4]),
            Some(DeviceCollective::ShardSlice(AxisPieces { outer: 2, bytes: 8, parts: 2 }, 1))
        );
        let index = CollectiveStep::of(&Collective::new(Kind::AxisIndex, &axes), None, &place, 1).unwrap().unwrap();
        assert!(!index.communicates() && index.scratch() == 0);
    }
}
