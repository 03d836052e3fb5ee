"""Batch rows and heads over meshes of eight virtual devices: the results of one device, and where they lie."""
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from cases import Case, call, make, pack
from plumbline.jax import AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout

MESHES = {"dp2": (("dp",), (2,)), "tp2": (("tp",), (2,)), "dp2tp2": (("dp", "tp"), (2, 2)),
          "dp2fsdp2tp2": (("dp", "fsdp", "tp"), (2, 2, 2))}
BASE = Case(shape=(4, 48, 48, 4, 2, 16, 8), mask=AttnMaskType.PADDING_CAUSAL_MASK)
CASES = [BASE, replace(BASE, layout=QKVLayout.THD_T2HD, shape=(4, 48, 48, 4, 2, 16, 16), dtype=jnp.bfloat16),
         replace(BASE, layout=QKVLayout.BS3HD, shape=(4, 48, 48, 4, 4, 16, 16), bias=AttnBiasType.POST_SCALE_BIAS),
         replace(BASE, bias=AttnBiasType.PRE_SCALE_BIAS, bias_shape="B1SS", softmax=AttnSoftmaxType.LEARNABLE_SOFTMAX)]


def make_mesh(name):
    names, sizes = MESHES[name]
    return Mesh(np.array(jax.devices()[:int(np.prod(sizes))]).reshape(sizes), names)


def placed(mesh, case, qkv, bias, sink):
    batch = tuple(a for a in ("dp", "fsdp") if a in mesh.shape) or None
    heads = "tp" if "tp" in mesh.shape else None

    def put(x, spec):
        return jax.device_put(x, NamedSharding(mesh, spec))
    qkv = tuple(put(x, P(batch, None, *([None] * (x.ndim - 4)), heads, None)) for x in qkv)
    bias = put(bias, P(batch if bias.shape[0] > 1 else None, heads if bias.shape[1] > 1 else None))
    return qkv, bias, put(sink, P(heads))


def results(case, data):
    def loss(qkv, bias, sink):
        out, max_logit = call(case, data, qkv, bias, sink)
        return (out.astype(jnp.float32) * data["d_out"]).sum(), (out, max_logit)
    return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))


@pytest.mark.parametrize("mesh_name", MESHES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.layout.name}-{c.bias.name}-{c.softmax.name}")
def test_results_of_one_device(case, mesh_name):
    data, mesh = make(case), make_mesh(mesh_name)
    arguments = (pack(case, data), jnp.asarray(data["bias"], case.dtype), jnp.asarray(data["sink"]))
    run = results(case, data)
    grads, (out, max_logit) = run(*arguments)
    with mesh:
        sharded_grads, (sharded_out, sharded_max) = run(*placed(mesh, case, *arguments))
    heads = "tp" if "tp" in mesh.shape else None
    assert sharded_max.sharding.is_equivalent_to(NamedSharding(mesh, P(heads)), 1), sharded_max.sharding
    assert np.array_equal(sharded_max, max_logit)
    assert np.array_equal(sharded_out, out)
    for got, want in zip(sharded_grads[0], grads[0]):
        assert np.array_equal(got, want)
    for got, want in zip(sharded_grads[1:], grads[1:]):
        np.testing.assert_allclose(got.astype(jnp.float32), want.astype(jnp.float32), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("case", CASES[::3], ids=["plain", "bias-sink"])
def test_meshes_that_are_set(case, kind):
    data, mesh = make(case), jax.make_mesh((2, 2), ("dp", "tp"), axis_types=(kind,) * 2)
    arguments = (pack(case, data), jnp.asarray(data["bias"], case.dtype), jnp.asarray(data["sink"]))
    want = results(case, data)(*arguments)

    def loss(qkv, bias, sink, d_out):
        out, max_logit = call(case, data, qkv, bias, sink.reshape(1, -1, 1, 1))
        return (out * d_out).sum(), (out, max_logit)
    with jax.set_mesh(mesh):
        qkv, bias, sink = placed(mesh, case, *arguments)
        d_out = jax.device_put(data["d_out"], NamedSharding(mesh, P("dp", None, "tp", None)))
        got = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))(qkv, bias, sink, d_out)
    assert got[1][1].sharding.is_equivalent_to(NamedSharding(mesh, P("tp")), 1)
    assert np.array_equal(got[1][1], want[1][1]) and np.array_equal(got[1][0], want[1][0])
    for one, other in zip(jax.tree.leaves(got[0]), jax.tree.leaves(want[0])):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("heads,kv_heads,size", [(6, 3, 2), (4, 2, 4), (4, 1, 2)])
