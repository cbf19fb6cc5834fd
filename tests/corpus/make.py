#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the corpus of broken schedules: good ones, as `weft dump` writes them, with one thing changed.

    make.py WEFT DIRECTORY    writes DIRECTORY/*.weft and DIRECTORY/manifest.json

The manifest says of each file the kind of the fault that must be found, and the ranks that it must
name; with "exact", no others. What is expected follows from what is changed here, not from what the
checker answers."""

import json
import re
import subprocess
import sys

weft, directory = sys.argv[1], sys.argv[2]
manifest = []


class Schedule:
    """The text of all ranks' schedules, a list of lines a rank."""

    def __init__(self, text):
        self.head, *parts = re.split(r'^rank \d+ \{\n', text, flags=re.M)
        self.ranks = [part[:part.index('\n}')].split('\n') for part in parts]

    def text(self, without=-1):
        return self.head + '\n'.join('rank %d {\n%s\n}\n' % (r, '\n'.join(lines))
                                     for r, lines in enumerate(self.ranks) if r != without)

    def line(self, rank, node):
        for i, line in enumerate(self.ranks[rank]):
            if re.match(r'  n%d( "[^"]*")?:' % node, line):
                return i
        raise KeyError((rank, node))

    def change(self, rank, node, old, new):
        """Replaces a piece of the line of a node: exactly one."""
        i = self.line(rank, node)
        line = self.ranks[rank][i]
        assert line.count(old) == 1, (rank, node, old, line)
        self.ranks[rank][i] = line.replace(old, new)

    def change_all(self, rank, old, new):
        text = '\n'.join(self.ranks[rank])
        assert old in text, (rank, old)
        self.ranks[rank] = text.replace(old, new).split('\n')

    def replace(self, rank, node, statement):
        """Another node in the place of one: numbers stay."""
        self.ranks[rank][self.line(rank, node)] = '  n%d: %s' % (node, statement)

    def drop(self, rank, node):
        """The node does nothing any more; what it waited for is still waited for."""
        after = re.search(r' after .*', self.ranks[rank][self.line(rank, node)])
        self.replace(rank, node, 'join' + (after.group() if after else ''))

    def add(self, rank, statement):
        results = [i for i, line in enumerate(self.ranks[rank]) if line.startswith('  result')]
        self.ranks[rank].insert(results[0] if results else len(self.ranks[rank]), '  ' + statement)


def dump(*words):
    return Schedule(subprocess.run([weft, 'dump', *words], check=True, capture_output=True,
                                   text=True).stdout)


def case(name, kind, ranks, schedule, exact=True):
    text = schedule if isinstance(schedule, str) else schedule.text()
    with open('%s/%s.weft' % (directory, name), 'w') as file:
        file.write(text)
    manifest.append({'file': name + '.weft', 'kind': kind, 'ranks': ranks, 'exact': exact})


def edit(name, kind, ranks, words, *changes, exact=True):
    schedule = dump(*words)
    for method, *arguments in changes:
        getattr(schedule, method)(*arguments)
    case(name, kind, ranks, schedule, exact)


ring = ['allreduce', '--algo', 'ring', '-n', '4', '--count', '8']
ring3 = ['allreduce', '--algo', 'ring', '-n', '3', '--count', '6']
doubling = ['allreduce', '--algo', 'recursive-doubling', '-n', '8', '--count', '16']
doubling6 = ['allreduce', '--algo', 'recursive-doubling', '-n', '6', '--count', '4']
halving = ['allreduce', '--algo', 'reduce-scatter-allgather', '-n', '4', '--count', '8']
tree = ['broadcast', '--algo', 'binomial', '-n', '9', '--count', '5']
chain = ['broadcast', '--algo', 'chain', '-n', '5', '--count', '12', '--segment', '16']
reduce = ['reduce', '--algo', 'binomial', '-n', '7', '--count', '3', '--root', '2']
gather = ['gather', '--algo', 'linear', '-n', '4', '--count', '2', '--root', '0']
scatter = ['scatter', '--algo', 'linear', '-n', '5', '--count', '2', '--root', '0']
alltoall = ['alltoall', '--algo', 'linear', '-n', '3', '--count', '2']
allgather = ['allgather', '--algo', 'ring', '-n', '5', '--count', '2']
pairwise = ['reduce-scatter', '--algo', 'pairwise', '-n', '3', '--count', '2']
barrier = ['barrier', '-n', '5']
activation = ['activation', '-n', '4']

# ---- cycles ----

edit('cycle-two', 'cycle', [1], ring, ('change', 1, 1, ' tag 0', ' tag 0 after n2'))
edit('cycle-three', 'cycle', [0], ring3, ('change', 0, 1, ' tag 0', ' tag 0 after n3'))
edit('cycle-long', 'cycle', [6], doubling, ('change', 6, 1, ' tag 0', ' tag 0 after n8'))
edit('cycle-itself', 'cycle', [2], tree, ('change', 2, 0, ' tag 0', ' tag 0 after n0'))
edit('cycle-any', 'cycle', [2], reduce, ('change', 2, 0, ' tag 0', ' tag 0 after any n1'))

# ---- matches ----

edit('match-drop-receive', 'match', [2, 3], ring, ('drop', 3, 1))
edit('match-drop-send', 'match', [0, 1], ring, ('drop', 0, 0))
edit('match-tag-send', 'match', [4, 5], doubling, ('change', 4, 0, 'tag 0', 'tag 3'))
edit('match-tag-receive', 'match', [0, 1], halving, ('change', 0, 1, 'tag 0', 'tag 9'))
edit('match-peer-send', 'match', [0, 1, 2], gather, ('change', 2, 0, 'to 0', 'to 1'))
edit('match-peer-receive', 'match', [0, 1, 2], allgather, ('change', 2, 1, 'from 1', 'from 0'))
edit('match-duplicate-send', 'match', [1], ring3, ('add', 1, 'send send[0:1] to 2 tag 0'))
edit('match-duplicate-receive', 'match', [0], scatter,
     ('add', 0, 'recv recv from 1 tag 5'), ('add', 0, 'recv recv from 1 tag 5'))
edit('match-swapped-tags', 'match', [0, 1], chain,
     ('change', 1, 0, 'tag 0', 'tag 99'))
edit('match-signal-missing', 'match', [2], activation, ('drop', 0, 4))
edit('match-signal-astray', 'match', [1, 3], activation, ('change', 1, 4, 'channel 1', 'channel 7'))
case('match-rank-missing', 'match', [4], dump(*tree).text(without=4))

# ---- sizes and datatypes ----

edit('size-send-short', 'size', [0, 1], ring, ('change', 0, 0, 'send[0:2]', 'send[0:1]'))
edit('size-receive-short', 'size', [0, 3], tree, ('change', 3, 0, '[0:5]', '[0:4]'))
edit('size-receive-long', 'size', [0, 1], alltoall, ('change', 1, 1, '[0:2]', '[0:3]'))
edit('size-datatype', 'size', [3, 4], tree, ('change_all', 4, 'buffer f32', 'buffer i32'))
edit('size-up-to', 'size', [0, 1], gather, ('change', 0, 0, 'recv recv[2:4]', 'recv up to recv[2:3]'))

# ---- deadlock ----

exchange = '''weft 1
schedule "crossing" size %d

%s'''


def crossing(size, order):
    """Every rank sends around a ring and receives, one after the other."""
    ranks = ''
    for r in range(size):
        ranks += '''rank %d {
  input send f32 4
  output recv f32 4
  n0: %s
  n1: %s after n0
  result recv[0:4] = send[0:4] from rank %d
}
''' % (r, *order(r, 'send send[0:4] to %d' % ((r + 1) % size),
               'recv recv[0:4] from %d' % ((r - 1) % size)), (r - 1) % size)
    return exchange % (size, ranks)


case('deadlock-crossing-2', 'deadlock', [0, 1], crossing(2, lambda r, s, v: (s, v)))
case('deadlock-crossing-7', 'deadlock', list(range(7)), crossing(7, lambda r, s, v: (s, v)))
case('deadlock-receive-first', 'deadlock', [0, 1, 2], crossing(3, lambda r, s, v: (v, s)))
edit('deadlock-doubling', 'deadlock', [2, 3], doubling,
     ('change', 2, 1, ' tag 0', ' tag 0 after n0'), ('change', 3, 1, ' tag 0', ' tag 0 after n0'))
edit('deadlock-ring', 'deadlock', [0, 1, 2, 3], ring,
     *[('change', r, 1, ' tag 0', ' tag 0 after n0') for r in range(4)])
edit('deadlock-pair', 'deadlock', [0, 1], alltoall,
     ('change', 0, 3, ' tag 0', ' tag 0 after n0'), ('change', 1, 1, ' tag 0', ' tag 0 after n2'))
edit('deadlock-not-reached', 'deadlock', [1], activation,
     ('change', 3, 4, 'after any n0, n1', 'after any n0'))
edit('deadlock-retired', 'deadlock', [0, 1], activation,
     ('add', 0, 'scratch byte u8 1'), ('add', 1, 'scratch byte u8 1'),
     ('add', 0, 'n5: send byte to 1 after n0'), ('add', 1, 'n5: recv byte from 0'), exact=False)

# ---- races ----

edit('race-receive-reduce', 'race', [2], ring, ('change', 2, 2, ' after n1', ''))
edit('race-reduce-send', 'race', [0], ring, ('change', 0, 3, ' after n2', ''))
edit('race-send-receive', 'race', [3], ring, ('change', 3, 12, ' after n3', ''))
edit('race-shared-scratch', 'race', [1], ring, ('change', 1, 4, 'tmp[16:18]', 'tmp[0:2]'),
     ('change', 1, 5, 'tmp[16:18]', 'tmp[0:2]'))
edit('race-forward', 'race', [1], chain, ('change', 1, 1, ' after n0', ''))
edit('race-tree', 'race', [3], tree, ('change', 3, 1, ' after n0', ''))
edit('race-any', 'race', [2], reduce, ('change', 2, 3, 'after n1, n2', 'after any n1, n2'))
edit('race-outputs', 'race', [0], gather, ('change', 0, 1, 'recv[4:6]', 'recv[3:5]'))

# ---- results ----

edit('result-offset-send', 'result', [0, 1, 2, 3], ring,
     ('change', 0, 0, 'send[0:2]', 'send[1:3]'))
edit('result-places', 'result', [1], alltoall, ('change', 1, 1, '[0:2]', '[4:6]'),
     ('change', 1, 3, '[4:6]', '[0:2]'), exact=False)
edit('result-own-missing', 'result', [0, 1, 2, 3], ring,
     ('change', 2, 2, 'reduce sum recv[2:4] = tmp[0:2], send[2:4]', 'copy recv[2:4] = tmp[0:2]'))
edit('result-own-twice', 'result', [0, 1, 2], ring3,
     ('change', 1, 2, 'tmp[0:2], send[0:2]', 'send[0:2], send[0:2]'))
edit('result-wrong-op', 'result', [1, 3, 5, 7], doubling,
     ('change', 5, 2, 'reduce sum', 'reduce max'), exact=False)
edit('result-statement', 'result', [4], tree, ('change_all', 4, 'from rank 0', 'from rank 3'),
     exact=False)
edit('result-block', 'result', [2], scatter, ('change', 0, 1, 'send[4:6]', 'send[2:4]'), exact=False)
edit('result-other-op', 'result', [2], reduce,
     ('change_all', 2, 'sum of send[0:3]', 'max of send[0:3]'), exact=False)
edit('result-output', 'result', [1], allgather,
     ('change_all', 1, 'output recv f32 10', 'output recv f32 12'))
edit('result-undefined', 'result', [1], pairwise,
     ('change_all', 1, 'scratch tmp f32', 'scratch never f32 2\n  scratch tmp f32'),
     ('change', 1, 4, 'tmp[0:2]', 'never[0:2]'))

# ---- joins, and counts that are known only while it runs ----

joined = '''weft 1
schedule "joined" size 3

rank 0 {
  output out i32 4
  n0: recv out[0:2] from 1
  n1: recv out[2:4] from 2
  n2: join after n0, n1
  n3: send out to 1 tag 1 after n2
  n4: send out to 2 tag 1 after n2
  result out[0:2] = send[0:2] from rank 1
  result out[2:4] = send[0:2] from rank 2
}
rank 1 {
  input send i32 2
  output out i32 4
  n0: send send to 0
  n1: recv out from 0 tag 1
  result out[0:2] = send[0:2] from rank 1
  result out[2:4] = send[0:2] from rank 2
}
rank 2 {
  input send i32 2
  output out i32 4
  n0: send send to 0
  n1: recv out from 0 tag 1
  result out[0:2] = send[0:2] from rank 1
  result out[2:4] = send[0:2] from rank 2
}
'''

case('race-join-half', 'race', [0], joined.replace('join after n0, n1', 'join after n0'))
case('race-join-removed', 'race', [0], joined.replace('tag 1 after n2', 'tag 1', 1))
case('race-join-any', 'race', [0], joined.replace('join after n0', 'join after any n0'))
case('deadlock-join', 'deadlock', [0, 1],
     joined.replace('n0: send send to 0', 'n0: send send to 0 after n1', 1))

values = '''weft 1
schedule "some" size 2

rank 0 {
  input data f32 8
  value some max 8
  n0: send data[0:8 count some] to 1
}
rank 1 {
  output out f32 8
  scratch in f32 8
  value came max 8
  n0: recv up to in[0:8] from 0 gives came
  n1: copy out[0:8 count came] = in[0:8 count came] after n0
}
'''

case('size-value-exact', 'size', [0, 1],
     values.replace('recv up to in[0:8] from 0 gives came', 'recv in[0:8] from 0'))
case('result-value-beyond', 'result', [1],
     values.replace('out[0:8 count came] = in[0:8 count came]', 'out[0:8] = in[0:8]'))
case('size-value-capacity', 'size', [0, 1], values.replace('recv up to in[0:8]', 'recv up to in[0:7]'))

with open(directory + '/manifest.json', 'w') as file:
    json.dump(manifest, file, indent=1)
    file.write('\n')
print(len(manifest), 'schedules')
