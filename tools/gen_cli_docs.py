"""Writes docs/reference/cli.md from the commands themselves; `--check` fails if it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from candle.cli import exits
from candle.cli.main import COMMANDS, program

PAGE = Path(__file__).resolve().parent.parent / "docs/reference/cli.md"
HEAD = """\
# Command line

*Made by `make docs` from the program itself; do not edit.*

`candle` (also `candle-cli`, `candle-hf`, and `python -m candle`) writes results to stdout and
nothing else; progress bars, warnings and errors go to stderr, bars only if that is a terminal.
Output is UTF-8 whatever the locale. Hyphens and underscores in options are the same: `--top-k` is
`--top_k`. An error is one line that says what failed, what was expected and what was got, and one
that says what helps.

With `--json` a command prints one JSON object, or one a line where there are several. On a
terminal, control characters in texts are spelled out; a pipe gets them as they are.

## Exit codes

| code | meaning |
|---|---|
"""
ENVIRONMENT = """\
## Environment

| variable | effect |
|---|---|
| `CANDLE_HOME` | where packages are installed; default `~/.candle` |
| `CANDLE_ISA` | the instruction set of the kernels: one of those that `candle doctor` lists |
| `CANDLE_NUM_THREADS` | threads of the kernels; default one a CPU |
| `CANDLE_BINDING` | `abi` opens the library without the compiled binding |
| `CANDLE_DEBUG` | `1` prints the traceback of an error |
| `HF_HOME`, `HF_HUB_CACHE` | the Hugging Face cache that models are looked for in |
"""


def page() -> str:
    """The whole page."""
    codes = (exits.__doc__ or "").split("\n\n")[1].splitlines()
    rows = [line.strip().partition(" ") for line in codes]
    parts = [HEAD + "".join(f"| {code} | {text.strip()} |\n" for code, _, text in rows)]
    parts.append(ENVIRONMENT)
    context = click.Context(program, info_name="candle")
    for title, section in COMMANDS.items():
        parts.append(f"## {title}\n")
        for name in section:
            command = program.get_command(context, name)
            assert command is not None
            parts.append(describe(command, click.Context(command, context, name)))
    return "\n".join(parts)


def describe(command: click.Command, context: click.Context) -> str:
    """One command: usage, what it does, its options, examples."""
    usage = f"candle {command.name} {' '.join(command.collect_usage_pieces(context))}"
    options = [p for p in command.params if isinstance(p, click.Option)]
    rows = "".join(f"| {spelling(o)} | {help_of(o)} |\n" for o in options)
    table = f"| option | |\n|---|---|\n{rows}\n" if rows else ""
    help_text = " ".join((command.help or "").split())
    return f"### {command.name}\n\n```\n{usage}\n```\n\n{help_text}\n\n{table}{notes(command)}"


def spelling(option: click.Option) -> str:
    """`--top-k N`, as it is written."""
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    metavar = option.metavar or option.type.name.upper().split(" ")[0]
    if isinstance(option.type, click.Choice):
        metavar = "\\|".join(option.type.choices)
    return f"{names} {metavar}"


def help_of(option: click.Option) -> str:
    """Its help, with the default and whether it must be given."""
    text = (option.help or "").replace("|", "\\|")
    if option.required:
        text += " Required."
    if option.show_default is True:
        text += f" Default: `{option.default}`."
    return text


def notes(command: click.Command) -> str:
    """The epilog: examples as a block, and the paragraphs after them."""
    epilog = (command.epilog or "").replace("\b\n", "")
    first, *rest = epilog.strip().split("\n\n")
    lines = [line.strip() for line in first.splitlines()[1:]]
    block = "```sh\n" + "\n".join(lines) + "\n```\n"
    paragraphs = "".join(f"\n{paragraph.strip()}\n" for paragraph in rest)
    return block + paragraphs


def main(arguments: list[str]) -> int:
    """Writes the page, or with --check says whether the one that is there is the same."""
    text = page()
    if arguments == ["--check"]:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE} is stale: run `make docs`", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
