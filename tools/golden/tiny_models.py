"""The tiny random checkpoints: Hugging Face configurations and weights of every family and corner that a loader
must get right. Sizes avoid multiples of 32 where the format allows it, so that tails are exercised."""
import json
import math

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENIZER_VOCAB = 333
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def llama(**changes):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
            "intermediate_size": 104, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": TOKENIZER_VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
            "mlp_bias": False, "bos_token_id": 0, "eos_token_id": 1} | changes


def qwen(version, **changes):
    name = f"Qwen{version}"
    return llama(architectures=[f"{name}ForCausalLM"], model_type=name.lower(), rms_norm_eps=1e-6) | changes


def mixtral(**changes):
    return llama(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=4,
                 num_experts_per_tok=2, sliding_window=None) | changes


def qwen3_moe(**changes):
    return qwen(3, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", head_dim=20, num_experts=9,
                num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1,
                mlp_only_layers=[]) | changes


LLAMA3_ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

# name -> (configuration, dtype of the weights, shards, whether the tokenizer puts <s> first)
HF_MODELS = {
    "llama2": (llama(num_key_value_heads=4, hidden_size=56, intermediate_size=120), "F16", 1, True),
    "llama3": (llama(hidden_size=64, tie_word_embeddings=True, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE),
               "BF16", 1, True),
    # The older spelling of a scaling ("type") is still in many checkpoints.
    "llama_linear": (llama(rope_scaling={"type": "linear", "factor": 2.0}), "BF16", 3, True),
    "smollm2": (llama(num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, rope_theta=100000.0,
                      tie_word_embeddings=True), "BF16", 1, False),
    "mistral": (llama(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=16), "F16", 1, True),
    "qwen2": (qwen(2, tie_word_embeddings=True, vocab_size=350, use_sliding_window=False, sliding_window=16,
                   max_window_layers=2), "F32", 1, False),
    # Written as transformers 5 writes it: rope_parameters, and no rope_theta beside it.
    "qwen25_yarn": ({k: v for k, v in qwen(2, vocab_size=341, max_position_embeddings=256).items() if k != "rope_theta"}
                    | {"rope_parameters": YARN_ROPE | {"rope_theta": 1000000.0}}, "BF16", 1, False),
    "qwen3": (qwen(3, head_dim=20, tie_word_embeddings=True, rope_theta=1000000.0), "F16", 1, False),
    # Experts wide enough for two leaves of down_proj, so that ranks share them.
    "mixtral": (mixtral(hidden_size=40, intermediate_size=264, num_attention_heads=2), "F16", 1, True),
    "qwen3_moe": (qwen3_moe(num_hidden_layers=3, mlp_only_layers=[1]), "BF16", 1, False),
    "qwen3_moe_fused": (qwen3_moe(num_hidden_layers=4, decoder_sparse_step=2, norm_topk_prob=False,
                                  tie_word_embeddings=True), "BF16", 1, False),
}


def random_weights(config, seed):
    """State dict in float32, scaled so that attention scores and logits spread over several units."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, value in model.state_dict().items():
        noise = torch.randn(value.shape, generator=generator)
        if name.endswith("bias"):
            weights[name] = 0.3 * noise
        elif value.dim() == 1:
            weights[name] = (1.6 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0) + 0.25 * noise
        else:
            gain = {"q_proj": 1.5, "k_proj": 1.5, "lm_head": 2.0, "embed_tokens": 2.0, "gate": 2.0}.get(
                name.split(".")[-2], 1.0)
            weights[name] = gain / math.sqrt(value.shape[-1]) * noise
    if config["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    return weights


def separate_experts(config, weights):
    """The names and matrices that checkpoints have, of the stacks that transformers 5 has in memory (and writes with
    save_original_format=False)."""
    module, names = ("block_sparse_moe", ("w1", "w3", "w2")) if config["model_type"] == "mixtral" else (
        "mlp", ("gate_proj", "up_proj", "down_proj"))
    separate = {}
    for name, value in weights.items():
        prefix, _, stack = name.partition(".mlp.experts.")
        if not stack:
            separate[name.replace(".mlp.gate.", f".{module}.gate.")] = value
            continue
        parts = zip(names[:2], value.chunk(2, dim=1)) if stack == "gate_up_proj" else [(names[2], value)]
        for projection, matrices in parts:
            for index, matrix in enumerate(matrices):
                separate[f"{prefix}.{module}.experts.{index}.{projection}.weight"] = matrix
    return separate


def save_hf(folder, config, weights, dtype, shards):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": str(DTYPES[dtype])[6:]}, indent=1) + "\n")
    weights = {name: value.to(DTYPES[dtype]).contiguous() for name, value in weights.items()}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(weights)
    index = {}
    for shard in range(shards):
        part = {name: weights[name] for name in names[shard::shards]}
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        index |= {name: file for name in part}
    total = sum(value.numel() * value.element_size() for value in weights.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))}, indent=1) + "\n")


def load_hf(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
