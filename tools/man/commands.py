#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual's pages of the command and of its subcommands: commands.py WEFT VERSION FOLDER

They say what `weft help --json` does, which is the table that parses the command line.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import roff

EXIT = [("0", "Done."), ("1", "It ran, and the answer is no."),
        ("2", "Wrong usage or unreadable input; one line on standard error says which word, and what was expected.")]


def ask(weft):
    """What the command tells of itself: the whole of it first, then each subcommand."""
    told = subprocess.run([weft, "help", "--json"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def sentence(text, words=()):
    """As a sentence; what begins with one of the words that are to be typed keeps their spelling."""
    if re.match(r"[\w-]*", text).group() not in words:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "...")) else text + "."


def operand(text):
    """TEMPLATE|FILE... and [NAME] as a synopsis shows them."""
    return re.sub(r"[A-Z]+", lambda found: roff.italic(found.group()), text.replace("-", "\\-"))


def tag_of(option):
    names = [f"-{option['letter']}"] if "letter" in option else []
    names.append(f"--{option['name']}")
    value = " " + roff.italic(option["value"]) if "value" in option else ""
    return ", ".join(roff.bold(name) for name in names) + value


def option_lines(option):
    lines = [roff.inline(sentence(option["help"], option.get("choices", ())))]
    if "default" in option:
        lines.append(f"Default: {roff.bold(option['default'])}.")
    if "choices" in option:
        lines.append("One of " + ", ".join(roff.bold(word) for word in option["choices"]) + ".")
    if "among" in option:
        lines.append(f"See {roff.bold(option['among'])} above.")
    return roff.item(tag_of(option), lines)


def section_lines(section):
    lines = [f".SS {roff.escape(section['title'])}"]
    for term in section["terms"]:
        lines += roff.item(roff.bold(term["word"]), [roff.inline(sentence(term["text"]))])
    if section["closing"]:
        lines += [".PP", *roff.paragraphs(section["closing"])]
    return lines


def exit_lines():
    lines = []
    for status, text in EXIT:
        lines += roff.item(roff.bold(status), [roff.inline(text)])
    return lines


def subcommand_page(command, version):
    name = f"weft-{command['command']}"
    synopsis = [f".B weft {roff.escape(command['command'])}"]
    if command["operands"]:
        synopsis.append(operand(command["operands"]))
    synopsis.append("[\\fIoptions\\fR]")
    description = roff.paragraphs(command["about"])
    for section in command["sections"]:
        description += section_lines(section)
    options = [line for option in command["options"] for line in option_lines(option)]
    return name, roff.page(name, 1, version, [
        ("NAME", [f"{roff.escape(name)} \\- {roff.escape(command['summary'])}"]),
        ("SYNOPSIS", synopsis),
        ("DESCRIPTION", description),
        ("OPTIONS", options),
        ("EXIT STATUS", exit_lines()),
        ("SEE ALSO", roff.see_also(["weft(1)"]))])


def whole_page(whole, commands, version):
    listed, environment = [], []
    for command in commands:
        listed += roff.item(f"\\fBweft\\-{roff.escape(command['command'])}\\fR(1)",
                            [roff.inline(sentence(command["summary"]))])
    for section in whole["sections"]:
        for term in section["terms"]:
            environment += roff.item(roff.bold(term["word"]), [roff.inline(sentence(term["text"]))])
    return "weft", roff.page("weft", 1, version, [
        ("NAME", [f"weft \\- {roff.escape(whole['summary'])}"]),
        ("SYNOPSIS", [".B weft", "\\fICOMMAND\\fR [\\fIoptions\\fR]", ".br", ".B weft help",
                      "[\\fB\\-\\-json\\fR] [\\fICOMMAND\\fR]", ".br", ".B weft \\-\\-version"]),
        ("DESCRIPTION", roff.paragraphs(
            "Shows, checks, simulates, executes and measures collectives of weft(3). A subcommand has a page "
            "of its own; `weft` COMMAND `--help` is the short form of it.") + [".SS Commands", *listed]),
        ("OPTIONS", [line for option in whole["options"] for line in option_lines(option)]),
        ("EXIT STATUS", exit_lines()),
        ("ENVIRONMENT", roff.paragraphs(
            "Read by every program that links weft when it makes a context, but for the last two, which are "
            "the command's. A value that cannot be used is told of once, and ignored.") + environment),
        ("SEE ALSO", roff.see_also([f"weft-{c['command']}(1)" for c in commands] + ["weft(3)"]))])


def main():
    weft, version, folder = sys.argv[1:]
    whole, *commands = ask(weft)
    out = pathlib.Path(folder)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, text in [whole_page(whole, commands, version), *(subcommand_page(c, version) for c in commands)]:
        (out / f"{name}.1").write_text(text)


if __name__ == "__main__":
    main()
