from __future__ import annotations

from nlpctl.export.report import markdown_of


def test_megabytes_are_those_of_compress():
    """Of 1024 x 1024 bytes: the same graph has the same size on both pages."""
    check = {"engine": "paddle", "precision": "fp32", "largest_difference": 0.0, "agreement": 1.0, "changed": 0}
    report = {
        "source": "outputs/run/model",
        "task": "sequence_classification",
        "rows": {"count": 20, "from": "dev", "real": True},
        "calibration": None,
        "shapes": [[1, 8], [7, 24]],
        "tolerance": {"fp32_difference": 1e-4, "int8_agreement": 0.97},
        "graphs": [{"files": ["model.pdmodel"], "bytes": 90_900_000, "checks": [check]}],
        "refused": [],
    }
    (row,) = [line for line in markdown_of(report).splitlines() if "model.pdmodel" in line]
    assert row.split("|")[2].strip() == "86.7"
