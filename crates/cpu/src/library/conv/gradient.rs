//! The kernel gradient of an f32 convolution, without im2col.
//!
//! It is a convolution whose windows are whole images: `kernel[c, o, tap] = Σ x[c, n, p + tap] · ct[o, n, p]` over images `n` and
//! positions `p`. The rows of the product are window elements; each is an offset in the padded image from which k runs on. The
//! columns are output features, so cotangents are packed with adjacent features, once for all rows.
//!
//! Sums are split over *items*: some images, or a part of one image, determined by the shape. If there are few tiles of results,
//! items are distributed over several partial sums, which are added at the end. So threads find enough work, and the order of
//! additions does not depend on the number of threads.

use super::super::{CpuContext, OpRoutine, SharedPtr, in_ranges};
use super::Geometry;
use super::depthwise::GRADIENTS;
use super::micro::{Gathered, Gathers, Windows};
use super::padded_input::{Line, PaddedPlanes};
use crate::gemm::Isa;
use crate::gemm::kernel::{HasKernels, Kernels};
use crate::pool::ThreadPool;
use compiler::Result;
use ir::DType;
use std::ops::Range;

/// The approximate number of elements that one accumulator sums at a time.
pub(super) const CHAIN: usize = 1024;
/// The minimum number of units of work; with fewer tiles there are several partial sums.
const JOBS: usize = 24;
/// The bytes of cotangents and images that a thread packs at a time.
const KEPT: usize = 512 << 10;

/// A range of images, and of lines and columns of their windows.
struct Item {
    images: Range<usize>,
    lines: Range<usize>,
    cols: Range<usize>,
}

impl Item {
    fn k(&self) -> usize {
        self.images.len() * self.lines.len() * self.cols.len()
    }
}

pub(super) struct Gradient {
    g: Geometry,
    micros: &'static Gathers,
    kernels: &'static Kernels<f32>,
    down: Line,
    across: Line,
    /// The images with their padding, or `None` without padding.
    planes: Option<PaddedPlanes>,
    /// The offset of each row of the product from the first plane of an image and group.
    offsets: Vec<u32>,
    width: usize,
    items: Vec<Item>,
    /// The maximum number of elements of an item, and the number of items that are packed at a time.
    k: usize,
    at_once: usize,
    /// The maximum number of images of those items.
    images: usize,
    /// The number of rows of a tile and of tiles; of panels of output features; of partial sums.
    rows: usize,
    tiles: usize,
    panels: usize,
    sums: usize,
}

/// Returns the routine if windows are wider than results and there are enough features for vectors.
pub(super) fn prepare(g: &Geometry, machine: CpuContext) -> Option<Gradient> {
    let spatial = &g.axes[..g.rank];
    let plain = g.dtype == DType::F32 && g.out == DType::F32 && g.rank <= 2 && g.outs > GRADIENTS;
    let all = g.images * g.features * g.window * g.positions;
    if !plain || all == 0 || spatial.iter().any(|a| a.base_dilation != 1 || a.base == 0) {
        return None;
    }
    let mut lines = [Line::UNIT; 2];
    for (line, a) in lines[2 - g.rank..].iter_mut().zip(spatial) {
        let (hop, step) = (usize::try_from(a.stride).ok()?, usize::try_from(a.window_dilation).ok()?);
        *line = Line { base: a.base, low: a.low, step, hop, along: a.window, across: a.count };
    }
    let [down, across] = lines;
    let micros = Gathers::of(machine.isa, g.outs);
    let narrow = micros.lanes < Windows::of(machine.isa).lanes;
    let kernels = f32::kernels(if narrow { Isa::Avx2 } else { machine.isa }, DType::F32);
    // Adjacent elements are read one by one, so strided windows are not split into phases.
    let whole = |l: Line| Line { step: 1, hop: 1, along: l.padded(), across: 1, ..l };
    let planes = match lines.iter().all(Line::is_unpadded) {
        true => None,
        false => Some(PaddedPlanes::new(whole(down), whole(across), machine.isa)),
    };
    let width = planes.as_ref().map_or(across.base, |p| p.width);
    let plane = planes.as_ref().map_or(g.image, |p| p.plane);
    let mut offsets = Vec::with_capacity(g.images * g.positions);
    for c in 0..g.images {
        for i in 0..down.across {
            for j in 0..across.across {
                offsets.push(u32::try_from(c * plane + i * down.hop * width + j * across.hop).ok()?);
            }
        }
    }
    let items = items(g.features, down.along, across.along);
    let k = items.iter().map(Item::k).max()?;
    let tiles = offsets.len().div_ceil(micros.rows);
    let panels = g.outs.div_ceil(kernels.nr);
    let sums = JOBS.div_ceil(g.groups * tiles * panels).min(items.len());
    let image = planes.as_ref().map_or(0, |p| g.groups * g.images * p.plane);
    let bytes = 4 * (g.groups * panels * k * kernels.nr + image * g.features / items.len());
    let at_once = (KEPT * machine.threads / bytes).next_multiple_of(sums).clamp(sums, items.len());
    let images = items.chunks(at_once).map(|c| c[c.len() - 1].images.end - c[0].images.start).max()?;
    Some(Gradient {
        g: g.clone(),
        micros,
        kernels,
        down,
        across,
        planes,
        width,
        images,
        items,
        k,
        at_once,
        rows: offsets.len().div_ceil(tiles),
        offsets,
        tiles,
        panels,
        sums,
    })
}

