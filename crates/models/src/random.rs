//! Pseudo-random numbers with a state of one word, so that a checkpoint can store it.

/// SplitMix64: every state is valid, and streams of different seeds don't overlap in practice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Creates a generator from a seed; `stream` separates several uses of one seed.
    pub fn new(seed: u64, stream: u64) -> SplitMix64 {
        let mut random = SplitMix64 { state: seed ^ stream.wrapping_mul(0xD1B5_4A32_D192_ED03) };
        random.state = random.next();
        random
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "not an iterator: it never ends and is not iterated")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform integer below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product; its bias is below 2⁻³² for the bounds used here.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A uniform number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A random element.
    pub fn choice<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A standard normal number, by the Box–Muller transform.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
