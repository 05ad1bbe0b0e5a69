//! The WGSL source of tiled matrix products: a workgroup computes a tile of C from strips of A and B in shared memory, a thread a
//! smaller tile of it in registers.
//!
//! Parameters: A, B, C (or partial sums) in elements; batch, m, n, k; strides of A, B, C (batch, row, column each); splits, k of
//! each split, elements of one split's results.

use crate::wgpu::functions::needed;
use crate::wgpu::{Binding, ShaderSource};
use ir::DType;

/// The parameters of a product kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TiledMatmul {
    /// The dtype of the operands.
    pub(super) dtype: DType,
    /// The dtype of the results.
    pub(super) out: DType,
    /// The rows and columns of a workgroup's tile: 32, 64 or 128.
    pub(super) tile: (usize, usize),
    /// The rows and columns of a thread's tile: 4 or 8.
    pub(super) thread_tile: (usize, usize),
    /// Whether the next strips are prefetched during the multiplication.
    pub(super) prefetch: bool,
    /// The part of k in shared memory at a time.
    pub(super) k_tile: usize,
    /// Whether A is contiguous along k, instead of along its rows.
    pub(super) a_along_k: bool,
    /// Whether B is contiguous along k, instead of along its columns.
    pub(super) b_along_k: bool,
    /// Whether sizes are multiples of the tile's.
    pub(super) exact_tiles: bool,
    /// How results are stored.
    pub(super) store: Store,
}

/// How results of less than 32 bits are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Store {
    /// The elements have 32 bits.
    Single,
    /// Two adjacent elements are stored as a word.
    Pairs,
    /// Partial words are changed atomically.
    Parts,
}

/// The number of parameter words.
pub(super) const PARAMS: usize = 19;

/// A function that loads an element by index.
pub(super) fn loader(name: &str, home: usize, d: DType, atomic: bool) -> String {
    let word = |at: &str| match atomic {
        true => format!("atomicLoad(&g{home}[{at}])"),
        false => format!("g{home}[{at}]"),
    };
    let value = match d {
        DType::F32 => format!("bitcast<f32>({})", word("e")),
        _ => format!("{}_f32(({} >> ((e & 1u) << 4u)) & 0xffffu)", d.name(), word("e >> 1u")),
    };
    format!("fn {name}(e: u32) -> f32 {{ return {value}; }}\n")
}

/// Declarations of bindings; the last argument is written.
pub(super) fn bindings(homes: &[usize], atomic: Option<usize>) -> (String, Vec<Binding>) {
    let count = homes.iter().max().map_or(0, |h| h + 1);
    let written = homes.last().copied();
    let mut text = String::new();
    let mut all = Vec::new();
    for i in 0..count {
        let writable = written == Some(i);
        let access = if writable { "read_write" } else { "read" };
        let word = if atomic == Some(i) { "atomic<u32>" } else { "u32" };
        text.push_str(&format!("@group(0) @binding({i}) var<storage, {access}> g{i}: array<{word}>;\n"));
        all.push(Binding { writable });
    }
    text.push_str(&format!(
        "struct Params {{ v: array<vec4<u32>, {}> }}\n@group(1) @binding(0) var<uniform> params: Params;\n",
        PARAMS.div_ceil(4)
    ));
    text.push_str("fn p(i: u32) -> u32 { return params.v[i >> 2u][i & 3u]; }\n");
    (text, all)
}

/// A function that stores one result.
pub(super) fn storer(home: usize, out: DType, atomic: bool) -> String {
    match (out, atomic) {
        (DType::F32, false) => format!("fn put(e: u32, x: f32) {{ g{home}[e] = bitcast<u32>(x); }}\n"),
        (DType::F32, true) => format!("fn put(e: u32, x: f32) {{ atomicStore(&g{home}[e], bitcast<u32>(x)); }}\n"),
        (d, _) => format!(
            "fn put(e: u32, x: f32) {{ let s = (e & 1u) << 4u; let old = atomicLoad(&g{home}[e >> 1u]) >> s; \
             atomicXor(&g{home}[e >> 1u], ((old ^ f32_{}(x)) & 0xffffu) << s); }}\n",
            d.name()
        ),
    }
}

impl TiledMatmul {
    fn threads(&self) -> usize {
        (self.tile.0 / self.rows()) * (self.tile.1 / self.columns())
    }

    fn rows(&self) -> usize {
        self.thread_tile.0
    }

    fn columns(&self) -> usize {
        self.thread_tile.1
    }

