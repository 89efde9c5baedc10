"""The program itself: help, spelling, errors, exit codes, encodings, pipes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from candle import __version__
from candle.cli import exits
from candle.cli.main import COMMANDS, program
from candle.errors import CandleError, FormatError, NameNotFoundError, OptionError

if TYPE_CHECKING:
    from running import Program

NAMES = [name for section in COMMANDS.values() for name in section]


def test_version_is_one_line_on_stdout(candle: Program) -> None:
    done = candle("--version")
    assert (done.stdout, done.stderr) == (f"candle {__version__}\n", "")


def test_help_lists_every_command_and_the_exit_codes(candle: Program) -> None:
    text = candle("--help").stdout
    assert all(f"  {name} " in text for name in NAMES)
    assert all(code in text for code in ("0 done", "129 ", "130 interrupted", "141 ", "143 "))
    assert candle().stdout == text


def test_help_loads_no_room() -> None:
    """Start-up: only the command that runs is imported (click#2267)."""
    code = (
        "import sys; from candle.cli.main import run; run(['--help']);"
        "bad = [m for m in ('candle.rag.store', 'candle.llm.generator', 'tokenizers', 'numpy',"
        " 'tqdm', 'sqlite3', 'jinja2', 'candle.cli.embed') if m in sys.modules]; sys.exit(str(bad))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help_with_an_example(name: str) -> None:
    context = click.Context(program)
    command = program.get_command(context, name)
    assert command is not None and command.name == name
    texts = {k: v for section in COMMANDS.values() for k, v in section.items()}
    assert texts[name].rstrip(".") in (command.help or "")
    assert f"candle {name}" in (command.epilog or "")
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help  # type: ignore[attr-defined]


def test_every_option_takes_both_spellings() -> None:
    """--top-k and --top_k, --max-tokens and --max_tokens, and so on for all of them."""
    tried = 0
    for name in NAMES:
        context = click.Context(program, **program.context_settings)
        command = program.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context)
        parser = command.make_parser(inner)
        for parameter in command.params:
            for option in parameter.opts:
                if "-" in option[2:]:
                    spelled = "--" + option[2:].replace("-", "_")
                    value = [] if getattr(parameter, "is_flag", False) else ["1"]
                    found, _, _ = parser.parse_args([spelled, *value])
                    assert parameter.name in found
                    tried += 1
    assert tried >= 8


def test_unknown_names_are_usage_errors_with_a_hint(candle: Program) -> None:
    done = candle("serch", code=exits.USAGE)
    assert done.stdout == ""
    assert (
        done.stderr
        == "error: No such command 'serch'. Did you mean 'search'?\n  see candle --help\n"
    )
    done = candle("list", "--nosuch", code=exits.USAGE)
    assert done.stderr.startswith("error: No such option") and "candle list --help" in done.stderr


def test_what_is_not_here_exits_with_3_and_says_what_helps(candle: Program) -> None:
    done = candle("search", "nosuch", "query", code=exits.NOT_FOUND)
    assert done.stdout == ""
    first, hint = done.stderr.splitlines()
    assert first.startswith("error: knowledge base 'nosuch': expected ")
    assert hint.startswith("  ") and str(candle.cwd / "home") in hint


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("x", "a", "b"), exits.USAGE),
        (NameNotFoundError("x"), exits.NOT_FOUND),
        (FileNotFoundError(2, "No such file", "x"), exits.NOT_FOUND),
        (FormatError("x", "a", "b"), exits.FAILED),
        (OSError(28, "No space left on device", "/x"), exits.FAILED),
        (RuntimeError("x"), exits.FAILED),
    ],
)
def test_errors_have_their_codes(error: Exception, code: int) -> None:
    assert exits.exit_code(error) == code


def test_explanations_keep_the_hint_apart() -> None:
    assert exits.explain(CandleError("a", "b", "c", "d")) == ("a: expected b, got c", "d")
    assert exits.explain(OSError(28, "No space left", "/x y")) == ("No space left: /x y", "")
    assert exits.explain(KeyError("k"))[0] == "KeyError: 'k'"


