//! Maps matrix products to cuBLASLt: column-major matrices, optionally transposed.
//!
//! A row-major matrix is the transpose of a column-major one, so a row-major `C = A·B` is computed as
//! `Cᵀ = Bᵀ·Aᵀ`. Operands with other strides are copied to dense memory first.

use compiler::program::Matmul;

/// A matrix for cuBLASLt: column-major, `rows` × `cols` in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    /// The leading dimension: elements between columns.
    pub(crate) ld: i64,
    /// The batch stride: elements between matrices.
    pub(crate) batch: i64,
    /// Whether the operand is its transpose.
    pub(crate) transposed: bool,
}

/// One call: `out[i] = first[i]·second[i]` for `count` matrices, where `out` is `m` × `n`, never transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmCall {
    pub(crate) count: usize,
    pub(crate) first: Matrix,
    pub(crate) second: Matrix,
    pub(crate) out: Matrix,
    /// Whether `first` is B and `second` is A.
    pub(crate) swapped: bool,
}

/// The mapping of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemmMapping {
    pub(crate) gemm: GemmCall,
    /// The strides of dense copies of A, B and C, for those whose strides are not supported.
    pub(crate) dense: [Option<[isize; 3]>; 3],
}

/// Maps a product whose sizes are all positive.
pub(crate) fn map(s: &Matmul) -> GemmMapping {
    let (a, dense_a) = operand(s.batch, s.m, s.k, s.a, false);
    let (b, dense_b) = operand(s.batch, s.k, s.n, s.b, false);
    let (c, dense_c) = operand(s.batch, s.m, s.n, s.c, true);
    let flip = |m: Matrix| Matrix { transposed: !m.transposed, ..m };
    let gemm = match c.transposed {
        // C is row-major: its transpose is computed.
        true => GemmCall { count: s.batch, first: flip(b), second: flip(a), out: flip(c), swapped: true },
        false => GemmCall { count: s.batch, first: a, second: b, out: c, swapped: false },
    };
    GemmMapping { gemm, dense: [dense_a, dense_b, dense_c] }
}

/// A matrix with its strides, or with dense ones if they are not supported. A result's matrices must be disjoint.
fn operand(count: usize, rows: usize, cols: usize, strides: [isize; 3], result: bool) -> (Matrix, Option<[isize; 3]>) {
    if let Some(m) = column_major(count, rows, cols, strides, result) {
        return (m, None);
    }
    // A matrix that is broadcast over the batch is copied once.
    let batch = if strides[0] == 0 && !result { 0 } else { (rows * cols) as isize };
    let dense = [batch, cols as isize, 1];
    let ld = cols.max(1) as i64;
    let m = Matrix { rows: cols as u64, cols: rows as u64, ld, batch: batch as i64, transposed: true };
    (m, Some(dense))
}

