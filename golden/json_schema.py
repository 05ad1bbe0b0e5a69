"""Random JSON schemas with values that are valid or not, as the package `jsonschema` says.

    pip install jsonschema==4.26.0
    python golden/json_schema.py > crates/models/tests/data/schemas.json

Each entry is a schema, valid values, and values that are not valid. Schemas draw from all keywords of 2020-12, whose names stand in front.
"""

import json
import random
import re
import sys

import jsonschema

random.seed(20)
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]
STRINGS = ["", "a", "ab", "abc", "aa", "x y", "7", "42", "\u0663", "\u0967\u0968", "Zo\u00eb", "\U0001f600", "\U0001f600\U0001f600", "\u00a0", "a.b",
           "2024-02-29", "2023-02-30", "2023-12-31", "2023-04-31", "12:00:00Z", "24:00:00Z", "12:00:00+25:00",
           "2023-12-31T23:59:59Z", "123e4567-e89b-12d3-a456-426614174000", "123e4567"]
PATTERNS = ["^\\d+$", "^\\w+$", "^\\s$", "^\\D$", "^[\\d]{1,2}$", "^(a|b)+$", "^a|b$", "^.$", "^[^a]$", "^[a-c]{2}$", "^\\S+$",
            "^\\W$", "^[^\\d]$", "a", "^x y$", "^a\\.b$"]
COMMON = """minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum items minItems maxItems properties required
additionalProperties""".split()
PLAIN = STRINGS + [0, 1, 2, 3, -1, 7, 0.0, 1.0, 1.5, -2.5, 100, 1e3, True, False, None]


SPACE = "\\t\\n\\v\\f\\r \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACE}


def pattern(validator, expression, instance, schema):
    """The keyword with the classes of ECMA-262, which Python's `re` has not."""
    for name, chars in CLASSES.items():
        expression = expression.replace(f"[\\{name}]", f"[{chars}]").replace(f"[^\\{name}]", f"[^{chars}]")
        expression = expression.replace(f"\\{name}", f"[{chars}]").replace(f"\\{name.upper()}", f"[^{chars}]")
    if isinstance(instance, str) and not re.search(expression, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {expression!r}")


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"pattern": pattern})


def value(depth=2):
    kind = random.random()
    if depth == 0 or kind < 0.7:
        return random.choice(PLAIN)
    if kind < 0.85:
        return [value(depth - 1) for _ in range(random.randrange(4))]
    return {name: value(depth - 1) for name in random.sample("abc", random.randrange(4))}


def some(schema, options):
    """Some of the options in random order; every other time only such as grammars of others enforce too."""
    if random.random() < 0.5:
        options = {name: make for name, make in options.items() if name in COMMON} or options
    for name in random.sample(list(options), random.randrange(1, min(4, len(options)) + 1)):
        schema[name] = options[name]()
    return schema


def schema(depth=2):
    if depth == 0 or random.random() < 0.1:
        return random.choice([{"type": random.choice(TYPES)}, {"const": value(1)}, {"enum": [value(1), value(1)]}, True, {"type": ["string", "null"]}])
    inner = lambda: schema(depth - 1)
    inners = lambda: [schema(depth - 1) for _ in range(random.randrange(1, 4))]
    number = lambda: random.randrange(4)
    names = lambda: random.sample("abc", random.randrange(3))
    groups = {
        "string": {"minLength": number, "maxLength": number, "pattern": lambda: random.choice(PATTERNS),
                   "format": lambda: random.choice(["date", "time", "date-time", "uuid", "email"])},
        "integer": {"minimum": number, "maximum": number, "exclusiveMinimum": number, "exclusiveMaximum": number, "multipleOf": lambda: 2},
        "number": {"minimum": lambda: 0, "maximum": number, "exclusiveMinimum": number, "multipleOf": lambda: 0.5},
        "array": {"items": inner, "minItems": number, "maxItems": number, "uniqueItems": lambda: random.random() < 0.7, "prefixItems": inners,
                  "contains": inner, "minContains": number, "unevaluatedItems": lambda: False},
        "object": {"properties": lambda: {name: inner() for name in names()}, "required": names,
                   "additionalProperties": lambda: random.choice([False, True, inner()]), "minProperties": number, "maxProperties": number,
                   "patternProperties": lambda: {"^a": inner()}, "propertyNames": lambda: {"maxLength": 1},
                   "dependentRequired": lambda: {"a": ["b"]}, "unevaluatedProperties": lambda: False},
    }
    combined = {"anyOf": inners, "oneOf": inners, "allOf": inners, "not": inner, "if": inner, "then": inner, "else": inner,
                "const": lambda: value(1), "enum": lambda: [value(1) for _ in range(3)]}
    kind = random.random()
    if kind < 0.55:
        name = random.choice(list(groups))
        made = some({"type": name}, groups[name])
        if random.random() < 0.15:
            del made["type"]
        if random.random() < 0.1:
            made["type"] = [name, "null"]
        if random.random() < 0.1:
            made["title"] = "t"
    elif kind < 0.85:
        made = {}
        name = random.choice(list(combined))
        made[name] = combined[name]()
        if random.random() < 0.3:
            made["type"] = random.choice(TYPES)
    elif kind < 0.93:
        tag = lambda n: {"type": "object", "properties": {"a": {"const": n}, "b": inner()}, "required": random.choice([["a"], ["b"], ["a", "b"]])}
        made = {random.choice(["oneOf", "anyOf"]): [tag(1), tag(random.choice([1, 2]))]}
    else:
        made = some(some({}, groups["string"]), groups["integer"])
    return made


def near(schema, depth=3):
    """A value that has a chance to be valid."""
    if not isinstance(schema, dict) or depth == 0 or random.random() < 0.1:
        return value()
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    for name in ["anyOf", "oneOf", "allOf"]:
        if name in schema:
            return near(random.choice(schema[name]), depth - 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = random.choice(kind)
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        return {name: near(own, depth - 1) for name, own in properties.items() if name in schema.get("required", []) or random.random() < 0.6}
    if kind == "array" or "items" in schema:
        return [near(schema.get("items", True), depth - 1) for _ in range(random.randrange(4))]
    if kind == "string":
        return random.choice(STRINGS)
    if kind in ("integer", "number"):
        return random.choice([x for x in PLAIN if isinstance(x, (int, float)) and not isinstance(x, bool)])
    return value()


def main(count):
    entries = []
    while len(entries) < count:
        made = schema()
        if not isinstance(made, dict):
            continue
        validator = Validator(made, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        values, valid, wrong = [near(made) for _ in range(30)], [], []
        for one in values:
            to = valid if validator.is_valid(one) else wrong
            if one not in to:
                to.append(one)
        entries.append([made, valid[:8], wrong[:10]])
    from jsonschema_specifications import REGISTRY

    base = "https://json-schema.org/draft/2020-12/meta/"
    vocabularies = "core applicator unevaluated validation meta-data format-annotation content".split()
    keywords = sorted({name for own in vocabularies for name in REGISTRY[base + own].contents["properties"]})
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    print('{"keywords":' + json.dumps(keywords) + ',\n"schemas":[\n' + lines + "\n]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 800)
