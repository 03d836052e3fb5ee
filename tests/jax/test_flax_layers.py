"""MultiHeadAttention and TransformerLayer."""
import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from plumbline.jax import MeshResource, SequenceDescriptor, global_shard_guard
from plumbline.jax.flax import (DotProductAttention, MultiHeadAttention, RelativePositionBiases, TransformerLayer,
                                TransformerLayerType, extend_logical_axis_rules)

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (2, 24, 32))
LENGTHS = SequenceDescriptor.from_seqlens(jnp.array([24, 11], jnp.int32))

ATTENTION = dict(
    num_gqa_groups=None, attention_dropout=0.0, dropout_rng_name="dropout", attn_mask_type="causal", attn_bias_type=None,
    window_size=None, return_max_logit=False, softmax_type="vanilla", float32_logits=False)
ROTARY = dict(enable_rotary_pos_emb=False, rotary_pos_emb_windows=(1, 10000), rotary_pos_emb_group_method="consecutive")
ADAPTERS = dict(low_rank_adaptation_scope="none", low_rank_adaptation_dim=32, low_rank_adaptation_alpha=None)
NORMS = dict(layernorm_type="layernorm", layernorm_epsilon=1e-6, zero_centered_gamma=False)
PROJECTIONS = dict(fuse_qkv_params=True, enable_sequence_parallel=False, scale_attn_logits=False, scaled_query_init=True,
                   use_bias=False, dtype=jnp.float32)
FIELDS = {
    DotProductAttention: ATTENTION | dict(
        dtype=None, qkv_layout="bshd_bshd_bshd", scale_factor=None, transpose_batch_sequence=None, max_segments_per_seq=1,
        context_parallel_causal_load_balanced=False, context_parallel_axis="", context_parallel_strategy="DEFAULT",
        context_checkpoint_name="context", score_mod=None, score_mod_bprop=None),
    MultiHeadAttention: ATTENTION | ROTARY | ADAPTERS | NORMS | PROJECTIONS | dict(
        input_layernorm=True, return_layernorm_output=False, kernel_init=None, transpose_batch_sequence=True),
    TransformerLayer: ROTARY | ADAPTERS | NORMS | PROJECTIONS | dict(
        hidden_size=512, mlp_hidden_size=2048, num_attention_heads=8, num_gqa_groups=None, hidden_dropout=0.1,
        hidden_dropout_dims=(), attention_dropout=0.1, intermediate_dropout=0.1, intermediate_dropout_dims=(),
        dropout_rng_name="dropout", mha_kernel_init=None, mlp_kernel_init=None, mlp_activations=("relu",),
        mlp_activation_params=None, apply_residual_connection_post_layernorm=False, output_layernorm=False,
        float32_attention_logits=False, layer_type=TransformerLayerType.ENCODER, self_attn_mask_type="causal",
        self_attn_bias_type=None, enable_relative_embedding=True, relative_embedding=None, drop_path=0.0,
        transpose_batch_sequence=False, window_size=None, softmax_type="vanilla", return_max_logit=False),
    RelativePositionBiases: dict(embedding_axes=("heads", "relpos_buckets"), dtype=jnp.float32),
}
ARGUMENTS = {
    MultiHeadAttention: ["inputs_q", "inputs_kv", "mask", "bias", "decode", "deterministic"],
    TransformerLayer: ["inputs", "encoded", "attention_mask", "encoder_decoder_mask", "deterministic", "decode",
                       "max_decode_length"],
    RelativePositionBiases: ["q_seqlen", "k_seqlen", "bidirectional"],
}


@pytest.mark.parametrize("module", FIELDS)
def test_fields_and_arguments(module):
    defaults = {field.name: field.default for field in dataclasses.fields(module)}
    assert {name: defaults[name] for name in FIELDS[module]} == FIELDS[module]
    assert list(inspect.signature(module.__call__).parameters)[1:] == ARGUMENTS.get(
        module, ["query", "key", "value", "sequence_descriptor", "bias", "deterministic", "mask", "score_mod_tensors",
                 "score_mod_bprop_tensors"])


