//! Kernels that are written by hand, with holes: what a library op or a claimed composite becomes.

/// Launches that together are one op, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchSequence {
    /// The launches.
    pub calls: Vec<TemplateLaunch>,
    /// Bytes of memory that they share.
    pub scratch: usize,
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateLaunch {
    /// The kernel's name in its text.
    pub entry_point: String,
    /// Its text, which follows the prelude. Texts that stand in one source share definitions by guards.
    pub source: String,
    /// How many blocks.
    pub blocks: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory beyond what the text declares.
    pub dynamic_shared_bytes: u32,
    /// Pointers, in order.
    pub args: Vec<TemplateArg>,
    /// Numbers that follow them.
    pub sizes: Vec<i64>,
}

/// A pointer that a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateArg {
    /// An operand of the op.
    Operand(usize),
    /// A result of the op.
    Result(usize),
    /// From this byte of the scratch on.
    Scratch(usize),
}

/// Transposes of bytes.
pub(crate) const TURN: &str = include_str!("templates/turn.cu");
/// Hopper's instructions.
pub(crate) const HOPPER: &str = include_str!("templates/hopper.cu");
/// Attention by blocks.
pub(crate) const ATTENTION: &str = include_str!("templates/attention.cu");
/// Attention by blocks that a warp group feeds.
pub(crate) const ATTENTION_FED: &str = include_str!("templates/attention_fed.cu");
/// Attention of few queries.
pub(crate) const ATTENTION_FEW: &str = include_str!("templates/attention_few.cu");
