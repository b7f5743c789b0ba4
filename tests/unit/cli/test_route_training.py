"""`ssop route calibrate` and `ssop route train`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ssop_cli.app import app
from ssop_cli.failure import EXIT_SETTINGS, EXIT_USAGE, CommandError
from ssop_cli.route_training import calibrate, open_classifier

SAMPLES = json.loads((Path(__file__).parents[2] / "vectors" / "routing_samples.json").read_text(encoding="utf-8"))
TEXTS = [*SAMPLES["en"], *SAMPLES["zh"]]
run = CliRunner().invoke


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_threshold_sends_the_wanted_share(tmp_path: Path, share: float) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    classifier = open_classifier(None)
    found = calibrate(file, share, classifier)
    assert found.rows[0][1] == pytest.approx(share, abs=1 / len(TEXTS))
    sent = sum((classifier.score(text).score or 0) >= found.rows[0][0] for text in TEXTS)
    assert sent / len(TEXTS) == pytest.approx(found.rows[0][1])


def test_plain_lines_and_logged_scores_are_read(tmp_path: Path) -> None:
    file = tmp_path / "mixed"
    log = json.dumps({"decision": {"complexity": 0.9}})
    file.write_text(f"What is the capital of Peru?\n\n{log}\n7\n{{}}\n\x00\n", encoding="utf-8")
    found = calibrate(file, None, open_classifier(None))
    assert (found.texts, found.abstained, len(found.rows)) == (3, 1, 5)


def test_what_cannot_be_calibrated_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for file, share in ((tmp_path / "empty", 0.5), (tmp_path / "none", 0.5), (tmp_path / "empty", 1.5)):
        with pytest.raises(CommandError):
            calibrate(file, share, open_classifier(None))


def test_a_damaged_artefact_is_a_setting_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no")
    (tmp_path / "texts").write_text("Hello there\n")
    done = run(app, ["route", "calibrate", str(tmp_path / "texts"), "--classifier", str(tmp_path / "bad.onnx")])
    assert done.exit_code == EXIT_SETTINGS


def test_a_classifier_is_trained_written_and_used(tmp_path: Path) -> None:
    labels, out = tmp_path / "labels.jsonl", tmp_path / "own.onnx"
    rows = [{"text": f"Say {at} in French.", "label": "lite"} for at in range(40)]
    rows += [{"text": f"Prove by induction that {at} n is even for all even n.", "label": "full"} for at in range(40)]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(app, ["route", "train", str(labels), "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 80
    assert open_classifier(out).version == json.loads(done.stdout)["classifier"]
    assert run(app, ["route", "train", str(labels), "--out", str(out)]).exit_code == EXIT_USAGE
    assert run(app, ["route", "train", str(labels), "--out", str(out), "--force"]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.jsonl", "own.onnx"]


def test_unusable_labels_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text('{"text": "a"}\n')
    done = run(app, ["route", "train", str(tmp_path / "labels.jsonl"), "--out", str(tmp_path / "own.onnx")])
    assert done.exit_code == EXIT_SETTINGS
    assert not (tmp_path / "own.onnx").exists()
