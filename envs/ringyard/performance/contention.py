"""Bandwidth lost to jobs that share links (SJF-BCO eq. 6-7; Ada-SRSF by its constants)."""

from ringyard.compiled import kernel

__all__ = ["ADA_SRSF_ALPHA_10GBE", "contention_factor", "effective_contenders", "live_share"]

# Ada-SRSF transfers take k b M + (k-1) eta M = b M (k + eta/b (k-1)): alpha = eta / b.
# b = 0.856, eta = 0.235 ms per MB on 10GbE (constants of its public simulator).
ADA_SRSF_ALPHA_10GBE = 0.235 / 0.856


@kernel
def effective_contenders(contenders: float, xi_1: float) -> float:
    """K = max(1, xi_1 p): SJF-BCO eq. 7, held at 1 or more so that sharing never speeds a job up."""
    return max(1.0, xi_1 * contenders)


@kernel
def contention_factor(alpha: float, contenders: float) -> float:
    """f(alpha, k) = k + alpha (k - 1): times longer a transfer takes among k (SJF-BCO section 4.2)."""
    return contenders + alpha * (contenders - 1.0)


@kernel
def live_share(bytes_per_second: float, alpha: float, xi_1: float, contenders: float) -> float:
    """b_e / f(alpha, k): bandwidth left to one of `contenders` rings on a link."""
    return bytes_per_second / contention_factor(alpha, effective_contenders(contenders, xi_1))
