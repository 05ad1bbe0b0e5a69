//! Depthwise convolutions of f32 (each output feature has one input feature), and kernel gradients of groups with few features.
//! There is too little work for matrix products, so the elements are multiplied in place.
//!
//! A plane of the input is written once with its padding ([`PaddedPlanes`]), so that adjacent results read adjacent elements.
//! Padding zeros are multiplied like other elements. Several rows of results are computed at a time, because a single row would
//! wait for its own accumulators; short rows use half as many results. With three axes, the planes under a window are kept until
//! no window needs them.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use super::Geometry;
use super::padded_input::{Line, PaddedPlanes, STEPS};
use crate::gemm::Isa;
use crate::gemm::vector::{Plain32, Vector};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::DType;
use std::ops::Range;

/// The number of results that are computed at a time.
pub(super) const RESULTS: usize = 32;
/// The number of elements that are summed at a time in the kernel gradient.
pub(super) const LANES: usize = 16;
/// The widest window of the forward loops, and the widest kernel for the gradient.
pub(super) const NARROW: usize = 8;

/// The height and width of the specialized 3 × 3 windows.
const SQUARE: usize = 3;

/// The maximum number of output features of a group for the kernel gradient.
pub(super) const GRADIENTS: usize = 4;
/// The maximum length of a padded axis: a plane with a longer one would leave the cache before the rows of a window are read again.
pub(super) const LONGEST: usize = 1 << 14;
/// The maximum number of planes under a window with three axes, including the planes skipped by dilation.
const KEPT: usize = 16;

/// The number of results that are computed at a time, in portable vectors.
const PLAIN_ALL: usize = RESULTS / <Plain32 as Vector>::LANES;
const PLAIN_HALF: usize = PLAIN_ALL / 2;

pub(super) struct Depthwise {
    g: Geometry,
    /// The first of three axes.
    depth: Line,
    rows: Line,
    cols: Line,
    planes: PaddedPlanes,
    /// The offset of each window element in a plane.
    taps: Vec<usize>,
    /// Whether windows are 3 × 3 over undilated rows.
    three: bool,
    /// Whether this is the kernel gradient, whose windows are whole images.
    gradient: bool,
    threads: usize,
    isa: Isa,
}

/// Returns the routine of a convolution that these loops support.
pub(super) fn prepare(g: &Geometry, machine: CpuContext) -> Option<Depthwise> {
    let spatial = &g.axes[..g.rank];
    let plain = g.dtype == DType::F32 && g.out == DType::F32 && g.rank <= 3 && g.positions > 0 && g.window > 0;
    if !plain || spatial.iter().any(|a| a.base_dilation != 1 || a.base == 0) {
        return None;
    }
    let small = |f: &dyn Fn(usize) -> usize| (0..g.rank).all(|a| f(a) <= NARROW);
    let forward = g.features == 1 && g.outs <= 4 && small(&|a| g.axes[a].window);
    let gradient = g.outs <= GRADIENTS && small(&|a| g.axes[a].count) && g.window >= 64;
    if !forward && !gradient {
        return None;
    }
    let mut lines = [Line::UNIT; 3];
    for (line, a) in lines[3 - g.rank..].iter_mut().zip(spatial) {
        let (stride, dilation) = (usize::try_from(a.stride).ok()?, usize::try_from(a.window_dilation).ok()?);
        *line = match forward {
            true => Line { base: a.base, low: a.low, step: stride, hop: dilation, along: a.count, across: a.window },
            false => Line { base: a.base, low: a.low, step: dilation, hop: stride, along: a.window, across: a.count },
        };
    }
    let [depth, rows, cols] = lines;
    if rows.step > STEPS || cols.step > STEPS || lines.iter().any(|l| l.padded() > LONGEST) {
        return None;
    }
    if forward && (depth.across - 1) * depth.hop >= KEPT {
        return None;
    }
    let planes = PaddedPlanes::aligned(rows, cols, machine.isa);
    let taps = (0..rows.across * cols.across).map(|t| planes.tap(t / cols.across, t % cols.across)).collect();
    let (threads, isa) = (machine.threads, machine.isa);
    let three = [rows.across, cols.across, rows.step, rows.hop] == [SQUARE, SQUARE, 1, 1];
    Some(Depthwise { g: g.clone(), depth, rows, cols, planes, taps, three, gradient: !forward, threads, isa })
}

