//! What a target can do.

/// What a GPU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Threads of a block at most; a power of two.
    pub threads: u32,
    /// Threads of a block where nothing speaks for more; a power of two.
    pub usual: u32,
    /// Threads of a subgroup, if kernels may exchange values in one; a power of two, at most `usual`.
    pub subgroup: Option<u32>,
    /// Bytes that a block may share.
    pub shared: usize,
    /// Blocks of a launch.
    pub blocks: u32,
    /// Blocks of a launch whose teams have private memory outside of the block.
    pub spilling: u32,
    /// Threads that keep the whole device busy.
    pub busy: u32,
    /// Elements of the side of a tile at least, a power of two: where lanes jump through memory, a block takes a square of it.
    pub tile: u32,
    /// Bytes of the widest access.
    pub access: usize,
    /// Bytes that a store touches at least, and an element of a shared array has. Where that is more than one, lanes take so
    /// many neighbours that what they store are whole words, wherever they can.
    pub word: usize,
    /// Whether it computes with 64-bit integers.
    pub wide_ints: bool,
    /// Whether it computes with f64.
    pub doubles: bool,
}

impl Limits {
    /// CUDA, without asking for more shared memory than every device gives.
    pub const CUDA: Limits = Limits {
        threads: 1024,
        usual: 256,
        subgroup: Some(32),
        shared: 48 << 10,
        blocks: i32::MAX as u32,
        spilling: 1024,
        busy: 1 << 18,
        tile: 16,
        access: 16,
        word: 1,
        wide_ints: true,
        doubles: true,
    };

    /// What every WebGPU adapter gives.
    pub const WEBGPU: Limits = Limits {
        threads: 256,
        usual: 128,
        subgroup: None,
        shared: 16 << 10,
        blocks: 65_535,
        spilling: 512,
        busy: 1 << 16,
        tile: 16,
        access: 16,
        word: 4,
        wide_ints: false,
        doubles: false,
    };
}