def attention(**fields):
    return MultiHeadAttention(**(dict(head_dim=8, num_attention_heads=4, transpose_batch_sequence=False) | fields))


def values(tree):
    return jax.tree.map(jnp.asarray, nn.meta.unbox(tree))


@pytest.mark.parametrize("groups,rotary,fused", [(4, False, True), (2, False, True), (2, True, False), (4, True, True)])
def test_multi_head_attention(groups, rotary, fused):
    module = attention(num_gqa_groups=groups, attn_mask_type="padding_causal", enable_rotary_pos_emb=rotary,
                       fuse_qkv_params=fused, return_max_logit=True, return_layernorm_output=True, use_bias=True)
    variables = module.init(KEY, X, X, LENGTHS)
    out, normed, max_logit = module.apply(variables, X, X, LENGTHS, deterministic=True)
    assert out.shape == X.shape and normed.shape == X.shape and max_logit.shape == (4,)
    plain = module.clone(return_max_logit=False).apply(variables, X, X, LENGTHS, deterministic=True)
    assert len(plain) == 2 and np.array_equal(plain[0], out)
    turned = module.clone(transpose_batch_sequence=True).apply(variables, *(X.swapaxes(0, 1),) * 2, LENGTHS, deterministic=True)
    np.testing.assert_allclose(turned[0].swapaxes(0, 1), out, atol=1e-6)
    grads = jax.grad(lambda v: (module.apply(v, X, X, LENGTHS, deterministic=True)[0] ** 2).sum())(variables)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_deprecated_fields_warn_and_stand_for_the_current_ones():
    with pytest.warns(DeprecationWarning, match="num_heads.*num_attention_heads"):
        assert attention(num_attention_heads=8, num_heads=4).num_attention_heads == 4
    with pytest.warns(DeprecationWarning, match="dropout_rate"):
        assert attention(dropout_rate=0.5).attention_dropout == 0.5
    for field in ("apply_residual_connection_post_layernorm", "fuse_qkv"):
        with pytest.warns(DeprecationWarning, match=field):
            assert attention(**{field: False}).fuse_qkv_params
    with pytest.raises(AssertionError, match="input_layernorm"):
        attention(output_layernorm=True)


@pytest.mark.parametrize("groups", [4, 2])
def test_fused_parameters_are_the_separate_ones_stacked(groups):
    module = attention(num_gqa_groups=groups, scale_attn_logits=True)
    fused = values(module.init(KEY, X))
    params = dict(fused["params"])
    norm = {"scale": jnp.ones(32), "ln_bias": jnp.zeros(32)}
    if groups == 4:
        kernels = [params["qkv"]["kernel"][:, n] for n in range(3)]
        assert params["qkv"]["kernel"].shape == (32, 3, 32)
    else:
        kernels = [params["query"]["kernel"]] + [params["kv"]["kernel"][:, n] for n in range(2)]
        assert params["kv"]["kernel"].shape == (32, 2, 16)
    apart = {name: {"kernel": kernel} for name, kernel in zip(("query", "key", "value"), kernels)}
    apart["query"] |= norm
    want = module.apply(fused, X, deterministic=True)[0]
    got = module.clone(fuse_qkv_params=False).apply({"params": apart | {"out": params["out"]}}, X, deterministic=True)[0]
    np.testing.assert_allclose(got, want, atol=1e-6)
    scaled = attention(fuse_qkv_params=False, scaled_query_init=False).init(KEY, X)
    ratio = values(attention(fuse_qkv_params=False).init(KEY, X))["params"]["query"]["kernel"] / values(scaled)["params"]["query"]["kernel"]
    np.testing.assert_allclose(ratio, 8 ** -0.5, rtol=1e-5)


