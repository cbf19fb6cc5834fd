#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls of every public function with NULL, as C: make_null_calls.py HEADER... > calls.c

For each function that takes pointers: a call with all of them NULL, and for each of them one in which
only that one is NULL; the others are objects of the fixture, or memory full of zeros. Numbers are 0.
"""
import re
import sys

# Further arguments of an _init.
MORE = {'weft_cost_model': ', "local"'}
# What needs types that a test of one process does not have.
LEFT_OUT = {'weft_context_create_mpi': 'tests/mpi/test_mpi_threads.c calls it'}


initialised = set()  # structs that have an _init
defined = set()  # structs that are not opaque


def read(path):
    return re.sub(r'/\*.*?\*/', '', open(path).read(), flags=re.S)


def functions(path):
    text = read(path)
    text = re.sub(r'^[ \t]*#.*(?:\\\n.*)*$', '', text, flags=re.M)
    for match in re.finditer(r'WEFT_EXPORT\s+([^;]+?)\s*\(([^;]*?)\)\s*(?:WEFT_PRINTF\([^)]*\))?;', text):
        head, arguments = (' '.join(part.split()) for part in match.groups())
        returns, name = re.fullmatch(r'(.*?)(\w+)', head).groups()
        yield returns.strip(), name, [] if arguments == 'void' else split(arguments)


def split(arguments):
    """The types of a list of parameters."""
    types = []
    for argument in arguments.split(','):
        argument = argument.strip()
        if argument == '...':
            continue
        types.append(re.sub(r'\s*\w+$', '', argument).strip() or argument)
    return types


def is_pointer(kind):
    return kind.endswith('*') or kind.endswith('_fn') or kind.endswith('const')


def valid(kind):
    """A value of a type that is not NULL."""
    struct = re.fullmatch(r'(?:const )?struct (weft_\w+) \*', kind)
    if kind.endswith('_fn'):
        return f'fixture_{kind}'
    if kind == 'const char *':
        return '"x"'
    if struct and struct.group(1) in initialised:
        return f'initialised_{struct.group(1)}()'
    if struct and struct.group(1) not in defined:
        return f'fixture_{struct.group(1)}()'
    return f'({kind})fixture_zeros()' if is_pointer(kind) else zero(kind)


def zero(kind):
    return f'({kind}){{0}}'


def call(returns, name, types, nulls):
    arguments = [('NULL' if i in nulls else valid(kind)) if is_pointer(kind) else zero(kind)
                 for i, kind in enumerate(types)]
    if name == 'weft_error_set' and 1 not in nulls:
        arguments[1] = '"%s"'
        arguments.append('"x"')
    text = f'{name}({", ".join(arguments)})'
    if returns == 'void':
        return f'{text};\n    return 0;'
    if is_pointer(returns):
        return f'use({text});\n    return 0;'
    return f'return (int64_t){text};'


def main():
    entries = []
    for path in sys.argv[1:]:
        defined.update(re.findall(r'^struct (\w+) \{', read(path), flags=re.M))
    for path in sys.argv[1:]:
        initialised.update(struct for struct in re.findall(r'\b(weft_\w+)_init\(', read(path))
                           if struct in defined)
    print('/* Written by tests/unit/whole/make_null_calls.py. */')
    for struct in sorted(initialised):
        print(f'\nstatic struct {struct} *initialised_{struct}(void)\n{{')
        print(f'    struct {struct} *memory = fixture_zeros();')
        print(f'    {struct}_init(memory{MORE.get(struct, "")});\n    return memory;\n}}')
    for path in sys.argv[1:]:
        for returns, name, types in functions(path):
            pointers = [i for i, kind in enumerate(types) if is_pointer(kind)]
            if not pointers or name in LEFT_OUT:
                continue
            cases = [(-1, pointers)]
            if len(pointers) > 1:
                cases += [(i, [i]) for i in pointers]
            for which, nulls in cases:
                function = f'call_{len(entries)}'
                print(f'\nstatic int64_t {function}(void)\n{{')
                print(f'    {call(returns, name, types, nulls)}\n}}')
                status = int(returns == 'int' and not name.endswith('_destroy'))
                entries.append(f'    {{"{name}", {which}, {status}, {function}}},')
    print('\nstatic const struct null_call null_calls[] = {')
    print('\n'.join(entries))
    print('};')


main()
