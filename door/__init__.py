"""Flashbook's front door, ./flashbook: sets up, builds and runs, and prints each plain command that it runs."""
