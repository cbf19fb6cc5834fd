#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The manual's pages of the library, from the comments of its headers: api.py VERSION FOLDER HEADER...

Each group of declarations that one comment describes has a page (weft_run_start.3), each other name in it
a link to that page, and each header a page with an overview of what is in it (weft-run.3).
"""
import collections
import pathlib
import re
import shutil
import sys

import headers
import roff

WIDTH = 78
Text = collections.namedtuple("Text", "description parameters returns notes")


def read_text(comment):
    """A comment taken apart at its @param and @return."""
    description, parameters, returns, notes = [], [], [], []
    target = description
    comment = re.sub(r"@code\n(.*?)\n@endcode", lambda found: re.sub("^", "    ", found.group(1), flags=re.M), comment,
                     flags=re.S)
    for row in re.sub(r"(?<=\S) @return", "\n@return", comment).split("\n"):
        parameter = re.match(r"@param (\w+(?:, \w+)*)\s+(.*)", row)
        if parameter:
            parameters.append((parameter.group(1), [parameter.group(2)]))
            target = parameters[-1][1]
        elif row.startswith("@return"):
            returns.append(row.removeprefix("@return").strip())
            target = returns
        elif not row.strip() and target is not description:
            target = notes
            notes.append("")
        else:
            target.append(row)
    return Text("\n".join(description), [(name, " ".join(map(str.strip, rows))) for name, rows in parameters],
                " ".join(map(str.strip, returns)), "\n".join(notes))


def first_sentence(text, most=110, ends=".;:"):
    """What a page is about in one line, without what ends it."""
    words = headers.squeeze(re.sub(r"@(?:p|return) ", "", text)).replace("`", "")
    depth, end = 0, len(words)
    for at, letter in enumerate(words):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter in ends and not depth and words[at + 1:at + 2] in ("", " ") and words[at - 1:at + 1] != "..":
            end = at
            break
    sentence = words[:end]
    if len(sentence) > most:
        sentence = re.sub(r"\s*\([^)]*$|[\s,]+\S*$", "", sentence[:most])
    return sentence.strip()


# ---- declarations ----

def split_parameters(text):
    """The parameters between the outer parentheses of a prototype."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return parts + [text[start:].strip()]


def dress(declaration):
    """A parameter with its name in italics."""
    found = re.fullmatch(r"(.*?\(\*)(\w+)(\).*)|(.*?[\s*])(\w+)(\[\w*\])?", declaration)
    if not found or " " not in declaration:
        return roff.bold(declaration)
    before, name, behind = (found.group(1, 2, 3) if found.group(2) else found.group(4, 5, 6))
    return roff.bold(before) + roff.italic(name) + (roff.bold(behind) if behind else "")


def prototype(text):
    """A function, macro or type of functions, in lines that fit; the parameters below each other."""
    text = text.rstrip(";")
    opening = text.rindex("(", 0, re.search(r"\((?!\*)", text).end()) if "(" in text else -1
    if opening < 0:
        return [roff.bold(text + ";")]
    head, inside = text[:opening + 1], text[opening + 1:text.rindex(")")]
    end = ");" if not text.startswith(text[:opening]) or " " in head else ")"
    lines, width = [roff.bold(head)], len(head)
    parameters = split_parameters(inside)
    for i, parameter in enumerate(parameters):
        closing = "," if i + 1 < len(parameters) else end
        if i and width + 1 + len(parameter) + len(closing) > WIDTH:
            indent = min(len(head), WIDTH - max(map(len, parameters)) - 2)
            lines.append(" " * max(indent, 4))
            width = max(indent, 4)
        elif i:
            lines[-1] += " "
            width += 1
        lines[-1] += dress(parameter) + roff.bold(closing)
        width += len(parameter) + len(closing)
    return lines


def definition(declared):
    """A struct or enum without its comments."""
    if declared.kind == "struct":
        rows = [f"    {member};" for member, _ in declared.members]
        rows = [f"struct {declared.name} {{", *rows, "};"]
    else:
        rows = ["typedef enum {", *(f"    {member}," for member, _ in declared.members), f"}} {declared.name};"]
    return [roff.bold(row) if row.strip() else row for row in rows]


def show(declared):
    if declared.kind in ("struct", "enum"):
        return definition(declared)
    if declared.kind == "opaque":
        return [roff.bold(f"struct {declared.name};")]
    if declared.kind == "constant":
        return [roff.bold(f"#define {declared.name} {declared.text}")]
    return prototype(declared.text)


def name_of_member(declaration):
    found = re.search(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])?(?: = .*)?$", declaration)
    return found.group(1) or found.group(2)


def member_lines(declared):
    """Members that are described, each with those after it that the same comment speaks of."""
    items = []
    for declaration, comment in declared.members:
        name = name_of_member(declaration)
        if comment:
            items.append(([name], comment))
        elif items and re.search(rf"\b{name}\b", items[-1][1]):
            items[-1][0].append(name)
    lines = []
    for names, comment in items:
        body = roff.paragraphs(comment)
        lines += roff.item(", ".join(map(roff.bold, names)), [".IP" if line == ".PP" else line for line in body])
    return lines


# ---- pages ----

