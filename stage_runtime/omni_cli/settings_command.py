"""A Typer command that takes dotted settings beside its own options."""

from __future__ import annotations

from collections.abc import Sequence

from typer import Context
from typer._click.core import Context as ParserContext  # Typer gives it no public name
from typer._click.shell_completion import CompletionItem
from typer.core import TyperArgument, TyperCommand, TyperOption

from omni_cli.arguments import OptionNames, Setting, separate
from omni_config.errors import ConfigError

_SETTINGS = f"{__name__}.settings"
_OPTIONS = f"{__name__}.options"


class SettingsCommand(TyperCommand):
    """Takes `--path VALUE` for any path of the pipeline, and completes such paths."""

    def parse_args(self, ctx: ParserContext, args: list[str]) -> list[str]:
        """Keep settings from the option parser; refuse an own option without its value."""
        params = self.get_params(ctx)
        options = option_names([param for param in params if isinstance(param, TyperOption)])
        arguments = [param for param in params if isinstance(param, TyperArgument)]
        found = separate(args, options, len(arguments))
        if found.problems and not ctx.resilient_parsing:
            raise ConfigError(found.problems)
        ctx.meta[_SETTINGS] = tuple(found.settings)
        ctx.meta[_OPTIONS] = options
        return super().parse_args(ctx, found.own)

    def shell_complete(self, ctx: ParserContext, incomplete: str) -> list[CompletionItem]:
        """Offer options and, in their place, settings of the pipeline or values of one."""
        # `completion` reads the settings from here, so it cannot be imported above.
        from omni_cli.completion import complete_setting

        offered = [
            CompletionItem(value, help=text)
            for value, text in complete_setting(ctx.params, settings_of(ctx), incomplete)
        ]
        return [*super().shell_complete(ctx, incomplete), *offered]


def settings_of(ctx: ParserContext | Context) -> tuple[Setting, ...]:
    """Return the settings that were typed for the command being run."""
    settings: tuple[Setting, ...] = ctx.meta.get(_SETTINGS, ())
    return settings


def options_of(ctx: ParserContext | Context) -> tuple[str, ...]:
    """Return the long spellings of the options of the command being run."""
    options: OptionNames = ctx.meta[_OPTIONS]
    return options.long


def option_names(options: Sequence[TyperOption]) -> OptionNames:
    """Return the spellings of a command's options."""
    valued: set[str] = set()
    flags: set[str] = set()
    for option in options:
        takes_value = not (option.is_flag or option.count)
        (valued if takes_value else flags).update((*option.opts, *option.secondary_opts))
    return OptionNames(frozenset(valued), frozenset(flags))
