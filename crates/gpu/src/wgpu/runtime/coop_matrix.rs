//! The WGSL source of f16 products with cooperative matrices, an experimental feature of wgpu; adapters support certain sizes. A
//! workgroup computes a tile of C from strips of A and B in shared memory, a subgroup some matrices of it. Sums are in f32.
//!
//! Parameters are those of `tiles`. Adjacent elements are loaded in pairs, so strides, offsets and sizes along them are even.

use super::tiles::{PARAMS, Store, bindings, storer};
use crate::wgpu::ShaderSource;
use crate::wgpu::functions::needed;
use ir::DType;

/// The size of an adapter's cooperative matrices of f16, which the threads of a subgroup multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CoopMatrixSize {
    /// The number of rows and columns.
    pub(super) size: usize,
    /// The threads of a subgroup.
    pub(super) lanes: usize,
}

/// The parameters of a product kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CoopMatmul {
    pub(super) squares: CoopMatrixSize,
    /// The dtype of the results.
    pub(super) out: DType,
    /// The rows and columns of a workgroup's tile.
    pub(super) tile: (usize, usize),
    /// The rows and columns of a subgroup's tile.
    pub(super) subgroup_tile: (usize, usize),
    /// The part of k in shared memory at a time.
    pub(super) k_tile: usize,
    /// Whether the next strips are prefetched during the multiplication.
    pub(super) prefetch: bool,
    /// Whether A is contiguous along k, instead of along its rows.
    pub(super) a_along_k: bool,
    /// Whether B is contiguous along k, instead of along its columns.
    pub(super) b_along_k: bool,
    /// Whether sizes are multiples of the tile's.
    pub(super) exact_tiles: bool,
    /// How results are stored.
    pub(super) store: Store,
}

/// A strip of an operand in shared memory, in memory order: lines of adjacent elements.
struct Strip {
    name: &'static str,
    /// The number of lines, and of pairs in each.
    lines: usize,
    pairs: usize,
    along_k: bool,
}

impl Strip {
    /// The distance between lines in pairs: not a power of two, so that lines start in different banks.
    fn pitch(&self) -> usize {
        self.pairs + 4
    }
}

impl CoopMatmul {
    pub(super) fn threads(&self) -> usize {
        self.subgroups() * self.squares.lanes
    }

    fn subgroups(&self) -> usize {
        (self.tile.0 / self.subgroup_tile.0) * (self.tile.1 / self.subgroup_tile.1)
    }

    fn strips(&self) -> [Strip; 2] {
        let strip = |name, size: usize, along_k: bool| {
            let (lines, long) = if along_k { (size, self.k_tile) } else { (self.k_tile, size) };
            Strip { name, lines, pairs: long / 2, along_k }
        };
        [strip("a", self.tile.0, self.a_along_k), strip("b", self.tile.1, self.b_along_k)]
    }

    /// The bytes of shared memory.
    pub(super) fn shared(&self) -> usize {
        let strips: usize = self.strips().iter().map(|s| 4 * s.lines * s.pitch()).sum();
        strips + 4 * self.subgroups() * self.squares.size * self.squares.size
    }

