//! Threefry-2x32 as scalar operations, so that random bits are computed inside the kernel that uses them.

use super::expr::{ExprId, ExprTable};
use ir::{Binary, DType, Scalar};

const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
const PARITY: u32 = 0x1BD1_1BDA;

/// Returns both output words for (key0, key1, x0, x1).
pub(super) fn threefry(ex: &mut ExprTable, [k0, k1, x0, x1]: [ExprId; 4]) -> [ExprId; 2] {
    let word = |ex: &mut ExprTable, x: u32| ex.constant(Scalar::from_bits(DType::U32, x as u64));
    let parity = word(ex, PARITY);
    let both = ex.binary(Binary::Xor, k0, k1);
    let k2 = ex.binary(Binary::Xor, both, parity);
    let keys = [k0, k1, k2];
    let mut x = [ex.binary(Binary::Add, x0, k0), ex.binary(Binary::Add, x1, k1)];
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x[0] = ex.binary(Binary::Add, x[0], x[1]);
            let (left, right) = (word(ex, r), word(ex, 32 - r));
            let high = ex.binary(Binary::Shl, x[1], left);
            let low = ex.binary(Binary::Shr, x[1], right);
            let rotated = ex.binary(Binary::Or, high, low);
            x[1] = ex.binary(Binary::Xor, rotated, x[0]);
        }
        let count = word(ex, round as u32 + 1);
        x[0] = ex.binary(Binary::Add, x[0], keys[(round + 1) % 3]);
        let with_key = ex.binary(Binary::Add, x[1], keys[(round + 2) % 3]);
        x[1] = ex.binary(Binary::Add, with_key, count);
    }
    x
}
