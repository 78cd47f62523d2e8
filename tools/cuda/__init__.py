"""The compiled step on CUDA devices: `from tools.cuda import CudaVectorEnv` in a checkout.

It needs CuPy and libdevice: `pip install "cupy-cuda13x>=14" "nvidia-nvvm>=13,<14"`. A driver of CUDA 12 needs
cupy-cuda12x and nvidia-cuda-nvcc-cu12 in their place. `python -m tools.cuda` compares it with a
processor and measures it.
"""

from tools.cuda.vector_env import CudaVectorEnv

__all__ = ["CudaVectorEnv"]
