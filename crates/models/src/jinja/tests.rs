//! Compares random templates with Jinja, and hostile ones with the limits.

use super::{Rendered, budget, render};
use serde_json::{Map, Value as Json, json};
use std::time::{Duration, Instant};
use testing::counting_allocator::{CountingAllocator, peak_bytes};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn rounds(usual: u64) -> u64 {
    std::env::var("TENSORLOOM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn rendered(source: &str, variables: &Json) -> Result<Rendered, String> {
    render(source, variables.as_object().unwrap_or(&Map::new())).map_err(|e| e.what)
}

fn text(source: &str) -> Result<String, String> {
    rendered(source, &json!({ "d": { "b": 1, "a": [2.5, null, "é\"<"] }, "s": "Hello" })).map(|r| r.text)
}

/// Cases of `golden/chat_random.py`: the same text, or an error in both. `TENSORLOOM_JINJA_CASES` names a longer file.
#[test]
fn random_templates_are_rendered_as_by_jinja() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    let path = std::env::var("TENSORLOOM_JINJA_CASES").map_or(folder.join("random.jsonl"), Into::into);
    let variables = std::fs::read_to_string(folder.join("variables.json")).expect("golden data");
    let variables: Json = serde_json::from_str(&variables).expect("golden data");
    let (mut same, mut refused, mut wide) = (0, 0, 0);
    for line in std::fs::read_to_string(&path).expect("golden data").lines() {
        let case: Json = serde_json::from_str(line).expect("golden data");
        let source = case["template"].as_str().expect("a template");
        match (rendered(source, &variables), case["text"].as_str()) {
            (Ok(found), Some(text)) => {
                assert_eq!(found.text, text, "{source}");
                same += 1;
            }
            (Err(_), None) => refused += 1,
            // Python's integers are unbounded.
            (Err(what), Some(_)) if what.contains("64 bits") => wide += 1,
            (Ok(found), None) => panic!("{source}\nfound {:?}, expected {}", found.text, case["error"]),
            (Err(what), Some(text)) => panic!("{source}\nfound {what}, expected {text:?}"),
        }
    }
    assert!(same > 200 && refused > 50 && wide * 50 < same, "{same} {refused} {wide}");
}