impl Depthwise {
    /// The number of f32 of a padded plane, with space for the last vectors to read past its end.
    fn plane(&self) -> usize {
        (self.planes.plane + RESULTS).next_multiple_of(16)
    }

    /// The number of padded planes that are kept, not counting the plane of zeros after them.
    fn num_kept_planes(&self) -> usize {
        if self.gradient { 1 } else { (self.depth.across - 1) * self.depth.hop + 1 }
    }

    /// The number of f32 of all planes of a worker.
    fn scratch_elements(&self) -> usize {
        let beyond = self.depth.low > 0 || self.depth.padded() as i64 > self.depth.base as i64 + self.depth.low;
        self.plane() * (self.num_kept_planes() + usize::from(beyond))
    }

    /// Returns padded plane `at` of a volume: writes it to its slot unless it is there, or returns the plane of zeros for padding.
    ///
    /// # Safety
    /// `x` is valid for the volume, and `room` for the planes that are kept.
    #[inline(always)]
    unsafe fn plane_at(&self, x: *const f32, at: usize, room: *mut f32, held: &mut [usize; KEPT]) -> *const f32 {
        let source = at as i64 - self.depth.low;
        if !(0..self.depth.base as i64).contains(&source) {
            return room.wrapping_add(self.num_kept_planes() * self.plane());
        }
        let slot = at % self.num_kept_planes();
        let to = room.wrapping_add(slot * self.plane());
        if held[slot % KEPT] != at {
            // SAFETY: the volume is valid for its size, and there is room for the padded planes.
            unsafe { self.planes.write(x.add(source as usize * self.rows.base * self.cols.base), (0, 0), to) };
            held[slot % KEPT] = at;
        }
        to
    }

    /// Computes the results of one plane, or of the planes under a window, `N` vectors of `R` rows at a time.
    ///
    /// # Safety
    /// Planes, kernel and `y` are valid for the plane, or for all planes under a window, and the machine has the
    /// vectors.
    ///
    /// # Safety
    /// Planes, kernel and `y` are valid for the plane, or for all planes under a window, and the machine has the
    /// vectors.
    #[inline(always)]
    unsafe fn forward<V: Vector<Elem = f32>, const N: usize, const R: usize>(
        &self,
        planes: &[*const f32],
        kernel: *const f32,
        y: *mut f32,
    ) {
        // SAFETY: planes, kernel and `y` are valid for the plane, or for all planes under a window, and `three` is true
        // only for windows of three by three.
        unsafe {
            match self.three {
                true => self.rows::<V, N, R, true>(planes, kernel, y),
                false => self.rows::<V, N, R, false>(planes, kernel, y),
            }
        }
    }

