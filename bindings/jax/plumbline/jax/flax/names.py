"""Strings of module fields as enums."""
from ..types import AttnBiasType, CPStrategy, QKVLayout

_STRATEGIES = {"DEFAULT": CPStrategy.DEFAULT, "ALL_GATHER": CPStrategy.ALL_GATHER, "ALLGATHER": CPStrategy.ALL_GATHER,
               "RING": CPStrategy.RING}


def _look_up(what, table, name):
    if name not in table:
        raise ValueError(f"{what}: got {name!r}, want one of {', '.join(table)}")
    return table[name]


def qkv_layout(name):
    return _look_up("qkv_layout", QKVLayout.__members__, name.upper())


def cp_strategy(name):
    return _look_up("context_parallel_strategy", _STRATEGIES, name.upper())


def bias_type(name, bias):
    """POST_SCALE_BIAS where there is a bias and nothing is said."""
    if name is None:
        return AttnBiasType.NO_BIAS if bias is None else AttnBiasType.POST_SCALE_BIAS
    kind = name if isinstance(name, AttnBiasType) else _look_up(
        "attn_bias_type", {k.lower(): v for k, v in AttnBiasType.__members__.items()}, name.lower())
    assert (kind == AttnBiasType.NO_BIAS) == (bias is None), f"bias: got {'none' if bias is None else 'one'} ({kind.name})"
    return kind
