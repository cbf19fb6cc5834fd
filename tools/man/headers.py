# SPDX-License-Identifier: BSD-3-Clause
"""The public headers with their comments: what is declared, in groups that one comment describes."""
import dataclasses
import pathlib
import re

TOKEN = re.compile(r"(?P<comment>/\*.*?\*/)|(?P<directive>^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$)|(?P<blank>\n[ \t]*\n)|(?P<space>\s+)"
                   r"|(?P<code>[^/#\s](?:[^;{/]|/(?!\*))*(?P<end>[;{]))", re.S | re.M)
MACRO = re.compile(r"#\s*define (\w+)(\([^)]*\))?[ \t]*(.*)", re.S)


class HeaderError(Exception):
    """A header that cannot be read."""


@dataclasses.dataclass
class Declared:
    """Something with a name: kind is function, macro, struct, opaque, enum, type or constant."""
    kind: str
    name: str
    text: str
    members: list = dataclasses.field(default_factory=list)  # (declaration, comment), structs and enums


@dataclasses.dataclass
class Group:
    """What one comment describes; the page is called as the first of it."""
    comment: str
    declared: list
    section: str = ""


@dataclasses.dataclass
class Header:
    name: str  # "run" for weft/run.h
    comment: str
    groups: list


def plain(comment):
    """A comment's text without its stars; what is indented in it stays so."""
    body = re.sub(r"^/\*+<?|\*/$", "", comment)
    rows = body.split("\n")
    rows = [rows[0].strip()] + [re.sub(r"^[ \t]*\*? ?", "", row).rstrip() for row in rows[1:]]
    return "\n".join(rows).strip("\n")


def squeeze(text):
    return " ".join(text.split())


def without_comments(text):
    return squeeze(re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


def matching(text, start):
    """Where the brace that opens at @p start closes; comments hold none that count."""
    depth, at = 0, start
    while at < len(text):
        if text.startswith("/*", at):
            at = text.index("*/", at) + 2
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
        at += 1
    raise HeaderError("a brace is never closed")


def read_members(body, separator):
    """(declaration, comment) of each member; a comment stands before it, or behind with a `<`."""
    members, comment = [], ""
    pattern = rf"/\*.*?\*/|(?:[^{separator}/(]|\([^)]*\))+{separator}?"
    for part in re.findall(pattern, body, flags=re.S):
        if part.startswith("/**<"):
            members[-1] = (members[-1][0], plain(part))
        elif part.startswith("/*"):
            comment = plain(part)
        elif squeeze(part).strip(separator):
            members.append((squeeze(part).rstrip(separator).strip(), comment))
            comment = ""
    return members


def expand_map(code, maps):
    """Enumerators of an X macro: what its use and the two directives around it stand for."""
    def one(found):
        return "".join(f"/** {', '.join(rest)} */ {name},\n" for name, *rest in maps[found.group(1)])
    code = re.sub(r"^[ \t]*#.*$", "", code, flags=re.M)
    return re.sub(r"(WEFT_\w+_MAP)\(\w+\)", one, code)


def read_map(text):
    """The entries of an X macro: lists of its arguments."""
    entries = re.findall(r"\bX\(((?:[^()\"]|\"[^\"]*\")*)\)", text.split(")", 1)[1].replace("\\\n", " "))
    return [[word.strip() for word in re.findall(r'"[^"]*"|[^,]+', entry) if word.strip()] for entry in entries]


def enum_members(code, maps):
    body = code[code.index("{") + 1:code.rindex("}")]
    return read_members(expand_map(body, maps), ",")


def declare(code, maps):
    """What a declaration declares; None: nothing that is public."""
    head = without_comments(code.split("{")[0] if "{" in code else code)
    if head.startswith("WEFT_EXPORT"):
        text = re.sub(r"\s*WEFT_PRINTF\([^)]*\)", "", squeeze(code)).removeprefix("WEFT_EXPORT ")
        return Declared("function", re.search(r"(\w+)\s*\(", text).group(1), text)
    if head.startswith("typedef enum"):
        return Declared("enum", re.search(r"(\w+);$", code.strip()).group(1), "", enum_members(code, maps))
    if head.startswith("typedef"):
        name = re.search(r"\(\*(\w+)\)|(\w+);$", head)
        return Declared("type", name.group(1) or name.group(2), without_comments(code))
    if head.startswith("struct") and "{" in code:
        body = code[code.index("{") + 1:code.rindex("}")]
        return Declared("struct", head.split()[1], "", read_members(body, ";"))
    if head.startswith("struct"):
        return Declared("opaque", head.rstrip(";").split()[1], head)
    return None


def define(text, maps):
    """What a #define defines; None: nothing that is public."""
    name, arguments, value = MACRO.match(text.strip()).groups()
    if name.endswith("_MAP"):
        maps[name] = read_map(text)
        return None
    if name.endswith(("_H", "_ENUM", "_EXPORT", "_PRINTF")) or not name.lower().startswith("weft_") or (not arguments and not value):
        return None
    if not arguments:
        return Declared("constant", name, squeeze(value.replace("\\\n", " ")))
    return Declared("macro", name, name + arguments) if name.islower() else None


def tokens(text, name):
    """(kind, text) of comments, directives, declarations and empty lines."""
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise HeaderError(f"{name}: cannot read `{text[at:at + 60]}`")
        end = found.end()
        if found.lastgroup == "code":
            code = found.group("code")
            if 'extern "C"' not in code and code.endswith("{"):
                end = text.index(";", matching(text, found.end() - 1)) + 1
            if 'extern "C"' in code:
                yield "blank", ""
            else:
                yield "code", text[at:end]
        elif not found.group("space"):
            yield found.lastgroup, found.group()
        at = end


def read(path):
    """Reads a header into groups of what is declared together."""
    text = re.sub(r"^\}$", "", pathlib.Path(path).read_text(), flags=re.M)
    text = re.sub(r"^#ifdef __cplusplus\n.*?#endif$", "", text, flags=re.M | re.S)
    header = Header(pathlib.Path(path).stem, "", [])
    maps, comment, joined, section = {}, "", False, ""
    for kind, part in tokens(text, path):
        declared = None
        if kind == "blank":
            joined = False
            continue
        if kind == "comment":
            heading = re.match(r"/\* ---- (.*) ---- \*/", part)
            if "@file" in part:
                header.comment = plain(part).replace("@file\n", "", 1)
            elif heading:
                section, comment = heading.group(1), ""
            elif "SPDX" not in part:
                comment, joined = plain(part), False
            continue
        if kind == "directive" and re.match(r"\s*#\s*define", part):
            declared = define(part, maps)
            if not declared:
                continue  # what is said of a list goes for the enum that it makes
        elif kind == "code":
            declared = declare(part, maps)
        if not declared or (declared.kind == "opaque" and not comment):
            comment = ""
            continue
        if joined and not comment:
            header.groups[-1].declared.append(declared)
        else:
            header.groups.append(Group(comment, [declared], section))
        comment, joined = "", True
    return header
