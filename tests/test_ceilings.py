"""What a device can do at most, from the sentinels of a run."""

import json

import pytest
import synthetic

from collector.history.load import load_history
from collector.history.model import Ceilings
from tests.test_history import SMALL, files_of, rewritten


@pytest.fixture
def data(tmp_path):
    synthetic.build(tmp_path, commits=2, replicates=2, **SMALL)
    return tmp_path


def test_failed_sentinel_is_told(data):
    def failing(lines):
        for line in lines:
            value = json.loads(line)
            if value.get("name") == "gemm-bf16":
                value.pop("latency")
                value |= {"status": "oom", "reason": "planted"}
            yield json.dumps(value)

    rewritten(files_of(data)[0], failing)
    history = load_history(data)
    assert "gemm-bf16: oom: planted" in history.problems[0].message
    assert "bf16" not in next(iter(history.ceilings.values())).gemm_flops_per_s


def test_ceilings_are_work_over_time_of_the_best_phase(data):
    history = load_history(data)
    ceilings = next(iter(history.ceilings.values()))
    card = synthetic.H200
    assert ceilings.copy_bytes_per_s == pytest.approx(card.bytes_per_s, rel=0.01)
    assert ceilings.l2_bytes_per_s == pytest.approx(card.l2_bytes_per_s, rel=0.01)
    assert ceilings.fp32_flops_per_s == pytest.approx(card.flops_per_s, rel=0.01)
    assert ceilings.special_ops_per_s == pytest.approx(card.special_per_s, rel=0.01)
    assert ceilings.gemm_flops_per_s["bf16"] == pytest.approx(6.8e14, rel=0.01)
    assert ceilings.floor_graph_ns == pytest.approx(card.floor_graph_ns, rel=0.01)
    assert ceilings.floor_call_ns == pytest.approx(card.floor_call_ns, rel=0.01)


def test_ceiling_is_that_of_the_best_phase_and_the_middle_replicate(data):
    scaled(files_of(data)[0], "copy", {"before": 1.0, "between": 0.5, "after": 2.0})
    ceilings = next(iter(load_history(data).ceilings.values()))
    assert ceilings.copy_bytes_per_s == pytest.approx(2 * synthetic.H200.bytes_per_s, rel=0.01)


def scaled(path, name, factors):
    def change(lines):
        for line in lines:
            value = json.loads(line)
            if value.get("name") == name:
                times = value["latency"]
                factor = factors[value["phase"]]
                times |= {n: t * factor for n, t in times.items() if n.endswith("_ns")}
            yield json.dumps(value)

    rewritten(path, change)


def test_floor_is_the_median_of_all_phases_not_the_best(data):
    scaled(files_of(data)[0], "empty", {"before": 0.73, "between": 1.0, "after": 1.0})
    ceilings = next(iter(load_history(data).ceilings.values()))
    assert ceilings.floor_graph_ns == pytest.approx(synthetic.H200.floor_graph_ns, rel=0.01)


@pytest.mark.parametrize("factor, rate", [(0.9, 1 / 0.9), (1.1, 1.0)])
def test_memory_roof_is_the_faster_of_two_copies(data, factor, rate):
    def doubled(lines):
        for line in lines:
            yield line
            if (value := json.loads(line)).get("name") == "copy":
                yield json.dumps(value | {"name": "copy-torch"})

    rewritten(files_of(data)[0], doubled)
    scaled(files_of(data)[0], "copy-torch", dict.fromkeys(("before", "between", "after"), factor))
    ceilings = next(iter(load_history(data).ceilings.values()))
    expected = synthetic.H200.bytes_per_s * rate
    assert ceilings.copy_bytes_per_s == pytest.approx(expected, rel=0.01)


def test_cpu_has_the_ceilings_that_it_measured_and_no_others(tmp_path):
    synthetic.build(tmp_path, cards=(synthetic.CPU,), commits=1, **SMALL)
    (ceilings,) = load_history(tmp_path).ceilings.values()
    assert ceilings.fp32_flops_per_s == pytest.approx(synthetic.CPU.flops_per_s, rel=0.01)
    assert ceilings.floor_graph_ns is None
    assert ceilings.special_ops_per_s is None


@pytest.mark.parametrize(
    ("copy", "read", "roof"),
    [(4.2e12, 4.1e12, 4.2e12), (4.1e12, 4.4e12, 4.4e12), (None, None, None)],
)
def test_memory_roof_is_the_faster_of_copying_and_reading(copy, read, roof):
    measured = Ceilings(copy, read, 9e12, None, None, None, {}, None, None, None)
    assert measured.memory_bytes_per_s == roof