    /// Computes the results of a plane, with specialized loops for 3 × 3 windows.
    #[inline(always)]
    unsafe fn rows<V: Vector<Elem = f32>, const N: usize, const R: usize, const THREE: bool>(
        &self,
        planes: &[*const f32],
        kernel: *const f32,
        y: *mut f32,
    ) {
        let (rows, cols, width) = (self.rows, self.cols, self.planes.width);
        // SAFETY: planes have room for a whole chunk; results are inside their rows.
        unsafe {
            for o in (0..rows.along).step_by(R) {
                // The last rows are computed again together with rows before them.
                let o = o.min(rows.along - R);
                for c in (0..cols.along).step_by(N * V::LANES) {
                    let mut acc = [[V::splat(0.0); N]; R];
                    for (plane, kernel) in planes.iter().zip((0..).map(|d| kernel.wrapping_add(d * self.taps.len()))) {
                        let plane = plane.add(o * width + c);
                        if THREE && (R == 2 || R == 4) {
                            self.gradient_3x3::<V, N, R>(plane, kernel, &mut acc);
                            continue;
                        }
                        if R > 1 && rows.across > R && rows.step == 1 && rows.hop == 1 {
                            self.gradient_tall_kernel::<V, N, R>(plane, kernel, &mut acc);
                            continue;
                        }
                        for (t, &tap) in self.taps.iter().enumerate() {
                            let (weight, from) = (V::splat(*kernel.add(t)), plane.add(tap));
                            for (r, acc) in acc.iter_mut().enumerate() {
                                for (n, acc) in acc.iter_mut().enumerate() {
                                    *acc = weight.mul_add(V::load(from.add(r * width + n * V::LANES)), *acc);
                                }
                            }
                        }
                    }
                    for (r, acc) in acc.iter().enumerate() {
                        let to = y.add((o + r) * cols.along + c);
                        for (n, acc) in acc.iter().enumerate() {
                            match (cols.along - c).saturating_sub(n * V::LANES) {
                                0 => {}
                                left if left < V::LANES => acc.store_first(to.add(n * V::LANES), left),
                                _ => acc.store(to.add(n * V::LANES)),
                            }
                        }
                    }
                }
            }
        }
    }

    /// Adds the contribution of a plane to some rows of results under 3 × 3 windows, with all kernel elements in registers. Each
    /// loaded vector is multiplied for all rows that use it.
    ///
    /// # Safety
    /// `plane` is valid for the windows of `N` vectors in `R` rows, `kernel` for nine elements, and the machine has the
    /// vectors.
    #[expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]
    ///
    /// # Safety
    /// `plane` is valid for the windows of `N` vectors in `R` rows, `kernel` for a window, and the machine has the
    /// vectors.
    #[inline(always)]
    unsafe fn gradient_3x3<V: Vector<Elem = f32>, const N: usize, const R: usize>(
        &self,
        plane: *const f32,
        kernel: *const f32,
        acc: &mut [[V; N]; R],
    ) {
        debug_assert!(R == 2 || R == 4, "so many rows are met below");
        let taps = [self.taps[0], self.taps[1], self.taps[2]];
        // SAFETY: as for [`Depthwise::forward`].
        unsafe {
            let mut w = [[V::splat(0.0); SQUARE]; SQUARE];
            for i in 0..SQUARE {
                for j in 0..SQUARE {
                    w[i][j] = V::splat(*kernel.add(i * SQUARE + j));
                }
            }
            let at = |p: usize| taps.map(|tap| plane.add(p * self.planes.width + tap));
            row_taps::<V, N, R, 0>(at(0), &w, acc);
            row_taps::<V, N, R, 1>(at(1), &w, acc);
            row_taps::<V, N, R, 2>(at(2), &w, acc);
            row_taps::<V, N, R, 3>(at(3), &w, acc);
            if R == 4 {
                row_taps::<V, N, R, 4>(at(4), &w, acc);
                row_taps::<V, N, R, 5>(at(5), &w, acc);
            }
        }
    }

    /// Adds the contribution of a plane to some rows of results under tall windows.
    /// Each loaded vector is multiplied for all rows that use it.
    ///
    /// # Safety
    /// `plane` is a padded plane, `ct` the cotangent of its results, and the machine has the vectors.
    #[inline(always)]
    unsafe fn gradient_tall_kernel<V: Vector<Elem = f32>, const N: usize, const R: usize>(
        &self,
        plane: *const f32,
        kernel: *const f32,
        acc: &mut [[V; N]; R],
    ) {
        let (high, wide) = (self.rows.across, self.cols.across);
        // SAFETY: as for [`Depthwise::forward`].
        unsafe {
            for p in 0..high + R - 1 {
                // The row of the window under which result `r` uses this input row.
                let row = |r: usize| p.checked_sub(r).filter(|&i| i < high);
                let from = plane.add(p * self.planes.width);
                if p + 1 >= R && p < high {
                    for j in 0..wide {
                        let x: [V; N] = std::array::from_fn(|n| V::load(from.add(self.taps[j] + n * V::LANES)));
                        for (r, acc) in acc.iter_mut().enumerate() {
                            let w = V::splat(*kernel.add((p - r) * wide + j));
                            for (acc, &x) in acc.iter_mut().zip(&x) {
                                *acc = w.mul_add(x, *acc);
                            }
                        }
                    }
                    continue;
                }
                for (r, acc) in acc.iter_mut().enumerate() {
                    let Some(i) = row(r) else { continue };
                    for j in 0..wide {
                        let w = V::splat(*kernel.add(i * wide + j));
                        for (n, acc) in acc.iter_mut().enumerate() {
                            *acc = w.mul_add(V::load(from.add(self.taps[j] + n * V::LANES)), *acc);
                        }
                    }
                }
            }
        }
    }

