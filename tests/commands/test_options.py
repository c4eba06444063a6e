"""What the command line takes, and what it says where it takes it not."""

import pytest

from ratchet.commands import options
from ratchet.values.status import Refusal, Status


def refused(*given: str) -> str:
    with pytest.raises(Refusal) as refusal:
        options.ratchet(given)
    assert refusal.value.status is Status.USAGE
    assert "\n" not in refusal.value.message
    return refusal.value.message


def helped(capsys: pytest.CaptureFixture[str], *given: str) -> str:
    with pytest.raises(SystemExit) as left:
        options.ratchet((*given, "--help"))
    assert not left.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "wanted"), [("--budget", "more than 0, less than 1000000"), ("--wait", "0 or more, less than 1000000")]
)
@pytest.mark.parametrize("text", ["abc", "nan", "inf", "-3", "", "1e6"])
def test_seconds(option: str, wanted: str, text: str) -> None:
    message = refused("an idea", option, text)
    assert f"argument {option}: {text!r}, wanted seconds: {wanted}" in message


def test_seconds_that_will_do() -> None:
    found = options.ratchet(["an idea", "--budget", "0.5", "--wait", "0"])
    assert (found.budget, found.wait) == (0.5, 0)
    refused("an idea", "--budget", "0")


@pytest.mark.parametrize(
    "given",
    [("-idea",), ("use", "this"), (), ("--kernel", "k.py"), ("run",), ("an idea", "--js"), ("an idea", "--new")],
)
def test_how_a_message_is_given(given: tuple[str, ...]) -> None:
    """An option has one spelling: whether a refusal has to be JSON is asked before the options are read."""
    message = refused(*given)
    for words in ('./ratchet.sh "message" [options]', "in quotes", "begins with a dash goes last, after --"):
        assert words in message


@pytest.mark.parametrize("message", ["-idea", "--json", "log", "-x=3 y", "$(touch pwned)", "a\nb"])
def test_every_message_can_be_given(message: str) -> None:
    found = options.ratchet(["run", "--kernel", "k.py", "--", message])
    assert (found.name, found.message, found.json) == ("run", message, False)


@pytest.mark.parametrize(
    ("given", "asked"), [(["--json"], True), (["log", "--json", "--"], True), (["--", "--json"], False), ([], False)]
)
def test_whether_json_is_asked_for(given: list[str], asked: bool) -> None:
    assert options.asks_for_json(given) == asked


@pytest.mark.parametrize("word", ["log", "show", "verify", "rebuild", "fidelity", "run", "help"])
def test_a_command_behind_its_options_is_no_message(word: str) -> None:
    message = refused("--kernel", "k.py", word)
    assert f"./ratchet.sh {'--help' if word == 'help' else word}`" in message
    assert f"./ratchet.sh run {word}" in message
    assert options.ratchet(["run", word]).message == word


@pytest.mark.parametrize(
    "given", [("show",), ("show", "a", "b"), ("log", "extra", "more"), ("verify", "--json"), ("log", "--no-such")]
)
def test_an_error_names_the_commands_own_help(given: tuple[str, ...]) -> None:
    assert refused(*given).endswith(f"see ./ratchet.sh {given[0]} --help")


def test_help_has_every_option_of_an_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    whole = helped(capsys)
    for option in ("--new-problem", "--wait", "--kernel", "--on", "--budget", "--deep", "--json"):
        assert f"  {option} " in whole or f"  {option}\n" in whole
        assert option in helped(capsys, "run")
    for command in ("log", "show", "verify", "rebuild", "fidelity"):
        assert helped(capsys, command).startswith(f"usage: ./ratchet.sh {command} [-h]")
    codes = [int(line.split()[0]) for line in whole.partition("exit codes:")[2].splitlines() if line.strip()]
    assert codes == sorted(status.exit_code for status in Status)


