#!/usr/bin/env python3
"""The front door, which looks at options before it builds a program, knows all that the program has: options_test.py PROGRAM."""
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

loader = importlib.machinery.SourceFileLoader("flashbook", str(Path(__file__).resolve().parents[2] / "flashbook"))
sys.dont_write_bytecode = True
door = importlib.util.module_from_spec(importlib.util.spec_from_loader("flashbook", loader))
loader.exec_module(door)
shown = re.findall(r"^ +(?:-h,)?(--[a-z-]+)", subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True).stdout, re.MULTILINE)
if not {"--help", "--step", "--device", "--json", "--q"} <= {*shown}:
    sys.exit(f"its help shows {shown} alone")
door.taken_by_programs(shown)  # ends with what it does not know