    /// Adds the contribution of a plane to the kernel gradient, for windows of width `J`.
    #[inline(always)]
    unsafe fn gradient<V: Vector<Elem = f32>, const J: usize>(
        &self,
        plane: *const f32,
        ct: *const f32,
        sums: &mut [[f64; NARROW]; NARROW],
    ) {
        let (rows, cols, width) = (self.rows, self.cols, self.planes.width);
        for (i, sums) in sums.iter_mut().enumerate().take(rows.across) {
            // SAFETY: inside the cotangent's rows and the padded ones; lanes beyond a row are zero on both sides, whatever the
            // line has there.
            unsafe {
                let taps: [usize; J] = std::array::from_fn(|j| self.taps[i * cols.across + j]);
                // Two accumulators for each sum.
                let mut acc = [[V::splat(0.0); 2]; J];
                for o in 0..rows.along {
                    let from = plane.add(o * width);
                    let row = ct.add(o * cols.along);
                    let mut c = 0;
                    while c + 2 * V::LANES <= cols.along {
                        let (w, x) = (V::load(row.add(c)), V::load(row.add(c + V::LANES)));
                        for j in 0..J {
                            let at = from.add(taps[j] + c);
                            acc[j][0] = w.mul_add(V::load(at), acc[j][0]);
                            acc[j][1] = x.mul_add(V::load(at.add(V::LANES)), acc[j][1]);
                        }
                        c += 2 * V::LANES;
                    }
                    while c < cols.along {
                        let n = (cols.along - c).min(V::LANES);
                        let w = V::load_first(row.add(c), n);
                        for j in 0..J {
                            let v = V::load_first(from.add(taps[j] + c), n);
                            acc[j][0] = w.mul_add(v, acc[j][0]);
                        }
                        c += n;
                    }
                    // Limit the length of each chain of additions.
                    if o % 64 == 63 || o + 1 == rows.along {
                        for j in 0..J {
                            let mut lanes = [0f32; LANES];
                            acc[j][0].add(acc[j][1]).store(lanes.as_mut_ptr());
                            let mut wide = lanes.map(|a| a as f64);
                            let mut half = LANES / 2;
                            while half > 0 {
                                (0..half).for_each(|i| wide[i] += wide[i + half]);
                                half /= 2;
                            }
                            sums[j] += wide[0];
                            acc[j] = [V::splat(0.0); 2];
                        }
                    }
                }
            }
        }
    }

