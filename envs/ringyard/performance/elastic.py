"""What a larger batch is worth: gradient noise and effective samples."""

import numpy as np

from ringyard.compiled import kernel


@kernel
def statistical_efficiency(noise_scale: float, base_batch: float, batch: float) -> float:
    """E(M) = (phi + M0) / (phi + M): effective per processed sample (Pollux eq. 6; McCandlish et al. 2018).

    Args:
        noise_scale: phi, samples; infinity: every sample counts fully.
        base_batch: M0, whose samples count 1.
        batch: M.
    """
    if noise_scale == np.inf:
        return 1.0
    return (noise_scale + base_batch) / (noise_scale + batch)


@kernel
def progress_per_iteration(noise_scale: float, base_batch: float, batch: float) -> float:
    """Base iterations that one iteration with M samples is worth: M / M0 x E(M)."""
    return batch / base_batch * statistical_efficiency(noise_scale, base_batch, batch)
