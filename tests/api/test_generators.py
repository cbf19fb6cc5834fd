#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The generators of this folder see what is new in the headers: test_generators.py HEADER...

Something is planted in a copy of the headers, and make_rules.py must fail and name it.
"""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
GUARD = "#ifdef __cplusplus\n}\n#endif\n\n#endif"

STRUCT = "struct weft_planted {\n    size_t struct_size;\n    int depth;\n};\n"
INIT = ("WEFT_EXPORT void weft_planted_init_sized(struct weft_planted *planted, size_t size);\n"
        "#define weft_planted_init(planted) weft_planted_init_sized((planted), sizeof *(planted))\n")

# (what is planted, where: a text of the header that it comes before, header, what is said)
PLANTED = [
    (STRUCT + "WEFT_EXPORT int weft_plant(const struct weft_planted *planted);\n", GUARD, "context.h",
     "weft_plant takes a struct weft_planted as `planted`"),
    (STRUCT + INIT, GUARD, "context.h", "no function and no member takes one"),
    (STRUCT, GUARD, "context.h", "no function and no member takes one"),
    ("WEFT_EXPORT int weft_plant(const struct weft_net *net);\n", GUARD, "cost.h",
     "weft_plant takes a struct weft_net as `net`"),
    ("WEFT_EXPORT int weft_get_planted(struct weft_net *net);\n", GUARD, "cost.h",
     "weft_get_planted takes a struct weft_net as `net`"),
    ("struct weft_planted;\nWEFT_EXPORT void weft_planted_destroy(struct weft_planted *planted);\n", GUARD,
     "context.h", "weft_planted_destroy ends a life"),
    ("struct weft_planted {\n    int depth;\n};\n", GUARD, "context.h",
     "struct weft_planted has no struct_size, and the lists of weft/sized.h do not say why"),
    ("    int planted;\n", "    weft_bind_t bind_helper;\n", "context.h",
     "struct weft_context_config: recipes.MEMBERS does not say which values `planted` may not have"),
    ("    double planted_us;\n", "    weft_bind_t bind_helper;\n", "context.h",
     "struct weft_context_config has times in several units: ns, us"),
    ("WEFT_EXPORT int weft_plant(uint64_t planted_ns);\n", GUARD, "context.h",
     "weft_plant takes a time as `planted_ns`"),
    ("    struct weft_net planted;\n", "    weft_bind_t bind_helper;\n", "context.h",
     "`planted` has a size and is held by value"),
    (" *     weft_planted     never there\n", " *     weft_region ", "sized.h",
     "lists struct weft_planted, which no header defines"),
    (" *     weft_net         by mistake\n", " *     weft_region ", "sized.h",
     "lists struct weft_net as frozen, and it has a struct_size"),
    ("static inline int weft_plant(void)\n{\n    return 0;\n}\n", GUARD, "context.h", "inline function"),
    ("WEFT_EXPORT extern int weft_planted;\n", GUARD, "context.h", "things are exported"),
]


def generate(folder):
    return subprocess.run([sys.executable, "-B", HERE / "make_rules.py", *sorted(folder.glob("*.h"))],
                          capture_output=True, text=True, check=False)


def try_planted(folder, planted, before, header, said):
    path = folder / header
    whole = path.read_text()
    if before not in whole:
        return f"{header} has no `{before.strip()}`"
    at = whole.rindex(before)
    path.write_text(whole[:at] + planted + whole[at:])
    done = generate(folder)
    path.write_text(whole)
    if not done.returncode:
        return f"not seen in {header}: {planted}"
    return None if said in done.stderr else f"expected `{said}`, found: {done.stderr}"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for header in sys.argv[1:]:
            (folder / pathlib.Path(header).name).write_text(pathlib.Path(header).read_text())
        done = generate(folder)
        cases = [None if not done.returncode and "Test(config" in done.stdout else done.stderr]
        cases += [try_planted(folder, *planted) for planted in PLANTED]
    print(f"1..{len(cases)}")
    for i, wrong in enumerate(cases):
        print(f"{'not ok' if wrong else 'ok'} {i + 1}")
        if wrong:
            failed = 1
            print("# " + wrong.replace("\n", "\n# "))
    return failed


if __name__ == "__main__":
    sys.exit(main())
