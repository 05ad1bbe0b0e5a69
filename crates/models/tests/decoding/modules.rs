//! A generator of small language models: sequence operations and position-wise parts in random order.

use std::fmt::Write;
use tensorloom_models::SplitMix64;

/// The vocabulary size.
pub(crate) const VOCABULARY: usize = 11;
/// The maximum sequence length, also the size of learned position tables.
pub(crate) const LONGEST: usize = 12;
const WIDTH: usize = 8;

/// The source of a model under construction.
pub(crate) struct Text {
    params: String,
    constants: String,
    graph: String,
    /// The current tensor `[B, T, width]`.
    x: String,
    names: usize,
}

impl Text {
    fn name(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{stem}{}", self.names)
    }

    /// Declares a parameter.
    fn param(&mut self, stem: &str, shape: &str) -> String {
        let name = self.name(stem);
        let _ = writeln!(self.params, "    {name}: {shape}");
        name
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.graph, "      {line}");
    }

    /// Adds a new tensor to the current one (residual connection).
    fn add(&mut self, y: &str) {
        let (x, next) = (self.x.clone(), self.name("x"));
        self.line(&format!("({x}, {y}) -> add() -> {next}"));
        self.x = next;
    }

    /// A linear projection with a new matrix.
    fn linear(&mut self, x: &str, width: usize) -> String {
        let (w, y) = (self.param("w", &format!("[{width}, {WIDTH}]")), self.name("y"));
        self.line(&format!("{x} -> matmul({w}, transpose=NT) -> {y}"));
        y
    }

    /// Queries, keys and values, `[B, heads, T, width / heads]`.
    fn heads(&mut self, heads: usize) -> [String; 3] {
        [0; 3].map(|_| {
            let x = self.x.clone();
            let (flat, y) = (self.linear(&x, WIDTH), self.name("h"));
            let d = WIDTH / heads;
            self.line(&format!("{flat} -> view([B, T, {heads}, {d}]) -> transpose(1, 2) -> {y}"));
            y
        })
    }

    fn from_heads(&mut self, y: &str) {
        let flat = self.name("flat");
        self.line(&format!("{y} -> transpose(1, 2) -> view([B, T, {WIDTH}]) -> {flat}"));
        self.add(&flat);
    }
}

/// A part of a model: writes statements.
pub(crate) type Part = fn(&mut SplitMix64, &mut Text);

/// Every part with its name and whether it needs the whole sequence.
pub(crate) const PARTS: &[(&str, Part, bool)] = &[
    ("feed-forward", feed_forward, false),
    ("norm", norm, false),
    ("channels first", channels_first, false),
    ("rows of a table", table_rows, false),
    ("positions", positions, false),
    ("numbers that are no positions", fixed_numbers, false),
    ("filled", filled, false),
    ("flash attention", flash_attention, false),
    ("attention with slopes", slopes, false),
    ("mamba convolution", convolution, false),
    ("mamba scan", selective_scan, false),
    ("experts", experts, false),
    ("modules of their own", own_module, false),
    ("manual attention", manual_attention, true),
    ("attention to all", attention_to_all, true),
    ("attention to a memory", memory, true),
    ("mean over time", mean_over_time, true),
    ("softmax over time", softmax_over_time, true),
    ("cumulative by a matrix", cumulative, true),
    ("shifted tokens", shifted, true),
    ("divided by the length", by_length, true),
    ("by a condition on the length", by_condition, true),
    ("counted from the end", from_the_end, true),
    ("a view across time", view_across, true),
    ("ones summed over time", ones_summed, true),
    ("a state that is given", given_state, true),
];

/// The source of a module, and whether a part of it needs the whole sequence.
pub(crate) struct Parts {
    pub(crate) text: String,
    pub(crate) mixes: bool,
}

/// A random model.
pub(crate) fn module(random: &mut SplitMix64) -> Parts {
    let count = 2 + random.below(4);
    // Half of all models have no parts that need the whole sequence.
    let plain = random.below(2) == 0;
    let choices: Vec<_> = PARTS.iter().filter(|(_, _, mixes)| !(plain && *mixes)).collect();
    let chosen: Vec<_> = (0..count).map(|_| choices[random.below(choices.len())]).collect();
    let mixes = chosen.iter().any(|(_, _, mixes)| *mixes);
    let parts: Vec<Part> = chosen.iter().map(|(_, part, _)| *part).collect();
    Parts { text: module_of(random, &parts), mixes }
}

