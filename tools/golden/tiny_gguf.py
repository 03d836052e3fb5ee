"""The tiny GGUF checkpoints, laid out as llama.cpp's converter lays out the same models (q and k of the llama
architecture permuted, norms and biases in float32, a Llama-3 scaling as the tensor rope_freqs.weight)."""
import dataclasses
import math

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from transformers import AutoConfig, AutoModelForCausalLM

import tiny_models
import tiny_tokenizer

NAMES = {  # GGUF -> transformers
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_down_exps": "mlp.experts.down_proj"}
TO_GGUF = {value: key for key, value in NAMES.items()}


ARCHITECTURES = {"mixtral": "llama", "qwen3_moe": "qwen3moe"}  # where it is not the model type


def architecture(config):
    return ARCHITECTURES.get(config["model_type"], config["model_type"])


@dataclasses.dataclass
class GgufModel:
    config: dict
    types: dict            # GGUF tensor -> type; "" names the rest
    add_bos: bool = False


GGUF_MODELS = {
    "gguf_llama": GgufModel(
        tiny_models.llama(hidden_size=64, intermediate_size=96),
        {"token_embd": Type.Q8_0, "output": Type.Q5_0, "attn_q": Type.Q4_0, "attn_k": Type.Q4_1, "attn_v": Type.Q5_0,
         "attn_output": Type.Q5_1, "ffn_gate": Type.Q8_0, "ffn_up": Type.Q4_0, "ffn_down": Type.Q4_1}, add_bos=True),
    "gguf_llama3": GgufModel(
        tiny_models.llama(tie_word_embeddings=True, rope_theta=500000.0, rope_scaling=tiny_models.LLAMA3_ROPE),
        {"": Type.F16}, add_bos=True),
    "gguf_qwen2": GgufModel(
        tiny_models.qwen(2, vocab_size=350, max_position_embeddings=256, rope_theta=1000000.0,
                         rope_scaling=tiny_models.YARN_ROPE), {"": Type.BF16}),
    "gguf_qwen3": GgufModel(
        tiny_models.qwen(3, hidden_size=64, intermediate_size=96, head_dim=24, tie_word_embeddings=True),
        {"token_embd": Type.F16, "attn_k": Type.F32, "": Type.Q8_0}),
    # One layer: blocks of 256 weights make the smallest such model large.
    "gguf_llama_k": GgufModel(
        tiny_models.llama(hidden_size=256, intermediate_size=256, num_hidden_layers=1),
        {"token_embd": Type.Q6_K, "output": Type.Q4_K, "attn_q": Type.Q4_K, "attn_k": Type.Q5_K, "attn_v": Type.Q6_K,
         "attn_output": Type.Q5_K, "ffn_gate": Type.Q4_K, "ffn_up": Type.Q5_K, "ffn_down": Type.Q6_K}),
    "gguf_mixtral": GgufModel(
        tiny_models.mixtral(hidden_size=64, intermediate_size=96),
        {"ffn_gate_exps": Type.Q8_0, "ffn_up_exps": Type.Q4_0, "ffn_down_exps": Type.Q4_1, "ffn_gate_inp": Type.F32,
         "": Type.F16}, add_bos=True),
    "gguf_qwen3moe": GgufModel(
        tiny_models.qwen3_moe(hidden_size=64, moe_intermediate_size=32, head_dim=24, num_experts=6,
                              num_experts_per_tok=2, tie_word_embeddings=True),
        {"token_embd": Type.F16, "ffn_gate_inp": Type.F32, "": Type.Q8_0}),
}


def gguf_name(name):
    if ".mlp.experts." in name and not name.endswith(".weight"):
        name += ".weight"
    body, _, kind = name.rpartition(".")
    if body in TO_GGUF:
        return TO_GGUF[body], f"{TO_GGUF[body]}.{kind}"
    _, _, layer, rest = body.split(".", 3)
    return TO_GGUF[rest], f"blk.{layer}.{TO_GGUF[rest]}.{kind}"


def hf_name(name):
    body, _, kind = name.rpartition(".")
    if not body.startswith("blk."):
        return f"{NAMES[body]}.{kind}"
    _, layer, rest = body.split(".", 2)
    if rest == "ffn_down_exps":
        return f"model.layers.{layer}.{NAMES[rest]}"  # transformers' stacks have no ".weight"
    return f"model.layers.{layer}.{NAMES[rest]}.{kind}"


def gguf_tensors(name, value):
    """(GGUF tensor, its full name, values): gate_proj and up_proj of the experts are two stacks."""
    if not name.endswith("experts.gate_up_proj"):
        yield *gguf_name(name), value.numpy()
        return
    layer = name.split(".")[2]
    for tensor, part in zip(("ffn_gate_exps", "ffn_up_exps"), value.chunk(2, dim=1)):
        yield tensor, f"blk.{layer}.{tensor}.weight", part.numpy()


def permute(rows, heads):
    """Half-split rotary order -> interleaved, the order the llama architecture stores q and k in."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def unpermute(rows, heads):
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def permuted_heads(config, tensor):
    if architecture(config) != "llama":
        return None
    return {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}.get(tensor)


def random_k_blocks(shape, kind, generator):
    """Random valid blocks of a K type, scaled so that a weight's deviation is about 1 / sqrt(columns). The scales of
    Q6_K become float16 denormals, which are values like any other."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = shape[0] * shape[1] // block
    raw = generator.integers(0, 256, (count, size), dtype=np.uint8)
    spread = {Type.Q4_K: 245.0, Type.Q5_K: 490.0, Type.Q6_K: 1366.0}[kind]
    d = generator.uniform(0.5, 1.5, (count, 1)) / (spread * math.sqrt(shape[1]))
    if kind == Type.Q6_K:
        raw[:, -2:] = d.astype(np.float16).view(np.uint8)
    else:
        raw[:, 0:2] = d.astype(np.float16).view(np.uint8)
        raw[:, 2:4] = (d * {Type.Q4_K: 7.5, Type.Q5_K: 15.5}[kind]).astype(np.float16).view(np.uint8)
    return raw.reshape(shape[0], -1)


def rope_factors(config):
    """What each rotary frequency is divided by under a Llama-3 scaling."""
    scaling = config["rope_scaling"]
    dim = config["hidden_size"] // config["num_attention_heads"]
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    factors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / dim)
        smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
            scaling["high_freq_factor"] - scaling["low_freq_factor"])
        between = 1 / ((1 - smooth) / scaling["factor"] + smooth)
        factors.append(1.0 if wavelength < high else scaling["factor"] if wavelength > low else between)
    return np.array(factors, dtype=np.float32)


