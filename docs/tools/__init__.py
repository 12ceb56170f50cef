"""The tools that build and check the pages."""
