//! The AVX-512 micro-kernel for full tiles with a packed A. The loop over k is written in assembly.
//!
//! Two hyper-threads of one core share its issue slots, so the number of instructions matters. Each loop iteration covers four
//! values of k, and every second row of A is a broadcast memory operand of the multiply-add instruction, which saves the separate
//! broadcast. If all rows were memory operands, the loop would need more loads per cycle than a core has.

use std::arch::asm;
use std::arch::x86_64::{__m512, __m512d};

use super::kernel::{Tile, prefetch_tile, store};
use super::vector::Vector;

/// The number of rows of a full tile.
pub(super) const ROWS: usize = 12;

/// Two rows of A for one value of k: the first is broadcast to a register, the second is a memory operand of each instruction.
macro_rules! rows {
    ($fma:literal, $splat:literal, $one:literal, $to:literal, $at:expr, $next:expr, $c0:literal, $c1:literal, $c2:literal, $c3:literal) => {
        concat!(
            concat!($splat, " {s}, ", $one, " ptr [{a} + ", $at, "]\n"),
            concat!($fma, " {", $c0, "}, {b0}, {s}\n"),
            concat!($fma, " {", $c1, "}, {b1}, {s}\n"),
            concat!($fma, " {", $c2, "}, {b0}, ", $one, " ptr [{a} + ", $next, "]{{1to", $to, "}}\n"),
            concat!($fma, " {", $c3, "}, {b1}, ", $one, " ptr [{a} + ", $next, "]{{1to", $to, "}}\n"),
        )
    };
}

/// One value of k: `$from` is the offset in elements into the panel of A,
/// followed by the offset of its row of B and the prefetch offset.
macro_rules! step {
    ($fma:literal, $splat:literal, $one:literal, $to:literal, $size:literal, $from:literal, $b:literal, $ahead:literal) => {
        concat!(
            concat!("vmovups {b0}, [{b}", $b, "]\n"),
            concat!("vmovups {b1}, [{b}", $b, " + 64]\n"),
            concat!("prefetcht1 [{ahead}", $ahead, "]\n"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 0, 1, "c0", "c1", "c2", "c3"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 2, 3, "c4", "c5", "c6", "c7"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 4, 5, "c8", "c9", "c10", "c11"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 6, 7, "c12", "c13", "c14", "c15"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 8, 9, "c16", "c17", "c18", "c19"),
            step!(@two $fma, $splat, $one, $to, $size, $from, 10, 11, "c20", "c21", "c22", "c23"),
        )
    };
    (@two $fma:literal, $splat:literal, $one:literal, $to:literal, $size:literal, $from:literal, $i:literal, $j:literal, $c0:literal, $c1:literal, $c2:literal, $c3:literal) => {
        rows!(
            $fma,
            $splat,
            $one,
            $to,
            concat!($size, " * (", $from, " + ", $i, ")"),
            concat!($size, " * (", $from, " + ", $j, ")"),
            $c0,
            $c1,
            $c2,
            $c3
        )
    };
}

/// A kernel of [`ROWS`] rows and two vectors. Arguments: the multiply-add instruction, the broadcast instruction, the broadcast size
/// suffix, the number of elements of a vector, and the bytes of an element.
macro_rules! whole {
    ($name:ident, $vector:ty, $feature:literal, $fma:literal, $splat:literal, $one:literal, $to:literal, $size:literal) => {
        /// The micro-kernel for a full tile with a packed A.
        ///
        /// # Safety
        /// As for any micro-kernel; the tile has [`ROWS`] rows and two vectors of columns, and `a_k` is [`ROWS`].
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $name(t: &Tile<<$vector as Vector>::Elem>) {
            // SAFETY: `a` is valid for `k` columns, `b` for `k` rows and C for the tile, and the machine has the
            // instructions; prefetching does not access memory.
            unsafe {
                prefetch_tile::<$vector, ROWS, 2>(t);
                let mut c = [[<$vector as Vector>::splat(Default::default()); 2]; ROWS];
                let (row, ahead_row) = ($size * t.b_k, $size * t.ahead_k);
                asm!(
                    "test {rounds}, {rounds}",
                    "jz 3f",
                    "2:",
                    step!($fma, $splat, $one, $to, $size, 0, "", ""),
                    step!($fma, $splat, $one, $to, $size, 12, " + {row}", " + {ahead_row}"),
                    step!($fma, $splat, $one, $to, $size, 24, " + 2 * {row}", " + 2 * {ahead_row}"),
                    step!($fma, $splat, $one, $to, $size, 36, " + {row3}", " + {ahead_row3}"),
                    concat!("add {a}, ", $size, " * 48"),
                    "lea {b}, [{b} + 4 * {row}]",
                    "lea {ahead}, [{ahead} + 4 * {ahead_row}]",
                    "dec {rounds}",
                    "jnz 2b",
                    "3:",
                    "test {rest}, {rest}",
                    "jz 5f",
                    "4:",
                    step!($fma, $splat, $one, $to, $size, 0, "", ""),
                    concat!("add {a}, ", $size, " * 12"),
                    "add {b}, {row}",
                    "dec {rest}",
                    "jnz 4b",
                    "5:",
                    rounds = inout(reg) t.k / 4 => _,
                    rest = inout(reg) t.k % 4 => _,
                    a = inout(reg) t.a => _,
                    b = inout(reg) t.b => _,
                    row = in(reg) row,
                    row3 = in(reg) 3 * row,
                    ahead = inout(reg) t.ahead => _,
                    ahead_row = in(reg) ahead_row,
                    ahead_row3 = in(reg) 3 * ahead_row,
                    b0 = out(zmm_reg) _,
                    b1 = out(zmm_reg) _,
                    s = out(zmm_reg) _,
                    c0 = inout(zmm_reg) c[0][0], c1 = inout(zmm_reg) c[0][1],
                    c2 = inout(zmm_reg) c[1][0], c3 = inout(zmm_reg) c[1][1],
                    c4 = inout(zmm_reg) c[2][0], c5 = inout(zmm_reg) c[2][1],
                    c6 = inout(zmm_reg) c[3][0], c7 = inout(zmm_reg) c[3][1],
                    c8 = inout(zmm_reg) c[4][0], c9 = inout(zmm_reg) c[4][1],
                    c10 = inout(zmm_reg) c[5][0], c11 = inout(zmm_reg) c[5][1],
                    c12 = inout(zmm_reg) c[6][0], c13 = inout(zmm_reg) c[6][1],
                    c14 = inout(zmm_reg) c[7][0], c15 = inout(zmm_reg) c[7][1],
                    c16 = inout(zmm_reg) c[8][0], c17 = inout(zmm_reg) c[8][1],
                    c18 = inout(zmm_reg) c[9][0], c19 = inout(zmm_reg) c[9][1],
                    c20 = inout(zmm_reg) c[10][0], c21 = inout(zmm_reg) c[10][1],
                    c22 = inout(zmm_reg) c[11][0], c23 = inout(zmm_reg) c[11][1],
                    options(readonly, nostack),
                );
                store(t, &c);
            }
        }
    };
}

whole!(f32, __m512, "avx512f", "vfmadd231ps", "vbroadcastss", "dword", "16", 4);
whole!(f64, __m512d, "avx512f", "vfmadd231pd", "vbroadcastsd", "qword", "8", 8);
whole!(pairs, __m512, "avx512f,avx512bf16", "vdpbf16ps", "vbroadcastss", "dword", "16", 4);
