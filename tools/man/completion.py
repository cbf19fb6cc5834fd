#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a shell completes of the command: completion.py WEFT FOLDER

Writes weft (for bash), _weft (zsh) and weft.fish from what `weft help --json` and `weft list --json` say.
"""
import json
import pathlib
import subprocess
import sys

import commands


def quote(text):
    """A word of a shell, in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


class Words:
    """What may stand where: the tables of the command with what each value may be."""

    def __init__(self, weft):
        told = subprocess.run([weft, "list", "--json"], check=True, capture_output=True, text=True).stdout
        listed = [json.loads(line) for line in told.splitlines()]
        self.names = [entry["name"] for entry in listed]
        self.templates = [entry["name"] for entry in listed if entry["kind"] == "template"]
        self.algorithms = {entry["name"]: [algorithm["name"] for algorithm in entry["algorithms"]] for entry in listed}
        self.whole, *self.commands = commands.ask(weft)

    def all_algorithms(self):
        return sorted({name for names in self.algorithms.values() for name in names})

    def among(self, command, title):
        return next(([term["word"] for term in section["terms"]] for section in command["sections"]
                     if section["title"] == title), [])

    def operands(self, command):
        """(words, whether files too) of what is no option."""
        if command["operands_among"]:
            return self.among(command, command["operands_among"]), "FILE" in command["operands"]
        if command["operands"].startswith("TEMPLATE"):
            return self.templates, True
        if command["operands"].startswith(("FILE", "PROGRAM")):
            return [], True
        return (self.names if command["operands"] else []), False

    def value(self, command, option):
        """What the value of an option is, (kind, words); None: it takes none."""
        if "value" not in option:
            return None
        if "choices" in option:
            return "words", option["choices"]
        if "among" in option:
            return "list", self.among(command, option["among"]) + ["all"]
        if option["name"] == "algo":
            return "algorithm", self.all_algorithms()
        if option["kind"] == "file" or option["value"].startswith("FILE"):
            return "file", []
        return ("folder" if option["value"] == "DIR" else "any"), []


def spelled(option):
    return [f"--{option['name']}"] + ([f"-{option['letter']}"] if "letter" in option else [])


# ---- bash ----

BASH = """\
# bash completion for weft, made by the build    -*- shell-script -*-

# What may follow option $2 of command $1: its kind, then words.
_weft_value()
{
    case "$1 $2" in
@VALUES@
    esac
}

_weft_options()
{
    case $1 in
@OPTIONS@
    esac
}

# What may stand for an operand of command $1: `files` or `-`, then words.
_weft_operands()
{
    case $1 in
@OPERANDS@
    esac
}

_weft_algorithms()
{
    local word
    for word in "${COMP_WORDS[@]}"; do
        case $word in
@ALGORITHMS@
        esac
    done
    echo @ALL@
}

_weft()
{
    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} words kind rest prefix=

    COMPREPLY=()
    # readline cuts --option=value at the sign
    if [[ $current == = ]]; then
        current=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@" -- "$current")
        return
    fi
    if [[ $command == help ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--json @SUBCOMMANDS@" -- "$current")
        return
    fi
    read -r kind rest < <(_weft_value "$command" "$before")
    case $kind in
    words) words=$rest ;;
    algorithm) words=$(_weft_algorithms) ;;
    list)
        [[ $current == *,* ]] && prefix=${current%,*},
        words=$rest
        compopt -o nospace 2>/dev/null
        ;;
    file | folder)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen "$([[ $kind == file ]] && echo -f || echo -d)" -- "$current")
        return
        ;;
    any) return ;;
    *)
        if [[ $current == -* ]]; then
            words=$(_weft_options "$command")
        else
            read -r kind words < <(_weft_operands "$command")
            if [[ $kind == files ]]; then
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
            fi
        fi
        ;;
    esac
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "${current##*,}")
}
complete -F _weft weft
"""


def bash(words):
    values, options, operands = [], [], []
    for command in words.commands:
        name = command["command"]
        for option in command["options"]:
            value = words.value(command, option)
            if value:
                patterns = " | ".join(f'"{name} {spelling}"' for spelling in spelled(option))
                listed = [] if value[0] == "algorithm" else value[1]
                values.append(f"    {patterns}) echo {' '.join([value[0], *listed])} ;;")
        spellings = " ".join(spelling for option in command["options"] for spelling in spelled(option))
        options.append(f"    {name}) echo '{spellings}' ;;")
        named, files = words.operands(command)
        operands.append(f"    {name}) echo {' '.join(['files' if files else '-', *named])} ;;")
    algorithms = [f"        {name}) echo {' '.join(found)}; return ;;" for name, found in words.algorithms.items()]
    subcommands = " ".join(command["command"] for command in words.commands)
    return (BASH.replace("@VALUES@", "\n".join(values)).replace("@OPTIONS@", "\n".join(options))
            .replace("@OPERANDS@", "\n".join(operands)).replace("@ALGORITHMS@", "\n".join(algorithms))
            .replace("@ALL@", " ".join(words.all_algorithms()))
            .replace("@COMMANDS@", f"{subcommands} help --help --version").replace("@SUBCOMMANDS@", subcommands))


