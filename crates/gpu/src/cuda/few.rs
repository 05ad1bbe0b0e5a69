//! Products with few rows, as when one token is decoded: the other matrix is read once, as fast as memory gives it.
//!
//! Each column of the result is a row of the large matrix times the few short ones. Some warps share it: each lane multiplies 16 bytes
//! at a time, several loads on their way, sums are joined by a fixed tree.

use compiler::program::Matmul;
use ir::DType;

/// Threads of a block.
pub const THREADS: u32 = 128;
/// Rows that the other side may have.
const FEW: usize = 4;
/// Warps that keep the device busy.
const BUSY: usize = 1 << 13;
/// Loads on their way.
const AHEAD: usize = 4;

/// How a product with few rows is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Few {
    /// The short rows are B's columns.
    swapped: bool,
    rows: usize,
    /// Warps of a column.
    warps: usize,
    dtype: DType,
    out: DType,
}

impl Few {
    /// What a product is, if it has few rows or columns and strides that can be read 16 bytes at a time. `aligned` has the bytes
    /// that addresses of A and B are multiples of.
    pub fn of(s: &Matmul, aligned: [usize; 2]) -> Option<Few> {
        let [own, other] = [s.m, s.n];
        let swapped = own > FEW;
        let (rows, columns) = if swapped { (other, own) } else { (own, other) };
        let each = 16 / s.dtype.size();
        let whole = |x: isize| x % each as isize == 0;
        // Strides of A along rows and the sum, of B along the sum and columns.
        let dense = s.a[2] == 1 && s.b[1] == 1;
        let even = [s.a[0], s.a[1], s.b[0], s.b[2]].into_iter().all(whole);
        let worth = columns >= 64 && s.k >= 32 * each && s.k % each == 0;
        let takes = matches!(s.dtype, DType::F32 | DType::BF16 | DType::F16)
            && (s.out == s.dtype || s.out == DType::F32)
            && aligned.iter().all(|a| a % 16 == 0);
        if rows == 0 || rows > FEW || !(dense && even && worth && takes) {
            return None;
        }
        let all = s.batch * columns;
        let mut warps = 1;
        while warps < THREADS as usize / 32 && all * warps < BUSY && s.k >= 2 * warps * 32 * each {
            warps *= 2;
        }
        Some(Few { swapped, rows, warps, dtype: s.dtype, out: s.out })
    }

    /// Blocks of a launch.
    pub fn blocks(&self, s: &Matmul) -> u32 {
        let columns = s.batch * if self.swapped { s.m } else { s.n };
        columns.div_ceil(THREADS as usize / 32 / self.warps) as u32
    }

    /// What follows the addresses of the short rows, the large matrix and the result: columns, those of one batch, the sum's length,
    /// then strides: of short rows by batch and row, of the matrix by batch and column, of results by batch, row and column.
    pub fn sizes(&self, s: &Matmul) -> [i64; 10] {
        let (columns, few, large, out) = match self.swapped {
            false => (s.n, [s.a[0], s.a[1]], [s.b[0], s.b[2]], [s.c[0], s.c[1], s.c[2]]),
            true => (s.m, [s.b[0], s.b[2]], [s.a[0], s.a[1]], [s.c[0], s.c[2], s.c[1]]),
        };
        let [f0, f1] = few.map(|x| x as i64);
        let [l0, l1] = large.map(|x| x as i64);
        let [o0, o1, o2] = out.map(|x| x as i64);
        [(s.batch * columns) as i64, columns as i64, s.k as i64, f0, f1, l0, l1, o0, o1, o2]
    }

    /// Whether the short rows are B's.
    pub fn swapped(&self) -> bool {
        self.swapped
    }

    /// Its name and its text, to stand behind the prelude.
    pub fn text(&self) -> (String, String) {
        let Few { rows, warps, dtype, out, .. } = *self;
        let entry = format!("few_{rows}_{warps}_{dtype}_{out}");
        let each = 16 / dtype.size();
        let kept = |d: DType| if d == DType::F32 { "f32" } else { "u16" };
        let (kept, given) = (kept(dtype), kept(out));
        let converted = |call: &str, d: DType| if d == DType::F32 { "x".to_string() } else { format!("{call}(x)") };
        let load = converted(&format!("{dtype}_f32"), dtype);
        let store = converted(&format!("f32_{out}"), out);
        let columns = THREADS as usize / 32 / warps;
        let step = 32 * each * warps;
        let text = format!(
            r#"struct __align__(16) {entry}_word {{ {kept} x[{each}]; }};
D f32 {entry}_load({kept} x) {{ return {load}; }}
D {given} {entry}_store(f32 x) {{ return {store}; }}
extern "C" __global__ void __launch_bounds__({THREADS}) {entry}(const {kept}* __restrict__ few, const {kept}* __restrict__ large,
    {given}* __restrict__ out, i64 all, i64 columns, i64 k, i64 f0, i64 f1, i64 l0, i64 l1,
    i64 o0, i64 o1, i64 o2) {{
  __shared__ f32 shared[{rows} * {THREADS} / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % {warps};
  const i64 at = (i64)blockIdx.x * {columns} + warp / {warps};
  const bool there = at < all;
  const i64 batch = there ? at / columns : 0, column = there ? at % columns : 0;
  const {kept}* row = large + batch * l0 + column * l1;
  const {kept}* short_rows = few + batch * f0;
  f32 sum[{rows}];
#pragma unroll
  for (int f = 0; f < {rows}; f++) sum[f] = 0;
  for (i64 i = (part * 32 + lane) * {each}; i < k; i += {AHEAD} * {step}) {{
    {entry}_word words[{AHEAD}];
#pragma unroll
    for (int a = 0; a < {AHEAD}; a++)
      if (i + a * {step} < k) words[a] = *(const {entry}_word*)(row + i + a * {step});
#pragma unroll
    for (int a = 0; a < {AHEAD}; a++)
      if (i + a * {step} < k) {{
#pragma unroll
        for (int f = 0; f < {rows}; f++) {{
          const {entry}_word other = *(const {entry}_word*)(short_rows + f * f1 + i + a * {step});
#pragma unroll
          for (int e = 0; e < {each}; e++) sum[f] = fmaf({entry}_load(words[a].x[e]), {entry}_load(other.x[e]), sum[f]);
        }}
      }}
  }}
#pragma unroll
  for (int f = 0; f < {rows}; f++) {{
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum[f] += __shfl_xor_sync(0xffffffffu, sum[f], d);
    if (lane == 0) shared[f * {THREADS} / 32 + warp] = sum[f];
  }}
  __syncthreads();
  if (part == 0 && lane < {rows} && there) {{
    f32 total = 0;
#pragma unroll
    for (int p = 0; p < {warps}; p++) total += shared[lane * {THREADS} / 32 + warp + p];
    out[batch * o0 + lane * o1 + column * o2] = {entry}_store(total);
  }}
}}
"#
        );
        (entry, text)
    }
}
