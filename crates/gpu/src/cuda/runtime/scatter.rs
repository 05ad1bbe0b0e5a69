//! `scatter_add` of rows: the gradient of an embedding. It is deterministic and adds updates in order: two runs give the same
//! bits, which are those of the reference.
//!
//! The updates of each row are counted, and a prefix sum gives the start of each row's list; then every update is appended to
//! its row's list, in any order. The block that sums a row first sorts its list: a short list by counting, a long one with a
//! bitmap.

use super::load::{Launch, LaunchArgument};
use super::strided_copy::{KernelSource, conversion, storage};
use compiler::program::BufferSlice;
use ir::ops::scatter::ScatterMode;
use ir::ops::{Scatter, ScatterKind};
use ir::{DType, Op, Type};

/// The threads of a block that counts or places updates.
const PLACING: u32 = 256;
/// The threads of the block that computes the prefix sum.
const SUMMING: u32 = 1024;
/// The threads that sum a row.
const ADDING: u32 = 256;
/// The maximum number of updates of a row that are sorted by counting.
const SHORT: u32 = 1024;
/// The number of updates that a bitmap covers.
const MAP: u32 = 1 << 17;

/// Rows of `width` elements, added to a table of `rows` at `count` indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowScatter {
    rows: usize,
    width: usize,
    count: usize,
    dtype: DType,
    ids: DType,
    clip: bool,
}