def test_logits_are_scaled_where_asked():
    variables = attention().init(KEY, X)
    maxima = [attention(scale_attn_logits=scaled, return_max_logit=True).apply(variables, X, deterministic=True)[2]
              for scaled in (False, True)]
    np.testing.assert_allclose(maxima[1], maxima[0] * 8 ** -0.5, rtol=1e-5)


@pytest.mark.parametrize("method", ["consecutive", "alternate"])
def test_rotary_embedding_turns_pairs(method):
    from plumbline.jax.flax.positions import rotary
    x = np.asarray(jax.random.normal(KEY, (2, 5, 3, 8)))
    even, odd = (x[..., ::2], x[..., 1::2]) if method == "consecutive" else (x[..., :4], x[..., 4:])
    angle = np.arange(3, 8)[:, None] / (1 * (10000 / 1) ** (np.arange(4) / 4))
    turned = (even + 1j * odd) * np.exp(1j * angle)[None, :, None]
    got = np.asarray(rotary(jnp.asarray(x), (1, 10000), method, 1, first=3))
    got = got[..., ::2] + 1j * got[..., 1::2] if method == "consecutive" else got[..., :4] + 1j * got[..., 4:]
    np.testing.assert_allclose(got, turned, atol=1e-5)


@pytest.mark.parametrize("fields", [
    dict(), dict(num_gqa_groups=2, enable_rotary_pos_emb=True, fuse_qkv_params=False), dict(window_size=(5, 0)),
    dict(transpose_batch_sequence=True), dict(attn_mask_type="no_mask")], ids=lambda fields: ",".join(fields) or "plain")
def test_decoding_gives_the_rows_of_the_whole(fields):
    module = attention(return_max_logit=True, **fields)
    axis = 0 if module.transpose_batch_sequence else 1
    x = jnp.swapaxes(X, 0, 1) if axis == 0 else X
    variables = module.init(KEY, x, decode=True)
    cache, params = variables["cache"], {"params": variables["params"]}
    assert cache["cached_key"].shape[axis] == 24 and cache["cache_index"] == 0
    whole = module.clone(attn_mask_type="causal").apply(params, x, deterministic=True)
    rows, maxima, at = [], [], 0
    run = jax.jit(lambda cache, x: module.apply(params | {"cache": cache}, x, decode=True, deterministic=True, mutable=["cache"]))
    for tokens in [1] * 24 if fields.get("attn_mask_type") else [7] + [1] * 16 + [1]:
        (out, _, max_logit), state = run(cache, jax.lax.slice_in_dim(x, at, at + tokens, axis=axis))
        cache, at = state["cache"], at + tokens
        rows.append(out)
        maxima.append(max_logit)
    np.testing.assert_allclose(jnp.concatenate(rows, axis), whole[0], atol=1e-5)
    np.testing.assert_allclose(jnp.stack(maxima).max(0), whole[2], rtol=1e-5)
    (out, _, _), _ = run(cache, jax.lax.slice_in_dim(x, 0, 1, axis=axis))
    assert np.isnan(out).all()  # the cache is full


def test_decoding_hides_masked_keys_and_takes_rows_of_a_bias():
    module = attention(return_max_logit=True)
    variables = module.init(KEY, X, decode=True)
    bias = jax.random.normal(KEY, (1, 4, 24, 24))
    hidden = jnp.zeros((2, 1, 1, 24), bool).at[1, 0, 0, :3].set(True)
    state = variables
    for at in range(6):
        (out, _, _), new = module.apply(state, X[:, at:at + 1], mask=hidden, bias=bias, decode=True, deterministic=True,
                                        mutable=["cache"])
        state = {"params": variables["params"]} | new
    ids = jnp.ones((2, 6), jnp.int32).at[1, :3].set(0)
    at = jnp.broadcast_to(jnp.arange(6), (2, 6))
    seen = SequenceDescriptor.from_segment_ids_and_pos((jnp.ones((2, 6), jnp.int32), ids), (at, at))
    want = module.clone(attn_mask_type="padding_causal").apply({"params": variables["params"]}, X[:, :6], None, seen,
                                                               bias[..., :6, :6], deterministic=True)[0]
    np.testing.assert_allclose(out[:, 0], want[:, 5], atol=1e-5)
    for mask in (LENGTHS, jnp.zeros((2, 1, 24, 24), bool)):
        with pytest.raises(ValueError, match="decode"):
            module.apply(variables, X[:, :1], mask=mask, decode=True, deterministic=True, mutable=["cache"])
    with pytest.raises(ValueError, match="decode"):
        module.apply(variables, X[:1, :1], decode=True, deterministic=True, mutable=["cache"])