/// A model with these parts.
pub(crate) fn module_of(random: &mut SplitMix64, parts: &[Part]) -> String {
    let mut text =
        Text { params: String::new(), constants: String::new(), graph: String::new(), x: "x0".into(), names: 0 };
    for part in parts {
        part(random, &mut text);
    }
    let Text { params, constants, graph, x, .. } = text;
    let constants = if constants.is_empty() { constants } else { format!("  constants:\n{constants}\n") };
    format!(
        "module Doubled(width: int):\n  params:\n    w: [width, width]\n\n  forward:\n    in: [B, T, width]\n    \
         out: [B, T, width]\n    graph:\n      in -> matmul(w, transpose=NT) -> a\n      zeros([B, T, width]) -> z\n      \
         (a, z, in) -> add3() -> out\n\n\
         model M(tokens: int = {VOCABULARY}):\n  params:\n    table: [tokens, {WIDTH}]\n{params}    head: [tokens, {WIDTH}]\n\n\
         {constants}  forward:\n    in: ids: [B, T, int32]\n    out: [B, T, tokens]\n\n    graph:\n      \
         ids -> embedding(table) -> x0\n{graph}      {x} -> scale(3.0) -> matmul(head, transpose=NT) -> out\n"
    )
}

/// A decoder with these parts and cross-attention to an encoder.
pub(crate) fn answering_module_of(random: &mut SplitMix64, parts: &[Part]) -> String {
    let text = module_of(random, parts);
    let matrices: String =
        ["eq", "ek", "ev", "mq", "mk", "mv"].map(|w| format!("    {w}: [{WIDTH}, {WIDTH}]\n")).concat();
    let look = |from: &str, at: &str, w: &str, to: &str| {
        let heads: String = [("q", from), ("k", at), ("v", at)]
            .map(|(name, x)| {
                let length = if x == "first" { "T" } else { "S" };
                format!(
                    "      {x} -> matmul({w}{name}, transpose=NT) -> view([B, {length}, 2, {}]) -> transpose(1, 2) -> {to}_{name}\n",
                    WIDTH / 2
                )
            })
            .concat();
        let length = if from == "first" { "T" } else { "S" };
        format!(
            "{heads}      ({to}_q, {to}_k, {to}_v) -> flash_attention(causal=false) -> ({to}_seen, {to}_lse)\n      \
             {to}_seen -> transpose(1, 2) -> view([B, {length}, {WIDTH}]) -> {to}_flat\n      ({from}, {to}_flat) -> add() -> {to}\n"
        )
    };
    let begin = format!(
        "      input_ids -> embedding(table) -> words\n{}      decoder_input_ids -> embedding(table) -> first\n{}",
        look("words", "words", "e", "heard"),
        look("first", "heard", "m", "x0")
    );
    let head = format!("    head: [tokens, {WIDTH}]\n");
    text.replace(&head, &format!("{head}{matrices}"))
        .replace(
            "    in: ids: [B, T, int32]\n    out: [B, T, tokens]\n",
            "    inputs:\n      input_ids: [B, S, int32]\n      decoder_input_ids: [B, T, int32]\n    outputs:\n      \
             logits: [B, T, tokens]\n",
        )
        .replace("      ids -> embedding(table) -> x0\n", &begin)
        .replace("-> matmul(head, transpose=NT) -> out\n", "-> matmul(head, transpose=NT) -> logits\n")
}

fn feed_forward(random: &mut SplitMix64, t: &mut Text) {
    let x = t.x.clone();
    let y = t.linear(&x, WIDTH);
    let z = t.name("z");
    let f = random.choice(&["silu", "gelu", "tanh", "relu", "sigmoid"]);
    t.line(&format!("{y} -> {f}() -> {z}"));
    t.add(&z);
}

fn norm(random: &mut SplitMix64, t: &mut Text) {
    let (w, y, x) = (t.param("weight", &format!("[{WIDTH}]")), t.name("n"), t.x.clone());
    match random.below(3) {
        0 => t.line(&format!("({x}, {w}) -> rmsnorm(eps=0.01) -> ({y}, {y}_rstd)")),
        1 => t.line(&format!("({x}, {w}) -> layernorm(eps=0.01) -> ({y}, {y}_mean, {y}_rstd)")),
        _ => t.line(&format!("{x} -> softmax(dim=-1) -> {y}")),
    }
    t.add(&y);
}

