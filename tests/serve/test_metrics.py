"""Prometheus' text format."""

from __future__ import annotations

import re

from nlpctl.serve.metrics import Counter, Gauge, Histogram, exposition, join_workers, process_metrics, snapshots

SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*\})? [-+.e0-9Inf]+')


def test_counters_by_label():
    counter = Counter("requests_total", "All\nof them.", ("path", "status"))
    counter.add(1, "/a", "200")
    counter.add(2, "/a", "200")
    counter.add(1, '/"\\\n', "404")
    assert exposition(snapshots([counter])).splitlines() == [
        r"# HELP requests_total All\nof them.",
        "# TYPE requests_total counter",
        r'requests_total{path="/\"\\\n",status="404"} 1',
        'requests_total{path="/a",status="200"} 3',
    ]
    assert counter.value("/a", "200") == 3 and counter.value("/b", "200") == 0


def test_a_counter_without_labels_starts_at_zero():
    assert exposition(snapshots([Counter("a_total", "A.")])).endswith("\na_total 0\n")
    assert exposition(snapshots([Counter("a_total", "A.", ("b",))])).endswith("# TYPE a_total counter\n")


def test_a_histogram_is_cumulative():
    histogram = Histogram("seconds", "S.", (0.1, 1, 2.5))
    for value in (0.05, 0.1, 0.2, 2.5, 99):
        histogram.observe(value)
    assert list(histogram.samples()) == [
        'seconds_bucket{le="0.1"} 2',
        'seconds_bucket{le="1"} 3',
        'seconds_bucket{le="2.5"} 4',
        'seconds_bucket{le="+Inf"} 5',
        "seconds_sum 101.85",
        "seconds_count 5",
    ]


def test_a_gauge_is_read_when_asked():
    values = iter((1, 2.5))
    gauge = Gauge("depth", "D.", lambda: next(values), {"of": "queue"})
    assert [*gauge.samples(), *gauge.samples()] == ['depth{of="queue"} 1', 'depth{of="queue"} 2.5']


def test_several_workers_have_one_help_and_a_label_each():
    counts = []
    for amount in (1, 2):
        counts.append(Counter("a_total", "A.", ("b",)))
        counts[-1].add(amount, 'c" d')
    found = {number: snapshots([counts[number], Counter("e_total", "E.")]) for number in (1, 0)}
    assert exposition(join_workers(found)).splitlines() == [
        "# HELP a_total A.",
        "# TYPE a_total counter",
        r'a_total{worker="0",b="c\" d"} 1',
        r'a_total{worker="1",b="c\" d"} 2',
        "# HELP e_total E.",
        "# TYPE e_total counter",
        'e_total{worker="0"} 0',
        'e_total{worker="1"} 0',
    ]


def test_the_process():
    lines = exposition(snapshots(process_metrics())).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == 4 and all(SAMPLE.fullmatch(line) for line in samples)
    values = dict(line.split() for line in samples)
    assert 10e6 < float(values["process_resident_memory_bytes"]) < 1e11
    assert float(values["process_start_time_seconds"]) > 1.7e9
