"""Progress per iteration at larger batches: gradient noise and statistical efficiency."""

import numpy as np

from ringyard.compiled import kernel


@kernel
def statistical_efficiency(noise_scale: float, base_batch: float, batch: float) -> float:
    """E(M) = (phi + M0) / (phi + M): effective per processed sample (Pollux eq. 6, McCandlish et al. 2018).

    phi is the noise scale in samples (inf: every sample counts fully), M0 the batch at which E is 1.
    """
    if noise_scale == np.inf:
        return 1.0
    return (noise_scale + base_batch) / (noise_scale + batch)


@kernel
def progress_per_iteration(noise_scale: float, base_batch: float, batch: float) -> float:
    """M / M0 x E(M): iterations of `base_batch` M0 that one of `batch` M is worth, by `noise_scale` phi."""
    return batch / base_batch * statistical_efficiency(noise_scale, base_batch, batch)
