"""``ratchet mcp``: the official SDK's own client, over standard streams, against the real loop and git.

The judge has prepared verdicts: see ``prepared.py``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ratchet.values.status import Status
from tests.agents import prepared
from tests.extras import needs
from tests.loop.stage import Stage, kernel_text

pytestmark = needs("mcp")


def served(stage: Stage, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What ``ask`` returns, given a client of a server for the stage."""

    import mcp  # an extra, and slow to import

    async def run() -> Any:
        parameters = mcp.StdioServerParameters(command=sys.executable, args=[prepared.__file__, str(stage.root), "mcp"])
        async with mcp.stdio_client(parameters) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            return await ask(session)

    return asyncio.run(run())


async def call(session: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """The document that a tool answers with, or ``{"error": text}``."""
    result = await session.call_tool(name, arguments)
    text = result.content[0].text
    return {"error": text} if result.is_error else json.loads(text)


def outcome(answer: dict[str, Any]) -> tuple[str, str | None]:
    return answer["result"]["outcome"]["status"], answer["result"]["outcome"]["decision"]


PATCH = """\
--- a/kernel.py
+++ b/kernel.py
@@ -1 +1 @@
-SCORE = 1000.0
+SCORE = 1300.0
"""
OTHERS = {
    "another file": PATCH + "--- /dev/null\n+++ b/other.py\n@@ -0,0 +1 @@\n+x = 1\n",
    "a path that leads out": PATCH.replace("kernel.py", "../kernel.py"),
    "a rename": (
        "diff --git a/kernel.py b/moved.py\nsimilarity index 100%\nrename from kernel.py\nrename to moved.py\n"
    ),
    "a link": (
        "diff --git a/kernel.py b/kernel.py\ndeleted file mode 100644\n--- a/kernel.py\n+++ /dev/null\n@@ -1 +0,0 @@\n"
        "-SCORE = 1000.0\ndiff --git a/kernel.py b/kernel.py\nnew file mode 120000\n--- /dev/null\n+++ b/kernel.py\n"
        "@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    ),
    "other lines than HEAD's": PATCH.replace("-SCORE = 1000.0", "-SCORE = 5.0"),
}


def test_the_tools_and_what_they_read(stage: Stage) -> None:
    async def ask(session: Any) -> Any:
        listed = await session.list_tools()
        rows = await call(session, "history")
        source = await call(session, "source")
        files = await call(session, "evidence", experiment=rows["newest"][0]["id"])
        differs = await call(session, "diff", before="HEAD", after=rows["newest"][0]["id"])
        brief = await call(session, "brief")
        return {tool.name for tool in listed.tools}, rows, source, files, differs, brief

    folder = stage.root / "hlo_dumps" / stage.rows()[0].id
    folder.mkdir(parents=True)
    (folder / "blame.txt").write_text("where the cycles went\n")
    (folder / "out").symlink_to("/etc/passwd")
    names, rows, source, files, differs, brief = served(stage, ask)
    assert names >= {"history", "source", "evidence", "propose", "judge", "explain", "sweep", "diff", "brief"}
    assert names >= {"poll", "jobs", "cancel"}
    assert [(row["note"], row["score"], row["kind"]) for row in rows["newest"]] == [("baseline", 1000.0, "modelled")]
    assert source["text"] == kernel_text(1000.0)
    assert list(files["files"]) == [f"hlo_dumps/{stage.rows()[0].id}/blame.txt"]
    assert differs["source"] == []
    assert stage.rows()[0].id in json.dumps(brief)


def test_a_proposal_is_a_turn_like_any(stage: Stage) -> None:
    async def ask(session: Any) -> Any:
        better = await call(session, "propose", message="--better", file=kernel_text(1100.0))
        worse = await call(session, "propose", message="worse", file=kernel_text(900.0))
        patched = await call(session, "propose", message="by patch", patch=PATCH.replace("1000.0", "1100.0"))
        same = await call(session, "propose", message="again", file=kernel_text(1300.0))
        return better, worse, patched, same

    better, worse, patched, same = served(stage, ask)
    assert [outcome(one) for one in (better, worse, patched)] == [
        ("PASS", "kept"),
        ("NOT_BETTER", "reverted"),
        ("PASS", "kept"),
    ]
    assert outcome(same)[0] == "NO_CHANGE"
    assert [(row.note, row.decision) for row in stage.rows()] == [
        ("baseline", "baseline"),
        ("--better", "kept"),
        ("worse", "reverted"),
        ("by patch", "kept"),
    ]
    assert stage.read() == kernel_text(1300.0)
    assert stage.git("log", "-1", "--format=%s") == "by patch"


@pytest.mark.slow
def test_only_the_kernel_file_can_be_changed(stage: Stage) -> None:
    async def ask(session: Any) -> Any:
        said = {name: await call(session, "propose", message="m", patch=patch) for name, patch in OTHERS.items()}
        said["neither"] = await call(session, "propose", message="m")
        said["both"] = await call(session, "propose", message="m", patch=PATCH, file=kernel_text(1.0))
        said["no message"] = await call(session, "propose", message=" ", file=kernel_text(1.0))
        said["too large"] = await call(session, "propose", message="m", file="#" * (1 << 21))
        said["no experiment"] = await call(session, "evidence", experiment="../..")
        said["outside"] = await call(session, "evidence", experiment=stage.rows()[0].id, file="../other.txt")
        said["an option"] = await call(session, "diff", before="--help", after="HEAD")
        said["no job"] = await call(session, "poll", job=7)
        return said

    head, files = stage.head(), sorted(path.name for path in stage.root.parent.iterdir())
    said = served(stage, ask)
    assert {name: sorted(answer) for name, answer in said.items()} == {name: ["error"] for name in said}
    assert "only the kernel file can be changed" in said["another file"]["error"]
    assert "only the kernel file can be changed" in said["a rename"]["error"]
    assert "only the kernel file can be changed" in said["a link"]["error"]
    assert "USAGE" in said["a path that leads out"]["error"]
    assert "no row has the id or commit '--help'" in said["an option"]["error"]
    assert (stage.head(), stage.status(), stage.read()) == (head, ["?? results.tsv"], kernel_text(1000.0))
    assert sorted(path.name for path in stage.root.parent.iterdir()) == files
    assert len(stage.rows()) == 1


@pytest.mark.slow
def test_what_a_person_edited_is_not_overwritten(stage: Stage) -> None:
    stage.write(kernel_text(5.0, "mine = 1\n"))

    async def ask(session: Any) -> Any:
        return await call(session, "propose", message="m", file=kernel_text(1100.0))

    assert "DIRTY" in served(stage, ask)["error"]
    assert stage.read() == kernel_text(5.0, "mine = 1\n")


@pytest.mark.slow
def test_long_work_is_polled_and_cancelled_by_its_number(stage: Stage) -> None:
    """No wait of a client's: each request returns at once."""
    heard: list[tuple[float, str | None]] = []

    async def progress(done: float, _total: float | None, message: str | None) -> None:
        heard.append((done, message))

    async def ask(session: Any) -> Any:
        slow = kernel_text(1100.0, "SLEEP = 600\nPRINT = looking at it\n")
        started = await call(session, "propose", message="for ever", file=slow, wait_s=0)
        second = await call(session, "propose", message="too early", file=kernel_text(1200.0), wait_s=0)
        polled = started
        while not any("looking at it" in line for line in polled["progress"]):
            polled = await call(session, "poll", job=started["job"], wait_s=5)
        cancelled = await call(session, "cancel", job=started["job"])
        listed = await call(session, "jobs")
        brief = kernel_text(1200.0, "PRINT = a step\n")
        result = await session.call_tool(
            "propose", {"message": "now", "file": brief, "wait_s": 300}, progress_callback=progress
        )
        return started, second, cancelled, listed, json.loads(result.content[0].text)

    started, second, cancelled, listed, last = served(stage, ask)
    assert started["state"] == "running"
    assert "BUSY" in second["error"]
    assert (cancelled["state"], cancelled["exit_code"]) == ("cancelled", 130)
    assert listed["jobs"] == [{"job": 1, "kind": "propose", "state": "cancelled"}]
    assert outcome(last) == ("PASS", "kept")
    assert "a step" in [message for _, message in heard]
    assert [row.note for row in stage.rows()] == ["baseline", "now"], "what was cancelled has no row"
    assert stage.read() == kernel_text(1200.0, "PRINT = a step\n")


def test_a_server_that_cannot_start_says_so_beside_the_protocol(stage: Stage) -> None:
    done = prepared.started(stage.root, "mcp", "--kernel", "no/such.py")
    assert (done.returncode, done.stdout) == (Status.NOT_FOUND.exit_code, "")
    assert "HEAD has no no/such.py" in done.stderr


def test_a_server_that_ends_leaves_no_proposal_behind(stage: Stage) -> None:
    async def ask(session: Any) -> Any:
        return await call(session, "propose", message="m", file=kernel_text(1100.0, "SLEEP = 600\n"), wait_s=3)

    assert served(stage, ask)["state"] == "running"
    assert stage.read() == kernel_text(1000.0)
    assert [row.note for row in stage.rows()] == ["baseline"]
    stage.write(kernel_text(1200.0))
    assert stage.run("the repository is free again").decision == "kept"


@pytest.mark.parametrize(
    ("text", "status"),
    [(kernel_text(900.0), Status.NOT_BETTER), ('STATUS = "WRONG_VALUES"\n', Status.WRONG_VALUES)],
)
def test_an_agent_reads_the_cause_that_the_command_line_prints(stage: Stage, text: str, status: Status) -> None:
    async def ask(session: Any) -> Any:
        return await call(session, "propose", message="an idea", file=text)

    over_mcp = served(stage, ask)["result"]["outcome"]
    stage.write(text)
    last = prepared.started(stage.root, "run", "again").stdout.splitlines()[-1]
    assert over_mcp["status"] == status.name
    assert over_mcp["why"]
    assert last.endswith(f'status={status.name} why="{over_mcp["why"]}"')
    row = stage.rows()[-1]
    assert over_mcp["why"] in row.reason
