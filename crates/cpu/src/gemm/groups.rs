//! Packed elements that are groups of small ones: two bf16, four i8. One instruction multiplies and sums a group.

/// Packs `valid ≤ width` lines of `depth` elements into a panel of groups along k and pads the rest with zeros. As for
/// `pack_panel`, the strides are those from line to line and in k, in elements.
///
/// # Safety
/// Lines and panel are good for so many elements and groups.
pub(crate) type Join = unsafe fn(*mut u32, usize, *const u8, (isize, isize), usize, usize);

/// How elements are grouped.
pub(crate) struct Groups {
    /// Elements of a group.
    pub(crate) per: usize,
    pub(crate) left: Join,
    pub(crate) right: Join,
}

/// Two bf16 of which the sum of products is added to an f32.
#[cfg(target_arch = "x86_64")]
pub(super) static BF16_PAIRS: Groups = Groups { per: 2, left: x86::bf16_pairs, right: x86::bf16_pairs };

/// Four i8; those of the left operand are moved up by 128, because the instruction takes unsigned ones there.
#[cfg(target_arch = "x86_64")]
pub(super) static I8_QUADS: Groups = Groups { per: 4, left: x86::raised_quads, right: x86::i8_quads };

/// The lines of a panel that are written together, where k runs along memory.
const LINES: usize = 4;

/// Groups of a panel, one beside the other for each step of k.
#[inline(always)]
pub(super) unsafe fn join<S: Copy + Default, const PER: usize>(
    dst: *mut u32,
    width: usize,
    src: *const S,
    (along, deep): (isize, isize),
    valid: usize,
    depth: usize,
    group: impl Fn([S; PER]) -> u32,
) {
    let (whole, rest) = (depth / PER, depth % PER);
    let nothing = group([S::default(); PER]);
    // SAFETY: the caller vouches for `valid × depth` elements at `src` and the groups of `width` lines at `dst`.
    unsafe {
        let at = |w: usize, d: usize| src.offset(w as isize * along + d as isize * deep);
        // The group at a step, of which `n` elements are there.
        let one = |w: usize, d: usize, n: usize| {
            group(std::array::from_fn(|p| if p < n { at(w, d * PER + p).read_unaligned() } else { S::default() }))
        };
        if along == 1 {
            for d in 0..whole {
                let lines: [*const S; PER] = std::array::from_fn(|p| at(0, d * PER + p));
                let to = dst.add(d * width);
                for w in 0..valid {
                    *to.add(w) = group(lines.map(|line| *line.add(w)));
                }
            }
        } else {
            let fours = valid / LINES * LINES;
            for w in (0..fours).step_by(LINES) {
                for d in 0..whole {
                    let four: [u32; LINES] = std::array::from_fn(|i| one(w + i, d, PER));
                    dst.add(d * width + w).cast::<[u32; LINES]>().write_unaligned(four);
                }
            }
            for w in fours..valid {
                (0..whole).for_each(|d| *dst.add(d * width + w) = one(w, d, PER));
            }
        }
        if rest > 0 {
            (0..valid).for_each(|w| *dst.add(whole * width + w) = one(w, whole, rest));
        }
        for d in 0..depth.div_ceil(PER) {
            (valid..width).for_each(|w| *dst.add(d * width + w) = nothing);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::join;

    macro_rules! joins {
        ($($name:ident, $s:ty, $per:literal, $group:expr;)*) => {$(
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
            pub(super) unsafe fn $name(
                dst: *mut u32,
                width: usize,
                src: *const u8,
                strides: (isize, isize),
                valid: usize,
                depth: usize,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { join::<$s, $per>(dst, width, src.cast(), strides, valid, depth, $group) }
            }
        )*};
    }
    joins! {
        bf16_pairs, u16, 2, |[a, b]| a as u32 | (b as u32) << 16;
        i8_quads, u8, 4, u32::from_le_bytes;
        raised_quads, u8, 4, |x| u32::from_le_bytes(x) ^ 0x8080_8080;
    }
}
