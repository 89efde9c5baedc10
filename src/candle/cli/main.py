"""The program `candle`: finds a command, loads its module, and turns errors into exit codes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from .._version import __version__
from . import exits, interrupts, output

# name -> what the list of commands says; the module of that name is loaded when it runs
COMMANDS: dict[str, dict[str, str]] = {
    "Knowledge bases": {
        "embed": "Make a knowledge base from documents.",
        "search": "Find the chunks nearest to a query.",
        "ask": "Answer a question from a knowledge base, with sources.",
    },
    "Language models": {
        "generate": "Complete a text, or answer a message.",
    },
    "Packages": {
        "install": "Install a .candle package.",
        "list": "List installed packages.",
        "show": "Show what a package holds.",
        "verify": "Check every byte of a package.",
        "remove": "Remove an installed package.",
        "gc": "Free the space of removed packages.",
    },
    "This machine": {
        "doctor": "Show what candle finds on this machine.",
    },
}
EPILOG = """\
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 129 terminal closed, 130 interrupted,
141 reader of the output gone, 143 terminated.
"""
NAMES = ("candle", "candle-cli", "candle-hf")


class Program(click.Group):
    """A group that knows its commands by name and loads the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the help page."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from the module of its name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f".{cmd_name}", __package__)
        found: click.Command = module.command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's, but a misspelt name is answered with the nearest one."""
        name = args[0]
        known = self.list_commands(ctx)
        if not name.startswith("-") and name.replace("_", "-") not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1, 0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(list(section.items()))


def spell(token: str) -> str:
    """Options are written with hyphens; --top_k is --top-k."""
    return token.replace("_", "-")


@click.group(
    cls=Program,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={
        "token_normalize_func": spell,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(__version__, message="candle %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Run language models and search your documents, on your own machine."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the program and exits with its code."""
    try:
        output.configure()
        interrupts.install()
        code = run(arguments)
        interrupts.leave()
    except KeyboardInterrupt:  # it came between the two
        code = exits.INTERRUPTED
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Runs one command; its exit code. Everything that can go wrong ends here, in words."""
    try:
        output.require()
        _invoke(sys.argv[1:] if arguments is None else arguments)
        output.flush()
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        with contextlib.suppress(OSError):
            output.end_line()
        return exits.INTERRUPTED
    except click.ClickException as error:
        return _refuse_usage(error)
    except Exception as error:
        if exits.is_broken_pipe(error):
            exits.silence_output()
            return exits.BROKEN_PIPE
        return _report(error)


def _invoke(arguments: list[str]) -> None:
    """What click's own main does, without its handling of errors."""
    name = _prog_name()
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    if variable in os.environ:
        from click.shell_completion import shell_complete

        _check_completion(variable)
        raise click.exceptions.Exit(
            shell_complete(program, {}, name, variable, os.environ[variable])
        )
    with program.make_context(name, list(arguments)) as context:
        program.invoke(context)


def _check_completion(variable: str) -> None:
    """Raises UsageError unless the environment is what a shell's completion sets."""
    from click.shell_completion import get_completion_class

    value = os.environ[variable]
    shell, _, instruction = value.partition("_")
    if get_completion_class(shell) is None or instruction not in ("source", "complete"):
        known = "bash_source, zsh_source or fish_source"
        raise click.UsageError(f"{variable} is for shells: expected {known}, got {value[:80]!r}.")
    if instruction == "source":
        return
    words, at = os.environ.get("COMP_WORDS"), os.environ.get("COMP_CWORD")
    if words is None or at is None or (shell != "fish" and not at.isdecimal()):
        wanted = "COMP_WORDS and COMP_CWORD, as a shell sets them"
        raise click.UsageError(f"{variable} is set, but not {wanted}: unset it.")


def _prog_name() -> str:
    name = Path(sys.argv[0]).stem
    return name if name in NAMES else NAMES[0]


def _refuse_usage(error: click.ClickException) -> int:
    output.note(f"error: {error.format_message()}")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        output.note(f"  see {context.command_path} --help")
    return exits.USAGE


def _report(error: Exception) -> int:
    if os.environ.get("CANDLE_DEBUG") == "1":
        traceback.print_exc()
    text, hint = exits.explain(error)
    output.note(f"error: {text}" + (f"\n  {hint}" if hint else ""))
    return exits.exit_code(error)
