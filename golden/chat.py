"""Chat templates rendered by transformers: conversations with systems, tools, tool calls, documents, generation prompts.

    python golden/chat.py                     # write crates/models/tests/data/chat/cases.json, of golden/chat_templates
    python golden/chat.py DIR FILE            # the same of every `*.jinja` in DIR, each once per conversation

The test `templates_are_rendered_as_by_transformers` reads the first; with `TENSORLOOM_CHAT_CASES=FILE` it reads FILE too.
`chat_templates/SOURCES.md` says which public templates were compared.
"""

import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils as utils

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent / "crates/models/tests/data/chat/cases.json"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "image_token": "<image>"}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, as <b>text</b> & \"numbers\".",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}}},
        "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["city"]},
    "return": {"type": "string"}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}

user = lambda text: {"role": "user", "content": text}
assistant = lambda text, **more: {"role": "assistant", "content": text, **more}
system = lambda text: {"role": "system", "content": text}
call = lambda arguments, id="call00001": {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}

ODD = "It's \"quoted\" & <b>HTML</b> — ünïcödé 日本語 😀\u2028\ttab\\n{{ not }} {% code %}\n\nlast  "
CONVERSATIONS = {
    "single": dict(messages=[user("Hi")], add_generation_prompt=True),
    "single closed": dict(messages=[user("Hi"), assistant("Hello!")]),
    "many turns": dict(messages=[user("One"), assistant("1"), user("Two"), assistant(" 2 "), user("Three")], add_generation_prompt=True),
    "system": dict(messages=[system(" Be brief.\n"), user("Hi"), assistant("Hello."), user("Bye")], add_generation_prompt=True),
    "odd characters": dict(messages=[system(ODD), user(ODD), assistant(ODD), user("\n<|im_start|> </s>")], add_generation_prompt=True),
    "parts": dict(messages=[user([{"type": "text", "text": "First <part>"}, {"type": "text", "text": "Second"}])], add_generation_prompt=True),
    "null fields": dict(messages=[user("Hi"), {"role": "assistant", "content": None, "tool_calls": [call({"city": "Köln"})]},
                                  {"role": "tool", "content": "21", "name": "get_weather", "tool_call_id": "call00001"}], tools=[WEATHER], add_generation_prompt=True),
    "tools": dict(messages=[user("Weather in Zürich?")], tools=[WEATHER, CLOCK], add_generation_prompt=True),
    "tools and system": dict(messages=[system("Use tools."), user("Weather?")], tools=[WEATHER], add_generation_prompt=True),
    "tool call": dict(messages=[user("Weather?"), assistant("", tool_calls=[call({"city": "Zürich <x>", "days": 2, "where": {"lat": 1.5, "lon": None}, "ok": True})]),
                                {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"t\": 21}"},
                                assistant("It's 21°."), user("Thanks")], tools=[WEATHER], add_generation_prompt=True),
    "two tool calls": dict(messages=[user("Weather?"), assistant("Let me see.", tool_calls=[call({"city": "A"}, "aaaaaaaaa"), call({"city": "B"}, "bbbbbbbbb")]),
                                     {"role": "tool", "name": "get_weather", "tool_call_id": "aaaaaaaaa", "content": "1"},
                                     {"role": "tool", "name": "get_weather", "tool_call_id": "bbbbbbbbb", "content": "2"}], tools=[WEATHER, CLOCK], add_generation_prompt=True),
    "arguments as text": dict(messages=[user("Weather?"), assistant("", tool_calls=[call("{\"city\": \"A\"}")]),
                                        {"role": "tool", "tool_call_id": "call00001", "content": "1"}], tools=[WEATHER], add_generation_prompt=True),
    "reasoning": dict(messages=[user("2+2?"), assistant("4", reasoning_content="Two and two."), user("And 3+3?"),
                                assistant("<think>\nThree\n</think>\n\n6"), user("ok")], add_generation_prompt=True),
    "thinking off": dict(messages=[user("Hi")], add_generation_prompt=True, enable_thinking=False),
    "thinking on": dict(messages=[system("S"), user("Hi")], add_generation_prompt=True, enable_thinking=True, reasoning_effort="high", thinking=True),
    "documents": dict(messages=[user("What?")], documents=[{"title": "T", "text": "Some <text>"}, {"title": "U", "text": "More"}], add_generation_prompt=True),
    "roles out of order": dict(messages=[assistant("Hello"), user("A"), user("B")]),
}


class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5)


def rendered(source, asked):
    """As `apply_chat_template` of tokenizers does: special tokens are variables."""
    asked = json.loads(json.dumps(asked))
    messages = asked.pop("messages")
    closed = dict(add_generation_prompt=False)
    try:
        texts, marked = utils.render_jinja_template(
            [messages], chat_template=source, return_assistant_tokens_mask=True, **{**TOKENS, **closed, **asked})
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"[:300]}
    # Characters to bytes.
    at = lambda n: len(texts[0][:n].encode())
    return {"text": texts[0], "generated": [[at(a), at(b)] for a, b in marked[0]]}


def main():
    utils.datetime = Frozen
    public = len(sys.argv) > 1
    folder = pathlib.Path(sys.argv[1]) if public else HERE / "chat_templates"
    # Times differ from run to run.
    freeze = lambda source: source.replace("strftime_now(", "'2026-01-02'.format(")
    templates, cases = {}, []
    for path in sorted(folder.glob("*.jinja")):
        source = freeze(path.read_text(encoding="utf-8"))
        templates[path.stem] = source
        for name in CONVERSATIONS:
            cases.append({"template": path.stem, "conversation": name, **rendered(source, CONVERSATIONS[name])})
    data = {"tokens": TOKENS, "conversations": CONVERSATIONS, "templates": templates, "cases": cases}
    out = pathlib.Path(sys.argv[2]) if public else OUT
    out.write_text(json.dumps(data, ensure_ascii=False, indent=None if public else 1) + "\n", encoding="utf-8")
    failed = sum("error" in case for case in cases)
    print(f"{len(templates)} templates, {len(cases)} cases, {failed} of which are refused by the template")


if __name__ == "__main__":
    main()
