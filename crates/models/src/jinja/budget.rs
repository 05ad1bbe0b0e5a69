//! Limits on the time and memory of rendering a template.

use std::cell::Cell;

/// Maximum number of evaluation steps: about half a second.
pub(super) const STEPS: u64 = 4_000_000;
/// Bytes that one step may read or write.
const BYTES_PER_STEP: usize = 64;
/// Maximum number of bytes of live values and output.
pub(super) const MEMORY: usize = 64 << 20;
/// Maximum recursion depth: recursive macros, nested statements, expressions and values.
pub(super) const DEPTH: u32 = 320;
/// Maximum nesting depth of lists and dicts.
pub(super) const VALUE_DEPTH: u32 = 150;
/// Maximum nesting depth of expressions and statements in a source.
pub(super) const SOURCE_DEPTH: u32 = 80;
/// Maximum number of consecutive operators in an expression.
pub(super) const HEIGHT: u32 = 200;
/// Maximum size of a source in bytes.
pub(super) const SOURCE: usize = 512 << 10;

thread_local! {
    /// Bytes of the live values of this thread.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
    static LEVEL: Cell<u32> = const { Cell::new(0) };
}

/// Starts a rendering. No value of another rendering is live on this thread.
pub(super) fn reset() {
    STEPS_LEFT.set(STEPS);
    LIVE.set(0);
    LEVEL.set(0);
}

/// Consumes steps.
pub(super) fn use_steps(n: u64) -> Result<(), String> {
    let left = STEPS_LEFT.get().checked_sub(n);
    STEPS_LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| format!("rendering takes more than {STEPS} steps, which is the limit"))
}

/// Consumes the steps of reading or writing this many bytes.
pub(super) fn use_bytes(bytes: usize) -> Result<(), String> {
    use_steps((bytes / BYTES_PER_STEP) as u64)
}

/// A guard of one level of recursion.
#[derive(Debug)]
pub(super) struct DepthGuard(());

/// Consumes a step and enters a level of recursion.
pub(super) fn enter_level() -> Result<DepthGuard, String> {
    use_steps(1)?;
    if LEVEL.get() >= DEPTH {
        return Err(format!("evaluation is nested more than {DEPTH} deep, which is the limit"));
    }
    LEVEL.set(LEVEL.get() + 1);
    Ok(DepthGuard(()))
}

impl Drop for DepthGuard {
    fn drop(&mut self) {
        LEVEL.set(LEVEL.get().saturating_sub(1));
    }
}

/// A guard of bytes that are counted as in use.
#[derive(Debug, Default)]
pub(super) struct MemoryCharge(usize);

impl MemoryCharge {
    pub(super) fn new(bytes: usize) -> Result<MemoryCharge, String> {
        let mut charge = MemoryCharge(0);
        charge.grow(bytes)?;
        Ok(charge)
    }

    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), String> {
        let all = LIVE.get().checked_add(bytes).filter(|all| *all <= MEMORY);
        let all = all.ok_or_else(|| format!("rendering takes more than {} MB, which is the limit", MEMORY >> 20))?;
        use_bytes(bytes)?;
        LIVE.set(all);
        self.0 += bytes;
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        LIVE.set(LIVE.get().saturating_sub(self.0));
    }
}

/// Fails if `count` times `bytes` exceeds the memory limit, before the result is allocated.
pub(super) fn check_size(count: usize, bytes: usize) -> Result<(), String> {
    MemoryCharge::new(count.saturating_mul(bytes)).map(|_| ())
}
