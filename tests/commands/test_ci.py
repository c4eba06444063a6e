"""``ratchet ci``: a change of a kernel becomes a row of a table, an exit code and a JUnit file."""

import re
import shlex
import xml.etree.ElementTree

import pytest

from ratchet.commands import ci, options
from ratchet.commands.cli import main
from ratchet.exam.candidate import target as targets
from ratchet.values.change import Change, ChangeKind, Costs, outcome
from ratchet.values.status import Status
from ratchet.view.changes import MARKER, counted, junit, markdown
from tests.commands.test_action import BEFORE, committed, written
from tests.imports import HERE
from tests.tiers import slow_but

LIST = """
[[tool.ratchet.ci]]
target = "kernels:attend"
inputs = ["f32[1024,128]"]

[[tool.ratchet.ci]]
target = "kernels.py:norm"
inputs = ["f32[1024,128]"]
chips = ["v5e"]
"""


def costs(ms, **more):
    known = {"vmem_bytes": 7 << 20, "vmem_limit_bytes": 16 << 20, "compiler": "libtpu 0.0.42.1, jax 0.10.2"}
    return Costs(status=Status.PASS, latency_ms=ms, **{**known, **more})


def change(before, after, target="pkg.kernels:attend [prefill]", chip="v5e"):
    return Change(target=target, chip=chip, before=before, after=after, allowed_share=0.02)


BROKEN = Costs(
    status=Status.VMEM_OVERFLOW, reason="the kernel needs 48.00MiB of VMEM, the limit is 32.00MiB; use smaller blocks"
)
LOST = Costs(status=Status.UNSETTLED, reason="the TPU compiler did not finish in 120 s")
SAMPLE = (
    change(costs(0.25), costs(0.27, vmem_bytes=9 << 20, spills=112)),
    change(costs(0.12), BROKEN, chip="v6e"),
    change(costs(0.5, copies=2, copy_bytes=4 << 20), costs(0.47), target="pkg.kernels:decode"),
    change(costs(0.031), costs(0.0312), target="pkg.kernels:norm"),
    change(None, costs(0.08), target="pkg.kernels:router"),
)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (costs(1.0), costs(1.021), ChangeKind.SLOWER),
        (costs(1.0), costs(1.019), ChangeKind.SAME),
        (costs(1.021), costs(1.0), ChangeKind.FASTER),
        (costs(1.0), BROKEN, ChangeKind.BROKEN),
        (BROKEN, costs(1.0), ChangeKind.FIXED),
        (BROKEN, BROKEN, ChangeKind.UNKNOWN),
        (None, costs(1.0), ChangeKind.NEW),
        (None, BROKEN, ChangeKind.BROKEN),
        (costs(1.0), LOST, ChangeKind.UNSETTLED),
        (LOST, costs(1.0), ChangeKind.UNSETTLED),
        (None, LOST, ChangeKind.UNSETTLED),
    ],
)
def test_what_a_change_is(before, after, kind):
    assert change(before, after).kind is kind


def test_the_sample_in_the_documentation_is_what_is_written():
    assert markdown(SAMPLE, base="main") in (HERE / "docs" / "ci.md").read_text()
    assert counted(SAMPLE) == "1 slower, 1 broken, 1 faster, 1 new, 1 same"