    /// Computes one unit of work. `ALL` vectors are the results of a row that are computed at a time,
    /// `HALF` vectors those of short rows.
    ///
    /// # Safety
    /// The operands are valid for their sizes, `room` for the padded planes, only this call writes these results, and
    /// the machine has the vectors.
    ///
    /// # Safety
    /// The operands are valid for their sizes, `room` for the padded planes, only this call writes these results, and
    /// the machine has the vectors.
    #[inline(always)]
    unsafe fn run_unit<V: Vector<Elem = f32>, const ALL: usize, const HALF: usize>(
        &self,
        unit: usize,
        x: *const f32,
        kernel: *const f32,
        y: *mut f32,
        room: *mut f32,
    ) {
        let g = &self.g;
        let (image, group) = (unit / g.groups, unit % g.groups);
        // SAFETY: the operands are valid for their sizes, and there is room for a padded plane.
        unsafe {
            let from = x.add(image * g.image + group * g.group);
            if self.gradient {
                return self.unit_gradient::<V>(unit, group, from, kernel, y, room);
            }
            let mut held = [usize::MAX; KEPT];
            let results = self.rows.along * self.cols.along;
            for z in 0..self.depth.along {
                let mut planes = [room.cast_const(); NARROW];
                for (d, plane) in planes.iter_mut().enumerate().take(self.depth.across) {
                    *plane = self.plane_at(from, z * self.depth.step + d * self.depth.hop, room, &mut held);
                }
                let planes = &planes[..self.depth.across];
                for o in 0..g.outs {
                    let feature = group * g.outs + o;
                    let to = y.add((image * g.groups * g.outs + feature) * g.positions + z * results);
                    let kernel = kernel.add(feature * g.window);
                    // As many rows as there are registers for accumulators.
                    match (self.cols.along <= V::LANES * HALF, self.rows.along) {
                        (true, 4..) => self.forward::<V, HALF, 4>(planes, kernel, to),
                        (true, 2..) => self.forward::<V, HALF, 2>(planes, kernel, to),
                        (true, _) => self.forward::<V, HALF, 1>(planes, kernel, to),
                        (false, 4..) if V::LANES == LANES => self.forward::<V, ALL, 4>(planes, kernel, to),
                        (false, 2..) => self.forward::<V, ALL, 2>(planes, kernel, to),
                        (false, _) => self.forward::<V, ALL, 1>(planes, kernel, to),
                    }
                }
            }
        }
    }

    /// Computes the kernel gradient of one group.
    #[inline(always)]
    unsafe fn unit_gradient<V: Vector<Elem = f32>>(
        &self,
        unit: usize,
        group: usize,
        x: *const f32,
        ct: *const f32,
        y: *mut f32,
        room: *mut f32,
    ) {
        let g = &self.g;
        let (depth, plane) = (self.depth, self.rows.along * self.cols.along);
        // SAFETY: as for [`Depthwise::unit`].
        unsafe {
            let mut all = [[[[0f64; NARROW]; NARROW]; NARROW]; GRADIENTS];
            for f in 0..g.features {
                let mut held = [usize::MAX; KEPT];
                for at in 0..depth.padded() {
                    // The kernel elements that map this plane to some plane of the cotangent.
                    let under = |d: usize| at.checked_sub(d * depth.hop).filter(|z| z.is_multiple_of(depth.step));
                    let under = |d: usize| under(d).map(|z| z / depth.step).filter(|&z| z < depth.along);
                    if (0..depth.across).all(|d| under(d).is_none()) {
                        continue;
                    }
                    let padded = self.plane_at(x.add(f * g.plane), at, room, &mut held);
                    for (o, sums) in all.iter_mut().enumerate().take(g.outs) {
                        let ct = ct.add(((group * g.outs + o) * g.features + f) * g.window);
                        for (d, sums) in sums.iter_mut().enumerate().take(depth.across) {
                            let Some(z) = under(d) else { continue };
                            let ct = ct.add(z * plane);
                            match self.cols.across {
                                1 => self.gradient::<V, 1>(padded, ct, sums),
                                2 => self.gradient::<V, 2>(padded, ct, sums),
                                3 => self.gradient::<V, 3>(padded, ct, sums),
                                4 => self.gradient::<V, 4>(padded, ct, sums),
                                5 => self.gradient::<V, 5>(padded, ct, sums),
                                6 => self.gradient::<V, 6>(padded, ct, sums),
                                7 => self.gradient::<V, 7>(padded, ct, sums),
                                _ => self.gradient::<V, NARROW>(padded, ct, sums),
                            }
                        }
                    }
                }
            }
            let mut to = y.add(unit * g.outs * g.positions);
            for sums in all.iter().take(g.outs).flat_map(|sums| sums.iter().take(depth.across)) {
                for sum in sums.iter().take(self.rows.across).flat_map(|sums| sums.iter().take(self.cols.across)) {
                    *to = *sum as f32;
                    to = to.add(1);
                }
            }
        }
    }