def write_metadata(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if "num_experts_per_tok" in config:
        writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if architecture(config) == "llama":
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    scaling = config.get("rope_scaling", {})
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def write_tokenizer(writer, tokenizer, vocab, add_bos):
    tokens, types, merges = tiny_tokenizer.gguf_lists(tokenizer)
    padding = range(len(tokens), vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in padding])
    writer.add_token_types(types + [int(gguf.TokenType.UNUSED) for _ in padding])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(add_bos)


def save(folder, model, tokenizer, seed):
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    generator = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture(config))
    write_metadata(writer, config)
    write_tokenizer(writer, tokenizer, config["vocab_size"], model.add_bos)
    if config.get("rope_scaling", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    for name, value in tiny_models.random_weights(config, seed).items():
        for tensor, full_name, rows in gguf_tensors(name, value):
            kind = model.types.get(tensor, model.types.get("", Type.F32)) if rows.ndim >= 2 else Type.F32
            if permuted_heads(config, tensor):
                rows = permute(rows, permuted_heads(config, tensor))
            data = (random_k_blocks(rows.shape, kind, generator) if kind.name.endswith("_K")
                    else gguf.quantize(np.ascontiguousarray(rows), kind))
            writer.add_tensor(full_name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_dequantized(path, config):
    """The transformers model of `config` with the file's weights, dequantised to float32 by gguf."""
    weights, stacks = {}, {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name.endswith(("ffn_gate_exps.weight", "ffn_up_exps.weight")):
            stacks[tensor.name] = torch.from_numpy(values.copy())
            continue
        heads = permuted_heads(config, tensor.name.split(".")[-2]) if tensor.name.endswith("weight") else None
        weights[hf_name(tensor.name)] = torch.from_numpy(unpermute(values, heads) if heads else values.copy())
    for name, gate in stacks.items():
        if "ffn_gate_exps" in name:
            weights[f"model.layers.{name.split('.')[1]}.mlp.experts.gate_up_proj"] = torch.cat(
                [gate, stacks[name.replace("gate", "up")]], dim=1)
    if config["tie_word_embeddings"]:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    model.load_state_dict(weights, strict=True)
    return model.eval()