/// Returns several small images per item, or parts of large images: lines, or columns of a single line.
fn items(images: usize, lines: usize, cols: usize) -> Vec<Item> {
    let each = lines * cols;
    let mut all = Vec::new();
    if each <= CHAIN {
        let at_once = CHAIN / each;
        for first in (0..images).step_by(at_once) {
            all.push(Item { images: first..images.min(first + at_once), lines: 0..lines, cols: 0..cols });
        }
        return all;
    }
    for n in 0..images {
        if lines == 1 {
            for c in (0..cols).step_by(CHAIN) {
                all.push(Item { images: n..n + 1, lines: 0..1, cols: c..cols.min(c + CHAIN) });
            }
            continue;
        }
        let at_once = (CHAIN / cols).max(1);
        for l in (0..lines).step_by(at_once) {
            all.push(Item { images: n..n + 1, lines: l..lines.min(l + at_once), cols: 0..cols });
        }
    }
    all
}

impl Gradient {
    /// The number of f32 of the planes of an image, for all groups.
    fn image(&self) -> usize {
        self.planes.as_ref().map_or(0, |p| self.g.groups * self.g.images * p.plane)
    }

    /// The number of f32 of an item's packed cotangents, for all groups.
    fn packed(&self) -> usize {
        self.g.groups * self.panels * self.k * self.kernels.nr
    }

    /// The number of f32 of a partial sum.
    fn sum(&self) -> usize {
        self.g.groups * self.panels * self.offsets.len() * self.kernels.nr
    }

    /// The number of f32 of all images, packed items, and partial sums.
    fn sizes(&self) -> [usize; 3] {
        [self.images * self.image() + 32, self.at_once * self.packed(), self.sums * self.sum()]
            .map(|n| n.next_multiple_of(16))
    }

    /// Packs the cotangents of one panel for an item.
    ///
    /// # Safety
    /// The cotangents are valid for all items, and there is room for one.
    unsafe fn pack(&self, item: &Item, group: usize, panel: usize, ct: *const f32, to: *mut f32) {
        let (g, nr) = (&self.g, self.kernels.nr);
        let (first, cols) = (panel * nr, self.across.along);
        let valid = nr.min(g.outs - first);
        let (lines, along) = (item.lines.len(), item.cols.len());
        for (i, n) in item.images.clone().enumerate() {
            // Lines of full width form one run.
            let at = ((group * g.outs + first) * g.features + n) * g.window + item.lines.start * cols + item.cols.start;
            let strides = ((g.features * g.window) as isize, 1);
            // SAFETY: the cotangents are valid for all items, and there is room for one.
            unsafe {
                let to = to.add(i * lines * along * nr);
                (self.kernels.pack)(to, nr, ct.add(at), strides, valid, lines * along);
            }
        }
    }

    /// Adds an item's contribution of one tile to a partial sum.
    ///
    /// # Safety
    /// The planes of the item's images, its cotangents and the sum are valid for their sizes.
    unsafe fn tile(
        &self,
        item: &Item,
        at: (usize, usize, usize),
        images: *const f32,
        steps: usize,
        b: *const f32,
        c: *mut f32,
        add: bool,
    ) {
        let (group, panel, tile) = at;
        let (g, nr) = (&self.g, self.kernels.nr);
        let first = tile * self.rows;
        let rows = self.rows.min(self.offsets.len() - first);
        let vectors = nr.min(g.outs - panel * nr).div_ceil(self.micros.lanes);
        let (lines, cols) = (item.lines.len(), item.cols.len());
        let skipped = item.lines.start * self.down.step * self.width + item.cols.start * self.across.step;
        // SAFETY: the planes of the item's images, its cotangents and the sum are valid for their sizes.
        unsafe {
            self.micros.micro(rows, vectors)(&Gathered {
                a: images.add(skipped),
                offsets: self.offsets.as_ptr().add(first),
                sizes: [item.images.len(), lines, cols],
                steps: [steps, self.down.step * self.width, self.across.step],
                b,
                b_image: lines * cols * nr,
                b_k: nr,
                c: c.add(((group * self.panels + panel) * self.offsets.len() + first) * nr),
                c_row: nr,
                add,
            });
        }
    }
}

