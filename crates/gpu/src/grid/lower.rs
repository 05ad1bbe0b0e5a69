//! Loops → grid.

use super::emit::Emit;
use super::shape::choose;
use super::{Given, Kernel, Limits, Space, Stmt};
use compiler::loops;
use compiler::loops::facts::Facts;
use ir::DType;

/// Why a kernel has no grid.
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
/// Iterations of the parallel loop, and of serial loops that provably don't depend on each other, are shared out to teams. A team
/// has as many lanes as its vector loops can use: one for a row without any, a part of a subgroup for short rows, a
/// subgroup for many longer ones, a block for long ones. A row that is one vector loop which carries nothing is cut into pieces, so
/// that few long rows keep the whole device busy.
pub fn lower(kernel: &loops::Kernel, limits: &Limits, given: &Given) -> Result<Kernel, LowerError> {
    let name = || kernel.name.clone();
    loops::verify(kernel).map_err(|error| LowerError::Invalid { kernel: name(), error })?;
    if kernel.sizes as usize != given.sizes.len() {
        return Err(LowerError::Sizes { kernel: name(), expected: kernel.sizes as usize, found: given.sizes.len() });
    }
    let facts = Facts::new(kernel, given);
    let mut grid = Emit::new(&facts, limits, choose(&facts, limits, true), true).run();
    if !waits(&grid.body) {
        // Teams that never wait may be of any size; but one of a single lane may only be a team that never waits because of that.
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
            DType::I64 | DType::U64 if !limits.wide_ints => {
                "use 32-bit integers, or tensors of fewer than 2³¹ elements"
            }
            DType::F64 if !limits.doubles => "use f32",
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

/// Whether threads wait for each other.
pub(super) fn waits(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Barrier(_) | Stmt::Exchange { .. } => true,
        Stmt::Loop(l) => waits(&l.body),
        Stmt::If { body, .. } => waits(body),
        _ => false,
    })
}

impl Kernel {
    /// Whether it needs memory outside of the block for its teams.
    pub fn spills(&self) -> bool {
        self.memory.iter().any(|m| matches!(m.space, Space::Spill(_)))
    }
}
