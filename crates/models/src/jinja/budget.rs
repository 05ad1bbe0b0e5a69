//! Bounds on what rendering a template may take.

use std::cell::Cell;

/// Steps of evaluation: about half a second.
pub(super) const STEPS: u64 = 4_000_000;
/// Bytes that a step may read or write.
const BYTES_PER_STEP: usize = 64;
/// Bytes that values and results may take at a time.
pub(super) const MEMORY: usize = 64 << 20;
/// How deeply evaluation may recurse: macros that call themselves, nested statements, expressions and values.
pub(super) const DEPTH: u32 = 320;
/// How deeply lists and dicts may be nested.
pub(super) const VALUE_DEPTH: u32 = 150;
/// How deeply expressions and statements of a source may be nested.
pub(super) const SOURCE_DEPTH: u32 = 80;
/// How many operators may follow each other in an expression.
pub(super) const HEIGHT: u32 = 200;
/// The longest source.
pub(super) const SOURCE: usize = 512 << 10;

thread_local! {
    /// Bytes of the values that exist on this thread.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
    static LEVEL: Cell<u32> = const { Cell::new(0) };
}

/// Begins a rendering. No value of another one exists on this thread.
pub(super) fn reset() {
    STEPS_LEFT.set(STEPS);
    LIVE.set(0);
    LEVEL.set(0);
}

/// Takes steps.
pub(super) fn use_steps(n: u64) -> Result<(), String> {
    let left = STEPS_LEFT.get().checked_sub(n);
    STEPS_LEFT.set(left.unwrap_or(0));
    left.map(|_| ()).ok_or_else(|| format!("rendering takes more than {STEPS} steps, which is the limit"))
}

/// Takes the steps of reading or writing some bytes.
pub(super) fn use_bytes(bytes: usize) -> Result<(), String> {
    use_steps((bytes / BYTES_PER_STEP) as u64)
}

/// A level of recursion, for as long as this exists.
#[derive(Debug)]
pub(super) struct DepthGuard(());

/// Takes a step one level deeper.
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

/// Bytes that are counted as in use for as long as this exists.
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

/// Refuses a result of so many times so many bytes before it is made.
pub(super) fn check_size(count: usize, bytes: usize) -> Result<(), String> {
    MemoryCharge::new(count.saturating_mul(bytes)).map(|_| ())
}