    /// The source, with A, B and C in these bindings.
    pub(super) fn text(&self, homes: &[usize]) -> ShaderSource {
        let (bm, bn) = self.tile;
        let CoopMatrixSize { size: side, lanes } = self.squares;
        let (threads, depth) = (self.threads(), self.k_tile);
        let parts = self.store == Store::Parts;
        let written = homes[2];
        let (head, all) = bindings(homes, parts.then_some(written));
        let mut t = head;
        for (name, home) in [("a_pair", homes[0]), ("b_pair", homes[1])] {
            let word = match parts && home == written {
                true => format!("atomicLoad(&g{home}[e >> 1u])"),
                false => format!("g{home}[e >> 1u]"),
            };
            t += &format!("fn {name}(e: u32) -> u32 {{ return {word}; }}\n");
        }
        let strips = self.strips();
        for s in &strips {
            t += &format!("var<workgroup> s{}: array<vec2<f16>, {}>;\n", s.name, s.lines * s.pitch());
        }
        t += &format!("var<workgroup> sc: array<f32, {}>;\n", self.subgroups() * side * side);
        t += &match self.store {
            Store::Pairs => {
                let d = self.out.name();
                format!(
                    "fn put2(e: u32, x: f32, y: f32) {{ g{written}[e >> 1u] = f32_{d}(x) | (f32_{d}(y) << 16u); }}\n"
                )
            }
            _ => storer(written, self.out, parts),
        };
        let across = bn / self.subgroup_tile.1;
        t += &format!(
            "
@compute @workgroup_size({threads}) fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>) {{
    let m = p(4u); let n = p(5u); let k = p(6u);
    let splits = p(16u);
    let own = t / {lanes}u; let lane = t % {lanes}u;
    let sy = own / {across}u * {}u; let sx = own % {across}u * {}u;
    let row0 = wg.y * {bm}u; let col0 = wg.x * {bn}u;
    for (var z = wg.z; z < p(3u) * splits; z += wgs.z) {{
    let batch = z / splits; let part = z % splits;
    let k0 = part * p(17u);
    let k1 = min(k, k0 + p(17u));
    let a0 = p(0u) + batch * p(7u); let am = p(8u); let ak = p(9u);
    let b0 = p(1u) + batch * p(10u); let bk = p(11u); let bn = p(12u);
",
            self.subgroup_tile.0, self.subgroup_tile.1
        );
        let (rows, columns) = (self.subgroup_tile.0 / side, self.subgroup_tile.1 / side);
        for i in 0..rows {
            for j in 0..columns {
                t += &format!("    var c{i}_{j} = coop_mat{side}x{side}<f32, C>();\n");
            }
        }
        for s in &strips {
            (0..self.pairs_per_thread(s)).for_each(|r| t += &format!("    var f{}{r} = 0u;\n", s.name));
        }
        let fetch = |at: &str| -> String { strips.iter().map(|s| self.load_strip(s, at)).collect() };
        if self.prefetch {
            t += &fetch("k0");
        }
        t += &format!("    for (var kk = k0; kk < k1; kk += {depth}u) {{\n");
        if !self.prefetch {
            t += &fetch("kk");
        }
        t += &strips.iter().map(|s| self.store_shared(s)).collect::<String>();
        t += "        workgroupBarrier();\n";
        if self.prefetch {
            t += &format!("        if (kk + {depth}u < k1) {{\n");
            t += &fetch(&format!("(kk + {depth}u)"));
            t += "        }\n";
        }
        for q in 0..depth / side {
            for (s, count, base) in [(&strips[0], rows, "sy"), (&strips[1], columns, "sx")] {
                // A is row-major if it is contiguous along k, B if it is not.
                let by_rows = s.along_k == (s.name == "a");
                let load = if by_rows { "coopLoadT" } else { "coopLoad" };
                let (role, pitch) = (s.name.to_uppercase(), s.pitch());
                for i in 0..count {
                    let at = match s.along_k {
                        true => format!("({base} + {}u) * {pitch}u + {}u", i * side, q * side / 2),
                        false => format!("{}u + ({base} + {}u) / 2u", q * side * pitch, i * side),
                    };
                    t += &format!(
                        "        let {}{q}_{i} = {load}<coop_mat{side}x{side}<f16, {role}>>(&s{}[{at}], {pitch}u);\n",
                        s.name, s.name
                    );
                }
            }
            for i in 0..rows {
                for j in 0..columns {
                    t += &format!("        c{i}_{j} = coopMultiplyAdd(a{q}_{i}, b{q}_{j}, c{i}_{j});\n");
                }
            }
        }
        t += "        workgroupBarrier();\n    }\n";
        t += "    let c0 = p(2u) + batch * p(13u) + part * p(18u); let cm = p(14u); let cn = p(15u);\n";
        for i in 0..rows {
            for j in 0..columns {
                t += &self.put(i, j);
            }
        }
        t += "    }\n}\n";
        let source = format!("enable f16;\nenable wgpu_cooperative_matrix;\n{}{t}", needed(&t));
        ShaderSource { source, bindings: all, params: PARAMS, shared: self.shared() }
    }

    /// Stores a matrix of results through shared memory, because the mapping of its elements to threads is not specified.
    fn put(&self, i: usize, j: usize) -> String {
        let CoopMatrixSize { size: side, lanes } = self.squares;
        let mut t =
            format!("    coopStoreT(c{i}_{j}, &sc[own * {}u], {side}u);\n    workgroupBarrier();\n", side * side);
        t += &format!(
            "    for (var x = lane * 2u; x < {}u; x += {}u) {{\n        let r = row0 + sy + {}u + x / {side}u; let c = col0 + sx + {}u + x % {side}u;\n",
            side * side,
            2 * lanes,
            i * side,
            j * side
        );
        t += &format!(
            "        let e = c0 + r * cm + c * cn; let u = sc[own * {}u + x]; let v = sc[own * {}u + x + 1u];\n",
            side * side,
            side * side
        );
        t += &match (self.store, self.exact_tiles) {
            (Store::Pairs, true) => "        put2(e, u, v);\n".to_string(),
            (Store::Pairs, false) => "        if (r < m && c < n) { put2(e, u, v); }\n".to_string(),
            (_, true) => "        put(e, u); put(e + cn, v);\n".to_string(),
            (_, false) => {
                "        if (r < m) { if (c < n) { put(e, u); } if (c + 1u < n) { put(e + cn, v); } }\n".to_string()
            }
        };
        t + "    }\n    workgroupBarrier();\n"
    }

    /// The number of pairs of a strip that a thread loads.
    fn pairs_per_thread(&self, s: &Strip) -> usize {
        (s.lines * s.pairs).div_ceil(self.threads())
    }

    /// The pair of a strip for a thread, and whether it exists.
    fn pair(&self, s: &Strip, round: usize) -> (String, String, String) {
        let id = format!("(t + {}u)", round * self.threads());
        let guard = match (s.lines * s.pairs) % self.threads() {
            0 => String::new(),
            _ => format!("if ({id} < {}u) ", s.lines * s.pairs),
        };
        (guard, format!("{id} / {}u", s.pairs), format!("{id} % {}u", s.pairs))
    }

    /// Loads a strip into registers.
    fn load_strip(&self, s: &Strip, at: &str) -> String {
        let name = s.name;
        let (first, most, across, along) = match name {
            "a" => ("row0", "m", "am", "ak"),
            _ => ("col0", "n", "bn", "bk"),
        };
        let mut t = String::new();
        for round in 0..self.pairs_per_thread(s) {
            let (guard, line, pair) = self.pair(s, round);
            let (x, l) = if s.along_k { ("line", "2u * pair") } else { ("2u * pair", "line") };
            t += &format!(
                "        {guard}{{ let line = {line}; let pair = {pair}; let x = {first} + {x}; let l = {at} + {l};\n"
            );
            let load = format!("f{name}{round} = {name}_pair({name}0 + x * {across} + l * {along});");
            t += &match self.exact_tiles {
                true => format!("            {load}\n"),
                false => format!("            f{name}{round} = 0u; if (x < {most} && l < k1) {{ {load} }}\n"),
            };
            t += "        }\n";
        }
        t
    }

    /// Stores loaded pairs in shared memory. `naga` has no bitcast to two 16-bit numbers; the conversion through f32 is exact.
    fn store_shared(&self, s: &Strip) -> String {
        let mut t = String::new();
        for round in 0..self.pairs_per_thread(s) {
            let (guard, line, pair) = self.pair(s, round);
            t += &format!(
                "        {guard}{{ s{}[{line} * {}u + {pair}] = vec2<f16>(unpack2x16float(f{}{round})); }}\n",
                s.name,
                s.pitch(),
                s.name
            );
        }
        t
    }
}
