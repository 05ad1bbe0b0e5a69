//! The WGSL source of attention kernels.
//!
//! A workgroup has a block of *resident* rows (queries, or keys in the kernel of their gradients) and loops over blocks of
//! *streamed* columns. A thread has four rows, and vectors of four columns. Scores are products over strips of 16 elements of
//! the head dimension, as in `tiles`; the probabilities are stored in shared memory, as the left operand of the second product.
//!
//! Parameters after those of the arguments: total query heads, heads per batch, heads per key head; queries, keys, head
//! dimensions of keys and of values; window back and ahead; the number of batches that share an offset and a length (0: none);
//! scale, cap; batches.

use super::super::tiles::{loader, storer};
use crate::wgpu::functions::needed;
use crate::wgpu::{Binding, ShaderSource};
use ir::DType;

/// The number of threads along the columns.
const ACROSS: usize = 8;
/// Represents minus infinity, which some compilers do not preserve.
const LOWEST: &str = "real(0xff7fffffu)";

/// The kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Forward,
    /// Before the gradients: the row sums of dout·out, and the positions of each batch.
    Losses,
    /// The gradients of queries.
    Queries,
    /// The gradients of keys and values.
    Keys,
}

/// Rows in memory, as a kernel reads them: the load function, the start, the width and the number of rows;
/// elements outside are 0.
#[derive(Clone, Copy)]
struct Rows {
    load: &'static str,
    base: &'static str,
    width: &'static str,
    count: &'static str,
}

const QUERIES: Rows = Rows { load: "q_at", base: "q0", width: "d", count: "q_left" };
const KEYS: Rows = Rows { load: "k_at", base: "k0", width: "d", count: "k_left" };
const VALUES: Rows = Rows { load: "v_at", base: "v0", width: "dv", count: "k_left" };
const COTANGENTS: Rows = Rows { load: "dout_at", base: "o0", width: "dv", count: "q_left" };

impl Rows {
    /// Loads an element of a row into a register that is initially 0.
    fn fetch(self, to: &str, row: &str, element: &str) -> String {
        let Rows { load, base, width, count } = self;
        format!("if ({row} < {count}) {{ {to} = {load}({base} + ({row}) * {width} + {element}); }}")
    }
}

/// A column of a thread among the streamed ones.
fn column(j: usize, h: usize) -> String {
    format!("{}u + tx * 4u", j * ACROSS * 4 + h)
}

/// The position of a score in a thread: row, vector of columns, and element of the vector.
type Score = (usize, usize, usize);

/// The parameters of an attention kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct Shape {
    pub(super) kind: Kind,
    pub(super) dtype: DType,
    /// The number of resident rows, and of streamed columns per iteration.
    pub(super) side: usize,
    /// The part of the head dimension in shared memory at a time; of streamed operands, half as many rows. A few iterations with
    /// many loads saturate a device with few blocks.
    pub(super) depth: usize,
    /// The head dimension of queries and keys, rounded up to a multiple of 32.
    pub(super) d: usize,
    /// The head dimension of values, likewise.
    pub(super) dv: usize,
    pub(super) capped: bool,
    /// Whether 16-bit results are stored as whole words.
    pub(super) pairs: bool,
}

impl Shape {
    fn threads(&self) -> usize {
        self.side / 4 * ACROSS
    }

    /// The number of column vectors of the scores per thread.
    fn columns(&self) -> usize {
        self.side / 4 / ACROSS
    }

    /// A width, rounded up so that threads share it evenly.
    fn padded(&self, width: &str) -> usize {
        if width == "d" { self.d } else { self.dv }
    }

    /// The number of arguments, and the range of those that are written.
    pub(in super::super) fn arguments(&self) -> (usize, std::ops::Range<usize>) {
        match self.kind {
            Kind::Forward => (7, 5..7),
            Kind::Losses => (7, 6..7),
            Kind::Queries => (6, 5..6),
            Kind::Keys => (7, 5..7),
        }
    }

