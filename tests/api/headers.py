# SPDX-License-Identifier: BSD-3-Clause
"""What the public headers declare: functions, structs, enums. The tests of this folder are made of it."""
import collections
import pathlib
import re

Function = collections.namedtuple("Function", "returns name parameters")  # parameters: [Member]
Member = collections.namedtuple("Member", "type name")


class HeaderError(Exception):
    """A declaration that this parser cannot read."""


def squeeze(text):
    return " ".join(text.split())


def split(declaration):
    """A parameter or member as its type and its name; an array has the type of its elements."""
    found = re.fullmatch(r"(.*?)(\w+)(?:\[\w+\])?", declaration)
    if not found or not found.group(1).strip():
        raise HeaderError(f"cannot read the declaration `{declaration}`")
    return Member(found.group(1).strip(), found.group(2))


def read_members(struct, body):
    members = []
    for declaration in filter(None, map(squeeze, body.split(";"))):
        function = re.match(r".*?\(\*(\w+)\)\(.*\)$", declaration)
        if function:
            members.append(Member("function *", function.group(1)))
            continue
        try:
            first, *more = declaration.split(", ")
            members.append(split(first))
            members += [Member(members[-1].type, split("x " + name).name) for name in more]
        except HeaderError as error:
            raise HeaderError(f"struct {struct}: {error}") from None
    return members


class Headers:
    def __init__(self, paths):
        self.documented = "".join(pathlib.Path(path).read_text() for path in paths)
        text = re.sub(r"/\*.*?\*/", " ", self.documented, flags=re.S)
        self.macros = set(re.findall(r"^#\s*define (\w+)\(", text, flags=re.M))
        self.code = re.sub(r"^[ \t]*#.*(?:\\\n.*)*$", "", text, flags=re.M)
        self.structs = {name: read_members(name, body) for name, body in re.findall(
            r"^struct (weft_\w+) \{(.*?)\n\};", self.code, flags=re.M | re.S)}
        self.enums = {name: re.findall(r"\bWEFT_\w+", body) for body, name in re.findall(
            r"^typedef enum \w+ \{(.*?)\} (\w+);", self.code, flags=re.M | re.S)}
        self.functions = list(self.find_functions())
        self.opaque = set(re.findall(r"^struct (weft_\w+);", self.code, flags=re.M)) - set(self.structs)
        self.sized = {name for name, members in self.structs.items()
                      if members and members[0] == Member("size_t", "struct_size")}

    def find_functions(self):
        for match in re.finditer(
                r"WEFT_EXPORT\s+([^;]+?)\s*\(([^;]*?)\)\s*(?:WEFT_PRINTF\([^)]*\))?;", self.code):
            head, arguments = map(squeeze, match.groups())
            returns, name = re.fullmatch(r"(.*?)(\w+)", head).groups()
            parameters = [split(argument) for argument in arguments.split(", ")
                          if argument not in ("void", "...")]
            yield Function(returns.strip(), name, parameters)

    def exports(self):
        """How often something is exported: each must be a function that was read."""
        return len(re.findall(r"\bWEFT_EXPORT\b", self.code))

    def section(self, title):
        """{name: text} of a list of structs in a comment: `title` and a line for each."""
        found = re.search(rf"^ \* {title}\b(?:.*\n \*)?.*:\n \*\n((?: \*     .*\n)+)",
                          self.documented, flags=re.M)
        entries, name = {}, None
        for line in found.group(1).splitlines() if found else []:
            start = re.match(r" \*     (weft_\w+)\s+(.*)", line)
            if start:
                name = start.group(1)
            entries[name] = (entries.get(name, "") + " " + (start.group(2) if start else line[2:].strip())).strip()
        return entries


def struct_of(kind, const):
    """The struct that a type points to, if it is const, or not; None for any other type."""
    found = re.fullmatch(r"(const )?struct (weft_\w+) \*", kind)
    return found.group(2) if found and bool(found.group(1)) == const else None