def test_prepare_takes_no_message() -> None:
    assert options.prepare(["--kernel", "k.py", "--deep"]).deep
    with pytest.raises(Refusal, match=r"unrecognized arguments: an idea; see prepare\.py --help"):
        options.prepare(["an idea"])


@pytest.mark.parametrize("parse", [lambda *given: options.ratchet(["an idea", *given]), lambda *g: options.prepare(g)])
def test_a_chip_is_modelled_or_a_device_measured(parse) -> None:  # type: ignore[no-untyped-def]
    assert parse("--chip", "v6e").chip == "v6e"
    assert parse().chip is None
    for given in (("--chip", "v6e", "--on", "cpu"), ("--chip", "v7x")):
        with pytest.raises(Refusal, match="argument --chip") as refusal:
            parse(*given)
        assert refusal.value.status is Status.USAGE


@pytest.mark.parametrize(
    ("given", "evaluator"),
    [([], None), (["--on", "cpu"], "cpu"), (["--on", "v5e-model"], "v5e-model"), (["--chip", "v6e"], "v6e-model")],
)
def test_what_judges_is_a_device_or_a_chip_that_is_modelled(given: list[str], evaluator: str | None) -> None:
    assert options.evaluator(options.prepare(given)) == evaluator
    assert options.evaluator(options.ratchet(["a message", *given])) == evaluator


@pytest.mark.parametrize(
    ("words", "file", "knobs"),
    [
        ("report a.py", "a.py", None),
        ("report --json a.py", "a.py", None),
        ("report --kernel a.py", "a.py", None),
        ("log a.py --watch", "a.py", None),
        ("log --kernel a.py", "a.py", None),
        ("brief --tokens 3 a.py", "a.py", None),
        ("plot units -o a.svg a.py", "a.py", None),
        ("plot units --kernel a.py -o a.svg", "a.py", None),
        ("explain --kernel a.py", "a.py", None),
        ("explain", None, None),
        ("across --json", None, None),
        ("sweep a.py B=1 C=2", "a.py", ["B=1", "C=2"]),
        ("sweep B=1 C=2", None, ["B=1", "C=2"]),
        ("sweep a.py --json B=1 C=2", "a.py", ["B=1", "C=2"]),
        ("sweep B=1 --kernel a.py C=2", "a.py", ["B=1", "C=2"]),
        ("fit --chip v6e --kernel a.py B=1", "a.py", ["B=1"]),
        ("tune --kernel a=b.py B=1", "a=b.py", ["B=1"]),
        ("log a.py --kernel a.py", "a.py", None),
    ],
)
def test_a_file_is_named_with_and_without_the_word_kernel(words, file, knobs):
    given = options.ratchet(words.split())
    named = getattr(given, given.file_as)
    assert (named if named is None else str(named), getattr(given, "knobs", None)) == (file, knobs)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("log a.py --kernel b.py", "FILE is 'a.py' and --kernel 'b.py': name one of them"),
        ("sweep a.py", "there are no knobs"),
        ("fit --kernel a.py", "there are no knobs"),
        ("log a.py b.py", "too much on the command line: b.py"),
        ("log --x a.py", "too much on the command line: --x"),
    ],
)
def test_two_files_and_no_knobs_are_refused(words, said):
    with pytest.raises(Refusal, match=said) as caught:
        options.ratchet(words.split())
    assert caught.value.status is Status.USAGE


def test_whatever_takes_the_option_kernel_takes_a_file_and_the_reverse():
    """But where other words stand in its place: a message, a target of the project's, experiments, candidates."""
    for name in set(options.COMMANDS) - {options.RUN, "judge", "diff", "try"}:
        usage = options.ratchet_parser((name,)).parse_known_args
        (made,) = [one for one in options.ratchet_parser((name,))._subparsers._group_actions]
        actions = made.choices[name]._actions
        takes_option = any("--kernel" in one.option_strings for one in actions)
        takes_file = any(not one.option_strings and one.metavar in ("FILE", "TARGET") for one in actions)
        assert takes_option == takes_file or name == "upgrade-check", (name, usage)
