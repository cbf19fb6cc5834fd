#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the rules of weft/sized.h for every public struct and every end of a life, as C:

    make_rules.py HEADER... > rules.h

What there is to test stands in the headers: structs that carry their size, functions that take one,
functions that end a life. How each is called stands in recipes.py. What recipes.py does not know is an
error here, so that the test is complete or does not build.
"""
import pathlib
import re
import sys

import headers
import recipes
from headers import struct_of

api = None


def fail(text):
    raise SystemExit(f"make_rules.py: {text}")


def check_structs():
    """Every public struct has a size, or sized.h says why not; and it says nothing else."""
    frozen, owned = api.section("Frozen structs"), api.section("Structs of the library")
    listed = set(frozen) | set(owned)
    for name in sorted(set(api.structs) - api.sized - listed):
        fail(f"struct {name} has no struct_size, and the lists of weft/sized.h do not say why")
    for name in sorted(listed - set(api.structs)):
        fail(f"weft/sized.h lists struct {name}, which no header defines")
    for name in sorted(set(frozen) & api.sized):
        fail(f"weft/sized.h lists struct {name} as frozen, and it has a struct_size")
    for name, reason in (frozen | owned).items():
        if not reason:
            fail(f"weft/sized.h gives no reason why struct {name} has no size")
    if re.search(r"\bstatic inline\b", api.code):
        fail("a header has an inline function, which is no symbol that a binding could use")
    if api.exports() != len(api.functions):
        fail(f"{api.exports()} things are exported, of which {len(api.functions)} could be read as functions")
    return set(owned)


def check_units(struct):
    """The times of a struct are in one unit, which stands in their names."""
    units = {found.group(1) for found in (re.search(r"_(ns|us|ms|s|seconds)(_per_byte)?$", member.name)
                                          for member in api.structs[struct]) if found}
    if len(units) > 1:
        fail(f"struct {struct} has times in several units: {', '.join(sorted(units))}")


def check_by_value(struct):
    """Structs that carry their size and stand in another one by value could never grow there."""
    for member in api.structs[struct]:
        found = re.fullmatch(r"struct (weft_\w+)", member.type)
        if found and found.group(1) in api.sized and member is not api.structs[struct][-1]:
            fail(f"struct {struct}: `{member.name}` has a size and is held by value, so it cannot grow")


# ---- what is wrong for a member ----


def is_number(kind):
    return re.fullmatch(r"(u?int\d*|u?int\d+_t|size_t|unsigned|double|float|weft_(node|slot|value)_t|struct weft_\w+)",
                        kind)


def wrong_values(struct, member):
    """Values that a member must not have, in C."""
    if member.type in api.enums:
        names = api.enums[member.type]
        count = [name for name in names if name.endswith("_COUNT")]
        return [count[0] if count else f"{names[-1]} + 1", "77", "-1"]
    if not is_number(member.type):
        return []
    values = recipes.MEMBERS.get(struct, {}).get(member.name)
    if values is None:
        fail(f"struct {struct}: recipes.MEMBERS does not say which values `{member.name}` may not have")
    if values is recipes.UNLISTED:
        return ["1"]
    return values


def told_as(struct, member, value):
    """What the error text names, and how it writes the value: a format and an argument."""
    if recipes.MEMBERS.get(struct, {}).get(member.name) is recipes.UNLISTED:
        first = member.name.removesuffix("_count")
        lists = [m.name for m in api.structs[struct] if m.name.startswith(first) and "*" in m.type]
        if len(lists) != 1:
            fail(f"struct {struct}: cannot tell which list `{member.name}` counts")
        return lists[0], '"NULL"'
    return member.name, shown(member.type, value)


def shown(kind, value):
    """How the error text writes a value: a format and an argument."""
    if value in ("WEFT_NEVER", "WEFT_NS_NONE"):
        return f'"{value}"'
    if kind == "double":
        return f'"%g", (double)({value})'
    if kind == "unsigned":
        return f'"0x%x", (unsigned)({value})'
    if kind in ("size_t", "uint64_t"):
        return f'"%llu", (unsigned long long)({value})'
    return f'"%d", (int)({value})'


# ---- the tests ----


def edges(struct):
    """Where older versions of a struct may have ended."""
    members = api.structs[struct]
    return ", ".join(f"offsetof(struct {struct}, {member.name}) + sizeof((({'struct ' + struct} *)0)->{member.name})"
                     for member in members[1:])


def make_init(name, struct):
    more = recipes.MORE.get(struct, "")
    macro = name.removesuffix("_sized")
    if macro not in api.macros:
        fail(f"{name} has no macro {macro}")
    print(f"""