/// Expected values from Jinja 3.1.6 with the settings of transformers.
#[test]
fn expressions_have_values_of_python() {
    for (source, expected) in [
        ("{{ d | tojson }}", r#"{"b": 1, "a": [2.5, null, "é\"<"]}"#),
        ("{{ d | tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": [\n    2.5,\n    null,\n    \"é\\\"<\"\n  ]\n}"),
        ("{{ d.items() | list }} {{ d }}", "[('b', 1), ('a', [2.5, None, 'é\"<'])] {'b': 1, 'a': [2.5, None, 'é\"<']}"),
        ("{{ s[1] }}{{ s[-1:] }}{{ s[::-1] }}{{ 'é😀'[1] }}{{ 'é😀' | length }}", "eoolleH😀2"),
        ("{{ none is none }}{{ x is none }}{{ x is defined }}{{ x }}", "TrueFalseFalse"),
        (
            "{{ 7 // -2 }} {{ 7 % -2 }} {{ 1 / 2 }} {{ 2 ** -1 }} {{ 1e16 }} {{ 1e22 }} {{ 0.1 + 0.2 }}",
            "-4 -1 0.5 0.5 1e+16 1e+22 0.30000000000000004",
        ),
        ("{% if d.items() and range(0) | map('upper') %}yes{% endif %}", "yes"),
        ("{{ d.append }}{{ [].append is defined }}{{ s.__class__ }}", "False"),
        ("  {% if true %}\n x\n  {% endif %}\ny", " x\ny"),
        (
            "{% for i in range(3) %}{{ i }}{% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
            "012none",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% set n = 9 %}{% endfor %}{{ ns.n }}{{ n }}",
            "3",
        ),
        (
            "{% macro m(a, b='x') %}{{ a }}{{ b }}{{ caller() }}{{ varargs }}{{ kwargs }}{% endmacro %}{% call m(1, 2, 3, c=4) %}!{% endcall %}",
            "12!(3,){'c': 4}",
        ),
        ("{{ '%s|%5.1f|%-4d|' % ('a', 2.25, 3) }}{{ '{:>4}{!r}{k}'.format(1, 'x', k=2) }}", "a|  2.2|3   |   1'x'2"),
        (
            "{{ \"it's\" | string | list | first }}{{ [\"it's\", 'a\"b', '\\n\\x7f\\u200b'] }}",
            "i[\"it's\", 'a\"b', '\\n\\x7f\\u200b']",
        ),
    ] {
        assert_eq!(text(source).as_deref(), Ok(expected), "{source}");
    }
    for (source, what) in [
        ("{{ x.y }}", "'x' is undefined"),
        ("{{ d.zz.y }}", "'dict object' has no attribute 'zz'"),
        ("{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
        ("{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str"),
        ("{{ raise_exception('no ' ~ 1) }}", "no 1"),
        ("{% include 'x' %}", "chat templates can't use `include`"),
        ("{{ 1 | urlize }}", "there is no filter `urlize`"),
        ("{% break %}", "`break` outside of a loop"),
        ("{{ 9223372036854775807 + 1 }}", "an integer has more than 64 bits, which is the limit"),
        ("{% for i in 1 %}", "this has no end: `{% endfor %}`"),
    ] {
        assert_eq!(text(source).err().as_deref(), Some(what), "{source}");
    }
}

#[test]
fn generation_blocks_have_places() {
    let source = "é{% for m in ['a😀', 'b'] %}<{% generation %}{{ m }};{% endgeneration %}>{% endfor %}";
    let found = rendered(source, &json!({})).expect("renders");
    assert_eq!((found.text.as_str(), found.lost), ("é<a😀;><b;>", false));
    let parts: Vec<&str> = found.generated.iter().map(|part| &found.text[part.clone()]).collect();
    assert_eq!(parts, ["a😀;", "b;"]);
    let source = "{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}";
    assert!(rendered(source, &json!({})).expect("renders").lost);
}

/// Renders on a thread with the default stack size; reports errors and the longest time.
fn bounded(sources: Vec<String>) -> Vec<Result<usize, String>> {
    let run = move || {
        let mut results = Vec::new();
        for source in &sources {
            let begin = Instant::now();
            let variables = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
            let (result, bytes) = peak_bytes(|| rendered(source, &variables));
            let took = begin.elapsed();
            let shown: String = source.chars().take(500).collect();
            assert!(took < Duration::from_secs(2), "{took:?} for {shown}");
            assert!(bytes < 256 << 20, "{} MB for {shown}", bytes >> 20);
            results.push(result.map(|r| r.text.len()));
        }
        results
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
    thread.join().expect("no panic")
}

/// Templates that would run endlessly in Jinja fail here, and the error names the limit.
#[test]
fn endless_templates_are_refused_by_their_limit() {
    let many = |n: usize, part: &str| part.repeat(n);
    let sources = [
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}".to_string(),
        "{{ [1] | batch(10**12, 0) | list }}".into(),
        "{{ [1] | slice(10**12) | list }}".into(),
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}".into(),
        "{{ '%1000000000d' | format(1) }}{{ '%1000000000d' % 1 }}".into(),
        "{{ '{:1000000000}'.format(1) }}".into(),
        "{{ '{:>{}}'.format(1, 10**12) }}".into(),
        "{{ '%.1000000000f' % 1.5 }}".into(),
        "{{ [1] | tojson(indent=10**9) }}".into(),
        "{{ ('a' * 10**12) }}".into(),
        "{{ [0] * 10**12 }}".into(),
        "{{ ('ab' * 10000000).replace('a', 'x' * 1000) }}".into(),
        "{{ ('\\n' * 40000000).splitlines() }}".into(),
        "{{ ('a ' * 20000000).split() }}".into(),
        "{{ 'a' | indent(10**10) }}{{ 'a' | center(10**10) }}".into(),
        "{{ ('\\t' * 100000).expandtabs(100000) }}".into(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}".into(),
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}".into(),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(),
        "{% set ns = namespace() %}{% for i in range(90000) %}{% set x = namespace() %}{% set x.p = ns.h %}{% set ns.h = x %}{% endfor %}{{ ns }}".into(),
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(),
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}".into(),
        "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}".into(),
        "{{ 9 ** 9 ** 9 }}".into(),
        "{{ range(10**6) }}".into(),
        "{{ dict.fromkeys(range(100000)) }}".into(),
        "{{ range(100000) | map('string') | unique | list }}".into(),
        // A missing value stores the name that was looked up.
        "{{ range(9000) | sort(attribute='a' * 100000) | length }}".into(),
        "{{ range(9000) | map(attribute='a' * 100000) | list | length }}".into(),
        "{% set ns = namespace(s=[]) %}{% set a = 'a' * 100000 %}{% for i in range(9000) %}{% set ns.s = ns.s + [{}[a]] %}{% endfor %}".into(),
        format!("{{{{ {}1{} }}}}", many(100_000, "("), many(100_000, ")")),
        format!("{{{{ {}{} }}}}", many(100_000, "["), many(100_000, "]")),
        format!("{{{{ {}1 }}}}", many(100_000, "-")),
        format!("{{{{ {}1 }}}}", many(100_000, "not ")),
        format!("{{{{ {}1 }}}}", many(100_000, "1+")),
        format!("{{{{ a{} }}}}", many(100_000, ".b")),
        format!("{{{{ a{} }}}}", many(100_000, "|e")),
        format!("{{{{ a{} }}}}", many(30_000, " if a else a")),
        many(50_000, "{% if 1 %}"),
        many(1_000, "{% for i in [1] %}"),
        many(budget::SOURCE, "x") + "x",
    ];
    let results = bounded(sources.to_vec());
    for (source, result) in sources.iter().zip(results) {
        let what = result.expect_err(source);
        assert!(
            what.contains("limit") || what.contains("the most is"),
            "{what} for {}",
            &source[..source.len().min(300)]
        );
    }
    // These end in Jinja too.
    let ends = [
        "{{ 'x'.count('') }}",
        "{{ 'x' | batch(10**12) | list }}",
        "{{ range(10**4) | sort | groupby('real') | length }}",
    ];
    assert!(bounded(ends.iter().map(|s| s.to_string()).collect()).iter().all(Result::is_ok));
}

