"""What AWS's `ml.*` instance types are: vCPUs, memory, accelerators, price, power.

These figures serve sizing and cost reports; no decision depends on them. vCPUs, memory and
accelerators are AWS's published figures; prices are approximate on-demand prices of SageMaker
hosting in us-east-1, in US dollars per hour; watts are our own estimate under load: 5 W a vCPU, 0.4
W a GiB, and the board power of each accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_CORE_WATTS: Final = 5.0
_GIB_WATTS: Final = 0.4


@dataclass(frozen=True, slots=True)
class AwsInstanceType:
    """One instance type as AWS sells it."""

    cores: int  #: vCPUs
    memory_gib: float
    accelerators: int
    price_per_hour: float
    watts: float


#: Families whose sizes differ by one factor: (memory in GiB per vCPU, US dollars per vCPU and hour,
#: {size: vCPUs}).
_STRAIGHT: Final[dict[str, tuple[float, float, dict[str, int]]]] = {
    "m4": (4, 0.06, {"xlarge": 4, "2xlarge": 8, "4xlarge": 16, "10xlarge": 40, "16xlarge": 64}),
    "m5": (4, 0.0575, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "m5d": (4, 0.068, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "m6i": (4, 0.0576, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "m6g": (4, 0.0462, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "m7i": (4, 0.0605, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
    "c4": (1.875, 0.0595, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 36}),
    "c5": (2, 0.051, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "9xlarge": 36,
                      "18xlarge": 72}),
    "c5d": (2, 0.0575, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "9xlarge": 36,
                        "18xlarge": 72}),
    "c6i": (2, 0.051, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                       "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "c6g": (2, 0.0408, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "c7g": (2, 0.0435, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64}),
    "c7i": (2, 0.0535, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
    "r5": (8, 0.0755, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                       "24xlarge": 96}),
    "r5d": (8, 0.0865, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "12xlarge": 48,
                        "24xlarge": 96}),
    "r6i": (8, 0.0756, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "32xlarge": 128}),
    "r7i": (8, 0.0794, {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32,
                        "12xlarge": 48, "16xlarge": 64, "24xlarge": 96, "48xlarge": 192}),
}  # fmt: skip

#: Other families: (watts of one accelerator, {size: (vCPUs, GiB, accelerators, US dollars per
#: hour)}).
_UNEVEN: Final[dict[str, tuple[float, dict[str, tuple[int, float, int, float]]]]] = {
    "t2": (0, {"medium": (2, 4, 0, 0.056), "large": (2, 8, 0, 0.111), "xlarge": (4, 16, 0, 0.223),
               "2xlarge": (8, 32, 0, 0.445)}),
    "p2": (150, {"xlarge": (4, 61, 1, 1.125), "8xlarge": (32, 488, 8, 9.0),
                 "16xlarge": (64, 732, 16, 18.0)}),
    "p3": (300, {"2xlarge": (8, 61, 1, 3.825), "8xlarge": (32, 244, 4, 14.688),
                 "16xlarge": (64, 488, 8, 28.152)}),
    "p4d": (400, {"24xlarge": (96, 1152, 8, 37.69)}),
    "p4de": (400, {"24xlarge": (96, 1152, 8, 47.11)}),
    "p5": (700, {"48xlarge": (192, 2048, 8, 113.07)}),
    "g4dn": (70, {"xlarge": (4, 16, 1, 0.736), "2xlarge": (8, 32, 1, 0.94),
                  "4xlarge": (16, 64, 1, 1.505), "8xlarge": (32, 128, 1, 2.72),
                  "12xlarge": (48, 192, 4, 4.89), "16xlarge": (64, 256, 1, 5.44)}),
    "g5": (300, {"xlarge": (4, 16, 1, 1.408), "2xlarge": (8, 32, 1, 1.515),
                 "4xlarge": (16, 64, 1, 2.03), "8xlarge": (32, 128, 1, 3.06),
                 "12xlarge": (48, 192, 4, 7.09), "16xlarge": (64, 256, 1, 5.12),
                 "24xlarge": (96, 384, 4, 10.18), "48xlarge": (192, 768, 8, 20.36)}),
    "g6": (72, {"xlarge": (4, 16, 1, 1.127), "2xlarge": (8, 32, 1, 1.222),
                "4xlarge": (16, 64, 1, 1.654), "8xlarge": (32, 128, 1, 2.518),
                "12xlarge": (48, 192, 4, 5.752), "16xlarge": (64, 256, 1, 4.246),
                "24xlarge": (96, 384, 4, 8.344), "48xlarge": (192, 768, 8, 16.688)}),
    "inf1": (30, {"xlarge": (4, 8, 1, 0.297), "2xlarge": (8, 16, 1, 0.489),
                  "6xlarge": (24, 48, 4, 1.53), "24xlarge": (96, 192, 16, 6.137)}),
    "inf2": (150, {"xlarge": (4, 16, 1, 0.99), "8xlarge": (32, 128, 1, 2.36),
                   "24xlarge": (96, 384, 6, 7.79), "48xlarge": (192, 768, 12, 15.58)}),
    "trn1": (250, {"2xlarge": (8, 32, 1, 1.61), "32xlarge": (128, 512, 16, 25.8)}),
}  # fmt: skip


def _table() -> dict[str, AwsInstanceType]:
    rows = {}
    for family, (gib_per_core, price, sizes) in _STRAIGHT.items():
        for size, cores in sizes.items():
            gib = cores * gib_per_core
            watts = cores * _CORE_WATTS + gib * _GIB_WATTS
            rows[f"ml.{family}.{size}"] = AwsInstanceType(
                cores, gib, 0, round(cores * price, 4), watts
            )
    for family, (board_watts, uneven) in _UNEVEN.items():
        for size, (cores, gib, accelerators, price) in uneven.items():
            watts = cores * _CORE_WATTS + gib * _GIB_WATTS + accelerators * board_watts
            rows[f"ml.{family}.{size}"] = AwsInstanceType(cores, gib, accelerators, price, watts)
    return rows


AWS_INSTANCE_TYPES: Final = _table()