static void init_{struct}(void *object, size_t size)
{{
    {name}(object, size{more});
}}

Test(init, {struct})
{{
    static const size_t edges[] = {{{edges(struct)}}};
    struct {struct} object;

    check_init("{name}", init_{struct}, sizeof object, edges, COUNT_OF(edges));
    memset(&object, 0xA5, sizeof object);
    {macro}(&object{more});
    cr_assert_eq(object.struct_size, sizeof object);
}}""")


def make_config(function, argument, struct, body, member=None):
    """The tests of one struct that a function reads; member: of the configuration that points to it."""
    test = f"{function}__{argument}" + (f"__{member}" if member else "")
    shown_as = argument + (f"->{member}" if member else "")
    speaks_as = recipes.SPEAKS_AS.get(function, function)
    needed = recipes.NEEDED.get(struct, {})
    names = [m.name for m in api.structs[struct]]
    least_of = recipes.NEEDED_BY.get(function, needed)
    for name in needed:
        if name not in names:
            fail(f"recipes.NEEDED: struct {struct} has no `{name}`")
    last = max(least_of, key=names.index) if needed else names[1]
    least = f"offsetof(struct {struct}, {last}) + sizeof((({'struct ' + struct} *)0)->{last})" if needed else "0"
    print(f"""
static int call_{test}(const void *given)
{{
    const struct {struct} *p = given;

    {body}
}}

static void begin_{test}(void *object)
{{
    struct {struct} *p = object;

    (void)p;""")
    for name, value in needed.items():
        print(f"    p->{name} = {value};")
    print(f"""}}

Test(config, {test})
{{
    static const size_t edges[] = {{{edges(struct)}}};
    const struct config_rule rule = {{
        .function = "{function}",
        .speaks_as = "{speaks_as}",
        .argument = "{shown_as}",
        .size = sizeof(struct {struct}),
        .least = {least},
        .edges = edges,
        .edge_count = COUNT_OF(edges),
        .begin = begin_{test},
        .call = call_{test},
    }};

    api_begin();
    check_config(&rule);
    api_end();
}}""")
    cases = [(m, value) for m in api.structs[struct][1:] for value in wrong_values(struct, m)
             if m.name not in recipes.NOT_LOOKED_AT.get(function, ())]
    if not cases:
        return
    print(f"""
