#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What shells complete: test_completion.py FOLDER, where `weft`, `_weft` and `weft.fish` are."""
import os
import pathlib
import subprocess
import sys
import tempfile

folder = pathlib.Path(sys.argv[1])

DRIVER = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_weft
printf '%s\\n' "${COMPREPLY[@]}"
"""

# words up to the cursor (the last is what has been typed of it), what must be offered, what must not
CASES = [
    ("weft ", "info list dump check run sim groups trace post-mortem profile merge bench train help", "allreduce"),
    ("weft du", "dump", "check"),
    ("weft help gr", "groups", "list"),
    ("weft dump ", "allreduce broadcast ring.weft", "group-average --rank"),
    ("weft dump allr", "allreduce", "allgather"),
    ("weft dump allreduce --", "--rank --format --count --define --json --help", "--iterations"),
    ("weft dump allreduce -", "-r -n -h --algo", "-i"),
    ("weft dump allreduce --format ", "text json dot goal html", "yaml allreduce"),
    ("weft dump allreduce -f h", "html", "text"),
    ("weft run allreduce --dtype b", "bf16", "f32"),
    ("weft run allreduce --op ", "sum band", "add"),
    ("weft run allreduce --algo r", "ring recursive-doubling", "binomial"),
    ("weft run --algo b", "binomial bruck", "ring"),
    ("weft run allreduce --count ", "", "allreduce ring.weft"),
    ("weft run allreduce --cost ri", "ring.weft", "ring"),
    ("weft list ", "allreduce group-average", "ring.weft"),
    ("weft bench ", "nodes growth", "allgather ring.weft"),
    ("weft merge ", "resnet50 bert-base ring.weft", "allreduce"),
    ("weft merge resnet50 --method g", "greedy", "exact"),
    ("weft trace ", "ring.weft", "allreduce"),
    ("weft groups ", "", "allreduce ring.weft"),
    ("weft profile --pmpi al", "always", "auto"),
    ("weft profile ", "ring.weft", "allreduce"),
    ("weft launch ", "ring.weft", "allreduce"),
    ("weft train --algorithm w", "wagma", "local"),
    ("weft train --algorithm local,w", "local,wagma", "wagma"),
    ("weft train --transport ", "local virtual", "text"),
]
# readline gives `--format=h` as three words
SPLIT = (["weft", "dump", "--format", "=", "h"], ["html"])


def in_bash(words, there):
    done = subprocess.run(["bash", "-c", DRIVER, "bash", folder / "weft", *words], cwd=there, capture_output=True,
                          text=True, check=False)
    return set(done.stdout.split()), done.stderr


def in_fish(line, there):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {folder / 'weft.fish'}; complete -C '{line}'"], cwd=there,
                          capture_output=True, text=True, check=False)
    return {row.split("\t")[0] for row in done.stdout.splitlines()}, done.stderr


def judge(found, expected, unexpected):
    offered, said = found
    wrong = [f"{word} is not offered" for word in expected if word not in offered]
    wrong += [f"{word} is offered" for word in unexpected if word in offered]
    return wrong + ([said] if said else [])


def fish_case(line, expected, unexpected, there):
    # all algorithms are offered there, and of options only those that the typed dashes allow
    if "--algo r" in line or line.endswith(" -") or "local,w" in line:
        return []
    return judge(in_fish(line, there), expected.split(), unexpected.split())


def syntax(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if not done.returncode and not done.stderr else [f"exit {done.returncode}: {done.stderr}"]


# Completes in a terminal of its own, and says what the line is then; what goes wrong stands before it.
ZSH = """
zmodload zsh/zpty
zpty terminal zsh -f
zpty -w terminal "fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D; cd $2"
zpty -w terminal 'told() { zle complete-word; print -r -- "<$BUFFER>" }; zle -N told; bindkey "^T" told; print REA""DY'
zpty -r terminal said '*READY*'
zpty -w -n terminal "$3"$'\\x14'
zpty -r terminal said '*<*>*'
print -r -- "$said"
"""

# a line, and what it becomes
ZSH_CASES = [("weft du", "weft dump "), ("weft dump allr", "weft dump allreduce "), ("weft dump ri", "weft dump ring.weft "),
             ("weft run allreduce --iter", "weft run allreduce --iterations="),
             ("weft dump allreduce --format=h", "weft dump allreduce --format=html "),
             ("weft train --algorithm=loc", "weft train --algorithm=local,"), ("weft bench gro", "weft bench growth "),
             ("weft list group-av", "weft list group-average ")]


def zsh_case(line, whole, there):
    script = ZSH.replace("\\x14", "\x14")
    done = subprocess.run(["zsh", "-f", "-c", script, "zsh", folder.resolve(), there, line], capture_output=True, text=True,
                          check=False, env={**os.environ, "TERM": "dumb"}, timeout=60)
    return [] if f"<{whole}>" in done.stdout and "bad option" not in done.stdout else [done.stdout + done.stderr]


def zsh_loads():
    script = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; [[ $_comps[weft] == _weft ]] && autoload +X _weft"
    return syntax(["zsh", "-f", "-c", script])


def main():
    with tempfile.TemporaryDirectory() as there:
        (pathlib.Path(there) / "ring.weft").write_text("")
        results = []
        for line, expected, unexpected in CASES:
            words = line.split(" ")
            results.append((f"bash: {line}", judge(in_bash(words, there), expected.split(), unexpected.split())))
            results.append((f"fish: {line}", fish_case(line, expected, unexpected, there)))
        results.append(("bash: --format=h", judge(in_bash(SPLIT[0], there), SPLIT[1], [])))
        results += [(f"zsh: {line}", zsh_case(line, whole, there)) for line, whole in ZSH_CASES]
        results += [("bash: syntax", syntax(["bash", "-n", folder / "weft"])),
                    ("zsh: syntax", syntax(["zsh", "-n", folder / "_weft"])),
                    ("zsh: compinit finds it", zsh_loads()),
                    ("fish: syntax", syntax(["fish", "--no-execute", folder / "weft.fish"]))]
    print(f"1..{len(results)}")
    for i, (name, wrong) in enumerate(results, 1):
        print(f"{'not ok' if wrong else 'ok'} {i} - {name.replace('#', '')}")
        for text in wrong:
            print("# " + text.strip().replace("\n", "\n# "))


if __name__ == "__main__":
    main()
