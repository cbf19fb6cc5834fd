#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What compiled programs rely on: abi.py check|write BUILD SOURCE

`write` puts it down in abi.txt, at a release: functions with the version of their symbols, sizes of structs
and offsets of members, values of enums. `check` compares a build with it: nothing of it may vanish or move.
Functions, members at the end and enumerators may be added; frozen structs (weft/sized.h) stay as they are.
And libraries show what headers declare, no less and no more.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "api"))
import headers  # noqa: E402

LIST = HERE / "abi.txt"
HEAD = "# Made by tests/install/abi.py write, at a release. LP64.\n"


def exported(library):
    """{name: version} of the public symbols of a library; private ones are for its companions."""
    told = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {name: version for name, version in re.findall(r" T (\w+)@@(WEFT_\w[\w.]*)$", told, flags=re.M)
            if version != "WEFT_PRIVATE"}


def compiled(declared, mpi, build, source):
    """Sizes, offsets and values, as a compiler has them."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <weft/weft.h>"] + ["#include <weft/mpi.h>"] * mpi
    lines += ["#define SIZE(s) printf(\"struct %s %zu\\n\", #s, sizeof(struct s))",
              "#define MEMBER(s, m) printf(\"member %s.%s %zu\\n\", #s, #m, offsetof(struct s, m))",
              "#define VALUE(v) printf(\"value %s %d\\n\", #v, (int)(v))", "int main(void)", "{"]
    for name, members in sorted(declared.structs.items()):
        lines.append(f"SIZE({name});")
        lines += [f"MEMBER({name}, {member.name});" for member in members]
    enumerators = {value for values in declared.enums.values() for value in values if not value.endswith(("_MAP", "_ENUM"))}
    maps = re.findall(r"^#define WEFT_\w+_MAP\(X\)((?:.*\\\n)*.*)", declared.documented, flags=re.M)
    enumerators |= {value for text in maps for value in re.findall(r"X\((WEFT_\w+)", text)}
    # how many there are grows
    lines += [f"VALUE({value});" for value in sorted(enumerators) if not value.endswith("_COUNT")] + ["return 0;", "}"]
    flags = subprocess.run(["pkg-config", "--cflags", "weft-mpi" if mpi else "weft"], check=True, capture_output=True,
                           text=True, env={"PKG_CONFIG_PATH": f"{build}/meson-uninstalled", "PATH": "/usr/bin:/bin"})
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "abi"
        program.with_suffix(".c").write_text("\n".join(lines) + "\n")
        subprocess.run(["cc", program.with_suffix(".c"), "-o", program, *flags.stdout.split()], check=True, cwd=source)
        told = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return told.splitlines()


def look(build, source):
    """(lines of the list, what is wrong between headers and libraries)."""
    mpi = (build / "libweft-mpi.so").exists()
    paths = [path for path in sorted((source / "include/weft").glob("*.h")) if mpi or path.name != "mpi.h"]
    declared = headers.Headers([*paths, build / "include/weft/version.h"])
    symbols = exported(build / "libweft.so")
    if mpi:
        symbols.update(exported(build / "libweft-mpi.so"))
    names = {function.name for function in declared.functions}
    wrong = [f"{name} is declared and not exported" for name in sorted(names - set(symbols))]
    wrong += [f"{name} is exported and in no header" for name in sorted(set(symbols) - names)]
    lines = [f"function {name} {version}" for name, version in sorted(symbols.items())]
    return lines + compiled(declared, mpi, build, source), wrong, declared.section("Frozen structs")


def compare(before, now, frozen):
    """What programs that were compiled before would run into."""
    found = dict(line.rsplit(" ", 1) for line in now)
    for line in before:
        what, value = line.rsplit(" ", 1)
        kind, name = what.split(" ")
        if what not in found:
            yield f"{what} is not there any more"
        elif kind == "struct" and name not in frozen:
            if int(found[what]) < int(value):
                yield f"{what} has {found[what]} bytes, it had {value}"
        elif found[what] != value:
            yield f"{what} is {found[what]}, it was {value}"


def main():
    mode, build, source = sys.argv[1], *map(pathlib.Path, sys.argv[2:4])
    now, wrong, frozen = look(build, source)
    if mode == "write":
        LIST.write_text(HEAD + "\n".join(now) + "\n")
        return 0
    before = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    if not (build / "libweft-mpi.so").exists():
        before = [line for line in before if "mpi" not in line]
    wrong += compare(before, now, frozen)
    # The comparison itself: what it is to see, planted.
    planted = [("function weft_planted WEFT_0.2", "not there any more"), ("struct weft_region 1", "it was 1"),
               ("member weft_run_config.user 1", "it was 1"), ("value WEFT_ERR_STATE 3", "it was 3"),
               ("struct weft_run_config 100000", "it had 100000")]
    for line, said in planted:
        if said not in "".join(compare([line], now, frozen)):
            wrong.append(f"planted and not seen: {line}")
    for line in wrong:
        print(line)
    return 1 if wrong or len(before) < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
