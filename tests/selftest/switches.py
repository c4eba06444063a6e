"""How each defence is switched off: an edit of the place where it is, in a copy of the tree; and a cheat to show it.

Some have no switch, because they are not ours to take away (JAX's own refusals, the compiler's), or because no run
without them would end; ``WITHOUT`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Takes one defence away."""

    cheat: str
    """Name of an entry of the corpus that it catches."""
    edits: tuple[tuple[str, str, str], ...]
    """(file, old, new), each found once or more."""
    then: tuple[str, ...]
    """How the cheat ends without it."""
    also: tuple[str, ...] = ()
    """Others that it catches, which end so too."""


def _edit(file: str, old: str, new: str) -> tuple[tuple[str, str, str], ...]:
    """The only one."""
    return ((file, old, new),)


_NO_LANDLOCK = _edit("ratchet/process/sandbox/landlock.py", "    have = version()\n    if have:", "    if have := 0:")
"""Around an agent's command."""


_LINKS_FOLLOWED = (
    (
        "ratchet/process/root.py",
        "return (openat2 if has_openat2() else _walk)(top, inside, flags, mode)",
        "return os.open(inside, flags, mode, dir_fd=top)",
    ),
    ("ratchet/process/root.py", "follow_symlinks=False", "follow_symlinks=True"),
)
_WRITTEN_IN_PLACE = _edit(
    "ratchet/process/root.py",
    "            file.write(data)\n            file.flush()\n            if flush:\n",
    "            (self.path / self.name(name)).write_bytes(data)\n            return\n            if flush:\n",
)


def _wall(name: str) -> tuple[tuple[str, str, str], ...]:
    walls = f'[name for name in self.walls.names if name != "{name}"]'
    return (
        ("ratchet/process/sandbox/child.py", '"walls": self.walls.names', f'"walls": {walls}'),
        ("ratchet/selftest/run.py", "= child.missing", "= ()"),  # or the cheat is skipped
    )


def _finding(*labels: str) -> tuple[tuple[str, str, str], ...]:
    old = "        if result.findings:\n            return found(result.findings)\n"
    new = (
        f"        findings = [one for one in result.findings if one.kind.label not in {labels}]\n"
        "        if findings:\n            return found(findings)\n"
    )
    cause = "answer |= found(cause.findings) if cause.findings else {}"  # of a probe that fails
    return (
        ("ratchet/exam/judge/comparison.py", old, new),
        ("ratchet/exam/judge/values_worker.py", cause, "answer |= {}"),
    )


def _no_instance(name: str) -> tuple[tuple[str, str, str], ...]:
    kept = ", ".join(f'"{one}"' for one in ("random", "probe", "mixed", "signed", "small") if one != name)
    kinds = 'KINDS = ("random", "probe", "mixed", SIGNED, SMALL)'
    return (("ratchet/exam/problem/instances.py", kinds, f"KINDS = ({kept})"),)


