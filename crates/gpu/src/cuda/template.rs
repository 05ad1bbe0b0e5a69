//! Hand-written kernel templates with parameters, for library ops and supported composites.

/// The launches that implement one op, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchSequence {
    /// The launches.
    pub calls: Vec<TemplateLaunch>,
    /// The bytes of scratch memory that they share.
    pub scratch: usize,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateLaunch {
    /// The kernel's name in its source.
    pub entry_point: String,
    /// Its source, after the prelude. Kernels in one source share definitions through include guards.
    pub source: String,
    /// The number of blocks.
    pub blocks: usize,
    /// The threads of a block.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub dynamic_shared_bytes: u32,
    /// The pointer arguments, in order.
    pub args: Vec<TemplateArg>,
    /// The integer arguments after them.
    pub sizes: Vec<i64>,
}

/// A pointer argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateArg {
    /// An operand of the op.
    Operand(usize),
    /// A result of the op.
    Result(usize),
    /// The scratch from this byte on.
    Scratch(usize),
}

/// Transposes of byte matrices.
pub(crate) const TURN: &str = include_str!("templates/turn.cu");
/// Wrappers of Hopper's instructions.
pub(crate) const HOPPER: &str = include_str!("templates/hopper.cu");
/// Attention by blocks.
pub(crate) const ATTENTION: &str = include_str!("templates/attention.cu");
/// Attention by blocks, with a producer warp group that loads tiles.
pub(crate) const ATTENTION_FED: &str = include_str!("templates/attention_fed.cu");
/// Attention with few queries.
pub(crate) const ATTENTION_FEW: &str = include_str!("templates/attention_few.cu");