fn channels_first(_: &mut SplitMix64, t: &mut Text) {
    let (w, y, x) = (t.param("w", &format!("[{WIDTH}, {WIDTH}]")), t.name("c"), t.x.clone());
    let (a, b) = (t.name("a"), t.name("b"));
    t.line(&format!("{x} -> permute([0, 2, 1]) -> {a}"));
    t.line(&format!("({w}, {a}) -> batched_matmul() -> tanh() -> {b}"));
    t.line(&format!("{b} -> transpose(1, 2) -> {y}"));
    t.add(&y);
}

fn table_rows(random: &mut SplitMix64, t: &mut Text) {
    let (p, y) = (t.param("pos", &format!("[{LONGEST}, {WIDTH}]")), t.name("p"));
    let slice = random.choice(&["0:T", ":T", "0:T, :"]);
    t.line(&format!("{p}[{slice}] -> {y}"));
    t.add(&y);
}

fn positions(random: &mut SplitMix64, t: &mut Text) {
    let (p, n, y) = (t.param("pos", &format!("[{LONGEST}, {WIDTH}]")), t.name("n"), t.name("p"));
    let shape = random.choice(&["[T]", "[B, T]"]);
    t.line(&format!("positions({shape}) -> {n}"));
    t.line(&format!("{n} -> embedding({p}) -> {y}"));
    t.add(&y);
}

/// Constants that number the features.
fn fixed_numbers(_: &mut SplitMix64, t: &mut Text) {
    let (p, n, y) = (t.param("codes", &format!("[{WIDTH}, {WIDTH}]")), t.name("n"), t.name("p"));
    t.line(&format!("positions([{WIDTH}]) -> {n}"));
    let (codes, x) = (t.name("m"), t.x.clone());
    t.line(&format!("{n} -> embedding({p}) -> {codes}"));
    t.line(&format!("{x} -> matmul({codes}) -> {y}"));
    t.add(&y);
}

fn filled(random: &mut SplitMix64, t: &mut Text) {
    let y = t.name("f");
    let what = random.choice(&["ones([B, T, 1])", "fill([T, 1], 0.5)", "zeros([1, T, 8])"]);
    t.line(&format!("{what} -> {y}"));
    t.add(&y);
}

fn flash_attention(random: &mut SplitMix64, t: &mut Text) {
    let heads = random.choice(&[1, 2, 4]);
    let [mut q, mut k, v] = t.heads(heads);
    if random.below(2) == 0 {
        let (qr, kr) = (t.name("q"), t.name("k"));
        let table = match random.below(2) {
            0 => String::new(),
            _ => {
                let name = t.name("freqs");
                let d = WIDTH / heads;
                let _ = writeln!(t.constants, "    {name}: precompute_rope_freqs({LONGEST}, {d}, 100.0)");
                format!(", {name}")
            }
        };
        t.line(&format!("({q}, {k}{table}) -> rope() -> ({qr}, {kr})"));
        (q, k) = (qr, kr);
    }
    let (y, lse) = (t.name("y"), t.name("lse"));
    let window = random.choice(&["", ", window_size=3", ", softcap=2.0"]);
    t.line(&format!("({q}, {k}, {v}) -> flash_attention(causal=true{window}) -> ({y}, {lse})"));
    t.from_heads(&y);
}

fn slopes(_: &mut SplitMix64, t: &mut Text) {
    let [q, k, v] = t.heads(2);
    let (s, y, lse) = (t.name("slopes"), t.name("y"), t.name("lse"));
    t.line(&format!("fill([2], 0.25) -> {s}"));
    t.line(&format!("({q}, {k}, {v}) -> flash_attention(causal=true, alibi_slopes={s}) -> ({y}, {lse})"));
    t.from_heads(&y);
}

fn convolution(random: &mut SplitMix64, t: &mut Text) {
    let width = 1 + random.below(4);
    let (w, y, s) = (t.param("conv", &format!("[{WIDTH}, 1, {width}]")), t.name("y"), t.name("s"));
    let (a, b, x) = (t.name("a"), t.name("b"), t.x.clone());
    let activation = random.choice(&["silu", "none"]);
    t.line(&format!("{x} -> permute([0, 2, 1]) -> {a}"));
    t.line(&format!("({a}, {w}) -> mamba_conv1d(activation={activation}) -> ({y}, {s})"));
    t.line(&format!("{y} -> permute([0, 2, 1]) -> {b}"));
    t.add(&b);
}