SWITCHES = {
    "plain source": Switch(
        cheat="c49_another_encoding",
        edits=(
            ("ratchet/exam/candidate/contract.py", "text = text_of(source, name)", "text = source"),
            ("ratchet/exam/candidate/worker.py", "compile(source.decode(), ", "compile(source, "),
        ),
        then=("PASS",),
    ),
    "same copies": Switch(
        cheat="index_changed_after_its_prefetch",
        edits=_edit("ratchet/exam/judge/control.py", "    if other_copies:\n", "    if False:\n"),
        then=("PASS",),
    ),
    "static check": Switch(
        cheat="c09_patched_comparison",
        edits=_edit("ratchet/exam/candidate/contract.py", "    if findings:\n", "    if False:\n"),
        then=("PASS",),
    ),
    "landlock": Switch(cheat="c28_forged_evidence", edits=_wall("landlock"), then=("PASS",)),
    "seccomp": Switch(cheat="c41_shared_memory", edits=_wall("seccomp"), then=("PASS",)),
    "namespaces": Switch(
        cheat="c29_nests_folders", edits=_wall("namespaces"), then=("PASS", "OUT_OF_MEMORY", "IMPORT_FAILED")
    ),
    "limits": Switch(
        cheat="c29_takes_its_time",
        edits=_edit("ratchet/process/sandbox/child.py", "if now - start > limits.seconds:", "if now - start > 600:"),
        then=("PASS",),
    ),
    "file size": Switch(
        cheat="c29_fills_the_disk",
        edits=_edit(
            "ratchet/process/sandbox/launcher.py",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))",
            "pass",
        ),
        then=("PASS", "IMPORT_FAILED"),
    ),
    "contained exceptions": Switch(
        cheat="c12_system_exit",
        edits=_edit(
            "ratchet/exam/candidate/user_code.py", "except BaseException as error:", "except Exception as error:"
        ),
        then=("IMPORT_FAILED",),
    ),
    "complete record": Switch(
        cheat="c41_record_of_a_status",
        edits=_edit(
            "ratchet/exam/candidate/tracer.py",
            "if status is None or not 10 <= status.exit_code < 40:",
            "if status is None:",
        ),
        then=("INFRASTRUCTURE",),
    ),
    "typed symbols": Switch(
        cheat="c44_claims_not_a_number",
        edits=_edit(
            "ratchet/exam/candidate/contract.py",
            '    if wrong:\n        raise Refusal(Status.CONTRACT, "get_t',
            '    if False:\n        raise Refusal(Status.CONTRACT, "get_t',
        ),
        then=("PASS",),
    ),
    "problem from data": Switch(
        cheat="c49_forged_digest",
        edits=(
            ("ratchet/exam/judge/freezing.py", "if here != there:", "if False:"),
            ("ratchet/exam/problem/problem.py", "    if not changed:\n", "    if True:\n"),
        ),
        then=("PASS",),
    ),
    "two traces": Switch(
        cheat="c02_every_other_call",
        edits=_edit("ratchet/exam/candidate/worker.py", "if digest(kernel) != digest(again):", "if False:"),
        then=("PASS",),
    ),
    "frozen problem": Switch(
        cheat="c24_chosen_seed",
        edits=_edit("ratchet/exam/problem/problem.py", "    if not changed:\n", "    if True:\n"),
        then=("PASS",),
    ),
    "output types": Switch(
        cheat="c07_wider_output",
        edits=_edit("ratchet/exam/problem/problem.py", "if artefact.outputs != problem.outputs:", "if False:"),
        then=("PASS",),
    ),
    "tokens": Switch(
        cheat="c42_unknown_setting",
        edits=_edit(
            "ratchet/tpu/mlir/kernel_config.py",
            "if key not in form:\n",
            "if key not in form:\n                continue\n",
        ),
        then=("PASS", "COMPILE_FAILED"),
    ),
    "declared program": Switch(
        cheat="c41_another_program",
        edits=_edit("ratchet/tpu/compiler/compile.py", 'if "changed" in record:', "if False:"),
        then=("SCHEDULE_UNKNOWN",),
    ),
    "live kernel": Switch(
        cheat="c21_calls_the_reference",
        edits=_edit("ratchet/exam/judge/audit.py", "if not compiled.kernels:", "if False:"),
        then=("PASS", "SCHEDULE_UNKNOWN"),
    ),
    "one layout": Switch(
        cheat="c42_columns_for_rows",
        edits=(
            ("ratchet/exam/judge/audit.py", "if not array.is_row_major:", "if False:"),
            ("ratchet/tpu/mlir/calls.py", "if given != wanted:", "if False:"),
        ),
        then=("PASS",),
    ),
    "finite": Switch(
        cheat="c06_no_maximum",
        edits=_edit("ratchet/exam/problem/parity.py", "    if bad.any():\n", "    if False:\n"),
        then=("WRONG_VALUES", "PASS"),
    ),
    "weak problems": Switch(
        cheat="c15_weak_problem",
        edits=_edit("ratchet/exam/judge/correctness.py", "            self.check_problem(problem)\n", ""),
        then=("PASS",),
    ),
    "mixed inputs": Switch(cheat="c06_special_zeros", edits=_no_instance("mixed"), then=("PASS",)),
    "ties": Switch(
        cheat="c06_last_of_equals",
        edits=_edit("ratchet/exam/problem/rounding/ties.py", "_ASKED.set(asks_for_order(jaxpr))", "_ASKED.set(False)"),
        then=("PASS",),
    ),
    "ends of ranges": Switch(
        cheat="c05_last_label",
        edits=_edit("ratchet/exam/problem/inputs.py", "problem.drawn", "()"),
        then=("PASS",),
    ),
    "probes": Switch(cheat="c06_special_value", edits=_no_instance("probe"), then=("PASS", "WRONG_VALUES")),
    "small inputs": Switch(cheat="c05_norm_never_small", edits=_no_instance("small"), then=("PASS",)),
    "inputs of one sign": Switch(cheat="c06_maximum_from_zero", edits=_no_instance("signed"), then=("PASS",)),
    "sides of a rounding": Switch(
        cheat="c17_factor_behind_gelu",
        edits=_edit(
            "ratchet/exam/problem/parity.py",
            '    found["side"] = (float(rows.side.max()), worst("side", everywhere))\n',
            "",
        ),
        then=("PASS",),
    ),
    "common factor": Switch(
        cheat="c17_small_factor",
        edits=_edit(
            "ratchet/exam/problem/parity.py",
            "    return found if share is None else found | _gains(of, rows, columns, share)\n",
            "    return found\n",
        ),
        then=("PASS",),
    ),
    "rows": Switch(
        cheat="c17_rounds_by_place",
        edits=_edit(
            "ratchet/exam/problem/parity.py",
            "    return found if share is None else found | _gains(of, rows, columns, share)\n",
            "    found = {'element': found['element']}\n"
            "    return found if share is None else found | _gains(of, rows, columns, share)\n",
        ),
        then=("PASS",),
    ),
    "allowance": Switch(
        cheat="c20_not_causal",
        edits=_edit(
            "ratchet/exam/problem/parity.py", "Status.PASS if worst <= 1.0 else Status.WRONG_VALUES", "Status.PASS"
        ),
        then=("PASS", "INSENSITIVE", "WEAK_PROBLEM"),
    ),
    "bounds": Switch(
        cheat="out_of_bounds",
        edits=_finding("window_out_of_bounds", "slice_out_of_bounds"),
        then=("WRONG_VALUES", "INSENSITIVE"),
    ),
    "unwritten memory": Switch(
        cheat="c13_uninitialised_scratch",
        edits=_finding("uninitialised_memory"),
        then=("PASS", "WRONG_VALUES", "NOT_FINITE"),
    ),
    "step order": Switch(
        cheat="c13_order_of_parallel_steps",
        edits=_finding("order_of_parallel_steps"),
        then=("PASS", "WRONG_VALUES"),
    ),
    "late copies": Switch(
        cheat="c13_read_before_it_arrives",
        edits=_finding("read_before_wait", "source_overwritten", "target_overwritten"),
        then=("PASS", "WRONG_VALUES", "NOT_FINITE", "INSENSITIVE", "MEMORY_HAZARD"),
    ),
    "semaphores": Switch(
        cheat="c46_never_waits_for_arrivals",
        edits=_finding("wait_without_start", "dma_never_waited", "negative_amount"),
        then=("PASS", "MEMORY_HAZARD", "WRONG_VALUES", "DEADLOCK"),
    ),
    "promises": Switch(
        cheat="c31_promises_whole_tiles",
        edits=_finding("false_promise"),
        then=("PASS", "WRONG_VALUES", "OUT_OF_BOUNDS"),
    ),
    "windows read ahead": Switch(
        cheat="c32_reads_its_output_back",
        edits=_finding("window_race"),
        then=("PASS", "WRONG_VALUES"),
    ),
    "chips that run ahead": Switch(
        cheat="c34_sends_without_room",
        edits=_finding("chips_race"),
        then=("PASS", "WRONG_VALUES"),
    ),
    "other draws": Switch(
        cheat="c35_remembers_by_a_sum",
        edits=_edit(
            "ratchet/exam/judge/modelled.py",
            "            self._compare_draws(problem, program, operands, timeline, executed.code_sha256)\n",
            "            pass\n",
        ),
        then=("PASS",),
    ),
    "inputs kept": Switch(
        cheat="c14_swaps_its_inputs",
        edits=_finding("input_written"),
        then=("PASS", "WRONG_VALUES"),
    ),
    "defined scalars": Switch(
        cheat="c43_division_by_zero",
        edits=_finding("undefined_scalar"),
        then=("PASS", "WRONG_VALUES", "SCHEDULE_UNKNOWN", "CANNOT_VERIFY"),
    ),
    "opener": Switch(
        cheat="c50_link_for_the_evidence",
        edits=_LINKS_FOLLOWED,
        then=("CHANGED OUTSIDE", "SYNTAX_ERROR"),
        also=(
            "c50_link_above_a_report",
            "c50_link_for_the_references",
            "c50_module_of_a_link",
            "c51_link_for_the_agents_records",
        ),
    ),
    "opener: new files": Switch(
        cheat="c51_hard_link_for_a_report",
        edits=_WRITTEN_IN_PLACE,
        then=("CHANGED OUTSIDE",),
        also=("c50_link_for_a_report",),
    ),
    "opener: races": Switch(
        cheat="c51_swapped_folder",
        edits=_LINKS_FOLLOWED + _WRITTEN_IN_PLACE,
        then=("CHANGED OUTSIDE",),
    ),
    "opener: pipes": Switch(
        cheat="c50_pipe_for_a_mark",
        edits=_edit("ratchet/process/root.py", "_REGULAR = os.O_NONBLOCK | os.O_NOCTTY", "_REGULAR = os.O_NOCTTY"),
        then=("HANGS",),
    ),
    "plain git": Switch(
        cheat="c51_hook_of_a_work_tree",
        edits=_edit("ratchet/loop/plumbing.py", '    "core.hooksPath": os.devnull,\n', ""),
        then=("CHANGED OUTSIDE",),
    ),
    "plain git: watchers": Switch(
        cheat="c51_watcher_of_files",
        edits=_edit("ratchet/loop/plumbing.py", '    "core.fsmonitor": "false",\n', ""),
        then=("CHANGED OUTSIDE",),
    ),
    "plain git: programs": Switch(
        cheat="c51_smudge_filter",
        edits=_edit(
            "ratchet/loop/plumbing.py", "for scope, name, _ in said if scope in _OWN", "for scope, name, _ in ()"
        ),
        then=("CHANGED OUTSIDE",),
        also=(
            "c50_filter",
            "c51_filter_of_an_included_file",
            "c51_filter_of_a_work_trees_configuration",
            "c51_way_to_a_remote",
        ),
    ),
    "plain git: links": Switch(
        cheat="c51_link_for_the_work_trees",
        edits=_edit("ratchet/loop/plumbing.py", 'if link := next(links, ""):', 'if link := "":'),
        then=("CHANGED OUTSIDE", "LEDGER_UNWRITABLE"),
        also=("c50_link_for_the_lock", "c50_link_for_the_state"),
    ),
    "plain git: its folder": Switch(
        cheat="c50_link_for_the_git_folder",
        edits=_edit("ratchet/loop/plumbing.py", '(there := self.tree.state(".git")) is not None and', "False and"),
        then=("CHANGED OUTSIDE",),
    ),
    "plain git: addresses": Switch(
        cheat="c51_address_that_is_a_command",
        edits=_edit("ratchet/loop/plumbing.py", '    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",', "   "),
        then=("CHANGED OUTSIDE",),
    ),
    "plain git: servers": Switch(
        cheat="c51_server_of_a_remote",
        edits=_edit("ratchet/loop/remotes.py", '_SERVES = ("--upload-pack", "git-upload-pack")', "_SERVES = ()"),
        then=("CHANGED OUTSIDE",),
    ),
    "rows as data": Switch(
        cheat="c51_ref_that_is_no_row",
        edits=_edit(
            "ratchet/loop/remotes.py", "            self._check(source)\n            commit", "            commit"
        ),
        then=("NO_CHANGE",),
    ),
    "base decides": Switch(
        cheat="c51_ci_list_without_it",
        edits=_edit("ratchet/commands/ci.py", "_agreed(list(read(base)), now)", "_agreed(now, now)"),
        then=("NOT_FOUND, silently", "NO_EFFECT, silently", "REGRESSED, silently"),
        also=("c51_ci_share_of_its_own",),
    ),
    "base decides: words": Switch(
        cheat="c51_ci_says_what_it_read",
        edits=_edit("ratchet/commands/ci.py", "if refusal.status in _OF_THE_JUDGE:", "if refusal.status:"),
        then=("PLANTED CODE RAN",),
    ),
    "agent's walls": Switch(
        cheat="c51_agent_reads_the_key",
        edits=_edit("ratchet/agents/agent.py", "hidden=_hidden(self.writable)", "hidden=None"),
        then=("NO_EFFECT, silently",),
    ),
    "agent's walls: files": Switch(
        cheat="c51_agent_writes_outside",
        edits=_edit(
            "ratchet/process/sandbox/landlock.py", "    have = version()\n    if have:", "    have = 0\n    if have:"
        ),
        then=("CHANGED OUTSIDE", "BRANCH_MOVED, silently", "NO_EFFECT, silently"),
        also=("c51_agent_changes_the_repository", "c51_agent_edits_another_file"),
    ),
    "agent's walls: modes": Switch(
        cheat="c51_agent_writes_outside",
        edits=_edit("ratchet/process/sandbox/landlock.py", "    seccomp.keep_modes()\n", ""),
        then=("CHANGED OUTSIDE",),
    ),
    "agent's walls: processes": Switch(
        cheat="c51_agent_stays",
        edits=_edit(
            "ratchet/process/sandbox/landlock.py", "    have = version()\n    if have:", "    have = 0\n    if have:"
        )
        + _edit("ratchet/agents/running.py", "        launcher.sweep(process.pid)\n", ""),
        then=("CHANGED OUTSIDE",),
    ),
    "signed state": Switch(
        cheat="c50_forged_mark",
        edits=_edit(
            "ratchet/loop/state.py", '        raise NotOurs("this machine\'s key did not make it")', "        pass"
        ),
        then=("NO_CHANGE", "PASS"),
    ),
    "signed state: decisions": Switch(
        cheat="c51_forged_pending",
        edits=_edit(
            "ratchet/loop/state.py", '        raise NotOurs("this machine\'s key did not make it")', "        pass"
        ),
        then=("LEDGER_BROKEN, silently", "INTERNAL, silently"),
        also=("c51_forged_joined",),
    ),
    "no programs of a table": Switch(
        cheat="c50_python_of_the_tree",
        edits=_edit("ratchet/process/boot/children.py", "    if inside := [", "    if False and [")
        + _edit("ratchet/process/boot/children.py", "{inside[0]}", ""),
        then=("NOT_FOUND",),  # walls are around what it names
        also=("c51_python_through_a_link",),
    ),
    "no programs of a table: files": Switch(
        cheat="c51_cases_of_git",
        edits=_edit("ratchet/exam/candidate/configuration.py", "    if why:", "    if False:"),
        then=("USAGE, silently", "NOT_FOUND, silently"),
        also=("c51_cases_above",),
    ),
    "no programs of a table: above": Switch(
        cheat="c51_include_above",
        edits=_edit("ratchet/exam/candidate/configuration.py", "    if why:", "    if False:"),
        then=("PASS",),
    ),
    "no programs of a table: git": Switch(
        cheat="c50_include_of_git",
        edits=_edit("ratchet/process/root.py", 'return ".git" in name.lower().split("/")', "return False"),
        then=("PASS",),
    ),
    "no programs of a table: links": Switch(
        cheat="c50_include_of_a_link",
        edits=_edit(
            "ratchet/exam/candidate/configuration.py",
            "if not fitting and not glob.has_magic(pattern) and top.exists(pattern):",
            "if False:",
        ),
        then=("PASS",),
    ),
    "no programs of a table: shares": Switch(
        cheat="c51_share_of_nan",
        edits=_edit("ratchet/exam/candidate/configuration.py", "0 <= value <= MOST_SHARE", "True"),
        then=("NO_EFFECT", "REGRESSED", "PASS"),
        also=("c51_share_of_inf", "c51_share_below_zero"),
    ),
    "no programs of a table: size": Switch(
        cheat="c51_large_table",
        edits=_edit("ratchet/exam/candidate/configuration.py", "paths.read(path, _TABLE_BYTES)", "paths.read(path)"),
        then=("USAGE, silently",),
    ),
    "isolated start": Switch(
        cheat="c19_python_path",
        edits=(
            ("ratchet.sh", 'exec env -i "${kept[@]}" "$python" -I -S', 'exec "$root/.venv/bin/python"'),
            ("ratchet/process/boot/start.py", "not (sys.flags.isolated and sys.flags.no_site) or ", ""),
        ),
        then=("PLANTED CODE RAN",),
    ),
    "kernel names": Switch(
        cheat="c19_kernel_like_a_module",
        edits=_edit("ratchet/exam/candidate/contract.py", "    if shadows(name", "    if False and shadows(name"),
        then=("CONTRACT", "DIRTY", "IMPORT_FAILED", "NO_CHANGE"),
    ),
    "protected files": Switch(
        cheat="c19_edited_allowance",
        edits=(
            (
                "ratchet/loop/checks.py",
                "others = [difference for difference in differences if",
                "others = [difference for difference in () if",
            ),
            ("ratchet/loop/checks.py", "touched := touched or self.unlike_head(sealed)", "touched := touched"),
        ),
        then=("PASS", "NO_CHANGE"),
    ),
}
"""By name of a defence; a part of one has a colon before its own."""

