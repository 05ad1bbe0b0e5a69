//! Matrix products with few rows, as in decoding of one token: the large matrix is read once, at memory bandwidth.
//!
//! Each column of the result is a row of the large matrix times the few short rows. A set of columns belongs to some warps,
//! which divide the sum: each lane multiplies 16 bytes at a time while the next loads are in flight, and a fixed tree combines
//! the sums. A matrix that the program does not write is prefetched before the previous kernel has finished. (Prefetching the
//! next product's matrix into the cache at the end of a kernel made decoding slower.)

use compiler::program::Matmul;
use ir::DType;

/// The threads of a block.
pub const THREADS: u32 = 128;
/// The maximum number of short rows.
const FEW: usize = 4;
/// The loads in flight for each column, besides those that are being multiplied.
const AHEAD: usize = 2;
/// The number of blocks that saturates the device.
const BUSY: usize = 256;

/// A matrix product with few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkinnyMatmul {
    /// Whether the short rows are the columns of B.
    swapped: bool,
    rows: usize,
    /// The number of columns of a set.
    columns: usize,
    /// The number of warps of a set.
    warps: usize,
    dtype: DType,
    out: DType,
}

impl SkinnyMatmul {
    /// The kernel of a product, if it has few rows or columns and strides that allow 16-byte loads. `aligned` has the alignment
    /// in bytes of the addresses of A and B.
    pub fn of(s: &Matmul, aligned: [usize; 2]) -> Option<SkinnyMatmul> {
        let [own, other] = [s.m, s.n];
        let swapped = own > FEW;
        let (rows, columns) = if swapped { (other, own) } else { (own, other) };
        let each = 16 / s.dtype.size();
        let whole = |x: isize| x % each as isize == 0;
        // The strides of A along rows and the contracted axis, of B along the contracted axis and columns.
        let dense = s.a[2] == 1 && s.b[1] == 1;
        let even = [s.a[0], s.a[1], s.b[0], s.b[2]].into_iter().all(whole);
        let worth = columns >= 64 && s.k >= 32 * each && s.k % each == 0 && s.k.max(columns) < 1 << 28;
        let takes = matches!(s.dtype, DType::F32 | DType::BF16 | DType::F16)
            && (s.out == s.dtype || s.out == DType::F32)
            && aligned.iter().all(|a| a % 16 == 0);
        if rows == 0 || rows > FEW || !(dense && even && worth && takes) {
            return None;
        }
        let most = THREADS as usize / 32;
        let mut warps = 1;
        while warps < most && s.k >= 2 * warps * 32 * each {
            warps *= 2;
        }
        let mut set = if rows > 2 || s.k > 512 * each { 2 } else { 4 };
        while set > 1 && s.batch * columns < BUSY * set * most / warps {
            set /= 2;
        }
        Some(SkinnyMatmul { swapped, rows, columns: set, warps, dtype: s.dtype, out: s.out })
    }

    fn sides(&self, s: &Matmul) -> (usize, [isize; 2], [isize; 2], [isize; 3]) {
        match self.swapped {
            false => (s.n, [s.a[0], s.a[1]], [s.b[0], s.b[2]], s.c),
            true => (s.m, [s.b[0], s.b[2]], [s.a[0], s.a[1]], [s.c[0], s.c[2], s.c[1]]),
        }
    }

    /// The number of blocks of a launch.
    pub fn blocks(&self, s: &Matmul) -> u32 {
        let sets = s.batch * self.sides(s).0.div_ceil(self.columns);
        sets.div_ceil(THREADS as usize / 32 / self.warps) as u32
    }

    /// The arguments after the addresses of the short rows, the large matrix and the result: batches, columns, the length of the
    /// sum, then strides: of short rows by batch and row, of the matrix by batch and column, of results by batch, row and
    /// column; then whether the program does not write the matrix.
    pub fn sizes(&self, s: &Matmul, steady: bool) -> [i64; 11] {
        let (columns, few, large, out) = self.sides(s);
        let [f0, f1] = few.map(|x| x as i64);
        let [l0, l1] = large.map(|x| x as i64);
        let [o0, o1, o2] = out.map(|x| x as i64);
        let (batch, columns, k) = (s.batch as i64, columns as i64, s.k as i64);
        [batch, columns, k, f0, f1, l0, l1, o0, o1, o2, steady as i64]
    }

    /// Whether the short rows are those of B.
    pub fn swapped(&self) -> bool {
        self.swapped
    }