impl OpRoutine for Gradient {
    fn scratch_bytes(&self) -> usize {
        4 * self.sizes().iter().sum::<usize>()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let g = &self.g;
        let [images, packed, _] = self.sizes();
        let (x, ct) = (SharedPtr(args[0].cast_mut().cast::<f32>()), SharedPtr(args[1].cast_mut().cast::<f32>()));
        let planes = SharedPtr(scratch.cast::<f32>());
        let cotangents = SharedPtr(planes.at(images));
        let sums = SharedPtr(cotangents.at(packed));
        let mut there = 0..0;
        for first in (0..self.items.len()).step_by(self.at_once) {
            let items = &self.items[first..self.items.len().min(first + self.at_once)];
            let wanted = items[0].images.start..items[items.len() - 1].images.end;
            let fresh = if there == wanted || self.planes.is_none() { 0 } else { wanted.len() * g.groups * g.images };
            there = wanted.clone();
            let panels = g.groups * self.panels;
            pool.run(fresh + items.len() * panels, &|part, _| {
                // SAFETY: planes and panels are disjoint, and inside the input, the cotangents and the scratch.
                unsafe {
                    if let (Some(own), true) = (&self.planes, part < fresh) {
                        let (image, plane) = (part / (g.groups * g.images), part % (g.groups * g.images));
                        let (group, c) = (plane / g.images, plane % g.images);
                        let from = x.at(group * g.group + c * g.image + (wanted.start + image) * g.plane);
                        own.write(from, (0, 0), planes.at(image * self.image() + plane * own.plane));
                        return;
                    }
                    let (i, panel) = ((part - fresh) / panels, (part - fresh) % panels);
                    let to = cotangents.at(i * self.packed() + panel * self.k * self.kernels.nr);
                    self.pack(&items[i], panel / self.panels, panel % self.panels, ct.at(0), to);
                }
            });
            pool.run(panels * self.tiles * self.sums, &|job, _| {
                // All tiles of a panel are computed one after the other, so its cotangents stay in cache.
                let (sum, rest) = (job % self.sums, job / self.sums);
                let (panel, tile) = (rest / self.tiles, rest % self.tiles);
                let group = panel / self.panels;
                for (i, item) in items.iter().enumerate().filter(|(i, _)| (first + i) % self.sums == sum) {
                    let (from, steps) = match &self.planes {
                        Some(own) => {
                            let image = item.images.start - wanted.start;
                            (planes.at(image * self.image() + group * g.images * own.plane), self.image())
                        }
                        None => (x.at(group * g.group + item.images.start * g.plane), g.plane),
                    };
                    let b = cotangents.at(i * self.packed() + panel * self.k * self.kernels.nr);
                    let at = (group, panel % self.panels, tile);
                    let add = first + i >= self.sums;
                    // SAFETY: the item's planes and cotangents are there; the tile of this sum is this job's.
                    unsafe { self.tile(item, at, from, steps, b, sums.at(sum * self.sum()), add) };
                }
            });
        }
        let y = SharedPtr(outs[0].cast::<f32>());
        let (outs, taps, nr) = (g.outs, g.positions, self.kernels.nr);
        in_ranges(pool, g.images * g.groups, self.sums * self.sum(), &|range, _| {
            for matrix in range {
                let (c, group) = (matrix / g.groups, matrix % g.groups);
                for o in 0..outs {
                    let from = (group * self.panels + o / nr) * self.offsets.len() + c * taps;
                    for t in 0..taps {
                        let at = (from + t) * nr + o % nr;
                        // SAFETY: inside the sums; the results are this range's.
                        unsafe {
                            let all = (1..self.sums).fold(*sums.at(at), |s, i| s + *sums.at(i * self.sum() + at));
                            *y.at((matrix * outs + o) * taps + t) = all;
                        }
                    }
                }
            }
        });
        Ok(())
    }
}
