//! The lane helper: one call evaluates an op on the lanes of the transfer area with the scalar arithmetic of `ir`. It is slow.
//!
//! Lanes are 8 bytes for 64-bit dtypes and 4 for all others: small floats as f32, small integers extended to 32 bits,
//! bool as zero or nonzero. Operands are at bytes 0, 64 and 128 of the area, the result is written to byte 192.
//!
//! The same call transposes blocks of rows and back ([`transpose_code`]).

use compiler::loops::{Op, Reg};
use ir::{Binary, Compare, DType, DTypeKind, Scalar, Unary};

/// The offset of the result.
pub(crate) const OUT: usize = 192;

/// Packs an op for the helper; `None` for ops that are not arithmetic.
pub(crate) fn op_code(op: &Op, arg: DType, lanes: usize) -> Option<u32> {
    let (kind, which, out) = match *op {
        Op::Unary(op, _) => (0, Unary::ALL.iter().position(|&o| o == op)?, op.result(arg)),
        Op::Binary(op, ..) => (1, Binary::ALL.iter().position(|&o| o == op)?, arg),
        Op::Compare(op, ..) => (2, Compare::ALL.iter().position(|&o| o == op)?, DType::Bool),
        Op::Fma(..) => (3, 0, arg),
        Op::Cast(to, _) => (4, 0, to),
        Op::Quantize(to, _) => (5, 0, to),
        Op::Bitcast(to, _) => (6, 0, to),
        Op::Const(_) | Op::Index(_) | Op::Load { .. } | Op::Select(..) => return None,
    };
    Some(lanes as u32 | (arg as u32) << 5 | (out as u32) << 9 | kind << 13 | (which as u32) << 17)
}

/// The code of a transpose, in the place of the kind of op.
#[cfg(all(unix, target_arch = "x86_64"))]
const TURN: u32 = 7;

/// Packs a call that transposes a block of rows, or transposes it back: the bytes of an element, and whether rows are written
/// rather than read. The area contains, as words, source and destination, the number of rows and columns, and the
/// strides of rows (outside) and of columns (inside) in elements.
#[cfg(all(unix, target_arch = "x86_64"))]
pub(crate) fn transpose_code(bytes: usize, back: bool, wide: bool) -> u32 {
    bytes as u32 | TURN << 13 | u32::from(back) << 17 | u32::from(wide) << 18
}

fn unpack(code: u32) -> (Op, DType, DType, usize) {
    let dtype = |shift: u32| DType::ALL[(code >> shift & 15) as usize];
    let (which, r) = ((code >> 17) as usize, Reg(0));
    let op = match code >> 13 & 15 {
        0 => Op::Unary(Unary::ALL[which], r),
        1 => Op::Binary(Binary::ALL[which], r, r),
        2 => Op::Compare(Compare::ALL[which], r, r),
        3 => Op::Fma(r, r, r),
        4 => Op::Cast(dtype(9), r),
        5 => Op::Quantize(dtype(9), r),
        _ => Op::Bitcast(dtype(9), r),
    };
    (op, dtype(5), dtype(9), (code & 31) as usize)
}

fn read(area: &[u8; 256], at: usize, d: DType) -> Scalar {
    if d.size() == 8 {
        let mut b = [0; 8];
        b.copy_from_slice(&area[at..at + 8]);
        return Scalar::from_bits(d, u64::from_le_bytes(b));
    }
    let mut b = [0; 4];
    b.copy_from_slice(&area[at..at + 4]);
    match d.kind() {
        DTypeKind::Float => Scalar::from_f64(d, f32::from_le_bytes(b) as f64),
        DTypeKind::Bool => Scalar::bool(u32::from_le_bytes(b) != 0),
        _ => Scalar::from_bits(d, u32::from_le_bytes(b) as u64),
    }
}

fn write(area: &mut [u8; 256], at: usize, s: Scalar) {
    let d = s.dtype();
    if d.size() == 8 {
        area[at..at + 8].copy_from_slice(&s.bits().to_le_bytes());
        return;
    }
    let b = match d.kind() {
        DTypeKind::Float => (s.to_f64() as f32).to_le_bytes(),
        DTypeKind::Bool => (0u32.wrapping_sub(s.bits() as u32)).to_le_bytes(),
        _ => (s.to_i64() as i32).to_le_bytes(),
    };
    area[at..at + 4].copy_from_slice(&b);
}

/// Evaluates f32 lanes without making scalars; the results are the same as in the general code.
fn map_f32(area: &mut [u8; 256], n: usize, f: impl Fn(f64, f64) -> f64) {
    let lane = |area: &[u8; 256], at: usize| {
        let mut b = [0; 4];
        b.copy_from_slice(&area[at..at + 4]);
        f32::from_le_bytes(b) as f64
    };
    for i in 0..n {
        let r = f(lane(area, 4 * i), lane(area, 64 + 4 * i)) as f32;
        area[OUT + 4 * i..OUT + 4 * i + 4].copy_from_slice(&r.to_le_bytes());
    }
}

/// Evaluates the op that `code` names on the transfer area.
///
/// # Safety
/// `area` points to 256 bytes that only the caller uses.
pub(crate) unsafe extern "C" fn lanes(area: *mut [u8; 256], code: u64) {
    // SAFETY: generated code passes its own frame.
    let area = unsafe { &mut *area };
    #[cfg(all(unix, target_arch = "x86_64"))]
    if code as u32 >> 13 & 15 == TURN {
        // SAFETY: generated code passes what its loops would read and write.
        return unsafe { turn(area, code as u32) };
    }
    let (op, from, to, n) = unpack(code as u32);
    if let (Op::Unary(f, _), DType::F32, DType::F32) = (&op, from, to) {
        return map_f32(area, n, |x, _| ir::special::unary_f64(*f, x));
    }
    if let (Op::Binary(Binary::Pow, ..), DType::F32) = (&op, from) {
        return map_f32(area, n, f64::powf);
    }
    let step = |d: DType| if d.size() == 8 { 8 } else { 4 };
    let args = op.operands().count();
    for lane in 0..n {
        let mut s = [Scalar::zero(from); 3];
        for (i, s) in s.iter_mut().enumerate().take(args) {
            *s = read(area, 64 * i + lane * step(from), from);
        }
        if let Some(r) = op.apply(&s[..args]) {
            write(area, OUT + lane * step(to), r);
        }
    }
}

/// # Safety
/// A kernel filled `area` for a turn, and both of its addresses are valid for the block.
#[cfg(all(unix, target_arch = "x86_64"))]
unsafe fn turn(area: &[u8; 256], code: u32) {
    use crate::gemm::Isa;
    let word = |k: usize| {
        let mut b = [0; 8];
        b.copy_from_slice(&area[8 * k..8 * k + 8]);
        i64::from_le_bytes(b) as isize
    };
    let (rows, columns) = (word(2).max(0) as usize, word(3).max(0) as usize);
    let isa = if code >> 18 & 1 == 1 { Isa::Avx512 } else { Isa::Avx2 };
    let block = crate::library::TransposeRoutine {
        rows,
        columns,
        outside: word(4),
        inside: word(5),
        back: code >> 17 & 1 == 1,
        isa,
    };
    // SAFETY: the kernel wrote the block's sizes, strides and addresses to `area`, and both addresses are valid for the
    // block.
    unsafe { block.run((code & 31) as usize, word(0) as *const u8, word(1) as *mut u8) }
}
