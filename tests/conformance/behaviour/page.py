"""Makes the page of what was recorded: verdicts, and the driver's answers in few words."""

from __future__ import annotations

from typing import Any

from tests.conformance.behaviour.run import DIED, HUNG
from tests.conformance.behaviour.trials import SECTIONS, Section, Trial

Record = dict[str, Any]

_BREAK = "<br>"  # a new line in a cell of a table

_ENDS = {"dies": DIED, "hangs": HUNG}

AGREES, DIFFERS, UNTRIED, SEEN = "agrees", "differs", "could not be tried", "measured"

_INTRODUCTION = """\
# Driver behaviour

What the driver does, rule by rule, read off one machine: {gpu}, driver {driver}, CUDA {cuda}, cuda-bindings {bindings},
{date}. `make driver-behaviour` tries every rule on the GPU at hand, each in a process of its own, and writes this
page; nothing here is written by hand. The emulator does the same, and the conformance tests hold both to it. Where a
driver crashes or hangs, or promises nothing, it is not imitated: the emulator gives a code, or says what is wrong.

A rule says what the driver is documented to do. It **agrees** if the driver did that, **differs** if it did something
else (then the driver is right, and graphdsl follows it), and **could not be tried** where this machine does not allow
it. What no documentation foretells is **measured**. Codes are the driver's without `CUDA_ERROR_`; an answer stands
once, before all that got it.
"""


def render(record: Record, trials: dict[str, Trial]) -> str:
    """The page.

    Parameters
    ----------
    record : dict
        ``machine`` (what was asked) and ``trials`` (what each said, by name), as ``driver-behaviour.json`` holds them.
    trials : dict of str to Trial
        All trials by name, in the order of the page.
    """
    machine = record["machine"]
    lines = [_INTRODUCTION.format(**machine), _summary(record, trials)]
    for section in SECTIONS:
        lines += ["", f"## {section.number} {section.title}", "", "| rule | verdict | what the driver answered |"]
        lines += ["| --- | --- | --- |"]
        lines += [_row(trial, _of(record, trial)) for trial in trials.values() if _belongs(trial, section)]
    return "\n".join(lines) + "\n"


def verdict(trial: Trial, seen: Record) -> str:
    """One of ``AGREES``, ``DIFFERS``, ``UNTRIED`` and ``SEEN``."""
    if "untried" in seen:
        return UNTRIED
    if _mismatches(trial, seen):
        return DIFFERS
    foretold = trial.ending in _ENDS or any("wanted" in step for step in seen["steps"])
    return AGREES if foretold else SEEN


def fits(step: Record) -> bool:
    """True if the answer is one that the rule allows, or if the rule says nothing about it.

    What follows a comma in an answer is detail, which a rule may leave out.

    Examples
    --------
    >>> fits({"what": "add", "answer": "INVALID_VALUE, blames node 2", "wanted": ["INVALID_VALUE"]})
    True
    """
    return not _misses(step)


def _misses(step: Record) -> bool:
    return "wanted" in step and not any(
        step["answer"] == wanted or step["answer"].startswith(f"{wanted}, ") for wanted in step["wanted"]
    )


def _mismatches(trial: Trial, seen: Record) -> list[str]:
    """How what was seen differs from the rule, each as a phrase."""
    grouped: dict[str, list[str]] = {}
    for step in filter(_misses, seen["steps"]):
        wanted = " or ".join(f"`{answer}`" for answer in step["wanted"])
        grouped.setdefault(f"`{step['answer']}`, not {wanted}", []).append(step["what"])
    found = _phrases(grouped)
    if not _ended_as_foretold(trial.ending, seen.get("end", "")):
        found.append(seen.get("end", "the process lived"))
    return found


def _ended_as_foretold(foretold: str, end: str) -> bool:
    if foretold in _ENDS:
        return end.startswith(_ENDS[foretold])
    return foretold == "any" or not end


def _of(record: Record, trial: Trial) -> Record:
    seen: Record = record["trials"].get(trial.name, {"steps": [], "untried": "not yet run on this machine"})
    return seen


def _belongs(trial: Trial, section: Section) -> bool:
    return trial.rule.rpartition(".")[0] == section.number


def _summary(record: Record, trials: dict[str, Trial]) -> str:
    verdicts = [verdict(trial, _of(record, trial)) for trial in trials.values()]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in (AGREES, DIFFERS, SEEN, UNTRIED))
    return f"Of {len(verdicts)} trials: {counts}."


def _row(trial: Trial, seen: Record) -> str:
    kind = verdict(trial, seen)
    how = {DIFFERS: _BREAK.join(_mismatches(trial, seen)), UNTRIED: seen.get("untried", "")}.get(kind, "")
    ruled = f"**{kind}**" + (f": {how}" if how else "")
    cells = (f"{trial.rule} {trial.says}", ruled, _BREAK.join(_answers(seen)))
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _answers(seen: Record) -> list[str]:
    """Each different answer once, with all that got it; then how the process ended, if not by itself."""
    grouped: dict[str, list[str]] = {}
    for step in seen["steps"]:
        grouped.setdefault(f"`{step['answer']}`", []).append(step["what"])
    return _phrases(grouped) + ([seen["end"]] if "end" in seen else [])


def _phrases(grouped: dict[str, list[str]]) -> list[str]:
    return [f"{answer}: {'; '.join(dict.fromkeys(asked))}" for answer, asked in grouped.items()]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
