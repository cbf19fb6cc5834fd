# SPDX-License-Identifier: BSD-3-Clause
"""Whether a Chrome trace is one that Perfetto shows as it was meant.

usage: check_trace.py FILE [--ranks P] [--complete]

--ranks     the trace is of ranks 0 .. P - 1
--complete  every message has both its ends: each receive has an arrow, and so has each send

Spans nest within a thread, arrows begin and end inside spans of the right kind, times ascend, processes
and threads have names, and the nodes of a run lie within it.
"""
import argparse
import json
from collections import defaultdict
from decimal import Decimal


def nanoseconds(value):
    scaled = Decimal(value) * 1000
    assert scaled == int(scaled), f'{value} is no whole number of nanoseconds'
    return int(scaled)


def check_names(events, spans):
    named = {(e['name'], e['pid'], e['tid']) for e in events if e['ph'] == 'M'}
    for span in spans:
        assert ('process_name', span['pid'], 1) in named, span
        assert ('process_sort_index', span['pid'], 1) in named, span
        assert ('thread_name', span['pid'], span['tid']) in named, span
        assert ('thread_sort_index', span['pid'], span['tid']) in named, span


def check_order(events):
    last = 0
    for event in events:
        if event['ph'] != 'M':
            ts = nanoseconds(event['ts'])
            assert ts >= last, f'time goes back at {event}'
            last = ts


def check_nesting(spans):
    threads = defaultdict(list)
    for span in spans:
        start = nanoseconds(span['ts'])
        assert nanoseconds(span['dur']) >= 0, span
        threads[span['pid'], span['tid']].append((start, -nanoseconds(span['dur']), span))
    for thread in threads.values():
        open_until = []
        for start, minus, span in sorted(thread, key=lambda entry: entry[:2]):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or start - minus <= open_until[-1], f'overlaps: {span}'
            open_until.append(start - minus)
    return threads


def holder(threads, arrow):
    """The innermost span of the arrow's thread that holds its time."""
    at = nanoseconds(arrow['ts'])
    found = [span for start, minus, span in threads[arrow['pid'], arrow['tid']]
             if start <= at < start - minus]
    assert found, f'not inside a span: {arrow}'
    return found[-1]


def check_arrows(events, threads):
    ends = defaultdict(dict)
    for event in events:
        if event['ph'] in 'sf':
            key = event['id'], event['cat'], event['name']
            assert event['ph'] not in ends[key], f'twice: {event}'
            ends[key][event['ph']] = event
    joined = set()
    for key, pair in ends.items():
        assert set(pair) == {'s', 'f'}, f'arrow {key} has one end'
        assert pair['f'].get('bp') == 'e', pair
        assert nanoseconds(pair['s']['ts']) <= nanoseconds(pair['f']['ts']), f'goes back: {pair}'
        send, receive = holder(threads, pair['s']), holder(threads, pair['f'])
        assert (send['cat'], receive['cat']) in (('send', 'recv'), ('signal', 'event')), pair
        left, right = send['args'], receive['args']
        for field in ('object', 'version', 'tag', 'channel', 'plan'):
            assert left.get(field) == right.get(field), (field, left, right)
        assert left['peer'] == right['rank'] and right['peer'] == left['rank'], (left, right)
        if send['cat'] == 'send':
            assert left['bytes'] == right['bytes'], (left, right)
            joined.update((id(send), id(receive)))
    return joined


def check_runs(spans):
    runs = {}
    for span in spans:
        if span['args']['kind'] == 'run':
            runs[span['pid'], span['args'].get('object'), span['args']['version']] = span
    for span in spans:
        if span['args']['kind'] == 'run':
            continue
        run = runs[span['pid'], span['args'].get('object'), span['args']['version']]
        start = nanoseconds(run['ts'])
        # a message that took no time is drawn 1 ns long
        assert start <= nanoseconds(span['ts']), (run, span)
        assert nanoseconds(span['ts']) + nanoseconds(span['dur']) <= \
            start + nanoseconds(run['dur']) + 1, (run, span)
        assert run['args']['plan'] == span['args']['plan'], (run, span)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('file')
    parser.add_argument('--ranks', type=int)
    parser.add_argument('--complete', action='store_true')
    options = parser.parse_args()
    with open(options.file, encoding='utf-8') as file:
        document = json.load(file, parse_float=Decimal)
    events = document['traceEvents']
    spans = [event for event in events if event['ph'] == 'X']
    assert spans, 'no span'
    for event in events:
        assert event['pid'] >= 1 and event['tid'] >= 1, event
    for span in spans:
        for field in ('rank', 'kind', 'plan', 'version', 'bytes'):
            assert field in span['args'], span
        assert span['args']['kind'] == span['cat'], span
    check_names(events, spans)
    check_order(events)
    threads = check_nesting(spans)
    joined = check_arrows(events, threads)
    check_runs(spans)
    if options.ranks:
        ranks = {span['args']['rank'] for span in spans}
        assert ranks == set(range(options.ranks)), ranks
        assert all(span['pid'] == span['args']['rank'] + 1 for span in spans)
    if options.complete:
        for span in spans:
            if span['cat'] in ('send', 'recv') and span['args']['peer'] >= 0 and \
                    'end' not in span['args']:
                assert id(span) in joined, f'no arrow: {span}'


main()