HOSTILE = (
    "x|y`](http://a) <img src=x> @team\n| forged |",
    "a\\|b | c",
    "\\[x\\](https://a) www.a.example #1 <!-- ratchet ci -->",
    "**bold** _x_ &lt;b&gt; ![i](u)",
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_and_reasons_are_no_markdown(hostile):
    """As a reader of GitHub's markdown has it, in which a backslash escapes what follows."""
    text = markdown([change(costs(1.0), Costs(status=Status.COMPILE_FAILED, reason=hostile), target=hostile)], base="`")
    assert text.count("<!--") == 1
    outside = re.sub(r"\\\\|\\[^\w\s]", "", "".join(text.split("`")[::2]))  # without what is escaped
    for live in ("<img", "@team", " #1", "://", "www.", "[", "**", "_x_", "&lt;b&gt;"):
        assert live not in outside.replace("_OVERFLOW", "").replace(MARKER, "").replace("**broken**", "")
    assert not any(line.startswith("| forged") for line in text.splitlines())
    (row,) = (line for line in text.splitlines() if line.startswith("| `"))
    assert row.count("|") == 8


def test_junit_has_a_case_for_each_and_a_failure_for_what_is_worse():
    suite = xml.etree.ElementTree.fromstring(junit(SAMPLE))
    assert (suite.get("tests"), suite.get("failures")) == ("5", "2")
    assert [case.get("name") for case in suite if len(case)] == ["pkg.kernels:attend [prefill]"] * 2


def test_what_ran_out_of_time_is_neither_worse_nor_fine():
    unsettled = change(costs(1.0), LOST)
    assert outcome([unsettled.kind, ChangeKind.SAME]) is Status.UNSETTLED
    assert outcome([unsettled.kind, ChangeKind.SLOWER]) is Status.REGRESSED
    assert outcome([ChangeKind.SAME, ChangeKind.FASTER]) is Status.PASS
    for one in (unsettled, change(LOST, costs(1.0))):
        assert "UNSETTLED: the TPU compiler did not finish in 120 s" in markdown([one], base="main")
        suite = xml.etree.ElementTree.fromstring(junit([one]))
        assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["1", "0", "1"]
        assert "did not finish" in suite.find("testcase/error").text


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with two kernels, committed."""
    committed(tmp_path, "base", {"kernels.py": written(BEFORE), "pyproject.toml": LIST})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return main(["ci", *words], lambda *_, **__: pytest.fail("nothing is judged"))


def test_a_slower_kernel_is_a_row_and_an_exit_code(repository, capsys):
    (repository / "kernels.py").write_text(written({**BEFORE, "ROUNDS": "60"}))
    code = run("--base", "HEAD", "--markdown", "out.md", "--junit", "out.xml")
    assert code == Status.REGRESSED.exit_code
    text = (repository / "out.md").read_text()
    assert text.startswith(MARKER)
    assert "### TPU kernels against `HEAD`: 1 slower, 1 same" in text
    slower, same = [line for line in text.splitlines() if line.startswith("| `")]
    assert slower.startswith("| `kernels:attend` | v5e | ")
    assert slower.endswith("| **slower** |")
    assert " → " in slower
    assert "→" not in same
    assert xml.etree.ElementTree.parse(repository / "out.xml").getroot().get("failures") == "1"
    assert capsys.readouterr().out.strip() == "1 slower, 1 same"


@pytest.mark.parametrize(
    ("toml", "status", "message"),
    [
        ("[[tool.ratchet.ci]]\ninputs = []", Status.USAGE, "entry 1: wanted"),
        ('[[tool.ratchet.ci]]\ntarget = "a:b"\nchip = "v5e"', Status.USAGE, "entry 1 has 'chip'"),
        ('[[tool.ratchet.ci]]\ntarget = "a:b"\nchips = ["v9"]', Status.USAGE, "wanted some of v5e"),
        *(
            (
                f'[[tool.ratchet.ci]]\ntarget = "a:b"\nallowed_share = {share}',
                Status.USAGE,
                "wanted a share such as 0.02",
            )
            for share in ("2", "nan", "inf", "0.51", "-1", "true")
        ),
        *(
            (f'[[tool.ratchet.ci]]\ntarget = "{name}:f"', Status.USAGE, "entry 1: ")
            for name in ("../x.py", "/etc/x.py", "a/../../x.py", ".git/x.py", "a/.git/x.py")
        ),
        *(
            (f'[[tool.ratchet.ci]]\ntarget = "a:b"\ncases = "{name}"', Status.USAGE, "entry 1: ")
            for name in ("../x.toml", "/etc/x.toml", ".git/config")
        ),
        ("[[tool.ratchet.ci", Status.USAGE, "is no TOML"),
    ],
)
def test_a_wrong_list_is_refused_by_name(repository, capsys, toml, status, message):
    (repository / "pyproject.toml").write_text(toml)
    assert run() == status.exit_code
    assert message in capsys.readouterr().err


def test_a_repository_without_a_list_is_told_what_is_wanted(tmp_path, monkeypatch, capsys):
    committed(tmp_path, "base", {"kernels.py": written(BEFORE)})
    monkeypatch.chdir(tmp_path)
    assert run() == Status.NOT_FOUND.exit_code
    assert "has no list tool.ratchet.ci" in capsys.readouterr().err


def entry(target="pkg:f", share=0.02, shape="f32[8,128]", chip="v5e"):
    return ci.Entry(target=target, case=targets.inline([shape], chip=chip), allowed_share=share)


@pytest.mark.parametrize(
    ("base", "now", "judged", "said"),
    [
        ([entry()], [entry()], [entry()], ()),
        ([entry()], [], [entry()], ("takes it off the list",)),
        (
            [entry()],
            [entry(share=0.5)],
            [entry()],
            ("judged by 0.02 of the base, not 0.5",),
        ),
        ([entry()], [entry(shape="f32[1,128]")], [entry()], ("other inputs or options",)),
        ([entry()], [entry(), entry("pkg:g")], [entry(), entry("pkg:g")], ("puts it on the list",)),
        ([entry()], [entry(chip="v6e")], [entry(), entry(chip="v6e")], ("off the list", "on the list")),
        ([], [entry(share=0.4)], [entry(share=0.4)], ()),
    ],
)
def test_a_change_is_judged_by_the_list_of_its_base(base, now, judged, said):
    agreed, notes = ci._agreed(base, now)
    assert agreed == judged
    assert [words in note for note, words in zip(notes, said, strict=True)] == [True] * len(said)


SAYS = """
import os
_here = os.path.dirname(__file__)
def _read(path):
    try:
        return open(path).read().strip()
    except Exception as error:
        return type(error).__name__
_names = ("leak.json", ".git/config", "/etc/passwd")
raise RuntimeError("| SAID | " + " ".join(_read(os.path.join(_here, name)) for name in _names))
"""


@pytest.mark.parametrize("include", slow_but(1, [["*.json", ".git/config"], [], [".git/config"], ["leak.json"]]))
def test_what_a_module_says_is_not_published(repository, tmp_path_factory, capsys, include):
    """A link of the change leads to a file of the runner's, and git's configuration has a token."""
    secret = tmp_path_factory.mktemp("runner") / "secret"
    secret.write_text("SECRET-OF-THE-RUNNER")
    with (repository / ".git" / "config").open("a") as file:
        file.write('[http "https://example.invalid/"]\n\textraheader = SECRET-TOKEN\n')
    (repository / "leak.json").symlink_to(secret)
    (repository / "pyproject.toml").write_text(f"[tool.ratchet]\ninclude = {include}\n" + LIST)
    (repository / "kernels.py").write_text(written(BEFORE) + SAYS)
    committed(repository, "a change", {})
    assert run("--base", "HEAD~1", "--markdown", "out.md", "--junit", "out.xml") != 0
    shown = capsys.readouterr()
    texts = [shown.out, shown.err, *(path.read_text() for path in repository.glob("out.*"))]
    for text in texts:
        assert "SECRET" not in text
        assert "SAID" not in text
        assert "root:" not in text


def test_a_comment_is_not_written_through_a_link(repository, tmp_path_factory):
    mine = tmp_path_factory.mktemp("runner") / "mine"
    mine.write_text("mine")
    (repository / "out.md").symlink_to(mine)
    (repository / "kernels.py").write_text("raise RuntimeError\n")
    run("--base", "HEAD", "--markdown", "out.md")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("option", "given", "status", "said"),
    [
        ("--markdown", ".", Status.USAGE, "is a folder"),
        ("--junit", "kernels.py/x.xml", Status.USAGE, "cannot be written"),
        ("--base", "nowhere", Status.NOT_FOUND, "'nowhere' is no revision here"),
    ],
)
def test_where_nothing_can_be_written_or_read_is_said_first(repository, capsys, option, given, status, said):
    assert run(option, given) == status.exit_code
    assert said in capsys.readouterr().err


def test_a_link_out_of_the_repository_is_left_out_of_a_revision(repository, tmp_path_factory):
    (repository / "out").symlink_to("/etc")
    committed(repository, "a link", {})
    there = ci.checkout(repository, "HEAD", tmp_path_factory.mktemp("revision"))
    assert (there / "kernels.py").is_file()
    assert not (there / "out").is_symlink()


def test_the_action_calls_the_command_as_it_is():
    text = (HERE / "action" / "action.yml").read_text()
    (called,) = (line.strip() for line in text.splitlines() if line.strip().startswith("ratchet ci"))
    words = shlex.split(called.partition("||")[0])
    assert options.ratchet(words[1:]).name == "ci"
    assert "comment.py" in text
    assert MARKER in (HERE / "action" / "comment.py").read_text(), "by which it finds its own comment"
