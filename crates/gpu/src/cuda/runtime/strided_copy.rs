//! Kernels that are not generated from programs: strided copies, and products that cuBLASLt does not support.

use ir::DType;

/// The source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelSource {
    /// Its name in the source.
    pub(crate) entry: String,
    pub(crate) text: String,
}

/// The threads of a block of these kernels.
pub(crate) const THREADS: u32 = 256;

/// `to[b, i, j] = from[b, i, j]` for elements of 1, 2, 4 or 8 bytes. Arguments: to, from, then i64: the sizes, the strides of
/// `to`, the strides of `from`. Threads of a block process adjacent elements along `j`.
pub(crate) fn strided_copy(size: usize) -> KernelSource {
    let ty = match size {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned int",
        _ => "unsigned long long",
    };
    let entry = format!("strided_copy_{size}");
    let text = format!(
        r#"extern "C" __global__ void {entry}({ty}* to, const {ty}* from,
    long long n0, long long n1, long long n2,
    long long t0, long long t1, long long t2,
    long long f0, long long f1, long long f2) {{
  wait_turn();
  long long total = n0 * n1 * n2;
  long long step = (long long)gridDim.x * {THREADS};
  for (long long x = (long long)blockIdx.x * {THREADS} + threadIdx.x; x < total; x += step) {{
    long long j = x % n2, y = x / n2;
    long long i = y % n1, b = y / n1;
    to[b * t0 + i * t1 + j * t2] = from[b * f0 + i * f1 + j * f2];
  }}
}}
"#
    );
    KernelSource { entry, text }
}

/// `c[b, i, j] = Σ a[b, i, l]·b[b, l, j]`, summed in order. Arguments: a, b, c, then i64: batch, m, n, k and the strides of
/// a, b and c. It uses one thread per element and is not optimized; it is the fallback for cuBLASLt.
pub(crate) fn product(dtype: DType, out: DType) -> KernelSource {
    let entry = format!("product_{dtype}_{out}");
    let sum = if dtype == DType::F64 { "double" } else { "float" };
    let fma = if dtype == DType::F64 { "fma.rn.f64 %0, %1, %2, %3;" } else { "fma.rn.f32 %0, %1, %2, %3;" };
    let r = if dtype == DType::F64 { "d" } else { "f" };
    let (load, store) = (conversion(dtype).0, conversion(out).1);
    let (ti, to) = (storage(dtype), storage(out));
    let text = format!(
        r#"static __device__ __forceinline__ {sum} {entry}_load({ti} x) {{ {load} }}
static __device__ __forceinline__ {to} {entry}_store({sum} x) {{ {store} }}
extern "C" __global__ void {entry}(const {ti}* a, const {ti}* b, {to}* c,
    long long batch, long long m, long long n, long long k,
    long long a0, long long a1, long long a2,
    long long b0, long long b1, long long b2,
    long long c0, long long c1, long long c2) {{
  wait_turn();
  long long total = batch * m * n;
  long long step = (long long)gridDim.x * {THREADS};
  for (long long x = (long long)blockIdx.x * {THREADS} + threadIdx.x; x < total; x += step) {{
    long long j = x % n, y = x / n;
    long long i = y % m, z = y / m;
    const {ti}* p = a + z * a0 + i * a1;
    const {ti}* q = b + z * b0 + j * b2;
    {sum} sum = 0;
    for (long long l = 0; l < k; l++, p += a2, q += b1)
      asm("{fma}" : "={r}"(sum) : "{r}"({entry}_load(*p)), "{r}"({entry}_load(*q)), "{r}"(sum));
    c[z * c0 + i * c1 + j * c2] = {entry}_store(sum);
  }}
}}
"#
    );
    KernelSource { entry, text }
}

pub(super) fn storage(d: DType) -> &'static str {
    match d {
        DType::F64 => "double",
        DType::F32 => "float",
        _ => "unsigned short",
    }
}

/// The conversions from a dtype to the accumulator type and back.
pub(super) fn conversion(d: DType) -> (&'static str, &'static str) {
    match d {
        DType::F16 => (
            r#"float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;"#,
            r#"unsigned short y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;"#,
        ),
        // To nearest, ties to even; NaN stays NaN.
        DType::BF16 => (
            r#"float y; asm("mov.b32 %0, %1;" : "=f"(y) : "r"((unsigned int)x << 16)); return y;"#,
            r#"unsigned int y; asm("mov.b32 %0, %1;" : "=r"(y) : "f"(x));
  if (x != x) return (unsigned short)((y >> 16) | 0x40u);
  return (unsigned short)((y + 0x7fffu + ((y >> 16) & 1u)) >> 16);"#,
        ),
        _ => ("return x;", "return x;"),
    }
}

/// The number of blocks for this many elements.
pub(crate) fn blocks(elements: usize) -> u32 {
    elements.div_ceil(THREADS as usize).min(1 << 16) as u32
}
