//! Convolutions as matrix products with one operand, the windows of the input,
//! that is generated while it is packed (implicit im2col).
//!
//! Where windows are narrower than results (forward, and ∂input), a product is `kernel [O, C·K] · windows [C·K, P]` for each
//! image and group, split into pieces whose packed windows stay in cache. For f32 there are specialized loops ([`im2col_gemm`])
//! that pack the kernel once and generate windows where they are multiplied. Where windows are wider (∂kernel: the window is a
//! whole image), the product is `windows [N·P, C·K] · kernelᵀ [C·K, O]`. In both cases elements are generated in runs along the
//! longer innermost axis. Most f32 convolutions avoid im2col: windows are read from the padded input in place ([`direct`], and
//! [`gradient`] for ∂kernel). Depthwise convolutions have their own loops ([`depthwise`]). A dilated input is split into phases
//! ([`sub_pixel`]), or, with fewer output features than input features, each of its elements is multiplied by the whole kernel
//! and added to the result ([`col2im`]). Three axes are reduced to two ([`conv3d_as_2d`]), and 16-bit floats are upcast to f32
//! where the machine cannot multiply pairs of them ([`upcast`]).

mod col2im;
mod conv3d_as_2d;
mod depthwise;
mod direct;
mod gradient;
mod im2col;
mod im2col_gemm;
mod micro;
mod padded_input;
mod sub_pixel;
mod upcast;

use super::{CpuContext, OpRoutine};
use crate::gemm::kernel::HasKernels;
use crate::gemm::{GemmOperand, GemmOutput, GemmPlan, GemmProblem, Isa, MatrixLayout, OperandSource, OutputKind};
use crate::pool::ThreadPool;
use crate::thresholds::Threshold;
use compiler::Result;
use im2col::{generate, store};
use ir::ops::Conv;
use ir::{DType, Type};
use std::ffi::c_void;

/// The maximum number of spatial axes.
const AXES: usize = 4;
/// The maximum number of window elements for which a window with more elements than positions is still treated as a kernel;
/// longer windows are images, with long sums.
const KERNEL: usize = 64;
/// The bytes of generated windows that stay in the L2 cache.
const PIECE_BYTES: usize = 600 << 10;

pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "conv.positions",
            im2col_gemm::POSITIONS,
            "windows of an image: from here loops of its own take f32",
        ),
        Threshold::new("conv.depth", im2col_gemm::DEPTH, "elements of a window: beyond, they are multiplied in turns"),
        Threshold::new("conv.width", im2col::WIDTH, "width of a window: beyond, another generator writes it"),
        Threshold::new(
            "conv.panel",
            im2col_gemm::PANEL_BYTES / 4,
            "elements of an image's windows: beyond, it has parts",
        ),
        Threshold::new(
            "conv.narrow",
            depthwise::NARROW,
            "width of a window of features that are alone: up to here loops of its own",
        ),
        Threshold::new(
            "conv.gradients",
            depthwise::GRADIENTS,
            "output features of a group: beyond, its kernel's gradient is a product",
        ),
        Threshold::new(
            "conv.longest",
            depthwise::LONGEST,
            "elements of an axis of such features with its padding: beyond, they go the way of others",
        ),
        Threshold::new("conv.results", depthwise::RESULTS, "results of a row of such features: beyond, several chunks"),
        Threshold::new(
            "conv.lanes",
            depthwise::LANES,
            "width of such features: up to here half as many results at a time, of cotangents from here whole vectors",
        ),
        Threshold::new(
            "conv.fewer",
            col2im::FEWER,
            "input features of a spread input by output features: from here its elements are spread after they are multiplied",
        ),
        Threshold::new(
            "conv.seen",
            direct::SEEN_BYTES / 4,
            "elements of the input that results see: beyond, it has parts",
        ),
        Threshold::new(
            "conv.chain",
            gradient::CHAIN,
            "positions of an image: beyond, a kernel's gradient is several sums",
        ),
        Threshold::new(
            "conv.volumes",
            conv3d_as_2d::PLANES,
            "elements of all images' planes: beyond, fewer images at a time",
        ),
        Threshold::new("conv.piece", PIECE_BYTES / 4, "elements of an image's windows in other dtypes: beyond, pieces"),
    ]
}

/// One spatial axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    base: usize,
    window: usize,
    count: usize,
    stride: i64,
    low: i64,
    base_dilation: i64,
    window_dilation: i64,
}

/// The geometry that the generator of windows needs.
#[derive(Clone, Debug)]
struct Geometry {
    axes: [Axis; AXES],
    rank: usize,
    /// The number of elements of one feature of one image of the input.
    plane: usize,
    image: usize,
    /// The distance from one group's features or images to the next group's.
    group: usize,
    /// The number of features of a group.
    features: usize,
    /// The number of elements of a window of one feature, and of windows of an image.
    window: usize,
    positions: usize,
    images: usize,
    groups: usize,
    /// The number of windows in each piece of an image.
    piece: usize,
    /// The number of output features of a group.
    outs: usize,
    size: usize,
    dtype: DType,
    out: DType,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only kernels of x86-64 ask"))]
    avx2: bool,
}

