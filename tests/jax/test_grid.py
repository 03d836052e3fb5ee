"""The grid of masks, softmaxes, layouts, windows, biases and descriptors against the float64 oracle."""
import itertools

import jax.numpy as jnp
import pytest

from cases import Case, check
from plumbline.jax import AttnBiasType, AttnMaskType, AttnSoftmaxType, QKVLayout

MASKS, SOFTMAXES = list(AttnMaskType), list(AttnSoftmaxType)
SHAPES = [
    ((2, 80, 80, 4, 4, 16, 16), QKVLayout.BS3HD), ((2, 40, 72, 4, 4, 16, 16), QKVLayout.BSHD_BS2HD),
    ((2, 72, 100, 4, 4, 16, 8), QKVLayout.BSHD_BSHD_BSHD), ((2, 80, 80, 4, 2, 16, 16), QKVLayout.BSHD_BS2HD),
    ((3, 33, 65, 6, 3, 24, 7), QKVLayout.BSHD_BSHD_BSHD),
    ((2, 80, 80, 4, 4, 16, 16), QKVLayout.T3HD), ((2, 40, 72, 4, 4, 16, 16), QKVLayout.THD_T2HD),
    ((2, 72, 100, 4, 4, 16, 8), QKVLayout.THD_THD_THD), ((3, 66, 130, 6, 3, 24, 7), QKVLayout.THD_THD_THD),
]
DTYPES = [jnp.bfloat16, jnp.float16, jnp.float32]


def grid():
    """Every pair of shape and mask; the other choices take turns."""
    turn = 0
    for (shape, layout), mask in itertools.product(SHAPES, MASKS):
        if layout.is_thd() and not mask.is_padding():
            continue
        window = (None, (shape[2] // 10, 0 if mask.is_causal() else 5))[turn % 2]
        bias = (AttnBiasType.NO_BIAS, AttnBiasType.POST_SCALE_BIAS)[(turn // 2) % 2]
        forms = ["ids", "offsets"] if layout.is_thd() else ["seqlens", "ids"]
        yield Case(shape, layout, mask, SOFTMAXES[turn % 3], bias, window=window, dtype=DTYPES[(turn // 2) % 3],
                   descriptor=forms[(turn // 4) % 2], seed=turn)
        turn += 1


@pytest.mark.parametrize("case", list(grid()), ids=lambda c: f"{c.layout.name}-{c.mask.name}-{c.seed}")
def test_grid(case):
    check(case)


@pytest.mark.parametrize("bias_shape", ["1HSS", "B1SS", "BHSS", "11SS"])
@pytest.mark.parametrize("bias", [AttnBiasType.PRE_SCALE_BIAS, AttnBiasType.POST_SCALE_BIAS])
def test_bias_shapes(bias, bias_shape):
    check(Case(bias=bias, bias_shape=bias_shape, mask=AttnMaskType.PADDING_CAUSAL_MASK, shape=(3, 40, 40, 4, 2, 8, 8)))


@pytest.mark.parametrize("mask", [AttnMaskType.PADDING_MASK, AttnMaskType.PADDING_CAUSAL_MASK])
def test_boolean_mask(mask):
    with pytest.warns(DeprecationWarning):
        check(Case(mask=mask, descriptor="mask"))


@pytest.mark.parametrize("softmax", SOFTMAXES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(softmax, dtype):
    check(Case(softmax=softmax, dtype=dtype, mask=AttnMaskType.CAUSAL_MASK))
