"""GPU types that servers may hold, with the memory of one GPU, and CPUs on which workers train."""

from typing import Final

#: GPU type to which speeds are relative (its speed is 1), and for which every model profile has seconds
REFERENCE_GPU: Final = "v100"

#: {GPU type: bytes of memory of one GPU}: data sheets, most common size. K80: one of its two chips
GPU_MEMORY_BYTES: Final[dict[str, float]] = {
    "k80": 12e9,
    "p100": 16e9,
    "v100": 16e9,
    "t4": 16e9,
    "rtx_2080ti": 11e9,
    "rtx_6000": 24e9,
    "a100": 40e9,
    "rtx_3090": 24e9,
    "rtx_a6000": 48e9,
    "a10": 24e9,
    "h100_sxm": 80e9,
    "cpu_2x_xeon_6148": 192e9,  # assumption: 16 GB on each of 12 memory channels
}

#: {type that stands for all processors of a server: number of their cores}. A worker there takes them all
CPU_CORES: Final[dict[str, int]] = {"cpu_2x_xeon_6148": 40}
