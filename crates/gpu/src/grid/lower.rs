//! Lowers kernels to grids.

use super::emit::Emit;
use super::shape::choose;
use super::{AddressSpace, GridKernel, GridLimits, LaunchInfo, Stmt};
use compiler::loops;
use compiler::loops::index_analysis::IndexAnalysis;
use ir::DType;

/// Why a kernel cannot be lowered to a grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages are the documentation")]
pub enum LowerError {
    #[error("kernel {kernel}: {error}")]
    Invalid { kernel: String, error: loops::KernelError },
    #[error("kernel {kernel} takes {expected} sizes, but {found} were given")]
    Sizes { kernel: String, expected: usize, found: usize },
    #[error("kernel {kernel} needs {dtype}, which this device does not compute with; {remedy}")]
    DType { kernel: String, dtype: DType, remedy: &'static str },
}

/// The grid of a kernel, for one launch of it.
///
/// Iterations of the parallel loop, and of serial loops that provably do not depend on each other, are distributed over teams. A
/// team has as many lanes as its vector loops can use: one for a row without any, a part of a subgroup for short rows, a
/// subgroup for many longer ones, a block for long ones. A row that is one vector loop without carried values is split into
/// pieces, so that a few long rows can use the whole device.
pub fn lower(kernel: &loops::Kernel, limits: &GridLimits, given: &LaunchInfo) -> Result<GridKernel, LowerError> {
    let name = || kernel.name.clone();
    loops::verify(kernel).map_err(|error| LowerError::Invalid { kernel: name(), error })?;
    if kernel.sizes as usize != given.sizes.len() {
        return Err(LowerError::Sizes { kernel: name(), expected: kernel.sizes as usize, found: given.sizes.len() });
    }
    let facts = IndexAnalysis::new(kernel, given);
    let mut grid = Emit::new(&facts, limits, choose(&facts, limits, true), true).run();
    if !waits(&grid.body) {
        // Teams without barriers may have any size; but a team of a single lane may be without barriers only because of its size.
        let other = Emit::new(&facts, limits, choose(&facts, limits, false), false).run();
        if !waits(&other.body) {
            grid = other;
        }
    }
    let own = kernel.buffers.len() as u32;
    super::sink::sink(&mut grid, &|b| b.0 >= own || facts.is_scratch(b) || facts.written(b));
    debug_assert_eq!(super::verify(&grid), Ok(()), "{grid}");
    let wide = wide_index(&grid.body).then_some(DType::I64);
    let dtypes = grid.regs.iter().copied().chain(grid.memory.iter().map(|m| m.dtype)).chain(wide);
    for d in dtypes {
        let remedy = match d {
            DType::I64 | DType::U64 if !limits.has_int64 => {
                "use 32-bit integers, or tensors of fewer than 2³¹ elements"
            }
            DType::F64 if !limits.has_f64 => "use f32",
            _ => continue,
        };
        return Err(LowerError::DType { kernel: name(), dtype: d, remedy });
    }
    Ok(grid)
}

fn wide_index(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Let { op: super::Op::Index(i), .. } | Stmt::Load { index: i, .. } | Stmt::Store { index: i, .. } => {
            i.wide
        }
        Stmt::Loop(l) => wide_index(&l.body),
        Stmt::If { body, .. } => wide_index(body),
        _ => false,
    })
}

/// Whether a body contains barriers.
pub(super) fn waits(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Barrier(_) | Stmt::Exchange { .. } => true,
        Stmt::Loop(l) => waits(&l.body),
        Stmt::If { body, .. } => waits(body),
        _ => false,
    })
}

impl GridKernel {
    /// Whether it needs memory outside the block for its teams.
    pub fn spills(&self) -> bool {
        self.memory.iter().any(|m| matches!(m.space, AddressSpace::Spill(_)))
    }
}
