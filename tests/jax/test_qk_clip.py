"""QK-Clip: the factors, and the example, run short."""
import importlib.util
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from plumbline.jax import qk_clip_gamma, qk_clip_gqa, qk_clip_mha, qk_clip_mla

MAXIMA = jnp.array([50.0, 400.0, -3.0, -jnp.inf, jnp.nan, jnp.inf, 100.0, 200.0])
GAMMA = [1, 0.25, 1, 1, 1, 1, 1, 0.5]


def test_factors():
    assert np.array_equal(qk_clip_gamma(MAXIMA, 100.0), np.float32(GAMMA))
    np.testing.assert_allclose(qk_clip_mha(MAXIMA, 100.0), np.sqrt(GAMMA), rtol=1e-6)
    q, k = qk_clip_gqa(MAXIMA, 100.0, 4)
    assert np.array_equal(q, np.float32(GAMMA)) and np.array_equal(k, np.ones(4))
    q, k = qk_clip_gqa(MAXIMA, 100.0, 4, by="group")
    np.testing.assert_allclose(k, np.sqrt([0.25, 1, 1, 0.5]), rtol=1e-6)
    assert np.array_equal(q, np.repeat(k, 2))
    mla = qk_clip_mla(MAXIMA, 100.0)
    np.testing.assert_allclose(mla.q_nope * mla.k_nope, GAMMA, rtol=1e-6)
    assert np.array_equal(mla.q_rope, np.float32(GAMMA))
    assert np.array_equal(qk_clip_gamma(MAXIMA, 0.0), np.ones(8))
    with pytest.raises(ValueError):
        qk_clip_gqa(MAXIMA, 100.0, 4, by="key")


def test_example_tames_the_logits(tmp_path):
    path = pathlib.Path(__file__).parents[2] / "examples/qk_clip/train.py"
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    picture = tmp_path / "max_logit.png"
    runs = module.main(["--steps", "60", "--out", str(picture)])
    assert picture.read_bytes().startswith(b"\x89PNG")
    plain, clipped = (np.asarray(runs[name]).max(axis=(1, 2)) for name in ("without QK-Clip", "with QK-Clip"))
    assert plain[-10:].max() > 60 and clipped[-10:].max() < 0.6 * plain[-10:].max() and clipped[-10:].max() < 40
