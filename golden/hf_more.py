"""What transformers makes of small random models of many architectures, each in several odd configurations.

    HF_HUB_OFFLINE=1 python golden/hf_more.py [bert phi ..]      # write crates/models/tests/data/more/<model>.json
    HF_HUB_OFFLINE=1 python golden/hf_more.py --loom target/debug/loom [--seeds 20] [--keep DIR] [bert ..]   # compare random ones
    .. --loom target/debug/loom --random [--seeds 20] [--first 0] [bert ..]      # and random configurations, by `hf_draw.py`

Weights are not stored: `hf_wide.uniform` and `crates/models/tests/more.rs` draw the same ones from their names. A file holds a list of
cases: the configuration, names and shapes of the checkpoint's tensors, inputs, outputs, greedy tokens of decoders, and of each
gradient its largest element and its products with two drawn tensors. The gradients are those of the sum of all outputs times
drawn tensors, or of the loss of predicting each next token for decoders.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
import transformers as tf
from safetensors.torch import load_file, save_file

from hf import NO_ENDS
from hf_draw import Draw
from hf_wide import uniform

HERE = pathlib.Path(__file__).resolve().parent.parent / "crates/models/tests/data/more"
NEW = 8
GATED = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=20,
             max_position_embeddings=64, **NO_ENDS)
GROUPED = dict(GATED, num_key_value_heads=2)
PLAIN = {key: value for key, value in GATED.items() if key != "intermediate_size"}
LAYERS = ["sliding_attention", "full_attention"]
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)

LATENT = dict(GATED, num_key_value_heads=4, kv_lora_rank=6, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=5, moe_intermediate_size=6,
              n_shared_experts=2, num_experts_per_tok=2)
LLAMA4 = dict(GROUPED, head_dim=4, intermediate_size_mlp=24, num_local_experts=3)
CLIP_TEXT = dict(vocab_size=30, hidden_size=12, intermediate_size=18, num_hidden_layers=2, num_attention_heads=3,
                 max_position_embeddings=10)
CLIP_VISION = dict(hidden_size=8, intermediate_size=14, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
WHISPER = dict(vocab_size=40, num_mel_bins=5, encoder_layers=2, encoder_attention_heads=2, decoder_layers=2, d_model=12,
               decoder_attention_heads=3, encoder_ffn_dim=14, decoder_ffn_dim=18, max_source_positions=6, max_target_positions=9,
               bos_token_id=1, eos_token_id=2, pad_token_id=0, decoder_start_token_id=1, suppress_tokens=None,
               begin_suppress_tokens=None)
T5 = dict(vocab_size=40, d_model=12, d_kv=5, d_ff=14, num_layers=2, num_heads=3, decoder_start_token_id=0)
BERT = dict(vocab_size=40, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20, max_position_embeddings=24,
            pad_token_id=1)
VIT = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20, image_size=8, patch_size=4)
MAMBA2 = dict(vocab_size=40, hidden_size=12, num_hidden_layers=2, state_size=5, conv_kernel=4, expand=2, num_heads=4, head_dim=6,
              n_groups=2, **NO_ENDS)

# Each a class of models, then configurations.
MODELS = {
    "gemma2": (tf.Gemma2ForCausalLM, [
        tf.Gemma2Config(**GROUPED, head_dim=6, sliding_window=3, query_pre_attn_scalar=10),
        tf.Gemma2Config(**dict(GROUPED, num_hidden_layers=3), head_dim=4, sliding_window=2, attn_logit_softcapping=None,
                        final_logit_softcapping=3.0, attention_bias=True, layer_types=LAYERS[::-1] + LAYERS[:1]),
        tf.Gemma2Config(**dict(GROUPED, num_key_value_heads=1), head_dim=8, sliding_window=4, attn_logit_softcapping=2.0,
                        final_logit_softcapping=None, tie_word_embeddings=False, hidden_activation="silu"),
        *[tf.Gemma2Config(**dict(GROUPED, num_hidden_layers=1), head_dim=4, sliding_window=2, hidden_activation=act)
          for act in ("relu2", "leaky_relu", "sigmoid", "tanh", "quick_gelu")],
    ]),
    "gemma3": (tf.Gemma3ForCausalLM, [
        tf.Gemma3TextConfig(**dict(GROUPED, num_hidden_layers=4), head_dim=6, sliding_window=3, layer_types=LAYERS * 2),
        tf.Gemma3TextConfig(**dict(GROUPED, num_hidden_layers=7, hidden_size=8, intermediate_size=10), head_dim=4, sliding_window=2,
                            query_pre_attn_scalar=5),
        tf.Gemma3TextConfig(**GROUPED, head_dim=8, sliding_window=4, layer_types=LAYERS, final_logit_softcapping=4.0,
                            attention_bias=True, rope_parameters=dict(
                                full_attention=dict(rope_type="linear", factor=8.0, rope_theta=50000.0),
                                sliding_attention=dict(rope_type="default", rope_theta=700.0))),
    ]),
    "olmo2": (tf.Olmo2ForCausalLM, [
        tf.Olmo2Config(**GROUPED),
        tf.Olmo2Config(**dict(GROUPED, num_key_value_heads=4, num_hidden_layers=1), attention_bias=True, tie_word_embeddings=True),
        tf.Olmo2Config(**dict(GROUPED, num_key_value_heads=1), rms_norm_eps=1e-3, rope_parameters=YARN),
    ]),
    "qwen3_moe": (tf.Qwen3MoeForCausalLM, [
        tf.Qwen3MoeConfig(**GROUPED, head_dim=6, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6),
        tf.Qwen3MoeConfig(**dict(GROUPED, num_hidden_layers=3), head_dim=4, num_experts=3, num_experts_per_tok=1,
                          moe_intermediate_size=5, norm_topk_prob=True, mlp_only_layers=[1], attention_bias=True),
        tf.Qwen3MoeConfig(**dict(GROUPED, num_hidden_layers=4, hidden_size=8), head_dim=4, num_experts=5, num_experts_per_tok=3,
                          moe_intermediate_size=4, decoder_sparse_step=2, use_sliding_window=True, sliding_window=3,
                          tie_word_embeddings=True),
        tf.Qwen3MoeConfig(**dict(GROUPED, num_hidden_layers=1), head_dim=4, num_experts=3, num_experts_per_tok=2,
                          moe_intermediate_size=5, hidden_act="relu2"),
    ]),
    "phi": (tf.PhiForCausalLM, [
        tf.PhiConfig(**GATED),
        tf.PhiConfig(**dict(GATED, hidden_size=32), num_key_value_heads=2, qk_layernorm=True),
        tf.PhiConfig(**dict(GATED, num_hidden_layers=3), hidden_act="gelu", rope_parameters=dict(
            rope_type="linear", factor=2.0, rope_theta=5000.0, partial_rotary_factor=1.0)),
    ]),
    "stablelm": (tf.StableLmForCausalLM, [
        tf.StableLmConfig(**dict(GROUPED, hidden_size=32)),
        tf.StableLmConfig(**dict(GROUPED, hidden_size=32), qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=True),
        tf.StableLmConfig(**dict(GROUPED, num_key_value_heads=4), tie_word_embeddings=True, hidden_act="gelu", rope_parameters=dict(
            rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
    ]),
    "falcon": (tf.FalconForCausalLM, [
        tf.FalconConfig(**PLAIN),
        tf.FalconConfig(**PLAIN, new_decoder_architecture=True, num_kv_heads=2, bias=True, ffn_hidden_size=24),
        tf.FalconConfig(**PLAIN, multi_query=False, parallel_attn=False, tie_word_embeddings=False),
        tf.FalconConfig(**PLAIN, new_decoder_architecture=True, num_kv_heads=1, num_ln_in_parallel_attn=1, ffn_hidden_size=20),
        tf.FalconConfig(**PLAIN, alibi=True),
        tf.FalconConfig(**dict(PLAIN, hidden_size=24, num_attention_heads=6), alibi=True, multi_query=False, parallel_attn=False, bias=True),
        tf.FalconConfig(**dict(PLAIN, hidden_size=18, num_attention_heads=3), alibi=True, new_decoder_architecture=True, num_kv_heads=3),
    ]),
    "opt": (tf.OPTForCausalLM, [
        tf.OPTConfig(**PLAIN, ffn_dim=20),
        tf.OPTConfig(**PLAIN, ffn_dim=24, do_layer_norm_before=False, word_embed_proj_dim=8),
        tf.OPTConfig(**PLAIN, ffn_dim=20, enable_bias=False, layer_norm_elementwise_affine=False, activation_function="gelu",
                     tie_word_embeddings=False),
        tf.OPTConfig(**PLAIN, ffn_dim=20, activation_function="mish"),
        tf.OPTConfig(**PLAIN, ffn_dim=20, activation_function="gelu_10"),
    ]),
    "deepseek_v2": (tf.DeepseekV2ForCausalLM, [
        tf.DeepseekV2Config(**LATENT, q_lora_rank=7, n_routed_experts=4, first_k_dense_replace=1),
        tf.DeepseekV2Config(**LATENT, q_lora_rank=None, n_routed_experts=6, n_group=3, topk_group=2, routed_scaling_factor=1.5,
                            topk_method="group_limited_greedy", attention_bias=True),
        tf.DeepseekV2Config(**dict(LATENT, num_hidden_layers=3, n_shared_experts=1), q_lora_rank=5, n_routed_experts=3,
                            first_k_dense_replace=2, rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.7)),
    ]),
    "deepseek_v3": (tf.DeepseekV3ForCausalLM, [
        tf.DeepseekV3Config(**LATENT, q_lora_rank=7, n_routed_experts=6, n_group=3, topk_group=2, first_k_dense_replace=1),
        tf.DeepseekV3Config(**LATENT, q_lora_rank=None, n_routed_experts=4, n_group=1, topk_group=1, first_k_dense_replace=0,
                            norm_topk_prob=False, rope_interleave=False, attention_bias=True),
        tf.DeepseekV3Config(**dict(LATENT, num_hidden_layers=3, n_shared_experts=1), q_lora_rank=5, n_routed_experts=8, n_group=4,
                            topk_group=1, first_k_dense_replace=2, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.5)),
    ]),
    "llama4": (tf.Llama4ForCausalLM, [
        tf.Llama4TextConfig(**dict(LLAMA4, num_hidden_layers=4), attention_chunk_size=3, floor_scale=4, interleave_moe_layer_step=2),
        tf.Llama4TextConfig(**LLAMA4, attention_chunk_size=4, no_rope_layers=[0, 1], num_experts_per_tok=2, use_qk_norm=False,
                            attn_scale=0.3, floor_scale=2),
        tf.Llama4TextConfig(**LLAMA4, attention_chunk_size=2, no_rope_layers=[1, 0], attn_temperature_tuning=False, moe_layers=[0],
                            attention_bias=True, tie_word_embeddings=True, rope_parameters=dict(
                                rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                original_max_position_embeddings=16)),
        tf.Llama4TextConfig(**LLAMA4, attention_chunk_size=3, moe_layers=[1], hidden_act="gelu"),
    ]),
    "mamba2": (tf.Mamba2ForCausalLM, [
        tf.Mamba2Config(**MAMBA2),
        tf.Mamba2Config(**dict(MAMBA2, n_groups=1, conv_kernel=2), use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
        tf.Mamba2Config(**dict(MAMBA2, num_heads=8, head_dim=3, n_groups=4), time_step_limit=(0.1, 1.5), chunk_size=3),
        tf.Mamba2Config(**dict(MAMBA2, num_hidden_layers=1), hidden_act="gelu"),
    ]),
    "bert": (tf.BertModel, [
        tf.BertConfig(**BERT),
        tf.BertConfig(**dict(BERT, num_hidden_layers=1), hidden_act="relu", type_vocab_size=3),
        tf.BertConfig(**dict(BERT, num_attention_heads=2), hidden_act="gelu_new", layer_norm_eps=1e-3),
    ]),
    "bert_heads": (None, [
        (tf.BertForMaskedLM, tf.BertConfig(**BERT)),
        (tf.BertForMaskedLM, tf.BertConfig(**BERT, tie_word_embeddings=False, hidden_act="relu")),
        (tf.BertForSequenceClassification, tf.BertConfig(**BERT, num_labels=3)),
        (tf.BertForMaskedLM, tf.BertConfig(**BERT, hidden_act="silu")),
    ]),
    "roberta": (None, [
        (tf.RobertaModel, tf.RobertaConfig(**BERT)),
        (tf.RobertaForMaskedLM, tf.RobertaConfig(**dict(BERT, pad_token_id=0))),
        (tf.RobertaForMaskedLM, tf.RobertaConfig(**BERT, tie_word_embeddings=False, type_vocab_size=2)),
        (tf.RobertaForSequenceClassification, tf.RobertaConfig(**BERT, num_labels=4)),
    ]),
    "vit": (None, [
        (tf.ViTModel, tf.ViTConfig(**VIT)),
        (tf.ViTModel, tf.ViTConfig(**dict(VIT, patch_size=2, num_hidden_layers=1), num_channels=1, hidden_act="gelu_new")),
        (tf.ViTForImageClassification, tf.ViTConfig(**dict(VIT, image_size=9), num_labels=5, hidden_act="relu")),
        (tf.ViTModel, tf.ViTConfig(**VIT, qkv_bias=False, pooler_output_size=7, pooler_act="relu", hidden_act="quick_gelu")),
    ]),
    "clip": (tf.CLIPModel, [
        tf.CLIPConfig(text_config=dict(CLIP_TEXT, eos_token_id=29), vision_config=CLIP_VISION, projection_dim=6),
        tf.CLIPConfig(text_config=dict(CLIP_TEXT, eos_token_id=2, hidden_act="gelu"), projection_dim=7,
                      vision_config=dict(CLIP_VISION, patch_size=2, num_channels=1, num_hidden_layers=2)),
        tf.CLIPConfig(text_config=dict(CLIP_TEXT, eos_token_id=7, num_hidden_layers=1), projection_dim=4,
                      vision_config=dict(CLIP_VISION, hidden_act="gelu", layer_norm_eps=1e-3)),
    ]),
    "whisper": (tf.WhisperForConditionalGeneration, [
        tf.WhisperConfig(**WHISPER),
        tf.WhisperConfig(**dict(WHISPER, encoder_layers=1, decoder_layers=3, num_mel_bins=3), activation_function="relu"),
        tf.WhisperConfig(**dict(WHISPER, max_source_positions=5), tie_word_embeddings=False, activation_function="gelu_new"),
    ]),
    "t5": (tf.T5ForConditionalGeneration, [
        tf.T5Config(**T5),
        tf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1),
        tf.T5Config(**dict(T5, num_layers=1, num_heads=2), relative_attention_num_buckets=8, relative_attention_max_distance=10,
                    feed_forward_proj="gated-silu", num_decoder_layers=2),
        tf.T5Config(**dict(T5, num_layers=1), feed_forward_proj="gated-gelu_new", scale_decoder_outputs=False),
    ]),
    # The library has neither: `<model>.module` beside the data is what a user would write.
    "granite": (tf.GraniteForCausalLM, [
        tf.GraniteConfig(**GROUPED, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.5, logits_scaling=2.0),
        tf.GraniteConfig(**dict(GROUPED, num_key_value_heads=1), attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    ]),
    "olmo": (tf.OlmoForCausalLM, [
        tf.OlmoConfig(**GROUPED, clip_qkv=0.6),
        tf.OlmoConfig(**dict(GROUPED, num_key_value_heads=4, num_hidden_layers=3), attention_bias=True, tie_word_embeddings=True),
    ]),
}
DECODERS = [name for name, (kind, _) in MODELS.items() if kind is not None and kind.__name__.endswith("CausalLM")]


def cases(name):
    kind, configs = MODELS[name]
    return [config if kind is None else (kind, config) for config in configs]


def weights(name, shape, scale):
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    ones = any(word in name.lower() for word in ("norm", "ln_")) and name.endswith("weight") or name.endswith(".D")
    if len(shape) == 1 or name == "logit_scale":
        return u * np.float32(0.25) + np.float32(ones)
    return u * np.float32(scale)


def fill(model):
    """Draws every tensor that is saved; what is saved under other names is drawn under those, and read back."""
    scale = 0.5
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = load_file(pathlib.Path(folder) / "model.safetensors")
        drawn = {name: torch.from_numpy(np.array(weights(name, tuple(t.shape), scale), dtype=np.float32)) for name, t in stored.items()}
        save_file(drawn, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        # With ALiBi the eager attention of transformers adds it twice.
        attention = "sdpa" if getattr(model.config, "alibi", False) else "eager"
        model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager").eval()
    return model, drawn


def gradients(model, stored):
    """Gradients under the names of the checkpoint: saved as if they were the weights."""
    for p in model.parameters():
        p.data = torch.zeros_like(p.data) if p.grad is None else p.grad
        p.grad = None
    for name, buffer in model.named_buffers():
        buffer.zero_()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        found = load_file(pathlib.Path(folder) / "model.safetensors")
    assert set(found) == set(stored), sorted(set(found) ^ set(stored))[:4]
    return found


def ints(draw, high, shape):
    return torch.tensor([[draw.randrange(high) for _ in range(shape[1])] for _ in range(shape[0])])


def inputs(name, config, draw):
    """Inputs by name, as transformers takes them."""
    floats = lambda *shape: torch.from_numpy(uniform(f"input {draw.randrange(100)}", int(np.prod(shape))).reshape(shape))
    if name in DECODERS:
        return dict(input_ids=ints(draw, config.vocab_size, (2, 9)))
    if name in ("bert", "bert_heads", "roberta"):
        given = dict(input_ids=ints(draw, config.vocab_size, (2, 7)))
        if draw.random() < 0.7:
            given["attention_mask"] = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
            given["input_ids"][1, 5:] = config.pad_token_id
        if draw.random() < 0.6:
            given["token_type_ids"] = ints(draw, config.type_vocab_size, (2, 7))
        return given
    if name == "vit":
        return dict(pixel_values=floats(2, config.num_channels, config.image_size, config.image_size))
    if name == "clip":
        text, vision = config.text_config, config.vision_config
        ids = ints(draw, text.vocab_size - 1, (3, 8))
        ids[ids == text.eos_token_id] = 1
        ids[0, 7] = ids[1, 4] = ids[2, 5] = text.eos_token_id if text.eos_token_id != 2 else text.vocab_size - 1
        given = dict(input_ids=ids, pixel_values=floats(2, vision.num_channels, vision.image_size, vision.image_size))
        if draw.random() < 0.6:
            given["attention_mask"] = torch.tensor([[1] * 8, [1] * 6 + [0] * 2, [1] * 7 + [0]])
        return given
    if name == "whisper":
        return dict(input_features=floats(2, config.num_mel_bins, 2 * config.max_source_positions),
                    decoder_input_ids=ints(draw, config.vocab_size, (2, 6)))
    if name == "t5":
        given = dict(input_ids=ints(draw, config.vocab_size, (2, 9)), decoder_input_ids=ints(draw, config.vocab_size, (2, 6)))
        if draw.random() < 0.6:
            given["attention_mask"] = torch.tensor([[1] * 9, [1] * 4 + [0] * 5])
        return given
    raise KeyError(name)


OUTPUTS = ["logits", "last_hidden_state", "pooler_output", "logits_per_image", "logits_per_text", "text_embeds", "image_embeds",
           "encoder_last_hidden_state"]


def greedy(model, prompt):
    tokens, gap = list(prompt), float("inf")
    for _ in range(NEW):
        with torch.no_grad():
            last = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = last.topk(2).values
        gap = min(gap, float(best[0] - best[1]))
        tokens.append(int(last.argmax()))
    return tokens[len(prompt):], gap


ANSWERS = ["t5", "whisper"]


def answer(model, given, start):
    """The greedy answer to the first of what is read."""
    read = {key: t[:1] for key, t in given.items() if key in ("input_ids", "input_features")}
    tokens, gap = [start], float("inf")
    for _ in range(NEW):
        with torch.no_grad():
            last = model(**read, decoder_input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        best = last.topk(2).values
        gap = min(gap, float(best[0] - best[1]))
        tokens.append(int(last.argmax()))
    return tokens[1:], gap


def compute(name, kind, config, draw):
    torch.manual_seed(0)
    config.architectures = [kind.__name__]
    model, stored = fill(kind(config).eval())
    given = inputs(name, config, draw)
    text = json.loads(config.to_json_string(use_diff=False)) if draw.random() < 0.5 else json.loads(config.to_json_string())
    case = dict(config=dict(text, architectures=[kind.__name__]), given=given, stored=stored)
    if name in DECODERS:
        case["prompt"] = given["input_ids"][0, :4].tolist()
        case["tokens"], case["gap"] = greedy(model, case["prompt"])
        out = model(**given, labels=given["input_ids"], use_cache=False)
        out.loss.backward()
        case["outputs"], case["loss"] = dict(logits=out.logits.detach()), float(out.loss.detach())
    else:
        if name in ANSWERS:
            case["start"] = config.decoder_start_token_id
            case["answer"], case["gap"] = answer(model, given, case["start"])
        out = model(**given)
        case["outputs"] = {key: out[key].detach() for key in OUTPUTS if key in out and out[key] is not None}
        sums = [(out[key] * seed(key, out[key])).sum() for key in case["outputs"]]
        sum(sums).backward()
    case["shaken"] = shaken(model, given, case["outputs"])
    case["gradients"] = gradients(model, stored)
    return case


def shaken(model, given, outputs, draws=6):
    """How far outputs move when every weight moves to a neighbour or stays: what rounding alone does to them."""
    most = {key: 0.0 for key in outputs}
    kept = [p.detach().clone() for p in model.parameters()]
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for _ in range(draws):
            for p, was in zip(model.parameters(), kept):
                way = torch.randint(-1, 2, p.shape, generator=draw)
                p.copy_(torch.where(way == 0, was, torch.nextafter(was, way.float() * torch.inf)))
            out = model(**given)
            for key, want in outputs.items():
                most[key] = max(most[key], float((out[key] - want).abs().max()))
        for p, was in zip(model.parameters(), kept):
            p.copy_(was)
    return most


def seed(name, tensor):
    return torch.from_numpy(uniform(f"d_{name}", tensor.numel()).reshape(tuple(tensor.shape)))


def rounded(values, digits=7):
    return [float(f"{float(x):.{digits}g}") for x in values.flatten().tolist()]


def write(name):
    found = []
    for i, (kind, config) in enumerate(cases(name)):
        case = compute(name, kind, config, random.Random(f"{name} {i}"))
        products = {}
        for key, g in case["gradients"].items():
            g = g.double().flatten()
            drawn = [torch.from_numpy(uniform(f"{key} {n}", g.numel())).double() for n in "ab"]
            products[key] = [float(g.abs().max())] + [float(g @ d) for d in drawn]
        shown = {key: dict(shape=list(t.shape), values=t.flatten().tolist() if t.dtype == torch.int64 else rounded(t, 9))
                 for key, t in case["given"].items()}
        found.append(dict(
            config=case["config"], shapes={key: list(t.shape) for key, t in case["stored"].items()}, inputs=shown,
            outputs={key: dict(shape=list(t.shape), values=rounded(t)) for key, t in case["outputs"].items()},
            gradients={key: [float(f"{x:.7g}") for x in all] for key, all in products.items()},
            **{key: case[key] for key in ("prompt", "tokens", "loss", "start", "answer") if key in case}))
        if case.get("gap", 1.0) < 1e-3:
            print(f"{name} {i}: tokens hang on {case['gap']:.1e}")
    HERE.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, separators=(",", ":"))
    (HERE / f"{name}.json").write_text(text + "\n")
    print(f"{name}: {len(found)} cases, {len(text) // 1024} KB")


def compare(program, name, kind, config, draw, keep, module=None):
    case = compute(name, kind, config, draw)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(keep or folder)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(case["config"]))
        save_file(case["stored"], folder / "model.safetensors")
        words = ["--module", module] if module else []
        wanted = dict(case["outputs"]) | {f"grad.{key}": g for key, g in case["gradients"].items()}
        if name in DECODERS:
            rows = [",".join(map(str, row)) for row in case["given"]["input_ids"].tolist()]
            words += [w for row in rows for w in ("--token-ids", row, "--labels", row)]
        else:
            given = {key: t.to(torch.int32) if t.dtype == torch.int64 else t.contiguous() for key, t in case["given"].items()}
            given |= {f"d_{key}": seed(key, t).contiguous() for key, t in case["outputs"].items()}
            save_file(given, folder / "inputs.safetensors")
            words += ["--inputs", folder / "inputs.safetensors"]
        done = subprocess.run([program, "logits", folder, "--out", folder / "out.safetensors", *words], capture_output=True, text=True)
        if done.returncode:
            return [done.stderr.strip()[:1500]]
        got = load_file(folder / "out.safetensors")
        wrong = []
        for key, want in wanted.items():
            if key not in got:
                wrong.append(f"{key} is missing")
                continue
            size = float(want.abs().max())
            off = float((got[key].float() - want).abs().max()) if got[key].shape == want.shape else float("inf")
            # Rare configurations carry rounding further than the bound: both sides are as far from the exact numbers.
            bound = 1e-3 * size + 5e-6
            if key in case["outputs"]:
                bound = max(1e-4 * max(1.0, size), 2 * case["shaken"][key])
            if not off <= bound:
                wrong.append(f"{key}: off by {off:.2e} of {size:.2e}")
        if name in DECODERS:
            line = [program, "generate", folder, "--token-ids", ",".join(map(str, case["prompt"])), "--max-new-tokens", str(NEW), "--greedy", "--json"]
            done = subprocess.run(line + (["--module", module] if module else []), capture_output=True, text=True)
            new = json.loads(done.stdout) if done.returncode == 0 else done.stderr[:300]
            if new != case["tokens"] and case["gap"] > 1e-3:
                wrong.append(f"tokens {new}, not {case['tokens']}")
            if "recomputes the full sequence" in done.stderr:
                wrong.append(done.stderr.splitlines()[0])
        if name in ANSWERS:
            read = {key: t[:1].contiguous() for key, t in given.items() if key in ("input_ids", "input_features")}
            save_file(read, folder / "read.safetensors")
            line = [program, "generate", folder, "--inputs", folder / "read.safetensors", "--max-new-tokens", str(NEW), "--greedy", "--json"]
            done = subprocess.run(line, capture_output=True, text=True)
            new = json.loads(done.stdout) if done.returncode == 0 else done.stderr[:300]
            ends = [i for i, id in enumerate(case["answer"]) if id == config.eos_token_id]
            want = case["answer"][:ends[0] + 1] if ends else case["answer"]
            if new not in (case["answer"], want) and case["gap"] > 1e-3:
                wrong.append(f"answer {new}, not {case['answer']}")
        return wrong


def drawn(args, name, n):
    """A random configuration; what is refused says so by name, which is printed to be judged."""
    draw = Draw(f"{name} {n}")
    try:
        kind, config = getattr(draw, name)()
        wrong = compare(args.loom, name, kind, config, draw.random, args.keep, args.module)
    except (ValueError, RuntimeError, AssertionError, TypeError, LookupError, ArithmeticError) as e:
        print(name, n, f"transformers can't: {str(e).splitlines()[0][:120] if str(e) else type(e)}", flush=True)
        return False
    refused = len(wrong) == 1 and wrong[0].startswith("loom: ")
    print(name, n, ("refused: " if refused else "") + "; ".join(wrong[:6]) or "ok", flush=True)
    if wrong and not refused:
        print("  ", kind.__name__, json.dumps(config.to_diff_dict()))
    return bool(wrong) and not refused


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--loom")
    parser.add_argument("--module")
    parser.add_argument("--keep")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    tf.logging.set_verbosity_error()
    tf.logging.disable_progress_bar()
    torch.set_num_threads(1)
    bad = 0
    for name in args.names or MODELS:
        if not args.loom:
            write(name)
            continue
        for n in range(args.first, args.first + args.seeds):
            if args.random:
                bad += drawn(args, name, n)
                continue
            for index, (kind, config) in enumerate(cases(name)):
                wrong = compare(args.loom, name, kind, config, random.Random(f"{name} {index} {n}"), args.keep, args.module)
                bad += bool(wrong)
                print(name, index, n, "; ".join(wrong[:6]) or "ok", flush=True)
    sys.exit(bad > 0)