def tell(group, texts):
    """Description, members, parameters and what is returned of the groups of a page."""
    description, members, parameters, returns, notes = [], [], [], [], []
    for part, text in zip(group, texts):
        if text.description.strip():
            description += ([".PP"] if description else []) + roff.paragraphs(text.description)
        for declared in part.declared:
            members += member_lines(declared)
        for name, meaning in text.parameters:
            parameters += roff.item(", ".join(map(roff.italic, name.split(", "))), [roff.inline(meaning)])
        if text.returns:
            returns += ([".PP"] if returns else []) + roff.paragraphs(text.returns[0].upper() + text.returns[1:])
        if text.notes.strip():
            notes += ([".PP"] if notes else []) + roff.paragraphs(text.notes)
    if not description:
        description = returns  # all there is to say is what it returns
        returns = []
    return description, members, parameters, returns, notes


def references(parts, header, known):
    """Pages of what a page speaks of: functions in its text, structs among its parameters."""
    spoken = " ".join(part.comment + " ".join(d.text + " ".join(map(" ".join, d.members)) for d in part.declared)
                      for part in parts)
    own = {declared.name for part in parts for declared in part.declared}
    names = {name for name in re.findall(r"\bweft_\w+", spoken) if name in known} - own
    return [f"{name}(3)" for name in names] + [f"{title(header)}(3)"]


def title(header):
    return "weft" if header.name == "weft" else f"weft-{header.name}"


def write_group(parts, header, version, known):
    """The page of one group, or of a struct with what begins it."""
    names = [declared.name for part in parts for declared in part.declared]
    texts = [read_text(part.comment) for part in parts]
    description, members, parameters, returns, notes = tell(parts, texts)
    about = first_sentence(texts[0].description or texts[0].returns or names[0])
    synopsis = [".nf", roff.bold(f"#include <weft/{header.name}.h>")]
    for part in parts:
        for declared in part.declared:
            synopsis += [".PP", *show(declared)]
    kind = "VALUES" if parts[0].declared[0].kind == "enum" else "MEMBERS"
    return roff.page(names[0], 3, version, [
        ("NAME", [roff.escape(", ".join(names)) + f" \\- {roff.escape(about)}"]),
        ("SYNOPSIS", [*synopsis, ".fi"]),
        ("DESCRIPTION", description),
        ("PARAMETERS", parameters),
        (kind, members),
        ("RETURN VALUE", returns),
        ("NOTES", notes),
        ("SEE ALSO", roff.see_also(references(parts, header, known)))])


def write_header(header, pages, version, others):
    """The overview of a header: what its first comment says, and a line for each page."""
    sentence = first_sentence(header.comment, ends=".").removeprefix("weft: ")
    lines, section = [], ""
    for parts in pages:
        if parts[0].section != section:
            section = parts[0].section
            lines.append(f".SS {roff.escape(section[0].upper() + section[1:])}")
        text = read_text(parts[0].comment)
        names = [declared.name for declared in parts[0].declared]
        if parts[0].declared[0].kind == "constant":
            lines += roff.item(roff.bold(f"{names[0]} {parts[0].declared[0].text}"), roff.paragraphs(parts[0].comment))
            continue
        lines += roff.item("\n.TQ\n".join(f"{roff.bold(name)}(3)" for name in names),
                           [roff.inline(first_sentence(text.description or text.returns or names[0]) + ".")])
    package = "weft-mpi" if header.name == "mpi" else "weft"
    compile_line = [".PP", "Programs are compiled and linked with", ".PP", ".EX",
                    roff.escape(f"    cc program.c $(pkg-config --cflags --libs {package})"), ".EE"]
    also = [f"{title(other)}(3)" for other in others if other is not header] if header.name == "weft" else ["weft(3)"]
    return roff.page(title(header), 3, version, [
        ("NAME", [f"{roff.escape(title(header))} \\- {roff.escape(sentence)}"]),
        ("SYNOPSIS", [f".B #include <weft/{header.name}.h>"]),
        ("DESCRIPTION", roff.paragraphs(header.comment) + compile_line),
        ("DECLARATIONS", lines),
        ("SEE ALSO", roff.see_also(also + (["weft(1)"] if header.name == "weft" else [])))])


def gather(header):
    """The groups of each page: what begins a struct (weft_NAME_init) stands on the page of the struct."""
    pages, structs = [], {}
    for group in header.groups:
        first = group.declared[0]
        begun = re.fullmatch(r"(\w+)_init_sized", first.name)
        if begun and begun.group(1) in structs:
            structs[begun.group(1)].append(group)
            continue
        pages.append([group])
        if first.kind == "struct":
            structs[first.name] = pages[-1]
    return pages


def make(paths, version):
    """{name of a file: its text} of all pages."""
    read = [headers.read(path) for path in paths]
    pages = {header.name: gather(header) for header in read}
    known = {declared.name for name in pages for parts in pages[name] for part in parts
             for declared in part.declared if declared.kind != "constant"}
    files = {}
    for header in read:
        files[f"{title(header)}.3"] = write_header(header, pages[header.name], version, read)
        for parts in pages[header.name]:
            names = [declared.name for part in parts for declared in part.declared]
            if parts[0].declared[0].kind == "constant":
                continue
            for name in names:
                if f"{name}.3" in files:
                    raise headers.HeaderError(f"{name} is declared twice")
                files[f"{name}.3"] = f".so man3/{names[0]}.3\n"
            files[f"{names[0]}.3"] = write_group(parts, header, version, known)
    return files


def main():
    version, folder, *paths = sys.argv[1:]
    out = pathlib.Path(folder)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name, text in make(sorted(paths), version).items():
        (out / name).write_text(text)


if __name__ == "__main__":
    main()
