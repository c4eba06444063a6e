"""Posts the table of `ratchet ci` on a pull request, as one comment that later runs edit. Standard library only.

Whatever keeps it from being posted is a warning of the job: the table is in the job's summary all the same, and the
outcome of the job is that of `ratchet ci`.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MARKER = "<!-- ratchet ci -->"
"""First line of a comment of ours (`ratchet/view/changes.py`)."""
PAGE = 100
"""Comments that the API gives at once, at most."""
MOST_PAGES = 100
MOST_CHARACTERS = 65_000
"""The API takes 65,536."""
SECONDS = 30
_DENIED = (401, 403, 404)
_CUT = "\n\n(The rest is in the summary of the job.)"


def main() -> int:
    """Create the comment, or edit the one that is there; always returns 0."""
    file = Path(os.environ["RUNNER_TEMP"]) / "ratchet-ci.md"
    if not file.is_file():
        return 0
    if not os.environ.get("GH_TOKEN"):
        return _warn("no token was given: the table is in the summary of the job only")
    body = _fitting(file.read_text(encoding="utf-8"))
    repository = f"repos/{os.environ['GITHUB_REPOSITORY']}"
    comments = f"{repository}/issues/{os.environ['PULL']}/comments"
    try:
        for number in _ours(comments):
            try:
                _ask("PATCH", f"{repository}/issues/comments/{number}", {"body": body})
                return 0
            except urllib.error.HTTPError as error:
                if error.code not in _DENIED:  # another's, that begins like ours
                    raise
        _ask("POST", comments, {"body": body})
    except urllib.error.HTTPError as error:
        if error.code in _DENIED:
            return _warn(
                f"the token may not comment here ({error.code}): give the job `permissions: pull-requests: write`. "
                "A pull request from a fork has no such token. The table is in the summary of the job"
            )
        return _warn(
            f"the comment was not posted: the API answered {error.code}. The table is in the summary of the job"
        )
    except (OSError, ValueError) as error:
        return _warn(f"the comment was not posted: {error}. The table is in the summary of the job")
    return 0


def _fitting(text: str) -> str:
    """What the API takes, cut at the end of a line."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return text[: MOST_CHARACTERS - len(_CUT)].rpartition("\n")[0] + _CUT


def _ours(comments: str) -> Iterator[int]:
    """Numbers of comments that begin as ours do, oldest first; with the token of a job, those of a bot alone."""
    of_bot = os.environ["GH_TOKEN"].startswith("ghs_")
    for page in range(1, MOST_PAGES + 1):
        listed = _ask("GET", f"{comments}?per_page={PAGE}&page={page}")
        for one in listed:
            bot = (one.get("user") or {}).get("type") == "Bot"
            if str(one.get("body") or "").startswith(MARKER) and (bot or not of_bot):
                yield int(one["id"])
        if len(listed) < PAGE:
            return


def _ask(method: str, path: str, content: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(
        f"{os.environ.get('GITHUB_API_URL', 'https://api.github.com')}/{path}",
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['GH_TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
            "User-Agent": "pallas-ratchet",
        },
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def _warn(text: str) -> int:
    """A warning of the job, in one line: nothing in it is a command of the runner's."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::warning title=ratchet ci::{escaped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