    /// The name and the source of the kernel, without the prelude.
    pub fn text(&self) -> (String, String) {
        let SkinnyMatmul { rows, columns, warps, dtype, out, .. } = *self;
        let entry = format!("few_{rows}_{columns}_{warps}_{dtype}_{out}");
        let each = 16 / dtype.size();
        let kept = |d: DType| if d == DType::F32 { "f32" } else { "u16" };
        let (kept, given) = (kept(dtype), kept(out));
        let converted = |call: &str, d: DType| if d == DType::F32 { "x".to_string() } else { format!("{call}(x)") };
        let load = converted(&format!("{dtype}_f32"), dtype);
        let store = converted(&format!("f32_{out}"), out);
        let groups = THREADS as usize / 32 / warps;
        let step = 32 * each * warps;
        let text = format!(
            r#"union {entry}_word {{ Vec<u32, 4> all; {kept} x[{each}]; }};
D f32 {entry}_load({kept} x) {{ return {load}; }}
D {given} {entry}_store(f32 x) {{ return {store}; }}
extern "C" __global__ void __launch_bounds__({THREADS}) {entry}(const {kept}* few, const {kept}* large, {given}* out,
    i64 batches, i64 columns, i64 k, i64 f0, i64 f1, i64 l0, i64 l1, i64 o0, i64 o1, i64 o2, i64 steady) {{
  __shared__ f32 shared[{THREADS} / 32][{rows} * {columns}];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % {warps};
  const i64 sets = (columns + {columns} - 1) / {columns}, set = (i64)blockIdx.x * {groups} + warp / {warps};
  const i64 batch = set / sets, first = set % sets * {columns};
  const i32 left = batch < batches ? (i32)(columns - first) : 0, count = (i32)k;
  const {kept}* row = large + batch * l0 + first * l1;
  const {kept}* short_rows = few + batch * f0;
  const i32 start = (part * 32 + lane) * {each};
  {entry}_word now[{columns}][{AHEAD}], then[{columns}][{AHEAD}];
  auto fetch = [&]({entry}_word (&to)[{columns}][{AHEAD}], i32 i) {{
#pragma unroll
    for (int c = 0; c < {columns}; c++)
#pragma unroll
      for (int a = 0; a < {AHEAD}; a++)
        to[c][a].all = c < left && i + a * {step} < count ? stream16(row + c * l1 + i + a * {step}) : Vec<u32, 4>{{}};
  }};
  if (steady) fetch(now, start);
  wait_turn();
  if (!steady) fetch(now, start);
  f32 sum[{rows}][{columns}];
#pragma unroll
  for (int f = 0; f < {rows}; f++)
#pragma unroll
    for (int c = 0; c < {columns}; c++) sum[f][c] = 0;
  for (i32 i = start; i < count; i += {AHEAD} * {step}) {{
    fetch(then, i + {AHEAD} * {step});
#pragma unroll
    for (int a = 0; a < {AHEAD}; a++)
      if (i + a * {step} < count) {{
#pragma unroll
        for (int f = 0; f < {rows}; f++) {{
          {entry}_word other;
          other.all = *(const Vec<u32, 4>*)(short_rows + f * f1 + i + a * {step});
#pragma unroll
          for (int c = 0; c < {columns}; c++)
#pragma unroll
            for (int e = 0; e < {each}; e++)
              sum[f][c] = fmaf({entry}_load(now[c][a].x[e]), {entry}_load(other.x[e]), sum[f][c]);
        }}
      }}
#pragma unroll
    for (int c = 0; c < {columns}; c++)
#pragma unroll
      for (int a = 0; a < {AHEAD}; a++) now[c][a] = then[c][a];
  }}
#pragma unroll
  for (int f = 0; f < {rows}; f++)
#pragma unroll
    for (int c = 0; c < {columns}; c++) {{
#pragma unroll
      for (int d = 16; d > 0; d /= 2) sum[f][c] += __shfl_xor_sync(0xffffffffu, sum[f][c], d);
      if (lane == 0) shared[warp][f * {columns} + c] = sum[f][c];
    }}
  __syncthreads();
  if (part == 0 && lane < {rows} * {columns} && lane % {columns} < left) {{
    f32 total = 0;
#pragma unroll
    for (int p = 0; p < {warps}; p++) total += shared[warp + p][lane];
    out[batch * o0 + lane / {columns} * o1 + (first + lane % {columns}) * o2] = {entry}_store(total);
  }}
}}
"#
        );
        (entry, text)
    }
}