    /// The source, with its arguments in these bindings.
    pub(in super::super) fn text(&self, homes: &[usize]) -> ShaderSource {
        let (count, written) = self.arguments();
        let narrow = self.dtype != DType::F32;
        // Partial words are changed atomically.
        let exchanged = narrow && !self.pairs && self.kind != Kind::Losses;
        let atomic = |h: usize| {
            let results = if self.kind == Kind::Forward { 5..6 } else { written.clone() };
            exchanged && results.clone().any(|w| homes[w] == h)
        };
        let number = homes.iter().max().map_or(0, |h| h + 1);
        let mut t = String::new();
        let mut bindings = Vec::new();
        for i in 0..number {
            let writable = written.clone().any(|w| homes[w] == i);
            let access = if writable { "read_write" } else { "read" };
            let word = if atomic(i) { "atomic<u32>" } else { "u32" };
            t += &format!("@group(0) @binding({i}) var<storage, {access}> g{i}: array<{word}>;\n");
            bindings.push(Binding { writable });
        }
        let params = count + 14;
        t += &format!("struct Params {{ v: array<vec4<u32>, {}> }}\n", params.div_ceil(4));
        t += "@group(1) @binding(0) var<uniform> params: Params;\n";
        t += "fn p(i: u32) -> u32 { return params.v[i >> 2u][i & 3u]; }\n";
        let names = [
            "heads", "per", "group", "tq", "tk", "d", "dv", "back", "ahead", "o_every", "l_every", "scale", "cap",
            "batches",
        ];
        for (i, n) in names.iter().enumerate() {
            let at = format!("p({}u)", count + i);
            t += &match *n {
                "scale" | "cap" => format!("fn z_{n}() -> f32 {{ return real({at}); }}\n"),
                "back" | "ahead" => format!("fn z_{n}() -> i32 {{ return bitcast<i32>({at}); }}\n"),
                _ => format!("fn z_{n}() -> u32 {{ return {at}; }}\n"),
            };
        }
        let load = |name: &str, arg: usize, d: DType| loader(name, homes[arg], d, atomic(homes[arg]));
        let word = |name: &str, arg: usize| {
            let h = homes[arg];
            let value = if atomic(h) { format!("atomicLoad(&g{h}[e])") } else { format!("g{h}[e]") };
            format!("fn {name}(e: u32) -> u32 {{ return {value}; }}\n")
        };
        let put = |arg: usize| {
            let h = homes[arg];
            if atomic(h) { format!("atomicStore(&g{h}[e], x);") } else { format!("g{h}[e] = x;") }
        };
        match self.kind {
            Kind::Forward => {
                for (i, n) in ["q_at", "k_at", "v_at"].iter().enumerate() {
                    t += &load(n, i, self.dtype);
                }
                t += &word("offset_at", 3);
                t += &word("length_at", 4);
                t += &self.stores("out", homes[5]);
                t += &format!("fn put_lse(e: u32, x: u32) {{ {} }}\n", put(6));
                t += &self.positions();
                t += &self.shared();
                t += &self.forward();
            }
            Kind::Losses => {
                t += &load("out_at", 0, self.dtype);
                t += &load("dout_at", 1, self.dtype);
                for (i, n) in ["lse_at", "dlse_at", "offset_at", "length_at"].iter().enumerate() {
                    t += &word(n, 2 + i);
                }
                t += &format!("fn put_number(e: u32, x: u32) {{ {} }}\n", put(6));
                t += &self.positions();
                t += LOSSES;
            }
            Kind::Queries | Kind::Keys => {
                for (i, n) in ["q_at", "k_at", "v_at", "dout_at"].iter().enumerate() {
                    t += &load(n, i, self.dtype);
                }
                t += &word("number_at", 4);
                t += NUMBERS;
                let outs: &[&str] = if self.kind == Kind::Queries { &["dq"] } else { &["dk", "dv"] };
                for (i, n) in outs.iter().enumerate() {
                    t += &self.stores(n, homes[5 + i]);
                }
                t += &self.shared();
                t += &if self.kind == Kind::Queries { self.queries() } else { self.keys() };
            }
        }
        let source = format!("{}{t}", needed(&t));
        ShaderSource { source, bindings, params, shared: self.bytes() }
    }

