# SPDX-License-Identifier: BSD-3-Clause
"""A collective of your own: every rank's vector travels once around a ring, and each adds what comes by."""
import numpy
import weft

larger = weft.reduction(lambda a, b: numpy.where(abs(a) >= abs(b), a, b), name="absmax")


def ring(rank, size, op="sum", count=4):
    s = weft.Schedule(rank, size, "ring")
    x = s.slot("x", "f64", count, "inout")
    seen = s.slot("seen", "f64", size * count, "scratch")
    s.copy(seen[:count], x)
    for i in range(1, size):
        s.send(seen.at((i - 1) * count, count), (rank + 1) % size, tag=i)
        s.recv(seen.at(i * count, count), (rank - 1) % size, tag=i)
        s.reduce(op, x, x, seen.at(i * count, count))
    s.result(x, op=op)
    return s


def program(context, op):
    x = numpy.arange(4.0) * (-1) ** context.rank + context.rank
    ring(context.rank, context.size, op).commit().run(context, x=x).execute()
    return x


if __name__ == "__main__":
    assert weft.check([ring(rank, 5) for rank in range(5)])
    print("sums:           ", weft.run_local(5, program, "sum")[0])
    print("largest by size:", weft.run_local(5, program, larger)[0])
