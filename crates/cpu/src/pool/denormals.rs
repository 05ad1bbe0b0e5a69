//! Denormal numbers: floats so small that their leading digits are zero.
//!
//! Many CPUs compute with them in microcode, a hundred times slower. Softmax over confident scores and decaying averages
//! produce millions of them where they do not matter, so a backend may flush them to zero, as XLA always does.

/// How threads treat denormal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Denormals {
    /// Compute with them according to IEEE 754.
    #[default]
    Keep,
    /// Read and write them as zero.
    Flush,
}

impl Denormals {
    /// Applies this setting to the current thread until the guard is dropped.
    pub(crate) fn here(self) -> Guard {
        match self {
            Denormals::Keep => Guard(None),
            Denormals::Flush => Guard(flush()),
        }
    }
}

/// Restores the thread's setting when dropped.
pub(crate) struct Guard(Option<u32>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            set(before);
        }
    }
}

/// Flushes results (bit 15) and operands (bit 6); returns the previous setting if it was different.
#[cfg(target_arch = "x86_64")]
fn flush() -> Option<u32> {
    let mut before = 0u32;
    // SAFETY: stores the control word of this thread's vector unit to a place that is good for it.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut before, options(nostack, preserves_flags)) };
    let wanted = before | 0x8040;
    (wanted != before).then(|| {
        set(wanted);
        before
    })
}

#[cfg(target_arch = "x86_64")]
fn set(word: u32) {
    // SAFETY: a word that was read before, with the two flushing bits as they are wanted: no exception is unmasked. What is
    // compiled here computes the same under it, but for denormals.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &word, options(nostack, preserves_flags)) };
}

/// Flushes results and operands (bit 24); returns the previous setting.
#[cfg(target_arch = "aarch64")]
fn flush() -> Option<u32> {
    let before: u64;
    // SAFETY: reads the control register of this thread's floats.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) before, options(nomem, nostack, preserves_flags)) };
    set(before as u32 | 1 << 24);
    Some(before as u32)
}

#[cfg(target_arch = "aarch64")]
fn set(word: u32) {
    // SAFETY: a word that was read before, with the flushing bit as it is wanted; the upper half of the register is reserved.
    // What is compiled here computes the same under it, but for denormals.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word as u64, options(nostack, preserves_flags)) };
}

/// On other machines denormal numbers are kept.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn flush() -> Option<u32> {
    None
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set(_: u32) {}
