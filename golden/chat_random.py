"""Random chat templates over all statements, filters, tests and methods, and what transformers renders of them.

    python golden/chat_random.py COUNT SEED FILE    # one JSON object a line: template, text or error

The suite reads `crates/models/tests/data/chat/random.jsonl`, made by `chat_random.py 400 1 FILE`, and renders with
`variables.json`, which is written beside FILE. Texts that name addresses are
left out: they are of values that can't be printed.
"""

import json
import pathlib
import random
import re
import signal
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "messages": [
        {"role": "system", "content": " Be brief.\n"},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me' — ünïcödé 😀\nsecond line"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 3, "f": 1.5}}}]},
        {"role": "tool", "content": "{\"t\": 21}", "name": "get_weather"},
        {"role": "assistant", "content": "It's 21°."},
    ],
    "tools": [{"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2, 3]}},
        "required": ["city"]}}}],
    "documents": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "s": "Hello World",
    "t": "  mixed CASE text, with\ttabs\n and lines \r\n",
    "u": "ß ǆ İ é 😀 日本",
    "e": "",
    "n": 7,
    "m": -3,
    "f": 2.5,
    "g": 1e21,
    "yes": True,
    "no": False,
    "nil": None,
    "words": ["pear", "Apple", "fig", "apple", "Fig"],
    "nums": [3, 1, 2, 3, -1],
    "mixed": [1, "a", None, 2.5, True, [1, 2]],
    "d": {"b": 1, "a": "x", "c": [1, 2], "A": None},
    "people": [{"name": "Bo", "age": 30, "tags": ["x"]}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30}],
}


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = []
        self.loops = 0
        self.macros = []

    def pick(self, *options):
        return self.r.choice(options)

    def quote(self, text):
        return json.dumps(text, ensure_ascii=False) if "'" in text else "'" + text.replace("\\", "\\\\").replace("\n", "\\n") + "'"

    def text(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.25:
            return r.choice(["s", "t", "u", "e", "bos_token", "messages[1].content", "messages[0]['content']", "d.a",
                             self.quote(r.choice(["a", "", " ", "Lo", "l", "x-y z", "<b>&", "it's", "ä😀", "%s|%d", "a,b,,c", "\n"])),
                             "messages[-1].role", "words[1]"] + (self.names[-2:] or ["s"]))
        a, b = self.text, self.integer
        one = depth - 1
        return r.choice([
            lambda: f"({a(one)} + {a(one)})",
            lambda: f"({a(one)} ~ {self.any(one)})",
            lambda: f"({a(one)} * {r.choice(['2', '0', '3'])})",
            lambda: f"{a(one)}[{r.choice(['1:', ':-1', '::2', '::-1', '-3:', '1:4', ':0', '10:2:-1'])}]",
            lambda: f"{a(one)}.{r.choice(['upper', 'lower', 'strip', 'lstrip', 'rstrip', 'title', 'capitalize', 'swapcase', 'casefold'])}()",
            lambda: f"{a(one)}.{r.choice(['strip', 'lstrip', 'rstrip'])}({self.quote(r.choice(['l', ' H', 'Hd', chr(10)]))})",
            lambda: f"{a(one)}.replace({a(0)}, {a(0)}{r.choice(['', ', 1', ', -1'])})",
            lambda: f"{a(one)}.{r.choice(['center', 'ljust', 'rjust', 'zfill'])}({r.choice(['12', '3', '15'])})",
            lambda: f"{a(one)}.{r.choice(['removeprefix', 'removesuffix'])}({a(0)})",
            lambda: f"{a(one)}.split({r.choice(['', a(0), a(0) + ', 1'])})[{r.choice(['0', '-1'])}]",
            lambda: f"{a(one)}.{r.choice(['partition', 'rpartition'])}({a(0)})[{r.choice(['0', '1', '2'])}]",
            lambda: f"{a(one)}.join({r.choice(['words', a(0), self.items(one)])})",
            lambda: f"{a(one)}.expandtabs({r.choice(['', '4'])})",
            lambda: f"{self.quote(r.choice(['{} and {}', '{0}-{1}-{0}', '{:>6}|{:<4}', '{!r}:{}', '{{}} {} {}', '{:^9}/{:5}']))}.format({self.any(0)}, {self.any(0)})",
            lambda: f"'{{x}} {{y[a]}} {{y.a}} {{x:.2f}}'.format(x={self.number(0)}, y=d)",
            lambda: f"{self.quote(r.choice(['%s=%s', '%5s|%-5s|', '%r %s', '%s', '%s %s %s']))} % ({self.any(0)}, {self.any(0)})",
            lambda: f"{self.quote(r.choice(['%d', '%5.1f', '%03d', '%x', '%e', '%g', '%+d', '% d', '%i%%']))} % {self.number(0)}",
            lambda: f"({a(one)}|{r.choice(['upper', 'lower', 'trim', 'title', 'capitalize', 'string', 'length|string', 'reverse', 'urlencode', 'wordcount', 'list|join', 'first', 'last'])})",
            lambda: f"({a(one)}|{r.choice(['replace', 'replace'])}({a(0)}, {a(0)}))",
            lambda: f"({a(one)}|indent({r.choice(['2', 'width=3, first=true', '1, blank=true', chr(39) + '> ' + chr(39)])}))",
            lambda: f"({a(one)}|truncate({r.choice(['5', '9, true', '8, false, ' + chr(39) + chr(39) + ', 0', '12, leeway=0'])}))",
            lambda: f"({a(one)}|center({r.choice(['20', '5'])}))",
            lambda: f"({self.any(one)}|default({a(0)}{r.choice(['', ', true'])}))",
            lambda: f"({self.items(one)}|join({r.choice(['', a(0)])}))",
            lambda: f"(people|join('-', attribute='name'))",
            lambda: f"({self.any(one)}|tojson{r.choice(['', '(indent=2)', '(ensure_ascii=true)', '(sort_keys=true)', '(separators=(' + chr(39) + ',' + chr(39) + ', ' + chr(39) + ':' + chr(39) + '))', '(indent=' + chr(39) + chr(92) + 't' + chr(39) + ')'])})",
            lambda: f"({self.any(one)}|string)",
            lambda: f"({self.quote('%s-%s')}|format({self.any(0)}, {self.any(0)}))",
            lambda: f"({self.number(one)}|filesizeformat{r.choice(['', '(true)'])})",
            lambda: f"({a(one)} if {self.boolean(one)}{r.choice([' else ' + a(0), ''])})",
            lambda: f"(d|xmlattr)",
            lambda: f"('' ~ ({a(one)}|e))",
        ])()

    def integer(self, depth):
        r = self.r
        one = depth - 1
        if depth <= 0 or r.random() < 0.3:
            return r.choice(["n", "m", "0", "1", "2", "5", "nums[0]", "d.b", "true"] + (["loop.index", "loop.index0"] if self.loops else []))
        return r.choice([
            lambda: f"({self.integer(one)} {r.choice(['+', '-', '*', '//', '%'])} {self.integer(one)})",
            lambda: f"(-{self.integer(one)})",
            lambda: f"({self.integer(one)}|abs)",
            lambda: f"({self.items(one)}|{r.choice(['length', 'count'])})",
            lambda: f"({self.text(one)}|length)",
            lambda: f"({self.any(one)}|int{r.choice(['', '(9)', '(0, 16)'])})",
            lambda: f"(nums|{r.choice(['sum', 'max', 'min', 'first', 'last'])})",
            lambda: f"(people|sum(attribute='age'))",
            lambda: f"{self.text(one)}.{r.choice(['find', 'rfind', 'count', 'index', 'rindex'])}({self.text(0)}{r.choice(['', ', 1', ', 0, 4', ', -3'])})",
            lambda: f"{self.items(one)}.{r.choice(['count', 'index'])}({self.any(0)})",
            lambda: f"(2 ** {r.choice(['3', 'n', 'm', '0.5'])})",
            lambda: f"({self.number(one)}|round|int)",
        ])()

    def number(self, depth):
        r = self.r
        one = depth - 1
        if depth <= 0 or r.random() < 0.3:
            return r.choice([self.integer(0), "f", "g", "1.0", "0.1", "1e-7", "123456789.125", "2.675"])
        return r.choice([
            lambda: f"({self.number(one)} {r.choice(['+', '-', '*', '/', '//', '%'])} {self.number(one)})",
            lambda: f"({self.number(one)}|round({r.choice(['', '1', '2', '-1', '1, ' + chr(39) + 'ceil' + chr(39), '0, ' + chr(39) + 'floor' + chr(39)])}))",
            lambda: f"({self.any(one)}|float{r.choice(['', '(1.5)'])})",
            lambda: f"({self.number(one)}|abs)",
            lambda: self.integer(one),
        ])()

    def items(self, depth):
        r = self.r
        one = depth - 1
        if depth <= 0 or r.random() < 0.25:
            return r.choice(["words", "nums", "mixed", "people", "messages", "tools", "[]", "d.c", "[1, 'b', none]", "(1, 2)", "('x',)", "range(4)"])
        return r.choice([
            lambda: f"[{self.any(one)}, {self.any(one)}]",
            lambda: f"({self.any(one)}, {self.any(one)},)",
            lambda: f"({self.items(one)} + {self.items(one)})",
            lambda: f"({self.items(one)} * 2)",
            lambda: f"{self.items(one)}[{r.choice(['1:', ':-1', '::2', '::-1', '-2:', '1:3'])}]",
            lambda: f"range({self.integer(one)}{r.choice(['', ', 9', ', 9, 2'])})",
            lambda: f"({self.items(one)}|{r.choice(['sort', 'sort(reverse=true)', 'sort(case_sensitive=true)', 'unique', 'reverse', 'list'])}|list)",
            lambda: f"(people|sort(attribute={r.choice([chr(39) + x + chr(39) for x in ['age', 'name', 'age,name', 'tags.0']])}))",
            lambda: f"({self.items(one)}|map({r.choice([chr(39) + x + chr(39) for x in ['upper', 'string', 'length', 'int', 'tojson', 'trim', 'title']])})|list)",
            lambda: f"({r.choice(['people', 'messages'])}|map(attribute={r.choice([chr(39) + x + chr(39) for x in ['name', 'age', 'role', 'tags.0', 'content']])}{r.choice(['', ', default=0'])})|list)",
            lambda: f"({self.items(one)}|{r.choice(['select', 'reject'])}({r.choice(['', chr(39) + 'string' + chr(39), chr(39) + 'number' + chr(39), chr(39) + 'defined' + chr(39), chr(39) + 'equalto' + chr(39) + ', 1', chr(39) + 'in' + chr(39) + ', [1, 3]', chr(39) + 'gt' + chr(39) + ', 1', chr(39) + 'odd' + chr(39)])})|list)",
            lambda: f"({r.choice(['people', 'messages'])}|{r.choice(['selectattr', 'rejectattr'])}({r.choice([chr(39) + 'name' + chr(39), chr(39) + 'role' + chr(39) + ', ' + chr(39) + 'equalto' + chr(39) + ', ' + chr(39) + 'user' + chr(39), chr(39) + 'age' + chr(39) + ', ' + chr(39) + 'ge' + chr(39) + ', 30', chr(39) + 'tool_calls' + chr(39) + ', ' + chr(39) + 'defined' + chr(39)])})|list)",
            lambda: f"({self.items(one)}|{r.choice(['batch', 'slice'])}({r.choice(['2', '3', '2, ' + chr(39) + '-' + chr(39)])})|list)",
            lambda: f"(people|groupby({r.choice([chr(39) + 'age' + chr(39), chr(39) + 'name' + chr(39), chr(39) + 'tags' + chr(39) + ', default=[]'])}))",
            lambda: f"({self.mapping(one)}|{r.choice(['dictsort', 'dictsort(true)', 'dictsort(by=' + chr(39) + 'value' + chr(39) + ')', 'dictsort(reverse=true)', 'items|list', 'list'])})",
            lambda: f"({self.mapping(one)}.{r.choice(['items', 'keys', 'values'])}(){r.choice(['|list', ''])})",
            lambda: f"{self.text(one)}.{r.choice(['split', 'rsplit', 'splitlines'])}()",
            lambda: f"{self.text(one)}.{r.choice(['split', 'rsplit'])}({self.text(0)}{r.choice(['', ', 1', ', maxsplit=2'])})",
            lambda: f"({self.text(one)}|list)",
        ])()

    def mapping(self, depth):
        r = self.r
        if depth <= 0 or r.random() < 0.4:
            return r.choice(["d", "people[0]", "messages[1]", "tools[0].function", "{}", "{'k': 1}"])
        one = depth - 1
        return r.choice([
            lambda: f"{{'p': {self.any(one)}, {self.any(0)}: {self.any(0)}}}",
            lambda: f"dict({r.choice(['', 'd, '])}x={self.any(one)})",
            lambda: f"dict({self.items(one)})",
            lambda: f"{self.mapping(one)}.copy()",
            lambda: f"dict.fromkeys({self.items(0)}{r.choice(['', ', 1'])})",
        ])()

    def boolean(self, depth):
        r = self.r
        one = depth - 1
        if depth <= 0 or r.random() < 0.2:
            return r.choice(["yes", "no", "nil", "n", "e", "s", "missing", "not yes", "add_generation_prompt", "tools"] + (["loop.first", "loop.last"] if self.loops else []))
        test = lambda: r.choice(["defined", "undefined", "none", "not none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean",
                                 "true", "false", "odd", "even", "divisibleby(2)", "divisibleby 3", "lower", "upper", "in [1, 2, 's']", "callable", "sameas none", "eq 1", "ne 'a'",
                                 "gt 1", "lessthan 3", "not defined", "equalto('x')", "filter", "test", "escaped", "not in words"])
        return r.choice([
            lambda: f"({self.any(one)} {r.choice(['==', '!='])} {self.any(one)})",
            lambda: f"({self.number(one)} {r.choice(['<', '<=', '>', '>='])} {self.number(one)})",
            lambda: f"({self.text(one)} {r.choice(['<', '>', '=='])} {self.text(one)})",
            lambda: f"(0 < {self.integer(one)} <= 5)",
            lambda: f"({self.any(one)} {r.choice(['in', 'not in'])} {self.any(one)})",
            lambda: f"({self.any(one)} is {test()})",
            lambda: f"({self.boolean(one)} {r.choice(['and', 'or'])} {self.boolean(one)})",
            lambda: f"(not {self.boolean(one)})",
            lambda: f"{self.text(one)}.{r.choice(['startswith', 'endswith'])}({r.choice([self.text(0), '(' + self.text(0) + ', ' + self.text(0) + ')', self.text(0) + ', 1'])})",
            lambda: f"{self.text(one)}.{r.choice(['isalpha', 'isdigit', 'isspace', 'isupper', 'islower', 'isalnum', 'istitle', 'isnumeric', 'isdecimal', 'isascii', 'isprintable', 'isidentifier'])}()",
        ])()

    def any(self, depth):
        r = self.r
        if depth <= 0:
            return r.choice(["s", "n", "f", "d", "words", "nil", "yes", "missing", "messages[1].content", "people[0].tags", "d.get('zz')", "d['a']", "mixed[5]"] + self.names[-3:])
        if r.random() < 0.12:
            return r.choice([lambda: f"{self.mapping(depth - 1)}.get({self.text(0)}{r.choice(['', ', 1'])})",
                             lambda: f"{self.items(depth - 1)}[{self.integer(0)}]",
                             lambda: f"{self.mapping(depth - 1)}[{self.text(0)}]",
                             lambda: f"{self.mapping(depth - 1)}.{r.choice(['name', 'a', 'content', 'zzz', 'get', '__class__'])}",
                             lambda: f"({self.items(depth - 1)}|{r.choice(['first', 'last', 'max', 'min', 'sum'])})",
                             lambda: f"{self.any(depth - 1)}|attr({self.text(0)})",
                             lambda: r.choice(self.macros)(self) if self.macros else "n"])()
        return r.choice([self.text, self.text, self.integer, self.number, self.items, self.mapping, self.boolean])(depth)

    def open(self):
        return self.r.choice(["{%", "{%", "{%-", "{%+"])

    def close(self):
        return self.r.choice(["%}", "%}", "-%}", "+%}"])

    def tag(self, inner):
        return f"{self.open()} {inner} {self.close()}"

    def plain(self):
        return self.r.choice(["text ", "\n", "  ", "\n  ", "<|x|>", "a {# note #} b", "{#- note -#}", "\t\n", "é\n\n", "{% raw %}{{ x }}{% endraw %}", "}", "\r\n"])

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.r.randint(1, 3)))

    def statement(self, depth):
        r = self.r
        one = depth - 1
        if depth <= 0 or r.random() < 0.4:
            expr = self.any(r.randint(0, 3))
            return r.choice([self.plain(), f"{{{{ {expr} }}}}", f"{{{{- {expr} -}}}}", f"{{{{ {expr} }}}}{self.plain()}"])

        def scoped(run):
            names, macros = self.names[:], self.macros[:]
            text = run()
            self.names, self.macros = names, macros
            return text

        def loop(target, source):
            def run():
                self.names += [name.strip(" ()") for name in target.split(",")]
                self.loops += 1
                inner = self.body(one)
                if r.random() < 0.25:
                    inner += self.tag(f"if {self.boolean(1)}") + self.tag(r.choice(["break", "continue"])) + self.tag("endif") + self.body(0)
                if r.random() < 0.3:
                    inner += "{{ " + r.choice(["loop.index", "loop.last", "loop.revindex", "loop.length", "loop.previtem", "loop.nextitem", "loop.cycle('a', 'b')", "loop.changed(" + self.any(0) + ")", "loop.depth", "loop.first"]) + " }}"
                self.loops -= 1
                return inner
            condition = f" if {self.boolean(1)}" if r.random() < 0.25 else ""
            inner = scoped(run)
            other = self.tag("else") + self.body(0) if r.random() < 0.3 else ""
            return self.tag(f"for {target} in {source}{condition}") + inner + other + self.tag("endfor")

        def assign():
            name = r.choice(["x", "y", "z"])
            text = self.tag(f"set {name} = {self.any(2)}")
            self.names.append(name)
            return text

        def assign_block():
            name = r.choice(["x", "y"])
            inner = scoped(lambda: self.body(one))
            text = self.tag(f"set {name}{r.choice(['', ' | upper', ' | trim | length'])}") + inner + self.tag("endset")
            self.names.append(name)
            return text

        def macro():
            name = f"mac{len(self.macros)}"
            names, loops = self.names, self.loops
            self.names, self.loops = ["p", "q"], 0
            special = r.choice(["", "", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller else 'none' }}"])
            inner = scoped(lambda: self.body(one)) + special
            self.names, self.loops = names, loops
            text = self.tag(f"macro {name}(p, q={self.any(0)})") + inner + self.tag("endmacro")
            self.macros.append(lambda g: f"{name}({g.pick('', g.any(0), g.any(0) + ', ' + g.any(0), 'q=' + g.any(0), g.any(0) + ', z=1', '1, 2, 3')})")
            return text

        def namespace():
            a, b = self.any(1), self.any(1)
            use = "{{ ns.a }}" + loop("i", "nums").replace("{{ i }}", "{{ i }}{% set ns.a = i %}")
            return self.tag(f"set ns = namespace(a={a})") + use + self.tag(f"set ns.b = {b}") + "{{ ns.b }}{{ ns.zz }}"

        def call():
            if not self.macros:
                return macro()
            return self.tag(f"call {r.choice(self.macros)(self)}") + scoped(lambda: self.body(0)) + self.tag("endcall")

        return r.choice([
            lambda: self.tag(f"if {self.boolean(2)}") + self.body(one) + r.choice(["", self.tag(f"elif {self.boolean(1)}") + self.body(one)]) + r.choice(["", self.tag("else") + self.body(one)]) + self.tag("endif"),
            lambda: loop(r.choice(["i", "i", "message"]), r.choice([self.items(1), "messages", "words"])),
            lambda: loop("k, v", r.choice(["d.items()", "d|items", "d|dictsort", "[(1, 2), (3, 4)]", self.mapping(1) + ".items()", "people|groupby('age')"])),
            assign, assign, assign_block, macro, namespace, call,
            lambda: self.tag(f"set x, y = {self.any(1)}, {self.any(1)}"),
            lambda: self.tag(f"with x = {self.any(1)}, y = {self.any(1)}") + scoped(lambda: self.body(one)) + self.tag("endwith"),
            lambda: self.tag(f"filter {r.choice(['upper', 'trim', 'indent(2)', 'replace(' + chr(39) + 'a' + chr(39) + ', ' + chr(39) + 'b' + chr(39) + ')', 'title|trim'])}") + scoped(lambda: self.body(one)) + self.tag("endfilter"),
            lambda: self.tag("generation") + scoped(lambda: self.body(one)) + self.tag("endgeneration") if not self.loops else self.plain(),
            lambda: self.tag(f"print {self.any(1)}, {self.any(1)}"),
            lambda: self.tag("for i in [[1, [2]], 3] recursive") + "{{ loop(i) if i is iterable else i }}{{ loop.depth }}" + self.tag("endfor"),
        ])()

    def template(self):
        return self.body(self.r.randint(1, 3)) + self.statement(2)


def rendered(template):
    try:
        return {"text": _compile_jinja_template(template).render(**VARIABLES)}
    except RecursionError:
        raise
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"[:200]}


def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    variables = pathlib.Path(path).with_name("variables.json")
    variables.write_text(json.dumps(VARIABLES, ensure_ascii=False) + "\n", encoding="utf-8")
    with open(path, "w", encoding="utf-8") as out:
        written = at = 0
        while written < count:
            at += 1
            template = Random(seed * 1_000_003 + at).template()
            if len(template) > 3000:
                continue
            signal.alarm(2)
            result = rendered(template)
            signal.alarm(0)
            text = result.get("text", "")
            if len(text) > 20000 or re.search(r"0x[0-9a-f]{6}|<function|<class|<built-in|<bound|<filter|<LoopContext|Template(Dict|Namespace)", text, re.I):
                continue
            written += 1
            out.write(json.dumps({"template": template, **result}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
