//! `scatter_add` of rows: the gradient of an embedding. On the device, and in the order of the updates: two runs give the same
//! bits, and those are the reference's.
//!
//! One block writes, for each row of the table, the list of updates that go there, in order; then each row adds up its list.

use super::load::{Argument, Launch};
use super::strided::{Text, conversion, storage};
use compiler::program::Place;
use ir::ops::scatter::ScatterMode;
use ir::ops::{Scatter, ScatterKind};
use ir::{DType, Op, Type};

/// Threads of the block that writes the lists.
const PLACING: u32 = 1024;
/// Threads that add up a row.
const ADDING: u32 = 256;

/// Rows of `width` elements added to a table of `rows`, by `count` ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    rows: usize,
    width: usize,
    count: usize,
    dtype: DType,
    ids: DType,
    clip: bool,
}

impl Rows {
    /// What a scatter is, if it is one of rows.
    pub(super) fn of(op: &Op, args: &[Type]) -> Option<Rows> {
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
        Some(Rows {
            rows: table.shape[0],
            width: table.shape[1..].iter().product(),
            count,
            dtype: table.dtype,
            ids: ids.dtype,
            clip: *mode == ScatterMode::Clip,
        })
    }

    /// Bytes of scratch: where each row's list ends, the lists, and the row of each id.
    pub(super) fn scratch(&self) -> usize {
        4 * (self.rows + 2 * self.count)
    }

    pub(super) fn texts(&self) -> [Text; 2] {
        [self.placing(), self.adding()]
    }

    pub(super) fn launches(&self, functions: [usize; 2], args: &[Place], out: &Place) -> Vec<Launch> {
        let (lists, keys) = (4 * self.rows, 4 * (self.rows + self.count));
        let place = |p: &Place| Argument::Place(p.clone());
        let scratch = |offset: usize| Argument::Scratch(offset);
        let sizes = |own: usize| vec![self.rows as i64, own as i64];
        vec![
            Launch {
                function: functions[0],
                blocks: 1,
                threads: PLACING,
                shared: 0,
                args: vec![place(&args[1]), scratch(0), scratch(lists), scratch(keys)],
                sizes: sizes(self.count),
                name: "lists of rows".into(),
            },
            Launch {
                function: functions[1],
                blocks: self.rows.min(1 << 16) as u32,
                threads: ADDING,
                shared: 0,
                args: vec![place(&args[0]), place(&args[2]), place(out), scratch(0), scratch(lists)],
                sizes: sizes(self.width),
                name: "sums of rows".into(),
            },
        ]
    }

