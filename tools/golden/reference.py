"""Runs a causal language model of transformers in float32 and records what Plumbline promises to return."""
import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask


class MaxLogitProbe:
    """Eager attention that also keeps each head's largest allowed score (scaled, before the softmax)."""

    def __init__(self):
        self.max_logits = []

    def __call__(self, module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        scores = torch.matmul(query, key.transpose(2, 3)) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask[:, :, :, : key.shape[-2]]
        self.max_logits.append(scores.amax(dim=(0, 2, 3)))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32)
        return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


PROBE = MaxLogitProbe()
AttentionInterface.register("max_logit_probe", lambda *args, **kwargs: PROBE(*args, **kwargs))
AttentionMaskInterface.register("max_logit_probe", eager_mask)


def first(output):
    return output[0] if isinstance(output, tuple) else output


def run(model, tokens):
    """One sequence -> dict of float32 arrays: logits [n, vocab], hidden [layers, n, hidden] (the residual stream
    after each layer, before the final norm), normalized [n, hidden], max_logits [layers, heads]."""
    layers, final = [], []
    handles = [layer.register_forward_hook(lambda m, a, out: layers.append(first(out)[0]))
               for layer in model.model.layers]
    handles.append(model.model.norm.register_forward_hook(lambda m, a, out: final.append(out[0])))
    ids = torch.tensor([tokens])
    with torch.no_grad():
        model.set_attn_implementation("eager")
        if hasattr(model.config, "num_experts_per_tok"):
            model.set_experts_implementation("eager")
        eager = model(ids, use_cache=False).logits[0]
        layers.clear(), final.clear(), PROBE.max_logits.clear()
        model.set_attn_implementation("max_logit_probe")
        logits = model(ids, use_cache=False).logits[0]
    for handle in handles:
        handle.remove()
    spread = (logits - eager).abs().max().item()
    assert spread < 1e-4 * max(1.0, eager.abs().max().item()), f"the probe is not eager attention: {spread}"
    assert len(layers) == len(PROBE.max_logits) == model.config.num_hidden_layers
    return {"logits": logits.numpy(), "hidden": torch.stack(layers).numpy(), "normalized": final[0].numpy(),
            "max_logits": torch.stack(PROBE.max_logits).numpy()}


def token_logprobs(logits, tokens):
    """float32 [n - 1]: log p(tokens[i + 1] | tokens[: i + 1]), computed in float64 from float32 logits."""
    rows = logits[:-1].astype(np.float64)
    top = rows.max(axis=1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(rows - top).sum(axis=1))
    return (rows[np.arange(len(rows)), tokens[1:]] - norm).astype(np.float32)