/// A convolution that is ready to run.
pub(super) struct Convolution {
    geometry: Geometry,
    plan: GemmPlan,
    /// Whether windows are the left operand.
    wide: bool,
}

/// The context argument of the generator and the epilogue.
struct Context<'a> {
    geometry: &'a Geometry,
    x: *const u8,
    out: *mut u8,
}

/// Returns the routine of a convolution of floats.
pub(super) fn prepare(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let plain = |conv: &Conv, args: &[Type], outs: &[Type]| prepare_direct(conv, args, outs, machine);
    if let Some(routine) = conv3d_as_2d::prepare(conv, args, outs, machine) {
        return Some(routine);
    }
    if args[0].dtype.size() == 2 && conv.out.is_float() {
        // A dilated input is split into phases that are multiplied in pairs.
        let phase = |own: &Conv, args: &[Type], outs: &[Type]| match own.windows.base_dilation.iter().any(|&d| d > 1) {
            true => upcast::prepare(own, args, outs, machine),
            false => in_pairs(own, args, outs, machine),
        };
        return in_pairs(conv, args, outs, machine)
            .or_else(|| sub_pixel::prepare(conv, args, outs, phase, machine))
            .or_else(|| upcast::prepare(conv, args, outs, machine))
            .or_else(|| plain(conv, args, outs));
    }
    col2im::prepare(conv, args, outs, &plain, machine)
        .or_else(|| sub_pixel::prepare(conv, args, outs, plain, machine))
        .or_else(|| plain(conv, args, outs))
}

/// Returns the routine of a convolution of 16-bit floats that the machine multiplies directly: in pairs, or with AMX.
fn in_pairs(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (geometry, wide) = geometry(conv, args, outs, machine)?;
    // With strides for which planes of pairs are not written with vector code, pairs gain nothing.
    let slow = |a: &Axis| a.stride > 2;
    let gradient = geometry.window > KERNEL || geometry.axes.iter().any(slow);
    if (wide && gradient) || geometry.features == 1 || conv.windows.base_dilation.iter().any(|&d| d > 1) {
        return None;
    }
    if f32::kernels(machine.isa, geometry.dtype).tiles.is_some() {
        return prepare_direct(conv, args, outs, machine);
    }
    direct::prepare(&geometry, machine).map(|r| Box::new(r) as Box<dyn OpRoutine>)
}

/// Returns the geometry of a convolution of floats, and whether windows are wider than results.
fn geometry(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<(Geometry, bool)> {
    let (x, k, y) = (&args[0], &args[1], &outs[0]);
    let dtype = x.dtype;
    let accumulator = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let floats = matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
    if !floats || (conv.out != dtype && conv.out != accumulator) || x.rank() > 2 + AXES {
        return None;
    }
    let w = &conv.windows;
    let unit = Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, base_dilation: 1, window_dilation: 1 };
    let mut axes = [unit; AXES];
    let rank = (x.rank() - 2).max(1);
    for (i, axis) in axes.iter_mut().enumerate().take(x.rank() - 2) {
        *axis = Axis {
            base: x.shape[2 + i],
            window: k.shape[2 + i],
            count: y.shape[2 + i],
            stride: i64::try_from(w.strides[i]).ok()?,
            low: w.low[i],
            base_dilation: i64::try_from(w.base_dilation[i]).ok()?,
            window_dilation: i64::try_from(w.window_dilation[i]).ok()?,
        };
    }
    let (axes, rank) = merge_axes(axes, rank);
    let product = |f: fn(&Axis) -> usize| axes.iter().map(f).product::<usize>();
    let (plane, window, positions) = (product(|a| a.base), product(|a| a.window), product(|a| a.count));
    let image = plane * x.shape[1];
    let (groups, images, features) = (conv.groups * conv.batch_groups, y.shape[0], k.shape[1]);
    let outs = k.shape[0] / groups;
    // This holds for a kernel gradient, whose windows are whole images, but not for a large kernel over a narrow image.
    let last = &axes[rank - 1];
    let wide = last.window > last.count && window > positions;
    let geometry = Geometry {
        axes,
        rank,
        plane,
        image,
        group: if conv.batch_groups > 1 { images * image } else { features * plane },
        features,
        window,
        positions,
        images,
        groups,
        piece: positions,
        outs,
        size: dtype.size(),
        dtype,
        out: conv.out,
        avx2: machine.isa != Isa::Portable,
    };
    Some((geometry, wide))
}

