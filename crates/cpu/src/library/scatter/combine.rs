//! How updates meet the elements that are there, one by one and a few side by side.

use crate::library::element::Element;
use std::marker::PhantomData;

/// How an update meets the element that is there.
pub(super) trait Combine<T>: Send + Sync + 'static {
    /// Whether programs often do so: then few updates, and indices of 32 bits, have code of their own.
    const OFTEN: bool;
    /// Whether the result is one of both.
    const PICKS: bool;
    fn apply(old: T, new: T) -> T;
    /// Whether updates may be combined in any order and grouping: integers that are added, multiplied or compared.
    fn free_order(_: PhantomData<T>) -> bool {
        false
    }
}

macro_rules! combines {
    ($($name:ident, $free:expr, $often:expr, $picks:expr, ($a:ident, $b:ident) => $e:expr);*) => {$(
        pub(super) struct $name;
        impl<T: Element> Combine<T> for $name {
            const OFTEN: bool = $often;
            const PICKS: bool = $picks;
            fn free_order(_: PhantomData<T>) -> bool {
                $free && T::IS_INT
            }
            #[inline(always)]
            fn apply($a: T, $b: T) -> T {
                $e
            }
        }
    )*};
}
combines!(
    Set, false, true, false, (_a, b) => b;
    Add, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), false, (a, b) => a.add(b);
    Mul, true, false, false, (a, b) => a.mul(b);
    Min, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), true, (a, b) => a.smaller(b);
    Max, true, size_of::<T>() >= 4 || (size_of::<T>() == 2 && !T::IS_INT), true, (a, b) => a.larger(b)
);

/// The same place, which the compiler doesn't know for it: told that what is there stays where an extremum is no new one, it would write
/// the others alone, and processors are slow at that.
#[inline(always)]
fn unknown<T>(p: *mut T) -> *mut T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut p = p;
        // SAFETY: nothing happens.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, nomem, nostack, preserves_flags)) };
        p
    }
    #[cfg(not(target_arch = "x86_64"))]
    p
}

/// Combines so few adjacent updates that they are read before the first is written: vectors of them need not ask whether both overlap.
///
/// # Safety
/// Both are good for `N` elements that nobody else has.
#[inline(always)]
pub(super) unsafe fn apply_few<T: Element, C: Combine<T>, const N: usize>(y: *mut T, updates: *const T) {
    // SAFETY: the caller's promise.
    unsafe {
        let (old, new) = (y.cast::<[T; N]>().read(), updates.cast::<[T; N]>().read());
        let to = if C::PICKS && N > 1 { unknown(y) } else { y };
        to.cast::<[T; N]>().write(std::array::from_fn(|i| C::apply(old[i], new[i])));
    }
}

/// Adjacent updates that are combined together.
const AT_ONCE: usize = 16;

/// Combines `n` adjacent updates.
///
/// # Safety
/// Both are good for `n` elements that nobody else has.
#[inline(always)]
pub(super) unsafe fn apply<T: Element, C: Combine<T>>(y: *mut T, updates: *const T, n: usize) {
    let mut i = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while i + AT_ONCE <= n {
            apply_few::<T, C, AT_ONCE>(y.add(i), updates.add(i));
            i += AT_ONCE;
        }
        if C::OFTEN && n - i >= AT_ONCE / 2 {
            apply_few::<T, C, { AT_ONCE / 2 }>(y.add(i), updates.add(i));
            i += AT_ONCE / 2;
        }
        if C::OFTEN && n - i >= AT_ONCE / 4 {
            apply_few::<T, C, { AT_ONCE / 4 }>(y.add(i), updates.add(i));
            i += AT_ONCE / 4;
        }
        while i < n {
            apply_few::<T, C, 1>(y.add(i), updates.add(i));
            i += 1;
        }
    }
}

/// Combines single updates with a table: a histogram.
///
/// # Safety
/// There are `n` indices and updates, and places of the table up to `room`.
pub(super) unsafe fn counted<T: Element, C: Combine<T>>(
    table: *mut T,
    index: *const i32,
    updates: *const T,
    n: usize,
    room: u32,
    clip: bool,
) {
    // Pointers are plain arguments here: what closures catch would be read again after every write.
    #[inline(always)]
    unsafe fn all<T: Element, C: Combine<T>, const CLIP: bool>(
        table: *mut T,
        index: *const i32,
        updates: *const T,
        n: usize,
        room: u32,
    ) {
        for j in 0..n {
            // SAFETY: the caller's promise.
            unsafe {
                let i = *index.add(j);
                let place = if CLIP { i.clamp(0, room as i32) as u32 } else { i as u32 };
                if place <= room {
                    let to = table.add(place as usize);
                    *to = C::apply(*to, *updates.add(j));
                }
            }
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        match clip {
            true => all::<T, C, true>(table, index, updates, n, room),
            false => all::<T, C, false>(table, index, updates, n, room),
        }
    }
}
