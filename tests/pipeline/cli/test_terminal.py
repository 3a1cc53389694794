"""What a person sees while a run works: what a stage said last, times as people say them."""

from pathlib import Path

from pipeline.console.formatting import duration, moment
from pipeline.orchestration.local import last_line


def test_what_a_stage_says_is_shown_and_not_what_its_launcher_says(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("")
    assert last_line(log) == ""
    noise = "[2026-11-21 09:19:27,546] [WARNING] [real_accelerator.py:213:get] Setting …\n"
    log.write_text(f"step 5/60: loss 3.1\n{noise}\n  \n")
    assert last_line(log) == "step 5/60: loss 3.1"
    log.write_text(noise[:-1] * 40 + "\n")  # as long as the launcher's command line
    assert last_line(log) == ""


def test_times_are_as_people_say_them() -> None:
    said = {
        0.0: "0.0 s",
        9.94: "9.9 s",
        9.96: "10.0 s",
        59.4: "59 s",
        59.6: "1 min 00 s",
        434: "7 min 14 s",
        3599.7: "1 h 00 min",
        360_000: "100 h 00 min",
    }
    assert {seconds: duration(seconds) for seconds in said} == said
    assert moment("2026-01-31T10:05:59+01:00") == "2026-01-31 09:05 UTC"