/// Returns the routine of a convolution without further transformations.
fn prepare_direct(conv: &Conv, args: &[Type], outs: &[Type], machine: CpuContext) -> Option<Box<dyn OpRoutine>> {
    let (mut geometry, wide) = geometry(conv, args, outs, machine)?;
    if let Some(routine) = depthwise::prepare(&geometry, machine) {
        return Some(Box::new(routine));
    }
    if wide && let Some(routine) = gradient::prepare(&geometry, machine) {
        return Some(Box::new(routine));
    }
    if !wide && let Some(routine) = direct::prepare(&geometry, machine) {
        return Some(Box::new(routine));
    }
    if im2col_gemm::is_applicable(&geometry, wide) {
        return Some(Box::new(im2col_gemm::Im2colConv::new(geometry, machine)));
    }
    let Geometry { dtype, outs, groups, images, positions, .. } = geometry;
    let depth = geometry.features * geometry.window;
    let last = geometry.axes[geometry.rank - 1];
    let weights = MatrixLayout { row: depth as isize, col: 1, batch: [0, (outs * depth) as isize, 0] };
    let problem = if wide {
        GemmProblem {
            batch: [1, groups, 1],
            a: OperandSource::Generated { batched: true },
            b: OperandSource::Memory(weights.transposed()),
            c: OutputKind::Epilogue { whole_rows: false },
            ..GemmProblem::new(images * positions, depth, outs, dtype)
        }
    } else {
        // Pieces are whole lines of the result, of nearly equal number.
        let lines = positions / last.count.max(1);
        let fits = |n: &usize| lines.is_multiple_of(*n) && depth * (positions / n) * 4 <= PIECE_BYTES;
        let pieces = (1..=lines.max(1)).find(fits).unwrap_or(1);
        geometry.piece = positions / pieces;
        let (piece, positions) = (geometry.piece as isize, positions as isize);
        let out = (outs * groups) as isize;
        let c = MatrixLayout { row: positions, col: 1, batch: [out * positions, outs as isize * positions, piece] };
        GemmProblem {
            batch: [images, groups, pieces],
            a: OperandSource::Memory(weights),
            b: OperandSource::Generated { batched: true },
            c: OutputKind::Memory { dtype: conv.out, layout: c, accumulate: false },
            ..GemmProblem::new(outs, depth, geometry.piece, dtype)
        }
    };
    let plan = GemmPlan::with_isa(&problem, machine.threads, machine.isa).ok()?;
    Some(Box::new(Convolution { geometry, plan, wide }))
}

/// Merges adjacent axes whose windows cover the whole axis or have one element. The runs along memory become longer.
fn merge_axes(mut axes: [Axis; AXES], mut rank: usize) -> ([Axis; AXES], usize) {
    let plain = |a: &Axis| a.low == 0 && a.base_dilation == 1 && a.window_dilation == 1;
    let all = |a: &Axis| plain(a) && a.count == 1 && a.window == a.base;
    let one = |a: &Axis| plain(a) && a.window == 1 && a.stride == 1 && a.count == a.base;
    while let Some(i) = (1..rank).find(|&i| {
        let (a, b) = (&axes[i - 1], &axes[i]);
        (all(a) && all(b)) || (one(a) && one(b))
    }) {
        let b = axes[i];
        let a = &mut axes[i - 1];
        *a = Axis { base: a.base * b.base, window: a.window * b.window, count: a.count * b.count, stride: 1, ..*a };
        axes[i] = Axis { base: 1, window: 1, count: 1, stride: 1, low: 0, base_dilation: 1, window_dilation: 1 };
        axes[i..].rotate_left(1);
        rank -= 1;
    }
    (axes, rank)
}

impl OpRoutine for Convolution {
    fn scratch_bytes(&self) -> usize {
        self.plan.scratch_bytes()
    }

    unsafe fn run(&self, pool: &ThreadPool, args: &[*const u8], outs: &[*mut u8], scratch: *mut u8) -> Result<()> {
        let context = Context { geometry: &self.geometry, x: args[0], out: outs[0] };
        let ctx = (&raw const context).cast::<c_void>();
        let f = match (self.wide, self.geometry.size) {
            (true, 2) => generate::<u16, true>,
            (true, 4) => generate::<u32, true>,
            (true, _) => generate::<u64, true>,
            (false, 2) => generate::<u16, false>,
            (false, 4) => generate::<u32, false>,
            (false, _) => generate::<u64, false>,
        };
        let (kernel, windows) = (GemmOperand::Memory(args[1]), GemmOperand::Generated { f, ctx });
        // SAFETY: the plan was made for these shapes, and the context outlives the call.
        unsafe {
            if self.wide {
                self.plan.run(pool, windows, kernel, GemmOutput::Epilogue { f: store, ctx }, scratch);
            } else {
                self.plan.run(pool, kernel, windows, GemmOutput::Memory(outs[0]), scratch);
            }
        }
        Ok(())
    }
}
