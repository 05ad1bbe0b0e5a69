"""Names of the fields of requests of OpenAI's and vLLM's HTTP interfaces, for the table of `loom serve`.

    git clone https://github.com/openai/openai-python; git clone https://github.com/vllm-project/vllm
    python golden/serve_fields.py openai-python vllm > crates/models/tests/data/serve_fields.json

Reads the classes of both packages without importing them, from the newest commit of each clone. `OLDER` has fields of earlier releases of
vLLM which clients still send.
"""

import ast
import json
import subprocess
import sys

OPENAI = "src/openai/types/"
VLLM = "vllm/entrypoints/"
OLDER = {
    "completions": "best_of early_stopping guided_choice guided_decoding_backend guided_grammar guided_json guided_regex "
    "guided_whitespace_pattern logits_processors structural_tag",
    "chat": "best_of early_stopping guided_choice guided_decoding_backend guided_grammar guided_json guided_regex "
    "guided_whitespace_pattern logits_processors structural_tag",
    "embeddings": "additional_data normalize",
}


def git(repository, *command):
    return subprocess.run(["git", "-C", repository, *command], check=True, capture_output=True, text=True).stdout


def classes(repository, path):
    tree = ast.parse(git(repository, "show", "HEAD:" + path))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def fields(known, name):
    """Fields of a class and of the classes that it extends, as far as they are known."""
    if name not in known:
        return set()
    own = {node.target.id for node in known[name].body if isinstance(node, ast.AnnAssign)}
    for base in known[name].bases:
        own |= fields(known, ast.unparse(base))
    return {field for field in own if not field.startswith("_")}


def main(openai, vllm):
    found = {"openai": {}, "vllm": {}}
    for key, path, name in [
        ("completions", "completion_create_params.py", "CompletionCreateParamsStreaming"),
        ("chat", "chat/completion_create_params.py", "CompletionCreateParamsStreaming"),
        ("embeddings", "embedding_create_params.py", "EmbeddingCreateParams"),
    ]:
        found["openai"][key] = sorted(fields(classes(openai, OPENAI + path), name))
    pooling = classes(vllm, VLLM + "pooling/base/protocol.py") | classes(vllm, VLLM + "pooling/embed/protocol.py")
    embeddings = fields(pooling, "EmbeddingCompletionRequest") | fields(pooling, "EmbeddingChatRequest")
    own = {
        "completions": fields(classes(vllm, VLLM + "openai/completion/protocol.py"), "CompletionRequest"),
        "chat": fields(classes(vllm, VLLM + "openai/chat_completion/protocol.py"), "ChatCompletionRequest"),
        "embeddings": embeddings,
    }
    found["vllm"] = {key: sorted(names | set(OLDER[key].split())) for key, names in own.items()}
    found["commits"] = {"openai": git(openai, "rev-parse", "HEAD").strip(), "vllm": git(vllm, "rev-parse", "HEAD").strip()}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