Test(member, {test})
{{
    const struct config_rule rule = {{
        .function = "{function}", .speaks_as = "{speaks_as}", .argument = "{shown_as}", .call = call_{test}}};
    struct {struct} object;

    api_begin();""")
    for m, value in cases:
        cast = f"({m.type})({value})" if m.type in api.enums else value
        name, text = told_as(struct, m, value)
        print(f"""    weft_sized_init(&object, sizeof object);
    begin_{test}(&object);
    object.{m.name} = {cast};
    check_member(&rule, &object, "{name}", {text});""")
    print("    api_end();\n}")


def make_filled(function, argument, struct, body, member=None):
    test = f"{function}__{argument}" + (f"__{member}" if member else "")
    shown_as = argument + (f"->{member}" if member else "")
    print(f"""
static int fill_{test}(void *given)
{{
    struct {struct} *p = given;

    {body}
}}

Test(filled, {test})
{{
    static const size_t edges[] = {{{edges(struct)}}};
    const struct filled_rule rule = {{
        .function = "{function}",
        .argument = "{shown_as}",
        .size = sizeof(struct {struct}),
        .edges = edges,
        .edge_count = COUNT_OF(edges),
        .reads = {int(function in recipes.READ_TOO)},
        .fill = fill_{test},
    }};

    api_begin();
    check_filled(&rule);
    api_end();
}}""")


def make_end(function):
    kind = function.parameters[-1].type
    if function.name not in recipes.ENDS:
        fail(f"{function.name} ends a life, and recipes.ENDS does not know it")
    create, others, *before = recipes.ENDS[function.name]
    call = f"{function.name}({', '.join(before + ['object'])})"
    collective = function.name in recipes.COLLECTIVE
    if function.returns != ("int" if collective else "void"):
        fail(f"{function.name} returns {function.returns}; expected int of what recipes.COLLECTIVE "
             "has, and void of all else")
    plain = kind.replace("const ", "")
    end = f"return {call};" if collective else f"{call};\n    return WEFT_OK;"
    print(f"""
static int make_for_{function.name}(void *out)
{{
    {plain}*made = out;

    return {create};
}}

static int end_by_{function.name}(void *object)
{{
    {end}
}}

Test(end, {function.name})
{{
    api_begin();
    check_end("{function.name}", make_for_{function.name}, end_by_{function.name});
    api_end();
}}""")
    for other in others:
        print(f"""
Test(end, {other})
{{
    api_begin();
    {other}();
    api_end();
}}""")


def make_time(function, parameter):
    if (parameter.type != "uint64_t" or not re.search(r"(^|_)ns$", parameter.name)
            or function.name.startswith("weft_sized_")):
        return
    body = recipes.TIMES.get(function.name)
    if not body:
        fail(f"{function.name} takes a time as `{parameter.name}`, and recipes.TIMES does not know it")
    print(f"""
static int wait_{function.name}(uint64_t ns)
{{
    {body}
}}

Test(time, {function.name})
{{
    api_begin();
    check_time("{function.name}", "{parameter.name}", wait_{function.name});
    api_end();
}}""")


def make_parameter(function, parameter, owned):
    """The tests of one parameter. Returns the struct that it takes, if that carries its size."""
    for const, table, name in ((True, recipes.CONFIGS, "CONFIGS"), (False, recipes.FILLED, "FILLED")):
        struct = struct_of(parameter.type, const)
        if struct not in api.sized or struct in owned:
            continue
        if function.name in recipes.ELSEWHERE:
            return struct
        body = table.get(function.name, {}).get(parameter.name)
        if not body:
            fail(f"{function.name} takes a struct {struct} as `{parameter.name}`, and recipes.{name} "
                 "does not say how it is called")
        if not const:
            make_filled(function.name, parameter.name, struct, body)
            return struct
        make_config(function.name, parameter.name, struct, body)
        make_pointed(function, parameter, struct)
        return struct
    return None


def make_pointed(function, parameter, struct):
    """The tests of structs that a configuration points to."""
    for member in api.structs[struct]:
        inner = struct_of(member.type, True)
        if inner in api.sized:
            needed = "".join(f"    outer.{name} = {value};\n"
                             for name, value in recipes.NEEDED.get(struct, {}).items())
            make_config(function.name, parameter.name, inner,
                        f"struct {struct} outer = {{.struct_size = sizeof outer, .{member.name} = p}};\n\n"
                        f"{needed}    return call_{function.name}__{parameter.name}(&outer);", member.name)
        inner = struct_of(member.type, False)
        if inner in api.sized:
            body = recipes.FILLED.get(f"{function.name}/{member.name}", {}).get(parameter.name)
            if not body:
                fail(f"{function.name} fills a struct {inner} that {parameter.name}->{member.name} "
                     "points to, and recipes.FILLED does not say how")
            make_filled(function.name, parameter.name, inner, body, member.name)


def main():
    global api
    api = headers.Headers(sys.argv[1:])
    owned = check_structs()
    print("/* Written by tests/api/make_rules.py. */")
    taken, read, begun = set(), set(), set()
    for struct in api.structs:
        check_by_value(struct)
        check_units(struct)
        for member in api.structs[struct]:
            taken |= {struct_of(member.type, True), struct_of(member.type, False)}
    for function in api.functions:
        if function.name.endswith("_init_sized"):
            struct = struct_of(function.parameters[0].type, False)
            begun.add(struct)
            if function.name not in recipes.ELSEWHERE:
                make_init(function.name, struct)
            continue
        if re.search(r"_(destroy|free)$", function.name):
            make_end(function)
        for parameter in function.parameters:
            make_time(function, parameter)
            struct = make_parameter(function, parameter, owned)
            taken.add(struct)
            if struct_of(parameter.type, True):
                read.add(struct)
    for struct in sorted(api.sized - taken - owned):
        fail(f"struct {struct} carries its size, and no function and no member takes one")
    for struct in sorted(filter(None, read - begun)):
        fail(f"struct {struct} is read by functions, and has no _init_sized")
    for name, path in recipes.ELSEWHERE.items():
        if name.removesuffix("_sized") not in (pathlib.Path(__file__).parents[2] / path).read_text():
            fail(f"recipes.ELSEWHERE says that {path} tests {name}, and it does not")
    names = {function.name for function in api.functions}
    known = [set(table) for table in (recipes.CONFIGS, recipes.FILLED, recipes.ENDS, recipes.ELSEWHERE,
                                   recipes.TIMES)]
    for name in sorted(set().union(*known)):
        if name.split("/")[0] not in names:
            fail(f"recipes.py knows {name}, which no header declares")
    for struct, members in recipes.MEMBERS.items():
        for member in members:
            if member not in [m.name for m in api.structs.get(struct, [])]:
                fail(f"recipes.MEMBERS knows `{member}` of struct {struct}, which has none")


if __name__ == "__main__":
    try:
        main()
    except headers.HeaderError as error:
        fail(str(error))
