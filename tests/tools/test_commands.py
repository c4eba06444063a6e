"""Every command in the documents is one that the parsers take; those that take seconds are executed."""

import pytest

from tests.tiers import cases
from tools import commands
from tools.commands import NOT_HERE, SLOW, inline_problem, problem, script, scripts, simple_commands
from tools.documents import Block, inline_code, pages, read

NOT_RUN = {
    ("CONTRIBUTING.md", "Needs the network"),
    ("docs/ci.md", "Needs the network"),
    ("README.md", "Needs ten minutes"),  # .ci/run runs it
    ("docs/ci.md", "Needs a repository of yours with such a list"),  # tests/commands/test_ci.py runs it in one
    ("docs/cluster.md", "Needs several machines"),  # tests/search/test_nodes.py has nodes on one
    ("docs/faq.md", "Needs a remote repository"),
    ("docs/history.md", "Needs a shell that you type in"),
    ("docs/testing.md", "Needs root and util-linux, and takes minutes"),
    ("docs/tpu-day-one.md", "Needs a GPU"),
    ("docs/tune.md", "Needs a TPU"),
    ("docs/upgrade-check.md", "Needs the network and Python 3.12"),
    ("docs/xprof.md", "Needs a browser, and Ctrl-C to end it"),
    ("docs/your-repository.md", "Needs the network"),  # tests/test_tutorial.py runs it
    ("docs/your-repository.md", "Needs a package of yours"),  # tests/project runs it in one
}
"""The blocks that cannot be run here, by page, with the reason that their title gives."""
SCRIPTS = [block for page in pages() for block in scripts(page)]


def block(text, language="sh", title=""):
    return Block(page="x.md", line=1, language=language, title=title, text=text)


@pytest.mark.parametrize("page", pages())
def test_the_parsers_take_every_command(page):
    wrong = []
    for one in scripts(page):
        for words in simple_commands(script(one)):
            if words and (what := problem(words)):
                wrong.append(f"{page}:{one.line}: {' '.join(words)}: {what}")
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in pages() if page != "CHANGELOG.md"])
def test_commands_inside_of_sentences_exist_with_their_options(page):
    wrong = [f"{page}: `{code}`: {what}" for code in inline_code(read(page)) if (what := inline_problem(code))]
    assert wrong == []


def test_every_title_says_how_a_block_is_run_and_what_is_not_run_is_known():
    assert {(one.page, one.title) for one in SCRIPTS if one.title.startswith(NOT_HERE)} == NOT_RUN
    assert [one for one in SCRIPTS if one.title and not one.title.startswith((SLOW, NOT_HERE))] == []


def test_the_readme_begins_with_the_main_command_and_the_tests():
    main, tests, *_ = scripts("README.md")
    assert main.text.startswith("./ratchet.sh --kernel ")
    assert tests.text.split()[0] == "./test.sh"
    assert "\n./test.sh\n" in read(".ci/run")


def how(ended):
    return f"{ended.block.page}:{ended.block.line}: {ended.code}, without {ended.missing}:\n{ended.output}"


FIRST = ("README.md", "docs/index.md")
"""Pages that everyone reads."""
QUICK = [page for page in pages() if any(not one.title for one in scripts(page))]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return commands.clone(tmp_path_factory.mktemp("a clone"))


@pytest.mark.parametrize("page", cases(FIRST, QUICK))
def test_what_takes_seconds_runs(page, root):
    ended = list(commands.run_page(page, root, quick=True))
    assert ended
    assert [how(one) for one in ended if not one.as_said] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in pages() if any(one.title.startswith(SLOW) for one in scripts(page))])
def test_what_takes_minutes_runs(page, tmp_path):
    ended = commands.run_page(page, commands.clone(tmp_path), quick=False)
    assert [how(one) for one in ended if not one.as_said] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('./ratchet.sh "baseline" --kernel x.py --on cpu', ""),
        ("python prepare.py --deep  # a comment", ""),
        ("./ratchet.sh log | head -3 > out.txt && ./ratchet.sh verify", ""),
        ("./ratchet.sh search kernel.py \\\n  --how grid", ""),
        ("python -m benchmarks.search --record", ""),
        ("./ratchet.sh log --frobnicate", "--frobnicate"),
        ("./ratchet.sh serch kernel.py", "too much on the command line"),
        ("git status && python prepare.py --chip v9", "v9"),
        ("python -m benchmarks.nothing", "no module"),
        ("python -m benchmarks.search --recrod", "--recrod"),
        ("curl -O file", "curl"),
    ],
)
def test_wrong_commands_have_a_problem_and_good_ones_none(text, what):
    said = " ".join(problem(words) for words in simple_commands(text) if words).strip()
    assert what in said
    assert bool(said) == bool(what)


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("./ratchet.sh diff A B [--jsn]", True),
        ("./ratchet.sh serch FILE", True),
        ("ratchet tune TARGET --caputre", True),
        ('./ratchet.sh "experiment: …"', False),
        ("./ratchet.sh show ID", False),
        ("--deep", False),
        ("ratchet.compile", False),
        ("don't", False),
    ],
)
def test_wrong_commands_inside_of_sentences_are_seen(code, wrong):
    assert bool(inline_problem(code)) == wrong


def test_a_transcript_holds_the_commands_behind_its_prompts():
    assert script(block("$ ls x\noutput\n$ cat y\n", "console")) == "ls x\ncat y\n"


def test_results_that_a_page_shows_have_to_be_printed(tmp_path, monkeypatch):
    page = "```sh\necho 'RESULT: 1'\n```\n```text\nRESULT: 1\nRESULT: 2\n```\n```sh\nls\n```\n```text\nRESULT: 3\n```\n"
    monkeypatch.setattr(commands, "read", lambda _: page)
    (tmp_path / "clone").mkdir()
    first, second = commands.run_page("x.md", tmp_path / "clone", quick=True)
    assert (first.missing, second.missing) == (("RESULT: 2",), ("RESULT: 3",))
    assert not first.as_said


def test_a_block_ends_as_its_page_says(tmp_path):
    (tmp_path / "clone").mkdir()
    codes = {"true": 0, "false": 1, "false  # exit code 1": 0, "(exit 3)  # exit code 1": 1, "true  # exit code 1": 99}
    for text, code in codes.items():
        assert commands.run(block(f"{text}\n"), tmp_path / "clone").code == code, text
