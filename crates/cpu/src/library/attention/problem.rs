//! Describes an attention: its sizes, its options, and the positions of its optional operands.

use ir::attr::Attr;
use ir::ops::Composite;
use ir::{DType, Type};

/// An operand that several batches may share.
#[derive(Clone, Copy, Debug)]
pub(super) struct BroadcastOperand {
    /// Its index among the operands.
    pub(super) arg: usize,
    pub(super) dtype: DType,
    /// The number of batches that share one entry.
    every: usize,
}

impl BroadcastOperand {
    /// Returns the entry of a batch.
    pub(super) fn entry(&self, batch: usize) -> usize {
        batch / self.every
    }
}

/// A mask operand: the strides of its axes, 0 for broadcast axes.
#[derive(Clone, Debug)]
pub(super) struct Mask {
    pub(super) arg: usize,
    pub(super) dtype: DType,
    /// The (product of later axes, size, stride) of each batch axis.
    batch: Vec<(usize, usize, usize)>,
    pub(super) head: usize,
    pub(super) query: usize,
    pub(super) key: usize,
}

impl Mask {
    /// Returns the offset of a batch.
    pub(super) fn batch_offset(&self, batch: usize) -> usize {
        self.batch.iter().map(|(below, size, stride)| batch / below % size * stride).sum()
    }
}

/// The description of one attention.
#[derive(Clone, Debug)]
pub(super) struct AttentionProblem {
    pub(super) dtype: DType,
    pub(super) batch: usize,
    pub(super) kv_heads: usize,
    /// The number of query heads per key head.
    pub(super) group: usize,
    pub(super) tq: usize,
    pub(super) tk: usize,
    pub(super) d: usize,
    pub(super) dv: usize,
    pub(super) scale: f32,
    pub(super) causal: bool,
    pub(super) window: Option<i64>,
    pub(super) softcap: Option<f32>,
    pub(super) q_offset: Option<BroadcastOperand>,
    pub(super) lengths: Option<BroadcastOperand>,
    pub(super) segments: Option<(BroadcastOperand, BroadcastOperand)>,
    pub(super) slopes: Option<BroadcastOperand>,
    pub(super) mask: Option<Mask>,
    /// The number of operands before the forward results that backward takes.
    pub(super) operands: usize,
}

/// Returns whether this backend runs the composite on these operands. With operands that are added to the scores (slopes, an
/// additive mask), backward uses the composite's inlined form, because their cotangents are sums over all scores.
pub(in crate::library) fn supports(c: &Composite, args: &[Type], backward: bool) -> bool {
    let added = c.flag("slopes") || matches!(c.param("mask"), Some(Attr::Word(w)) if w == "add");
    let narrow = |t: &Type| matches!(t.dtype, DType::F32 | DType::BF16 | DType::F16);
    args.len() >= 3 && args[..3].iter().all(narrow) && !(backward && added) && AttentionProblem::new(c, args).is_some()
}

