"""Measures kernels, files results, and updates pages and figures."""
