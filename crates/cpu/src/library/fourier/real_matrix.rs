//! The four-step algorithm for long real lines of odd length:
//! columns are real, and half of the rows are mirror images of the other half.
//!
//! Row `k1` has the elements `k1 + n1·k2` of the spectrum. Only half of the rows are computed; their elements beyond the middle
//! of the spectrum give the mirror images, which are in no other computed row.

use super::batched::LineTransform;
use super::four_step::{Columns, FourStepFft, Line};
use super::lanes::{FftVector, FinalScale, LinePointers, TransformBuffers, conj, times};
use super::load_store::Place;
use super::real_lines::RealBuffers;
use super::twiddle::Real;
use std::ops::Range;

impl<T: Real> FourStepFft<T> {
    /// Transforms the columns of real lines of odd length, forward or inverse.
    ///
    /// # Safety
    /// The line and its scratch are valid for the plan, nothing else accesses these columns, and every place is inside
    /// of its plane or buffer.
    #[inline(always)]
    pub(super) unsafe fn real_columns<V: FftVector<Elem = T>>(&self, units: Range<usize>, line: Line<T>) {
        let Columns::Real(plan) = &self.matrix.columns else { return };
        let ((n1, n2), (x, y, z)) = (self.sides(), (line.x.at(0), line.y.at(0), line.z.at(0)));
        let (spectrum, back, half) =
            (LinePointers::buffer::<V>(y), self.kind == LineTransform::InverseReal, n1 / 2 + 1);
        let plane = if back { line.to.re } else { line.from.re };
        for unit in units {
            let at = unit * V::LANES;
            let place = |element: usize| Place { at, line: 1, element, count: V::LANES.min(n2 - at) };
            let (real, row) = (place(n2), place(self.row()));
            // SAFETY: the line and its scratch are valid for the plan, nothing else accesses these columns, and every
            // place is inside of its plane or buffer.
            unsafe {
                let turns =
                    LinePointers::buffer::<V>(self.matrix.turns.as_ptr().add(unit * half * 2 * V::LANES).cast_mut());
                let between = line.between.seats(row);
                let full = real.count == V::LANES;
                let (at_real, step) = if full { (plane.at(at), n2) } else { (x, V::LANES) };
                let way = RealBuffers { back, real: at_real, step, spectrum, factor: self.factor, z };
                if back {
                    for k in 0..half {
                        spectrum.put(k, times(between.get::<V>(k), conj(turns.get::<V>(k))));
                    }
                    V::real(plan, way);
                    if !full {
                        V::write(x, V::LANES, plane.at(at), real, n1);
                    }
                    continue;
                }
                if !full {
                    V::read(plane.at(at), real, n1, x, V::LANES);
                }
                V::real(plan, way);
                for k in 0..half {
                    between.put(k, times(spectrum.get::<V>(k), turns.get::<V>(k)));
                }
            }
        }
    }

    /// Returns the location in half the spectrum of row `k2`'s elements from `first` on,
    /// and whether they are mirrored and so stored backwards.
    #[inline(always)]
    fn mirrored_row(&self, first: usize, count: usize, k2: usize) -> (usize, bool) {
        let (n1, n2) = self.sides();
        match k2 <= n2 / 2 {
            true => (first + n1 * k2, false),
            false => (n1 - first + n1 * (n2 - 1 - k2) + 1 - count, true),
        }
    }

    /// # Safety
    /// The line and its scratch are valid for the plan, nothing else accesses these rows, and every place is inside of
    /// its plane or buffer.
    #[inline(always)]
    pub(super) unsafe fn real_rows<V: FftVector<Elem = T>>(&self, units: Range<usize>, line: Line<T>) {
        let ((n1, n2), (x, y, z)) = (self.sides(), (line.x.at(0), line.y.at(0), line.z.at(0)));
        let (own, plan) = (LinePointers::buffer::<V>(x), &self.matrix.rows);
        let home = LinePointers::buffer::<V>(plan.result_buffer(x, y));
        for unit in units {
            let first = unit * V::LANES;
            let count = V::LANES.min(n1 / 2 + 1 - first);
            // SAFETY: the line and its scratch are valid for the plan, nothing else accesses these rows, and every
            // place is inside of its plane or buffer.
            unsafe {
                self.turn_rows::<V>(first, count, line);
                let finish = FinalScale::Factor(T::from_f64(1.0));
                V::transform(plan, TransformBuffers { from: own, to: home, x, y, z, finish });
                for k2 in 0..n2 {
                    let (at, backwards) = self.mirrored_row(first, count, k2);
                    let mut element = home.get::<V>(k2);
                    if backwards {
                        element = conj((element.0.reversed(count), element.1.reversed(count)));
                    }
                    element.0.store_first(line.to.re.at(at), count);
                    element.1.store_first(line.to.im.at(at), count);
                }
            }
        }
    }

    /// # Safety
    /// The line and its scratch are valid for the plan, nothing else accesses these rows, and every place is inside of
    /// its plane or buffer.
    #[inline(always)]
    pub(super) unsafe fn back_rows<V: FftVector<Elem = T>>(&self, units: Range<usize>, line: Line<T>) {
        let ((n1, n2), (x, y, z)) = (self.sides(), (line.x.at(0), line.y.at(0), line.z.at(0)));
        let (own, plan) = (LinePointers::buffer::<V>(x), &self.matrix.rows);
        let home = LinePointers::buffer::<V>(plan.result_buffer(x, y));
        for unit in units {
            let first = unit * V::LANES;
            let count = V::LANES.min(n1 / 2 + 1 - first);
            // SAFETY: the line and its scratch are valid for the plan, nothing else accesses these rows, and every
            // place is inside of its plane or buffer.
            unsafe {
                for k2 in 0..n2 {
                    let (at, backwards) = self.mirrored_row(first, count, k2);
                    let re = V::load_first(line.from.re.at(at), count);
                    let im = V::load_first(line.from.im.at(at), count);
                    let element = if backwards { conj((re.reversed(count), im.reversed(count))) } else { (re, im) };
                    own.put(k2, element);
                }
                if first == 0 {
                    // Imaginary parts that the spectrum of a real signal cannot have are ignored.
                    *own.im = T::default();
                }
                let finish = FinalScale::Factor(T::from_f64(1.0));
                let (from, to) = (own.exchanged(true), home.exchanged(true));
                V::transform(plan, TransformBuffers { from, to, x, y, z, finish });
                let place = Place { at: first * self.row(), line: self.row(), element: 1, count };
                V::write(home.re, home.step, line.between.re.at(place.at), place, n2);
                V::write(home.im, home.step, line.between.im.at(place.at), place, n2);
            }
        }
    }
}
