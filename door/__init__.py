"""Flashbook's command line, ./flashbook: sets up, builds and runs, and prints each plain command that it runs."""