    /// Arguments: ids, ends, lists, keys, then i64: rows, count.
    fn placing(&self) -> Text {
        let id = if self.ids == DType::I64 { "long long" } else { "int" };
        let mode = if self.clip { "clip" } else { "drop" };
        let outside = match self.clip {
            true => "v = v < 0 ? 0 : v >= rows ? rows - 1 : v;",
            false => "if (v < 0 || v >= rows) v = rows;",
        };
        let entry = format!("rows_place_{}_{mode}", self.ids);
        let text = format!(
            r#"extern "C" __global__ void __launch_bounds__({PLACING}) {entry}(const {id}* ids, unsigned int* ends,
    unsigned int* lists, unsigned int* keys, long long rows, long long count) {{
  __shared__ unsigned int shared[{PLACING}];
  const unsigned int t = threadIdx.x;
  for (long long i = t; i < rows; i += {PLACING}) ends[i] = 0;
  __syncthreads();
  for (long long i = t; i < count; i += {PLACING}) {{
    long long v = ids[i];
    {outside}
    keys[i] = (unsigned int)v;
    if (v < rows) asm volatile("red.global.add.u32 [%0], 1;" ::"l"(ends + v) : "memory");
  }}
  __syncthreads();
  // Where each row's list begins: a running sum, {PLACING} rows at a time.
  unsigned int before = 0;
  for (long long base = 0; base < rows; base += {PLACING}) {{
    const long long i = base + t;
    const unsigned int own = i < rows ? ends[i] : 0;
    shared[t] = own;
    __syncthreads();
    for (unsigned int d = 1; d < {PLACING}; d *= 2) {{
      const unsigned int add = t >= d ? shared[t - d] : 0;
      __syncthreads();
      shared[t] += add;
      __syncthreads();
    }}
    if (i < rows) ends[i] = before + shared[t] - own;
    before += shared[{PLACING} - 1];
    __syncthreads();
  }}
  // Each id goes behind those before it, {PLACING} at a time; a row's end moves on with them.
  for (long long base = 0; base < count; base += {PLACING}) {{
    const long long i = base + t;
    const unsigned int v = i < count ? keys[i] : 0xffffffffu;
    shared[t] = v;
    __syncthreads();
    unsigned int rank = 0, equal = 0;
    for (unsigned int s = 0; s < {PLACING}; s++) {{
      const bool same = shared[s] == v;
      equal += same;
      rank += same && s < t;
    }}
    const bool inside = v < rows;
    const unsigned int at = inside ? ends[v] + rank : 0;
    __syncthreads();
    if (inside) {{
      lists[at] = (unsigned int)i;
      if (rank + 1 == equal) ends[v] = at + 1;
    }}
    __syncthreads();
  }}
}}
"#
        );
        Text { entry, text }
    }

    /// Arguments: table, updates, out, ends, lists, then i64: rows, width. Sums are rounded after each addition, as the
    /// reference's are.
    fn adding(&self) -> Text {
        let entry = format!("rows_add_{}", self.dtype);
        let (load, store) = conversion(self.dtype);
        let (kept, sum) = (storage(self.dtype), if self.dtype == DType::F64 { "double" } else { "float" });
        let text = format!(
            r#"static __device__ __forceinline__ {sum} {entry}_load({kept} x) {{ {load} }}
static __device__ __forceinline__ {kept} {entry}_store({sum} x) {{ {store} }}
extern "C" __global__ void __launch_bounds__({ADDING}) {entry}(const {kept}* table, const {kept}* updates, {kept}* out,
    const unsigned int* ends, const unsigned int* lists, long long rows, long long width) {{
  for (long long v = blockIdx.x; v < rows; v += gridDim.x) {{
    const unsigned int first = v == 0 ? 0 : ends[v - 1], last = ends[v];
    for (long long c = threadIdx.x; c < width; c += {ADDING}) {{
      {kept} sum = table[v * width + c];
      unsigned int j = first;
      for (; j + 4 <= last; j += 4) {{
        const {kept} a = updates[lists[j] * width + c], b = updates[lists[j + 1] * width + c];
        const {kept} d = updates[lists[j + 2] * width + c], e = updates[lists[j + 3] * width + c];
        sum = {entry}_store({entry}_load(sum) + {entry}_load(a));
        sum = {entry}_store({entry}_load(sum) + {entry}_load(b));
        sum = {entry}_store({entry}_load(sum) + {entry}_load(d));
        sum = {entry}_store({entry}_load(sum) + {entry}_load(e));
      }}
      for (; j < last; j++) sum = {entry}_store({entry}_load(sum) + {entry}_load(updates[lists[j] * width + c]));
      out[v * width + c] = sum;
    }}
  }}
}}
"#
        );
        Text { entry, text }
    }
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
        let rows = Rows::of(&scatter(ScatterKind::Add), &args).expect("rows");
        assert_eq!((rows.rows, rows.width, rows.count, rows.clip), (50, 8, 12, false));
        assert!(Rows::of(&scatter(ScatterKind::Mul), &args).is_none());
        let along = Gather::take(&table, 1, 2, GatherMode::Clip).dims;
        let columns = Op::from(Scatter { kind: ScatterKind::Add, dims: along, mode: ScatterMode::Drop });
        assert!(Rows::of(&columns, &[table, ids, Type::new(DType::F32, &[50, 3, 4])]).is_none());
    }
}
