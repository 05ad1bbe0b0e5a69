//! Size classes of pooled memory.

/// The alignment of every block and its size, which equals that of the driver's allocations.
pub(crate) const ALIGN: usize = 256;

/// The size of a block for this many bytes: at most an eighth more, or [`ALIGN`].
pub(crate) fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(1);
    let step = match bytes.ilog2() {
        0..=11 => ALIGN,
        log => 1 << (log - 3),
    };
    bytes.checked_next_multiple_of(step).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_little_more() {
        let mut sizes: Vec<usize> = (0..70_000).collect();
        sizes.extend((16..46).flat_map(|p| [(1usize << p) - 1, 1 << p, (1 << p) + 1, (3 << p) / 2]));
        for n in sizes {
            let c = size_class(n);
            assert!(c >= n && c.is_multiple_of(ALIGN), "{n} gets {c}");
            assert!(c <= n + ALIGN.max(n / 8), "{n} gets {c}");
            assert_eq!(size_class(c), c, "a class is its own");
        }
        assert_eq!(size_class(usize::MAX), usize::MAX);
    }
}
