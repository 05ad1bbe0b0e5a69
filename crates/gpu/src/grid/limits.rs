//! The capabilities of a GPU.

/// The capabilities of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GridLimits {
    /// The maximum number of threads of a block; a power of two.
    pub threads: u32,
    /// The default number of threads of a block; a power of two.
    pub default_threads: u32,
    /// The threads of a subgroup, if kernels may exchange values in one; a power of two, at most `default_threads`.
    pub subgroup_size: Option<u32>,
    /// The maximum bytes of shared memory of a block.
    pub max_shared_bytes: usize,
    /// The maximum number of blocks of a launch.
    pub blocks: u32,
    /// The maximum number of blocks of a launch whose teams have spilled private memory.
    pub max_spill_blocks: u32,
    /// The number of threads that saturates the device.
    pub saturating_threads: u32,
    /// The minimum side of a tile in elements, a power of two: for strided accesses, a block processes a square tile.
    pub tile: u32,
    /// The maximum bytes of an access.
    pub max_access_bytes: usize,
    /// The minimum bytes of a store, and of an element of a shared array. If that is more than one, each lane processes
    /// adjacent elements where possible, so that it stores whole words.
    pub min_store_bytes: usize,
    /// Whether it supports 64-bit integers.
    pub has_int64: bool,
    /// Whether it supports f64.
    pub has_f64: bool,
}

impl GridLimits {
    /// The limits of CUDA, with the shared memory that every device has by default.
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

    /// The limits that every WebGPU adapter guarantees.
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