/// The operands of a scan, each from a projection.
fn scanned(t: &mut Text) -> [String; 7] {
    let state = 3;
    let x = t.x.clone();
    let (u, delta) = (t.name("u"), t.name("delta"));
    let d = t.linear(&x, WIDTH);
    t.line(&format!("{x} -> permute([0, 2, 1]) -> {u}"));
    t.line(&format!("{d} -> permute([0, 2, 1]) -> {delta}"));
    let mut part = || {
        let (flat, y) = (t.linear(&x, state), t.name("b"));
        t.line(&format!("{flat} -> permute([0, 2, 1]) -> view([B, 1, {state}, T]) -> {y}"));
        y
    };
    let (b, c) = (part(), part());
    let (log, decay) = (t.param("rates", &format!("[{WIDTH}, {state}]")), t.name("decay"));
    t.line(&format!("{log} -> exp_neg() -> {decay}"));
    let (skip, bias) = (t.param("skip", &format!("[{WIDTH}]")), t.param("dt", &format!("[{WIDTH}]")));
    [u, delta, decay, b, c, skip, bias]
}

fn selective_scan(_: &mut SplitMix64, t: &mut Text) {
    let given = scanned(t).join(", ");
    let (y, s, z) = (t.name("y"), t.name("s"), t.name("z"));
    t.line(&format!("({given}) -> mamba_selective_scan() -> ({y}, {s})"));
    t.line(&format!("{y} -> permute([0, 2, 1]) -> {z}"));
    t.add(&z);
}

fn experts(_: &mut SplitMix64, t: &mut Text) {
    let (gate, up) = (t.param("gate", &format!("[3, {WIDTH}]")), t.param("up", &format!("[3, {WIDTH}, {WIDTH}]")));
    let x = t.x.clone();
    let n = t.name("e");
    t.line(&format!("{x} -> view([B * T, {WIDTH}]) -> {n}_flat"));
    t.line(&format!("({n}_flat, {gate}) -> moe_router(top_k=2) -> ({n}_weights, {n}_indices, {n}_loss)"));
    t.line(&format!("{n}_indices -> moe_compute_offsets(3) -> {n}_offsets"));
    t.line(&format!("({n}_flat, {n}_indices) -> moe_permute() -> ({n}_rows, {n}_places)"));
    t.line(&format!("({n}_rows, {up}, {n}_offsets) -> grouped_gemm() -> silu() -> {n}_out"));
    t.line(&format!("({n}_out, {n}_weights, {n}_places) -> moe_unpermute() -> {n}_sum"));
    t.line(&format!("{n}_sum -> view([B, T, {WIDTH}]) -> {n}"));
    t.add(&n);
}

fn own_module(_: &mut SplitMix64, t: &mut Text) {
    let (m, y, x) = (t.param("own", &format!("Doubled({WIDTH})")), t.name("y"), t.x.clone());
    t.line(&format!("{x} -> {m} -> {y}"));
    t.x = y;
}

fn manual_attention(_: &mut SplitMix64, t: &mut Text) {
    let [q, k, v] = t.heads(2);
    let (s, p, y) = (t.name("s"), t.name("p"), t.name("y"));
    t.line(&format!("({q}, {k}) -> batched_matmul(transpose=NT) -> {s}"));
    t.line(&format!("{s} -> scale(0.5) -> softmax(dim=-1) -> {p}"));
    t.line(&format!("({p}, {v}) -> batched_matmul() -> {y}"));
    t.from_heads(&y);
}

fn attention_to_all(_: &mut SplitMix64, t: &mut Text) {
    let [q, k, v] = t.heads(2);
    let (y, lse) = (t.name("y"), t.name("lse"));
    t.line(&format!("({q}, {k}, {v}) -> flash_attention(causal=false) -> ({y}, {lse})"));
    t.from_heads(&y);
}

