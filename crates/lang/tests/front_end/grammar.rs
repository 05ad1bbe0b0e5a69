//! Random files that follow the grammar: the parser must accept all of them, whatever the checker reports.

use crate::random::Random;

const NAMES: &[&str] = &["x", "y", "h", "in", "out", "w", "bias", "width", "heads", "d_x", "d_out", "inner", "blocks"];
const SIZES: &[&str] =
    &["B", "T", "width", "heads", "4", "width // heads", "2 * width", "(heads + 2) * 8", "width % 3"];
const DTYPES: &[&str] = &["bf16", "fp32", "fp16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "int8", "int32"];
const CALLS: &[&str] = &[
    "relu()",
    "silu",
    "matmul(w, transpose=NT)",
    "matmul(transpose=TN, accumulate=true, alpha=0.5)",
    "rmsnorm(w, eps=1e-6)",
    "split([4, width - 4], dim=-1)",
    "view([B, T, -1])",
    "transpose(1, 2)",
    "flash_attention(causal=true, window_size=4)",
    "Linear(w, bias if use else None)",
    "inner",
    "inner.backward()",
    "blocks[0:2]()",
    "StackedBlocks(blocks, 2)",
    "reduce_sum(dims=[0, 1])",
    "moe_router(top_k=2)",
    "attention(...)",
    "[B, T, heads, width]",
];
const NOTES: &[&str] = &[
    "@memory(recompute)",
    "@memory(save, priority=2)",
    "@checkpoint",
    "@checkpoint(granularity=selective, preserve=[x, h])",
    "@lifetime(scope=block)",
    "@hook(AfterAttention, mode=modify)",
    "@adapter(lora, rank=4, targets=[q, v])",
    "@adapter(ia3)",
    "@probe(\"p\", capture=grad_stats, frequency=10)",
    "@dtype(bf16)",
    "@precision(compute=bf16, output=fp32)",
    "@fuse(ops=[matmul, add])",
    "@fuse_required(bias_activation)",
    "@nofuse(reason=\"why\")",
    "@assert(!has_nan(y) && all(y >= -1), message=\"m\")",
    "@profile(\"part\", memory=true)",
    "@trace(level=tensors)",
    "@frozen",
    "@trainable(lr_scale=0.1, grad_clip=1)",
    "@gradient(scale=0.5)",
    "@alias",
    "@noalias",
    "@barrier",
    "@shard(column, tp_size=8)",
    "@partition(1)",
    "@comm(all_reduce, group=\"tp\")",
    "@scaling(per_block, block_size=(32, 32))",
    "@kernel(\"k\", fallback=true)",
];

/// A generator of random text with its indentation.
pub(crate) struct Grammar<'a> {
    random: &'a mut Random,
    text: String,
    depth: usize,
}

/// A file with a few declarations.
pub(crate) fn file(random: &mut Random) -> String {
    let mut g = Grammar { random, text: String::new(), depth: 0 };
    if g.one_in(3) {
        g.line("\"\"\"A file.\"\"\"");
    }
    for _ in 0..g.random.below(3) {
        let import = g.pick(&[
            "import std.primitives",
            "import std.primitives.matmul.v1",
            "import std.modules.attention.v2 as Attn",
            "import zoo.{Gate, Wide as Narrow}",
            "import zoo.parts.*",
            "from std.modules.linear import Linear",
            "from zoo.v3 import Soft as S, Hard",
        ]);
        g.line(import);
    }
    if g.one_in(6) {
        g.under("topology:", |g| g.line("tp_size: 8"));
    }
    for _ in 0..=g.random.below(4) {
        g.declaration();
    }
    g.text
}

