#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the manual: test_pages.py MAN1 MAN3 WEFT SOURCE HEADER...

Every public function is found, every option stands in the page of its subcommand, and formatters find
nothing to say. Which functions there are is read by the parser of tests/api, not by that of the pages.
"""
import json
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "api"))
import headers  # noqa: E402

man1, man3, weft, source = (pathlib.Path(argument).resolve() for argument in sys.argv[1:5])
manual = man3.parent
declared = headers.Headers(sys.argv[5:])


def shown(path):
    """A page as its reader has it, in plain text on one line."""
    text = subprocess.run(["mandoc", "-T", "ascii", "-I", "os=", path], check=True, capture_output=True, cwd=manual).stdout
    return " ".join(re.sub(rb".\x08", b"", text).decode().split())


def page_of(name):
    """The page of a name, through its link."""
    path = man3 / f"{name}.3"
    text = path.read_text()
    link = re.fullmatch(r"\.so (\S+)\n", text)
    return (manual / link.group(1)) if link else path


def sections(path):
    parts = re.split(r"^\.SH (.*)\n", path.read_text().replace("\\-", "-"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def functions_have_pages():
    wrong = []
    for function in declared.functions:
        try:
            parts = sections(page_of(function.name))
        except OSError as error:
            wrong.append(str(error))
            continue
        if not re.search(rf"\b{function.name}\b", parts["NAME"]):
            wrong.append(f"{function.name}: not in the NAME of its page")
        if not re.search(rf"\b{function.name}\(", re.sub(r"\\f[BIR]", "", parts["SYNOPSIS"])):
            wrong.append(f"{function.name}: no prototype")
        for parameter in function.parameters:
            if not re.search(rf"\b{parameter.name}\b", re.sub(r"\\f[BIR]", " ", parts["SYNOPSIS"])):
                wrong.append(f"{function.name}: no parameter {parameter.name}")
    return wrong


def pages_describe():
    return [f"{path.name}: its header says nothing of it; a comment is missing"
            for path in sorted(man3.glob("*.3"))
            if not path.read_text().startswith(".so") and not sections(path).get("DESCRIPTION")]


def types_have_pages():
    return [f"{name}: no page" for name in [*declared.structs, *declared.enums] if not (man3 / f"{name}.3").exists()]


def members_are_shown():
    wrong = []
    for name, members in declared.structs.items():
        synopsis = sections(page_of(name))["SYNOPSIS"]
        wrong += [f"{name}: no member {m.name}" for m in members if not re.search(rf"\b{m.name}\b", synopsis)]
    for name, values in declared.enums.items():
        wrong += [f"{name}: no value {v}" for v in values
                  if not v.endswith(("_MAP", "_ENUM")) and v not in page_of(name).read_text()]
    return wrong


def options_are_in_pages():
    told = subprocess.run([weft, "help", "--json"], check=True, capture_output=True, text=True).stdout
    wrong = []
    for command in map(json.loads, told.splitlines()):
        name = "weft" if command["command"] == "weft" else f"weft-{command['command']}"
        text = shown(man1 / f"{name}.1")
        for option in command["options"]:
            spelling = (f"-{option['letter']}, " if "letter" in option else "") + f"--{option['name']}"
            spelling += f" {option['value']}" if "value" in option else ""
            wrong += [f"{name}: {word} is not there" for word in [spelling, *option.get("choices", [])] if word not in text]
        words = [term["word"] for section in command["sections"] for term in section["terms"]]
        wrong += [f"{name}: {word} is not there" for word in words if word not in text]
        if name != "weft" and f"{name}(1)" not in shown(man1 / "weft.1"):
            wrong.append(f"weft.1 does not list {name}")
    return wrong


def environment_is_there():
    text = shown(man1 / "weft.1")
    names = set(re.findall(r'"(WEFT_[A-Z_]+)"', (source / "runtime/context/env.c").read_text()))
    return [f"weft.1: no {name}" for name in sorted(names) if name not in text] or ([] if names else ["no variables found"])


def formatters_are_content():
    pages = [path for path in sorted([*man1.glob("*.1"), *man3.glob("*.3")]) if not path.read_text().startswith(".so")]
    said = subprocess.run(["groff", "-man", "-ww", "-z", *pages], capture_output=True, text=True, check=False).stderr
    said += subprocess.run(["mandoc", "-T", "lint", *pages], capture_output=True, text=True, check=False).stdout
    return said.splitlines()[:20] if len(pages) > 100 else ["hardly any pages"]


def man_finds_them():
    names = ["weft", "weft-run", "weft_run_start", "weft_context_config_init", "weft_status_t", "weft_check_config"]
    return [f"man {name} finds nothing" for name in names
            if subprocess.run(["mman", "-M", manual, "-w", name], capture_output=True, check=False).returncode]


def links_lead_somewhere():
    return [f"{path.name}: {path.read_text().strip()}" for path in man3.glob("*.3")
            if path.read_text().startswith(".so") and not page_of(path.stem).is_file()]


def main():
    tests = [functions_have_pages, types_have_pages, members_are_shown, pages_describe, links_lead_somewhere,
             options_are_in_pages, environment_is_there, formatters_are_content, man_finds_them]
    print(f"1..{len(tests)}")
    for i, test in enumerate(tests, 1):
        wrong = test()
        print(f"{'not ok' if wrong else 'ok'} {i} - {test.__name__.replace('_', ' ')}")
        for line in wrong:
            print(f"# {line}")


if __name__ == "__main__":
    main()