fn column_major(count: usize, rows: usize, cols: usize, strides: [isize; 3], result: bool) -> Option<Matrix> {
    let [batch, row, col] = strides;
    let batch = if count <= 1 { 0 } else { batch };
    if batch < 0 {
        return None;
    }
    let disjoint = |span: usize| !result || count <= 1 || batch as usize >= span;
    // `n` lines of `len` elements; a stride that is never used may have any value.
    let lies = |len: usize, n: usize, within: isize, between: isize| {
        let ld = if n <= 1 { len as isize } else { between };
        let fits = (len <= 1 || within == 1) && ld >= len as isize && ld >= 1;
        (fits && disjoint(ld as usize * (n - 1) + len)).then_some(ld as i64)
    };
    let batch = batch as i64;
    // If both orders fit, row-major is used, so that the strides of vectors do not change.
    if let Some(ld) = lies(cols, rows, col, row) {
        return Some(Matrix { rows: cols as u64, cols: rows as u64, ld, batch, transposed: true });
    }
    let ld = lies(rows, cols, row, col)?;
    Some(Matrix { rows: rows as u64, cols: cols as u64, ld, batch, transposed: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::DType;

    /// The computation of cuBLASLt, according to its documentation.
    fn call(g: &GemmCall, first: &[i64], second: &[i64], out: &mut [i64], (m, n, k): (usize, usize, usize)) {
        let check = |x: &Matrix, rows: usize, cols: usize| {
            let seen = if x.transposed { (x.cols, x.rows) } else { (x.rows, x.cols) };
            assert_eq!(seen, (rows as u64, cols as u64), "{g:?}");
            assert!(x.ld >= x.rows as i64 && x.ld >= 1 && x.batch >= 0, "{g:?}");
        };
        check(&g.first, m, k);
        check(&g.second, k, n);
        check(&g.out, m, n);
        assert!(!g.out.transposed);
        let at = |x: &Matrix, b: usize, i: usize, j: usize| {
            let (i, j) = if x.transposed { (j, i) } else { (i, j) };
            assert!((i as u64) < x.rows && (j as u64) < x.cols);
            b * x.batch as usize + i + j * x.ld as usize
        };
        for b in 0..g.count {
            for i in 0..m {
                for j in 0..n {
                    let sum = (0..k).map(|l| first[at(&g.first, b, i, l)] * second[at(&g.second, b, l, j)]).sum();
                    out[at(&g.out, b, i, j)] = sum;
                }
            }
        }
    }

    fn element(base: usize, s: [isize; 3], at: [usize; 3]) -> usize {
        (base as isize + (0..3).map(|d| s[d] * at[d] as isize).sum::<isize>()) as usize
    }

    /// The strided copy to and from dense memory.
    fn copied(from: &[i64], base: usize, s: [isize; 3], to: &mut [i64], base_to: usize, t: [isize; 3], n: [usize; 3]) {
        for b in 0..n[0] {
            for i in 0..n[1] {
                for j in 0..n[2] {
                    to[element(base_to, t, [b, i, j])] = from[element(base, s, [b, i, j])];
                }
            }
        }
    }

    fn check(s: &Matmul) -> GemmMapping {
        let origin = |s: [isize; 3], n: [usize; 3]| (0..3).map(|d| (-s[d]).max(0) as usize * (n[d] - 1)).sum::<usize>();
        let span = |s: [isize; 3], n: [usize; 3]| {
            origin(s, n) + (0..3).map(|d| s[d].max(0) as usize * (n[d] - 1)).sum::<usize>() + 1
        };
        let (na, nb, nc) = ([s.batch, s.m, s.k], [s.batch, s.k, s.n], [s.batch, s.m, s.n]);
        let a: Vec<i64> = (0..span(s.a, na) as i64).map(|i| i * 7 % 23 - 11).collect();
        let b: Vec<i64> = (0..span(s.b, nb) as i64).map(|i| i * 5 % 19 - 9).collect();
        let (oa, ob, oc) = (origin(s.a, na), origin(s.b, nb), origin(s.c, nc));
        let mut want = vec![-1; span(s.c, nc)];
        for x in 0..s.batch {
            for i in 0..s.m {
                for j in 0..s.n {
                    let term = |l: usize| a[element(oa, s.a, [x, i, l])] * b[element(ob, s.b, [x, l, j])];
                    want[element(oc, s.c, [x, i, j])] = (0..s.k).map(term).sum();
                }
            }
        }
        let mapped = map(s);
        let pack = |from: &[i64], base, own: [isize; 3], dense: Option<[isize; 3]>, mut n: [usize; 3]| match dense {
            None => from[base..].to_vec(),
            Some(d) => {
                if d[0] == 0 {
                    n[0] = 1;
                }
                let mut to = vec![0; n[0] * n[1] * n[2]];
                copied(from, base, own, &mut to, 0, d, n);
                to
            }
        };
        let pa = pack(&a, oa, s.a, mapped.dense[0], na);
        let pb = pack(&b, ob, s.b, mapped.dense[1], nb);
        let mut got = vec![-1; want.len()];
        let mut out = match mapped.dense[2] {
            None => got[oc..].to_vec(),
            Some(_) => vec![-1; s.batch * s.m * s.n],
        };
        let g = &mapped.gemm;
        match g.swapped {
            true => call(g, &pb, &pa, &mut out, (s.n, s.m, s.k)),
            false => call(g, &pa, &pb, &mut out, (s.m, s.n, s.k)),
        }
        match mapped.dense[2] {
            None => got[oc..].copy_from_slice(&out),
            Some(d) => copied(&out, 0, d, &mut got, oc, s.c, nc),
        }
        assert_eq!(got, want, "{s:?}");
        mapped
    }

    fn shape(batch: usize, m: usize, n: usize, k: usize) -> Matmul {
        let (mi, ni, ki) = (m as isize, n as isize, k as isize);
        let d = DType::F32;
        let (a, b, c) = ([mi * ki, ki, 1], [ki * ni, ni, 1], [mi * ni, ni, 1]);
        Matmul { dtype: d, acc: d, out: d, batch, m, n, k, a, b, c }
    }

    #[test]
    fn every_layout_of_every_operand_gives_the_product() {
        for batch in [1, 3] {
            for m in [1, 2, 4] {
                for n in [1, 3] {
                    for k in [1, 2, 5] {
                        let layouts = |r: usize, c: usize| {
                            let (r, c) = (r as isize, c as isize);
                            [
                                [r * c, c, 1],
                                [r * c, 1, r],
                                [0, c, 1],
                                [c, c * 3 + 1, 1],
                                [r * 4 * c, 1, r + 3],
                                [r * c * 2, 2 * c, 2],
                                [1, 0, 1],
                                [0, 0, 0],
                                [r * c, -c, 1],
                                [-(r * c), c, 1],
                                [2, 1, 1],
                            ]
                        };
                        for a in layouts(m, k) {
                            for b in layouts(k, n) {
                                check(&Matmul { a, b, ..shape(batch, m, n, k) });
                            }
                        }
                        // Elements of a result are disjoint.
                        let (mi, ni, x) = (m as isize, n as isize, batch as isize);
                        let results = [[mi * ni, 1, mi], [ni, ni * x, 1], [1, ni * x, x], [mi * ni * 6, 3 * ni, 3]];
                        for c in results {
                            check(&Matmul { c, ..shape(batch, m, n, k) });
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn plain_transposed_and_shared_matrices_are_read_in_place() {
        let plain = shape(4, 6, 5, 7);
        let in_place = [None; 3];
        assert_eq!(check(&plain).dense, in_place);
        assert_eq!(check(&Matmul { a: [42, 1, 6], ..plain.clone() }).dense, in_place);
        assert_eq!(check(&Matmul { b: [35, 1, 7], ..plain.clone() }).dense, in_place);
        assert_eq!(check(&Matmul { b: [0, 5, 1], ..plain.clone() }).dense, in_place);
        // Attention heads: the rows of one head are interleaved with those of the others.
        assert_eq!(check(&Matmul { a: [7, 28, 1], ..plain.clone() }).dense, in_place);
        assert_eq!(check(&Matmul { a: [42, 0, 1], ..plain.clone() }).dense[0], Some([42, 7, 1]));
        assert_eq!(check(&Matmul { a: [0, 14, 2], ..plain }).dense[0], Some([0, 7, 1]));
    }
}
