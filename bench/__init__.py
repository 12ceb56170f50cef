"""Measures, files results, and puts them into plots and pages."""
