"""Whose CPU time and memory are counted for a command."""

import os
import sys

from benchmarks.lib.usage import usage

WORK = "import time; end = time.process_time() + 1\nwhile time.process_time() < end: pass"
DETACHED = """
import os, subprocess, sys, tempfile
folder = os.path.join(tempfile.mkdtemp(), "0003-values")
os.mkdir(folder)
started = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], cwd=sys.argv[2])"
subprocess.run([sys.executable, "-c", started, sys.argv[1], folder], start_new_session=True, check=True)
{}
print("done")
"""


def test_a_process_that_is_below_another_counts_where_it_is_in_the_commands_folder(tmp_path):
    """As what is forked of a process that waited."""
    wait = "import time; time.sleep(3)"
    used = usage([sys.executable, "-c", DETACHED.format(wait), WORK], cwd=tmp_path, environment=os.environ)
    assert used.printed == "done\n"
    assert used.cpu_s["values"] > 0.5
    assert used.cpu_s["judge"] < used.total_cpu_s


def test_what_is_below_the_command_counts_wherever_it_is(tmp_path):
    here = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    used = usage([sys.executable, "-c", here, WORK], cwd=tmp_path, environment=os.environ)
    assert used.cpu_s["judge"] > 0.5
    assert used.peak_bytes > 0
