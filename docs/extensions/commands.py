"""Directive `commands`: the `--help` text of every command as a section."""

from pages import Written

from sampler.command_line import make_parser


class Commands(Written):
    """A section for each command."""

    def run(self) -> list:
        (commands,) = (
            a
            for a in make_parser()._actions
            if hasattr(a, "choices") and isinstance(a.choices, dict)
        )
        summaries = {action.dest: action.help for action in commands._choices_actions}
        return [
            self.section(
                name,
                [
                    f"To {summaries[name]}.",
                    "",
                    "```text",
                    *parser.format_help().splitlines(),
                    "```",
                ],
            )
            for name, parser in commands.choices.items()
        ]


def setup(app) -> dict:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
