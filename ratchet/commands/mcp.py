"""``ratchet mcp``: the experiments of one kernel file as tools of the Model Context Protocol, over standard streams."""

from __future__ import annotations

from pathlib import Path

from ratchet import options as options_of
from ratchet.agents.proposal import Target
from ratchet.values.status import Refusal, Status


def command(*, root: Path, kernel: Path) -> int:
    """Serve until the client closes the streams. Standard output belongs to the protocol."""
    try:
        from ratchet.agents.server import Tools, server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        todo = "it is the extra `mcp` of this package, and in requirements.lock"
        raise Refusal(
            Status.UNSUPPORTED_PLATFORM, f"the package mcp is not in the judge's environment: {todo}"
        ) from None
    tools = Tools(target=Target.of(root, kernel))
    server(tools, with_brief=options_of.knows("brief")).run("stdio")
    return Status.PASS.exit_code