    /// Stores a vector of four adjacent elements, of which the first ones are valid.
    fn stores(&self, name: &str, home: usize) -> String {
        let d = self.dtype.name();
        if self.dtype == DType::F32 || !self.pairs {
            let one =
                storer(home, self.dtype, self.dtype != DType::F32).replace("fn put(", &format!("fn put_{name}1("));
            return format!(
                "{one}fn put_{name}(e: u32, x: vec4<f32>, n: u32) {{ put_{name}1(e, x.x); if (n > 1u) {{ put_{name}1(e + 1u, x.y); }} if \
                 (n > 2u) {{ put_{name}1(e + 2u, x.z); }} if (n > 3u) {{ put_{name}1(e + 3u, x.w); }} }}\n"
            );
        }
        format!(
            "fn put_{name}(e: u32, x: vec4<f32>, n: u32) {{ g{home}[e >> 1u] = f32_{d}(x.x) | (f32_{d}(x.y) << 16u); if (n > 2u) {{ g{home}[(e >> \
             1u) + 1u] = f32_{d}(x.z) | (f32_{d}(x.w) << 16u); }} }}\n"
        )
    }

    /// The position of the first query of a batch, and the number of its keys.
    fn positions(&self) -> String {
        "fn position_of(batch: u32) -> i32 {
    if (z_o_every() == 0u) { return i32(z_tk()) - i32(z_tq()); }
    return clamp(bitcast<i32>(offset_at(p(OFFSET) + batch / z_o_every())), -536870912, 536870912);
}
fn length_of(batch: u32) -> i32 {
    if (z_l_every() == 0u) { return i32(z_tk()); }
    return clamp(bitcast<i32>(length_at(p(LENGTH) + batch / z_l_every())), 0, i32(z_tk()));
}
"
        .replace("OFFSET", if self.kind == Kind::Forward { "3u" } else { "4u" })
        .replace("LENGTH", if self.kind == Kind::Forward { "4u" } else { "5u" })
    }

    /// The number of streamed rows per iteration.
    fn rows_per_step(&self) -> usize {
        (self.depth / 2).clamp(16, self.side)
    }

    /// The number of vectors of strips: of both sides of the scores, or of the operands of the second product.
    fn strip(&self) -> usize {
        (self.depth * 2 * self.side / 4).max(self.rows_per_step() * self.d.max(self.dv) / 4)
    }

    /// The bytes of shared memory.
    fn bytes(&self) -> usize {
        match self.kind {
            Kind::Losses => 1024,
            _ => 16 * (self.strip() + self.side * self.side / 4 + self.side / 4 * ACROSS) + 8,
        }
    }

    fn shared(&self) -> String {
        let (s, strip) = (self.side, self.strip());
        let maxima = match self.kind {
            Kind::Forward => format!("var<workgroup> most: array<vec4<f32>, {}>;\n", s / 4 * ACROSS),
            _ => String::new(),
        };
        format!(
            "var<workgroup> strip: array<vec4<f32>, {strip}>;\nvar<workgroup> made: array<vec4<f32>, {}>;\n{maxima}var<workgroup> limits: \
             array<i32, 2>;\n",
            s * s / 4
        )
    }

    /// The start of every kernel: its work by blocks of `rows` rows of `heads`; the longest come first if `back`.
    fn begin(&self, rows: &str, heads: &str, back: bool) -> String {
        let (threads, s) = (self.threads(), self.side);
        let start =
            if back { format!("(blocks - 1u - work % blocks) * {s}u") } else { format!("work % blocks * {s}u") };
        let (first, length) = match self.kind {
            Kind::Forward => ("position_of(batch)", "length_of(batch)"),
            _ => ("first_of(batch)", "valid_of(batch)"),
        };
        let per = if self.kind == Kind::Keys { "(z_per() / z_group())" } else { "z_per()" };
        format!(
            "
@compute @workgroup_size({threads}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let tx = t % {ACROSS}u; let ty = t / {ACROSS}u;
    let tq = z_tq(); let tk = z_tk(); let d = z_d(); let dv = z_dv();
    let blocks = ({rows} + {}u) / {s}u;
    for (var work = wg.x; work < blocks * {heads}; work += wgs.x) {{
    let head = work / blocks; let start = {start};
    let batch = head / {per};
    if (t == 0u) {{ limits[0] = {first}; limits[1] = {length}; }}
    let first = workgroupUniformLoad(&limits[0]); let valid = workgroupUniformLoad(&limits[1]);
",
            s - 1
        )
    }

    /// Declares a register for each row and vector of columns.
    fn clear(&self, name: &str, vectors: usize) -> String {
        let all = (0..4).flat_map(|i| (0..vectors).map(move |j| (i, j)));
        all.map(|(i, j)| format!("    var {name}{i}_{j} = vec4<f32>(0.0f);\n")).collect()
    }

    /// `name` += left · rightᵀ.
    fn product(&self, name: &str, left: Rows, right: Rows) -> String {
        let (threads, width) = (self.threads(), left.width);
        let (vectors, depth) = (self.side / 4, self.depth);
        let mut t = format!("    for (var w0 = 0u; w0 < {width}; w0 += {depth}u) {{\n        workgroupBarrier();\n");
        t += &format!(
            "        for (var id = t; id < {}u; id += {threads}u) {{\n            let w = w0 + id % {depth}u; let x = id / {depth}u;\n",
            depth * vectors * 2
        );
        t += "            var f = vec4<f32>(0.0f);\n";
        t += &format!("            if (w < {width}) {{\n                if (x < {vectors}u) {{\n");
        for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
            t += &format!("                    {}\n", left.fetch(&format!("f.{part}"), &format!("x * 4u + {h}u"), "w"));
        }
        t += "                } else {\n";
        for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
            let row = format!("(x - {vectors}u) * 4u + {h}u");
            t += &format!("                    {}\n", right.fetch(&format!("f.{part}"), &row, "w"));
        }
        t += &format!(
            "                }}\n            }}\n            strip[id % {depth}u * {}u + x] = f;\n        }}\n        workgroupBarrier();\n",
            2 * vectors
        );
        t += &format!(
            "        for (var l = 0u; l < {depth}u; l += 1u) {{\n            let a = strip[l * {}u + ty];\n",
            2 * vectors
        );
        for j in 0..self.columns() {
            t += &format!("            let b{j} = strip[l * {}u + {}u + tx];\n", 2 * vectors, vectors + j * ACROSS);
        }
        for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
            for j in 0..self.columns() {
                t += &format!("            {name}{i}_{j} = fma(vec4<f32>(a.{part}), b{j}, {name}{i}_{j});\n");
            }
        }
        t += "        }\n    }\n";
        t
    }

    /// Stores values derived from the scores in shared memory, by columns; `name` has them by rows.
    fn store_shared(&self, name: &str) -> String {
        let mut t = "    workgroupBarrier();\n".to_string();
        for j in 0..self.columns() {
            for part in ["x", "y", "z", "w"] {
                let h = ["x", "y", "z", "w"].iter().position(|p| *p == part).unwrap_or(0);
                let rows: Vec<String> = (0..4).map(|i| format!("{name}{i}_{j}.{part}")).collect();
                t += &format!(
                    "    made[({}u + tx * 4u + {h}u) * {}u + ty] = vec4<f32>({});\n",
                    j * ACROSS * 4,
                    self.side / 4,
                    rows.join(", ")
                );
            }
        }
        t
    }

    /// `name` += stored values · right.
    fn multiply_kept_by_right(&self, name: &str, right: Rows) -> String {
        let (s, threads) = (self.side, self.threads());
        let (vectors, depth) = (self.padded(right.width) / 4, self.rows_per_step());
        let mut t = format!("    for (var c0 = 0u; c0 < {s}u; c0 += {depth}u) {{\n        workgroupBarrier();\n");
        t += &format!(
            "        for (var id = t; id < {}u; id += {threads}u) {{\n            let w = id % {vectors}u * 4u; let x = c0 + id / {vectors}u;\n",
            depth * vectors
        );
        t += "            var f = vec4<f32>(0.0f);\n";
        for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
            let fetch = right.fetch(&format!("f.{part}"), "x", &format!("w + {h}u"));
            t += &format!("            if (w + {h}u < {}) {{ {fetch} }}\n", right.width);
        }
        t += "            strip[id] = f;\n        }\n        workgroupBarrier();\n";
        t += &format!(
            "        for (var l = 0u; l < {depth}u; l += 1u) {{\n            let a = made[(c0 + l) * {}u + ty];\n",
            s / 4
        );
        for j in 0..vectors / ACROSS {
            t += &format!("            let b{j} = strip[l * {vectors}u + {}u + tx];\n", j * ACROSS);
        }
        for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
            for j in 0..vectors / ACROSS {
                t += &format!("            {name}{i}_{j} = fma(vec4<f32>(a.{part}), b{j}, {name}{i}_{j});\n");
            }
        }
        t += "        }\n    }\n";
        t
    }

    /// Stores the rows of a result: `name` times `factor`, in which `{i}` stands for a thread's row.
    fn store(&self, name: &str, put: &str, rows: &str, width: &str, factor: &str) -> String {
        let base = match put {
            "out" | "dq" => format!("p(5u) + (head * tq + start) * {width}"),
            "dk" => format!("p(5u) + (head * tk + start) * {width}"),
            _ => format!("p(6u) + (head * tk + start) * {width}"),
        };
        let mut t = format!("    {{ let base = {base};\n");
        for i in 0..4 {
            let f = factor.replace("{i}", &i.to_string());
            t += &format!("    if (start + ty * 4u + {i}u < {rows}) {{ let row = base + (ty * 4u + {i}u) * {width};\n");
            for j in 0..self.padded(width) / 4 / ACROSS {
                t += &format!(
                    "        {{ let c = {}u + tx * 4u; if (c < {width}) {{ put_{put}(row + c, {name}{i}_{j} * ({f}), {width} - c); }} }}\n",
                    j * ACROSS * 4
                );
            }
            t += "    }\n";
        }
        t + "    }\n"
    }

    fn forward(&self) -> String {
        let (s, cs) = (self.side, self.columns());
        let mut t = self.begin("tq", "z_heads()", true);
        t += &format!(
            "    let q0 = p(0u) + (head * tq + start) * d; let q_left = tq - start;
    let kv = head / z_group();
    let end = min(start + {s}u, tq);
    let low = max(first + i32(start) - z_back(), 0) / {s};
    let high = clamp(first + i32(end) - 1 + z_ahead(), 0, valid);
"
        );
        t += &self.clear("o", self.dv / 4 / ACROSS);
        for i in 0..4 {
            t += &format!("    var m{i} = {LOWEST}; var sum{i} = 0.0f;\n");
        }
        t += &format!("    for (var key = low * {s}; key < high; key += {s}) {{\n");
        t += "    let k0 = p(1u) + (kv * tk + u32(key)) * d; let v0 = p(2u) + (kv * tk + u32(key)) * dv;\n";
        t += "    let k_left = u32(valid - key);\n";
        t += &self.clear("s", cs);
        t += &self.product("s", QUERIES, KEYS);
        for i in 0..4 {
            t += &format!(
                "    let p{i} = first + i32(start + ty * 4u) + {i}; var h{i} = {LOWEST};\n    var seen{i} = 0u;\n"
            );
            for j in 0..cs {
                for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
                    let x = format!("s{i}_{j}.{part}");
                    t += &format!(
                        "    {{ let c = key + {} + i32(tx * 4u); {x} = {}; if (c >= p{i} - z_back() && c < p{i} + z_ahead() && c < valid) \
                         {{ h{i} = max_of(h{i}, {x}); seen{i} |= {}u; }} }}\n",
                        j * ACROSS * 4 + h,
                        self.score(&x),
                        1 << (4 * j + h)
                    );
                }
            }
        }
        t += &format!("    most[tx * {}u + ty] = vec4<f32>(h0, h1, h2, h3);\n    workgroupBarrier();\n", s / 4);
        t += "    var now = vec4<f32>(m0, m1, m2, m3);\n";
        t += &format!("    for (var x = 0u; x < {ACROSS}u; x += 1u) {{ let o = most[x * {}u + ty]; ", s / 4);
        t += "now = vec4<f32>(max_of(now.x, o.x), max_of(now.y, o.y), max_of(now.z, o.z), max_of(now.w, o.w)); }\n";
        for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
            t += &format!("    {{ let f = exp_f32(m{i} - now.{part}); m{i} = now.{part}; sum{i} *= f;\n");
            for j in 0..self.dv / 4 / ACROSS {
                t += &format!("    o{i}_{j} *= f;\n");
            }
            for j in 0..cs {
                for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
                    let x = format!("s{i}_{j}.{part}");
                    t += &format!(
                        "    {x} = pick((seen{i} & {}u) != 0u, exp_f32({x} - m{i}), 0.0f); sum{i} += {x};\n",
                        1 << (4 * j + h)
                    );
                    if self.dtype != DType::F32 {
                        t += &format!("    {x} = round_{}({x});\n", self.dtype.name());
                    }
                }
            }
            t += "    }\n";
        }
        t += &self.store_shared("s");
        t += &self.multiply_kept_by_right("o", VALUES);
        t += "    }\n";
        // Sum over all threads of a row.
        t += "    workgroupBarrier();\n";
        t += &format!("    most[tx * {}u + ty] = vec4<f32>(sum0, sum1, sum2, sum3);\n    workgroupBarrier();\n", s / 4);
        t += &format!(
            "    var total = vec4<f32>(0.0f);\n    for (var x = 0u; x < {ACROSS}u; x += 1u) {{ total += most[x * {}u + ty]; }}\n",
            s / 4
        );
        for (i, part) in ["x", "y", "z", "w"].iter().enumerate() {
            t += &format!(
                "    let none{i} = m{i} == {LOWEST}; let by{i} = select(1.0f / total.{part}, 0.0f, none{i});
    if (tx == 0u && start + ty * 4u + {i}u < tq) {{
        put_lse(p(6u) + head * tq + start + ty * 4u + {i}u, select(bits(m{i} + log_f32(total.{part})), 0xff800000u, none{i}));
    }}
"
            );
        }
        t += &self.store("o", "out", "tq", "dv", "by{i}");
        t + "    workgroupBarrier();\n    }\n}\n"
    }

    /// A score computed from a product: scaled and capped.
    fn score(&self, x: &str) -> String {
        match self.capped {
            true => format!("z_cap() * tanh_f32({x} * z_scale() / z_cap())"),
            false => format!("{x} * z_scale()"),
        }
    }

    /// Computes the probabilities in `s` from the scores, and the gradients of the scores in `g`.
    /// `below` and `less` name the numbers of each query, `seen` states which keys are visible to which queries.
    fn grads(&self, number: &dyn Fn(&str, Score) -> String, seen: &dyn Fn(Score) -> String) -> String {
        let mut t = String::new();
        for i in 0..4 {
            for j in 0..self.columns() {
                for (h, part) in ["x", "y", "z", "w"].iter().enumerate() {
                    let (x, g, at) = (format!("s{i}_{j}.{part}"), format!("g{i}_{j}.{part}"), (i, j, h));
                    t += "    { ";
                    t += &match self.capped {
                        true => format!("let th = tanh_f32({x} * z_scale() / z_cap()); let x = z_cap() * th; "),
                        false => format!("let x = {x} * z_scale(); "),
                    };
                    t += &format!(
                        "{x} = pick({}, exp_f32(x - {}), 0.0f); {g} = {x} * ({g} + {})",
                        seen(at),
                        number("below", at),
                        number("less", at)
                    );
                    t += if self.capped { " * fma(-th, th, 1.0f); " } else { "; " };
                    if self.dtype != DType::F32 {
                        let d = self.dtype.name();
                        t += &format!("{x} = round_{d}({x}); {g} = round_{d}({g}); ");
                    }
                    t += "}\n";
                }
            }
        }
        t
    }

    fn queries(&self) -> String {
        let s = self.side;
        let mut t = self.begin("tq", "z_heads()", true);
        t += &format!(
            "    let q0 = p(0u) + (head * tq + start) * d; let o0 = p(3u) + (head * tq + start) * dv; let q_left = tq - start;
    let kv = head / z_group();
    let end = min(start + {s}u, tq);
    let low = max(first + i32(start) - z_back(), 0) / {s};
    let high = clamp(first + i32(end) - 1 + z_ahead(), 0, valid);
"
        );
        for i in 0..4 {
            t += &format!(
                "    let r{i} = min(start + ty * 4u + {i}u, tq - 1u); let below{i} = below_of(head * tq + r{i}); let less{i} = less_of(head * \
                 tq + r{i}); let p{i} = first + i32(start + ty * 4u) + {i};\n"
            );
        }
        t += &self.clear("dq", self.d / 4 / ACROSS);
        t += &format!("    for (var key = low * {s}; key < high; key += {s}) {{\n");
        t += "    let k0 = p(1u) + (kv * tk + u32(key)) * d; let v0 = p(2u) + (kv * tk + u32(key)) * dv;\n";
        t += "    let k_left = u32(valid - key);\n";
        t += &self.clear("s", self.columns());
        t += &self.clear("g", self.columns());
        t += &self.product("s", QUERIES, KEYS);
        t += &self.product("g", COTANGENTS, VALUES);
        let seen = |(i, j, h): Score| {
            let c = column(j, h);
            format!(
                "key + i32({c}) >= p{i} - z_back() && key + i32({c}) < p{i} + z_ahead() && key + i32({c}) < valid && start + ty * 4u + {i}u < tq"
            )
        };
        t += &self.grads(&|name, (i, _, _)| format!("{name}{i}"), &seen);
        t += &self.store_shared("g");
        t += &self.multiply_kept_by_right("dq", KEYS);
        t += "    }\n";
        t += &self.store("dq", "dq", "tq", "d", "z_scale()");
        t + "    workgroupBarrier();\n    }\n}\n"
    }

    fn keys(&self) -> String {
        let s = self.side;
        let mut t = self.begin("tk", "(z_heads() / z_group())", false);
        t += &format!(
            "    let k0 = p(1u) + (head * tk + start) * d; let v0 = p(2u) + (head * tk + start) * dv;
    let end = min(i32(start) + {s}, valid);
    let k_left = u32(max(valid - i32(start), 0));
    let low = max(i32(start) - first - z_ahead() + 1, 0) / {s};
    let high = select(0, clamp(end - first + z_back(), 0, i32(tq)), end > i32(start));
"
        );
        t += &self.clear("dk", self.d / 4 / ACROSS);
        t += &self.clear("dv", self.dv / 4 / ACROSS);
        t +=
            "    for (var member = 0u; member < z_group(); member += 1u) {\n    let own = head * z_group() + member;\n";
        t += &format!("    for (var query = low * {s}; query < high; query += {s}) {{\n");
        t += "    let q0 = p(0u) + (own * tq + u32(query)) * d; let o0 = p(3u) + (own * tq + u32(query)) * dv;\n";
        t += "    let q_left = tq - u32(query); let n0 = own * tq + u32(query);\n";
        t += &self.clear("s", self.columns());
        t += &self.clear("g", self.columns());
        t += &self.product("s", KEYS, QUERIES);
        t += &self.product("g", VALUES, COTANGENTS);
        // The numbers of this thread's columns.
        for j in 0..self.columns() {
            for h in 0..4 {
                let c = format!("min({}, q_left - 1u)", column(j, h));
                t += &format!("    let below{j}_{h} = below_of(n0 + {c}); let less{j}_{h} = less_of(n0 + {c});\n");
            }
        }
        let seen = |(i, j, h): Score| {
            let c = column(j, h);
            let (key, at) = (format!("i32(start + ty * 4u) + {i}"), format!("first + query + i32({c})"));
            format!("{key} >= {at} - z_back() && {key} < {at} + z_ahead() && {key} < valid && {c} < q_left")
        };
        t += &self.grads(&|name, (_, j, h)| format!("{name}{j}_{h}"), &seen);
        t += &self.store_shared("s");
        t += &self.multiply_kept_by_right("dv", COTANGENTS);
        t += &self.store_shared("g");
        t += &self.multiply_kept_by_right("dk", QUERIES);
        t += "    }\n    }\n";
        t += &self.store("dk", "dk", "tk", "d", "z_scale()");
        t += &self.store("dv", "dv", "tk", "dv", "1.0f");
        t + "    workgroupBarrier();\n    }\n}\n"
    }
}