# ---- zsh ----

def zsh_text(text):
    for letter in "\\[]:":
        text = text.replace(letter, "\\" + letter)
    return text


def zsh_action(value):
    kind, words = value
    action = {"file": "_files", "folder": "_files -/", "any": " ",
              "list": f"_sequence compadd - {' '.join(words)}"}.get(kind)
    return action or f"({' '.join(words)})"


def zsh_options(words, command):
    specs = []
    for option in command["options"]:
        spellings = spelled(option)
        value = words.value(command, option)
        again = "*" if option["name"] == "define" else f"({' '.join(spellings)})" if len(spellings) > 1 else ""
        names = "{" + ",".join(name + ("=" if value and name[1] == "-" else "") for name in spellings) + "}" \
            if len(spellings) > 1 else spellings[0] + ("=" if value else "")
        tail = f":{zsh_text(option['value'])}:{zsh_action(value)}" if value else ""
        text = quote(f"[{zsh_text(option['help'])}]{tail}")
        specs.append((quote(again) if again else "") + names + text)
    named, files = words.operands(command)
    if files:
        # the blank keeps _arguments from putting options of its own behind the first word
        specs.append(quote(f"*:{zsh_text(command['operands'])}: _alternative 'words:word:({' '.join(named)})' 'files:file:_files'"))
    elif named:
        specs.append(quote(f"1:{zsh_text(command['operands'])}:({' '.join(named)})"))
    return specs


def zsh(words):
    lines = ["#compdef weft", "# zsh completion for weft, made by the build", "", "_weft() {",
             "    local context state line", "    typeset -A opt_args", "    local -a commands", "    commands=("]
    lines += [f"        {quote(c['command'] + ':' + zsh_text(c['summary']))}" for c in words.commands]
    lines += ["        'help:describes a command'", "    )",
              "    _arguments -C '(- *)'{-h,--help}'[what there is]' '(- *)'{-V,--version}'[the version]' \\",
              "        '1:command:->command' '*::argument:->argument'",
              "    case $state in", "    command) _describe command commands ;;", "    argument)",
              "        case $words[1] in",
              "        help) _arguments '--json[as JSON]' '1:command:->command' && _describe command commands ;;"]
    for command in words.commands:
        lines.append(f"        {command['command']})")
        lines.append("            _arguments \\")
        lines += [f"                {spec} \\" for spec in zsh_options(words, command)]
        lines.append("                && return ;;")
    return "\n".join(lines + ["        esac ;;", "    esac", "}", "", '_weft "$@"']) + "\n"


# ---- fish ----

def fish(words):
    lines = ["# fish completion for weft, made by the build", "complete -c weft -f",
             "complete -c weft -n __fish_use_subcommand -s h -l help -d 'what there is'",
             "complete -c weft -n __fish_use_subcommand -s V -l version -d 'the version'",
             "complete -c weft -n __fish_use_subcommand -a help -d 'describes a command'",
             "complete -c weft -n '__fish_seen_subcommand_from help' -a "
             + quote(" ".join(command["command"] for command in words.commands))]
    for command in words.commands:
        name = command["command"]
        lines.append(f"complete -c weft -n __fish_use_subcommand -a {name} -d {quote(command['summary'])}")
        seen = f"complete -c weft -n '__fish_seen_subcommand_from {name}'"
        for option in command["options"]:
            value = words.value(command, option)
            line = f"{seen} -l {option['name']}" + (f" -s {option['letter']}" if "letter" in option else "")
            if value:
                kind, listed = value
                line += {"file": " -rF", "folder": " -xa '(__fish_complete_directories)'", "any": " -x"}.get(kind) \
                    or f" -xa {quote(' '.join(listed))}"
            lines.append(f"{line} -d {quote(option['help'])}")
        named, files = words.operands(command)
        if named:
            lines.append(f"{seen} -a {quote(' '.join(named))}")
        if files:
            lines.append(f"{seen} -F")
    return "\n".join(lines) + "\n"


def main():
    weft, folder = sys.argv[1:]
    words = Words(weft)
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, shell in {"weft": bash, "_weft": zsh, "weft.fish": fish}.items():
        (out / name).write_text(shell(words))


if __name__ == "__main__":
    main()