WITHOUT = {
    "one program": "JAX refuses this while it traces",
    "memory limits": "the compiler refuses this",
    "readable program": "what cannot be read cannot be compiled",
    "jailed compiler": "the compiler refuses this",
    "no host": "nothing but JAX and the compiler makes a program that gets here: `judge/test_audit.py` makes one",
    "stable reference": "takes a reference that the loss analysis does not explain: `judge/test_values.py`",
    "other hazards": "a name for what has none yet",
    "known operations": "an operation that has no rule cannot be executed",
    "known control flow": "a value that is not known cannot be branched on",
    "deadlocks": "without it the machine does not end",
    "same control flow": "no cheat is known that the readers take differently: `judge/test_control.py` has one",
    "roofline": "no cheat is known that is right and too fast: `judge/test_roofline.py` makes one",
    "written output": "no cheat is known that is right and writes too little: `judge/test_audit.py` makes one",
    "timed values": "outputs are checked before they are timed; `measure/test_rounds.py` has what changes later",
    "neutral text": "the texts of the compiler have no reader left that would take a name for code",
    "one scalar arithmetic": "there is one definition, and no second to put in its place",
    "all of the program": "the machine executes the whole schedule",
    "compiled memory": "the compiler decides about copies",
    "served sources": "`tests/process/boot/test_start.py` has each way around it",
    "ledger chain": "`tests/loop/test_ledger.py` and `tests/loop/test_log.py` have each way around it",
    "canonical lock": "`tests/exam/candidate/test_tracer.py`",
    "regular files": "`tests/exam/candidate/test_tracer.py`",
    "origin": "`tests/exam/problem/test_references.py`",
}
"""Why there is no switch."""
