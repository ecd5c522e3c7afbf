"""The rules as a whole: codes, documentation, and the examples in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphdsl.check import Rule, rules, rules_page
from graphdsl.check.rules import EXAMPLE_PRELUDE, rule
from graphdsl.errors import UpdateError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "checks.md"
FAMILIES = {
    "1": "structure|params|programmatic",
    "2": "kernels|placement|attributes|captured|devices|elementwise|imported",
    "3": "batch|copies|memsets|operands|rows",
    "4": "allocations|lifetimes",
    "5": "conditionals",
    "6": "edges|hazards",
    "7": "advice",
}
PRELUDE_OPERANDS = {"buffer 'raw'", "buffer 'x'", "buffer 'y'", "param 'n'", "param 'gain'"}


def run_example(rule: Rule, which: str) -> dict:
    example = re.search(rf"```python {which}\n(.*?)```", rule.documentation, re.S)
    assert example is not None, f"{rule.code} has no example of what is {which}"
    names: dict = {}
    exec(compile(EXAMPLE_PRELUDE + example[1], f"{rule.code} {which}", "exec"), names)
    return names


def found_in(names: dict) -> list:
    report = names["g"].check(names["target"], values=names["values"], disabled=names["disabled"])
    return [found for found in report if found.field not in PRELUDE_OPERANDS]


CHECKED = [rule for rule in rules() if rule.code != "GD206"]


@pytest.mark.parametrize("rule", CHECKED, ids=lambda rule: rule.code)
def test_the_wrong_example_breaks_this_rule_alone(rule):
    found = found_in(run_example(rule, "wrong"))
    errors = {each.code for each in found if each.severity == "error"}
    assert rule.code in {each.code for each in found}
    assert errors <= {rule.code}


@pytest.mark.parametrize("rule", CHECKED, ids=lambda rule: rule.code)
def test_the_right_example_breaks_no_rule(rule):
    found = found_in(run_example(rule, "right"))
    assert not [each for each in found if each.severity == "error" or each.code == rule.code]


def test_the_example_of_an_update():
    (types_kept,) = (rule for rule in rules() if rule.code == "GD206")
    run_example(types_kept, "right")["exe"].close()
    with pytest.raises(UpdateError, match="compiled for"):
        run_example(types_kept, "wrong")


def test_codes_are_unique_sorted_and_in_the_file_of_their_family():
    listed = [rule.code for rule in rules()]
    assert listed == sorted(set(listed))
    for each in rules():
        assert re.fullmatch(r"GD\d{3}", each.code)
        assert re.search(FAMILIES[each.code[2]], each.function.__module__), each.code


def test_a_code_cannot_be_given_twice():
    with pytest.raises(ValueError, match="GD101"):
        rule("GD101", "error", "Another rule")(lambda context, found: ())
    assert next(each for each in rules() if each.code == "GD101").title == "No cycles"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
def test_each_rule_says_why_and_what_to_do(rule):
    assert "**Why.**" in rule.documentation
    assert "**Remedy.**" in rule.documentation


def test_the_page_is_current():
    command = (
        "python -c \"from graphdsl.check import rules_page; print(rules_page(), end='')\" > docs/reference/checks.md"
    )
    assert PAGE.read_text() == rules_page(), f"the page is old; make it with: {command}"


def test_links_in_the_page_lead_to_its_headings():
    page = rules_page()
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", page, re.M)
    }
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert len(links) == len(rules())
    assert links <= anchors
