"""`lengthwise completion`: completion of commands and options for a shell."""

import argparse
from collections.abc import Iterator

from lengthwise.cli.command import Command, Parser, command

# Where no word fits, the shell completes names of files.
BASH = """# lengthwise completion bash > ~/.local/share/bash-completion/completions/lengthwise
_lengthwise() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
    if [ "$COMP_CWORD" = 1 ]; then words="{commands}"; fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _lengthwise lengthwise
"""
ZSH = """#compdef lengthwise
# lengthwise completion zsh > a directory of $fpath, as _lengthwise
autoload -U bashcompinit && bashcompinit
{bash}"""
FISH = "# lengthwise completion fish > ~/.config/fish/completions/lengthwise.fish\n"


@command
class Completion(Command):
    """Print a script that lets a shell complete commands and options."""

    name = "completion"
    example = "lengthwise completion bash > ~/.local/share/bash-completion/completions/lengthwise"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.cli.main import build_parser
        from lengthwise.training import keys

        words = dict(find_words(build_parser()))
        for name in ("train", "sweep", "extend"):  # they take the keys of an experiment, too
            words[name,] = [*words[name,], *(f"--{key.name}" for key in keys.all_keys())]
        print(SCRIPTS[chosen.shell](words), end="")


def find_words(
    parser: argparse.ArgumentParser, names: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """What can follow each command: its options, or its subcommands."""
    words: list[str] = []
    for action in parser._actions:
        words += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            words += action.choices
            for name, inner in action.choices.items():
                yield from find_words(inner, (*names, name))
        elif action.choices and not action.option_strings:
            words += map(str, action.choices)
    yield names, words


def write_bash(words: dict[tuple[str, ...], list[str]]) -> str:
    """A case for each command; subcommands come first, because they have two words."""
    cases = []
    for names in sorted(words, key=len, reverse=True):
        if names:
            pattern = '"' + " ".join(names) + '"' + ("" if len(names) > 1 else '" "*')
            distinct = " ".join(dict.fromkeys(words[names]))
            cases.append(f'        {pattern}) words="{distinct}" ;;')
    commands = " ".join(words[()])
    return BASH.format(cases="\n".join(cases), commands=commands)


def write_zsh(words: dict[tuple[str, ...], list[str]]) -> str:
    return ZSH.format(bash=write_bash(words))


def write_fish(words: dict[tuple[str, ...], list[str]]) -> str:
    lines = [FISH]
    for names, known in words.items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {name}" for name in names)
        condition = f"-n '{seen or '__fish_use_subcommand'}'"
        for word in dict.fromkeys(known):
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c lengthwise {condition} {what}\n")
    return "".join(lines)


SCRIPTS = {"bash": write_bash, "zsh": write_zsh, "fish": write_fish}
