//! Sliding windows over the axes of a tensor: the geometry of convolutions and pooling.

use super::*;
use crate::types::for_each_index;

/// The configuration of sliding windows, for each axis.
///
/// The base is dilated by `base_dilation` and padded; element `k` of window `o` is then at position
/// `o · stride + k · window_dilation`. Negative padding removes elements.
/// (For a convolution these are the `lhs_dilation` and `rhs_dilation` of lax.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WindowConfig {
    /// The distance between adjacent windows.
    pub strides: Shape,
    /// The padding before the first element of the base.
    pub low: SmallVec<[i64; 6]>,
    /// The padding after the last element.
    pub high: SmallVec<[i64; 6]>,
    /// The distance between adjacent elements of the base.
    pub base_dilation: Shape,
    /// The distance between adjacent elements of a window.
    pub window_dilation: Shape,
}

fn spread(n: usize, dilation: usize) -> i128 {
    if n == 0 { 0 } else { (n as i128 - 1) * dilation as i128 + 1 }
}

fn narrow(x: i128) -> Result<i64> {
    i64::try_from(x).map_err(|_| Error::Invalid(format!("padding of {x} does not fit")))
}

impl WindowConfig {
    /// Stride and dilation 1, no padding.
    pub fn unit_stride(rank: usize) -> WindowConfig {
        WindowConfig {
            strides: SmallVec::from_elem(1, rank),
            low: SmallVec::from_elem(0, rank),
            high: SmallVec::from_elem(0, rank),
            base_dilation: SmallVec::from_elem(1, rank),
            window_dilation: SmallVec::from_elem(1, rank),
        }
    }

    /// With these strides, and equal padding before and after.
    pub fn strided(strides: &[usize], padding: &[i64]) -> WindowConfig {
        WindowConfig {
            strides: Shape::from_slice(strides),
            low: padding.into(),
            high: padding.into(),
            ..WindowConfig::unit_stride(strides.len())
        }
    }

    /// The number of windows along each axis.
    pub(crate) fn count(&self, base: &[usize], window: &[usize]) -> std::result::Result<Shape, InferError> {
        let n = base.len();
        let lengths = [self.strides.len(), self.low.len(), self.high.len()];
        let lengths = [&lengths[..], &[self.base_dilation.len(), self.window_dilation.len()]].concat();
        if window.len() != n || lengths.iter().any(|&l| l != n) {
            return Err(InferError::other(format!(
                "window, strides, padding and dilations must name each of {n} axes"
            )));
        }
        let mut shape = Shape::new();
        for i in 0..n {
            if self.strides[i] == 0 || self.base_dilation[i] == 0 || self.window_dilation[i] == 0 {
                return Err(InferError::other(format!("stride and dilation of window axis {i} must be at least 1")));
            }
            let padded = spread(base[i], self.base_dilation[i]) + self.low[i] as i128 + self.high[i] as i128;
            if padded < 0 {
                return Err(InferError::other(format!(
                    "negative padding {} and {} removes more elements than window axis {i} of size {} has",
                    self.low[i], self.high[i], base[i]
                )));
            }
            let room = padded - spread(window[i], self.window_dilation[i]);
            let count = if room < 0 { 0 } else { room / self.strides[i] as i128 + 1 };
            shape.push(
                usize::try_from(count).map_err(|_| InferError::other(format!("{count} windows along axis {i}")))?,
            );
        }
        Ok(shape)
    }

    /// The element of the base at element `k` of window `o` along an axis of `size`, or `None` in the padding.
    pub fn source(&self, axis: usize, o: usize, k: usize, size: usize) -> Option<usize> {
        let place = o as i128 * self.strides[axis] as i128 + k as i128 * self.window_dilation[axis] as i128
            - self.low[axis] as i128;
        let step = self.base_dilation[axis] as i128;
        let inside = place >= 0 && place % step == 0 && place / step < size as i128;
        inside.then(|| (place / step) as usize)
    }

    /// Calls `f` with each element of the base in window `o`, and its position in the window, in row-major order.
    pub(crate) fn visit(&self, base: &[usize], window: &[usize], o: &[usize], mut f: impl FnMut(&[usize], &[usize])) {
        self.visit_all(base, window, o, |place, k| {
            if let Some(place) = place {
                f(place, k);
            }
        });
    }

    /// Like `visit`, also for window elements over padding.
    pub(crate) fn visit_all(
        &self,
        base: &[usize],
        window: &[usize],
        o: &[usize],
        mut f: impl FnMut(Option<&[usize]>, &[usize]),
    ) {
        for_each_index(window, |k| {
            let place: Option<Shape> = (0..base.len()).map(|a| self.source(a, o[a], k[a], base[a])).collect();
            f(place.as_deref(), k);
        });
    }

    /// The windows of the transposed op: over the dilated results, with the window flipped, they have the shape of the base.
    pub(crate) fn transposed(&self, base: &[usize], window: &[usize], count: &[usize]) -> Result<WindowConfig> {
        let mut back =
            WindowConfig { strides: self.base_dilation.clone(), base_dilation: self.strides.clone(), ..self.clone() };
        for i in 0..base.len() {
            let k = spread(window[i], self.window_dilation[i]);
            let low = k - self.low[i] as i128 - 1;
            let (from, to) = (spread(count[i], self.strides[i]), spread(base[i], self.base_dilation[i]));
            back.low[i] = narrow(low)?;
            back.high[i] = narrow(to + k - 1 - from - low)?;
        }
        Ok(back)
    }

    /// The windows over the base with the results as the window, which have the shape of the window.
    pub(crate) fn for_window(&self, base: &[usize], window: &[usize], count: &[usize]) -> Result<WindowConfig> {
        let mut back = WindowConfig {
            strides: self.window_dilation.clone(),
            window_dilation: self.strides.clone(),
            ..self.clone()
        };
        for i in 0..base.len() {
            let k = spread(window[i], self.window_dilation[i]);
            let (from, to) = (spread(base[i], self.base_dilation[i]), spread(count[i], self.strides[i]));
            back.high[i] = narrow(to - from + k - self.low[i] as i128 - 1)?;
        }
        Ok(back)
    }

    /// The same windows with an additional leading axis of window size 1.
    pub(crate) fn with_leading_axis(&self) -> WindowConfig {
        let mut w = self.clone();
        w.strides.insert(0, 1);
        w.low.insert(0, 0);
        w.high.insert(0, 0);
        w.base_dilation.insert(0, 1);
        w.window_dilation.insert(0, 1);
        w
    }

    pub(crate) fn attrs(&self) -> Attrs {
        vec![
            ("strides", self.strides.as_slice().into()),
            ("low", self.low.as_slice().into()),
            ("high", self.high.as_slice().into()),
            ("base_dilation", self.base_dilation.as_slice().into()),
            ("window_dilation", self.window_dilation.as_slice().into()),
        ]
    }

    pub(crate) fn parse(attrs: &mut AttrReader) -> AttrResult<WindowConfig> {
        Ok(WindowConfig {
            strides: attrs.usizes("strides")?,
            low: attrs.ints("low")?,
            high: attrs.ints("high")?,
            base_dilation: attrs.usizes("base_dilation")?,
            window_dilation: attrs.usizes("window_dilation")?,
        })
    }
}
