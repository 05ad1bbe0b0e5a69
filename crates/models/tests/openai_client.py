"""Asks a running server with the real `openai` package.

    pip install openai
    loom serve my-model --port 8080 &
    python crates/models/tests/openai_client.py http://127.0.0.1:8080 my-model

Ends with status 0 if everything answers as it should. Any model will do; texts of random ones are random.
"""

import concurrent.futures
import json
import sys

import openai


def main(address, model):
    client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
    assert model in [entry.id for entry in client.models.list()]
    assert client.models.retrieve(model).id == model

    ask = dict(model=model, temperature=0, max_tokens=24, extra_body={"ignore_eos": True})
    plain = client.completions.create(prompt="Once upon a time", **ask)
    assert plain.usage.completion_tokens == 24 and plain.choices[0].finish_reason == "length"
    pieces = client.completions.create(prompt="Once upon a time", stream=True, **ask)
    assert "".join(piece.choices[0].text for piece in pieces) == plain.choices[0].text

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
    whole = client.chat.completions.create(messages=messages, logprobs=True, top_logprobs=3, **ask)
    content = whole.choices[0].logprobs.content
    assert len(content) == 24 and all(len(token.top_logprobs) == 3 for token in content)
    assert all(abs(token.logprob - max(top.logprob for top in token.top_logprobs)) < 1e-9 for token in content)
    stream = client.chat.completions.create(messages=messages, stream=True, stream_options={"include_usage": True}, **ask)
    text, usage = "", None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert text == whole.choices[0].message.content, (text, whole.choices[0].message.content)
    assert usage.completion_tokens == 24

    # The same alone and among others.
    def again(_):
        return client.chat.completions.create(messages=messages, **ask).choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(again, range(24))) == {text}

    drawn = dict(model=model, prompt="The", max_tokens=16, n=3, seed=7, temperature=0.9, top_p=0.9, presence_penalty=0.5,
                 frequency_penalty=0.5)
    first, second = client.completions.create(**drawn), client.completions.create(**drawn)
    assert [c.text for c in first.choices] == [c.text for c in second.choices] and len(first.choices) == 3

    stop = plain.choices[0].text[5:8]
    stopped = client.completions.create(prompt="Once upon a time", stop=[stop], **ask)
    if stop:
        assert stop not in stopped.choices[0].text and stopped.choices[0].finish_reason == "stop"

    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "ok": {"type": "boolean"}},
              "required": ["n", "ok"]}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    formed = client.chat.completions.create(model=model, messages=messages, response_format=form, max_tokens=64)
    value = json.loads(formed.choices[0].message.content)
    assert 0 <= value["n"] <= 9 and isinstance(value["ok"], bool)

    vectors = client.embeddings.create(model=model, input=["one", "another one"])
    lengths = [sum(x * x for x in entry.embedding) for entry in vectors.data]
    assert all(abs(length - 1) < 1e-4 for length in lengths), lengths

    for wrong, kind in [
        (lambda: client.completions.create(model="none", prompt="x"), openai.NotFoundError),
        (lambda: client.completions.create(model=model, prompt="x", temperature=-1), openai.BadRequestError),
        (lambda: client.chat.completions.create(model=model, messages=[]), openai.BadRequestError),
    ]:
        try:
            wrong()
        except kind as error:
            assert error.body["message"], error
        else:
            raise AssertionError("not refused")
    print("all as it should be")


if __name__ == "__main__":
    main(*sys.argv[1:])
