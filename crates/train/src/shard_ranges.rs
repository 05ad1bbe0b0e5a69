//! Shards of tensors as contiguous runs of elements.

use ir::Type;

/// Calls `f` with (offset in the tensor, offset in the shard, length) for every contiguous run of elements.
pub fn for_each_contiguous_run(places: &[Vec<usize>], ty: &Type, mut f: impl FnMut(usize, usize, usize)) {
    let strides = ty.strides();
    let Some((last, outer)) = places.split_last() else { return f(0, 0, 1) };
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (own, &at) in last.iter().enumerate() {
        match runs.last_mut() {
            Some((start, _, n)) if *start + *n == at => *n += 1,
            _ => runs.push((at, own, 1)),
        }
    }
    let sizes: Vec<usize> = outer.iter().map(Vec::len).collect();
    let mut row = 0;
    ir::types::for_each_index(&sizes, |index| {
        let base: usize = index.iter().enumerate().map(|(d, &i)| outer[d][i] * strides[d]).sum();
        runs.iter().for_each(|&(at, own, n)| f(base + at, row * last.len() + own, n));
        row += 1;
    });
}