impl RowScatter {
    /// The row scatter of an op, if it is one.
    pub(super) fn of(op: &Op, args: &[Type]) -> Option<RowScatter> {
        let Op::Scatter(Scatter { kind: ScatterKind::Add, dims, mode }) = op else { return None };
        let [table, ids, updates] = args else { return None };
        let batch = ids.rank().checked_sub(1)?;
        let behind = (batch..batch + table.rank().checked_sub(1)?).collect::<Vec<usize>>();
        let rows = dims.collapsed[..] == [0]
            && dims.index_map[..] == [0]
            && dims.operand_batch.is_empty()
            && dims.index_batch.is_empty()
            && dims.offset[..] == behind[..]
            && ids.shape[batch] == 1
            && updates.shape[batch..] == table.shape[1..];
        let floats = matches!(table.dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
        let numbers = matches!(ids.dtype, DType::I32 | DType::I64);
        let (count, most) = (ids.numel(), i32::MAX as usize);
        if !(rows && floats && numbers) || count == 0 || table.numel() == 0 || count > most || table.shape[0] > most {
            return None;
        }
        Some(RowScatter {
            rows: table.shape[0],
            width: table.shape[1..].iter().product(),
            count,
            dtype: table.dtype,
            ids: ids.dtype,
            clip: *mode == ScatterMode::Clip,
        })
    }

    /// The bytes of scratch: the end of each row's list, and the lists.
    pub(super) fn scratch(&self) -> usize {
        4 * (self.rows + self.count)
    }

    pub(super) fn texts(&self) -> [KernelSource; 5] {
        [clearing(), self.counting(false), summing(), self.counting(true), self.adding()]
    }

    pub(super) fn launches(&self, functions: [usize; 5], args: &[BufferSlice], out: &BufferSlice) -> Vec<Launch> {
        let lists = 4 * self.rows;
        let place = |p: &BufferSlice| LaunchArgument::Place(p.clone());
        let scratch = |offset: usize| LaunchArgument::Scratch(offset);
        let many = |n: usize| n.div_ceil(PLACING as usize).min(1 << 16) as u32;
        let launch =
            |k: usize, blocks: u32, threads: u32, args: Vec<LaunchArgument>, sizes: [usize; 2], name: &str| Launch {
                function: functions[k],
                blocks,
                threads,
                shared: 0,
                args,
                sizes: sizes.map(|n| n as i64).to_vec(),
                in_place_pairs: Vec::new(),
                name: name.into(),
            };
        let ids = || vec![place(&args[1]), scratch(0), scratch(lists)];
        vec![
            launch(0, many(self.rows), PLACING, vec![scratch(0)], [self.rows, 0], "no updates"),
            launch(1, many(self.count), PLACING, ids(), [self.rows, self.count], "counts of rows"),
            launch(2, 1, SUMMING, vec![scratch(0)], [self.rows, 0], "where lists begin"),
            launch(3, many(self.count), PLACING, ids(), [self.rows, self.count], "lists of rows"),
            launch(
                4,
                self.rows.min(1 << 16) as u32,
                ADDING,
                vec![place(&args[0]), place(&args[2]), place(out), scratch(0), scratch(lists)],
                [self.rows, self.width],
                "sums of rows",
            ),
        ]
    }

    /// Counts the updates of each row, or appends each update to its row's list. Arguments: indices, ends, lists, then i64:
    /// rows, count.
    fn counting(&self, place: bool) -> KernelSource {
        let id = if self.ids == DType::I64 { "long long" } else { "int" };
        let mode = if self.clip { "clip" } else { "drop" };
        let outside = match self.clip {
            true => "v = v < 0 ? 0 : v >= rows ? rows - 1 : v;",
            false => "if (v < 0 || v >= rows) continue;",
        };
        let entry = format!("rows_{}_{}_{mode}", if place { "place" } else { "count" }, self.ids);
        let then = if place { "lists[at] = (unsigned int)i;" } else { "" };
        let text = format!(
            r#"extern "C" __global__ void __launch_bounds__({PLACING}) {entry}(const {id}* ids, unsigned int* ends,
    unsigned int* lists, long long rows, long long count) {{
  wait_turn();
  for (long long i = (long long)blockIdx.x * {PLACING} + threadIdx.x; i < count; i += (long long)gridDim.x * {PLACING}) {{
    long long v = ids[i];
    {outside}
    unsigned int at;
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(at) : "l"(ends + v) : "memory");
    {then}
  }}
}}
"#
        );
        KernelSource { entry, text }
    }

    /// Arguments: table, updates, out, ends, lists, then i64: rows, width. Sums are rounded after each addition, like
    /// the reference's.
    fn adding(&self) -> KernelSource {
        let entry = format!("rows_add_{}", self.dtype);
        let (load, store) = conversion(self.dtype);
        let (kept, sum) = (storage(self.dtype), if self.dtype == DType::F64 { "double" } else { "float" });
        let words = MAP / 32;
        let text = format!(
            r#"static __device__ __forceinline__ {sum} {entry}_load({kept} x) {{ {load} }}
static __device__ __forceinline__ {kept} {entry}_store({sum} x) {{ {store} }}
static __device__ __forceinline__ void {entry}_mark(unsigned int* word, unsigned int bit) {{
  asm volatile("red.shared.or.b32 [%0], %1;" ::"r"((unsigned int)__cvta_generic_to_shared(word)), "r"(bit) : "memory");
}}
extern "C" __global__ void __launch_bounds__({ADDING}) {entry}(const {kept}* table, const {kept}* updates, {kept}* out,
    const unsigned int* ends, const unsigned int* lists, long long rows, long long width) {{
  __shared__ unsigned int list[{SHORT}], map[{words}];
  wait_turn();
  const unsigned int t = threadIdx.x;
  for (long long v = blockIdx.x; v < rows; v += gridDim.x) {{
    const unsigned int first = v == 0 ? 0 : ends[v - 1], n = ends[v] - first;
    if (n <= {SHORT}) {{
      __syncthreads();
      for (unsigned int j = t; j < n; j += {ADDING}) {{
        const unsigned int own = lists[first + j];
        unsigned int at = 0;
        for (unsigned int i = 0; i < n; i++) at += lists[first + i] < own;
        list[at] = own;
      }}
      __syncthreads();
      for (long long c = t; c < width; c += {ADDING}) {{
        {kept} sum = table[v * width + c];
        unsigned int j = 0;
        for (; j + 4 <= n; j += 4) {{
          const {kept} a = updates[list[j] * width + c], b = updates[list[j + 1] * width + c];
          const {kept} d = updates[list[j + 2] * width + c], e = updates[list[j + 3] * width + c];
          sum = {entry}_store({entry}_load(sum) + {entry}_load(a));
          sum = {entry}_store({entry}_load(sum) + {entry}_load(b));
          sum = {entry}_store({entry}_load(sum) + {entry}_load(d));
          sum = {entry}_store({entry}_load(sum) + {entry}_load(e));
        }}
        for (; j < n; j++) sum = {entry}_store({entry}_load(sum) + {entry}_load(updates[list[j] * width + c]));
        out[v * width + c] = sum;
      }}
      continue;
    }}
    for (long long c = t; c < width; c += {ADDING}) out[v * width + c] = table[v * width + c];
    for (unsigned int base = 0, done = 0; done < n; base += {MAP}) {{
      __syncthreads();
      for (unsigned int w = t; w < {words}; w += {ADDING}) map[w] = 0;
      __syncthreads();
      for (unsigned int j = t; j < n; j += {ADDING}) {{
        const unsigned int x = lists[first + j] - base;
        if (x < {MAP}) {entry}_mark(map + x / 32, 1u << x % 32);
      }}
      __syncthreads();
      unsigned int here = 0;
      for (unsigned int w = 0; w < {words}; w++) here += __popc(map[w]);
      done += here;
      for (long long c = t; c < width; c += {ADDING}) {{
        {kept} sum = out[v * width + c];
        for (unsigned int w = 0; w < {words}; w++)
          for (unsigned int left = map[w]; left; left &= left - 1) {{
            const unsigned int x = base + w * 32 + __popc((left & 0u - left) - 1);
            sum = {entry}_store({entry}_load(sum) + {entry}_load(updates[x * width + c]));
          }}
        out[v * width + c] = sum;
      }}
    }}
  }}
}}
"#
        );
        KernelSource { entry, text }
    }
}