    /// The bytes of shared memory.
    pub(super) fn shared(&self) -> usize {
        4 * self.k_tile * (self.tile.0 + self.tile.1)
    }

    /// The source, with A, B and C in these bindings.
    pub(super) fn text(&self, homes: &[usize]) -> ShaderSource {
        let (bm, bn) = self.tile;
        let (threads, depth) = (self.threads(), self.k_tile);
        let across = bn / self.columns();
        let parts = self.store == Store::Parts;
        let written = homes[2];
        let atomic = |h: usize| parts && h == written;
        let (head, all) = bindings(homes, parts.then_some(written));
        let mut t = head;
        t += &loader("a_at", homes[0], self.dtype, atomic(homes[0]));
        t += &loader("b_at", homes[1], self.dtype, atomic(homes[1]));
        t += &format!("var<workgroup> sa: array<vec4<f32>, {}>;\n", depth * bm / 4);
        t += &format!("var<workgroup> sb: array<vec4<f32>, {}>;\n", depth * bn / 4);
        match self.store {
            Store::Pairs => {
                let d = self.out.name();
                t += &format!(
                    "fn put2(e: u32, x: f32, y: f32) {{ g{written}[e >> 1u] = f32_{d}(x) | (f32_{d}(y) << 16u); }}\n"
                );
            }
            _ => t += &storer(written, self.out, parts),
        }
        t += &format!(
            "
@compute @workgroup_size({threads}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let m = p(4u); let n = p(5u); let k = p(6u);
    let splits = p(16u);
    let tx = t % {across}u; let ty = t / {across}u;
    let row0 = wg.y * {bm}u; let col0 = wg.x * {bn}u;
    for (var z = wg.z; z < p(3u) * splits; z += wgs.z) {{
    let batch = z / splits; let part = z % splits;
    let k0 = part * p(17u);
    let k1 = min(k, k0 + p(17u));
    let a0 = p(0u) + batch * p(7u); let am = p(8u); let ak = p(9u);
    let b0 = p(1u) + batch * p(10u); let bk = p(11u); let bn = p(12u);
"
        );
        let (ri, ci) = (self.rows(), self.columns() / 4);
        for i in 0..ri {
            for j in 0..ci {
                t += &format!("    var c{i}_{j} = vec4<f32>(0.0f);\n");
            }
        }
        let (sides, strips) = ([("row0", "m"), ("col0", "n")], [("a0", "am", "ak"), ("b0", "bn", "bk")]);
        let fetch = |at: &str| {
            self.load_strip("a", "a_at", bm, self.a_along_k, sides[0], strips[0], at)
                + &self.load_strip("b", "b_at", bn, self.b_along_k, sides[1], strips[1], at)
        };
        let keep = self.store_shared("a", bm, self.a_along_k) + &self.store_shared("b", bn, self.b_along_k);
        t += &self.vectors("a", bm);
        t += &self.vectors("b", bn);
        if self.prefetch {
            t += &fetch("k0");
        }
        t += &format!("    for (var kk = k0; kk < k1; kk += {depth}u) {{\n");
        if !self.prefetch {
            t += &fetch("kk");
        }
        t += &keep;
        t += "        workgroupBarrier();\n";
        if self.prefetch {
            t += &format!("        if (kk + {depth}u < k1) {{\n");
            t += &fetch(&format!("(kk + {depth}u)"));
            t += "        }\n";
        }
        t += &format!("        for (var q = 0u; q < {depth}u; q += 1u) {{\n");
        for i in 0..ri / 4 {
            t += &format!("            let a{i} = sa[q * {}u + {}u + ty];\n", bm / 4, i * bm / ri);
        }
        for j in 0..ci {
            t += &format!("            let b{j} = sb[q * {}u + {}u + tx];\n", bn / 4, j * bn / (4 * ci));
        }
        for i in 0..ri {
            for j in 0..ci {
                let part = ["x", "y", "z", "w"][i % 4];
                t += &format!("            c{i}_{j} = fma(vec4<f32>(a{}.{part}), b{j}, c{i}_{j});\n", i / 4);
            }
        }
        t += "        }\n        workgroupBarrier();\n    }\n";
        t += "    let c0 = p(2u) + batch * p(13u) + part * p(18u); let cm = p(14u); let cn = p(15u);\n";
        for i in 0..ri {
            let row = format!("row0 + {}u + ty * 4u", i / 4 * (4 * bm / ri) + i % 4);
            t += &format!("    {{ let r = {row};\n");
            let mut inner = String::new();
            for j in 0..ci {
                let col = format!("col0 + {}u + tx * 4u", j * (bn / ci));
                inner += &format!("        {{ let c = {col}; let e = c0 + r * cm + c * cn;\n");
                if self.store == Store::Pairs {
                    for h in 0..2 {
                        let (x, y) = ([("x", "y"), ("z", "w")][h].0, [("x", "y"), ("z", "w")][h].1);
                        let put = format!("put2(e + {}u, c{i}_{j}.{x}, c{i}_{j}.{y});", 2 * h);
                        inner += &self.guarded(&format!("c + {}u < n", 2 * h), &put);
                    }
                } else {
                    for h in 0..4 {
                        let put = format!("put(e + {h}u * cn, c{i}_{j}.{});", ["x", "y", "z", "w"][h]);
                        inner += &self.guarded(&format!("c + {h}u < n"), &put);
                    }
                }
                inner += "        }\n";
            }
            t += &match self.exact_tiles {
                true => inner,
                false => format!("    if (r < m) {{\n{inner}    }}\n"),
            };
            t += "    }\n";
        }
        t += "    }\n}\n";
        let source = format!("{}{t}", needed(&t));
        ShaderSource { source, bindings: all, params: PARAMS, shared: self.shared() }
    }

    fn guarded(&self, condition: &str, what: &str) -> String {
        match self.exact_tiles {
            true => format!("            {what}\n"),
            false => format!("            if ({condition}) {{ {what} }}\n"),
        }
    }

    /// The number of vectors of a strip that a thread loads.
    fn vectors_per_thread(&self, size: usize) -> usize {
        (self.k_tile * size / 4).div_ceil(self.threads())
    }

    /// Declares registers for the vectors that a thread loads.
    fn vectors(&self, strip: &str, size: usize) -> String {
        (0..self.vectors_per_thread(size)).map(|i| format!("    var f{strip}{i} = vec4<f32>(0.0f);\n")).collect()
    }

    /// The vector of a strip for a thread: four adjacent elements across k, with adjacent threads along contiguous memory.
    fn vector(&self, round: usize, size: usize, along_k: bool) -> (String, String, String) {
        let (threads, depth, vectors) = (self.threads(), self.k_tile, size / 4);
        let id = format!("(t + {}u)", round * threads);
        let guard = match (depth * vectors) % threads {
            0 => String::new(),
            _ => format!("if ({id} < {}u) ", depth * vectors),
        };
        match along_k {
            true => (guard, format!("{id} % {depth}u"), format!("{id} / {depth}u")),
            false => (guard, format!("{id} / {vectors}u"), format!("{id} % {vectors}u")),
        }
    }

    /// Loads a strip into registers.
    #[expect(clippy::too_many_arguments, reason = "the names of one operand")]
    fn load_strip(
        &self,
        strip: &str,
        load: &str,
        size: usize,
        along_k: bool,
        (first, most): (&str, &str),
        (base, across, along): (&str, &str, &str),
        at: &str,
    ) -> String {
        let mut t = String::new();
        for round in 0..self.vectors_per_thread(size) {
            let (guard, q, v) = self.vector(round, size, along_k);
            let w = format!("f{strip}{round}");
            t += &format!("        {guard}{{ let q = {q}; let v = {v};\n");
            t += &format!("            let x = {first} + v * 4u; let l = {at} + q;\n");
            t += &format!("            let e = {base} + x * {across} + l * {along};\n");
            match self.exact_tiles {
                true => {
                    for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
                        t += &format!("            {w}.{part} = {load}(e + {h}u * {across});\n");
                    }
                }
                false => {
                    t += &format!("            {w} = vec4<f32>(0.0f);\n            if (l < k1) {{\n");
                    for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
                        t += &format!(
                            "                if (x + {h}u < {most}) {{ {w}.{part} = {load}(e + {h}u * {across}); }}\n"
                        );
                    }
                    t += "            }\n";
                }
            }
            t += "        }\n";
        }
        t
    }

    /// Stores loaded vectors in shared memory.
    fn store_shared(&self, strip: &str, size: usize, along_k: bool) -> String {
        let mut t = String::new();
        for round in 0..self.vectors_per_thread(size) {
            let (guard, q, v) = self.vector(round, size, along_k);
            t += &format!("        {guard}{{ s{strip}[({q}) * {}u + {v}] = f{strip}{round}; }}\n", size / 4);
        }
        t
    }
}
