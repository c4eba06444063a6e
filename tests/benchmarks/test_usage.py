"""Whose CPU time and memory are counted for a command."""

import sys

from benchmarks.lib.usage import usage

WORK = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"
BELOW = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
DETACHED = """
import os, subprocess, sys, tempfile, time
folder = os.path.join(tempfile.mkdtemp(), "0003-values")
os.mkdir(folder)
started = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], cwd=sys.argv[2])"
subprocess.run([sys.executable, "-c", started, sys.argv[1], folder], start_new_session=True, check=True)
time.sleep(3)
print("done")
"""


def test_what_is_below_the_command_counts_and_what_is_below_another_in_the_commands_folder(tmp_path):
    """As what is forked of a process that waited."""
    below, detached = (usage([sys.executable, "-c", code, WORK], cwd=tmp_path) for code in (BELOW, DETACHED))
    assert below.cpu_s["judge"] > 0.5
    assert below.peak_bytes > 0
    assert detached.printed == "done\n"
    assert detached.cpu_s["values"] > 0.5
    assert detached.cpu_s["judge"] < detached.total_cpu_s
