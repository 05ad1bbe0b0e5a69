//! The element types of routines, with the arithmetic of the reference interpreter.

use super::half_floats::HalfFloat;
use half::{bf16, f16};
use ir::ops::ReduceKind;
use ir::{DType, Scalar};

/// An element of a tensor.
pub(super) trait Element: Copy + Send + Sync + 'static {
    /// The accumulator type of sums and products: f64 for floats, the type itself for integers.
    type Sum: Copy + Send + Sync;
    /// The type in which elements are compared, which has vector lanes.
    type Compared: Element;
    fn compared(self) -> Self::Compared;
    /// Converts back from the compared type.
    fn from_compared(x: Self::Compared) -> Self;
    /// Whether combining is exact, so that it may be done in any order.
    const IS_INT: bool = false;
    fn from_scalar(s: Scalar) -> Self;
    fn widen(self) -> Self::Sum;
    fn rounded(x: Self::Sum) -> Self;
    fn sum(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn product(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn zero() -> Self::Sum;
    fn larger(self, b: Self) -> Self;
    fn smaller(self, b: Self) -> Self;
    fn is_nan(self) -> bool;
    fn less(self, b: Self) -> bool;
    /// Returns bits that sort like the elements: NaN above all numbers, −0 equal to 0.
    fn key(self) -> u64;
    /// Returns the element of a key, and whether the key determines it: not for one of the zeros, and not for most NaN.
    fn of_key(key: u64) -> Self;
    fn is_of_key(self) -> bool;

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self::rounded(Self::sum(self.widen(), b.widen()))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self::rounded(Self::product(self.widen(), b.widen()))
    }
    /// Returns whether this element replaces `best` as the first extremum: NaN beats numbers, and nothing beats an equal element.
    #[inline(always)]
    fn beats(self, best: Self, max: bool) -> bool {
        // Without branches, so that loops can be vectorized.
        !best.is_nan() & (self.is_nan() | if max { best.less(self) } else { self.less(best) })
    }
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $x:ident => $wide:expr, $w:ident => $narrow:expr $(, $native:ident)?);*) => {$(
        impl Element for $t {
            $(
            // The sum in f64, rounded once, is the correctly rounded sum.
            #[inline(always)]
            fn $native(self, b: Self) -> Self {
                self + b
            }
            )?
            type Compared = Self;
            #[inline(always)]
            fn compared(self) -> Self {
                self
            }
            #[inline(always)]
            fn from_compared(x: Self) -> Self {
                x
            }
            type Sum = f64;
            fn from_scalar(s: Scalar) -> Self {
                Self::rounded(s.to_f64())
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                let $x = self;
                $wide
            }
            #[inline(always)]
            fn rounded($w: f64) -> Self {
                $narrow
            }
            #[inline(always)]
            fn sum(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn product(a: f64, b: f64) -> f64 {
                a * b
            }
            fn zero() -> f64 {
                0.0
            }
            #[inline(always)]
            fn larger(self, b: Self) -> Self {
                if self.is_nan() | (self > b) { self } else { b }
            }
            #[inline(always)]
            fn smaller(self, b: Self) -> Self {
                if self.is_nan() | (self < b) { self } else { b }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
            #[inline(always)]
            fn less(self, b: Self) -> bool {
                self < b
            }
            #[inline(always)]
            fn key(self) -> u64 {
                let bits = self.to_bits();
                let sign: $bits = 1 << (<$bits>::BITS - 1);
                // The sign is unpredictable, so bits are flipped without a branch.
                let flipped = bits ^ ((bits >> (<$bits>::BITS - 1)).wrapping_neg() | sign);
                let number = if bits & !sign == 0 { sign } else { flipped };
                (if self.is_nan() { <$bits>::MAX } else { number }) as u64
            }
            #[inline(always)]
            fn of_key(key: u64) -> Self {
                let (bits, sign) = (key as $bits, 1 << (<$bits>::BITS - 1));
                Self::from_bits(if bits & sign != 0 { bits & !sign } else { !bits })
            }
            #[inline(always)]
            fn is_of_key(self) -> bool {
                self.to_bits() == Self::of_key(self.key()).to_bits()
            }
        }
    )*};
}
floats!(
    f32, u32, x => x as f64, x => x as f32, add;
    f64, u64, x => x, x => x, add
);

macro_rules! small_floats {
    ($($t:ty),*) => {$(
        impl Element for $t {
            type Sum = f64;
            type Compared = f32;
            #[inline(always)]
            fn compared(self) -> f32 {
                HalfFloat::to_f32(self)
            }
            #[inline(always)]
            fn from_compared(x: f32) -> Self {
                HalfFloat::of_f32(x)
            }
            fn from_scalar(s: Scalar) -> Self {
                Self::rounded(s.to_f64())
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                HalfFloat::to_f32(self) as f64
            }
            #[inline(always)]
            fn rounded(x: f64) -> Self {
                HalfFloat::of_f64(x)
            }
            #[inline(always)]
            fn sum(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn product(a: f64, b: f64) -> f64 {
                a * b
            }
            fn zero() -> f64 {
                0.0
            }
            // An f32 has more than twice as many significant bits, so rounding a sum twice equals rounding it once.
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                HalfFloat::of_f32(HalfFloat::to_f32(self) + HalfFloat::to_f32(b))
            }
            #[inline(always)]
            fn larger(self, b: Self) -> Self {
                if self.not_a_number() | b.below(self) { self } else { b }
            }
            #[inline(always)]
            fn smaller(self, b: Self) -> Self {
                if self.not_a_number() | self.below(b) { self } else { b }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.not_a_number()
            }
            #[inline(always)]
            fn less(self, b: Self) -> bool {
                self.below(b)
            }
            #[inline(always)]
            fn key(self) -> u64 {
                let bits = self.to_bits();
                let flipped = bits ^ ((bits >> 15).wrapping_neg() | 0x8000);
                let number = if bits & 0x7fff == 0 { 0x8000 } else { flipped };
                (if self.not_a_number() { u16::MAX } else { number }) as u64
            }
            #[inline(always)]
            fn of_key(key: u64) -> Self {
                let bits = key as u16;
                Self::from_bits(if bits & 0x8000 != 0 { bits & 0x7fff } else { !bits })
            }
            #[inline(always)]
            fn is_of_key(self) -> bool {
                self.to_bits() == Self::of_key(self.key()).to_bits()
            }
        }
    )*};
}
small_floats!(f16, bf16);

macro_rules! integers {
    ($($t:ty, $unsigned:ty, $flip:expr);*) => {$(
        impl Element for $t {
            type Compared = Self;
            #[inline(always)]
            fn compared(self) -> Self {
                self
            }
            #[inline(always)]
            fn from_compared(x: Self) -> Self {
                x
            }
            type Sum = $t;
            const IS_INT: bool = true;
            fn from_scalar(s: Scalar) -> Self {
                s.bits() as $t
            }
            #[inline(always)]
            fn widen(self) -> $t {
                self
            }
            #[inline(always)]
            fn rounded(x: $t) -> $t {
                x
            }
            #[inline(always)]
            fn sum(a: $t, b: $t) -> $t {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn product(a: $t, b: $t) -> $t {
                a.wrapping_mul(b)
            }
            fn zero() -> $t {
                0
            }
            #[inline(always)]
            fn larger(self, b: Self) -> Self {
                Ord::max(self, b)
            }
            #[inline(always)]
            fn smaller(self, b: Self) -> Self {
                Ord::min(self, b)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn less(self, b: Self) -> bool {
                self < b
            }
            #[inline(always)]
            fn key(self) -> u64 {
                (self as $unsigned ^ $flip) as u64
            }
            #[inline(always)]
            fn of_key(key: u64) -> Self {
                (key as $unsigned ^ $flip) as Self
            }
            #[inline(always)]
            fn is_of_key(self) -> bool {
                true
            }
        }
    )*};
}
integers!(
    i8, u8, 1 << 7; i16, u16, 1 << 15; i32, u32, 1 << 31; i64, u64, 1 << 63;
    u8, u8, 0; u16, u16, 0; u32, u32, 0; u64, u64, 0
);

/// A fold: a way of combining elements one after the other.
pub(super) trait FoldOp<T: Element>: Send + Sync + 'static {
    type State: Copy + Send + Sync;
    fn step(state: Self::State, x: T) -> Self::State;
    fn result(state: Self::State) -> T;
    fn start(identity: T) -> Self::State;
    /// Whether elements may be combined in any order: sums are accumulated with more precision than results have.
    const ANY_ORDER: bool;
    /// Whether parts may be folded separately and then joined; products of floats keep their order and grouping.
    const JOINS: bool;
    /// Joins the fold of the first elements with the fold of the elements after them.
    fn join(first: Self::State, rest: Self::State) -> Self::State;
}

macro_rules! folds {
    ($($name:ident, $any:literal, $joins:expr, $state:ty, ($s:ident, $x:ident) => $step:expr, $r:ident => $result:expr, $i:ident => $start:expr, ($a:ident, $b:ident) => $join:expr);*) => {$(
        pub(super) struct $name;
        impl<T: Element> FoldOp<T> for $name {
            type State = $state;
            const ANY_ORDER: bool = $any;
            const JOINS: bool = $joins;
            #[inline(always)]
            fn step($s: $state, $x: T) -> $state {
                $step
            }
            #[inline(always)]
            fn result($r: $state) -> T {
                $result
            }
            #[inline(always)]
            fn start($i: T) -> $state {
                $start
            }
            #[inline(always)]
            fn join($a: $state, $b: $state) -> $state {
                $join
            }
        }
    )*};
}
folds!(
    Sum, true, true, T::Sum, (s, x) => T::sum(s, x.widen()), s => T::rounded(s), i => i.widen(), (a, b) => T::sum(a, b);
    Product, false, T::IS_INT, T::Sum, (s, x) => T::product(s, x.widen()), s => T::rounded(s), i => i.widen(), (a, b) => T::product(a, b);
    Max, false, true, T::Compared, (s, x) => s.larger(x.compared()), s => T::from_compared(s), i => i.compared(), (a, b) => a.larger(b);
    Min, false, true, T::Compared, (s, x) => s.smaller(x.compared()), s => T::from_compared(s), i => i.compared(), (a, b) => a.smaller(b)
);

/// Calls a generic function with the element type of a dtype; `None` for the 8-bit floats. A boolean is a byte
/// that is 0 or 1.
macro_rules! by_dtype {
    ($dtype:expr, $t:ident => $call:expr) => {
        by_dtype!(@ $dtype, $t => $call, F32 f32, F64 f64, F16 half::f16, BF16 half::bf16, I8 i8, I16 i16, I32 i32,
            I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool u8)
    };
    (@ $dtype:expr, $t:ident => $call:expr, $($name:ident $ty:ty),*) => {
        match $dtype {
            $(ir::DType::$name => {
                type $t = $ty;
                Some($call)
            })*
            _ => None,
        }
    };
}

/// Calls a generic function with the unsigned element type of a dtype, for operations such as sums and products, whose bits do
/// not depend on the sign. So less code is compiled.
macro_rules! by_sum_dtype {
    ($dtype:expr, $t:ident => $call:expr) => {
        $crate::library::element::by_dtype!(@ $crate::library::element::unsigned($dtype), $t => $call, F32 f32, F64 f64,
            F16 half::f16, BF16 half::bf16, U8 u8, U16 u16, U32 u32, U64 u64)
    };
}

/// Calls a generic function with the element type of a dtype and the fold of a kind.
macro_rules! by_fold {
    ($dtype:expr, $kind:expr, $t:ident, $f:ident => $call:expr) => {
        match $crate::library::element::of_bools($dtype, $kind) {
            ir::ops::ReduceKind::Sum => $crate::library::element::by_sum_dtype!($dtype, $t => {
                type $f = $crate::library::element::Sum;
                $call
            }),
            ir::ops::ReduceKind::Prod => $crate::library::element::by_sum_dtype!($dtype, $t => {
                type $f = $crate::library::element::Product;
                $call
            }),
            ir::ops::ReduceKind::Max | ir::ops::ReduceKind::Any => by_dtype!($dtype, $t => {
                type $f = $crate::library::element::Max;
                $call
            }),
            ir::ops::ReduceKind::Min | ir::ops::ReduceKind::All => by_dtype!($dtype, $t => {
                type $f = $crate::library::element::Min;
                $call
            }),
        }
    };
}

/// Returns the equivalent fold for booleans: a sum is `or`, which is the maximum; a product is `and`, the minimum.
pub(super) fn of_bools(dtype: DType, kind: ReduceKind) -> ReduceKind {
    match (dtype, kind) {
        (DType::Bool, ReduceKind::Sum) => ReduceKind::Max,
        (DType::Bool, ReduceKind::Prod) => ReduceKind::Min,
        (_, kind) => kind,
    }
}

/// Returns the unsigned dtype whose sums and products have the same bits.
pub(super) fn unsigned(dtype: DType) -> DType {
    match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    }
}
pub(super) use {by_dtype, by_fold, by_sum_dtype};

/// Reads integers of a dtype as i64; a u64 that does not fit becomes the maximum.
pub(super) type Index = unsafe fn(*const u8, usize) -> i64;

/// Returns the reader of an integer dtype.
pub(super) fn index(dtype: DType) -> Index {
    /// # Safety
    /// The address is valid for element `i`.
    unsafe fn read<T: Copy + TryInto<i64>>(p: *const u8, i: usize) -> i64 {
        // SAFETY: the address is valid for element `i`.
        unsafe { *p.cast::<T>().add(i) }.try_into().unwrap_or(i64::MAX)
    }
    match dtype {
        DType::I8 => read::<i8>,
        DType::I16 => read::<i16>,
        DType::I32 => read::<i32>,
        DType::U8 => read::<u8>,
        DType::U16 => read::<u16>,
        DType::U32 => read::<u32>,
        DType::U64 => read::<u64>,
        _ => read::<i64>,
    }
}
