"""Measures kernels, files results, and updates plots and pages."""
