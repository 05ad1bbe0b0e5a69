//! What a target can do.

/// What a GPU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridLimits {
    /// Threads of a block at most; a power of two.
    pub threads: u32,
    /// Threads of a block where nothing speaks for more; a power of two.
    pub default_threads: u32,
    /// Threads of a subgroup, if kernels may exchange values in one; a power of two, at most `usual`.
    pub subgroup_size: Option<u32>,
    /// Bytes that a block may share.
    pub max_shared_bytes: usize,
    /// Blocks of a launch.
    pub blocks: u32,
    /// Blocks of a launch whose teams have private memory outside of the block.
    pub max_spill_blocks: u32,
    /// Threads that keep the whole device busy.
    pub saturating_threads: u32,
    /// Elements of the side of a tile at least, a power of two: where lanes jump through memory, a block takes a square of it.
    pub tile: u32,
    /// Bytes of the widest access.
    pub max_access_bytes: usize,
    /// Bytes that a store touches at least, and an element of a shared array has. Where that is more than one, lanes take so
    /// many neighbours that what they store are whole words, wherever they can.
    pub min_store_bytes: usize,
    /// Whether it computes with 64-bit integers.
    pub has_int64: bool,
    /// Whether it computes with f64.
    pub has_f64: bool,
}

impl GridLimits {
    /// CUDA, without asking for more shared memory than every device gives.
    pub const CUDA: GridLimits = GridLimits {
        threads: 1024,
        default_threads: 256,
        subgroup_size: Some(32),
        max_shared_bytes: 48 << 10,
        blocks: i32::MAX as u32,
        max_spill_blocks: 1024,
        saturating_threads: 1 << 18,
        tile: 16,
        max_access_bytes: 16,
        min_store_bytes: 1,
        has_int64: true,
        has_f64: true,
    };

    /// What every WebGPU adapter gives.
    pub const WEBGPU: GridLimits = GridLimits {
        threads: 256,
        default_threads: 128,
        subgroup_size: None,
        max_shared_bytes: 16 << 10,
        blocks: 65_535,
        max_spill_blocks: 512,
        saturating_threads: 1 << 16,
        tile: 16,
        max_access_bytes: 16,
        min_store_bytes: 4,
        has_int64: false,
        has_f64: false,
    };
}