def test_heads_that_do_not_divide_are_gathered(heads, kv_heads, size, kind):
    """Over an axis that the KV heads do not fill out every device computes all heads; data axes stay cut."""
    case = replace(BASE, shape=(4, 48, 48, heads, kv_heads, 16, 8), softmax=AttnSoftmaxType.LEARNABLE_SOFTMAX)
    data, mesh = make(case), jax.make_mesh((2, size), ("dp", "tp"), axis_types=(kind,) * 2)
    arguments = pack(case, data), jnp.asarray(data["sink"])

    def loss(qkv, sink, d_out):
        out, max_logit = call(case, data, qkv, None, sink)
        return (out * d_out).sum(), (out, max_logit)
    run = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    grads, (out, max_logit) = run(*arguments, data["d_out"])

    def put(x):
        return jax.device_put(x, NamedSharding(mesh, P("dp", None, "tp" if x.shape[2] % size == 0 else None)))
    with jax.set_mesh(mesh):
        got, (sharded_out, sharded_max) = run(tuple(put(x) for x in arguments[0]), arguments[1], put(jnp.asarray(data["d_out"])))
    assert np.array_equal(sharded_out, out) and np.array_equal(sharded_max, max_logit)
    assert sharded_out.sharding.spec[0] == "dp"
    for one, other in zip(jax.tree.leaves(got[0]), jax.tree.leaves(grads[0])):
        assert np.array_equal(one, other)
    np.testing.assert_allclose(got[1], grads[1], rtol=2e-5, atol=2e-5)


def test_out_stays_sharded_without_gathers():
    mesh = make_mesh("dp2tp2")
    data = make(BASE)
    qkv, bias, sink = placed(mesh, BASE, pack(BASE, data), jnp.asarray(data["bias"]), jnp.asarray(data["sink"]))
    with mesh:
        compiled = jax.jit(lambda qkv: call(BASE, data, qkv, bias, sink)).lower(qkv).compile()
    assert compiled.output_shardings[0].is_equivalent_to(NamedSharding(mesh, P("dp", None, "tp", None)), 4)
    assert "all-gather" not in compiled.as_text()


def test_dropout_pattern_does_not_depend_on_shards():
    from plumbline.jax import fused_attn
    data, mesh = make(BASE), make_mesh("dp2tp2")

    def run(qkv):
        return fused_attn(qkv, None, data["descriptor"], jnp.array([3, 4], jnp.uint32), AttnBiasType.NO_BIAS, BASE.mask,
                          BASE.layout, BASE.softmax, 0.25, 0.3, True)
    qkv = pack(BASE, data)
    with mesh:
        sharded = jax.jit(run)(placed(mesh, BASE, qkv, jnp.asarray(data["bias"]), jnp.asarray(data["sink"]))[0])
    assert np.array_equal(sharded, run(qkv))


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_nan_and_infinity_cross_shards(poison):
    data, mesh = make(BASE), make_mesh("dp2tp2")
    qkv = list(pack(BASE, data))
    qkv[0] = qkv[0].at[3, 0, 1, :].set(poison)
    qkv[1] = jnp.abs(qkv[1])
    sharded, bias, sink = placed(mesh, BASE, tuple(qkv), jnp.asarray(data["bias"]), jnp.asarray(data["sink"]))
    with mesh:
        _, max_logit = jax.jit(lambda qkv: call(BASE, data, qkv, bias, sink))(sharded)
    want = np.asarray(call(BASE, data, tuple(qkv), None, None)[1])
    assert np.array_equal(max_logit, want, equal_nan=True) and not np.isfinite(want[1]) and np.isfinite(want[0])


def test_shard_map_over_batch_and_heads():
    from plumbline.jax import MeshResource, global_shard_guard
    data, mesh = make(BASE), make_mesh("dp2tp2")
    qkv, lengths = pack(BASE, data), data["descriptor"]

    def run(qkv, lengths):
        return call(BASE, dict(data, descriptor=lengths), qkv, None, None)
    spec = P("dp", None, "tp", None)
    descriptor_specs = jax.tree.map(lambda x: P("dp") if x.size else P(), lengths)
    with global_shard_guard(MeshResource(dp_resource="dp", tp_resource="tp")):
        sharded = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=((spec,) * 3, descriptor_specs),
                                        out_specs=(spec, P("tp"))))(qkv, lengths)
    out, max_logit = run(qkv, lengths)
    assert np.array_equal(sharded[0], out) and np.array_equal(sharded[1], max_logit)


@pytest.mark.parametrize("options", [{}, dict(check_vma=False), dict(axis_names={"dp"})], ids=str)
def test_gradients_inside_shard_map(options):
    """Also where only some axes are bound, and where the caller reduces the maxima itself."""
    data, mesh = make(BASE), make_mesh("dp2tp2")
    qkv, lengths = pack(BASE, data), data["descriptor"]
    heads = None if "axis_names" in options else "tp"
    spec = P("dp", None, heads, None)

    def local(qkv, lengths):
        out, max_logit = call(BASE, dict(data, descriptor=lengths), qkv, None, None)
        return out, jax.lax.pmax(max_logit, "dp")
    sharded = jax.shard_map(local, mesh=mesh, in_specs=((spec,) * 3, jax.tree.map(lambda x: P("dp") if x.size else P(), lengths)),
                            out_specs=(spec, P(heads)), **options)

    def loss(run, qkv):
        out, max_logit = run(qkv)
        return (out ** 2).sum(), max_logit
    got = jax.jit(jax.grad(lambda x: loss(lambda y: sharded(y, lengths), x), has_aux=True))(qkv)
    want = jax.grad(lambda x: loss(lambda y: call(BASE, data, y, None, None), x), has_aux=True)(qkv)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        assert np.array_equal(one, other)
