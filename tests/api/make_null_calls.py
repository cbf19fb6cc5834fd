#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Calls of every public function with NULL, as C: make_null_calls.py HEADER... > calls.c

For each function that takes pointers: a call with all of them NULL, and for each of them one in which
only that one is NULL; the others are objects of the fixture, or memory full of zeros. Numbers are 0.
For each argument that is one of an enum: a call with values that are none of it.
"""
import re
import sys

import headers

# Further arguments of an _init.
MORE = {'weft_cost_model': ', "local"'}
# What needs types that a test of one process does not have.
LEFT_OUT = {'weft_context_create_mpi': 'tests/mpi/test_mpi_threads.c calls it',
            'weft_mpi_config_init_sized': 'that, too'}

api = None
initialised = set()  # structs that have an _init


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
    if struct and struct.group(1) in api.opaque:
        return f'fixture_{struct.group(1)}()'
    return f'({kind})fixture_zeros()' if is_pointer(kind) else zero(kind)


def zero(kind):
    return f'({kind}){{0}}'


def call(returns, name, types, given):
    """A call with what is given for some arguments, as {argument: value}, and what is valid else."""
    arguments = [given.get(i, valid(kind)) for i, kind in enumerate(types)]
    if name == 'weft_error_set' and 1 not in given:
        arguments[1] = '"%s"'
        arguments.append('"x"')
    text = f'{name}({", ".join(arguments)})'
    if returns == 'void':
        return f'{text};\n    return 0;'
    if is_pointer(returns):
        return f'use({text});\n    return 0;'
    return f'return (int64_t){text};'


def main():
    global api
    api = headers.Headers(sys.argv[1:])
    entries = []
    initialised.update(name[:-len('_init')] for name in api.macros
                       if name.endswith('_init') and name[:-len('_init')] in api.structs and
                       name + '_sized' not in LEFT_OUT)
    print('/* Written by tests/api/make_null_calls.py. */')
    for struct in sorted(initialised):
        print(f'\nstatic inline struct {struct} *initialised_{struct}(void)\n{{')
        print(f'    struct {struct} *memory = fixture_zeros();')
        print(f'    {struct}_init(memory{MORE.get(struct, "")});\n    return memory;\n}}')
    for returns, name, parameters in api.functions:
        types = [parameter.type for parameter in parameters]
        pointers = [i for i, kind in enumerate(types) if is_pointer(kind)]
        if name in LEFT_OUT:
            continue
        cases = []
        if pointers:
            cases.append(('NULL as all of its pointers', {i: 'NULL' for i in pointers}, True))
        if len(pointers) > 1:
            cases += [(f'NULL as argument {i}', {i: 'NULL'}, False) for i in pointers]
        for i, kind in enumerate(types):
            if kind in api.enums:
                cases += [(f'{value} as argument {i}', {i: f'({kind}){value}'}, True)
                          for value in (77, -1)]
        for what, given, refused in cases:
            function = f'call_{len(entries)}'
            print(f'\nstatic int64_t {function}(void)\n{{')
            print(f'    {call(returns, name, types, given)}\n}}')
            status = int(refused and returns == 'int' and not name.endswith('_destroy'))
            entries.append(f'    {{"{name}", "{what}", {status}, {function}}},')
    print('\nstatic const struct null_call null_calls[] = {')
    print('\n'.join(entries))
    print('};')


main()
