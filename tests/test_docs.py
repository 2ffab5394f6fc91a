"""What the documents point at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPO.glob("*.md"), *REPO.glob("docs/*.md")])
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    """A test that a document calls upon is there under that name."""
    for file, name in TEST.findall(page.read_text()):
        source = REPO / file
        assert source.is_file(), f"{page.name}: {file} does not exist"
        assert re.search(rf"^(async )?def {name}\(", source.read_text(), re.MULTILINE), f"{page.name}: {file}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link leads to a file of the repository."""
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
