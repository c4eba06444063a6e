"""``ratchet mcp``: the experiments of one kernel file as tools of the Model Context Protocol, over standard streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ratchet.agents.proposal import Target
from ratchet.values.status import Refusal, Status


def command(*, root: Path, kernel: Path, say: Callable[[str], None]) -> int:
    """Serve until the client closes the streams. Standard output is the protocol's: a refusal goes to ``say``."""
    try:
        _serve(root, kernel)
    except Refusal as refusal:
        say(f"{refusal.status.name}: {refusal.message}")
        return refusal.status.exit_code
    return Status.PASS.exit_code


def _serve(root: Path, kernel: Path) -> None:
    try:
        from ratchet.agents.server import Tools, server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        todo = "it is the extra `mcp` of this package, and in requirements.lock"
        what = "the package mcp is not in the judge's environment"
        raise Refusal(Status.UNSUPPORTED_PLATFORM, f"{what}: {todo}") from None
    tools = Tools(target=Target.of(root, kernel))
    tools.target.head()  # there is one
    server(tools).run("stdio")
