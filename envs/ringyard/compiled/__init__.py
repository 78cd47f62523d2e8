"""Everything that touches numba: kernels, functions as values, bundles passed by pointer."""