/// A row by eight threads: dlse - Σ dout·out, 0 where no key is visible; then the positions of batches. Arguments: out, dout,
/// lse, dlse, offsets, lengths, numbers.
const LOSSES: &str = "var<workgroup> sums: array<f32, 256>;
@compute @workgroup_size(256) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {
    let rows = z_heads() * z_tq(); let width = z_dv();
    let most = max(rows, z_batches());
    for (var r0 = wg.x * 32u; r0 < most; r0 += wgs.x * 32u) {
        let row = r0 + t / 8u;
        var s = 0.0f;
        if (row < rows) {
            for (var c = t % 8u; c < width; c += 8u) {
                s = fma(out_at(p(0u) + row * width + c), dout_at(p(1u) + row * width + c), s);
            }
        }
        workgroupBarrier();
        sums[t] = s;
        workgroupBarrier();
        if (t < 32u && r0 + t < rows) {
            var sum = 0.0f;
            for (var k = 0u; k < 8u; k += 1u) { sum += sums[t * 8u + k]; }
            let l = lse_at(p(2u) + r0 + t);
            let none = l == 0xff800000u;
            put_number(p(6u) + 2u * (r0 + t), select(l, 0u, none));
            put_number(p(6u) + 2u * (r0 + t) + 1u, select(bits(minus(real(dlse_at(p(3u) + r0 + t)), sum)), 0u, none));
        }
        if (t < 32u && r0 + t < z_batches()) {
            put_number(p(6u) + 2u * (rows + r0 + t), bitcast<u32>(position_of(r0 + t)));
            put_number(p(6u) + 2u * (rows + r0 + t) + 1u, bitcast<u32>(length_of(r0 + t)));
        }
    }
}
";

/// Loads the results of the first dispatch of backward.
const NUMBERS: &str = "fn below_of(row: u32) -> f32 { return real(number_at(p(4u) + 2u * row)); }
fn less_of(row: u32) -> f32 { return real(number_at(p(4u) + 2u * row + 1u)); }
fn first_of(batch: u32) -> i32 { return bitcast<i32>(number_at(p(4u) + 2u * (z_heads() * z_tq() + batch))); }
fn valid_of(batch: u32) -> i32 { return bitcast<i32>(number_at(p(4u) + 2u * (z_heads() * z_tq() + batch) + 1u)); }
";
