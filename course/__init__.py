"""Hands out exercises, and grades them."""
