//! Reads and writes several bundles together:
//! each element index of all lines has several vectors, from which the bundles take their lines.
//!
//! If there are fewer adjacent lines than lanes, lines of several outer indices are transposed as if they were one
//! line. If rows are long, each row is in another page, and the columns of several bundles are read from it at once.

use super::batched::{AxisStep, Block, L2_BYTES, LineTransform};
use super::lanes::{FftFloat, FftVector, FinalScale, LinePointers, TransformBuffers};
use super::load_store::Planes;
use super::real_lines::RealBuffers;
use crate::thresholds::Threshold;

/// The maximum number of bundles of columns that are read at once.
const TOGETHER: usize = 4;
/// The minimum bytes of the rows of a plane at which that is faster: the TLB covers fewer pages.
const MANY_PAGES: usize = 11 << 18;

pub(super) const THRESHOLDS: &[Threshold] = &[Threshold::new(
    "fourier.pages",
    MANY_PAGES,
    "bytes of a plane's rows: from here several bundles of columns are read at once",
)];

impl<T: FftFloat> AxisStep<T> {
    /// Returns the step with blocks, if they are faster.
    pub(super) fn blocked(mut self, threads: usize) -> AxisStep<T> {
        let bytes = |many: usize| self.elements() * many * 2 * self.lanes * size_of::<T>();
        let complex = matches!(self.kind, LineTransform::Complex { .. });
        let (inner, outer, lanes) = (self.inner, self.outer, self.lanes);
        if inner > 1 && inner < lanes && 2 * bytes(inner) <= L2_BYTES {
            // The number of lines per vector for either choice.
            let (beside, out) = (inner, outer.div_ceil(outer.div_ceil(lanes)));
            let half = |n: usize| if n <= lanes / 2 { 2 * n } else { n };
            let enough = outer.div_ceil(lanes) >= threads;
            self.block = (enough && half(out) > half(beside)).then_some(Block::Turned);
        } else if complex && inner >= 2 * lanes && self.from * inner * size_of::<T>() >= MANY_PAGES {
            let many = (2..=TOGETHER).rev().find(|&m| bytes(m) <= L2_BYTES / 2 && inner >= m * lanes * threads);
            self.block = many.map(Block::Columns);
        }
        self
    }

    /// The number of complex elements of a block that is read, and of a block that is written if it is separate.
    pub(super) fn block_elements(&self) -> usize {
        let both = if matches!(self.kind, LineTransform::Complex { .. }) { 1 } else { 2 };
        match self.block {
            None => 0,
            Some(Block::Turned) => both * self.elements() * self.inner,
            Some(Block::Columns(many)) => self.elements() * many,
        }
    }

    /// # Safety
    /// As for [`Step::bundle`].
    #[inline(always)]
    pub(super) unsafe fn run_block<V: FftVector<Elem = T>>(
        &self,
        bundle: usize,
        from: Planes<T>,
        to: Planes<T>,
        a: *mut T,
    ) {
        let l = V::LANES;
        let x = a.wrapping_add(self.block_elements() * 2 * l);
        let [y, z] = [1, 2].map(|i| x.wrapping_add(i * self.elements() * 2 * l));
        let (source, target) = (self.place(bundle, self.source()), self.place(bundle, self.target()));
        let (finish, factor) = (FinalScale::Factor(self.factor), self.factor);
        let home = LinePointers::buffer::<V>(self.plan.result_buffer(x, y));
        let all = LinePointers::buffer::<V>(a);
        // SAFETY: the planes are those of the step, `a` and its scratch have room for the block, nothing else accesses
        // the bundle, and every place is inside of its plane or buffer.
        unsafe {
            if let (Some(Block::Columns(many)), LineTransform::Complex { inverse }) = (self.block, self.kind) {
                let lines = source.count;
                let vectors = lines.div_ceil(l);
                for (plane, own) in [(from.re, all.re), (from.im, all.im)] {
                    for k in 0..self.from {
                        for i in 0..vectors {
                            let count = l.min(lines - i * l);
                            let row = plane.at(source.at + k * source.element + i * l);
                            V::load_first(row, count).store(own.add((k * many + i) * 2 * l));
                        }
                    }
                }
                for i in 0..vectors {
                    let own = all.every_nth(i, many).exchanged(inverse);
                    V::transform(&self.plan, TransformBuffers { from: own, to: own, x, y, z, finish });
                }
                for (plane, own) in [(to.re, all.re), (to.im, all.im)] {
                    for k in 0..self.to {
                        for i in 0..vectors {
                            let count = l.min(lines - i * l);
                            let row = plane.at(target.at + k * target.element + i * l);
                            V::load(own.add((k * many + i) * 2 * l)).store_first(row, count);
                        }
                    }
                }
                return;
            }
            let many = self.inner;
            let b = a.wrapping_add(self.elements() * many * 2 * l);
            let (n_from, n_to) = (self.source() * many, self.target() * many);
            match self.kind {
                LineTransform::Real => V::read(from.re.at(source.at), source, n_from, a, l),
                _ => {
                    V::read(from.re.at(source.at), source, n_from, a, 2 * l);
                    V::read(from.im.at(source.at), source, n_from, a.add(l), 2 * l);
                }
            }
            for i in 0..many {
                let (own, result) = (all.every_nth(i, many), LinePointers::buffer::<V>(b).every_nth(i, many));
                // The location of element `i` of all half-length lines.
                let halves =
                    |p: *mut T| LinePointers { re: p.add(i * l), im: p.add((many + i) * l), step: 2 * many * l };
                let way = |back: bool, real: *mut T, spectrum: LinePointers<T>| RealBuffers {
                    back,
                    real: real.add(i * l),
                    step: many * l,
                    spectrum,
                    factor,
                    z,
                };
                match (self.kind, &self.odd) {
                    (LineTransform::Complex { inverse }, _) => {
                        let own = own.exchanged(inverse);
                        V::transform(&self.plan, TransformBuffers { from: own, to: own, x, y, z, finish });
                    }
                    (LineTransform::Real, Some(plan)) => V::real(plan, way(false, a, result)),
                    (LineTransform::Real, None) => {
                        V::transform(&self.plan, TransformBuffers { from: halves(a), to: home, x, y, z, finish });
                        self.untangle::<V>(home, result);
                    }
                    (LineTransform::InverseReal, odd) => {
                        // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                        let zero = V::splat(T::default());
                        zero.store(own.im);
                        if let Some(plan) = odd {
                            V::real(plan, way(true, b, own));
                        } else {
                            zero.store(own.im.add((self.from - 1) * own.step));
                            self.merge_spectrum::<V>(own, LinePointers::buffer::<V>(x));
                            let to = halves(b).exchanged(true);
                            V::transform(
                                &self.plan,
                                TransformBuffers { from: LinePointers::buffer::<V>(x), to, x, y, z, finish },
                            );
                        }
                    }
                }
            }
            match self.kind {
                LineTransform::InverseReal => V::write(b, l, to.re.at(target.at), target, n_to),
                kind => {
                    let last = if kind == LineTransform::Real { b } else { a };
                    V::write(last, 2 * l, to.re.at(target.at), target, n_to);
                    V::write(last.add(l), 2 * l, to.im.at(target.at), target, n_to);
                }
            }
        }
    }
}
