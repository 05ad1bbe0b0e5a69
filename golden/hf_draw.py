"""Random configurations of the models in `hf_more.py`: whatever transformers takes, likely or not.

Sizes, heads, biases, activations, windows, kinds of rotations, norms, routes and lists per layer are drawn. A configuration that the
library refuses by name is no mistake; one that it computes otherwise is.
"""

import random

import transformers as tf

from hf import NO_ENDS

ACTIVATIONS = ("silu", "gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "gelu_fast", "relu2", "tanh", "sigmoid", "mish",
               "leaky_relu", "gelu_10", "laplace")


class Draw:
    """Random configurations; a method for each name of `hf_more.MODELS`."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *of):
        return self.random.choice(of)

    def flag(self, share=0.5):
        return self.random.random() < share

    def some(self, **options):
        """Some of these, the others by default."""
        return {key: value for key, value in options.items() if self.flag()}

    def activation(self):
        return self.pick(*ACTIVATIONS) if self.flag(0.4) else self.pick("silu", "gelu", "relu")

    def sizes(self, heads=None, width=None):
        heads, width = heads or self.pick(1, 2, 3, 4, 6), width or self.pick(4, 6, 8, 10)
        return dict(vocab_size=self.pick(33, 40, 51, 64), hidden_size=heads * width, num_attention_heads=heads,
                    num_hidden_layers=self.pick(1, 2, 3, 4), intermediate_size=self.pick(7, 20, 33),
                    max_position_embeddings=self.pick(32, 64, 100), **NO_ENDS), width

    def grouped(self, **given):
        sizes, width = self.sizes(**given)
        heads = sizes["num_attention_heads"]
        sizes["num_key_value_heads"] = self.pick(*[k for k in (1, 2, 3, heads) if heads % k == 0])
        return sizes, width

    def rope(self, width, longest, kinds=("default", "linear", "yarn", "llama3", "longrope", "dynamic"), **more):
        """Parameters of rotations of heads so wide."""
        kind = self.pick("default", *kinds)
        rope = dict(rope_type=kind, rope_theta=self.pick(100.0, 10000.0, 5e5), **more)
        turned = int(width * more.get("partial_rotary_factor", 1.0))
        if kind in ("linear", "dynamic"):
            rope["factor"] = self.pick(2.0, 3.5)
        if kind == "yarn":
            rope |= dict(factor=self.pick(2.0, 4.0), original_max_position_embeddings=self.pick(8, 16))
            rope |= self.some(beta_fast=self.pick(8.0, 40.0), beta_slow=self.pick(0.5, 2.0))
            rope |= self.pick({}, dict(attention_factor=1.3), dict(mscale=0.7, mscale_all_dim=1.1), dict(truncate=False))
        if kind == "llama3":
            rope |= dict(factor=self.pick(2.0, 8.0), low_freq_factor=1.0, high_freq_factor=self.pick(2.0, 4.0),
                         original_max_position_embeddings=self.pick(8, 16))
        if kind == "longrope":
            rope |= dict(original_max_position_embeddings=self.pick(6, 32), short_factor=[1.0 + 0.1 * i for i in range(turned // 2)],
                         long_factor=[1.5 + 0.2 * i for i in range(turned // 2)])
            rope |= self.pick({}, dict(attention_factor=1.2), dict(factor=3.0))
        return rope

    def gemma2(self):
        sizes, _ = self.grouped()
        width = self.pick(4, 6, 8)
        layers = [self.pick("sliding_attention", "full_attention") for _ in range(sizes["num_hidden_layers"])]
        return tf.Gemma2ForCausalLM, tf.Gemma2Config(
            **sizes, head_dim=width, sliding_window=self.pick(1, 3, 5, 64), query_pre_attn_scalar=self.pick(3, 8, 17),
            tie_word_embeddings=self.flag(), attention_bias=self.flag(), hidden_activation=self.activation(),
            attn_logit_softcapping=self.pick(None, 2.0, 50.0), final_logit_softcapping=self.pick(None, 1.5, 30.0),
            rope_parameters=self.rope(width, sizes["max_position_embeddings"]), **self.some(layer_types=layers, rms_norm_eps=1e-3))

    def gemma3(self):
        sizes, _ = self.grouped()
        width = self.pick(4, 6, 8)
        layers = [self.pick("sliding_attention", "full_attention") for _ in range(sizes["num_hidden_layers"])]
        longest = sizes["max_position_embeddings"]
        ropes = dict(full_attention=self.rope(width, longest, ("linear", "yarn", "llama3")),
                     sliding_attention=self.rope(width, longest, ("linear",)))
        return tf.Gemma3ForCausalLM, tf.Gemma3TextConfig(
            **sizes, head_dim=width, sliding_window=self.pick(1, 3, 5, 64), query_pre_attn_scalar=self.pick(3, 8, 17),
            tie_word_embeddings=self.flag(), attention_bias=self.flag(), hidden_activation=self.activation(),
            attn_logit_softcapping=self.pick(None, 2.0), final_logit_softcapping=self.pick(None, 1.5),
            **self.some(layer_types=layers, rope_parameters=ropes))

    def olmo2(self):
        sizes, width = self.grouped()
        return tf.Olmo2ForCausalLM, tf.Olmo2Config(
            **sizes, attention_bias=self.flag(), tie_word_embeddings=self.flag(), hidden_act=self.activation(),
            rms_norm_eps=self.pick(1e-5, 1e-2), rope_parameters=self.rope(width, sizes["max_position_embeddings"]))

    def qwen3_moe(self):
        sizes, _ = self.grouped()
        width, experts, layers = self.pick(4, 6, 8), self.pick(2, 3, 5), sizes["num_hidden_layers"]
        return tf.Qwen3MoeForCausalLM, tf.Qwen3MoeConfig(
            **sizes, head_dim=width, num_experts=experts, num_experts_per_tok=self.pick(*range(1, experts + 1)),
            moe_intermediate_size=self.pick(3, 8), norm_topk_prob=self.flag(), decoder_sparse_step=self.pick(1, 1, 2, 3),
            mlp_only_layers=[i for i in range(layers) if self.flag(0.2)], attention_bias=self.flag(), hidden_act=self.activation(),
            tie_word_embeddings=self.flag(), rope_parameters=self.rope(width, sizes["max_position_embeddings"]),
            **self.pick({}, dict(use_sliding_window=True, sliding_window=self.pick(2, 4)), dict(sliding_window=3)))

    def phi(self):
        sizes, width = self.grouped(width=self.pick(8, 12, 16))
        share = self.pick(0.25, 0.5, 1.0) if width % 8 == 0 else self.pick(0.5, 1.0)
        return tf.PhiForCausalLM, tf.PhiConfig(
            **sizes, hidden_act=self.activation(), qk_layernorm=self.flag(), layer_norm_eps=self.pick(1e-5, 1e-2),
            rope_parameters=self.rope(width, sizes["max_position_embeddings"], partial_rotary_factor=share))

    def stablelm(self):
        sizes, width = self.grouped(width=self.pick(8, 12, 16))
        share = self.pick(0.25, 0.5, 1.0) if width % 8 == 0 else self.pick(0.5, 1.0)
        return tf.StableLmForCausalLM, tf.StableLmConfig(
            **sizes, hidden_act=self.activation(), qk_layernorm=self.flag(), use_parallel_residual=self.flag(),
            use_qkv_bias=self.flag(), tie_word_embeddings=self.flag(),
            rope_parameters=self.rope(width, sizes["max_position_embeddings"], partial_rotary_factor=share))

    def falcon(self):
        sizes, width = self.grouped(heads=self.pick(2, 3, 4, 6))
        groups = sizes.pop("num_key_value_heads")
        sizes.pop("intermediate_size")
        alibi = self.flag(0.3)
        form = self.pick(dict(new_decoder_architecture=True, num_kv_heads=groups, num_ln_in_parallel_attn=self.pick(None, 1, 2)),
                         dict(multi_query=self.flag(), parallel_attn=self.flag()))
        rope = {} if alibi else dict(rope_parameters=self.rope(width, sizes["max_position_embeddings"]))
        return tf.FalconForCausalLM, tf.FalconConfig(
            **sizes, **form, **rope, alibi=alibi, bias=self.flag(), activation=self.activation(), tie_word_embeddings=self.flag(),
            **self.some(ffn_hidden_size=self.pick(7, 24), layer_norm_epsilon=1e-2))

    def opt(self):
        sizes, _ = self.sizes()
        sizes.pop("intermediate_size")
        before = self.flag(0.7)
        return tf.OPTForCausalLM, tf.OPTConfig(
            **sizes, ffn_dim=self.pick(7, 24), do_layer_norm_before=before, word_embed_proj_dim=self.pick(sizes["hidden_size"], 6),
            enable_bias=self.flag(), layer_norm_elementwise_affine=self.flag(), activation_function=self.activation(),
            tie_word_embeddings=self.flag(), _remove_final_layer_norm=self.flag(0.3))

    def latent(self):
        sizes, _ = self.sizes()
        turned = self.pick(2, 4, 6)
        sizes |= dict(num_key_value_heads=sizes["num_attention_heads"], kv_lora_rank=self.pick(6, 8), qk_rope_head_dim=turned,
                      qk_nope_head_dim=self.pick(2, 4, 8), v_head_dim=self.pick(3, 5, 8), q_lora_rank=self.pick(None, 5, 9),
                      moe_intermediate_size=self.pick(3, 6), n_shared_experts=self.pick(1, 2), attention_bias=self.flag(),
                      first_k_dense_replace=self.pick(0, 1, 2), hidden_act=self.activation(), tie_word_embeddings=self.flag(),
                      norm_topk_prob=self.flag(), routed_scaling_factor=self.pick(1.0, 2.5))
        sizes["rope_parameters"] = self.rope(turned, sizes["max_position_embeddings"], ("linear", "yarn", "llama3"))
        groups, each = self.pick(1, 2, 3), self.pick(2, 3)
        chosen = self.pick(*range(1, groups + 1))
        sizes |= dict(n_routed_experts=groups * each, num_experts_per_tok=self.pick(*range(1, min(3, chosen * each) + 1)))
        return sizes, dict(n_group=groups, topk_group=chosen)

    def deepseek_v2(self):
        sizes, groups = self.latent()
        # The class of transformers takes `norm_topk_prob` and leaves it.
        limited = self.pick({}, dict(groups, topk_method="group_limited_greedy"))
        return tf.DeepseekV2ForCausalLM, tf.DeepseekV2Config(**sizes, **limited, mlp_bias=self.flag(0.3))

    def deepseek_v3(self):
        sizes, groups = self.latent()
        return tf.DeepseekV3ForCausalLM, tf.DeepseekV3Config(**sizes, **groups, rope_interleave=self.flag())

    def llama4(self):
        sizes, _ = self.grouped()
        layers, width, experts = sizes["num_hidden_layers"], self.pick(4, 6, 8), self.pick(2, 3)
        return tf.Llama4ForCausalLM, tf.Llama4TextConfig(
            **sizes, head_dim=width, intermediate_size_mlp=self.pick(7, 24), num_local_experts=experts,
            num_experts_per_tok=self.pick(*range(1, experts + 1)), attention_chunk_size=self.pick(1, 3, 5, 64),
            use_qk_norm=self.flag(), attn_temperature_tuning=self.flag(), floor_scale=self.pick(1, 3), attn_scale=self.pick(0.1, 0.4),
            attention_bias=self.flag(), tie_word_embeddings=self.flag(), hidden_act=self.activation(),
            interleave_moe_layer_step=self.pick(1, 2), rope_parameters=self.rope(width, 64, ("llama3", "linear", "yarn")),
            **self.some(no_rope_layers=[self.pick(0, 1) for _ in range(layers)],
                        moe_layers=[i for i in range(layers) if self.flag()]))

    def mamba2(self):
        groups = self.pick(1, 2, 3)
        heads, width = groups * self.pick(1, 2), self.pick(2, 4, 6)
        hidden = heads * width // 2 if heads * width % 2 == 0 else heads * width
        return tf.Mamba2ForCausalLM, tf.Mamba2Config(
            vocab_size=self.pick(33, 40), hidden_size=hidden, expand=heads * width // hidden, num_heads=heads, head_dim=width,
            n_groups=groups, num_hidden_layers=self.pick(1, 2, 3), state_size=self.pick(3, 5, 8), conv_kernel=self.pick(2, 3, 4),
            use_bias=self.flag(), use_conv_bias=self.flag(), tie_word_embeddings=self.flag(), chunk_size=self.pick(2, 4, 256),
            hidden_act=self.pick("silu", "silu", "gelu", "relu"), layer_norm_epsilon=self.pick(1e-5, 1e-2), **NO_ENDS,
            **self.some(time_step_limit=(0.05, 1.2), residual_in_fp32=self.flag()))

    def granite(self):
        sizes, width = self.grouped()
        return tf.GraniteForCausalLM, tf.GraniteConfig(
            **sizes, embedding_multiplier=self.pick(1.0, 3.0), attention_multiplier=self.pick(0.4, 1.0), mlp_bias=self.flag(),
            residual_multiplier=self.pick(0.5, 1.0), logits_scaling=self.pick(1.0, 2.0), attention_bias=self.flag(),
            tie_word_embeddings=self.flag(), rope_parameters=self.rope(width, 64))

    def olmo(self):
        sizes, width = self.grouped()
        return tf.OlmoForCausalLM, tf.OlmoConfig(
            **sizes, clip_qkv=self.pick(None, 0.6), attention_bias=self.flag(), tie_word_embeddings=self.flag(),
            rope_parameters=self.rope(width, 64))

    def reader(self):
        heads = self.pick(1, 2, 3)
        return dict(vocab_size=self.pick(33, 40), hidden_size=heads * self.pick(3, 4, 7), num_hidden_layers=self.pick(1, 2, 3),
                    num_attention_heads=heads, intermediate_size=self.pick(7, 20), max_position_embeddings=self.pick(20, 24),
                    pad_token_id=self.pick(0, 1, 3), type_vocab_size=self.pick(1, 2, 3), hidden_act=self.activation(),
                    layer_norm_eps=self.pick(1e-12, 1e-3))

    def bert(self):
        return tf.BertModel, tf.BertConfig(**self.reader())

    def bert_heads(self):
        return self.pick(
            (tf.BertForMaskedLM, tf.BertConfig(**self.reader(), tie_word_embeddings=self.flag())),
            (tf.BertForSequenceClassification, tf.BertConfig(**self.reader(), num_labels=self.pick(1, 2, 5))))

    def roberta(self):
        return self.pick(
            (tf.RobertaModel, tf.RobertaConfig(**self.reader())),
            (tf.RobertaForMaskedLM, tf.RobertaConfig(**self.reader(), tie_word_embeddings=self.flag())),
            (tf.RobertaForSequenceClassification, tf.RobertaConfig(**self.reader(), num_labels=self.pick(2, 5))))

    def pictures(self):
        heads, patch = self.pick(1, 2, 3), self.pick(2, 3, 4)
        return dict(hidden_size=heads * self.pick(4, 5), num_hidden_layers=self.pick(1, 2, 3), num_attention_heads=heads,
                    intermediate_size=self.pick(7, 20), patch_size=patch, image_size=patch * self.pick(1, 2, 3),
                    num_channels=self.pick(1, 3), hidden_act=self.activation(), layer_norm_eps=self.pick(1e-12, 1e-3))

    def vit(self):
        sizes = self.pictures() | dict(qkv_bias=self.flag())
        return self.pick((tf.ViTModel, tf.ViTConfig(**sizes, **self.some(pooler_output_size=9, pooler_act=self.pick("relu", "sigmoid")))),
                         (tf.ViTForImageClassification, tf.ViTConfig(**sizes, num_labels=self.pick(2, 5))))

    def clip(self):
        heads = self.pick(1, 2, 3)
        text = dict(vocab_size=30, hidden_size=heads * 4, intermediate_size=self.pick(7, 18), num_hidden_layers=self.pick(1, 2),
                    num_attention_heads=heads, max_position_embeddings=self.pick(8, 10), eos_token_id=self.pick(2, 7, 29),
                    hidden_act=self.activation())
        return tf.CLIPModel, tf.CLIPConfig(text_config=text, vision_config=self.pictures(), projection_dim=self.pick(4, 7))

    def whisper(self):
        a, b = self.pick((2, 3, 12), (1, 4, 8), (2, 2, 10)), self.pick(1, 2, 3)
        return tf.WhisperForConditionalGeneration, tf.WhisperConfig(
            vocab_size=self.pick(33, 40), num_mel_bins=self.pick(3, 5), encoder_layers=self.pick(1, 2), decoder_layers=b,
            encoder_attention_heads=a[0], decoder_attention_heads=a[1], d_model=a[2], encoder_ffn_dim=self.pick(7, 14),
            decoder_ffn_dim=self.pick(9, 18), max_source_positions=self.pick(5, 6), max_target_positions=self.pick(9, 12),
            scale_embedding=self.flag(), activation_function=self.activation(), tie_word_embeddings=self.flag(), bos_token_id=1,
            eos_token_id=2, pad_token_id=0, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)

    def t5(self):
        gate = self.pick("", "gated-") + self.pick("relu", "gelu", "silu", "gelu_new")
        return tf.T5ForConditionalGeneration, tf.T5Config(
            vocab_size=self.pick(33, 40), d_model=self.pick(8, 12), d_kv=self.pick(3, 5), d_ff=self.pick(7, 14),
            num_layers=self.pick(1, 2, 3), num_decoder_layers=self.pick(1, 2, 3), num_heads=self.pick(1, 2, 3),
            relative_attention_num_buckets=self.pick(4, 8, 32), relative_attention_max_distance=self.pick(5, 10, 128),
            feed_forward_proj=gate, tie_word_embeddings=self.flag(), scale_decoder_outputs=self.flag(),
            layer_norm_epsilon=self.pick(1e-6, 1e-3), decoder_start_token_id=0)