/// Causal attention to rows that are not positions.
fn memory(_: &mut SplitMix64, t: &mut Text) {
    let [q, _, _] = t.heads(2);
    let mut wide = |stem: &str| {
        let (one, all) = (t.param(stem, "[2, 16, 4]"), t.name("all"));
        t.line(&format!("ones([B, 2, 16, 4]) -> mul({one}) -> {all}"));
        all
    };
    let (k, v) = (wide("keys"), wide("memory"));
    let (y, lse) = (t.name("y"), t.name("lse"));
    t.line(&format!("({q}, {k}, {v}) -> flash_attention(causal=true) -> ({y}, {lse})"));
    t.from_heads(&y);
}

fn mean_over_time(random: &mut SplitMix64, t: &mut Text) {
    let (y, x) = (t.name("m"), t.x.clone());
    match random.below(3) {
        0 => t.line(&format!("{x} -> reduce_mean(dims=[1], keepdim=true) -> {y}")),
        1 => t.line(&format!("{x} -> reduce_max(dim=1, keepdim=true) -> ({y}, {y}_places)")),
        _ => t.line(&format!("{x} -> reduce_sum(dims=[-2], keepdim=true) -> {y}")),
    }
    t.add(&y);
}

fn softmax_over_time(_: &mut SplitMix64, t: &mut Text) {
    let (y, x) = (t.name("m"), t.x.clone());
    t.line(&format!("{x} -> softmax(dim=1) -> {y}"));
    t.add(&y);
}

fn cumulative(_: &mut SplitMix64, t: &mut Text) {
    let (m, part, y, x) =
        (t.param("mixing", &format!("[1, {LONGEST}, {LONGEST}]")), t.name("m"), t.name("y"), t.x.clone());
    t.line(&format!("{m}[:, 0:T, 0:T] -> {part}"));
    t.line(&format!("({part}, {x}) -> batched_matmul() -> {y}"));
    t.add(&y);
}

fn shifted(_: &mut SplitMix64, t: &mut Text) {
    let (z, y, x) = (t.name("z"), t.name("y"), t.x.clone());
    t.line(&format!("zeros([B, 1, {WIDTH}]) -> {z}"));
    t.line(&format!("{x} -> split([T - 1, 1], dim=1) -> ({y}_head, {y}_last)"));
    t.line(&format!("({z}, {y}_head) -> concat(dim=1) -> {y}"));
    t.add(&y);
}

fn by_length(random: &mut SplitMix64, t: &mut Text) {
    let (y, x) = (t.name("y"), t.x.clone());
    let how = random.choice(&["scale(1.0 / T)", "mul(T)", "scale(0.1 * (T + 1))"]);
    t.line(&format!("{x} -> {how} -> {y}"));
    t.x = y;
}

fn by_condition(_: &mut SplitMix64, t: &mut Text) {
    let (y, x) = (t.name("y"), t.x.clone());
    t.line("if T > 4:");
    t.line(&format!("  {x} -> scale(0.5) -> {y}"));
    t.line("else:");
    t.line(&format!("  {x} -> tanh() -> {y}"));
    t.x = y;
}

/// Rows from the end of a table.
fn from_the_end(_: &mut SplitMix64, t: &mut Text) {
    let (p, y) = (t.param("pos", &format!("[{LONGEST}, {WIDTH}]")), t.name("p"));
    t.line(&format!("{p}[{LONGEST} - T:{LONGEST}] -> {y}"));
    t.add(&y);
}

fn view_across(_: &mut SplitMix64, t: &mut Text) {
    let (y, x) = (t.name("v"), t.x.clone());
    t.line(&format!("{x} -> view([B, {WIDTH}, T]) -> transpose(1, 2) -> {y}"));
    t.add(&y);
}

fn ones_summed(_: &mut SplitMix64, t: &mut Text) {
    let (o, y) = (t.name("o"), t.name("y"));
    t.line(&format!("ones([B, T, {WIDTH}]) -> {o}"));
    t.line(&format!("{o} -> reduce_sum(dims=[1], keepdim=true) -> scale(0.1) -> {y}"));
    t.add(&y);
}

fn given_state(_: &mut SplitMix64, t: &mut Text) {
    let given = scanned(t).join(", ");
    let (start, y, s, z) = (t.name("start"), t.name("y"), t.name("s"), t.name("z"));
    t.line(&format!("fill([B, {WIDTH}, 3], 0.5) -> {start}"));
    t.line(&format!("({given}, {start}) -> mamba_selective_scan() -> ({y}, {s})"));
    t.line(&format!("{y} -> permute([0, 2, 1]) -> {z}"));
    t.add(&z);
}