def test_debug_shows_the_traceback(candle: Program) -> None:
    command = [sys.executable, "-m", "candle", "show", "nosuch.candle"]
    env = {**candle.env, "CANDLE_DEBUG": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == exits.NOT_FOUND
    assert "Traceback" in done.stderr and "error: " in done.stderr


def test_a_reader_that_goes_away_is_no_error(installed: Program) -> None:
    """Piped into `head -1`: quiet, and no traceback (CASES L11)."""
    with installed.start(
        "show", "notes", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == exits.BROKEN_PIPE


def shell(candle: Program, command: str) -> subprocess.CompletedProcess[str]:
    """`candle` with redirections, as a shell does them."""
    line = f"{sys.executable} -m candle {command}"
    return subprocess.run(
        ["sh", "-c", line],
        cwd=candle.cwd,
        env=candle.env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
def test_output_that_would_be_lost_is_an_error(candle: Program) -> None:
    """A closed stdout, and a full device: a message and a code, never a silent success."""
    for command in ("--help", "list", "doctor --json"):
        done = shell(candle, f"{command} >&-")
        assert (done.returncode, done.stderr) == (exits.FAILED, "error: stdout is closed\n")
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    for command in ("--help", "--version", "doctor --json"):
        done = shell(candle, f"{command} >/dev/full")
        assert (done.returncode, done.stderr) == (exits.FAILED, "error: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_stderr_does_not_change_the_code(candle: Program) -> None:
    assert shell(candle, "list 2>/dev/full").returncode == 0
    assert shell(candle, "list --nosuch 2>/dev/full").returncode == exits.USAGE


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
def test_a_closed_stderr_takes_no_file_of_ours(installed: Program) -> None:
    done = shell(installed, "search notes tea --top-k=1 <&- 2>&-")
    assert done.returncode == 0 and done.stdout


def test_empty_names_and_paths_are_usage_errors(candle: Program, package: Path) -> None:
    """`candle remove "$unset"` removes nothing and says why."""
    for arguments in (
        ("remove", ""),
        ("show", ""),
        ("verify", ""),
        ("install", ""),
        ("install", package, "--as", ""),
        ("search", "", "tea"),
        ("ask", "", "tea?"),
        ("generate", "", "tea"),
        ("embed", "--input=", "--output=x.candle"),
        ("embed", "--input=chunks.jsonl", "--output="),
    ):
        assert "it is empty." in candle(*arguments, code=exits.USAGE).stderr


def test_a_home_of_nobody_is_told(candle: Program) -> None:
    env = {"CANDLE_HOME": "~nosuchuser/x"}
    assert "set CANDLE_HOME" in candle("list", code=exits.FAILED, env=env).stderr
    candle("search", "~nosuchuser/x", "tea", code=exits.NOT_FOUND)
    assert "no-hub" not in candle("doctor", env={"HF_HOME": "~nosuchuser/y"}).stdout


def test_a_name_is_looked_for_among_its_kind(installed: Program) -> None:
    """What is "known" are knowledge bases for search, and language models for generate."""
    done = installed("search", "zzz", "tea", code=exits.NOT_FOUND)
    assert "known: notes;" in done.stderr
    done = installed("generate", "zzz", "tea", code=exits.NOT_FOUND)
    assert "smollm2-135m-instruct" in done.stderr and "minilm" not in done.stderr


def test_a_filter_nested_too_deeply_is_refused(candle: Program) -> None:
    done = candle("search", "notes", "tea", "--filter", "a=" + "[" * 60_000, code=exits.USAGE)
    assert "nested too deeply" in done.stderr


def test_an_interrupt_lost_while_freeing_comes_again() -> None:
    """Python drops an exception raised in `__del__`; the program raises this one again."""
    code = """
import signal, sys, time
from candle.cli import interrupts

class Freed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

interrupts.install()
try:
    Freed()
    time.sleep(30)
except KeyboardInterrupt:
    sys.exit(130)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (exits.INTERRUPTED, "")


SECOND_WHILE_UNWINDING = """
import signal, sys
from candle.cli import main

def work(arguments):
    try:
        signal.raise_signal(signal.SIGNAL)
    finally:
        signal.raise_signal(signal.SIGNAL)
        print("cleaned", flush=True)

main._invoke = work
main.main([])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("name", "code"),
    [("SIGINT", exits.INTERRUPTED), ("SIGTERM", exits.TERMINATED), ("SIGHUP", exits.HUNG_UP)],
)
def test_a_second_signal_does_not_disturb_the_cleaning_up(name: str, code: int) -> None:
    """Ctrl-C pressed twice, a terminal that closes: what is half-made still goes away."""
    script = SECOND_WHILE_UNWINDING.replace("SIGNAL", name)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "cleaned\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_what_the_parent_had_ignored_stays_ignored() -> None:
    """`nohup candle ...` and a script's `candle ... &` outlive the terminal and its Ctrl-C."""
    code = (
        "import signal; from candle.cli import interrupts;"
        "ignored = (signal.SIGINT, signal.SIGHUP);"
        "[signal.signal(n, signal.SIG_IGN) for n in ignored];"
        "interrupts.install(); [signal.raise_signal(n) for n in ignored]; interrupts.leave();"
        "print([signal.getsignal(n) is signal.SIG_IGN for n in ignored])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True]\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_while_modules_load_leaves_no_traceback(candle: Program) -> None:
    """The signal comes within an import of the program's own."""
    code = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "candle.tensor":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
import candle_cli
candle_cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "list"],
        env=candle.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (exits.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    "env",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}],
    ids=str,
)
def test_output_is_utf8_in_any_locale(installed: Program, env: dict[str, str]) -> None:
    env = {"PYTHONCOERCECLOCALE": "0", **env}
    (first,) = installed.lines("search", "notes", "银行在河边", "--top_k=1", "--json", env=env)
    assert first["id"] == "银行"
    assert "银行在河边" in installed("search", "notes", "河边", "--top-k=4", env=env).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="argv as bytes")
def test_an_argument_that_is_no_text_is_refused(installed: Program) -> None:
    done = installed("search", "notes", "caf\udce9", code=exits.USAGE)
    assert "is not valid UTF-8" in done.stderr


def test_python_dash_m_and_the_console_script_are_one_program() -> None:
    scripts = [Path(sys.executable).with_name(n) for n in ("candle", "candle-cli", "candle-hf")]
    if not all(script.exists() for script in scripts):
        pytest.skip("the console scripts are not installed in this environment")
    for script in scripts:
        done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"candle {__version__}\n"
