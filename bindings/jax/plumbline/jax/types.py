"""The enums of fused attention, with the member names of TransformerEngine's JAX API."""
import enum


class AttnBiasType(enum.Enum):
    """Where a bias enters: scale * (raw + bias) or scale * raw + bias."""
    NO_BIAS = 0
    PRE_SCALE_BIAS = 1
    POST_SCALE_BIAS = 2


class AttnMaskType(enum.Enum):
    """Which keys a query may see. PADDING: of its own segment only; CAUSAL: none after it."""
    NO_MASK = 0
    PADDING_MASK = 1
    CAUSAL_MASK = 2
    PADDING_CAUSAL_MASK = 3
    CAUSAL_BOTTOM_RIGHT_MASK = 4
    PADDING_CAUSAL_BOTTOM_RIGHT_MASK = 5

    def is_causal(self):
        return self not in (AttnMaskType.NO_MASK, AttnMaskType.PADDING_MASK)

    def is_padding(self):
        return self in (AttnMaskType.PADDING_MASK, AttnMaskType.PADDING_CAUSAL_MASK,
                        AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK)

    def is_bottom_right(self):
        return self in (AttnMaskType.CAUSAL_BOTTOM_RIGHT_MASK, AttnMaskType.PADDING_CAUSAL_BOTTOM_RIGHT_MASK)


class AttnSoftmaxType(enum.Enum):
    """The sink of the softmax: none, 1, or exp of a learned logit per head, in the denominator."""
    VANILLA_SOFTMAX = 0
    OFF_BY_ONE_SOFTMAX = 1
    LEARNABLE_SOFTMAX = 2

    @classmethod
    def from_str(cls, name):
        """"vanilla", "off_by_one" or "learnable"; ValueError otherwise."""
        names = {"vanilla": cls.VANILLA_SOFTMAX, "off_by_one": cls.OFF_BY_ONE_SOFTMAX,
                 "learnable": cls.LEARNABLE_SOFTMAX}
        if name not in names:
            raise ValueError(f"softmax_type: got {name!r}, want one of {', '.join(names)}")
        return names[name]


class QKVFormat(enum.Enum):
    """SBHD: sequence first. BSHD: one sequence a batch row. THD: several packed segments a batch row."""
    SBHD = 0
    BSHD = 1
    THD = 2


class QKVLayout(enum.Enum):
    """How q, k and v are given: one, two or three arrays; the values are (format, arrays)."""
    BS3HD = (QKVFormat.BSHD, 1)
    BSHD_BS2HD = (QKVFormat.BSHD, 2)
    BSHD_BSHD_BSHD = (QKVFormat.BSHD, 3)
    T3HD = (QKVFormat.THD, 1)
    THD_T2HD = (QKVFormat.THD, 2)
    THD_THD_THD = (QKVFormat.THD, 3)

    def get_qkv_format(self):
        return self.value[0]

    def arrays(self):
        return self.value[1]

    def is_qkvpacked(self):
        return self.arrays() == 1

    def is_kvpacked(self):
        return self.arrays() == 2

    def is_separate(self):
        return self.arrays() == 3

    def is_thd(self):
        return self.get_qkv_format() == QKVFormat.THD

    def to_separate(self):
        return QKVLayout.THD_THD_THD if self.is_thd() else QKVLayout.BSHD_BSHD_BSHD


class CPStrategy(enum.Enum):
    """How context parallelism moves keys and values: gathered at once, or round a ring."""
    DEFAULT = 0
    ALL_GATHER = 1
    RING = 2


class ReorderStrategy(enum.Enum):
    """How tokens are dealt to ranks so that causal work is even."""
    DualChunkSwap = 0
    Striped = 1