impl Grammar<'_> {
    fn pick(&mut self, words: &[&'static str]) -> &'static str {
        words[self.random.below(words.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.random.below(n) == 0
    }

    fn line(&mut self, text: &str) {
        let comment = if self.one_in(12) { "  # why" } else { "" };
        self.text += &format!("{}{text}{comment}\n", "  ".repeat(self.depth));
        if self.one_in(16) {
            let apart = self.pick(&["\n", "# apart\n"]);
            self.text += apart;
        }
    }

    fn under(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(head);
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    fn declaration(&mut self) {
        let name = self.pick(&["M", "Gate", "Wide", "Linear", "Attn", "Tower"]);
        match self.random.below(8) {
            0 => self.under(&format!("recipe {name}:"), |g| {
                for key in ["output_dtype", "amax_history_len", "scaling_strategy"] {
                    let value = g.pick(&["bf16", "16", "delayed", "25_000_000", "1.5e-3", "[1, 2,]", "{B: 2}", "None"]);
                    g.line(&format!("{key}: {value}"));
                }
            }),
            1 => self.primitive(name),
            kind => self.module(name, kind),
        }
    }

    fn primitive(&mut self, name: &str) {
        self.under(&format!("primitive {name}:"), |g| {
            g.under("params:", |g| {
                let mode = g.pick(&["enum(NN, NT) = NN", "float = 1.0", "int? = None", "[int]", "bool = false"]);
                g.line(&format!("mode: {mode}"));
            });
            g.under("forward:", |g| {
                let (a, b) = (g.tensor(), g.tensor());
                g.line(&format!("in: (a: {a}, b: {b}?)"));
                let out = g.tensor();
                g.line(&format!("out: {out}"));
            });
            g.under("backward:", |g| {
                if g.one_in(2) {
                    g.line("d_a = matmul(d_out, b, transpose=NT)");
                } else {
                    g.line("in: (d_out, a)");
                    g.line("out: d_a");
                }
            });
            if g.one_in(2) {
                g.under("invariants:", |g| g.line("- backward_uses: [a]"));
            }
        });
    }

    fn module(&mut self, name: &str, kind: usize) {
        let word = ["module", "block", "model", "abstract module", "module", "module"][kind.saturating_sub(2)];
        let types =
            ["int", "int = 4", "float = 1e-5", "bool = true", "string = \"s\"", "enum(a, b) = a", "int? = None"];
        let mut header = Vec::new();
        for param in ["width", "heads", "use"] {
            if !self.one_in(4) {
                let ty = self.pick(&types);
                header.push(format!("{param}: {ty}"));
            }
        }
        let extends = if word.ends_with("module") && self.one_in(5) { " extends Gate" } else { "" };
        self.under(&format!("{word} {name}({}){extends}:", header.join(", ")), |g| {
            if g.one_in(3) {
                g.line("\"\"\"What it does.\"\"\"");
            }
            if g.one_in(2) {
                g.under("let:", |g| g.lets());
            }
            g.under("params:", |g| {
                for param in ["w", "bias", "inner", "blocks"] {
                    let (ty, note) = (g.param_type(), g.notes());
                    let guard = if g.one_in(5) { " if use" } else { "" };
                    g.line(&format!("{param}: {ty}{guard}{note}"));
                }
            });
            if word == "block" && g.one_in(2) {
                let pattern = g.pick(&["sequential_residual", "parallel_residual"]);
                g.under(&format!("pattern: {pattern}"), |g| {
                    g.under("sublayers:", |g| {
                        g.line("- (w, inner)");
                        g.line("- (inner)");
                    });
                });
                return;
            }
            g.under("forward:", |g| g.pass("in", "out"));
            if g.one_in(3) {
                g.under("backward:", |g| g.pass("d_out", "d_in"));
            }
            if word == "model" {
                g.weights();
            }
        });
    }

    fn lets(&mut self) {
        for name in ["half", "B", "root"] {
            let value = self.expr(2);
            self.line(&format!("{name} = {value}"));
        }
        if self.one_in(2) {
            self.under("constraint:", |g| {
                let condition = g.expr(2);
                g.line(&format!("{condition}, \"must hold\""));
            });
        }
    }

    fn expr(&mut self, depth: usize) -> String {
        if depth == 0 || self.one_in(4) {
            return self
                .pick(&[
                    "width",
                    "heads",
                    "4",
                    "1e-6",
                    "true",
                    "None",
                    "\"s\"",
                    "25_000",
                    "sqrt(width)",
                    "min(4, heads)",
                ])
                .to_string();
        }
        let (a, b) = (self.expr(depth - 1), self.expr(depth - 1));
        match self.random.below(6) {
            0 => format!("({a} if {b} else width)"),
            1 => format!("-({a})"),
            2 => format!("not ({a})"),
            _ => {
                let op = self.pick(&["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", ">=", "and", "or"]);
                format!("({a}) {op} ({b})")
            }
        }
    }

    fn tensor(&mut self) -> String {
        let mut parts = Vec::new();
        if self.one_in(4) {
            parts.push("*".to_string());
        }
        for _ in 0..=self.random.below(3) {
            parts.push(self.pick(SIZES).to_string());
        }
        if self.one_in(4) {
            parts.push(self.pick(DTYPES).to_string());
        }
        format!("[{}]", parts.join(", "))
    }

    fn param_type(&mut self) -> String {
        match self.random.below(8) {
            0 => format!("{}?", self.tensor()),
            1 => "Linear(width, width)".to_string(),
            2 => "[2] x Gate(width)".to_string(),
            3 => "Array<heads, Gate(width)>".to_string(),
            4 => "tied_to(w)".to_string(),
            _ => self.tensor(),
        }
    }

    fn notes(&mut self) -> String {
        let mut text = String::new();
        while self.one_in(3) {
            text += " ";
            text += self.pick(NOTES);
        }
        text
    }

    fn pass(&mut self, input: &str, output: &str) {
        let forward = input == "in";
        match self.random.below(3) {
            0 if forward => {
                let (a, b, c) = (self.tensor(), self.tensor(), self.tensor());
                self.under("inputs:", |g| {
                    g.line(&format!("x: {a}"));
                    g.line(&format!("h: {b}?"));
                });
                self.under("outputs:", |g| g.line(&format!("out: {c}")));
            }
            _ => {
                let (a, b) = (self.tensor(), self.tensor());
                self.line(&format!("{input}: {a}"));
                self.line(&format!("{output}: {b}"));
            }
        }
        self.under("graph:", |g| g.statements(3));
        if forward && self.one_in(2) {
            let list = self.pick(&["[x, h]", "[]", "[*_out, ln*]", "[x, per_layer...]", "[*]"]);
            self.line(&format!("save: {list}"));
            self.line("recompute: [y]");
        }
    }

    fn statements(&mut self, depth: usize) {
        for _ in 0..=self.random.below(5) {
            if depth > 0 && self.one_in(6) {
                let guard = self.expr(2);
                self.under(&format!("if {guard}:"), |g| g.statements(depth - 1));
                if self.one_in(2) {
                    self.under("else:", |g| g.statements(depth - 1));
                }
            } else if depth > 0 && self.one_in(12) {
                self.under("recompute:", |g| g.statements(0));
            } else {
                self.flow();
            }
        }
    }

    fn pair(&mut self) -> String {
        let (first, second) = (self.pick(NAMES), self.pick(NAMES));
        format!("({first}, {second})")
    }

    fn flow(&mut self) {
        let source = match self.random.below(7) {
            0 => self.pair(),
            1 => {
                let (name, index) = (self.pick(NAMES), self.pick(&["0", ":, 2", "..., -1", "1:3", ":, :4", "2:"]));
                format!("{name}[{index}]")
            }
            2 => "zeros([B, T, width])".to_string(),
            3 => "saved.x".to_string(),
            _ => self.pick(NAMES).to_string(),
        };
        let mut parts = vec![source];
        for _ in 0..self.random.below(4) {
            parts.push(self.pick(CALLS).to_string());
        }
        parts.push(match self.random.below(4) {
            0 => format!("({}, _)", self.pick(NAMES)),
            1 => self.pair(),
            _ => self.pick(NAMES).to_string(),
        });
        let notes = self.notes();
        if self.one_in(5) {
            // Continuation lines start with an arrow or an annotation.
            let inner = "  ".repeat(self.depth + 1);
            let text = parts.join(&format!("\n{inner}-> "));
            let notes = notes.replace(" @", &format!("\n{inner}@"));
            self.text += &format!("{}{text}{notes}\n", "  ".repeat(self.depth));
        } else {
            self.line(&(parts.join(" -> ") + &notes));
        }
    }

    fn weights(&mut self) {
        self.under("hf_config:", |g| {
            g.line("architecture: \"TinyForCausalLM\"");
            g.under("param_mapping:", |g| g.line("width: hidden_size"));
        });
        self.under("hf_mapping:", |g| {
            g.line("w: \"model.w\"");
            g.line("blocks[{i}].w?: \"model.{i}.w\"");
            g.line("blocks[{i}].qkv: fuse(\"model.{i}.q\", \"model.{i}.k\", dim=0)");
            g.line("bias: transform(\"model.b\", fn: transpose)");
        });
        if self.one_in(2) {
            self.under("hf_export:", |g| {
                g.line(
                    "blocks[{i}].qkv -> split(\"model.{i}.q\": [0, width], \"model.{i}.k\": [width, 2 * width], dim=0)",
                );
            });
        }
    }
}