/// Arguments: ends, then i64: rows, unused.
fn clearing() -> KernelSource {
    let entry = String::from("rows_clear");
    let text = format!(
        r#"extern "C" __global__ void __launch_bounds__({PLACING}) {entry}(unsigned int* ends, long long rows, long long) {{
  wait_turn();
  for (long long i = (long long)blockIdx.x * {PLACING} + threadIdx.x; i < rows; i += (long long)gridDim.x * {PLACING}) ends[i] = 0;
}}
"#
    );
    KernelSource { entry, text }
}

/// Turns counts into the starts of lists, which become their ends as updates are placed. Arguments: ends, then i64: rows, unused.
fn summing() -> KernelSource {
    let entry = String::from("rows_sum");
    let text = format!(
        r#"extern "C" __global__ void __launch_bounds__({SUMMING}) {entry}(unsigned int* ends, long long rows, long long) {{
  __shared__ unsigned int sums[{SUMMING} / 32];
  wait_turn();
  const unsigned int t = threadIdx.x, lane = t % 32;
  unsigned int before = 0;
  for (long long base = 0; base < rows; base += 4 * {SUMMING}) {{
    const long long i = base + 4 * t;
    unsigned int own[4], all = 0;
    for (int k = 0; k < 4; k++) {{
      own[k] = i + k < rows ? ends[i + k] : 0;
      all += own[k];
    }}
    unsigned int sum = all;
    for (unsigned int d = 1; d < 32; d *= 2) {{
      const unsigned int other = __shfl_up_sync(0xffffffffu, sum, d);
      if (lane >= d) sum += other;
    }}
    if (lane == 31) sums[t / 32] = sum;
    __syncthreads();
    unsigned int total = 0, left = 0;
    for (unsigned int w = 0; w < {SUMMING} / 32; w++) {{
      if (w == t / 32) left = total;
      total += sums[w];
    }}
    unsigned int at = before + left + sum - all;
    for (int k = 0; k < 4; k++) {{
      if (i + k < rows) ends[i + k] = at;
      at += own[k];
    }}
    before += total;
    __syncthreads();
  }}
}}
"#
    );
    KernelSource { entry, text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::ops::gather::{Gather, GatherMode};

    #[test]
    fn gradients_of_embeddings_are_rows_and_others_are_not() {
        let table = Type::new(DType::F32, &[50, 8]);
        let dims = Gather::take(&table, 0, 2, GatherMode::Clip).dims;
        let scatter = |kind| Op::from(Scatter { kind, dims: dims.clone(), mode: ScatterMode::Drop });
        let (ids, updates) = (Type::new(DType::I32, &[3, 4, 1]), Type::new(DType::F32, &[3, 4, 8]));
        let args = [table.clone(), ids.clone(), updates.clone()];
        let rows = RowScatter::of(&scatter(ScatterKind::Add), &args).expect("rows");
        assert_eq!((rows.rows, rows.width, rows.count, rows.clip), (50, 8, 12, false));
        assert!(RowScatter::of(&scatter(ScatterKind::Mul), &args).is_none());
        let along = Gather::take(&table, 1, 2, GatherMode::Clip).dims;
        let columns = Op::from(Scatter { kind: ScatterKind::Add, dims: along, mode: ScatterMode::Drop });
        assert!(RowScatter::of(&columns, &[table, ids, Type::new(DType::F32, &[50, 3, 4])]).is_none());
    }
}