impl AttentionProblem {
    pub(super) fn new(c: &Composite, args: &[Type]) -> Option<AttentionProblem> {
        let (q, k, v) = (args.first()?, args.get(1)?, args.get(2)?);
        let n = q.rank().checked_sub(3)?;
        let lead = &q.shape[..n];
        let mut at = 3;
        let mut shared = |flag: bool, own: usize| -> Option<Option<BroadcastOperand>> {
            if !flag {
                return Some(None);
            }
            let t = args.get(at)?;
            at += 1;
            let every = lead[t.rank().checked_sub(own)?..].iter().product();
            Some(Some(BroadcastOperand { arg: at - 1, dtype: t.dtype, every }))
        };
        let q_offset = shared(c.flag("q_offset"), 0)?;
        let lengths = shared(c.flag("lengths"), 0)?;
        let segments = shared(c.flag("segments"), 1)?.zip(shared(c.flag("segments"), 1)?);
        let slopes = shared(c.flag("slopes"), 1)?;
        let mask = match c.param("mask") {
            Some(_) => {
                let t = args.get(at)?;
                at += 1;
                Some(mask(at - 1, t, lead)?)
            }
            None => None,
        };
        let floats = |t: &BroadcastOperand| matches!(t.dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
        if slopes.is_some_and(|s| !floats(&s)) {
            return None;
        }
        let (heads, kv_heads) = (q.shape[n], k.shape[n]);
        let problem = AttentionProblem {
            dtype: q.dtype,
            batch: lead.iter().product(),
            kv_heads,
            group: heads.checked_div(kv_heads)?,
            tq: q.shape[n + 1],
            tk: k.shape[n + 1],
            d: q.shape[n + 2],
            dv: v.shape[n + 2],
            scale: c.float("scale")? as f32,
            causal: c.flag("causal"),
            window: c.int("window").map(|w| w.min(i32::MAX as i64)),
            softcap: c.float("softcap").map(|x| x as f32),
            q_offset,
            lengths,
            segments,
            slopes,
            mask,
            operands: at,
        };
        // Positions are compared as f32, which represents these integers exactly.
        (problem.tk < 1 << 23 && problem.tq < 1 << 23).then_some(problem)
    }

    /// The number of query rows of a key head.
    pub(super) fn rows(&self) -> usize {
        self.group * self.tq
    }

    /// The product of batches and key heads.
    pub(super) fn heads(&self) -> usize {
        self.batch * self.kv_heads
    }

    /// Returns the position of the first query of a batch.
    ///
    /// # Safety
    /// The operands are those of the problem.
    pub(super) unsafe fn first_position(&self, args: &[*const u8], batch: usize) -> i64 {
        match &self.q_offset {
            // SAFETY: an i32 for each entry.
            Some(o) => unsafe { *args[o.arg].cast::<i32>().add(o.entry(batch)) as i64 },
            None => self.tk as i64 - self.tq as i64,
        }
    }

    /// Returns the keys that a query at `position` may see according to order, window and length.
    pub(super) fn interval(&self, position: i64, length: i64) -> (i64, i64) {
        let (mut lo, mut hi) = (0, length);
        if self.causal {
            hi = hi.min(position + 1);
        }
        if let Some(w) = self.window {
            lo = lo.max(position - w + 1);
            hi = hi.min(position + w);
        }
        (lo.min(hi.max(0)), hi.max(0))
    }

    /// Returns the number of valid keys of a batch.
    ///
    /// # Safety
    /// The operands are those of the problem.
    pub(super) unsafe fn length(&self, args: &[*const u8], batch: usize) -> i64 {
        match &self.lengths {
            // SAFETY: an i32 for each entry.
            Some(l) => unsafe { (*args[l.arg].cast::<i32>().add(l.entry(batch)) as i64).clamp(0, self.tk as i64) },
            None => self.tk as i64,
        }
    }
}

fn mask(arg: usize, t: &Type, lead: &[usize]) -> Option<Mask> {
    let p = t.rank().checked_sub(3)?;
    let strides = t.strides();
    let stride = |axis: usize| if t.shape[axis] == 1 { 0 } else { strides[axis] };
    let batch = (0..p).map(|a| (lead[a + 1..].iter().product::<usize>().max(1), lead[a].max(1), stride(a))).collect();
    let supported = matches!(t.dtype, DType::Bool | DType::F32 | DType::F64 | DType::BF16 | DType::F16);
    supported.then(|| Mask { arg, dtype: t.dtype, batch, head: stride(p), query: stride(p + 1), key: stride(p + 2) })
}

/// Reads an integer of any dtype as bits that are equal for equal integers.
///
/// # Safety
/// `p` is valid for `i + 1` elements of `dtype`, an integer dtype.
pub(super) unsafe fn integer(p: *const u8, dtype: DType, i: usize) -> i64 {
    // SAFETY: `p` is valid for `i + 1` elements of `dtype`, which is an integer dtype.
    unsafe {
        match dtype.size() {
            1 => *p.add(i) as i64,
            2 => *p.cast::<u16>().add(i) as i64,
            4 => *p.cast::<u32>().add(i) as i64,
            _ => *p.cast::<i64>().add(i),
        }
    }
}

/// Reads a float of any dtype.
///
/// # Safety
/// `p` is valid for `i + 1` elements of `dtype`, one of f16, bf16, f32, f64.
pub(super) unsafe fn float(p: *const u8, dtype: DType, i: usize) -> f32 {
    // SAFETY: `p` is valid for `i + 1` elements of `dtype`, which is f16, bf16, f32 or f64.
    unsafe {
        match dtype {
            DType::F16 => (*p.cast::<half::f16>().add(i)).to_f32(),
            DType::BF16 => (*p.cast::<half::bf16>().add(i)).to_f32(),
            DType::F64 => *p.cast::<f64>().add(i) as f32,
            _ => *p.cast::<f32>().add(i),
        }
    }
}