/// A random generator of parts of hostile templates.
struct Hostile(u64);

impl Hostile {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.below(of.len())]
    }

    fn expression(&mut self, depth: u32) -> String {
        const LARGE: [&str; 8] =
            ["10**9", "10**12", "99999", "-10**12", "9223372036854775807", "2**40", "1000000", "100000"];
        const LEAVES: [&str; 15] = [
            "'x'",
            "''",
            "'aé😀 '",
            "1",
            "1.5",
            "none",
            "messages",
            "big",
            "ns",
            "ns.s",
            "[]",
            "{}",
            "range(9999)",
            "'a' * 99999",
            "m",
        ];
        const FILTERS: [&str; 30] = [
            "batch",
            "slice",
            "center",
            "indent",
            "truncate",
            "round",
            "tojson",
            "list",
            "sort",
            "unique",
            "join",
            "string",
            "length",
            "map",
            "e",
            "urlencode",
            "replace",
            "sum",
            "groupby",
            "int",
            "float",
            "first",
            "last",
            "reverse",
            "title",
            "wordcount",
            "dictsort",
            "items",
            "xmlattr",
            "format",
        ];
        const METHODS: [&str; 16] = [
            "count",
            "center",
            "ljust",
            "zfill",
            "replace",
            "split",
            "join",
            "expandtabs",
            "format",
            "find",
            "splitlines",
            "rsplit",
            "partition",
            "upper",
            "index",
            "strip",
        ];
        if depth == 0 {
            return self.pick(&LEAVES).into();
        }
        let (a, b) = (self.expression(depth - 1), self.expression(self.0 as u32 % depth));
        let large = self.pick(&LARGE);
        let args = match self.below(4) {
            0 => String::new(),
            1 => large.into(),
            2 => format!("attribute={b}"),
            _ => format!("{b}, {large}"),
        };
        match self.below(16) {
            0 => format!("({a} * {large})"),
            1 => format!("({a} {} {b})", self.pick(&["+", "~", "**", "==", "in", "-", "%", "<"])),
            2..=5 => format!("({a} | {}({args}))", self.pick(&FILTERS)),
            6..=8 => format!("{a}.{}({args})", self.pick(&METHODS)),
            9 => format!(
                "('%{}{}' % {a})",
                self.pick(&["1000000000", ".1000000000", "*", "099999999"]),
                self.pick(&["d", "s", "f", "x"])
            ),
            10 => format!(
                "'{{:{}}}'.format({a}, {large})",
                self.pick(&["1000000000", ".1000000000f", "{}", "0>99999999"])
            ),
            11 => format!("[{a}, {b}]"),
            12 => match self.below(2) {
                0 => format!("{a}[{large}:{b}:{large}]"),
                _ => format!("{a}[{b}]"),
            },
            13 => format!("range({large}, {large}, {large})[{a}]"),
            14 => format!("{}({a})", self.pick(&["m", "namespace", "dict", "loop", "strftime_now"])),
            _ => format!("{{{a}: {b}}}"),
        }
    }

    fn statement(&mut self, depth: u32) -> String {
        if depth == 0 {
            return format!("{{{{ {} }}}}", self.expression(3));
        }
        let (inner, e) = (self.statement(depth - 1), self.expression(2));
        match self.below(10) {
            0 | 1 => format!(
                "{{% for i in {} %}}{inner}{{% endfor %}}",
                if self.below(2) == 0 { "range(99999)" } else { e.as_str() }
            ),
            2 | 3 => {
                let value = self.pick(&[
                    "ns.s + ns.s",
                    "[ns.s, ns.s]",
                    "[ns.s]",
                    "ns",
                    "namespace(a=ns.s)",
                    "ns.s | map('string')",
                ]);
                format!("{{% set ns.s = {value} %}}{inner}")
            }
            4 => format!("{{% macro m(a, b={e}) %}}{inner}{{% endmacro %}}"),
            5 => format!("{{% call m({e}) %}}{inner}{{% endcall %}}"),
            6 => format!(
                "{{% filter {} %}}{inner}{{% endfilter %}}",
                self.pick(&["indent(1000000)", "center(10**9)", "tojson"])
            ),
            7 => format!("{{% for i in [[1], [2]] recursive %}}{{{{ loop({e}) }}}}{inner}{{% endfor %}}"),
            8 => self.pick(&["(", "[", "{", "-", "not ", "a.", "{%", "{{", "{% if 1 %}"]).repeat(1 + self.below(9000)),
            _ => inner + &self.statement(depth - 1),
        }
    }

    fn template(&mut self) -> String {
        let small = self.pick(&["'x'", "[1]", "''"]);
        let big =
            self.pick(&["'ab' * 1000000", "range(99999) | list", "'\\n' * 1000000", "[[1]] * 100000", "'{}' * 100000"]);
        format!(
            "{{% set ns = namespace(s={small}) %}}{{% set big = {big} %}}{}{}",
            self.statement(3),
            self.statement(2)
        )
    }
}

/// Every template ends within two seconds and without a panic. `TENSORLOOM_ROUNDS` sets the number of rounds.
#[test]
fn hostile_templates_end() {
    let seed = std::env::var("TENSORLOOM_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1u64);
    let mut hostile = Hostile(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let sources: Vec<String> = (0..rounds(25)).map(|_| hostile.template()).collect();
    let results = bounded(sources);
    assert!(results.iter().any(Result::is_err));
}