def shapes(variables):
    flat = jax.tree_util.tree_flatten_with_path(values(variables["params"]))[0]
    return {"/".join(key.key for key in path): leaf.shape for path, leaf in flat}


SCOPES = {"none": (), "all": ("qkv", "out", "mlp"), "qkv_proj": ("qkv",), "output_proj": ("out",), "mlp": ("mlp",),
          "exclude_qkv_proj": ("out", "mlp"), "exclude_output_proj": ("qkv", "mlp"), "exclude_mlp": ("qkv", "out")}


def layer(**fields):
    return TransformerLayer(**(dict(hidden_size=32, mlp_hidden_size=64, num_attention_heads=4) | fields))


@pytest.mark.parametrize("scope", SCOPES)
def test_low_rank_adaptation(scope):
    module = layer(low_rank_adaptation_scope=scope, low_rank_adaptation_dim=4, low_rank_adaptation_alpha=8.0)
    variables = values(module.init(KEY, X, deterministic=True))
    adapted = {name.split("/")[-2] for name in shapes(variables) if "lora_a_kernel" in name}
    assert adapted == set(SCOPES[scope])
    plain = {"params": jax.tree_util.tree_map_with_path(lambda path, x: x, variables["params"])}
    out = module.apply(variables, X, deterministic=True)
    assert np.array_equal(out, layer().apply(without_adapters(plain), X, deterministic=True))  # B is zero at first
    if scope == "all":
        assert shapes(variables)["attention/qkv/lora_b_kernel"] == (4, 3, 32)
        assert shapes(variables)["mlp/wi_lora_b_kernel"] == (4, 1, 64)
        out_params = dict(variables["params"]["attention"]["out"])
        b = jax.random.normal(KEY, out_params["lora_b_kernel"].shape)
        merged = out_params["kernel"] + 2.0 * out_params["lora_a_kernel"] @ b  # alpha / rank = 2
        with_b = jax.tree.map(lambda x: x, variables)
        with_b["params"]["attention"]["out"]["lora_b_kernel"] = b
        without = without_adapters(jax.tree.map(lambda x: x, variables))
        without["params"]["attention"]["out"]["kernel"] = merged
        np.testing.assert_allclose(module.apply(with_b, X, deterministic=True),
                                   layer().apply(without, X, deterministic=True), atol=1e-4)


def without_adapters(tree):
    return {k: without_adapters(v) if isinstance(v, dict) else v for k, v in tree.items() if "lora" not in k}


def test_unknown_names_are_refused():
    for fields, error in ((dict(low_rank_adaptation_scope="some"), AssertionError), (dict(layernorm_type="batch"), ValueError),
                          (dict(mlp_activations=("hard",)), ValueError), (dict(num_attention_heads=5), AssertionError),
                          (dict(enable_rotary_pos_emb=True, rotary_pos_emb_group_method="none"), ValueError)):
        with pytest.raises(error):
            layer(**fields).init(KEY, X, deterministic=True)
    with pytest.raises(AssertionError, match="decode"):
        layer().init(KEY, X, deterministic=True, decode=True)
    with pytest.raises(AssertionError, match="encoded"):
        layer(layer_type=TransformerLayerType.DECODER).init(KEY, X, deterministic=True)


