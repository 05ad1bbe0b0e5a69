//! The WGSL source of products with few rows, as in decoding: every element of B is read once, by coalesced loads, and the
//! partial sums of a column's threads are added in shared memory.
//!
//! Parameters are those of `tiles`.

use super::tiles::{PARAMS, bindings, loader, storer};
use crate::wgpu::ShaderSource;
use crate::wgpu::functions::needed;
use ir::DType;

/// The threads of a workgroup.
const THREADS: usize = 256;

/// The parameters of a product kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gemv {
    pub(super) dtype: DType,
    pub(super) out: DType,
    /// The number of rows of A: 1 to 4.
    pub(super) rows: usize,
    /// Whether B is contiguous along k, instead of along its columns.
    pub(super) along_k: bool,
}

impl Gemv {
    /// The number of columns of a workgroup.
    pub(super) fn columns(&self) -> usize {
        if self.along_k { 8 } else { 32 }
    }

    pub(super) fn text(&self, homes: &[usize]) -> ShaderSource {
        let columns = self.columns();
        let slices = THREADS / columns;
        let parts = self.out != DType::F32;
        let written = homes[2];
        let atomic = |h: usize| parts && h == written;
        let (head, all) = bindings(homes, parts.then_some(written));
        let mut t = head;
        t += &loader("a_at", homes[0], self.dtype, atomic(homes[0]));
        t += &loader("b_at", homes[1], self.dtype, atomic(homes[1]));
        t += &storer(written, self.out, parts);
        t += &format!("var<workgroup> sums: array<f32, {}>;\n", THREADS * self.rows);
        let (column, slice) = match self.along_k {
            true => (format!("t / {slices}u"), format!("t % {slices}u")),
            false => (format!("t % {columns}u"), format!("t / {columns}u")),
        };
        t += &format!(
            "
@compute @workgroup_size({THREADS}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let n = p(5u);
    let splits = p(16u);
    let column = {column}; let slice = {slice};
    let ak = p(9u); let bk = p(11u);
    for (var z = wg.z; z < p(3u) * splits; z += wgs.z) {{
    let batch = z / splits; let part = z % splits;
    let k0 = part * p(17u);
    let k1 = min(p(6u), k0 + p(17u));
    for (var block = wg.x; block * {columns}u < n; block += wgs.x) {{
    let c = block * {columns}u + column;
    let a0 = p(0u) + batch * p(7u);
    let b0 = p(1u) + batch * p(10u) + c * p(12u);
"
        );
        for r in 0..self.rows {
            t += &format!("    var s{r} = 0.0f;\n");
        }
        t += &format!(
            "    if (c < n) {{\n        for (var l = k0 + slice; l < k1; l += {slices}u) {{\n            let b = b_at(b0 + l * bk);\n"
        );
        for r in 0..self.rows {
            t += &format!("            s{r} = fma(a_at(a0 + {r}u * p(8u) + l * ak), b, s{r});\n");
        }
        t += "        }\n    }\n    workgroupBarrier();\n";
        for r in 0..self.rows {
            t += &format!("    sums[{r}u * {THREADS}u + column * {slices}u + slice] = s{r};\n");
        }
        t += "    workgroupBarrier();\n";
        t += &format!("    for (var h = {}u; h > 0u; h = h >> 1u) {{\n        if (slice < h) {{\n", slices / 2);
        for r in 0..self.rows {
            let at = format!("{r}u * {THREADS}u + column * {slices}u + slice");
            t += &format!("            sums[{at}] += sums[{at} + h];\n");
        }
        t += "        }\n        workgroupBarrier();\n    }\n    if (slice == 0u && c < n) {\n";
        for r in 0..self.rows {
            t += &format!(
                "        put(p(2u) + batch * p(13u) + part * p(18u) + {r}u * p(14u) + c * p(15u), sums[{r}u * {THREADS}u + column * \
                 {slices}u]);\n"
            );
        }
        t += "    }\n    }\n    }\n}\n";
        let source = format!("{}{t}", needed(&t));
        ShaderSource { source, bindings: all, params: PARAMS, shared: 4 * THREADS * self.rows }
    }
}
