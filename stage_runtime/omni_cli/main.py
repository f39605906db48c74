"""The `omni` command: the table of its commands, and how it ends.

Commands are imported when they are called: `omni --help` waits for none of them.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from typer._click.core import Command, Context  # Typer gives them no public names
from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from omni_cli.output import is_decorated, print_errors
from omni_config.errors import ConfigError, OmniError

COMMANDS = {
    "chat": ("omni_cli.chat_command", "Ask a running pipeline something."),
    "config": ("omni_cli.config_commands", "Resolve, explain and export a configuration."),
    "doctor": (
        "omni_cli.doctor_command",
        "Show what is installed, what runs and what is wrong.",
    ),
    "key": ("omni_cli.key_command", "Make an API key for a gateway."),
    "models": ("omni_cli.models_command", "Make checkpoints to try omnipipe with."),
    "plan": ("omni_cli.plan_command", "Show what will run where, and why."),
    "trace": ("omni_cli.trace_command", "Show a request's time in each stage."),
    "up": ("omni_cli.up_command", "Run a pipeline on this machine."),
    "pipelines": ("omni_cli.pipelines_command", "List models, their pipelines and stages."),
}
"""Module and summary of each command. A module holds a Typer application called `app`."""

KUBECTL = "kubectl-omni"
"""Name of the program that kubectl runs for `kubectl omni`."""
KUBECTL_COMMANDS = {
    "config": ("omni_cli.kubectl_commands:config_app", "Show who set which setting."),
    "explain": ("omni_cli.kubectl_commands:explain_app", "Explain one setting of a pipeline."),
    "plan": ("omni_cli.kubectl_commands:plan_app", "Show what applying a file would do."),
    "status": ("omni_cli.kubectl_commands:status_app", "Show a pipeline as a tree."),
}
"""The same table for `kubectl omni`, whose commands look at a cluster."""

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class _Deferred(TyperCommand):
    """Stands for a command that is not imported yet."""

    def __init__(self, name: str, module: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._module = module

    def load(self) -> Command:
        """Import the command."""
        module, _, name = self._module.partition(":")
        command = get_command(getattr(import_module(module), name or "app"))
        command.name = self.name
        return command


class _Commands(TyperGroup):
    """Knows the names of all commands and imports the one that is called."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Deferred) else command, rest


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich" if is_decorated(sys.stdout) else None,
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"omnipipe {version('omnipipe')}")
    raise typer.Exit


@app.callback()
def omni(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Serve omni-modal models as pipelines of stages."""


def command(program: str = "omni") -> Command:
    """Return the root command of a program with every command of its table."""
    root = get_command(app)
    assert isinstance(root, _Commands)
    table = KUBECTL_COMMANDS if program == KUBECTL else COMMANDS
    for name, (module, summary) in table.items():
        root.add_command(_Deferred(name, module, summary))
    return root


def run(arguments: Sequence[str], program: str = "omni") -> int:
    """Run one command line and return its exit status.

    What a user can get wrong ends as a message on standard error: status 2 for a usage or
    configuration that cannot work, 1 for anything else that failed on purpose.
    """
    try:
        status = command(program).main(list(arguments), prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except UsageError as error:
        print_errors([_usage_message(error)])
        return EXIT_USAGE
    except ConfigError as error:
        print_errors(str(problem) for problem in error.problems)
        return EXIT_USAGE
    except OmniError as error:
        print_errors([str(error)])
        return EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0


def main() -> None:
    """Run the command line of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A value that the terminal cannot show is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = run(sys.argv[1:], Path(sys.argv[0]).name)
    except BrokenPipeError:
        # The reader has left, as `| head` does; the interpreter must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_FAILED
    sys.exit(status)


def _usage_message(error: UsageError) -> str:
    hint = f"\nTry '{error.ctx.command_path} --help' for help." if error.ctx else ""
    return f"{error.format_message().replace('Value error, ', '')}{hint}"