@pytest.mark.parametrize("kind", list(TransformerLayerType))
def test_transformer_layer(kind):
    module = layer(layer_type=kind, softmax_type="learnable", self_attn_mask_type="padding_causal",
                   mlp_activations=("silu", "linear"), return_max_logit=True)
    encoded = X[:, ::-1] if kind == TransformerLayerType.DECODER else None
    variables = module.init({"params": KEY, "dropout": KEY}, X, encoded, LENGTHS)

    def loss(variables):
        out, *maxima = module.apply(variables, X, encoded, LENGTHS, rngs={"dropout": KEY})
        return (out ** 2).sum(), maxima
    grads, maxima = jax.jit(jax.grad(loss, has_aux=True))(variables)
    assert [m.shape for m in maxima] == [(4,)] * (2 if encoded is not None else 1)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def norm_by_hand(x, kind):
    x = x - x.mean(-1, keepdims=True) if kind == "layernorm" else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


@pytest.mark.parametrize("kind", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("post,output", [(False, False), (True, False), (False, True)])
def test_where_norms_and_residuals_are(kind, post, output):
    zero = dict(mha_kernel_init=nn.initializers.zeros, mlp_kernel_init=nn.initializers.zeros, enable_relative_embedding=False)
    module = layer(layernorm_type=kind, apply_residual_connection_post_layernorm=post, output_layernorm=output, **zero)
    variables = module.init(KEY, X, deterministic=True)
    out = module.apply(variables, X, deterministic=True)
    want = np.asarray(X, np.float64)
    if post:  # every block's residual is its normed input
        want = norm_by_hand(norm_by_hand(want, kind), kind)
    if output:
        want = norm_by_hand(want, kind)
    np.testing.assert_allclose(out, want, atol=1e-4)
    centered = module.clone(zero_centered_gamma=True)
    zeros = jax.tree.map(jnp.zeros_like, variables)  # scale 1 + 0
    np.testing.assert_allclose(centered.apply(zeros, X, deterministic=True), want, atol=1e-4)


def test_drop_path_drops_whole_rows():
    rows = jax.random.normal(KEY, (64, 3, 32))
    for turned in (False, True):
        module = layer(hidden_dropout=0.0, attention_dropout=0.0, intermediate_dropout=0.0, drop_path=0.5,
                       enable_relative_embedding=False, transpose_batch_sequence=turned)
        x = rows.swapaxes(0, 1) if turned else rows
        variables = module.init(KEY, x, deterministic=True)
        out = module.apply(variables, x, rngs={"dropout": jax.random.key(3)})
        same = np.asarray(out == x)
        same = same.swapaxes(0, 1) if turned else same
        untouched = same.reshape(64, -1).all(1)
        assert 4 <= untouched.sum() <= 32  # both paths dropped: a quarter of 64
        assert np.array_equal(module.clone(drop_path=0.0).apply(variables, x, deterministic=True),
                              module.apply(variables, x, deterministic=True))


def bucket_by_hand(distance, buckets, most, both):
    n, base = -distance, 0
    if both:
        buckets //= 2
        base, n = (buckets, -n) if n < 0 else (0, n)
    n, exact = max(n, 0), buckets // 2
    if n < exact:
        return base + n
    return base + min(buckets - 1, exact + int(np.log(n / exact) / np.log(most / exact) * (buckets - exact) + 1e-6))


@pytest.mark.parametrize("both", [True, False])
def test_relative_position_biases(both):
    module = RelativePositionBiases(num_buckets=32, max_distance=128, num_attention_heads=4)
    variables = module.init(KEY, 200, 150, both)
    table = values(variables)["params"]["rel_embedding"]
    bias = module.apply(variables, 200, 150, both)
    assert bias.shape == (1, 4, 200, 150) and table.shape == (4, 32)
    for i, j in np.random.default_rng(1).integers(0, (200, 150), (300, 2)):
        assert np.array_equal(bias[0, :, i, j], table[:, bucket_by_hand(j - i, 32, 128, both)]), (i, j)


def test_relative_embedding_of_a_layer():
    module, without = layer(), layer(enable_relative_embedding=False)
    variables = module.init(KEY, X, deterministic=True)
    assert shapes(variables)["relpos_bias/rel_embedding"] == (4, 32)
    assert "relpos_bias" not in without.init(KEY, X, deterministic=True)["params"]
    out = module.apply(variables, X, deterministic=True)
    assert not np.array_equal(out, without.apply(variables, X, deterministic=True))
    own = layer(relative_embedding=RelativePositionBiases(8, 16, 4))
    assert shapes(own.init(KEY, X, deterministic=True))["relative_embedding/rel_embedding"] == (4, 8)


def test_a_decoder_layer_decodes():
    module = layer(layer_type=TransformerLayerType.DECODER)
    encoded = X[:, :9]
    variables = module.init(KEY, X, encoded, deterministic=True, decode=True)
    params = {"params": variables["params"]}
    want = module.apply(params, X, encoded, deterministic=True)
    state = variables
    for at in range(24):
        out, cache = module.apply(state, X[:, at:at + 1], encoded, deterministic=True, decode=True, max_decode_length=24,
                                  mutable=["cache"])
        state = params | cache
        np.testing.assert_allclose(out[:, 0], want[:, at], atol=1e-4)


def test_clamped_activations():
    from plumbline.jax.flax.mlp import activation
    x = jnp.linspace(-10, 10, 41)
    gate = np.minimum(x, 7)
    np.testing.assert_allclose(activation("clamped_silu", None)(x), gate / (1 + np.exp(-1.702 * gate)), atol=1e-5)
    np.testing.assert_allclose(activation("clamped_linear", dict(limit=2.0))(x), np.clip(x, -2, 2) + 1, atol=1e-6)
    module = layer(mlp_activations=("clamped_silu", "clamped_linear"), mlp_activation_params=dict(limit=0.1))
    variables = module.init(KEY, X, deterministic=True)
    assert shapes(variables)["mlp/wi_kernel"] == (32, 2, 64)
    other = module.clone(mlp_activation_params=None).apply(variables, X, deterministic=True)
    assert not np.array_equal(module.apply(variables, X, deterministic=True), other)


def test_names_of_dimensions_shard_parameters_and_activations():
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("dp", "tp"))
    module = layer(return_max_logit=True, use_bias=True)
    variables = module.init(KEY, X, deterministic=True)
    want = module.apply(variables, X, deterministic=True)
    with mesh, global_shard_guard(MeshResource(dp_resource="dp", tp_resource="tp")):
        rules = extend_logical_axis_rules((("nvte_head", None),))
        assert dict(rules)["nvte_head"] is None and dict(rules)["nvte_w_tp"] == "tp"
        specs = nn.logical_to_mesh_sharding(nn.get_partition_spec(variables), mesh, extend_logical_axis_rules(()))
        params = specs["params"]["attention"]
        assert params["qkv"]["kernel"].spec == P(None, None, "tp") and params["out"]["kernel"].spec == P("tp", None)
        assert specs["params"]["mlp"]["wo_kernel"].spec == P("tp", None)
        placed = jax.tree.map(jax.device_put, nn.meta.unbox(variables), specs)
        run = jax.jit(lambda v, x: module.apply(v, x, deterministic=True))
        out, max_logit = run(placed, jax.device_put(X, NamedSharding(mesh, P("dp"))))
    assert out.sharding.spec[0] == "dp" and max_logit.sharding.spec == P("tp")
    np.testing.assert_allclose(out, want[0], atol=1e-5)
    np.testing.assert_allclose(max_logit, want[1], rtol=1e-5)