    /// # Safety
    /// As for `unit`, and the machine has the target features.
    ///
    /// # Safety
    /// As for `unit`, and the machine has the target features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn unit_avx2(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: `unit` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.run_unit::<std::arch::x86_64::__m256, 4, 2>(unit, x, kernel, y, room) }
    }

    /// The number of rows whose half-width accumulators fit in AVX-512 registers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn unit_short(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: `unit` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.run_unit::<std::arch::x86_64::__m256, 1, 1>(unit, x, kernel, y, room) }
    }

    /// # Safety
    /// As for `unit`, and the machine has the target features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
    unsafe fn unit_avx512(&self, unit: usize, x: *const f32, kernel: *const f32, y: *mut f32, room: *mut f32) {
        // SAFETY: `unit` has the contract of this function, and gets its arguments unchanged.
        unsafe { self.run_unit::<std::arch::x86_64::__m512, 2, 1>(unit, x, kernel, y, room) }
    }
}

/// Adds row `P` of the input to `R` rows of results under 3 × 3 windows, with one pointer per window column. (The row is a constant,
/// so the accumulators stay in registers.)
///
/// # Safety
/// The row is inside of the plane, and the machine has the vectors.
#[expect(clippy::needless_range_loop, reason = "indices name registers, several arrays at a time")]
#[inline(always)]
unsafe fn row_taps<V: Vector<Elem = f32>, const N: usize, const R: usize, const P: usize>(
    from: [*const f32; SQUARE],
    w: &[[V; SQUARE]; SQUARE],
    acc: &mut [[V; N]; R],
) {
    for j in 0..SQUARE {
        for n in 0..N {
            // SAFETY: the row is inside of the plane, and the machine has the vectors.
            unsafe {
                let x = V::load(from[j].add(n * V::LANES));
                for r in 0..R {
                    if r <= P && P - r < SQUARE {
                        acc[r][n] = w[P - r][j].mul_add(x, acc[r][n]);
                    }
                }
            }
        }
    }
}

impl OpRoutine for Depthwise {
    fn scratch_bytes(&self) -> usize {
        self.scratch_elements() * 4 * self.threads
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let g = &self.g;
        let (x, kernel) = (SharedPtr(args[0].cast_mut().cast::<f32>()), SharedPtr(args[1].cast_mut().cast::<f32>()));
        let (y, scratch) = (SharedPtr(outs[0].cast::<f32>()), SharedPtr(scratch));
        let units = g.images * g.groups;
        let work = units * g.window * g.positions * g.outs * if self.gradient { g.features } else { 1 };
        in_ranges(pool, units, work, &|range: Range<usize>, worker| {
            let room = scratch.at(worker * self.scratch_elements() * 4).cast::<f32>();
            let zeros = self.num_kept_planes() * self.plane();
            // SAFETY: room is this worker's.
            unsafe { std::ptr::write_bytes(room.add(zeros), 0, self.scratch_elements() - zeros) };
            for unit in range {
                // SAFETY: operands are those the routine was prepared for; room is this worker's, results this unit's.
                unsafe {
                    match self.isa {
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512 | Isa::Avx2 if self.cols.along <= LANES / 2 && !self.gradient => {
                            self.unit_short(unit, x.at(0), kernel.at(0), y.at(0), room)
                        }
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx512 => self.unit_avx512(unit, x.at(0), kernel.at(0), y.at(0), room),
                        #[cfg(target_arch = "x86_64")]
                        Isa::Avx2 => self.unit_avx2(unit, x.at(0), kernel.at(0), y.at(0), room),
                        _ => {
                            self.run_unit::<Plain32, PLAIN_ALL, PLAIN_HALF>(unit, x.at(0), kernel.at(0), y.at(0), room)
                        }
                    }
                }
            }
        });
        Ok(())
    }
}
