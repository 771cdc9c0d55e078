"""Every verb of the command line, as `mixveil --help` groups them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import typer
from docs.generate.markdown import code, escaped, span

from mixveil.cli.main import VERBS, app


def commands() -> str:
    """All verbs, each with its help, its arguments and its options."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="mixveil")
    if not isinstance(root, click.Group):
        raise TypeError(f"mixveil is no group of verbs, but a {type(root).__name__}")
    parts = []
    for panel in dict.fromkeys(verb.panel for verb in VERBS.values()):
        parts.append(f"## {panel}")
        for name, verb in VERBS.items():
            command = root.get_command(context, name)
            if verb.panel == panel and command is not None:
                parts += _told(command, context, name, 3)
    return "\n\n".join(parts)


def _told(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name)
    yield f"{'#' * level} {context.command_path}"
    yield escaped(_plain(command.help or ""))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from _told(found, context, inner, level + 1)
        return
    yield code(f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}")
    shown = [line for parameter in command.params if (line := _parameter(parameter, context))]
    if shown:
        yield "\n".join(shown)


def _parameter(parameter: click.Parameter, context: click.Context) -> str:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return ""
    metavar = parameter.make_metavar(context)
    if isinstance(parameter, click.Option):
        flag = parameter.is_flag or parameter.count
        names = "/".join([*parameter.opts, *parameter.secondary_opts])
        named = names if flag else f"{names} {metavar}"
    else:
        named = metavar
    about = escaped(_plain(getattr(parameter, "help", None) or ""))
    return f"- {span(named)}{' (required)' if _must(parameter) else ''}: {about}{_default(parameter)}"


def _must(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Option) and parameter.required


def _default(parameter: click.Parameter) -> str:
    default = parameter.default
    if default is None or default is False or default == () or callable(default) or parameter.required:
        return ""
    return f" Default: {span(str(default))}."


def _plain(text: str) -> str:
    """Without the marks of rich."""
    return re.sub(r"\[/?(?:bold|dim|red|green|yellow|cyan|italic)?\]", "", text)
